"""The step-wise cell: one step of its layer, by hand and in keras.layers.RNN."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import call, make_mask, randomize

from haste_keras import reference

BATCH, TIME, FEATURES, UNITS = 3, 5, 4, 6


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 2},
        {"use_bias": False, "activation": "relu"},
        {"zoneout": 0.3},
        {"zoneout_all": 0.2, "other_activations": True},
        {"dtype": "float64"},
        {"dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_in_keras_rnn_is_the_layer(row, options, rng):
    options = row.allowed(options)
    if options.pop("zoneout_all", None):
        options.update(dict.fromkeys(row.zoneout, 0.2))
    if options.pop("other_activations", None):
        options.update(row.other_activations)
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    mask = make_mask("all", BATCH, TIME, rng)
    layer = row.layer(UNITS, return_sequences=True, return_state=True, **options)
    dtype = {"dtype": options["dtype"]} if "dtype" in options else {}
    steps = keras.layers.RNN(
        row.cell(UNITS, **options), return_sequences=True, return_state=True, **dtype
    )
    layer.build(x.shape), steps.build(x.shape)
    randomize(layer, rng)
    steps.set_weights(layer.get_weights())
    tolerance = 0.05 if options.get("dtype") == "mixed_bfloat16" else 1e-5
    for got, want in zip(call(layer, x, mask=mask), call(steps, x, mask=mask), strict=True):
        np.testing.assert_allclose(
            tf.cast(got, "float32"), tf.cast(want, "float32"), atol=tolerance
        )


@pytest.mark.parametrize("heads", [1, 2])
def test_recurrent_dropout_in_keras_rnn_is_the_layer_s(row, heads, rng):
    if not row.takes("recurrent_dropout"):
        pytest.skip("no h·R")
    options = {"recurrent_dropout": 0.4, "dtype": "float64", **row.allowed({"heads": heads})}
    x, numbers = rng.normal(size=(BATCH, TIME, FEATURES)), [2**31 + 7, 99]
    layer = row.layer(UNITS, return_sequences=True, return_state=True, **options)
    cell = row.cell(UNITS, **options)
    steps = keras.layers.RNN(cell, return_sequences=True, return_state=True, dtype="float64")
    layer.build(x.shape), steps.build(x.shape)
    randomize(layer, rng)
    steps.set_weights(layer.get_weights())
    layer.cell.seed_generator.state.assign(numbers)
    shape = (BATCH, heads, UNITS // heads)
    mask = reference.dropout_scale(numbers, shape, 0.4).reshape(BATCH, UNITS)
    cell.get_recurrent_dropout_mask = lambda h: tf.constant(mask)
    got, want = (call(each, x, training=True) for each in (layer, steps))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.spread(3)
def test_trains_in_keras_rnn_with_all_kinds_of_noise(row):
    noise = row.noise(0.2)
    model = keras.Sequential([keras.layers.RNN(row.cell(6, **noise)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(np.ones([8, 5, 3]), np.ones([8, 1]), epochs=3, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))


def test_steps_by_hand(row, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    layer = row.layer(UNITS, return_sequences=True)
    expected = layer(x)
    states = layer.cell.get_initial_state(BATCH)
    for t in range(TIME):
        output, states = layer.cell(x[:, t], states)
        np.testing.assert_allclose(output, expected[:, t], atol=5e-6)


def test_config_round_trip(row):
    cell = row.cell(6, seed=3, **row.noise(0.1), **row.allowed({"heads": 2}))
    config = keras.saving.serialize_keras_object(cell)
    assert keras.saving.deserialize_keras_object(config).get_config() == cell.get_config()
