"""Floats as scaled float16: forward with one scale if h has a bound, backward with a scale for each
row and step. Numbers of any size, and cells without a bound.
"""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import CELLS, ENGINES, OF_ANY_SIZE, fitted, make  # noqa: E402
from kernel_problem import LIB, Call, Problem, assert_near  # noqa: E402

# Of h and x, of R; steps.
CASES = {
    "small states": (1e-4, 1.0, 3),
    "large states": (1e3, 1e-3, 3),
    "small states, large weights": (1e-4, 1e4, 1),
    "weights that vanish": (1.0, 1e-30, 3),
    "no weights": (1.0, 0.0, 3),
}
SIZE = (9, 3, 2, 72)

SCALING = [e for e in ENGINES if e not in ("blas", "cpu")]
each_engine = pytest.mark.parametrize("engine", SCALING)
# Each of its two products has an operand of its own, with its own scale.
TWO_PRODUCTS = [(e, "gru_reset_before") for e in SCALING if e in OF_ANY_SIZE]


def pairs(*cells):
    """Of each engine and these cells, and of those that run it the GRU with its reset before."""
    return [*((engine, cell) for engine in SCALING for cell in cells), *TWO_PRODUCTS]


each_engine_and_cell = pytest.mark.parametrize(("engine", "cell"), pairs(*CELLS))
each_precision = pytest.mark.parametrize("precision", ["float32", "tf32"])


def forward(problem):
    call = Call(problem)
    call.forward()
    names = problem.spec.states
    return dict(zip(["y", *names], [call.y, *call.final], strict=True))


def keeps_previous_output(cell):
    return b"h_prev" in [*LIB.cell(cell).saved_names]


def check_forward(problem):
    ours, expected = forward(problem), problem.reference()
    for name, tensor in ours.items():
        assert_near(tensor, expected[name], problem.dtype, name, problem.tolerance)


@pytest.mark.parametrize("case", CASES)
@each_precision
@each_engine_and_cell
def test_sizes_of_numbers(engine, cell, precision, case):
    states, weights, steps = CASES[case]
    problem = make(cell, engine, precision, (*SIZE[:1], steps, *SIZE[2:]), reverse=[0, 1])
    problem.wx *= min(states, 1)
    problem.s0[0] *= states
    problem.kernel *= weights
    check_forward(problem)


@each_precision
@each_engine
def test_a_mean_of_what_the_slstm_had_before(engine, precision):
    """h[1] is o times c / n, which may be far larger than h[0]."""
    problem = make("slstm", engine, precision, SIZE, reverse=[0, 1])
    problem.s0[1] *= 1e4
    problem.kernel *= 1e-4
    check_forward(problem)


@each_precision
@each_engine_and_cell
def test_what_is_not_finite_stays_in_its_row(engine, cell, precision):
    problem = make(cell, engine, precision, SIZE)
    problem.s0[0] *= 10
    problem.s0[0][2] = torch.nan
    problem.s0[0][5, 0, 3] = torch.inf
    ours, expected = forward(problem), problem.reference()
    others = [row for row in range(SIZE[0]) if row not in (2, 5)]
    for name, tensor in ours.items():
        assert_near(tensor[others], expected[name][others], problem.dtype, name, problem.tolerance)
    assert not ours["y"][2].isfinite().any()


@each_precision
@each_engine_and_cell
def test_dropout_that_leaves_little(engine, cell, precision):
    """Dropout makes the remaining elements of h ten times as large."""
    options = {"recurrent_dropout": 0.9, "training": 1}
    check_forward(make(cell, engine, precision, SIZE, **options))


@pytest.mark.parametrize("activations", [("relu", "sigmoid"), ("tanh", "relu"), ("linear", "tanh")])
@each_precision
@pytest.mark.parametrize(("engine", "cell"), pairs("lstm", "gru", "elman"))
def test_activations_without_a_bound(engine, cell, precision, activations):
    size = fitted(engine, cell, "float32", SIZE)
    candidate, recurrent = activations
    options = {"activation": candidate, "recurrent_activation": recurrent}
    make(cell, engine, precision, size, **options).check()
    beyond_float16 = make(cell, engine, precision, size, **options)
    beyond_float16.s0[0] *= 1e5
    beyond_float16.kernel *= 1e-5
    check_forward(beyond_float16)


