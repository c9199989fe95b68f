"""Quantised layers in each format of a file: the same numbers, of weights that stay int8."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows import ROWS

import haste_keras
from haste_keras.native import library
from haste_keras.serving.export import check_portable

FEATURES, UNITS = 48, 64
NAMES = ("GRU reset before", "QRNN fo 2")


@pytest.fixture(
    scope="module", params=[row for row in ROWS if row.name in NAMES], ids=lambda row: row.name
)
def case(request):
    """A quantised model of one layer, an input, what the model gives, and a quarter's bytes."""
    keras.utils.set_random_seed(5)
    rng = np.random.default_rng(5)
    layer = request.param.layer(UNITS, return_sequences=True)
    model = keras.Sequential([keras.Input((None, FEATURES)), layer])
    floats = sum(weight.value.numpy().nbytes for weight in layer.weights)
    layer.quantize("int8")
    bytes_now = sum(weight.value.numpy().nbytes for weight in layer.weights)
    assert bytes_now < 0.3 * floats
    x = rng.normal(size=(2, 6, FEATURES)).astype("float32")
    return model, x, tf.function(model)(x).numpy(), floats


def assert_same(model, got, want):
    """Equal but for rounding, of a layer that quantises its state but for activations too: in the
    op these are approximate to 2e-5, and now and then round to another integer, which changes a row
    by up to 5e-4, and in the mean by 3e-5.
    """
    error = np.abs(got - want)
    if "QRNN" in type(model.layers[0]).__name__:
        assert error.max() < 1e-6
    else:
        assert error.mean() < 2e-4
        assert error.max() < 2e-3


def test_saved_model(case, tmp_path):
    model, x, expected, _ = case
    path = str(tmp_path / "export")
    haste_keras.export(model, path, verbose=False)
    check_portable(path)
    loaded = tf.saved_model.load(path)
    before = library.graph_calls()
    np.testing.assert_array_equal(loaded.serve(x), expected)
    # The QRNN's product with the input is an op of its own.
    assert library.graph_calls() == before + (2 if "QRNN" in type(model.layers[0]).__name__ else 1)
    reader = tf.train.load_checkpoint(path + "/variables/variables")
    dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    matrices = [name for name, shape in shapes.items() if np.prod(shape) > FEATURES * UNITS]
    assert matrices
    assert {dtypes[name] for name in matrices} == {tf.int8}


def test_litert(case, tmp_path):
    model, x, expected, floats = case
    path = str(tmp_path / "model.tflite")
    haste_keras.to_litert(model, path, batch_size=2)
    runner = tf.lite.Interpreter(path).get_signature_runner()
    (name,) = runner.get_input_details()
    (got,) = runner(**{name: x}).values()
    assert_same(model, got, expected)
    assert os.path.getsize(path) < 0.6 * floats


def test_onnx(case, tmp_path):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x, expected, _ = case
    path = str(tmp_path / "model.onnx")
    haste_keras.to_onnx(model, path)
    session = onnxruntime.InferenceSession(path)
    (got,) = session.run(None, {session.get_inputs()[0].name: x})
    assert_same(model, got, expected)
