"""`tiled` with R on the chip for all steps: its cuts, sizes that fill no tile, any alignment."""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import (  # noqa: E402
    CELLS,
    OF_ANY_SIZE,
    check_nothing_is_written_after_the_last_row,
    check_tensors_that_begin_anywhere,
    lanes,
    make,
)
from kernel_problem import (  # noqa: E402
    LIB,
    assert_near,
    assert_same_bits,
    check_absent_tensors_are_zeros,
    check_nan_stays_in_its_row,
    make_mask,
    there,
    unset,
    zoneouts,
)

# The last has two products a step.
MATRIX_CELLS = [*CELLS, "gru_reset_before"]

pytestmark = pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")

# N, T, K, H: R in registers, and partly in shared memory; blocks that share h, or each its own; row
# tiles in one turn and in two, of which the last block has one; lanes; H of no whole word, tile or
# chunk.
ONE_TURN = [(70, 6, 1, 512), (64, 5, 1, 1100), (9, 5, 2, 140), (130, 4, 2, 257), (40, 3, 1, 2048)]
TWO_TURNS = [(200, 5, 1, 1024), (130, 4, 1, 1030), (190, 4, 1, 777), (100, 3, 1, 2047)]
EACH_ITS_OWN = [(64, 5, 4, 520), (100, 4, 4, 520)]  # too many blocks for whole clusters
ONE_TURN.append(EACH_ITS_OWN[0])
TWO_TURNS.append(EACH_ITS_OWN[1])
# Backward: blocks of 32 and of 64 rows, R in registers alone and not, few slots; one and two steps;
# row tiles in one turn and in two, of which the last block has one; in two with fewer chunks than
# are multiplied early.
BACKWARD = [(128, 5, 1, 1024), (64, 5, 1, 1536), (70, 1, 2, 511), (33, 2, 1, 1100), (9, 5, 2, 140)]
BACKWARD_TWO_TURNS = [(200, 4, 1, 1024), (130, 3, 1, 1150), (100, 4, 1, 1536), (190, 3, 1, 777)]
BACKWARD_TWO_TURNS.append((64, 4, 30, 100))
# Too many blocks for clusters of four, with three gates or more: clusters share gradients, and sums
# go through global memory. Unit tiles that are an odd number; one and two steps.
SHARING = [(60, 5, 1, 1930), (64, 1, 1, 2048), (40, 2, 1, 2048)]
SHARING_TWO_TURNS = [(100, 4, 1, 2047), (128, 3, 1, 1985), (100, 2, 1, 2048)]
MAY_SHARE = BACKWARD_TWO_TURNS[2]  # there is room for both: shared where that is faster


def is_like(size, *others):
    """With any number of steps."""
    return any(size[::2] == other[::2] and size[3] == other[3] for other in others)


def make_stationary(cell, precision, size, **options):
    if precision == "tf32":  # floats are scaled where h has a bound
        options.setdefault("activation", "tanh")
    problem = make(cell, "tiled", precision, size, **options)
    forward = problem.plan().split("; backward: ")[0]
    two, alone = is_like(size, *TWO_TURNS), is_like(size, *EACH_ITS_OWN)
    assert ("row tiles in 2 turns" if two else "row tiles in 1 turn") in forward
    assert not alone or "clusters of 1 share h" in forward
    return problem


def make_backward(cell, precision, size, **options):
    shared = is_like(size, *SHARING, *SHARING_TWO_TURNS)
    if cell == "slstm" and shared and precision != "tf32":
        pytest.skip("R does not fit, and gradients of two terms are not shared")
    problem = make(cell, "tiled", precision, size, reverse=lanes(size), **options)
    backward = problem.plan().split("; backward: ")[1]
    shares = shared and LIB.cell(cell).gates >= 3
    if is_like(size, MAY_SHARE):
        shares = cell == "lstm" or (precision == "tf32" and cell in ("gru", "slstm"))
    if (cell, precision) == ("slstm", "tf32") and is_like(size, BACKWARD_TWO_TURNS[0]):
        shares = True  # registers hold less of R
    assert ("clusters of 2 share gradients" in backward) == shares
    two = is_like(size, *BACKWARD_TWO_TURNS, *SHARING_TWO_TURNS)
    assert ("row tiles in 2 turns" if two else "row tiles in 1 turn") in backward
    return problem


