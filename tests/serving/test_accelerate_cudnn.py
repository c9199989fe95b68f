"""SavedModels of Keras's layers exported on a machine with a GPU: cuDNN's op becomes a call.

There is no GPU here: Keras is told of one while it exports, and traces cuDNN's op, which no CPU
runs. What the rewritten export computes is compared with the same model, which runs Keras's loop.
"""

import contextlib
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from haste_keras import serving
from haste_keras._compat import saved_model_pb2
from haste_keras.native import library
from haste_keras.serving.rewrite import cudnn
from haste_keras.serving.rewrite.functions import Function
from haste_keras.serving.rewrite.loops import RefusedError
from haste_keras.serving.rewrite.terms import Terms

BATCH, TIME, FEATURES, HIDDEN = 3, 7, 5, 6
KINDS = (keras.layers.LSTM, keras.layers.GRU)
ALL = {"return_sequences": True, "return_state": True}


@contextlib.contextmanager
def a_gpu(platform="cuda"):
    """Keras sees a GPU, and a TensorFlow that is built for it."""
    builds = {f"is_{each}_build": each == platform for each in ("cuda", "rocm")}
    info = {**tf.sysconfig.get_build_info(), **builds}
    with (
        mock.patch.object(tf.config, "list_logical_devices", return_value=["a GPU"]),
        mock.patch.object(tf.sysconfig, "get_build_info", return_value=info),
    ):
        yield


def model_of(options, masked=False, batch=None, wrap=None, dtype="float32"):
    """A model of an LSTM and a GRU for each of `options`."""
    given = keras.Input((None, FEATURES), batch_size=batch, name="x")
    x = keras.layers.Masking()(given) if masked else given
    layers = [make(HIDDEN, dtype=dtype, **each) for make in KINDS for each in options]
    layers = [wrap(layer) if wrap else layer for layer in layers]
    return keras.Model(given, [each for layer in layers for each in tf.nest.flatten(layer(x))])


def initial():
    """The states of one are those of the other; a known number of steps."""
    given = keras.Input((TIME, FEATURES), name="x")
    y, h, c = keras.layers.LSTM(HIDDEN, go_backwards=True, **ALL)(given)
    return keras.Model(given, keras.layers.GRU(HIDDEN)(y, initial_state=keras.ops.tanh(h + c)))


# What masked steps give differs: cuDNN's op gives 0, Keras's loop the output of the step before.
MASKED = [{"zero_output_for_mask": True, "return_sequences": True}, {}, {"go_backwards": True}]
# name: how it is made, how many layers it has.
MODELS = {
    "plain": (lambda: model_of([{}, ALL, {"go_backwards": True, **ALL}]), 6),
    "masked": (lambda: model_of(MASKED, masked=True), 6),
    "bidirectional": (lambda: model_of([{}], masked=True, wrap=keras.layers.Bidirectional), 4),
    "stateful": (lambda: model_of([{"stateful": True}], batch=BATCH), 2),
    "float64": (lambda: model_of([ALL], dtype="float64"), 2),
    "mixed_float16": (lambda: model_of(MASKED, masked=True, dtype="mixed_float16"), 6),
    "initial": (initial, 2),
}


def export(make, path, platform="cuda"):
    """The model, whose export at `path` has cuDNN's op."""
    keras.utils.set_random_seed(4)
    model, rng = make(), np.random.default_rng(4)
    for weight in model.weights:
        if tf.as_dtype(weight.dtype).is_floating and "state" not in weight.path:
            weight.assign(weight + 0.3 * rng.standard_normal(weight.shape))
    with a_gpu(platform):
        model.export(path, verbose=False)
    return model


def read(path):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    return saved.meta_graphs[0].graph_def


def ops_of(path):
    graph = read(path)
    return [node.op for function in graph.library.function for node in function.node_def]


@pytest.mark.parametrize("name", MODELS)
def test_model(name, tmp_path):
    make, layers = MODELS[name]
    model = export(make, tmp_path / "old")
    assert ops_of(tmp_path / "old").count(cudnn.OP) >= layers
    reports = serving.accelerate(tmp_path / "old", tmp_path / "new")
    assert [str(each) for each in reports if each.layer is None] == []
    assert {cudnn.OP, "Split"}.isdisjoint(
        node.op
        for function in read(tmp_path / "new").library.function
        if any(report.function == function.signature.name for report in reports)
        for node in function.node_def
    )
    x = np.random.default_rng(5).standard_normal((BATCH, TIME, FEATURES)).astype("float32")
    x[1, 4:], x[2, 1:] = 0, 0  # masked at the right: Keras's export checks it
    new, before = tf.saved_model.load(tmp_path / "new"), library.graph_calls()
    limit = {"float64": 1e-12, "mixed_float16": 4e-3}.get(name, 1e-5)
    for _ in range(2):  # the second time with states, if they are kept
        found = tf.nest.flatten(new.serve(x))
        expected = tf.nest.flatten(model(x))
        for got, want in zip(found, expected, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=limit, rtol=limit)
    assert library.graph_calls() - before == layers


