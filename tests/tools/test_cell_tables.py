"""Every list of cells has the cells of lib/cells/cells.h. If a new cell is missing in a list, the
message names the file."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CELLS_H = (ROOT / "lib/cells/cells.h").read_text()
HEADERS = "\n".join(path.read_text() for path in sorted((ROOT / "lib/cells").glob("*.h")))


def structs(group):
    """The structs of HASTE_<group>_CELLS."""
    (lines,) = re.findall(rf"define HASTE_{group}_CELLS\(X\)((?:.*\\\n)*.*)", CELLS_H)
    return re.findall(r"\bX\((\w+)\)", lines)


def name_of(struct):
    """The name that its header gives a struct: "lstm"."""
    body = HEADERS.partition(f"struct {struct} ")[2]
    return re.search(r'kName = "(\w+)"', body)[1]


ONE_PRODUCT, TWO_PRODUCT = structs("ONE_PRODUCT"), structs("TWO_PRODUCT")
MATRIX, NORM, SCAN = ONE_PRODUCT + TWO_PRODUCT, structs("NORM"), structs("SCAN")
NAMES = {group: [name_of(each) for each in found] for group, found in
         {"one": ONE_PRODUCT, "matrix": MATRIX, "norm": NORM, "scan": SCAN}.items()}  # fmt: skip
ALL = NAMES["matrix"] + NAMES["norm"] + NAMES["scan"]


def value(path, name):
    """The value that a Python file gives `name`, of a dict its keys; the file is not run."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            if isinstance(node.value, ast.Dict):
                return [ast.literal_eval(key) for key in node.value.keys]
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no {name}")


def test_the_build():
    path = "lib/cells/cells.bzl"
    bazel = {}
    exec((ROOT / path).read_text(), bazel)
    expected = {"ONE_PRODUCT": ONE_PRODUCT, "MATRIX": MATRIX, "NORM": NORM, "SCAN": SCAN}
    for group, found in expected.items():
        assert bazel[f"{group}_CELLS"] == found, f"{path}, {group}_CELLS"


def test_python():
    path = "haste_keras/native/cell_spec.py"
    specs = re.findall(r"^\w+ = CellSpec\(\s*\"(\w+)\"", (ROOT / path).read_text(), re.MULTILINE)
    assert sorted(specs) == sorted(ALL), path


def default(name, text, otherwise):
    """The value of a trait in a struct's text, or of an argument in a class's."""
    found = re.search(rf"\b{name} ?= ?(?:HASTE_|\")(\w+)", text)
    return found[1].lower() if found else otherwise


@pytest.mark.parametrize("struct", MATRIX + NORM + SCAN)
def test_default_activations(struct):
    """Kernels have a version made for the activations that the cell's layer has by default."""
    specs = (ROOT / "haste_keras/native/cell_spec.py").read_text()
    (layer,) = re.findall(rf"CellSpec\(\s*\"{name_of(struct)}\",\s*\"(\w+)\"", specs)
    files = [path.read_text() for path in (ROOT / "haste_keras/layers").glob("*.py")]
    (layer,) = [text.partition(f"class {layer}(")[2] for text in files if f"class {layer}(" in text]
    arguments = layer.partition("def __init__(")[2].partition("):")[0]
    if "activation" not in arguments:
        pytest.skip("the layer has no activation")
    header = HEADERS.partition(f"struct {struct} ")[2].partition("\n};")[0]
    if ": MinRnn<" in header:
        header += HEADERS.partition("struct MinRnn ")[2].partition("\n};")[0]
    assert default("kActivation", header, "tanh") == default("activation", arguments, None)
    recurrent = default("recurrent_activation", arguments, None)
    recurrent = recurrent or default("forget_activation", arguments, "sigmoid")
    assert default("kRecurrentActivation", header, "sigmoid") == recurrent


