"""`haste_keras.export`: a model as a folder or file that needs no op of haste_keras."""

import contextlib
import io
import os
import tempfile

import keras
import tensorflow as tf

from haste_keras._compat import saved_model_pb2
from haste_keras.serving import tag as tags
from haste_keras.serving.scope import FORMATS
from haste_keras.serving.scope import portable as portable_scope

# Formats that are not left to Keras: {format: (model, path, **options) → None}.
WRITERS = {}


def _nodes(graph_def):
    """(where, node) of a graph and of its functions."""
    for node in graph_def.node:
        yield "the graph", node
    for function in graph_def.library.function:
        for node in function.node_def:
            yield f"function {function.signature.name}", node


def check_portable(path):
    """Checks that the SavedModel at `path` names no op of haste_keras.

    Returns:
      list of `tag.Tag`, one for each tagged function.

    Raises:
      ValueError: it names one; the message says where.
    """
    saved = saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(os.path.join(path, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    found = []
    for meta in saved.meta_graphs:
        for where, node in _nodes(meta.graph_def):
            if node.op.startswith("Haste"):
                raise ValueError(
                    f"{node.name} in {where} is an op of haste_keras, {node.op}: the function was "
                    "traced before the export. Export a model whose functions are not traced yet "
                    "(leave out tf.function: the export traces), or export with portable=False"
                )
        found += [tags.read(function) for function in meta.graph_def.library.function]
    return [tag for tag in found if tag is not None]


def put(source, target):
    """Moves what was written at `source` to `target`; of a folder there, other files stay."""
    gfile = tf.io.gfile
    if not gfile.exists(target):
        gfile.rename(source, target)
        return
    if not gfile.isdir(target):
        gfile.rename(source, target, overwrite=True)
        return
    before = source + ".before"
    gfile.rename(target, before)
    try:
        gfile.rename(source, target)
    except BaseException:
        gfile.rename(before, target)
        raise
    for name in gfile.listdir(before):
        name = name.rstrip("/")
        if not gfile.exists(os.path.join(target, name)):
            gfile.rename(os.path.join(before, name), os.path.join(target, name))
    gfile.rmtree(before)


def export(
    model,
    path,
    *,
    portable=True,
    format="tf_saved_model",
    verbose=None,
    input_signature=None,
    **kwargs,
):
    """Exports a model for inference, by default with TensorFlow's own ops alone.

    Like `model.export`, and at `path` there is either the whole export or what was there before.

    Args:
      model: a built `keras.Model`.
      path: str or pathlib.Path of the folder, or for formats other than "tf_saved_model" the file.
      portable: bool. True: any TensorFlow runs the export, TensorFlow Serving included; where
        haste_keras is present its ops run. False: the graph names its ops, as `model.export` does.
      format: as of `model.export`: "tf_saved_model", "onnx", "litert". "onnx" is written by
        `haste_keras.to_onnx`, whose options `kwargs` takes.
      verbose: as of `model.export`.
      input_signature: as of `model.export`.
      kwargs: as of `model.export`.

    Raises:
      TypeError, ValueError, NotImplementedError: an argument is not as above, or the model cannot
        be exported in this way; the message names the layer. Nothing is written.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"`model` must be a keras.Model. Received: model={model!r}")
    target = os.fspath(path).rstrip("/")
    if "://" in target:
        raise ValueError(f"`path` must be on a file system of this machine. Received: {target}")
    folder, name = os.path.split(target)
    saved_model = format == "tf_saved_model"
    if saved_model and tf.io.gfile.exists(target) and not tf.io.gfile.isdir(target):
        raise ValueError(f"`path` must be a folder, or not be there, but {target} is a file")
    write = WRITERS.get(format)
    if write is not None and not portable:
        raise ValueError(f"`portable` must be True with format={format!r}, which has no op of ours")
    if verbose is not None and write is None:
        kwargs["verbose"] = verbose
    if input_signature is not None:
        kwargs["input_signature"] = input_signature  # which Keras 3.6 does not take
    # A format that is not known is for Keras to refuse.
    scope = portable_scope(format) if portable and format in FORMATS else contextlib.nullcontext()
    made = [each for each in _parents(folder) if not tf.io.gfile.exists(each)]
    tf.io.gfile.makedirs(folder or ".")
    work = tempfile.mkdtemp(prefix=f".{name}.", dir=folder or ".")
    try:
        staged = os.path.join(work, name)
        if write is not None:
            write(model, staged, **kwargs)
            if verbose:
                print(f"Saved artifact at '{target}'.")
        else:
            with scope, _said_of(staged, target, verbose):
                model.export(staged, format=format, **kwargs)
        if portable and saved_model:
            check_portable(staged)
        put(staged, target)
    except BaseException:
        tf.io.gfile.rmtree(work)
        for each in made:
            tf.io.gfile.rmtree(each)
        raise
    tf.io.gfile.rmtree(work)


@contextlib.contextmanager
def _said_of(staged, target, verbose):
    """What Keras prints of the path `staged` is printed of `target`, unless `verbose` is False."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    finally:
        if verbose or verbose is None:  # Keras 3.6 prints in any case
            print(said.getvalue().replace(staged, target), end="")


def _parents(folder):
    """`folder` and the folders above it, innermost first."""
    found = []
    while folder and folder != os.path.dirname(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found
