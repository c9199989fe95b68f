"""The graph optimizer: wrong and newer tags, XLA, and processes that load it in other ways."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from plugin_models import HIDDEN, LIMIT, SEQUENCES, count, load, model_of, sample

import haste_keras as hk
from haste_keras._compat import saved_model_pb2
from haste_keras.native import library


@pytest.fixture(autouse=True)
def active():
    assert library.graph_plugin() == (True, "")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(folder of a portable model, an input, its output)."""
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("serving") / "model"
    model = model_of(hk.LSTM(HIDDEN, **SEQUENCES), masked=True)
    hk.export(model, folder, verbose=False)
    x = sample(np.random.default_rng(1))
    return folder, x, np.asarray(model(x))


def edited(folder, target, edit):
    """A copy of a SavedModel; edit(tag, function) changes its tags."""
    target.mkdir()
    for path in folder.rglob("*"):
        copy = target / path.relative_to(folder)
        copy.mkdir() if path.is_dir() else copy.write_bytes(path.read_bytes())
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        if "_implements" in function.attr:
            edit(function.attr["_implements"].func, function)
    (target / "saved_model.pb").write_bytes(saved.SerializeToString())
    (target / "fingerprint.pb").unlink(missing_ok=True)
    return target


def set_type(tag, _):
    tag.attr["T"].type = tf.float64.as_datatype_enum


def drop_constants(tag, _):
    for name in [name for name in tag.attr if name.startswith("_input_")]:
        del tag.attr[name]


EDITS = {
    "version": lambda tag, _: setattr(tag.attr["_version"], "i", 2),
    "no_version": lambda tag, _: tag.attr.pop("_version"),
    "op": lambda tag, _: setattr(tag, "name", "HasteFuture"),
    "not_ours": lambda tag, _: setattr(tag, "name", "OtherLstm"),
    "attribute": lambda tag, _: setattr(tag.attr["future"], "b", True),
    "kind": lambda tag, _: setattr(tag.attr["zoneout"], "i", 1),
    "missing": lambda tag, _: tag.attr.pop("zoneout"),
    "arguments": lambda tag, _: setattr(tag.attr["_arguments"], "i", 7),
    "other_op": lambda tag, _: setattr(tag, "name", "HasteLstm"),
    "type": set_type,
    "constants": drop_constants,
    "text": lambda _, function: setattr(function.attr["_implements"], "s", b"HasteLstmLayer"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_wrong_tag_stays_stock(edit, exported, tmp_path):
    folder, x, expected = exported
    wrong = edited(folder, tmp_path / "wrong", EDITS[edit])
    result, calls = count(load(wrong), x)
    assert calls == 0
    np.testing.assert_allclose(result, expected, atol=LIMIT)


def test_xla_gets_the_stock_ops(exported):
    folder, x, expected = exported
    serve = load(folder)
    compiled = tf.function(lambda x: serve(x), jit_compile=True, autograph=False)
    around = tf.function(lambda x: compiled(x + 0) * 1, autograph=False)
    for function in (compiled, around):
        result, calls = count(function, tf.constant(x))
        assert calls == 0
        np.testing.assert_allclose(result, expected, atol=LIMIT)


PROCESS = """
import sys
import numpy as np
import tensorflow as tf
how, folder, x, y, newer = sys.argv[1:]
x, y = np.load(x), np.load(y)
model = tf.saved_model.load(folder)  # before haste_keras is there
if how == "path":
    model.serve(x)
import haste_keras
from haste_keras.native import library
assert haste_keras.LSTM(4)(x).shape == (3, 4)
right = np.abs(model.serve(x).numpy() - y).max() < 1e-5
print(right, library.graph_calls(), library.graph_plugin())
for _ in range(2):
    model = tf.saved_model.load(newer)
    model.serve(x)
print(library.graph_calls())
"""
ENVIRONMENTS = {
    "import": {},
    "off": {"HASTE_GRAPH_PLUGIN": "0"},
    "path": {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": hk.library_path()},
}


OTHER = """
#include "tensorflow/c/experimental/grappler/grappler.h"
static void optimize(void* o, const TF_Buffer* in, const TF_GrapplerItem* item, TF_Buffer* out,
                     TF_Status* status) {
  TF_SetStatus(status, TF_ABORTED, "");
}
void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status* status) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->device_type = "CPU";
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->optimizer->optimize_func = optimize;
  TF_SetStatus(status, TF_OK, "");
}
"""


def other_plugin(folder):
    """A library that registers a graph optimizer for CPUs, which TensorFlow takes once."""
    (folder / "other.c").write_text(OTHER)
    flags = ["-shared", "-fPIC", "-isystem", tf.sysconfig.get_include(), "-o", folder / "other.so"]
    linked = tf.sysconfig.get_link_flags()
    subprocess.run(["cc", folder / "other.c", *flags, *linked], check=True)
    return str(folder / "other.so")


@pytest.mark.parametrize("how", [*ENVIRONMENTS, "other"])
def test_process(how, exported, tmp_path):
    """Of a model loaded before the ops; switched off; with the ops that TensorFlow itself loads.

    Where another plug-in is loaded, ours steps aside. A newer tag is reported once.
    """
    why_not = {"off": "HASTE_GRAPH_PLUGIN is 0"}
    environment = dict(ENVIRONMENTS.get(how, {}))
    if how == "other":
        environment["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] = other_plugin(tmp_path)
        why_not["other"] = f"another library has a graph optimizer: {tmp_path / 'other.so'}"
    folder, x, expected = exported
    newer = edited(folder, tmp_path / "newer", EDITS["version"])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", expected)
    arguments = [how, folder, tmp_path / "x.npy", tmp_path / "y.npy", newer]
    package = {"PYTHONPATH": str(pathlib.Path(hk.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, *map(str, arguments)],
        env={**os.environ, **package, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    reason = why_not.get(how)
    if reason:
        assert lines == [f"True 0 {(False, reason)}", "0"]
    else:
        assert lines == ["True 1 (True, '')", "1"]
    told = "tags of version 2, which this version does not know"
    assert done.stderr.count(told) == (reason is None)
