"""What leaves the process and comes back: files, configs, copies, SavedModels."""

import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import haste_keras

OPTIONS = [{}, {"direction": "bidirectional", "merge_mode": "sum"}, {"heads": 2, "zoneout": 0.1}]


def _model(row, **options):
    inputs = keras.Input((None, 3))
    x = row.layer(4, return_sequences=True, **options)(inputs)
    return keras.Model(inputs, row.layer(4, name="second")(x))


def _data(rng, batch=2, time=5):
    return rng.normal(size=(batch, time, 3)).astype("float32")


def _python(code, *arguments):
    """Runs `code` in a fresh process that has imported nothing yet."""
    root = str(pathlib.Path(haste_keras.__file__).parents[1])
    environment = dict(os.environ, PYTHONPATH=root, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_file_of_a_model(row, name, options, rng, tmp_path):
    model, x = _model(row, **options), _data(rng)
    model.save(tmp_path / name)
    loaded = keras.models.load_model(tmp_path / name)
    np.testing.assert_array_equal(loaded(x), model(x))


def test_keras_file_loads_where_only_haste_keras_is_imported(row, rng, tmp_path):
    model, x = _model(row), _data(rng)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    _python(
        "import sys, numpy as np, haste_keras, keras\n"
        "model = keras.models.load_model(sys.argv[1] + '/model.keras')\n"
        "np.save(sys.argv[1] + '/y.npy', model(np.load(sys.argv[1] + '/x.npy')))",
        tmp_path,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(x))


@pytest.mark.parametrize("file", ["it.weights.h5", "it.h5"])
def test_weights_of_the_stock_layer_load(row, file, rng, tmp_path):
    stock = keras.Sequential([keras.Input((None, 3)), row.stock(4, name="it")])
    fused = keras.Sequential([keras.Input((None, 3)), row.layer(4, name="it")])
    if file.endswith(".weights.h5"):
        stock.save_weights(tmp_path / file)
        fused.load_weights(tmp_path / file)
    else:
        keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5(stock, tmp_path / file)
        fused.load_weights(tmp_path / file)
    for got, want in zip(fused.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_weights_of_bidirectional_stock_layers_load(row, rng, tmp_path):
    models = [
        keras.Sequential([keras.Input((None, 3)), keras.layers.Bidirectional(layer)])
        for layer in (row.stock(4), row.layer(4))
    ]
    models[0].save_weights(tmp_path / "it.weights.h5")
    models[1].load_weights(tmp_path / "it.weights.h5")
    x = _data(rng)
    np.testing.assert_allclose(models[1](x), models[0](x), atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_copies(row, options, rng):
    model, x = _model(row, **options), _data(rng)
    cloned = keras.models.clone_model(model)
    from_json = keras.models.model_from_json(model.to_json())
    for other in (cloned, from_json):
        other.set_weights(model.get_weights())
    for other in (cloned, from_json, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other(x), model(x))
    layer = model.layers[1]
    assert copy.deepcopy(layer).get_config() == layer.get_config()
    assert json.loads(model.to_json())["config"]["layers"][1]["registered_name"] == (
        f"haste_keras>{row.layer.__name__}"
    )


def _export_and_run(model, tmp_path, *inputs):
    """Exports `model`; its outputs on each input from a process that knows only TensorFlow."""
    model.export(tmp_path / "exported", verbose=False)
    for i, x in enumerate(inputs):
        np.save(tmp_path / f"x{i}.npy", x)
    _python(
        "import sys, numpy as np, tensorflow as tf, haste_keras\n"
        "loaded = tf.saved_model.load(sys.argv[1] + '/exported')\n"
        "for i in range(int(sys.argv[2])):\n"
        "    x = np.load(f'{sys.argv[1]}/x{i}.npy')\n"
        "    y = loaded.serve(x)\n"
        "    z, = loaded.signatures['serving_default'](tf.constant(x)).values()\n"
        "    np.save(f'{sys.argv[1]}/y{i}.npy', y)\n",
        tmp_path,
        len(inputs),
    )
    return [np.load(tmp_path / f"y{i}.npy") for i in range(len(inputs))]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_export_serves_any_batch_and_length(row, options, rng, tmp_path):
    model = _model(row, **options)
    inputs = [_data(rng), _data(rng, 1, 9), _data(rng, 4, 1)]
    for got, x in zip(_export_and_run(model, tmp_path, *inputs), inputs, strict=True):
        np.testing.assert_allclose(got, model(x), atol=1e-6)


def test_export_with_mask(row, rng, tmp_path):
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(7, 3, mask_zero=True)(inputs)
    model = keras.Model(inputs, row.layer(4, direction="bidirectional")(x))
    tokens = rng.integers(0, 7, size=(3, 6)).astype("int32")
    np.testing.assert_allclose(
        _export_and_run(model, tmp_path, tokens)[0], model(tokens), atol=1e-6
    )


def test_exported_stateful_model_keeps_its_state(row, rng, tmp_path):
    inputs = keras.Input(batch_shape=(2, 5, 3))
    model = keras.Model(inputs, row.layer(4, stateful=True)(inputs))
    x = _data(rng)
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    model.layers[1].reset_state()
    for _ in range(3):
        np.testing.assert_allclose(loaded.serve(x), model(x), atol=1e-6)


def test_loaded_export_has_gradients(row, rng, tmp_path):
    model = _model(row)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.__call__, [tf.TensorSpec([None, None, 3])])
    archive.write_out(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    x = tf.constant(_data(rng))
    gradients = []
    for serve in (loaded.serve, model):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = serve(x)
        gradients.append(tape.gradient(y, x))
    np.testing.assert_allclose(*gradients, atol=1e-6)
