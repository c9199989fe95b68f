"""The deep stack of docs/cells/indrnn.md: validation follows training where updates are few."""

import pathlib
import re

import keras
import numpy as np

import haste_keras

PAGE = pathlib.Path(__file__).parents[3] / "docs/cells/indrnn.md"


def test_the_page_s_stack():
    """Its code runs, with the momentum that the page asks for."""
    (code,) = re.findall(r"```python\n(model = .*?)```", PAGE.read_text(), re.S)
    names = {"keras": keras, "haste_keras": haste_keras}
    exec(code, names)
    normalizers = [
        layer
        for layer in names["model"].layers
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(normalizers) == 5
    assert all(layer.momentum == 0.9 for layer in normalizers)


def validation_loss(momentum, data):
    """Loss in validation after some 30 updates; the weights are the same for any momentum."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((40, 1))])
    for _ in range(4):
        model.add(haste_keras.IndRNN(24, return_sequences=True))
        model.add(keras.layers.BatchNormalization(momentum=momentum))
    model.add(haste_keras.IndRNN(24))
    model.add(keras.layers.Dense(1))
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    x, y = data
    history = model.fit(x, y, batch_size=32, epochs=4, shuffle=False, verbose=0).history["loss"]
    return history[-1], model.evaluate(x, y, verbose=0)


def test_momentum():
    x = np.random.default_rng(0).normal(size=(256, 40, 1)).astype("float32")
    data = x, (x[:, :, 0].mean(1) > 0).astype("float32")
    (trained, slow), (same, fast) = (validation_loss(m, data) for m in (0.99, 0.9))
    np.testing.assert_allclose(trained, same, rtol=1e-5)
    assert fast < 1.5 * trained
    assert slow > 2 * trained
