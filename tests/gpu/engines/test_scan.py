"""The cells without a matrix product on the CUDA engine `scan`, against a float64 reference.

Through the C ABI, like test_kernels.py. The sizes cover the choices of lib/plan/scan.h:
tensors that allow wide accesses or not, one warp a block or several, time whole or in chunks.
"""

import pytest
from needs import need_module

torch = need_module("torch")

from kernel_problem import (  # noqa: E402
    DTYPES,
    assert_near,
    assert_same_bits,
    check_nan_stays_in_its_row,
    make_mask,
)
from scan_problem import CELLS, ScanProblem  # noqa: E402

each_cell = pytest.mark.parametrize("cell", CELLS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

SIZES = [
    (1, 1, 1, 1),
    (2, 7, 2, 9),
    (3, 9, 1, 64),
    (5, 40, 2, 33),
    (2, 65, 3, 48),
    (40, 17, 1, 130),
    (1, 530, 1, 32),
    (1, 531, 2, 35),
    (9, 420, 3, 40),  # warps have several turns
]
LONG = (2, 700, 2, 40)  # cut into chunks
LONGER = (11, 1100, 3, 32)  # whose warps have several turns


@each_dtype
@pytest.mark.parametrize("size", SIZES, ids=str)
@each_cell
def test_sizes(cell, size, dtype):
    reverse = [lane % 2 for lane in range(size[2])]
    ScanProblem(cell, *size, dtype=dtype, reverse=reverse).check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_cell
def test_chunks_of_several_turns(cell, dtype):
    ScanProblem(cell, *LONGER, dtype=dtype, reverse=[0, 1, 0]).check()


PATTERNS = ["right", "left", "holes", "none live", "all live"]


@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", [(5, 50, 2, 33), LONG], ids=str)
@each_cell
def test_masks(cell, size, pattern, zero_output):
    mask = make_mask(pattern, *size[:2])
    options = {"reverse": [0, 1], "zero_output_for_mask": zero_output}
    ScanProblem(cell, *size, mask=mask, **options).check()


@each_dtype
@each_cell
def test_masks_in_every_dtype(cell, dtype):
    size = (3, 21, 2, 64)
    ScanProblem(cell, *size, dtype=dtype, mask=make_mask("holes", 3, 21), reverse=[1, 0]).check()


@pytest.mark.parametrize("size", [(5, 50, 2, 33), LONG], ids=str)
@each_cell
def test_mask_that_hides_nothing_changes_no_bit(cell, size):
    mask = make_mask("all live", *size[:2])
    with_mask = ScanProblem(cell, *size, mask=mask, reverse=[0, 1]).run()
    assert_same_bits(with_mask, ScanProblem(cell, *size, reverse=[0, 1]).run())


@pytest.mark.parametrize("size", [(5, 90, 2, 33), LONG], ids=str)
@each_cell
def test_masked_steps_keep_state_and_output_to_the_bit(cell, size):
    mask = make_mask("holes", *size[:2])
    mask[:, 4:] &= torch.arange(4, size[1]) % 97 > 60  # long holes too, over ends of chunks
    results = ScanProblem(cell, *size, mask=mask, reverse=[0, 0]).run()
    y = results["y"].cpu()
    hidden = ~mask[:, 1:]
    assert torch.equal(y[:, 1:][hidden], y[:, :-1][hidden])
    if ScanProblem(cell, *size).spec.outputs_state:
        live = mask.any(1)
        assert torch.equal(results["s"].cpu()[live], y[live, -1])


@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize("pattern", [None, "holes"])
@pytest.mark.parametrize("size", [(6, 30, 2, 37), LONG], ids=str)
@each_cell
def test_zoneout(cell, size, pattern, training):
    mask = None if pattern is None else make_mask(pattern, *size[:2])
    options = {"zoneout": (0.3,), "training": training, "reverse": [1, 0]}
    if cell == "indrnn":
        options["recurrent_dropout"] = 0.25
    ScanProblem(cell, *size, mask=mask, **options).check()


@each_dtype
@each_cell
def test_zoneout_in_every_dtype(cell, dtype):
    mask = make_mask("holes", 3, 20)
    ScanProblem(cell, 3, 20, 2, 64, dtype=dtype, mask=mask, zoneout=(0.3,), training=1).check()


@each_cell
def test_zoneout_of_everything(cell):
    for training in (0, 1):
        ScanProblem(cell, 3, 20, 1, 40, zoneout=(1.0,), training=training).check()


@pytest.mark.parametrize("recurrent", ["sigmoid", "hard_sigmoid"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "linear", "sigmoid"])
@each_cell
def test_activations(cell, activation, recurrent):
    options = {"activation": activation, "recurrent_activation": recurrent}
    ScanProblem(cell, 4, 12, 1, 24, dtype=torch.float64, **options).check()


@each_dtype
@pytest.mark.parametrize("size", [(6, 70, 2, 96), (5, 9, 2, 33), LONG], ids=str)
@each_cell
def test_aliases_change_no_bit(cell, size, dtype):
    problem = ScanProblem(cell, *size, dtype=dtype, reverse=[0, 1])
    assert_same_bits(problem.run(alias=True), problem.run())


@each_dtype
@pytest.mark.parametrize("size", [(6, 70, 2, 96), LONG], ids=str)
@each_cell
def test_alignment_changes_no_bit(cell, size, dtype):
    problem = ScanProblem(cell, *size, dtype=dtype, reverse=[0, 1])
    assert_same_bits(problem.run(offset=1), problem.run())


@pytest.mark.parametrize("size", [(6, 70, 2, 96), LONG], ids=str)
@each_cell
def test_same_bits_every_time(cell, size):
    mask = make_mask("holes", *size[:2])
    problem = ScanProblem(cell, *size, mask=mask, zoneout=(0.2,), training=1)
    first = problem.run()
    for _ in range(3):
        assert_same_bits(problem.run(), first)


@each_cell
def test_rows_do_not_depend_on_the_batch(cell):
    """Blocks of one warp and of many walk the same chain: no bit of a row changes."""
    many = ScanProblem(cell, 700, 50, 1, 64)
    few = ScanProblem(cell, 9, 50, 1, 64)
    few.wx, few.dy, few.ds, few.s0 = many.wx[:9], many.dy[:9], many.ds[:9], many.s0[:9]
    few.u = many.u
    all_rows, rows = many.run(), few.run()
    for name in ("y", "s", "dwx", "ds0"):
        assert torch.equal(all_rows[name][:9], rows[name]), name


@pytest.mark.parametrize("size", [(5, 40, 1, 40), (5, 700, 1, 40)], ids=str)
@each_cell
def test_nan_stays_in_its_row(cell, size):
    check_nan_stays_in_its_row(ScanProblem(cell, *size))


@each_cell
def test_more_lanes_than_a_launch_has_directions_for(cell):
    k = 1030
    ScanProblem(cell, 1, 3, k, 1, reverse=[lane % 3 == 0 for lane in range(k)]).check()


def test_states_that_are_infinite_and_wholly_replaced():
    """Where Zoneout does not keep a state, an infinite previous state has no effect."""
    problem = ScanProblem("indrnn", 2, 20, 1, 40, zoneout=(0.4,), training=1)
    problem.wx[:] = problem.wx.abs() * 1e38
    problem.options["activation"] = "relu"
    results = problem.run()
    assert not results["s"].isnan().any()


@each_cell
def test_absent_tensors_are_zeros(cell):
    problem = ScanProblem(cell, 3, 20, 1, 40, initial=False)
    ours, reference = problem.run(), problem.reference()
    for name, expected in reference.items():
        assert_near(ours[name], expected, torch.float32, name)