def check_and_repeat(problem):
    """Near the reference, and the same bits run after run."""
    problem.check()
    first = problem.run()
    for _ in range(3):
        assert_same_bits(problem.run(), first)


def each_case(*sizes):
    """Cells and sizes of them. With fewer than three gates two turns are never the fastest."""
    cases = [
        pytest.param(cell, size, id=f"{cell}-{size}")
        for cell in MATRIX_CELLS
        for size in sizes
        if size in ONE_TURN or LIB.cell(cell).gates >= 3
    ]
    return pytest.mark.parametrize(("cell", "size"), cases)


each_cell = pytest.mark.parametrize("cell", MATRIX_CELLS)
each_precision = pytest.mark.parametrize("precision", ["bfloat16", "float16", "tf32"])
each_width = pytest.mark.parametrize("precision", ["bfloat16", "tf32"])  # of a number
each_cell_and_size = each_case(*ONE_TURN, *TWO_TURNS)


each_backward = pytest.mark.parametrize(
    ("cell", "size"),
    [
        pytest.param(cell, size, id=f"{cell}-{size}")
        for cell in MATRIX_CELLS
        for size in (*BACKWARD, *BACKWARD_TWO_TURNS, *SHARING, *SHARING_TWO_TURNS)
        if (cell, size) != ("slstm", BACKWARD_TWO_TURNS[1])  # R does not fit
        if size in (*BACKWARD, *BACKWARD_TWO_TURNS) or LIB.cell(cell).gates >= 3
    ],
)


@each_precision
@each_backward
def test_backward(cell, precision, size):
    check_and_repeat(make_backward(cell, precision, size))


@each_width
@each_backward
def test_backward_regularised_with_masks(cell, precision, size):
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    mask = make_mask("holes", *size[:2])
    problem = make_backward(cell, precision, size, mask=mask, **options)
    problem.check(alias=True)
    assert_same_bits(problem.run(), problem.run(alias=True))


@each_width
@each_backward
def test_backward_of_tensors_anywhere(cell, precision, size):
    check_tensors_that_begin_anywhere(make_backward(cell, precision, size))


@pytest.mark.parametrize(
    ("cell", "size"),
    [
        ("lstm", (40, 300, 1, 512)),
        ("lstm", (50, 300, 1, 1030)),
        ("lstm", (70, 1, 1, 512)),
        ("gru", (50, 40, 1, 1030)),
        ("elman", (50, 40, 1, 1030)),
        ("lstm", (200, 1, 1, 1024)),
        ("lstm", (130, 60, 1, 1150)),
        ("gru", (190, 60, 1, 777)),
        ("lstm", (100, 60, 1, 2048)),
        ("gru", (40, 300, 1, 2048)),
        ("slstm", (50, 40, 1, 1030)),
        ("gru_reset_before", (70, 1, 1, 512)),
        ("gru_reset_before", (50, 300, 1, 1030)),
        ("gru_reset_before", (190, 60, 1, 777)),
        ("gru_reset_before", (40, 60, 1, 2048)),
        ("gru_reset_before", (100, 40, 1, 2048)),
    ],
    ids=str,
)
@each_width
@pytest.mark.parametrize("initial", [False, True])
def test_backward_of_many_steps(cell, precision, size, initial):
    """Every slot, flag and parity many times over, also where two places for sums take turns.

    initial: with one more step, which makes the gradients of the initial states. Without it a
    walk of one step has no product.
    """
    problem = make_backward(cell, precision, size, initial_gradients=initial)
    problem.check()
    assert_same_bits(problem.run(), problem.run())


