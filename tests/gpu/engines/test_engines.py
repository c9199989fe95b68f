"""Each CUDA engine by its name against the float64 reference.

HASTE_TEST_DEVICE=CPU:0 runs what it can on the CPU's engine, to try the tests themselves.
"""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import (  # noqa: E402
    ENGINES,
    OF_ANY_SIZE,
    ON_CHIP,
    PRECISIONS,
    check_nothing_is_written_after_the_last_row,
    check_tensors_that_begin_anywhere,
    each_cell,
    each_engine,
    each_precision,
    lanes,
    make,
)
from kernel_problem import (  # noqa: E402
    LIB,
    Problem,
    assert_near,
    assert_same_bits,
    check_nan_stays_in_its_row,
    make_mask,
    there,
    unset,
    zoneouts,
)

# N, T, K, H around the tiles: 8 rows, 16 units, 32 of depth, several passes and groups.
SIZES = [
    (1, 1, 1, 1),
    (1, 6, 1, 3),
    (2, 5, 2, 16),
    (5, 7, 2, 65),
    (8, 4, 1, 128),
    (9, 4, 1, 33),
    (17, 6, 1, 130),
    (16, 4, 3, 64),
    (70, 3, 1, 200),
    (3, 40, 5, 8),
    (130, 3, 2, 48),
]
# Each engine runs these or says that it cannot.
LARGE = [
    (16, 4, 1, 768),
    (8, 3, 1, 512),
    (128, 3, 1, 256),
    (16, 3, 12, 64),
    (1, 3, 1, 1024),
    (5, 3, 1, 1500),
    (3, 3, 40, 72),
    (64, 3, 1, 1100),
    (200, 3, 1, 1024),
    (40, 2, 1, 2048),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@each_precision
@each_cell
@each_engine
def test_sizes(engine, cell, precision, size):
    make(cell, engine, precision, size, reverse=lanes(size)).check()


def refusal(call):
    """The message of the RuntimeError that a call raises; None if it raises none."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float32", "tf32"])
@each_cell
@each_engine
def test_large_sizes_run_or_are_refused(engine, cell, precision, size):
    problem = Problem(cell, *size, engine=engine, reverse=lanes(size), **PRECISIONS[precision])
    reason = refusal(problem.plan)
    if reason is None:
        assert f"{cell} on {engine}" in problem.plan()
        problem.check()
        return
    assert engine in ON_CHIP
    for text in ("engine", engine, str(size[2]), str(size[3])):
        assert text in reason
    assert refusal(problem.run) is not None


@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float32", "tf32"])
@each_cell
def test_the_choice_of_the_library_is_right(cell, precision, size):
    Problem(cell, *size, **PRECISIONS[precision]).check()


@pytest.mark.parametrize("size", [*SIZES, *LARGE], ids=str)
@each_precision
@pytest.mark.parametrize("engine", OF_ANY_SIZE)
def test_two_products_a_step(engine, precision, size):
    make("gru_reset_before", engine, precision, size, reverse=lanes(size)).check()


@pytest.mark.skipif("tiled" not in OF_ANY_SIZE, reason="needs compute capability 9.0")
@pytest.mark.parametrize("size", [(300, 3, 2, 1100), (20, 3, 24, 333)], ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "tf32"])
@pytest.mark.parametrize("regularised", [False, True])
def test_two_products_a_step_where_r_does_not_fit(precision, size, regularised):
    options = {}
    if regularised:
        options = {"zoneout": zoneouts("gru_reset_before"), "recurrent_dropout": 0.25}
        options |= {"training": 1, "mask": make_mask("holes", *size[:2])}
    problem = make("gru_reset_before", "tiled", precision, size, reverse=lanes(size), **options)
    assert problem.plan().count("a launch a step") == 4  # products of both directions
    problem.check()


@pytest.mark.parametrize("size", [(6, 8, 2, 37), (70, 5, 2, 130)], ids=str)
@each_precision
@pytest.mark.parametrize("engine", OF_ANY_SIZE)
def test_two_products_a_step_regularised(engine, precision, size):
    options = {"zoneout": zoneouts("gru_reset_before"), "recurrent_dropout": 0.25, "training": 1}
    mask = make_mask("holes", *size[:2])
    make("gru_reset_before", engine, precision, size, mask=mask, reverse=[1, 0], **options).check()


@pytest.mark.parametrize(
    ("engine", "cell", "dtype"),
    [
        *((engine, "gru_reset_before", torch.float32) for engine in ON_CHIP),
        *((engine, "lstm", torch.float64) for engine in ENGINES if engine in (*ON_CHIP, "tiled")),
    ],
    ids=str,
)
def test_what_an_engine_never_runs_is_refused(engine, cell, dtype):
    problem = Problem(cell, 2, 3, 1, 16, dtype=dtype, engine=engine)
    for call in (problem.plan, problem.run):
        with pytest.raises(RuntimeError, match=rf"engine: .*{cell}.*{engine}"):
            call()


@pytest.mark.parametrize("size", [(19, 5, 2, 48), (40, 6, 1, 200), (130, 4, 1, 250)], ids=str)
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("engine", [e for e in ON_CHIP if e != "block"])
@each_cell
def test_rows_that_are_copied(engine, cell, precision, size):
    """Tensors at any address, with any data after them."""
    problem = make(cell, engine, precision, size, reverse=lanes(size))
    check_tensors_that_begin_anywhere(problem)
    check_nothing_is_written_after_the_last_row(problem)


@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "holes", "none live", "all live"])
@pytest.mark.parametrize("size", [(5, 9, 2, 33), (19, 12, 2, 130)], ids=str)
@each_cell
@each_engine
def test_masks(engine, cell, size, pattern, zero_output):
    options = {"mask": make_mask(pattern, *size[:2]), "zero_output_for_mask": zero_output}
    make(cell, engine, "float32", size, reverse=[0, 1], **options).check()


@pytest.mark.parametrize("pattern", [None, "holes"])
@pytest.mark.parametrize("size", [(6, 8, 2, 37), (20, 5, 2, 130)], ids=str)
@each_precision
@each_cell
@each_engine
def test_regularised_training(engine, cell, precision, size, pattern):
    mask = None if pattern is None else make_mask(pattern, *size[:2])
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    make(cell, engine, precision, size, mask=mask, reverse=[1, 0], **options).check()


@pytest.mark.parametrize("training", [0, 1])
@each_cell
@each_engine
def test_zoneout_of_each_state(engine, cell, training):
    rates = zoneouts(cell)
    alone = [[r if i == s else 0.0 for i, r in enumerate(rates)] for s in range(len(rates))]
    for zoneout in (*alone, [1.0] * len(rates)):
        size = (4, 7, 1, 24)
        make(cell, engine, "float32", size, zoneout=zoneout, training=training).check()


@each_cell
@each_engine
def test_recurrent_dropout_alone(engine, cell):
    size = (10, 7, 2, 40)
    make(cell, engine, "float32", size, recurrent_dropout=0.4, training=1).check()
    dropped = make(cell, engine, "float32", size, recurrent_dropout=0.4, training=0).run()
    assert_same_bits(dropped, make(cell, engine, "float32", size).run())


@pytest.mark.parametrize("activation", ["relu", "hard_sigmoid", "linear"])
@each_cell
@each_engine
def test_activations(engine, cell, activation):
    make(cell, engine, "float32", (4, 3, 1, 24), activation=activation).check()


@each_cell
@each_engine
def test_no_initial_states(engine, cell):
    make(cell, engine, "float32", (9, 6, 2, 50), initial=False, reverse=[0, 1]).check()


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("size", [(16, 6, 2, 96), (5, 9, 1, 33)], ids=str)
@each_cell
@each_engine
def test_aliases_change_no_bit(engine, cell, precision, size):
    problem = make(cell, engine, precision, size, reverse=lanes(size))
    assert_same_bits(problem.run(alias=True), problem.run())


@each_cell
@each_engine
def test_aliases_with_masks(engine, cell):
    size = (9, 6, 2, 100)
    mask = make_mask("holes", *size[:2])
    make(cell, engine, "float32", size, mask=mask, reverse=[0, 1]).check(alias=True)


@each_cell
@each_engine
def test_inference_is_the_forward_pass(engine, cell):
    """Without a reserve, and without final states: the same y, bit for bit."""
    problem = make(cell, engine, "bfloat16", (17, 6, 2, 65), initial=False, reverse=[0, 1])
    expected = problem.run()["y"]
    wx, kernel, *extra = there([problem.wx, problem.kernel, *problem.extra])
    config, y = problem.config(), unset(problem.dy)
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, extra=extra, y=y, workspace=scratch)
    assert torch.equal(y, expected)


@each_cell
@each_engine
def test_nan_stays_in_its_row(engine, cell):
    check_nan_stays_in_its_row(make(cell, engine, "float32", (11, 6, 1, 40)))


@each_precision
@pytest.mark.parametrize("forget", ["exponential", "sigmoid"])
@each_engine
def test_exponential_gates_of_any_size(engine, forget, precision):
    """sLSTM with pre-activations of some hundreds: finite, and right."""
    problem = make("slstm", engine, precision, (5, 12, 2, 40), recurrent_activation=forget)
    problem.wx *= 100
    ours, reference = problem.run(), problem.reference()
    for name in ("y", "h", "c", "n", "m"):
        assert_near(ours[name], reference[name], problem.dtype, name, problem.tolerance)
    for name in problem.names:
        assert ours[name].isfinite().all(), name


@each_cell
@each_engine
def test_rows_do_not_see_each_other(engine, cell):
    problem = make(cell, engine, "float32", (16, 5, 1, 64))
    whole = problem.run()
    problem.wx[8:] = 0
    problem.dy[8:] = 0
    other = problem.run()
    for name in ("y", "dwx"):
        assert torch.equal(whole[name][:8], other[name][:8]), name