@pytest.mark.parametrize(
    ("path", "name", "groups"),
    [
        ("tests/gpu/support/cell_reference.py", "CELLS", ("matrix",)),
        ("tests/gpu/support/scan_reference.py", "CELLS", ("scan",)),
        ("tests/gpu/support/engine_problem.py", "CELLS", ("one",)),
        ("benchmarks/gpu/cases.py", "CELLS", ("matrix",)),
    ],
)
def test_gpu(path, name, groups):
    expected = [each for group in groups for each in NAMES[group]]
    assert sorted(value(path, name)) == sorted(expected), f"{path}, {name}"


@pytest.mark.parametrize("path", ["tests/gpu/engines/test_small.py", "tests/keras/rows.py"])
def test_normalised(path):
    text = (ROOT / path).read_text().lower().replace("_", "")
    for cell in NAMES["norm"]:
        assert cell.replace("_", "") in text, f"{path} does not name {cell}"


# Files that the guide names and that have no line of a cell, or of cells of one family only.
OF_ALL = {"tests/lib/cells/cells_test.cc", "tests/lib/cpu/recurrence_test.cc"}
OF_SOME = {
    *("haste_keras/ops/dense.py", "haste_keras/ops/pooling.py", "haste_keras/ops/normalization.py"),
    *("tests/gpu/support/cell_reference.py", "tests/gpu/support/scan_reference.py"),
    *("tests/gpu/support/engine_problem.py", "tests/gpu/engines/test_small.py"),
    *("tests/gpu/engines/test_stationary_norm.py", "benchmarks/gpu/cases.py"),
    "benchmarks/gpu_scan.py",
}
SOURCES = (".py", ".h", ".cc", ".cuh", ".bzl", ".md", ".inc")
TOUCHED = ("lib", "frameworks", "haste_keras", "tests", "benchmarks", "examples", "tools", "docs")


@pytest.mark.parametrize(
    ("cell", "page"), [("ligru", "ligru"), ("mingru", "min_rnn"), ("minlstm", "min_rnn")]
)
def test_the_guide(cell, page):
    """docs/adding_a_cell.md names the files that name this cell, and those of other families."""
    guide = (ROOT / "docs/adding_a_cell.md").read_text()
    steps = guide.partition("1. **")[2].partition("These are all.")[0]
    named = set(
        re.findall(r"`((?:lib|haste_keras|tests|benchmarks|docs)/[\w<>./]+|\w+\.md)`", steps)
    )
    named = {name.replace("<cell>", page) for name in named} - OF_ALL
    files = [path for folder in TOUCHED for path in (ROOT / folder).rglob("*")]
    files += ROOT.glob("*.md")
    found = set()
    for path in files:
        name = str(path.relative_to(ROOT))
        if path.suffix in SOURCES and re.search(f"{cell}|{page}", path.read_text(), re.IGNORECASE):
            found.add(name)
    # Figures, what was tried, tests with examples of many cells, and the guide and its test.
    found -= {"docs/adding_a_cell.md", "tests/tools/test_cell_tables.py", "docs/tested.md"}
    examples = ("graph_plugin", "onnx", "litert")
    found -= {"docs/design/experiments.md", *(f"tests/serving/test_{name}.py" for name in examples)}
    pages = ("performance", "howto/", "tutorials/", "troubleshooting", "papers", "quantization")
    examples = tuple(f"docs/{page}" for page in pages)
    found = {
        name
        for name in found
        if not name.startswith((*examples, "benchmarks/papers/", "tests/benchmarks/"))
    }
    assert not found - named, "docs/adding_a_cell.md does not name them"
    assert named - found <= OF_SOME | {f"tests/tf/ops/test_{page}.py"}, f"they do not name {cell}"


def test_docs():
    layers = re.findall(
        r"CellSpec\(\s*\"\w+\",\s*\"(\w+)\"", (ROOT / "haste_keras/native/cell_spec.py").read_text()
    )
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/cells").glob("*.md"))
    for layer in layers:
        assert re.search(rf"`(haste_keras\.)?{layer}`", pages), (
            f"docs/cells has no page that names {layer}"
        )
        assert layer in (ROOT / "README.md").read_text(), f"README.md does not name {layer}"