def test_masks_that_cudnn_refuses(tmp_path):
    """The check that Keras exports stays: a masked step before one that is not."""
    export(MODELS["masked"][0], tmp_path / "old")
    serving.accelerate(tmp_path / "old", tmp_path / "new")
    x = np.ones((BATCH, TIME, FEATURES), "float32")
    x[0, 2] = 0
    new = tf.saved_model.load(tmp_path / "new")
    with pytest.raises(tf.errors.InvalidArgumentError, match="right-padded"):
        new.serve(x)


def test_other_arrangement(tmp_path):
    """Of ROCm's export the gates have another order, and no CUDA does what it says."""
    export(MODELS["plain"][0], tmp_path / "old", platform="rocm")
    reports = serving.accelerate(tmp_path / "old", tmp_path / "new")
    assert len(reports) == 6
    assert all("not arranged as Keras does it for CUDA" in each.reason for each in reports)
    assert cudnn.OP in ops_of(tmp_path / "new")


def test_older_op(tmp_path):
    """cuDNN's ops of Keras 2."""

    class Older(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None, 2])])
        def serve(self, x):
            h = tf.zeros([1, tf.shape(x)[1], 2])
            return tf.raw_ops.CudnnRNNV2(
                input=x, input_h=h, input_c=h, params=tf.zeros([48]), is_training=False
            )[0]

    tf.saved_model.save(Older(), str(tmp_path / "old"))
    (report,) = serving.accelerate(tmp_path / "old", tmp_path / "new")
    assert report.layer is None
    assert "CudnnRNNV2, of an older Keras" in report.reason


def mutations(function, names):
    """Changes of one node of those `names`, each of which makes the op compute something else."""
    for i, node in enumerate(function.node_def):
        if node.name not in names:
            continue
        if node.op == cudnn.OP:
            yield i, lambda n: n.attr["rnn_mode"].__setattr__("s", b"rnn_tanh")
            yield i, lambda n: n.attr["direction"].__setattr__("s", b"bidirectional")
            yield i, lambda n: n.attr["input_mode"].__setattr__("s", b"skip_input")
            yield i, lambda n: n.attr["dropout"].__setattr__("f", 0.5)
            yield i, lambda n: n.attr["num_proj"].__setattr__("i", 3)
            yield i, lambda n: n.attr["time_major"].__setattr__("b", True)
        if node.op == "ConcatV2":
            yield i, lambda n: n.input.insert(1, n.input.pop(0))
        if node.op == "Split":
            yield i, lambda n: n.attr["num_split"].__setattr__("i", 2)
        if node.op in ("Transpose", "Reshape"):
            yield i, lambda n: setattr(n, "op", "Tile")
        if node.op == "Const" and any(each in node.name for each in ("zeros_like", "perm", "dim")):
            yield i, other_constant


def other_constant(node):
    array = tf.make_ndarray(node.attr["value"].tensor)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array + 1, array.dtype))


def feeding(function, node, number):
    """Names of the nodes that make input `number` of a node, and its own."""
    nodes = {each.name: each for each in function.node_def}
    found, stack = {node.name}, [node.input[number].split(":")[0]]
    while stack:
        name = stack.pop()
        if name in nodes and name not in found:
            found.add(name)
            stack += [edge.lstrip("^").split(":")[0] for edge in nodes[name].input]
    return found


def test_mutations(tmp_path):
    """No op with one node of its weights' arrangement changed is taken for a layer's."""
    export(MODELS["plain"][0], tmp_path / "old")
    tried = 0
    for original in read(tmp_path / "old").library.function:
        for node in [each for each in original.node_def if each.op == cudnn.OP]:
            cudnn.read(node, Function(original, Terms(), "outer", arithmetic=False))
            for i, change in mutations(original, feeding(original, node, 3)):
                changed = type(original)()
                changed.CopyFrom(original)
                change(changed.node_def[i])
                op = next(each for each in changed.node_def if each.name == node.name)
                with pytest.raises(RefusedError):
                    cudnn.read(op, Function(changed, Terms(), "outer", arithmetic=False))
                tried += 1
    assert tried > 100
