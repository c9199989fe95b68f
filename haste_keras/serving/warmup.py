"""Requests that TensorFlow Serving runs when it loads a model, before it answers others."""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from haste_keras._compat import saved_model_pb2

FILE = "assets.extra/tf_serving_warmup_requests"
LIMIT = 1000  # records that TensorFlow Serving reads


def _field(number, payload):
    """A field of a protocol buffer: a string, bytes or a message."""
    head = b""
    for value in (number << 3 | 2, len(payload)):
        while value > 0x7F:
            head += bytes([value & 0x7F | 0x80])
            value >>= 7
        head += bytes([value])
    return head + payload


def _record(tensors, signature):
    """A PredictionLog of one PredictRequest, serialized.

    Written field by field, because the package with these messages, tensorflow-serving-api, pulls
    in the package `tensorflow` beside a `tensorflow-cpu`.
    """
    request = _field(1, _field(3, signature.encode()))  # model_spec.signature_name
    for name, tensor in tensors.items():
        entry = _field(1, name.encode()) + _field(2, tensor.SerializeToString())
        request += _field(2, entry)  # inputs[name]
    return _field(6, _field(1, request))  # predict_log.request


def _signature(path, name):
    """The SignatureDef of the SavedModel at `path`."""
    saved = saved_model_pb2.SavedModel()
    file = os.path.join(path, "saved_model.pb")
    if not tf.io.gfile.exists(file):
        raise ValueError(f"`path` must be the folder of a SavedModel, but there is no {file}")
    with tf.io.gfile.GFile(file, "rb") as opened:
        saved.ParseFromString(opened.read())
    signatures = saved.meta_graphs[0].signature_def
    if name not in signatures:
        have = ", ".join(sorted(each for each in signatures if not each.startswith("__")))
        raise ValueError(f"`signature` must be one of {have}. Received: signature={name!r}")
    return signatures[name]


def _tensors(request, signature, where):
    """{name: TensorProto} of one request, in the dtypes of the signature."""
    expected = dict(signature.inputs)
    if not isinstance(request, Mapping):
        if len(expected) != 1:
            raise ValueError(
                f"{where} must be a dict with the arrays {', '.join(sorted(expected))}. Received: "
                f"a {type(request).__name__}"
            )
        request = dict.fromkeys(expected, request)
    if request.keys() != expected.keys():
        raise ValueError(
            f"{where} must have the arrays {', '.join(sorted(expected))}. Received: "
            f"{', '.join(sorted(map(str, request)))}"
        )
    tensors = {}
    for name, value in request.items():
        spec = expected[name]
        array, dtype = np.asarray(value), tf.as_dtype(spec.dtype)
        shape = tf.TensorShape(spec.tensor_shape)
        if dtype == tf.string:
            fits = array.dtype.kind in "SUO"
        else:
            fits = np.can_cast(array.dtype, dtype.as_numpy_dtype, "same_kind")
        if not fits:
            raise ValueError(f"{name} of {where} must be {dtype.name}. Received: {array.dtype}")
        if not shape.is_compatible_with(array.shape):
            raise ValueError(
                f"{name} of {where} must have the shape {shape}. Received: {array.shape}"
            )
        tensors[name] = tf.make_tensor_proto(array.astype(dtype.as_numpy_dtype), dtype)
    return tensors


def write_warmup(path, requests, *, signature="serving_default"):
    """Writes requests that TensorFlow Serving runs when it loads the model at `path`.

    The first request of a shape is slow: TensorFlow optimises the graph and the GPU's kernels are
    loaded. Give requests like those that will come. The file is
    `path`/assets.extra/tf_serving_warmup_requests; one that is there is replaced.

    Args:
      path: str or pathlib.Path of a SavedModel's folder, as `haste_keras.export` writes it.
      requests: list of at most 1,000 requests: each a dict {name of the input: array}, or the
        array alone if the signature has one input. Names, shapes and dtypes are those that
        `saved_model_cli show --all` lists.
      signature: str, name of the signature that they call.

    Returns:
      str, the file.

    Raises:
      ValueError: there is no SavedModel, it has no such signature, or a request does not fit it.
    """
    path = os.fspath(path)
    if isinstance(requests, (Mapping, str, bytes)) or not hasattr(requests, "__len__"):
        raise ValueError(
            f"`requests` must be a list of requests. Received: a {type(requests).__name__}"
        )
    if not 1 <= len(requests) <= LIMIT:
        raise ValueError(
            f"`requests` must be 1 to {LIMIT} requests, which TensorFlow Serving reads. Received: "
            f"{len(requests)}"
        )
    definition = _signature(path, signature)
    records = [
        _record(_tensors(request, definition, f"requests[{i}]"), signature)
        for i, request in enumerate(requests)
    ]
    file = os.path.join(path, FILE)
    tf.io.gfile.makedirs(os.path.dirname(file))
    with tf.io.TFRecordWriter(file + ".new") as writer:
        for record in records:
            writer.write(record)
    tf.io.gfile.rename(file + ".new", file, overwrite=True)
    return file
