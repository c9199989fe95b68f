"""`haste_keras/native/binding.py` has the structs and the numbers of c_api.h."""

import ctypes
import pathlib
import re
import subprocess
import sys

import pytest

from haste_keras.native import binding

ROOT = pathlib.Path(__file__).parents[2]
(HEADER,) = (ROOT / "lib").rglob("c_api.h")
TYPES = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "char": ctypes.c_char,
}
STRUCTS = {
    f"Haste{name}": each
    for name, each in vars(binding).items()
    if isinstance(each, type) and issubclass(each, ctypes.Structure)
}


@pytest.fixture(scope="module")
def header():
    """The header without comments."""
    return re.sub(r"//[^\n]*", "", HEADER.read_text())


def constants(header):
    return {name: int(n) for name, n in re.findall(r"define HASTE_(MAX_\w+) (\d+)", header)}


def size_of(declarator, of, sizes):
    """Bytes of a field `declarator` ("a_row", "*x[4]") of the type `of`."""
    is_pointer = declarator.startswith(("*", "("))
    bytes_each = ctypes.sizeof(ctypes.c_void_p if is_pointer else TYPES[of])
    count = re.search(r"\[(.+?)\]", declarator)
    if count is None:
        return bytes_each
    return bytes_each * sum(sizes[n] if n in sizes else int(n) for n in count[1].split(" + "))


def fields(header, struct):
    """[(name, bytes)] of a struct of the header."""
    (body,) = re.findall(r"typedef struct \{([^}]*)\} " + struct + ";", header)
    sizes = {f"HASTE_{name}": number for name, number in constants(header).items()}
    found = []
    for declaration in filter(str.strip, body.split(";")):
        words = declaration.replace("const ", "").replace("*", " * ").split()
        of, rest = words[0], " ".join(words[1:]).replace("* ", "*")
        for declarator in [rest] if "(" in rest else rest.split(", "):
            name = re.search(r"[A-Za-z_]\w*", declarator)[0]
            found.append((name, size_of(declarator, of, sizes)))
    return found


def test_there_are_structs():
    assert {"HasteRnnConfig", "HasteCellInfo", "HasteRnnBackwardArgs"} <= STRUCTS.keys()


@pytest.mark.parametrize("struct", STRUCTS)
def test_fields(header, struct):
    ours = [(name, ctypes.sizeof(of)) for name, of in STRUCTS[struct]._fields_]
    assert ours == fields(header, struct)


def test_numbers(header):
    for name, number in constants(header).items():
        assert getattr(binding, name) == number
    for names in (binding.DEVICES, binding.DTYPES, binding.ACTIVATIONS):
        for name, number in names.items():
            assert re.search(rf"HASTE_{name.upper()} = {number}\b", header), name


def test_it_needs_nothing_but_ctypes():
    """Programs without TensorFlow load it by its path."""
    program = (
        "import importlib.util, sys\n"
        "before = set(sys.modules)\n"
        f"spec = importlib.util.spec_from_file_location('binding', {binding.__file__!r})\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(done.stdout.split()) <= {"ctypes", "_ctypes", "struct", "_struct"}, done.stdout
    assert done.returncode == 0, done.stderr
