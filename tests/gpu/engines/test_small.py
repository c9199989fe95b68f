"""Every engine once with all options of a walk, and once with none: small enough for
compute-sanitizer (`make sanitize`)."""

import pytest
from needs import need_module

torch = need_module("torch")

import lib_ctypes  # noqa: E402
from engine_problem import (  # noqa: E402
    ENGINES,
    HOPPER,
    OF_ANY_SIZE,
    each_cell,
    each_precision,
    lanes,
    make,
)
from kernel_problem import LIB, NAN, ON, assert_near, make_mask, zoneouts  # noqa: E402
from norm_problem import Normalised  # noqa: E402
from scan_problem import CELLS as SCANS  # noqa: E402
from scan_problem import ScanProblem  # noqa: E402

SIZE = (9, 4, 2, 40)  # N, T, K, H: rows of two groups, units of three tiles, both directions
each_choice = pytest.mark.parametrize("regularised", [False, True], ids=["plain", "regularised"])


def options(cell, size, regularised):
    chosen = {"reverse": lanes(size)}
    if regularised:
        chosen |= {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
        chosen["mask"] = make_mask("holes", *size[:2])
    return chosen


@each_choice
@each_precision
@each_cell
@pytest.mark.parametrize("engine", ENGINES)
def test_engine(engine, cell, precision, regularised):
    make(cell, engine, precision, SIZE, **options(cell, SIZE, regularised)).check()


@each_choice
@each_precision
@pytest.mark.parametrize("engine", OF_ANY_SIZE)
def test_two_products_a_step(engine, precision, regularised):
    cell = "gru_reset_before"
    make(cell, engine, precision, SIZE, **options(cell, SIZE, regularised)).check()


@pytest.mark.skipif(ON != "cuda", reason="compares a GPU with the CPU")
@each_choice
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", ["layer_norm_lstm", "layer_norm_gru"])
def test_normalised(cell, dtype, regularised):
    chosen = {"reverse": lanes(SIZE)}
    mask = None
    if regularised:
        chosen |= {"zoneout": (0.3, 0.2)[: LIB.cell(cell).states], "recurrent_dropout": 0.25}
        mask = make_mask("holes", *SIZE[:2])
    problem = Normalised(cell, SIZE, dtype, mask, **chosen)
    expected = problem.run("cpu", library=lib_ctypes.Library(lib_ctypes.library_path(), "cpu"))
    engines = ["blas", "stepwise"]
    if HOPPER and dtype == torch.bfloat16:
        engines.append("tiled")
    for engine in engines:
        ours = problem.run(engine)
        for name, tensor in expected.items():
            near = 2e-4 if dtype == torch.float32 else 0.1
            assert_near(ours[name], tensor.double(), dtype, name, near)


# Larger layers: engine, size, and the plan's text in 16 bits.
LARGER = {
    "block in a cluster": ("block", (9, 4, 1, 136), []),
    "apart": ("grid", (13, 4, 1, 530), ["warps for elements", "clusters share gradients"]),
    "several passes": ("grid", (33, 3, 4, 300), []),
}


@pytest.mark.skipif(not HOPPER, reason="clusters of 9.0")
@each_choice
@each_precision
@each_cell
@pytest.mark.parametrize("larger", LARGER)
def test_larger(larger, cell, precision, regularised):
    engine, size, says = LARGER[larger]
    problem = make(cell, engine, precision, size, **options(cell, size, regularised))
    if precision.endswith("float16"):
        for words in says:
            assert words in problem.plan()
    problem.check()


@each_choice
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(5, 7, 2, 33), (9, 300, 3, 40), (11, 1100, 3, 32)], ids=str)
@pytest.mark.parametrize("cell", SCANS)
def test_scan(cell, size, dtype, regularised):
    """By one warp a block; by many, which have several turns; the same in chunks of time."""
    chosen = {"reverse": lanes(size)}
    if regularised:
        chosen |= {"zoneout": (0.3,), "training": 1, "mask": make_mask("holes", *size[:2])}
    ScanProblem(cell, *size, dtype=dtype, **chosen).check()


@pytest.mark.skipif(not HOPPER, reason="products of parts are for compute capability 9.0")
@pytest.mark.parametrize("size", [(1100, 1030, 1100), (768, 768, 16384)], ids=str)
def test_product(size):
    """Tiles that a pair of blocks has alone, and tiles whose depth pairs share."""
    m, n, k = size
    a, b = torch.randn(m, k, device=ON), torch.randn(k, n, device=ON)
    assert LIB.gemm_workspace(a, b) > 0
    c = torch.full((m, n), NAN, device=ON)
    LIB.gemm(a, b, c)
    assert_near(c, (a.double() @ b.double()).cpu(), torch.float32, "c", 2e-6)