@each_precision
@each_cell_and_size
def test_sizes(cell, precision, size):
    check_and_repeat(make_stationary(cell, precision, size, reverse=lanes(size)))


@each_width
@each_cell_and_size
def test_regularised_with_masks(cell, precision, size):
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    mask = make_mask("holes", *size[:2])
    problem = make_stationary(cell, precision, size, mask=mask, reverse=lanes(size), **options)
    problem.check(alias=True)
    assert_same_bits(problem.run(), problem.run(alias=True))


@pytest.mark.parametrize("size", [ONE_TURN[0], ONE_TURN[3], TWO_TURNS[1]], ids=str)
@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "none live"])
@each_width
@pytest.mark.parametrize("cell", ["lstm", "gru_reset_before"])
def test_masks(cell, precision, size, pattern, zero_output):
    options = {"mask": make_mask(pattern, *size[:2]), "zero_output_for_mask": zero_output}
    make_stationary(cell, precision, size, reverse=lanes(size), **options).check()


@each_width
@each_case(ONE_TURN[0], ONE_TURN[3], TWO_TURNS[1])
def test_tensors_anywhere(cell, precision, size):
    problem = make_stationary(cell, precision, size, reverse=lanes(size))
    check_tensors_that_begin_anywhere(problem)
    check_nothing_is_written_after_the_last_row(problem)


@pytest.mark.parametrize("activation", ["relu", "hard_sigmoid"])
@each_cell
def test_activations(cell, activation):
    """The outputs: the slopes of these jump, so that in 16 bits gradients may differ."""
    problem = make_stationary(cell, "float16", ONE_TURN[2], activation=activation)
    y, expected = problem.run()["y"], problem.reference()["y"]
    assert_near(y, expected, problem.dtype, "y", problem.tolerance)


@each_cell
def test_floats_without_a_bound(cell):
    """R stays on the chip backward alone, where each row and step has its own scale."""
    problem = make(cell, "tiled", "tf32", (9, 3, 2, 72), activation="relu")
    forward, backward = problem.plan().split("; backward: ")
    assert "row tiles in" not in forward
    assert "row tiles in" in backward
    problem.check()


@each_width
@each_cell
def test_nan_stays_in_its_row(cell, precision):
    check_nan_stays_in_its_row(make_stationary(cell, precision, (9, 5, 2, 140)))


@each_width
@each_cell
def test_absent_tensors_are_zeros(cell, precision):
    size = (9, 5, 2, 140)
    check_absent_tensors_are_zeros(make_stationary(cell, precision, size, initial=False))


@each_width
@each_cell_and_size
def test_inference_is_the_forward_pass(cell, precision, size):
    """Without a reserve, and without final states: the same y, bit for bit."""
    problem = make_stationary(cell, precision, size, initial=False, reverse=lanes(size))
    expected = problem.run()["y"]
    wx, kernel, *extra = there([problem.wx, problem.kernel, *problem.extra])
    config, y = problem.config(), unset(problem.dy)
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, extra=extra, y=y, workspace=scratch)
    assert torch.equal(y, expected)


@each_width
@pytest.mark.parametrize("size", [(70, 600, 1, 512), (130, 600, 1, 1030)], ids=str)
@pytest.mark.parametrize("cell", ["lstm", "gru_reset_before"])
def test_many_steps(cell, precision, size):
    """Every slot, flag and parity many times over: the first half, walked alone, is the same."""
    problem = make_stationary(cell, precision, size)
    whole = problem.run()["y"]
    wx, kernel = there([problem.wx[:, :300], problem.kernel])
    y = unset(problem.dy[:, :300])
    config = LIB.config(cell, wx, engine="tiled", allow_tf32=problem.ours["allow_tf32"])
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, s0=there(problem.s0), y=y, workspace=scratch)
    assert torch.equal(y, whole[:, :300])
