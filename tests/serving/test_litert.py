"""to_litert: files of built-in operators, run by TensorFlow's interpreter."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows import ROWS

import haste_keras

FEATURES, UNITS = 3, 4

if not hasattr(tf, "lite"):
    pytest.skip("TensorFlow has no tf.lite", allow_module_level=True)


@pytest.fixture
def rng():
    keras.utils.set_random_seed(6)
    return np.random.default_rng(6)


def randomized(model, rng):
    model.set_weights([rng.normal(scale=0.4, size=w.shape) for w in model.get_weights()])
    return model


def converted(model, path, **options):
    """The file's runner, and the interpreter, which must be kept as long."""
    haste_keras.to_litert(model, path, **options)
    assert b"Flex" not in path.read_bytes()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")
        interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner(), interpreter


def test_every_layer(rng, tmp_path):
    """At lengths that the file does not fix, with the names of the model."""
    x = keras.Input((None, FEATURES), name="x")
    outputs = {}
    for i, row in enumerate(ROWS):
        options = row.allowed({"heads": 2}) if i % 2 else {}
        options.update(dict.fromkeys(row.zoneout, 0.3) if i % 3 else {})
        direction = ("forward", "backward")[i % 2]
        layer = row.layer(UNITS, return_sequences=True, direction=direction, **options)
        outputs[row.name.replace(" ", "_")] = layer(x)
    model = randomized(keras.Model(x, outputs), rng)
    run, _kept = converted(model, tmp_path / "model.tflite")
    for time in (5, 2):
        data = rng.normal(size=(1, time, FEATURES)).astype("float32")
        want = model(data)
        got = run(x=data)
        assert got.keys() == want.keys()
        for name, each in got.items():
            np.testing.assert_allclose(each, want[name], rtol=0, atol=1e-5, err_msg=name)


def words_model(rng):
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = keras.layers.Embedding(9, 32, mask_zero=True)(ids)
    h = haste_keras.LSTM(64, direction="bidirectional", return_sequences=True)(h)
    h = haste_keras.GRU(64)(h)
    return randomized(keras.Model(ids, keras.layers.Dense(2, name="y")(h / 4)), rng)


def test_masks_and_quantization(rng, tmp_path):
    """Masks of any pattern; weights of 8 bits take about a quarter of the room."""
    model = words_model(rng)
    words = rng.integers(0, 9, (2, 6)).astype("int32")
    words[0] = [1, 0, 2, 3, 0, 0]
    want = np.array(model(words))
    sizes = {}
    for quantize, atol in ((None, 1e-5), ("dynamic", 0.08)):
        path = tmp_path / f"{quantize}.tflite"
        run, _kept = converted(model, path, quantize=quantize, batch_size=2)
        got = run(ids=words)["y"]
        np.testing.assert_allclose(got, want, rtol=0, atol=atol)
        sizes[quantize] = path.stat().st_size
    assert sizes["dynamic"] < 0.45 * sizes[None]


@pytest.mark.parametrize("quantize", [None, "dynamic"])
def test_qrnn_window_meets_mask(quantize, rng, tmp_path):
    """A window that skips masked steps, of batches and lengths that differ from the file's."""
    given = keras.Input((None, FEATURES), name="x")
    x = keras.layers.Masking()(given)
    options = {"return_sequences": True, "return_state": True}
    outputs = [
        *haste_keras.QRNN(UNITS, window=2, pooling="ifo", **options)(x),
        *haste_keras.QRNN(UNITS, window=3, direction="bidirectional", **options)(x),
    ]
    model = randomized(keras.Model(given, {f"y{i}": y for i, y in enumerate(outputs)}), rng)
    path = tmp_path / "model.tflite"
    for batch in (1, 3):
        run, _kept = converted(model, path, quantize=quantize, batch_size=batch)
        for time in (7, 2):
            data = rng.normal(size=(batch, time, FEATURES)).astype("float32")
            data[rng.random((batch, time)) < 0.4] = 0
            want, got = model(data), run(x=data)
            for name, each in got.items():
                np.testing.assert_allclose(each, want[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_qrnn_window_meets_mask_of_any_size(direction, rng, tmp_path):
    """Keras's own writer, which leaves the batch and the length open: no Flex either."""
    layer = haste_keras.QRNN(UNITS, window=3, direction=direction, return_sequences=True)
    model = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.Masking(), layer])
    path = tmp_path / "model.tflite"
    haste_keras.export(randomized(model, rng), path, format="litert", verbose=False)
    assert b"Flex" not in path.read_bytes()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")
        interpreter = tf.lite.Interpreter(str(path))
    (given,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    for shape in ((1, 7, FEATURES), (3, 4, FEATURES)):
        x = rng.normal(size=shape).astype("float32")
        x[rng.random(shape[:2]) < 0.4] = 0
        interpreter.resize_tensor_input(given["index"], shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        got = interpreter.get_tensor(output["index"])
        np.testing.assert_allclose(got, model(x), rtol=0, atol=1e-5)


def test_errors_write_nothing(tmp_path):
    path = tmp_path / "model.tflite"

    def model(layer, **given):
        return keras.Sequential([keras.Input(**(given or {"shape": (None, FEATURES)})), layer])

    plain = model(haste_keras.MinGRU(2))
    stateful = model(haste_keras.LSTM(2, stateful=True, name="it"), batch_shape=(2, 5, 3))
    for arguments, options, match in (
        ([plain], {"quantize": "int8"}, "`quantize` must be None or 'dynamic'"),
        ([plain], {"batch_size": 0}, "`batch_size` must be a positive integer. Received: 0"),
        ([stateful], {}, "layer it is stateful"),
    ):
        with pytest.raises(ValueError, match=match):
            haste_keras.to_litert(*arguments, path, **options)
    erfinv = model(keras.layers.Lambda(tf.math.erfinv))
    with pytest.raises(NotImplementedError, match=r"LiteRT does not have all of .*Erfinv"):
        haste_keras.to_litert(erfinv, path)
    assert list(tmp_path.iterdir()) == []
