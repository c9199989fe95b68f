"""Shared by the tests that name CUDA engines: the list of engines, and problems for them."""

import pytest
from kernel_problem import ON, Call, Problem, assert_same_bits
from needs import need_module

torch = need_module("torch")

HOPPER = ON == "cuda" and torch.cuda.get_device_capability() == (9, 0)
AMPERE = ON == "cuda" and torch.cuda.get_device_capability() >= (8, 0)
ON_CHIP = ["block", "cluster", "grid"] if HOPPER else ["block", "grid"] if AMPERE else []
# Engines that run every size.
OF_ANY_SIZE = ["blas", "stepwise"] if ON == "cuda" else ["cpu"]
if HOPPER:
    OF_ANY_SIZE.insert(0, "tiled")
ENGINES = [*ON_CHIP, *OF_ANY_SIZE] if ON == "cuda" else OF_ANY_SIZE
CELLS = ["lstm", "gru", "elman", "slstm", "ligru"]
# Precisions of a product: a dtype, and whether float32 may use TF32.
PRECISIONS = {
    "bfloat16": {"dtype": torch.bfloat16},
    "float16": {"dtype": torch.float16},
    "float32": {"dtype": torch.float32},
    "tf32": {"dtype": torch.float32, "allow_tf32": 1},
}

each_engine = pytest.mark.parametrize("engine", ENGINES)
each_cell = pytest.mark.parametrize("cell", CELLS)
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


def fitted(engine, cell, precision, size):
    """N, T, K, H in range for the engine: a block holds R of so many units."""
    if engine != "block":
        return size
    n, t, k, h = size
    return n, t, k, min(h, most_block_units(cell, precision))


def most_block_units(cell, precision):
    """The largest H: in clusters backward's shared memory limits it, in one block its warps."""
    if not HOPPER:  # the warps' registers: fewer units with floats of two or three terms
        return 64 if precision == "float32" or (precision, cell) == ("tf32", "elman") else 96
    if cell == "elman" or precision != "float32":
        return 512
    return 320 if cell == "slstm" else 352


def make(cell, engine, precision, size, **options):
    """A Problem of that size, or of the largest size that the engine accepts."""
    size = fitted(engine, cell, precision, size)
    problem = Problem(cell, *size, engine=engine, **PRECISIONS[precision], **options)
    assert f"{cell} on {engine}" in problem.plan()
    return problem


def lanes(size):
    """Every other lane walks backwards."""
    return [lane % 2 for lane in range(size[2])]


def moved(tensor):
    """A copy that begins one element after an aligned address."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    memory[1:] = tensor.flatten()
    return memory[1:].view(tensor.shape)


def check_tensors_that_begin_anywhere(problem):
    """The same bits, whichever tensor is not aligned."""
    expected = problem.run()
    names = ["wx", "y", "dy"]
    for name in [*names, "gates", "saved", "dwx", "dq"]:
        call = Call(problem)
        if name in names:
            setattr(call, name, moved(getattr(call, name)))
        elif name == "saved":
            call.saved[-1] = call.given["saved"][-1] = moved(call.saved[-1])
        elif name == "gates":
            call.given["gates"] = moved(call.given["gates"])
        elif call.gradients[name] is not None:
            call.gradients[name] = moved(call.gradients[name])
        call.forward()
        call.backward()
        assert_same_bits(call.results(), expected)


def check_nothing_is_written_after_the_last_row(problem):
    """Memory after the batch does not change."""
    call = Call(problem)
    rows = call.y.shape[0]
    room = torch.full((rows + 8, *call.y.shape[1:]), torch.nan, dtype=call.y.dtype, device=ON)
    call.y = room[:rows]
    call.forward()
    assert room[:rows].isfinite().all()
    assert room[rows:].isnan().all()
