"""Saving and loading: files, configs, copies, SavedModels."""

import copy
import json
import os
import pathlib
import pickle
import shutil
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
    x = row.layer(4, return_sequences=True, **row.allowed(options))(inputs)
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


def test_registered_names_are_of_the_package(row):
    """The names in a file do not depend on the module of a class."""
    config = keras.saving.serialize_keras_object(row.layer(4, name="it"))
    assert config["registered_name"] == f"haste_keras>{row.layer_class.__name__}"
    config["module"] = "haste_keras.where_it_was"
    assert type(keras.saving.deserialize_keras_object(config)) is row.layer_class


@pytest.mark.spread(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_file_of_a_model(row, name, options, rng, tmp_path):
    model, x = _model(row, **options), _data(rng)
    model.save(tmp_path / name)
    loaded = keras.models.load_model(tmp_path / name)
    np.testing.assert_array_equal(loaded(x), model(x))


@pytest.mark.stock
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


@pytest.mark.stock
def test_weights_of_bidirectional_stock_layers_load(row, rng, tmp_path):
    models = [
        keras.Sequential([keras.Input((None, 3)), keras.layers.Bidirectional(layer)])
        for layer in (row.stock(4), row.layer(4))
    ]
    models[0].save_weights(tmp_path / "it.weights.h5")
    models[1].load_weights(tmp_path / "it.weights.h5")
    x = _data(rng)
    np.testing.assert_allclose(models[1](x), models[0](x), atol=1e-6)


@pytest.mark.spread(2)
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
        f"haste_keras>{row.layer_class.__name__}"
    )


def _token_model(row):
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(7, 3, mask_zero=True)(inputs)
    return keras.Model(inputs, row.layer(4, direction="bidirectional")(x))


# Name → (model of a row, shapes of inputs to try it on).
LEAVING = {
    "plain": (_model, [(2, 5), (1, 9), (4, 1)]),
    "bidirectional": (lambda row: _model(row, **OPTIONS[1]), [(2, 5), (3, 2)]),
    "heads": (lambda row: _model(row, **OPTIONS[2]), [(2, 5), (1, 9)]),
    "masked": (_token_model, [(3, 6), (1, 2)]),
}

OTHER_PROCESS = """
import pathlib, sys
import numpy as np, tensorflow as tf, haste_keras
folder = pathlib.Path(sys.argv[1])
for exported in sorted(folder.glob("*/exported")):
    loaded = tf.saved_model.load(exported)
    for x in exported.parent.glob("x*.npy"):
        y, = loaded.signatures["serving_default"](tf.constant(np.load(x))).values()
        np.testing.assert_array_equal(loaded.serve(np.load(x)), y)
        np.save(x.with_name("exported_" + x.name), y)
import keras
for saved in sorted(folder.glob("*/model.keras")):
    model = keras.models.load_model(saved)
    for x in saved.parent.glob("x*.npy"):
        np.save(x.with_name("saved_" + x.name), model(np.load(x)))
"""


@pytest.fixture(scope="module")
def other_process(request, tmp_path_factory):
    """Exports and saves every model that a test of this run asks for, and runs them elsewhere.

    Returns {(row, name): {"got": [...], "want": [...]}}, or the error that exporting raised.
    """
    wanted = [
        (item.callspec.params["row"], item.callspec.params["leaving"])
        for item in request.session.items
        if "other_process" in item.fixturenames
    ]
    root = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(1)
    results = {}
    for i, (row, name) in enumerate(wanted):
        make, shapes = LEAVING[name]
        folder = root / str(i)
        folder.mkdir()
        results[row.name, name] = want = {}
        try:
            model = make(row)
            for j, shape in enumerate(shapes):
                x = rng.integers(0, 7, size=shape).astype("int32")
                if name != "masked":
                    x = rng.normal(size=(*shape, 3)).astype("float32")
                np.save(folder / f"x{j}.npy", x)
                for kind in ("exported", "saved"):
                    want[folder / f"{kind}_x{j}.npy"] = model(x).numpy()
            model.save(folder / "model.keras")
            model.export(folder / "exported", verbose=False)
        except Exception as error:
            shutil.rmtree(folder)
            results[row.name, name] = error
    _python(OTHER_PROCESS, root)
    return results


@pytest.mark.spread(4)
@pytest.mark.parametrize("leaving", LEAVING)
def test_runs_where_only_haste_keras_is_imported(row, leaving, other_process):
    """Exported, it serves any batch and length; so does its .keras file."""
    want = other_process[row.name, leaving]
    if isinstance(want, Exception):
        raise want
    assert want
    for file, value in want.items():
        np.testing.assert_allclose(np.load(file), value, atol=1e-6)


@pytest.mark.spread(2)
def test_exported_stateful_model_keeps_its_state(row, rng, tmp_path):
    inputs = keras.Input(batch_shape=(2, 5, 3))
    model = keras.Model(inputs, row.layer(4, stateful=True)(inputs))
    x = _data(rng)
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    model.layers[1].reset_state()
    for _ in range(3):
        np.testing.assert_allclose(loaded.serve(x), model(x), atol=1e-6)


def _exported(model, path):
    """The model, exported as it is called in Python and loaded again."""
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.__call__, [tf.TensorSpec([None, None, 3])])
    archive.write_out(path, verbose=False)
    return tf.saved_model.load(path)


@pytest.mark.spread(2)
def test_loaded_export_has_gradients(row, rng, tmp_path):
    model = _model(row)
    loaded = _exported(model, tmp_path)
    x = tf.constant(_data(rng))
    gradients = []
    for serve in (loaded.serve, model):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = serve(x)
        gradients.append(tape.gradient(y, x))
    np.testing.assert_allclose(*gradients, atol=1e-6)


@pytest.mark.spread(2)
def test_loaded_export_of_16_bits_has_gradients_of_weights(row, rng, tmp_path):
    """The bias's is not TensorFlow's own (haste_keras/ops/bias.py)."""
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, row.layer(4, dtype="mixed_bfloat16")(inputs))
    loaded = _exported(model, tmp_path)
    x = tf.constant(_data(rng))
    gradients = []
    for serve, owner in ((loaded.serve, loaded), (model, model)):
        with tf.GradientTape() as tape:
            y = tf.cast(serve(x), tf.float32)
        gradients.append(tape.gradient(y, list(owner.trainable_variables)))
    for ours, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)
