"""`haste_keras.export` and `haste_keras.portable`: what they write, and what they refuse."""

import os
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from stock_models import MODELS
from tensorflow.python.framework import op_def_registry

import haste_keras
from haste_keras._compat import saved_model_pb2
from haste_keras.native import library
from haste_keras.serving import tag as tags
from haste_keras.serving.export import check_portable


def _graph(path):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((pathlib.Path(path) / "saved_model.pb").read_bytes())
    return saved.meta_graphs[0].graph_def


def _nodes(graph):
    return [*graph.node, *(node for each in graph.library.function for node in each.node_def)]


def _model(layer):
    return keras.Sequential([keras.Input((None, 3)), layer])


def _lstm(**arguments):
    return _model(haste_keras.LSTM(2, **arguments))


def _left(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", MODELS)
def test_graph_runs_anywhere(stock, name):
    """No op of ours, and no device but those of TensorFlow's own saver."""
    graph = _graph(stock / name)
    assert not {node.op for node in _nodes(graph) if node.op.startswith("Haste")}
    for function in graph.library.function:
        if not function.signature.name.startswith("__inference__traced_"):
            assert {node.device for node in function.node_def} <= {""}, function.signature.name


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("masking", ["HasteGruLayer", "HasteLstmLayer"]),
        ("keras_bidirectional", ["HasteLstmLayer"] * 2),
        ("time_distributed", ["HasteLstmLayer"] * 2),
        ("stateful", ["HasteQrnnFo"]),
        ("ops", ["HasteLayerNorm", "HasteLstm"]),
        ("cells", []),
    ],
)
def test_calls_are_tagged(stock, name, ops):
    assert sorted(tag.op for tag in check_portable(stock / name)) == ops


def test_tag_has_all_of_the_op(stock):
    """Functions have the op's inputs and outputs, and the tag its attributes; no variable."""
    functions = [
        function
        for function in _graph(stock / "cases").library.function
        if tags.read(function) is not None
    ]
    assert len({tags.read(function).op for function in functions}) > 20
    for function in functions:
        tag = tags.read(function)
        op = op_def_registry.get(tag.op)
        assert {attr.name for attr in op.attr} == set(tag.attributes)
        assert tag.arguments == len(op.input_arg)
        inputs, outputs = function.signature.input_arg, function.signature.output_arg
        assert [each.name for each in inputs] == [f"inputs_{i}" for i in range(tag.arguments)]
        assert len(outputs) == len(op.output_arg)
        assert [each.name for each in outputs][:2] == ["identity", "identity_1"][: len(outputs)]
        types = {"T": tag.attributes["T"].as_datatype_enum}
        for own, other in zip([*inputs, *outputs], [*op.input_arg, *op.output_arg], strict=True):
            assert own.type == types.get(other.type_attr, other.type)
        assert function.attr["_noinline"].b
        assert tf.resource.as_datatype_enum not in {each.type for each in inputs}


def test_exported_where_there_is_a_gpu(tmp_path, monkeypatch, true_float32):
    """Ops that are emitted for a GPU alone have a body too, which runs here."""
    model = _model(haste_keras.LayerNormLSTM(2))
    x = tf.random.normal([2, 4, 3])
    expected = model(x)
    monkeypatch.setattr(library, "may_use_gpu", lambda: True)
    haste_keras.export(model, tmp_path / "m", verbose=False)
    ops = sorted(tag.op for tag in check_portable(tmp_path / "m"))
    assert ops == ["HasteLayerNorm", "HasteLayerNormLstm", "HasteMatMul"]
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    np.testing.assert_allclose(loaded.serve(x), expected, atol=1e-5)


def test_a_newer_tag_is_refused_by_number(stock):
    (function,) = (
        function
        for function in _graph(stock / "stateful").library.function
        if tags.read(function) is not None
    )
    function.attr["_implements"].func.attr["_version"].i = 7
    with pytest.raises(ValueError, match=r"HasteQrnnFo of version 7, but .* reads version 1"):
        tags.read(function)


def test_not_portable_names_the_op(tmp_path):
    haste_keras.export(_lstm(), tmp_path / "m", portable=False, verbose=False)
    assert "HasteLstmLayer" in {node.op for node in _nodes(_graph(tmp_path / "m"))}
    with pytest.raises(ValueError, match=r"lstm.*HasteLstmLayer"):
        check_portable(tmp_path / "m")


