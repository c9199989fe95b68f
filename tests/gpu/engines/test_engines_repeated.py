"""Each CUDA engine by name: repeated runs, two at a time, long walks, and in a CUDA graph."""

import pytest
from needs import need_module, on_gpu_only

torch = need_module("torch")

from engine_problem import (  # noqa: E402
    CELLS,
    ENGINES,
    OF_ANY_SIZE,
    each_cell,
    each_engine,
    lanes,
    make,
)
from kernel_problem import (  # noqa: E402
    NAN,
    ON,
    Call,
    Problem,
    assert_same_bits,
    check_halves,
    make_mask,
    there,
    zoneouts,
)


@pytest.mark.parametrize("size", [(16, 20, 1, 256), (128, 9, 2, 64), (3, 200, 1, 96)], ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float32", "tf32"])
@each_cell
@each_engine
def test_same_bits_every_time(engine, cell, precision, size):
    problem = make(cell, engine, precision, size, zoneout=zoneouts(cell), training=1)
    first = problem.run()
    for _ in range(5):
        assert_same_bits(problem.run(), first)


@pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")
@pytest.mark.parametrize("size", [(70, 9, 1, 900), (200, 7, 1, 1024)], ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float32", "tf32"])
@each_cell
def test_one_launch_for_all_steps(cell, precision, size):
    """Sizes at which `tiled` does so forward and backward, with all noise and masked steps."""
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    mask = make_mask("holes", *size[:2])
    problem = make(cell, "tiled", precision, size, mask=mask, **options)
    assert problem.plan().count("one launch") == 2
    problem.check()
    first = problem.run()
    for _ in range(3):
        assert_same_bits(problem.run(), first)


# Where `grid` goes backward in clusters: a row tile and two, a unit tile and two, one pass and
# several, the depth in two, four and eight parts, one step, and rows of R that no wide load fits.
SHARED = [(9, 6, 1, 640), (45, 5, 1, 777), (9, 7, 2, 777), (29, 5, 1, 314), (45, 5, 1, 500)]
SHARED += [(29, 6, 3, 500), (12, 1, 1, 640)]
SHARED_CASES = [
    *((cell, "bfloat16", size) for cell in CELLS for size in SHARED),
    *((cell, "float16", SHARED[1]) for cell in CELLS),
    *(("elman", precision, size) for size in SHARED[:3] for precision in ("float32", "tf32")),
    *((cell, "tf32", (9, 6, 1, 500)) for cell in CELLS if cell != "elman"),
]


def make_shared(cell, precision, size, **options):
    problem = make(cell, "grid", precision, size, **options)
    assert "clusters share gradients" in problem.plan()
    return problem


@pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")
@pytest.mark.parametrize(("cell", "precision", "size"), SHARED_CASES, ids=str)
def test_clusters_that_share_gradients(cell, precision, size):
    """With all noise and masked steps, and with no optional tensor."""
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    mask, reverse = make_mask("holes", *size[:2]), lanes(size)
    problem = make_shared(cell, precision, size, mask=mask, reverse=reverse, **options)
    problem.check()
    problem.check(alias=True)
    first = problem.run()
    for _ in range(3):
        assert_same_bits(problem.run(), first)
    nothing = {"initial": False, "initial_gradients": False}
    make_shared(cell, precision, size, reverse=reverse, **nothing).check()


@each_cell
@each_engine
def test_long_sequences(engine, cell):
    """More steps than any counter of 16 bits; the second half, walked alone, ends the same."""
    t = 70_000
    wx = make(cell, engine, "float32", (1, t, 1, 16)).wx.to(ON)
    problem = Problem(cell, 1, 1, 1, 16, engine=engine)
    kernel, *extra = there([problem.kernel, *problem.extra])
    check_halves(cell, wx, kernel, extra, engine=engine)


@on_gpu_only
@pytest.mark.parametrize("second", ENGINES)
@each_engine
def test_two_streams_at_once(engine, second):
    """Two recurrences in flight: no deadlock, and neither reads the other's numbers."""
    problems = [
        make("lstm", engine, "bfloat16", (16, 200, 1, 700 if engine == "grid" else 200)),
        make("gru", second, "float32", (40, 150, 2, 96), reverse=[0, 1]),
    ]
    expected = [problem.run() for problem in problems]
    calls = [[Call(problem) for _ in range(8)] for problem in problems]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in problems]
    for pair in zip(*calls, strict=True):
        for call, stream in zip(pair, streams, strict=True):
            with torch.cuda.stream(stream):
                call.forward()
                call.backward()
    torch.cuda.synchronize()
    for of_problem, want in zip(calls, expected, strict=True):
        for call in of_problem:
            assert_same_bits(call.results(), want)


def check_in_a_graph(problem):
    """Captured once; each replay reads the current contents of the inputs."""
    problem.run()  # device queries that an engine makes only once happen here
    call, graph = Call(problem), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.forward()
        call.backward()
    for scale in (1.0, 0.5):
        problem.wx *= scale
        call.wx.copy_(problem.wx)
        for written in (call.y, call.gradients["dwx"], *call.final, *call.ds0):
            written.fill_(NAN)
        for _ in range(2):
            graph.replay()
        assert_same_bits(call.results(), problem.run())


@on_gpu_only
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@each_cell
@each_engine
def test_cuda_graph(engine, cell, precision):
    check_in_a_graph(make(cell, engine, precision, (16, 30, 2, 72), reverse=[0, 1]))


@pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")
@each_cell
def test_cuda_graph_of_clusters_that_share_gradients(cell):
    check_in_a_graph(make_shared(cell, "bfloat16", (16, 30, 1, 768)))
