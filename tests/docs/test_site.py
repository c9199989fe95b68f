"""What `make docs` builds on: the reference names all that is public, plots have their tables."""

import re
import sys

import code_blocks
import pytest
import yaml
from code_blocks import ROOT

import haste_keras
from benchmarks import plot_docs
from haste_keras import loaders, ops, serving

sys.path.insert(0, str(ROOT / "tools/docs"))
import headers

ALIASES = {"SimpleRNN", "SimpleRNNCell"}  # Elman under Keras's name
MODULES = {"ops", "loaders"}


def test_reference_names_everything():
    pages = [page for page in code_blocks.pages() if page.startswith("docs/reference/")]
    named = set(re.findall(r"^::: haste_keras\.(\S+)", "\n".join(
        (ROOT / page).read_text() for page in pages), re.MULTILINE))  # fmt: skip
    expected = set(haste_keras.__all__) - ALIASES - MODULES
    expected |= {f"{module.__name__.removeprefix('haste_keras.')}.{name}"
                 for module in (ops, loaders) for name in module.__all__}  # fmt: skip
    expected |= {f"serving.{name}" for name in serving.__all__ if name not in expected}
    assert expected <= named, expected - named


def test_reference_of_the_headers_has_every_function_and_structure():
    paths = sorted((ROOT / "lib/include/haste").glob("c_api*.h"))
    page = headers.page("C API", {f"haste/{path.name}": path.read_text() for path in paths})
    text = "\n".join(path.read_text() for path in paths)
    named = {name for line in re.findall(r"^### .*", page, re.MULTILINE)
             for name in re.findall(r"`(\w+)`", line)}  # fmt: skip
    functions = set(re.findall(r"^HASTE_API .*?\b(haste_\w+)\(", text, re.MULTILINE))
    structures = set(re.findall(r"^\} (\w+);", text, re.MULTILINE))
    assert len(functions) > 20
    assert functions | structures <= named
    rnn = headers.page("C++", {"haste/rnn.h": (ROOT / "lib/include/haste/rnn.h").read_text()})
    assert "`LayerForward`" in rnn
    assert "internal::Wrap" not in rnn  # no bodies


@pytest.mark.parametrize("name", plot_docs.IMAGES)
def test_plots_find_their_tables(name, tmp_path):
    plot_docs.IMAGES[name](tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert (ROOT / "docs/images" / f"{name}.png").exists()


def test_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == haste_keras.__version__


def test_forms_of_issues_are_yaml():
    for form in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")):
        content = yaml.safe_load(form.read_text())
        if form.stem != "config":
            assert {"name", "description", "body"} <= content.keys(), form.name
            ids = [field["id"] for field in content["body"]]
            assert len(ids) == len(set(ids)), form.name