def test_scope_and_several_signatures(tmp_path):
    model = _lstm(return_sequences=True)
    archive = keras.export.ExportArchive()
    archive.track(model)
    with haste_keras.portable():
        for name, batch in (("serve", None), ("one", 1)):
            spec = [tf.TensorSpec([batch, None, 3], tf.float32)]
            archive.add_endpoint(name, model.call, input_signature=spec)
        archive.write_out(str(tmp_path / "m"), verbose=False)
    assert len(check_portable(tmp_path / "m")) == 2
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    x = tf.random.normal([1, 4, 3])
    for name in ("serve", "one"):
        np.testing.assert_allclose(getattr(loaded, name)(x), model(x), atol=1e-6)


def test_scope_ends(tmp_path):
    function = tf.function(_lstm(), input_signature=[tf.TensorSpec([None, None, 3])])
    with pytest.raises(KeyError), haste_keras.portable():
        raise KeyError
    ops = {op.type for op in function.get_concrete_function().graph.get_operations()}
    assert "HasteLstmLayer" in ops


def test_gradients_of_the_stock_graph(tmp_path):
    model = _model(haste_keras.GRU(2, direction="bidirectional"))
    haste_keras.export(model, tmp_path / "m", verbose=False)
    loaded, x = tf.saved_model.load(str(tmp_path / "m")), tf.random.normal([2, 4, 3])
    gradients = []
    for function in (loaded.serve, model):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        gradients.append(tape.gradient(loss, x))
    np.testing.assert_allclose(*gradients, atol=1e-6)


def test_training_that_draws_nothing_is_exported(tmp_path):
    model = _lstm(return_sequences=True)
    with haste_keras.portable():
        function = tf.function(lambda x: model(x, training=True))
        concrete = function.get_concrete_function(tf.TensorSpec([None, None, 3]))
        x = tf.random.normal([2, 4, 3])
        np.testing.assert_allclose(concrete(x), model(x), atol=1e-6)
    assert "HasteLstm" not in {op.type for op in concrete.graph.get_operations()}


@pytest.mark.parametrize("noise", [{"zoneout": 0.1}, {"recurrent_dropout": 0.1}])
def test_training_that_draws_is_refused(noise):
    layer = haste_keras.LSTM(2, name="noisy", **noise)
    layer.build((None, None, 3))
    function = tf.function(lambda x: layer(x, training=True))
    message = r"layer noisy\S* draws .*\(training=True\)"
    with pytest.raises(NotImplementedError, match=message), haste_keras.portable():
        function.get_concrete_function(tf.TensorSpec([None, None, 3]))


def test_gradient_of_an_op_is_refused():
    x = tf.TensorSpec([2, 3, 1, 4, 2])

    @tf.function
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _ = haste_keras.ops.lstm(x, tf.ones([1, 2, 4, 2]))
        with haste_keras.portable():
            return tape.gradient(y, x)

    with pytest.raises(NotImplementedError, match="haste_lstm_grad, of a gradient"):
        function.get_concrete_function(x)


