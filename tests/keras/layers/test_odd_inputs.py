"""Inputs at the edge: no steps, no rows, one of each, very long, not finite."""

import numpy as np
import pytest
import tensorflow as tf
from compare import (
    assert_close,
    call,
    make_states,
    randomize,
    values_and_gradients,
    variables,
)
from layer_oracle import oracle
from rows import ROWS

# Layers whose state keeps nothing of 1,000 steps before; one of each engine.
FORGET = ("LSTM", "QRNN fo 2")


@pytest.mark.spread(4)
@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}, {"go_backwards": True}])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("graph", [False, True])
def test_no_steps(row, options, masked, graph, rng):
    for sequences in (False, True):
        layer = row.layer(4, return_sequences=sequences, return_state=True, **options)
        layer.build((None, None, 3))
        x = tf.zeros([2, 0, 3])
        states = [tf.constant(s, tf.float32) for s in make_states(row, layer, 2, rng)]
        mask = tf.ones([2, 0], tf.bool) if masked else None
        run = layer
        if graph:
            run = tf.function(layer, reduce_retracing=True)
        with tf.GradientTape() as tape:
            tape.watch(states)
            output, *final = run(x, initial_state=states, mask=mask)
            loss = sum(tf.reduce_sum(state) for state in final)
        assert output.shape == ((2, 0, layer.output_size) if sequences else (2, layer.output_size))
        assert not np.any(output)
        for got, want in zip(final, states, strict=True):
            np.testing.assert_array_equal(got, want)
        for gradient in tape.gradient(loss, states):
            np.testing.assert_array_equal(gradient, np.ones(gradient.shape))


@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}, {"heads": 2}], ids=str)
def test_no_rows(row, options):
    layer = row.layer(4, return_sequences=True, return_state=True, **row.allowed(options))
    layer.build((None, None, 3))
    with tf.GradientTape() as tape:
        output, *states = layer(tf.zeros([0, 5, 3]))
        loss = tf.reduce_sum(output)
    assert output.shape == (0, 5, layer.output_size)
    assert [state.shape for state in states] == [(0, size) for size in layer.state_size]
    assert all(not np.any(g) for g in tape.gradient(loss, layer.trainable_variables))


@pytest.mark.spread(4)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("units", [1, 7, 33])
@pytest.mark.parametrize("time", [1, 2])
def test_odd_sizes(row, batch, time, units, rng, seed):
    layer = row.layer(units, return_sequences=True, dtype="float64")
    layer.build((batch, time, 3))
    randomize(layer, rng)
    x = tf.constant(rng.normal(size=(batch, time, 3)))
    sources = [x, *variables(layer)]
    actual = values_and_gradients(lambda: [layer(x)], sources, seed)
    assert_close(
        actual, values_and_gradients(lambda: oracle(row, layer, x)[0], sources, seed), 1e-11
    )


@pytest.mark.spread(6)
@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_bfloat16", "mixed_float16", "int8"])
@pytest.mark.parametrize("batch", [1, 3, 20])
@pytest.mark.parametrize("time", [1, 2, 4])
@pytest.mark.parametrize("units", [5, 64])
def test_without_states_as_from_zeros(row, units, time, batch, dtype, rng):
    """Then the first step is not multiplied with R: the same bits as with zeros."""
    policy = "float32" if dtype == "int8" else dtype
    layer = row.layer(units, return_sequences=True, return_state=True, dtype=policy)
    layer.build((batch, time, 3))
    randomize(layer, rng)
    if dtype == "int8":
        layer.quantize("int8")
    x = tf.constant(rng.normal(size=(batch, time, 3)), layer.compute_dtype)
    expected = call(layer, x, layer.get_initial_state(batch))
    for got, want in zip(call(layer, x), expected, strict=True):
        np.testing.assert_array_equal(tf.cast(got, "float64"), tf.cast(want, "float64"))


@pytest.mark.dense
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("units", [5, 64])
def test_one_step_without_states_does_not_read_the_recurrent_kernel(row, units, batch, rng):
    with tf.device("CPU:0"):  # a GPU multiplies zeros with it
        layer = row.layer(units)
        layer.build((batch, 1, 3))
        x = tf.constant(rng.normal(size=(batch, 1, 3)), "float32")
        expected = layer(x)
        layer.cell.recurrent_kernel.assign(np.full(layer.cell.recurrent_kernel.shape, np.nan))
        np.testing.assert_array_equal(layer(x), expected)