@each_precision
@pytest.mark.parametrize(("engine", "cell"), pairs("gru"))
def test_gates_that_are_no_shares_make_the_h_of_a_gru_grow(engine, cell, precision):
    """With z = -1 it is 2 g - h."""
    options = {"activation": "tanh", "recurrent_activation": "tanh"}
    problem = make(cell, engine, precision, (9, 10, 1, 72), **options)
    problem.wx[:, :, :, 0] = -5
    problem.wx[:, ::2, :, 2], problem.wx[:, 1::2, :, 2] = 5, -5
    problem.s0[0] *= 0
    problem.kernel *= 1e-3
    check_forward(problem)
    assert problem.reference()["h"].abs().max() > 8


@each_precision
@pytest.mark.parametrize(("engine", "cell"), pairs(*filter(keeps_previous_output, CELLS)))
def test_dropout_does_not_make_the_h_that_a_gate_keeps_grow(engine, cell, precision):
    """It is on h·R alone."""
    options = {"recurrent_dropout": 0.9, "training": 1, "activation": "tanh"}
    problem = make(cell, engine, precision, (9, 60, 1, 72), **options)
    problem.wx[:, :, :, 0] += 8
    check_forward(problem)
    initial = problem.s0[0].abs().max()
    assert problem.reference()["y"].abs().max() <= max(initial, 1)


@each_precision
def test_the_choice_of_the_library_without_a_bound(precision):
    options = {} if precision == "float32" else {"allow_tf32": 1}
    for size in [(16, 3, 1, 256), (16, 3, 1, 1024), (64, 3, 1, 512)]:
        Problem("elman", *size, activation="relu", **options).check()


# Backward. N, T, K, H: blocks alone and in clusters, of 4 rows and of 8; clusters of `grid` that
# share, of a row tile and of two, of several passes.
BACKWARD_SIZES = [(5, 3, 2, 64), (9, 3, 1, 128), (300, 3, 1, 72), (9, 4, 1, 300), (37, 3, 1, 530)]


def each_backward_case(test):
    by_size = pytest.mark.parametrize("size", BACKWARD_SIZES, ids=str)
    return by_size(each_precision(each_engine_and_cell(test)))


def check_rows_of_dwx(problem, rows):
    """Each row by itself: errors are measured against the size of its own values."""
    ours, expected = problem.run()["dwx"], problem.reference()["dwx"]
    for row in rows:
        name = f"dwx of row {row}"
        assert_near(ours[row], expected[row], problem.dtype, name, problem.tolerance)


def make_backward(engine, cell, precision, size):
    try:
        return make(cell, engine, precision, size)
    except RuntimeError as error:
        if "cannot run" not in str(error):
            raise
        pytest.skip(f"{engine} has no room for it")


@each_backward_case
def test_gradients_of_any_size_in_one_batch(engine, cell, precision, size):
    problem = make_backward(engine, cell, precision, size)
    rows = range(size[0])
    scales = torch.tensor([(1.0, 1e-25, 1e12, 0.0, 1e-8, 1e25)[row % 6] for row in rows])
    for tensor in (problem.dy, *problem.ds):
        tensor *= scales.view(-1, *[1] * (tensor.ndim - 1))
    check_rows_of_dwx(problem, [row for row in rows if row % 6 != 3])


@each_backward_case
def test_gradients_that_are_not_finite_stay_in_their_row(engine, cell, precision, size):
    problem = make_backward(engine, cell, precision, size)
    problem.dy[2], problem.dy[4, 0, 0, 5] = torch.nan, torch.inf
    check_rows_of_dwx(problem, [row for row in range(size[0]) if row not in (2, 4)])


@pytest.mark.parametrize("weights", [0.0, 1e-30])
@each_backward_case
def test_weights_that_vanish_backward(engine, cell, precision, size, weights):
    problem = make_backward(engine, cell, precision, (*size[:1], 2, *size[2:]))
    problem.kernel *= weights
    check_rows_of_dwx(problem, range(size[0]))
