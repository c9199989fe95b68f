"""Quantised layers where there is a GPU: they make floats of their weights there."""

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

import haste_keras  # noqa: E402

LAYERS = {
    "LSTM": lambda: haste_keras.LSTM(24, return_sequences=True, direction="bidirectional"),
    "GRU": lambda: haste_keras.GRU(24, return_sequences=True, reset_after=False),
    "LayerNormLSTM": lambda: haste_keras.LayerNormLSTM(24, return_sequences=True),
    "QRNN": lambda: haste_keras.QRNN(24, return_sequences=True, window=2),
}


def set_floats(cell, quantized):
    """Gives a cell of floats the weights of a quantised one."""
    values = {weight.name: weight.numpy() for weight in quantized.weights}
    for weight in cell.weights:
        value = values[weight.name]
        if value.dtype == np.int8:
            value = value / values[f"{weight.name}_scale"]
        weight.assign(value)


@pytest.mark.parametrize("name", LAYERS)
def test_as_a_layer_of_floats(name, true_float32):
    keras.utils.set_random_seed(4)
    layer, floats = LAYERS[name](), LAYERS[name]()
    x = np.random.default_rng(5).normal(size=(3, 11, 16)).astype("float32")
    layer.build(x.shape)
    floats.build(x.shape)
    layer.quantize("int8")
    for cell, quantized in zip(floats.cells, layer.cells, strict=True):
        set_floats(cell, quantized)
    model = keras.Sequential([keras.Input((None, 16)), layer])
    with tf.device(DEVICE):
        expected = floats(x)
        np.testing.assert_allclose(layer(x), expected, atol=1e-5)
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