class _Traced(keras.layers.Layer):
    """Calls a function that is traced when the layer is built."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def build(self, shape):
        self.layer.build(shape)
        function = tf.function(self.layer.call, autograph=False)
        self.function = function.get_concrete_function(tf.TensorSpec([None, None, 3]))

    def call(self, x):
        return self.function(x)


def test_a_function_traced_before_is_refused(tmp_path):
    model = _model(_Traced(haste_keras.LSTM(2, name="inner")))
    with pytest.raises(ValueError, match=r"HasteLstmLayer.* traced before the export"):
        haste_keras.export(model, tmp_path / "a/b", verbose=False)
    assert _left(tmp_path) == []


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    target = tmp_path / "m"
    haste_keras.export(_lstm(), target, verbose=False)
    before = _left(tmp_path), (target / "saved_model.pb").read_bytes()

    def fails(model, path, **kwargs):
        pathlib.Path(path).mkdir()
        pathlib.Path(path, "half").write_text("")
        raise OSError("no space")

    monkeypatch.setattr(keras.Model, "export", fails)
    with pytest.raises(OSError, match="no space"):
        haste_keras.export(_lstm(), target)
    assert (_left(tmp_path), (target / "saved_model.pb").read_bytes()) == before


def test_an_export_over_another(tmp_path, capsys):
    target = tmp_path / "m"
    haste_keras.export(_lstm(), target, verbose=False)
    (target / "mine.txt").write_text("kept")
    (target / "variables" / "old").write_text("")
    model = _model(haste_keras.GRU(2))
    assert capsys.readouterr().out == ""
    haste_keras.export(model, target)
    assert f"Saved artifact at '{target}'" in capsys.readouterr().out
    assert (target / "mine.txt").read_text() == "kept"
    assert _left(tmp_path / "m")[0] == "assets"
    assert [tag.op for tag in check_portable(target)] == ["HasteGruLayer"]
    x = tf.random.normal([2, 4, 3])
    loaded = tf.saved_model.load(str(target))
    np.testing.assert_allclose(loaded.serve(x), model(x), atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_errors(tmp_path):
    with pytest.raises(TypeError, match=r"`model` must be a keras\.Model"):
        haste_keras.export(haste_keras.LSTM(2), tmp_path / "m")
    message = r"`format` must be one of .*Received: format='onyx'"
    with pytest.raises(ValueError, match=message), haste_keras.portable("onyx"):
        pass
    with pytest.raises(ValueError, match=r"file system of this machine.*gs://bucket/m"):
        haste_keras.export(_lstm(), "gs://bucket/m")
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="file is a file"):
        haste_keras.export(_lstm(), file)
    assert _left(tmp_path) == ["file"]


def test_another_batch_than_that_of_the_states(tmp_path):
    layer = haste_keras.LSTM(2, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(3, None, 2)), layer])
    haste_keras.export(model, tmp_path / "m", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"reshape|h0 must"):
        loaded.serve(tf.zeros([1, 4, 2]))


def _all_options():
    """A model of all that the untagged formats must hold: a mask, both ways, heads, Zoneout."""
    options = {"direction": "bidirectional", "heads": 2, "zoneout": 0.1}
    layers = [keras.layers.Masking(), haste_keras.LSTM(4, return_sequences=True, **options)]
    x = np.random.default_rng(5).normal(size=(2, 5, 3)).astype("float32")
    x[0, 2] = x[1, 3:] = 0
    return keras.Sequential([keras.Input((None, 3)), *layers, haste_keras.QRNN(4)]), x


def test_litert(tmp_path):
    """Builtin ops alone, with any batch and number of steps."""
    model, x = _all_options()
    path = str(tmp_path / "m.tflite")
    try:
        haste_keras.export(model, path, format="litert", verbose=False)
    except ValueError as error:
        if "Unrecognized format" not in str(error):
            raise
    if not os.path.isfile(path):  # Keras 3.6 takes any format for a SavedModel
        pytest.skip("this Keras does not export LiteRT")
    assert _left(tmp_path) == ["m.tflite"]
    interpreter = tf.lite.Interpreter(path)
    given = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(given, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given, x)
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(y, model(x), atol=1e-6)


def test_onnx(tmp_path, capsys):
    """`to_onnx` writes it: a model need not be called before, and an LSTM is a node."""
    pytest.importorskip("tf2onnx")
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "lstm.onnx")
    haste_keras.export(_lstm(), path, format="onnx", verbose=True, opset_version=15)
    assert f"Saved artifact at '{path}'" in capsys.readouterr().out
    written = onnx.load(path)
    assert {each.version for each in written.opset_import if not each.domain} == {15}
    assert "LSTM" in {node.op_type for node in written.graph.node}
    with pytest.raises(ValueError, match="`portable` must be True"):
        haste_keras.export(_lstm(), path, format="onnx", portable=False)
    with pytest.raises(TypeError, match="unknown"):
        haste_keras.export(_lstm(), str(tmp_path / "x.onnx"), format="onnx", unknown=1)
    assert _left(tmp_path) == ["lstm.onnx"]
    model, x = _all_options()
    path = str(tmp_path / "m.onnx")
    haste_keras.export(model, path, format="onnx", verbose=False)
    session = runtime.InferenceSession(path)
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(y, model(x), atol=1e-6)
