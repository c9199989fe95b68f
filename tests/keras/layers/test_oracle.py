"""What Keras does not have, against the float64 oracle: outputs and every gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import (
    assert_close,
    call,
    make_mask,
    make_states,
    pairwise,
    randomize,
    values_and_gradients,
    variables,
)
from layer_oracle import oracle

TOLERANCE = {"float32": 3e-5, "float64": 1e-11, "mixed_float16": 2e-2, "mixed_bfloat16": 1e-1}
BATCH, TIME, FEATURES, UNITS = 3, 5, 4, 6

CHOICES = {
    "feature": ["plain", "zoneout", "recurrent_dropout", "heads", "activations", "all"],
    "direction": ["forward", "backward", "bidirectional"],
    "mask": [None, "left", "right", "holes", "all"],
    "training": [False, True],
    "use_bias": [True, False],
    "initial_state": [True, False],
    "dtype": ["float64", "float32"],
    "graph": [False, True],
}
FEATURES_OF_OURS = {
    "plain": lambda row: {},
    "zoneout": lambda row: {name: 0.3 - 0.1 * i for i, name in enumerate(row.zoneout)},
    "recurrent_dropout": lambda row: row.allowed({"recurrent_dropout": 0.4}),
    "heads": lambda row: row.allowed({"heads": 3}),
    "activations": lambda row: row.other_activations,
    "all": lambda row: {
        **dict.fromkeys(row.zoneout, 0.2),
        **row.allowed({"recurrent_dropout": 0.3, "heads": 2}),
    },
}


def _set_seed(layer, numbers):
    layer.cell.seed_generator.state.assign(numbers)


def _check(row, options, mask_kind, training, with_states, graph, tolerance, rng, seed):
    """Compares a layer of `options` with random weights with the oracle; returns the layer's."""
    layer = row.layer(UNITS, return_sequences=True, return_state=True, **options)
    layer.build((BATCH, TIME, FEATURES))
    randomize(layer, rng)
    dtype = layer.compute_dtype
    x = tf.constant(rng.normal(size=(BATCH, TIME, FEATURES)), dtype)
    states = [tf.constant(state, dtype) for state in make_states(row, layer, BATCH, rng)]
    mask = make_mask(mask_kind, BATCH, TIME, rng) if mask_kind else None
    numbers = [2**31 + 7, 99]

    def expected():
        y, final = oracle(
            row, layer, x, states if with_states else None, numbers, training=training, mask=mask
        )
        y = tf.concat(y, axis=-1)
        if mask is not None and layer.direction == "bidirectional":
            y = tf.where(mask[:, :, None], y, tf.zeros_like(y))
        return [y, *final]

    def actual():
        _set_seed(layer, numbers)
        run = tf.function(call) if graph else call
        return run(layer, x, states if with_states else None, mask=mask, training=training)

    sources = [x, *(states if with_states else []), *variables(layer)]
    got = values_and_gradients(actual, sources, seed)
    assert_close(got, values_and_gradients(expected, sources, seed), tolerance)
    return got


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", pairwise(CHOICES), ids=lambda case: case["feature"])
def test_feature(row, case, rng, seed):
    print(case)
    options = {k: case[k] for k in ("direction", "use_bias", "dtype")}
    options.update(FEATURES_OF_OURS[case["feature"]](row))
    _check(
        row,
        options,
        case["mask"],
        case["training"],
        case["initial_state"],
        case["graph"],
        TOLERANCE[case["dtype"]],
        rng,
        seed,
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_16_bits(row, policy, rng, seed):
    options = {"dtype": policy, "direction": "bidirectional"}
    _check(row, options, "holes", False, True, False, TOLERANCE[policy], rng, seed)


def test_dropconnect_is_dropout_on_the_recurrent_kernel(row, rng, seed):
    if not row.takes("dropconnect"):
        with pytest.raises(ValueError, match="dropconnect"):
            row.layer(UNITS, dropconnect=0.4)
        return
    layer = row.layer(UNITS, dtype="float64", dropconnect=0.4, return_sequences=True)
    layer.build((BATCH, TIME, FEATURES))
    randomize(layer, rng)
    x = tf.constant(rng.normal(size=(BATCH, TIME, FEATURES)))
    sources = [x, *variables(layer)]
    kernel = layer.cell.recurrent_kernel.value

    def expected():
        generator = keras.random.SeedGenerator(17)
        shape = layer.cell.prepared()[1]["recurrent_kernel"].shape
        dropped = keras.random.dropout(tf.reshape(kernel, shape), 0.4, seed=generator)
        return oracle(row, layer, x, recurrent_kernel=tf.reshape(dropped, kernel.shape))[0]

    def actual():
        _set_seed(layer, [17, 0])
        return [layer(x, training=True)]

    got = values_and_gradients(actual, sources, seed)
    assert_close(got, values_and_gradients(expected, sources, seed), 1e-11)
    which = next(i for i, source in enumerate(sources) if source is kernel)
    assert np.any(got[f"gradient {which}"] == 0)


def test_zoneout_keeps_about_its_rate_of_the_units(row):
    if row.pools:  # what is kept is not the output
        pytest.skip("the output is made of what is kept")
    layer = row.layer(64, return_sequences=True, activation="tanh", **{row.zoneout[0]: 0.25})
    y = layer(tf.random.normal([8, 30, 4]), training=True).numpy()
    kept = (np.abs(y[:, 1:] - y[:, :-1]) < 1e-6).mean()
    assert abs(kept - 0.25) < 0.02


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("by_steps", [False, True])
def test_zoneout_of_one_keeps_the_states(row, training, by_steps, rng):
    """The layer and its cell: with a rate of 1 no state ever changes."""
    if row.options.get("pooling") == "ifo":
        pytest.skip("its input gate adds to what is kept")
    layer = row.layer(UNITS, return_state=True, **dict.fromkeys(row.zoneout, 1.0))
    layer.build((BATCH, TIME, FEATURES))
    states = [tf.constant(s, tf.float32) for s in make_states(row, layer, BATCH, rng)]
    run = keras.layers.RNN(layer.cell, return_state=True) if by_steps else layer
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    _, *final = run(x, initial_state=states, training=training)
    for got, want in zip(final[: row.states], states, strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.spread(2)
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
def test_go_backwards_is_the_reversed_sequence(row, direction, sequences, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    mask = make_mask("all", BATCH, TIME, rng)
    options = {"direction": direction, "return_state": True, "return_sequences": sequences}
    ahead = row.layer(UNITS, **options)
    back = row.layer(UNITS, go_backwards=True, **options)
    ahead.build(x.shape), back.build(x.shape)
    randomize(ahead, rng)
    back.set_weights(ahead.get_weights())
    expected = call(ahead, x[:, ::-1], mask=mask[:, ::-1])
    for got, want in zip(call(back, x, mask=mask), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=5e-6)
