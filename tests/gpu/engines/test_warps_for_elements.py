"""`grid` forward where elements have warps of their own (lib/cuda/persistent/warp_specialized.cuh):
several passes of a block, of 16 bits and TensorFloat-32, from some 520 hidden units on."""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import (  # noqa: E402
    CELLS,
    HOPPER,
    PRECISIONS,
    check_nothing_is_written_after_the_last_row,
    check_tensors_that_begin_anywhere,
    each_cell,
    lanes,
)
from kernel_problem import (  # noqa: E402
    LIB,
    Problem,
    assert_near,
    assert_same_bits,
    make_mask,
    there,
    unset,
    zoneouts,
)

if not HOPPER:
    pytest.skip("warps give registers to others on compute capability 9.0 alone",
                allow_module_level=True)  # fmt: skip

# N, T, K, H: both directions; odd rows and units; two to six passes; one step.
SIZES = [
    (16, 6, 2, 800),
    (13, 9, 2, 701),
    (29, 3, 2, 610),
    (90, 4, 1, 777),
    (20, 12, 3, 530),
    (9, 1, 2, 850),
]
each_precision = pytest.mark.parametrize(
    "precision", [p for p in PRECISIONS if p != "float32"]
)  # which has two parts


def make(cell, precision, size, **options):
    options = {"reverse": lanes(size), **PRECISIONS[precision], **options}
    problem = Problem(cell, *size, engine="grid", **options)
    assert "warps for elements" in problem.plan()
    return problem


@pytest.mark.parametrize("size", SIZES, ids=str)
@each_precision
@each_cell
def test_sizes(cell, precision, size):
    make(cell, precision, size).check()


@pytest.mark.parametrize("pattern", [None, "left", "holes", "none live"])
@pytest.mark.parametrize("size", [SIZES[0], SIZES[4]], ids=str)
@each_cell
def test_regularised_training(cell, size, pattern):
    mask = None if pattern is None else make_mask(pattern, *size[:2])
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    make(cell, "bfloat16", size, mask=mask, **options).check()


@each_cell
def test_at_inference(cell):
    problem = make(cell, "tf32", SIZES[1], initial=False, zoneout=zoneouts(cell), training=0)
    problem.check()
    expected = problem.run()["y"]
    wx, kernel, *extra = there([problem.wx, problem.kernel, *problem.extra])
    config, y = problem.config(), unset(problem.dy)
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, extra=extra, y=y, workspace=scratch)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("pattern", [None, "holes"])
@each_cell
def test_regularised_floats(cell, pattern):
    mask = None if pattern is None else make_mask(pattern, *SIZES[1][:2])
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    make(cell, "tf32", SIZES[1], mask=mask, **options).check()


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "elman"])
def test_h_that_is_asked_for_twice(cell):
    """A warp of two gates has more chunks in registers than are requested together."""
    make(cell, "bfloat16", (32, 9, 1, 1100)).check()


@each_cell
def test_states_without_a_bound(cell):
    problem = make(cell, "bfloat16", (13, 9, 2, 700), activation="relu")
    if cell == "elman":  # rounding h alone moves relu's gradients by 0.04 of their norm
        expected = problem.reference()["y"]
        assert_near(problem.run()["y"], expected, problem.dtype, "y", problem.tolerance)
    else:
        problem.check()


@pytest.mark.parametrize("size", [SIZES[0], SIZES[4]], ids=str)
@each_cell
def test_tensors_begin_anywhere_and_share_memory(cell, size):
    problem = make(cell, "bfloat16", size)
    check_tensors_that_begin_anywhere(problem)
    check_nothing_is_written_after_the_last_row(problem)
    assert_same_bits(problem.run(alias=True), problem.run())


@pytest.mark.parametrize("size", [(32, 300, 1, 777), (128, 200, 1, 777)], ids=str)
@each_precision
@each_cell
def test_many_steps(cell, precision, size):
    """Enough steps to use all slots of h and to let the sets drift apart; with two passes and with
    eight. The same bits in every run, and the results of `stepwise`."""
    problem = make(cell, precision, size)
    expected = problem.run()
    for _ in range(3):
        assert_same_bits(problem.run(), expected)
    problem.ours["engine"] = "stepwise"
    y, wanted = expected["y"].double(), problem.run()["y"].double()
    assert (y - wanted).norm() < (2e-2 if precision == "bfloat16" else 3e-3) * wanted.norm()