@pytest.mark.spread(8)
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "options",
    [{}, {"direction": "bidirectional"}, {"dropout": 0.3}, {"zero_output_for_mask": True}],
    ids=str,
)
def test_masked_values_do_not_matter(row, options, bad, graph, rng, seed):
    layer = row.layer(4, return_sequences=True, return_state=True, seed=1, **options)
    x = rng.normal(size=(3, 5, 2)).astype("float32")
    mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], bool)
    layer.build(x.shape)
    results = []
    for fill in (0.0, bad):
        layer.cell.seed_generator.state.assign([1, 0])
        filled = tf.constant(np.where(mask[:, :, None], x, np.float32(fill)))
        sources = [filled, *variables(layer)]
        run = tf.function(call) if graph else call
        results.append(
            values_and_gradients(
                lambda f=run, a=filled: f(layer, a, mask=tf.constant(mask), training=True),
                sources,
                seed,
            )
        )
    for name, want in results[0].items():
        np.testing.assert_array_equal(results[1][name], want, err_msg=name)
        assert np.all(np.isfinite(want))


def test_nan_at_a_live_step_is_seen_only_after_it(row, rng):
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    x[0, 2] = np.nan
    y = row.layer(4, return_sequences=True)(x).numpy()
    assert np.all(np.isnan(y[0, 2:]))
    assert np.all(np.isfinite(y[0, :2]))
    assert np.all(np.isfinite(y[1]))


def test_all_masked_rows(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    for sequences in (False, True):
        layer = row.layer(5, return_sequences=sequences, return_state=True)
        layer.build(x.shape)
        states = [state.astype("float32") for state in make_states(row, layer, 2, rng)]
        output, *final = layer(x, initial_state=states, mask=np.zeros((2, 4), bool))
        assert not np.any(output)
        for got, want in zip(final, states, strict=True):
            np.testing.assert_array_equal(got, want)


def test_three_million_steps(row):
    layer = row.layer(1)
    x = tf.random.normal([1, 3_000_000, 1])
    y = layer(x)
    assert np.all(np.isfinite(y))
    if row.name in FORGET:
        np.testing.assert_allclose(y, layer(x[:, -2000:]), atol=1e-5)


@pytest.mark.parametrize("row", [r for r in ROWS if r.name in FORGET], ids=lambda row: row.name)
def test_gradient_of_three_million_steps(row, rng):
    """Against 300 rows of 10,000 steps, each with the 1,000 steps before it, which it forgets."""
    rows, steps, before = 300, 10_000, 1000
    layer = row.layer(1, return_sequences=True, dtype="float64")
    layer.build((None, None, 1))
    x = rng.normal(size=rows * steps)
    weight = tf.constant(rng.normal(size=rows * steps))
    weights = variables(layer)
    padded = np.concatenate([np.zeros(before), x])
    windows = np.stack([padded[i * steps : (i + 1) * steps + before] for i in range(rows)])
    mask = np.ones(windows.shape, bool)
    mask[0, :before] = False  # the first row begins at step 0

    def gradients(x, run):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.tensordot(tf.reshape(run(x[:, :, None]), [-1]), weight, 1)
        return [gradient.numpy() for gradient in tape.gradient(loss, [x, *weights])]

    dx, *whole = gradients(x[None], layer)
    dwindows, *parts = gradients(windows, lambda x: layer(x, mask=mask)[:, before:])
    for got, want in zip(whole, parts, strict=True):
        assert np.all(np.isfinite(got))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    # A step's gradient adds up over the rows that read the step: its own and the next one.
    dpadded = np.zeros(padded.shape)
    for i, row_gradient in enumerate(dwindows):
        dpadded[i * steps : (i + 1) * steps + before] += row_gradient
    np.testing.assert_allclose(dx[0], dpadded[before:], atol=1e-9)


@pytest.mark.parametrize("shape", [[None, None], None], ids=["sizes", "rank"])
def test_states_of_a_shape_that_tracing_does_not_know(row, shape, rng):
    layer = row.layer(4, return_state=True)
    layer.build((2, 5, 3))
    x = tf.constant(rng.normal(size=(2, 5, 3)), "float32")
    states = [tf.constant(s, tf.float32) for s in make_states(row, layer, 2, rng)]
    specs = [tf.TensorSpec(shape, tf.float32) for _ in states]
    run = tf.function(lambda *s: call(layer, x, s), input_signature=specs)
    for got, want in zip(run(*states), call(layer, x, states), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(*(tf.transpose(state) for state in states))


def test_a_cell_whose_shapes_tracing_does_not_know(row, rng):
    cell = row.cell(4)
    cell.build((2, 3))
    x = tf.constant(rng.normal(size=(2, 3)), "float32")
    states = tf.nest.flatten(cell.get_initial_state(2))
    specs = [tf.TensorSpec([None, None], tf.float32)] * (1 + len(states))
    run = tf.function(lambda x, *s: cell(x, list(s))[0], input_signature=specs)
    np.testing.assert_allclose(run(x, *states), cell(x, states)[0], atol=1e-6)
