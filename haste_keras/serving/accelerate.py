"""SavedModels of Keras's own layers, made to run our ops where they are present."""

import os
import shutil
import tempfile
import weakref

import tensorflow as tf

from haste_keras._compat import saved_model_pb2
from haste_keras.serving.export import put
from haste_keras.serving.rewrite import rewrite

_GRAPH = "saved_model.pb"
_LEFT_OUT = (_GRAPH, "fingerprint.pb")  # the second is a hash of the first


def _read(path):
    """The SavedModel at `path`."""
    file = os.path.join(path, _GRAPH)
    if not os.path.isfile(file):
        raise ValueError(f"`source` must be the folder of a SavedModel, but there is no {file}")
    saved = saved_model_pb2.SavedModel()
    with open(file, "rb") as opened:
        saved.ParseFromString(opened.read())
    return saved


def _write(saved, source, target, copy):
    """Writes `saved` to the folder `target`, and what else there is in `source` by `copy`."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        if name not in _LEFT_OUT:
            copy(os.path.join(source, name), os.path.join(target, name))
    with open(os.path.join(target, _GRAPH), "wb") as opened:
        opened.write(saved.SerializeToString(deterministic=True))


def _copy(source, target):
    shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy2(source, target)


def accelerate(source, target):
    """Rewrites a SavedModel of `keras.layers.LSTM`, `GRU` and `SimpleRNN`: no export, no code.

    Each loop over time that computes exactly what such a layer does becomes the call of a tagged
    function, as `haste_keras.export` writes them: any TensorFlow runs the result, and where
    haste_keras is present its ops run. So does cuDNN's op, which an export on a GPU has in place of
    the loop, and which no CPU runs. Weights, signatures and all else stay as they are. A loop that
    is not recognised, node by node, stays as it is; so do unrolled layers, which have none.

    Args:
      source: str or pathlib.Path of a SavedModel's folder: `model.export` of Keras 3.6 or newer.
      target: str or pathlib.Path of the folder to write. What is there is replaced.

    Returns:
      list of `LoopReport`, one for each loop: its `function`, its `name`, its `layer` if it was
      rewritten and else the `reason`.

    Raises:
      ValueError: there is no SavedModel at `source`, or `target` is the same folder or a file.
    """
    source, target = os.fspath(source), os.fspath(target).rstrip("/")
    saved = _read(source)
    if os.path.realpath(source) == os.path.realpath(target):
        raise ValueError(f"`target` must be another folder than `source`. Received: {target}")
    if os.path.exists(target) and not os.path.isdir(target):
        raise ValueError(f"`target` must be a folder, or not be there, but {target} is a file")
    reports = [each for meta in saved.meta_graphs for each in rewrite(meta)]
    folder, name = os.path.split(target)
    os.makedirs(folder or ".", exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder or ".") as work:
        staged = os.path.join(work, name)
        _write(saved, source, staged, _copy)
        put(staged, target)
    return reports


def load(source):
    """`tf.saved_model.load` of what `accelerate` makes of a SavedModel; nothing is written there.

    Args:
      source: str or pathlib.Path of a SavedModel's folder, as of `accelerate`.

    Returns:
      what `tf.saved_model.load` returns. The attribute `loop_reports` is what `accelerate` returns.

    Raises:
      ValueError: there is no SavedModel at `source`.
    """
    source = os.path.abspath(os.fspath(source))
    saved = _read(source)
    reports = [each for meta in saved.meta_graphs for each in rewrite(meta)]
    work = tempfile.mkdtemp(prefix="haste_keras_")
    try:
        _write(saved, source, work, os.symlink)
        loaded = tf.saved_model.load(work)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    loaded.loop_reports = reports
    weakref.finalize(loaded, shutil.rmtree, work, ignore_errors=True)  # assets are read later
    return loaded
