"""Features that only the sLSTM has: exponential gates, a stabiliser, two forget gates."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import assert_close, randomize, values_and_gradients, variables
from layer_oracle import oracle
from rows import ROWS

import haste_keras

ROW = next(row for row in ROWS if row.layer_class is haste_keras.SLSTM)
TOLERANCE = {"float32": 1e-4, "mixed_float16": 2e-2, "mixed_bfloat16": 1e-1}


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("forget_activation", ["exponential", "sigmoid"])
def test_inputs_scaled_by_100(policy, forget_activation, rng, seed):
    """With an input for each gate of each unit: x·W is x, not rounded once more."""
    layer = ROW.layer(
        8, return_sequences=True, dtype=policy, forget_activation=forget_activation, heads=2
    )
    x = tf.constant(100 * rng.normal(size=(3, 40, 32)), layer.compute_dtype)
    layer.build(x.shape)
    _, recurrent, bias = layer.get_weights()
    layer.set_weights([np.eye(32), rng.normal(scale=0.4, size=recurrent.shape), bias])
    sources = [x, *variables(layer)]
    got = values_and_gradients(lambda: [layer(x)], sources, seed)
    assert all(np.all(np.isfinite(value)) for value in got.values())
    want = values_and_gradients(lambda: oracle(ROW, layer, x)[0], sources, seed)
    assert_close(got, want, TOLERANCE[policy])


@pytest.mark.parametrize("policy", TOLERANCE)
def test_large_inputs_and_weights_stay_finite(policy, rng, seed):
    layer = ROW.layer(8, return_sequences=True, dtype=policy)
    x = tf.constant(1000 * rng.normal(size=(3, 40, 4)), layer.compute_dtype)
    layer.build(x.shape)
    randomize(layer, rng)
    got = values_and_gradients(lambda: [layer(x)], [x, *variables(layer)], seed)
    assert all(np.all(np.isfinite(value)) for value in got.values())


@pytest.mark.parametrize("policy", TOLERANCE)
def test_expected_zoneout_keeps_its_scale_in_a_long_walk(policy, rng):
    """With f = e^2 at every step: c e^m and n e^m pass any float, c and n do not."""
    layer = ROW.layer(4, return_sequences=True, return_state=True, zoneout_cell=0.4, dtype=policy)
    x = tf.constant(rng.normal(size=(2, 400, 3)), layer.compute_dtype)
    layer.build(x.shape)
    kernel, recurrent, bias = layer.get_weights()
    layer.set_weights([0 * kernel, recurrent, bias + np.repeat([0.0, 2.0, 0.5, 0.0], 4)])
    y, _, _, n, _ = layer(x)
    assert np.all(np.isfinite(y))
    assert np.all(n >= 0.9)
    np.testing.assert_allclose(tf.cast(y, "float32"), oracle(ROW, layer, x)[0][0], atol=0.02)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("zoneout_cell", [0.3, 1.0])
def test_zoneout_of_an_empty_state(zoneout_cell, training, rng):
    """Before the first step there is nothing to keep; with rate 1 it stays like that."""
    wx, kernel = rng.normal(size=(2, 6, 1, 4, 5)), rng.normal(size=(1, 5, 4, 5))
    y, (_, c, n, _) = haste_keras.ops.slstm(
        wx, kernel, zoneout_cell=zoneout_cell, training=training, seed=(1, 2)
    )
    assert np.all(np.isfinite(y))
    if zoneout_cell == 1:
        assert np.all(c == 0)
        assert np.all(n == 0)
    elif not training:
        assert np.all(n >= 0.7)


def test_state_goes_on_over_calls(rng):
    x = rng.normal(size=(2, 12, 3)).astype("float32")
    layer = ROW.layer(5, return_sequences=True, return_state=True)
    whole = layer(x)[0]
    first, *states = layer(x[:, :5])
    rest = layer(x[:, 5:], initial_state=states)[0]
    np.testing.assert_allclose(np.concatenate([first, rest], 1), whole, atol=1e-6)


def test_gradient_through_a_state_that_is_handed_on(rng):
    """In two calls as in one: gradients through c and n are right although m has none."""
    x = tf.constant(rng.normal(size=(2, 12, 3)))
    layer = ROW.layer(5, return_state=True, dtype="float64")
    layer.build(x.shape)
    gradients = []
    for parts in ([x], [x[:, :5], x[:, 5:]]):
        with tf.GradientTape() as tape:
            states = None
            for part in parts:
                y, *states = layer(part, initial_state=states)
            loss = tf.reduce_sum(y**2)
        gradients.append(tape.gradient(loss, layer.trainable_variables))
    for got, want in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_other_forget_activations_are_refused():
    with pytest.raises(ValueError, match=r"`forget_activation`.*'exponential', 'sigmoid'.*'tanh'"):
        haste_keras.SLSTM(4, forget_activation="tanh")


def test_learns_to_count_what_came(rng):
    """The effect of the normaliser: the mean of any number of marked inputs."""
    keras.utils.set_random_seed(1)
    x = rng.random((256, 12, 2)).astype("float32")
    x[..., 1] = rng.random((256, 12)) < 0.4
    x[:, 0, 1] = 1
    target = (x[..., 0] * x[..., 1]).sum(1) / x[..., 1].sum(1)
    model = keras.Sequential([keras.Input((12, 2)), haste_keras.SLSTM(16), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    losses = model.fit(x, target, epochs=20, batch_size=32, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * np.var(target)
