"""Activations: names and functions that the kernels have, and others, which run step by step."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import haste_keras

SAME = {
    "tanh": [tf.tanh, tf.nn.tanh, tf.math.tanh, keras.ops.tanh, keras.layers.Activation("tanh")],
    "sigmoid": [tf.sigmoid, tf.nn.sigmoid, tf.math.sigmoid, keras.ops.sigmoid],
    "relu": [tf.nn.relu, keras.ops.relu, keras.layers.ReLU(), keras.layers.Activation("relu")],
    "hard_sigmoid": [keras.ops.hard_sigmoid, keras.activations.hard_sigmoid],
    "linear": [None, tf.identity, keras.layers.Identity(), keras.activations.linear],
}
OTHER = {
    "gelu": "gelu",
    "silu": "silu",
    "softsign": "softsign",
    "tf.nn.elu": tf.nn.elu,
    "ReLU": keras.layers.ReLU(max_value=1.0),
}


@pytest.mark.parametrize("name", SAME)
def test_other_names_of_the_same(name, rng):
    x = tf.constant(rng.normal(size=[2, 5, 3]), tf.float32)
    for given in SAME[name]:
        layer = haste_keras.LSTM(4, activation=given, recurrent_activation=given, seed=1)
        assert layer.activation is layer.recurrent_activation is keras.activations.get(name)
        assert layer.get_config()["activation"] == name
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer(x)


@pytest.mark.parametrize("options", [{"negative_slope": 0.1}, {"threshold": 1.0}])
def test_another_relu_is_not_relu(options):
    relu = keras.layers.ReLU(**options)
    assert haste_keras.GRU(4, activation=relu).activation is relu


@pytest.mark.parametrize("activation", OTHER.values(), ids=OTHER)
@pytest.mark.stock
def test_a_layer_with_another_one_is_keras_s(row, activation, rng):
    """Outputs, states and gradients, with a mask."""
    x = tf.constant(rng.normal(size=[3, 6, 4]), tf.float32)
    mask = tf.constant(rng.random((3, 6)) < 0.7)
    options = {"activation": activation, "return_sequences": True, "return_state": True}
    stock, fused = row.stock(5, **options), row.layer(5, **options)
    results = []
    for layer in (stock, fused):
        layer.build(x.shape)
        layer.set_weights(stock.get_weights())
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, mask=mask)
            loss = tf.add_n([tf.reduce_sum(o * o) for o in outputs])
        results.append([*outputs, *tape.gradient(loss, [x, *layer.trainable_variables])])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_the_warning_says_what_it_costs(row):
    layer = row.layer(4, activation="gelu", name="mine")
    message = (
        r"layer mine \(activation=gelu\) runs Keras's loop .* up to ten times as fast\): .* tanh"
    )
    with pytest.warns(UserWarning, match=message):
        layer(np.ones((2, 3, 4), "float32"))


def test_every_layer_with_another_one_is_its_cell(row, rng):
    """Both directions and go_backwards, against keras.layers.RNN over the layer's own cells."""
    x = tf.constant(rng.normal(size=[3, 6, 4]), tf.float32)
    layer = row.layer(4, activation="softsign", direction="bidirectional", return_sequences=True)
    outputs = layer(x)
    forward = keras.layers.RNN(layer.cell, return_sequences=True)(x)
    backward = keras.layers.RNN(layer.backward_cell, return_sequences=True, go_backwards=True)(x)
    expected = tf.concat([forward, tf.reverse(backward, [1])], -1)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_a_layer_as_activation_comes_back(row):
    config = row.layer(4, activation=keras.layers.ReLU(max_value=1.0)).get_config()
    again = row.layer_class.from_config(config)
    assert type(again.activation) is keras.layers.ReLU
    assert again.activation.max_value == 1.0


@pytest.mark.spread(2)
def test_it_trains_and_comes_back_from_a_file(row, rng, tmp_path):
    x, y = rng.normal(size=(8, 5, 3)).astype("float32"), rng.normal(size=(8, 4)).astype("float32")
    model = keras.Sequential([keras.Input((None, 3)), row.layer(4, activation="silu")])
    model.compile("adam", "mse")
    losses = model.fit(x, y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "it.keras")
    again = keras.saving.load_model(tmp_path / "it.keras")
    assert again.layers[0].activation is keras.activations.silu
    np.testing.assert_array_equal(again(x), model(x))


def test_a_cell_takes_any(row, rng):
    """A cell is TensorFlow's own operations."""
    x = tf.constant(rng.normal(size=[2, 3]), tf.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cell = row.cell(4, activation="gelu")
        cell.build(x.shape)
        states = cell.get_initial_state(2)
        output, _ = cell(x, states)
    assert np.isfinite(output).all()


def test_no_activation():
    with pytest.raises(ValueError, match="activation"):
        haste_keras.LSTM(4, activation="no such function")
