"""Streams of a green context, which has some of the GPU's multiprocessors: plans use only those,
whether or not the context is the current one."""

import contextlib
import ctypes
import re

import pytest
from needs import need, need_module

torch = need_module("torch")
need(torch.cuda.is_available(), "GPU")
need(torch.cuda.get_device_capability() >= (9, 0), "a GPU of compute capability 9.0 or newer")

from kernel_problem import Problem  # noqa: E402
from layer_problem import SIZES, TOLERANCE, Layer, check  # noqa: E402

CUDA = ctypes.CDLL("libcuda.so.1")
need(hasattr(CUDA, "cuStreamGetGreenCtx"), "driver that has green contexts")
MULTIPROCESSORS = 32
# CUdevResource: its kind, padding up to byte 96, the number of multiprocessors, room to spare.
RESOURCE, COUNT_AT, OF_MULTIPROCESSORS = ctypes.c_ubyte * 512, 96, 1


def driver(name, *arguments):
    code = getattr(CUDA, name)(*arguments)
    assert code == 0, f"{name}: CUresult {code}"


def made(name, *arguments):
    """The handle that a function of the driver writes through its first argument."""
    handle = ctypes.c_void_p()
    driver(name, ctypes.byref(handle), *arguments)
    return handle


@pytest.fixture(scope="module")
def green():
    """A green context of MULTIPROCESSORS."""
    torch.zeros(1, device="cuda")  # the primary context
    every, part, rest = RESOURCE(), RESOURCE(), RESOURCE()
    driver("cuDeviceGetDevResource", 0, every, OF_MULTIPROCESSORS)
    groups = ctypes.c_uint(1)
    driver(
        "cuDevSmResourceSplitByCount",
        part, ctypes.byref(groups), every, rest, 0, MULTIPROCESSORS,
    )  # fmt: skip
    count = ctypes.c_uint.from_buffer(part, COUNT_AT).value
    assert count == MULTIPROCESSORS
    descriptor = made("cuDevResourceGenerateDesc", part, 1)
    context = made("cuGreenCtxCreate", descriptor, 0, 1)
    yield context
    driver("cuGreenCtxDestroy", context)


@pytest.fixture(params=["of the stream alone", "current"])
def stream(green, request):
    """Torch's current stream while a test runs: of the green context."""
    handle = made("cuGreenCtxStreamCreate", green, 1, 0)
    with contextlib.ExitStack() as stack:
        if request.param == "current":
            driver("cuCtxPushCurrent_v2", made("cuCtxFromGreenCtx", green))
            stack.callback(made, "cuCtxPopCurrent_v2")
        yield stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(handle.value)))
        torch.cuda.synchronize()
    driver("cuStreamDestroy_v2", handle)


def blocks(plan):
    """The blocks of each walk of `grid`, which must all be resident."""
    cuts = re.findall(r"groups × blocks × units (\d+) × (\d+) ×", plan)
    return [int(groups) * int(count) for groups, count in cuts]


# A batch and a size whose resident blocks take most of a GPU's multiprocessors.
@pytest.mark.parametrize("cell", ["lstm", "elman"])
@pytest.mark.parametrize("size", [(16, 40, 1, 768), (64, 20, 1, 1024), (4, 40, 2, 512)], ids=str)
def test_fits_what_the_context_has(stream, cell, size):
    problem = Problem(cell, *size, dtype=torch.bfloat16)
    problem.check()


@pytest.fixture
def planned():
    """A problem, and its plan for all of the GPU."""
    problem = Problem("lstm", 16, 40, 1, 768, dtype=torch.bfloat16)
    return problem, problem.plan()


def test_plan(planned, stream):
    problem, everywhere = planned
    there = problem.plan()
    assert max(blocks(there), default=0) <= MULTIPROCESSORS < max(blocks(everywhere)), there


def test_layer(stream):
    check(Layer(SIZES[0], "bfloat16"), TOLERANCE["bfloat16"])
