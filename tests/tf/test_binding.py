"""`haste_keras/native/binding.py` has the structs and the numbers of the C ABI's headers."""

import ctypes
import math
import pathlib
import re
import subprocess
import sys

import pytest

from haste_keras.native import binding, library

ROOT = pathlib.Path(__file__).parents[2]
HEADERS = sorted((ROOT / "lib").rglob("c_api*.h"))
TYPES = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "char": ctypes.c_char,
}
STRUCTS = {
    f"Haste{name}": each
    for name, each in vars(binding).items()
    if isinstance(each, type) and issubclass(each, ctypes.Structure) and each is not binding.Sized
}


@pytest.fixture(scope="module")
def header():
    """The headers without comments."""
    return re.sub(r"//[^\n]*", "", "\n".join(each.read_text() for each in HEADERS))


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
    inherited = binding.Sized._fields_ if issubclass(STRUCTS[struct], binding.Sized) else []
    ours = [(name, ctypes.sizeof(of)) for name, of in (*inherited, *STRUCTS[struct]._fields_)]
    assert ours == fields(header, struct)


def test_struct_size_is_set():
    sized = [each for each in STRUCTS.values() if issubclass(each, binding.Sized)]
    assert len(sized) == len(STRUCTS) - 1  # all but Status
    assert all(each().struct_size == ctypes.sizeof(each) for each in sized)
    assert all(info.struct_size == ctypes.sizeof(info) for info in library.c_api().cells().values())
    gpu = binding.DeviceProperties(9, 0, multiprocessors=132)
    assert (gpu.sm_major, gpu.sm_minor, gpu.multiprocessors) == (9, 0, 132)


def newer(struct, **fields):
    """`struct` as a newer header has it: with two fields more, which are 0."""
    more = [("new", ctypes.c_int32), ("newer", ctypes.c_int32)]
    return type("Newer", (struct,), {"_fields_": more})(**fields)


class Walk:
    """One step of an LSTM of one unit on the CPU, of structures that a test may change."""

    def __init__(self):
        self.memory = {name: (ctypes.c_float * 4)(1, 1, 1, 1) for name in ("wx", "R", "y")}
        at = {name: ctypes.addressof(each) for name, each in self.memory.items()}
        sizes = dict.fromkeys(("batch", "time", "lanes", "hidden"), 1)
        self.given = {
            "RnnConfig": dict(cell=b"lstm", recurrent_activation=1, **sizes),
            "RnnForwardArgs": at,
            "Executor": {"threads": 1},
        }
        self.structs = {n: getattr(binding, n)(**f) for n, f in self.given.items()}

    def run(self):
        config, args, executor = map(ctypes.byref, self.structs.values())
        api, bytes_ = library.c_api(), ctypes.c_size_t()
        self.memory["y"][0] = 0
        api.call("haste_rnn_workspace_bytes", config, 0, executor, ctypes.byref(bytes_))
        memory = ctypes.create_string_buffer(bytes_.value + 64)
        aligned = ctypes.c_void_p((ctypes.addressof(memory) + 63) // 64 * 64)
        api.call("haste_rnn_forward", config, args, aligned, executor)
        return self.memory["y"][0]

    def refused(self):
        """What the library says to it."""
        with pytest.raises(binding.Error) as error:
            self.run()
        assert self.memory["y"][0] == 0
        return error.value.message


SIGMOID_OF_1 = 1 / (1 + math.exp(-1))
EXPECTED = pytest.approx(SIGMOID_OF_1 * math.tanh(SIGMOID_OF_1 * math.tanh(1)), rel=1e-5)


# The last field of the first version, of structures that have grown.
LAST = {"RnnConfig": "allow_tf32", "RnnForwardArgs": "saved"}


@pytest.mark.parametrize("struct", Walk().structs)
def test_struct_size_that_is_too_small(struct):
    walk = Walk()
    given = walk.structs[struct]
    assert walk.run() == EXPECTED
    last = LAST.get(struct, given._fields_[-1][0])
    for size in (0, 8, getattr(type(given), last).offset):
        given.struct_size = size
        said = walk.refused()
        assert said.startswith(f"Haste{struct}.struct_size: expected sizeof(Haste{struct})")
        assert said.endswith(f"got {size}")
    given.struct_size = ctypes.sizeof(given)
    assert walk.run() == EXPECTED


@pytest.mark.parametrize("struct", Walk().structs)
def test_struct_size_of_a_newer_header(struct):
    walk = Walk()
    walk.structs[struct] = given = newer(getattr(binding, struct), **walk.given[struct])
    assert given.struct_size == ctypes.sizeof(getattr(binding, struct)) + 8
    assert walk.run() == EXPECTED
    given.newer = 1
    said = walk.refused()
    assert said.startswith(f"Haste{struct}: expected zeros after the")
    assert said.endswith(f"newer version at byte {given.struct_size - 4} of {given.struct_size}")


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
