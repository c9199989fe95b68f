"""`tiled` for cells that normalise h·R: sums over rows that blocks make together.

Compared with `stepwise` in float64, of the same numbers, which the tests under TensorFlow
compare with the oracle.
"""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import OF_ANY_SIZE, PRECISIONS, lanes, moved  # noqa: E402
from kernel_problem import (  # noqa: E402
    LIB,
    TF32_TOLERANCE,
    assert_near,
    assert_same_bits,
    make_mask,
    unset,
    zoneouts,
)
from norm_problem import Normalised  # noqa: E402

pytestmark = pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")

# Of bfloat16 ours are 1e-3 to 4e-3.
TOLERANCE = {torch.bfloat16: 1e-2, torch.float32: TF32_TOLERANCE}
CELLS = ["layer_norm_lstm", "layer_norm_gru"]
# N, T, K, H: units that fill a warp's 16, the last tile alone or in part, an odd number of tiles; R
# in registers, and partly in shared memory; rows of no whole tile; lanes; row tiles in two turns;
# fewer warps than rows, more than 64 tiles; one step and one unit.
SIZES = [
    (9, 5, 2, 140),
    (130, 4, 2, 257),
    (70, 6, 1, 512),
    (128, 4, 1, 1024),
    (64, 3, 1, 1536),
    (40, 4, 1, 1750),
    (200, 4, 1, 1024),
    (190, 3, 1, 777),
    (33, 1, 1, 1100),
    (5, 7, 1, 16),
    (3, 4, 3, 33),
]

each_cell = pytest.mark.parametrize("cell", CELLS)
each_size = pytest.mark.parametrize("size", SIZES, ids=str)


@pytest.fixture(params=["bfloat16", "tf32"])
def make(request):
    """Makes a problem of each precision."""

    def of(cell, size, mask=None, **options):
        precision = dict(PRECISIONS[request.param])
        dtype = precision.pop("dtype")
        return Normalised(cell, size, dtype, mask, reverse=lanes(size), **precision, **options)

    return of


def check(problem, **how):
    """Near the reference, and the same bits run after run."""
    ours, expected = problem.run("tiled", times=3, **how), problem.exact().run("stepwise")
    for name, tensor in ours.items():
        tolerance = TOLERANCE[problem.dtype]
        assert_near(tensor, expected[name].cpu(), problem.dtype, name, tolerance)
    assert_same_bits(problem.run("tiled", **how), ours)
    return ours


@each_cell
@each_size
def test_sizes(make, cell, size):
    check(make(cell, size))


@each_cell
@each_size
def test_regularised_with_masks(make, cell, size):
    states = LIB.cell(cell).states
    options = {"zoneout": zoneouts("lstm")[:states], "recurrent_dropout": 0.25}
    problem = make(cell, size, make_mask("holes", *size[:2]), **options)
    assert_same_bits(problem.run("tiled", alias=True), check(problem))


@each_cell
@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "none live"])
def test_masks(make, cell, pattern, zero_output):
    size = SIZES[1]
    check(make(cell, size, make_mask(pattern, *size[:2]), zero_output_for_mask=zero_output))


@each_cell
@pytest.mark.parametrize("size", [SIZES[1], SIZES[2], SIZES[7]], ids=str)
def test_tensors_anywhere(make, cell, size):
    problem = make(cell, size)
    assert_same_bits(problem.run("tiled", place=moved), problem.run("tiled"))


@each_cell
@pytest.mark.parametrize(
    "size", [(70, 300, 1, 512), (100, 200, 1, 1030), (200, 150, 1, 777)], ids=str
)
@pytest.mark.parametrize("initial", [False, True])
def test_many_steps(make, cell, size, initial):
    """Every slot, flag, tag and parity many times over."""
    check(make(cell, size), initial_gradients=initial)


@each_cell
@pytest.mark.parametrize("size", [SIZES[2], SIZES[6]], ids=str)
def test_inference_is_the_forward_pass(make, cell, size):
    """Without a reserve, and without final states: the same y, bit for bit."""
    problem = make(cell, size)
    expected = problem.run("tiled")["y0"]
    config, y = problem.config("tiled"), unset(problem.dy)
    given = {"s0": problem.states, "extra": problem.extra}
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, problem.wx, problem.kernel, y=y, workspace=scratch, **given)
    assert torch.equal(y, expected)


@each_cell
def test_a_row_that_is_not_a_number_stays_alone(make, cell):
    """NaN and infinity reach the results of their own row, and of no other."""
    problem = make(cell, (70, 4, 1, 512))
    expected = problem.run("tiled")
    problem.wx[3, 1, 0, 0, 7] = torch.nan
    problem.wx[40, 2, 0, 1, 0] = torch.inf
    found = problem.run("tiled")
    assert found["y0"][3, 2:].isnan().all()
    assert found["dwx0"][3, 0].isnan().all()
    rows = [n for n in range(70) if n not in (3, 40)]
    for name in ("y0", "sT0", "dwx0", "dq0", "ds00"):
        assert torch.equal(found[name][rows], expected[name][rows]), name


@each_cell
def test_a_row_that_is_never_live_may_hold_anything(make, cell):
    """Masked rows, as of padding, add nothing to the gradients of parameters."""
    size = (70, 3, 1, 512)
    mask = make_mask("right", *size[:2])
    mask[5] = 0
    problem = make(cell, size, mask)
    expected = problem.run("tiled")
    problem.states = [s.clone() for s in problem.states]
    for state in problem.states:
        state[5] = torch.nan
    found = problem.run("tiled")
    for name in expected:
        if name.startswith("dextra"):
            assert torch.equal(found[name], expected[name]), name


@each_cell
def test_rows_of_equal_products(make, cell):
    """h = 0 gives h·R the variance 0: gradients stay finite, and dq is 0, as with `stepwise`."""
    problem = make(cell, (70, 3, 1, 512))
    problem.states = [torch.zeros_like(s) for s in problem.states]
    ours, expected = problem.run("tiled"), problem.run("stepwise")
    assert all(tensor.isfinite().all() for tensor in ours.values())
    assert torch.equal(ours["dq0"][:, 0], expected["dq0"][:, 0])
    assert not ours["dq0"][:, 0].any()
