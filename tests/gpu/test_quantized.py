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


@pytest.mark.parametrize("name", LAYERS)
def test_as_a_layer_of_its_floats(name, true_float32):
    """The outputs are those of a float layer with q · scale for weights."""
    keras.utils.set_random_seed(4)
    layer, floats = LAYERS[name](), LAYERS[name]()
    x = np.random.default_rng(5).normal(size=(3, 11, 16)).astype("float32")
    for each in (layer, floats):
        each.build(x.shape)
    original = layer.get_weights()
    layer.quantize("int8")
    rounded = []
    for weight in original:
        if weight.ndim > 1 and weight.shape[-1] % 24 == 0 and weight.shape[0] > 4:
            scale = np.abs(weight).max(0) / 127
            weight = np.round(weight / np.where(scale > 0, scale, 1)) * scale
        rounded.append(weight.astype("float32"))
    floats.set_weights(rounded)
    with tf.device(DEVICE):
        np.testing.assert_allclose(layer(x), floats(x), atol=2e-4)
    model = keras.Sequential([keras.Input((None, 16)), layer])
    np.testing.assert_allclose(model.predict(x, verbose=0), floats(x), atol=2e-4)
