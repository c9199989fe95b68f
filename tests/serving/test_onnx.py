"""to_onnx: files that onnxruntime runs, against the models that they were made of."""

import collections
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows import ROWS

import haste_keras

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")

FEATURES, UNITS = 3, 4
NODES = ("LSTM", "GRU", "RNN")
ACTIVATIONS = ("tanh", "sigmoid", "relu", "hard_sigmoid", "linear")


@pytest.fixture
def rng():
    keras.utils.set_random_seed(5)
    return np.random.default_rng(5)


def randomized(model, rng):
    model.set_weights([rng.normal(scale=0.4, size=w.shape) for w in model.get_weights()])
    return model


def branches(layers, rng, mask=False, **given):
    """A model that gives x [N, T, FEATURES] to each layer."""
    x = keras.Input((None, FEATURES), name="x", **given)
    h = keras.layers.Masking()(x) if mask else x
    outputs = keras.tree.flatten([layer(h) for layer in layers])
    return randomized(keras.Model(x, outputs), rng)


def nodes(graph):
    """Operators of a graph and of the graphs in it, with how often they are there."""
    found = collections.Counter()
    for node in graph.node:
        found[node.op_type] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += nodes(attribute.g)
    return found


def check(model, path, *calls, atol=1e-5, **options):
    """Converts `model` and compares it for each of `calls`, lists of inputs; the operators."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The structure of `inputs`")
        haste_keras.to_onnx(model, path, **options)
        proto = onnx.load(path)
        onnx.checker.check_model(proto, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for inputs in calls:
            named = dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
            want = model(inputs if len(inputs) > 1 else inputs[0])
            want = list(want.values()) if isinstance(want, dict) else keras.tree.flatten(want)
            for got, expected in zip(session.run(None, named), want, strict=True):
                np.testing.assert_allclose(got, np.array(expected), rtol=0, atol=atol)
    return nodes(proto.graph)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def with_masked(rng, batch, time):
    """x of which Masking masks steps: any, all of row 0, and in row 1 padding on the right."""
    x = normal(rng, batch, time, FEATURES)
    x[rng.random((batch, time)) < 0.4] = 0
    x[0] = 0
    x[1] = normal(rng, time, FEATURES)
    x[1, time // 2 :] = 0
    return x


def test_every_layer(rng, tmp_path):
    layers = []
    for i, row in enumerate(ROWS):
        options = {"heads": 2} if row.takes("heads") and i % 2 else {}
        options["use_bias"] = i % 3 > 0
        layers.append(row.layer(UNITS, return_sequences=True, return_state=True, **options))
    model = branches(layers, rng)
    calls = [[normal(rng, *shape, FEATURES)] for shape in ((2, 5), (3, 1))]
    found = check(model, tmp_path / "model.onnx", *calls)
    native = [row for row in ROWS if row.stock_class]
    assert found["Scan"] == len(ROWS) - len(native)
    assert sum(found[node] for node in NODES) == sum(layer.heads for layer in layers[: len(native)])


def test_any_mask_zoneout_and_directions(rng, tmp_path):
    """What ONNX's LSTM, GRU and RNN do not have is a Scan of any layer."""
    layers = []
    for i, row in enumerate(ROWS):
        options = row.allowed({"heads": 2}) if i % 2 else {}
        options["direction"] = "bidirectional" if i % 4 == 0 else "backward"
        options["return_sequences"] = i % 3 > 0
        if i % 2:
            options.update(dict.fromkeys(row.zoneout, 0.3))
        if i % 4 == 1:
            options["zero_output_for_mask"] = True
        layers.append(row.layer(UNITS, **options))
    model = branches(layers, rng, mask=True)
    found = check(model, tmp_path / "model.onnx", [with_masked(rng, 4, 6)])
    assert not any(found[node] for node in NODES)


def padded_layers():
    yield haste_keras.LSTM(UNITS, return_sequences=True, return_state=True)
    yield haste_keras.GRU(UNITS, return_sequences=True, direction="bidirectional")
    yield haste_keras.SimpleRNN(UNITS, return_sequences=True, direction="backward")
    yield haste_keras.LSTM(UNITS, heads=2, direction="bidirectional", return_state=True)
    yield haste_keras.GRU(
        UNITS,
        reset_after=False,
        go_backwards=True,
        return_sequences=True,
        zero_output_for_mask=True,
    )


def test_right_padding_that_is_declared(rng, tmp_path):
    model = branches(padded_layers(), rng, mask=True)
    x = normal(rng, 7, 6, FEATURES)
    for length, row in enumerate(x):
        row[length:] = 0
    found = check(model, tmp_path / "model.onnx", [x], right_padded=True)
    assert [found[node] for node in (*NODES, "Scan")] == [3, 2, 1, 0]


def test_right_padding_that_the_graph_shows(rng, tmp_path):
    lengths = keras.Input((), dtype="int32", name="lengths")
    x = keras.Input((None, FEATURES), name="x")
    mask = keras.layers.Lambda(lambda each: tf.sequence_mask(each[0], tf.shape(each[1])[1]))
    mask = mask([lengths, x])
    h, c = keras.Input((UNITS,), name="h"), keras.Input((UNITS,), name="c")
    layers = list(padded_layers())
    swapped = keras.layers.Lambda(
        lambda each: tf.greater(each[0][:, tf.newaxis], tf.range(tf.shape(each[1])[1])),
        output_shape=(None,),
    )
    masks = [mask, swapped([lengths, x]), mask, mask]
    y = [layer(x, mask=each) for layer, each in zip(layers[1:], masks, strict=True)]
    y += layers[0](x, mask=mask, initial_state=[h, c])
    model = randomized(keras.Model([lengths, x, h, c], keras.tree.flatten(y)), rng)
    data = normal(rng, 5, 4, FEATURES)
    lengths = np.array([4, 0, 2, 1, 3], "int32")
    for row, length in zip(data, lengths, strict=True):
        row[length:] = np.nan  # which must not matter
    states = [normal(rng, 5, UNITS) for _ in range(2)]
    found = check(model, tmp_path / "model.onnx", [lengths, data, *states])
    assert [found[node] for node in (*NODES, "Scan")] == [3, 2, 1, 0]


def test_padding_on_the_left_is_not_taken_for_lengths(rng, tmp_path):
    x = keras.Input((None, FEATURES), name="x")
    mask = keras.layers.Lambda(lambda each: tf.range(tf.shape(each)[1]) > tf.constant([[2], [1]]))
    layer = haste_keras.LSTM(UNITS, return_sequences=True)
    model = randomized(keras.Model(x, layer(x, mask=mask(x))), rng)
    found = check(model, tmp_path / "model.onnx", [normal(rng, 2, 5, FEATURES)])
    assert (found["LSTM"], found["Scan"]) == (0, 1)


def test_activations(rng, tmp_path):
    """Every one in every place; the operators share the scales of those that have one."""
    layers = []
    for i, name in enumerate(ACTIVATIONS):
        other = {"activation": name, "recurrent_activation": ACTIVATIONS[(i + 2) % 5]}
        both = {"direction": "bidirectional"} if i % 2 else {}
        layers.append(haste_keras.LSTM(UNITS, **other, **both))
        layers.append(haste_keras.GRU(UNITS, **other, reset_after=i % 2 == 0, **both))
        layers.append(haste_keras.SimpleRNN(UNITS, activation=name, **both))
    model = branches(layers, rng)
    found = check(model, tmp_path / "model.onnx", [normal(rng, 2, 4, FEATURES) / 2])
    assert [found[node] for node in (*NODES, "Scan")] == [5, 5, 5, 0]


@pytest.mark.parametrize("opset", [13, 18])
def test_encoder_decoder_with_embeddings(opset, rng, tmp_path):
    """Layers, states and masks that go from one to the next; names of inputs and outputs."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = keras.layers.Embedding(9, 5, mask_zero=True)(ids)
    h, *states = haste_keras.LSTM(UNITS, return_sequences=True, return_state=True)(h)
    h = keras.layers.LayerNormalization()(h)
    h = keras.layers.Bidirectional(haste_keras.GRU(3, return_sequences=True))(h)
    given = keras.Input((None, 2), name="given")
    d = haste_keras.LSTM(UNITS, return_sequences=True)(given, initial_state=states)
    outputs = {
        "words": keras.layers.Dense(3, activation="softmax")(d),
        "codes": keras.layers.Dense(2)(h),
    }
    model = randomized(keras.Model({"ids": ids, "given": given}, outputs), rng)
    words = rng.integers(1, 9, (3, 6)).astype("int32")
    words[1, 3:] = 0
    path = tmp_path / "model.onnx"
    haste_keras.to_onnx(model, path, opset=opset)
    session = onnxruntime.InferenceSession(path)
    feeds = {"ids": words, "given": normal(rng, 3, 4, 2)}
    want = model(feeds)
    assert {each.name: each.shape for each in session.get_inputs()} == {
        "ids": ["batch", "ids_1"],
        "given": ["batch", "given_1", 2],
    }
    names = [each.name for each in session.get_outputs()]
    assert names == ["words", "codes"]
    for name, got in zip(names, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want[name], rtol=0, atol=1e-5)
    assert onnx.load(path).opset_import[0].version == opset


@pytest.mark.parametrize(("policy", "atol"), [("float64", 1e-13), ("mixed_float16", 2e-3)])
def test_dtypes(policy, atol, rng, tmp_path):
    keras.config.set_dtype_policy(policy)
    try:
        layers = [
            haste_keras.LSTM(UNITS, direction="bidirectional"),
            haste_keras.GRU(UNITS),
            haste_keras.SLSTM(UNITS, forget_activation="sigmoid"),
            haste_keras.LayerNormGRU(UNITS),
            haste_keras.MinLSTM(UNITS),
        ]
        model = branches(layers, rng)
        x = normal(rng, 2, 5, FEATURES).astype(model.inputs[0].dtype)
        found = check(model, tmp_path / "model.onnx", [x], atol=atol)
    finally:
        keras.config.set_dtype_policy("float32")
    assert found["LSTM"] == (policy != "float64")


def test_what_goes_through_tf2onnx(rng, tmp_path):
    """An activation that kernels do not have, Keras's own layers, wrappers, ForgetMult."""
    x = keras.Input((4, None, FEATURES), name="x")
    h = keras.layers.TimeDistributed(haste_keras.GRU(UNITS))(x)
    y = haste_keras.LSTM(UNITS, activation="gelu", return_sequences=True)(h)
    y = haste_keras.ForgetMult("backward")([keras.ops.sigmoid(h), y])
    model = keras.Model(x, keras.layers.LSTM(3)(y))
    with pytest.warns(UserWarning, match="gelu"):
        found = check(randomized(model, rng), tmp_path / "model.onnx", [normal(rng, 2, 4, 5, 3)])
    assert (found["GRU"], found["Scan"], found["Loop"] > 0) == (4, 1, True)


class Subclassed(keras.Model):
    """A model that no configuration describes, of a dictionary."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = haste_keras.MinGRU(UNITS), keras.layers.Dense(2)

    def call(self, inputs, training=False):
        return self.head(self.layer(inputs["x"]))


def test_subclassed_model(rng, tmp_path):
    model = Subclassed()
    x = normal(rng, 2, 5, FEATURES)
    with pytest.raises(ValueError, match="is not built"):
        haste_keras.to_onnx(model, tmp_path / "model.onnx")
    want = model({"x": x})
    with pytest.raises(ValueError, match="`input_signature` must be given"):
        haste_keras.to_onnx(model, tmp_path / "model.onnx")
    signature = {"x": tf.TensorSpec([None, None, FEATURES], tf.float32, name="x")}
    haste_keras.to_onnx(model, tmp_path / "model.onnx", input_signature=signature)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=0, atol=1e-5)


def _layer(layer, **given):
    return keras.Sequential([keras.Input(**(given or {"shape": (None, FEATURES)})), layer])


REFUSED = {
    "stateful": (
        lambda: _layer(haste_keras.LSTM(2, stateful=True, name="it"), batch_shape=(2, 5, 3)),
        ValueError,
        "layer it is stateful",
    ),
    "bfloat16": (
        lambda: _layer(haste_keras.LSTM(2, dtype="mixed_bfloat16", name="it")),
        ValueError,
        "layer it computes in bfloat16",
    ),
    "unknown operator": (
        lambda: _layer(keras.layers.Lambda(tf.linalg.svd, name="it"), shape=(4, 4)),
        NotImplementedError,
        "no conversion of TensorFlow's Svd of .*/it",
    ),
    "drawn": (
        lambda: _layer(Drawing(name="it")),
        NotImplementedError,
        "layer .*it.* draws Zoneout",
    ),
    "traced before": (
        lambda: _layer(Traced(name="it")),
        ValueError,
        "is an op of haste_keras, HasteMingru",
    ),
    "no model": (lambda: haste_keras.LSTM(2), TypeError, "`model` must be a keras.Model"),
}


class Drawing(keras.layers.Layer):
    """Draws in inference too."""

    def build(self, shape):
        self.inner = haste_keras.LSTM(2, zoneout=0.5)
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x, training=True)


class Traced(keras.layers.Layer):
    """Has a function of its own, that was traced with the op in it."""

    def build(self, shape):
        self.inner = haste_keras.MinGRU(2)
        self.inner.build(shape)
        self.function = tf.function(self.inner)
        self.function.get_concrete_function(tf.TensorSpec([None, None, FEATURES]), training=False)

    def call(self, x):
        return self.function(x, training=False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_named(name, tmp_path):
    make, error, match = REFUSED[name]
    path = tmp_path / "model.onnx"
    path.write_text("before")
    with pytest.raises(error, match=match):
        haste_keras.to_onnx(make(), path)
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_text() == "before"


def test_arguments_and_packages_are_checked(tmp_path, monkeypatch):
    model = _layer(haste_keras.MinGRU(2))
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match=r"`opset` must be 13 to 18. Received: opset=12"):
        haste_keras.to_onnx(model, path, opset=12)
    with pytest.raises(ValueError, match="`path` must be in a folder that there is"):
        haste_keras.to_onnx(model, tmp_path / "none" / "model.onnx")
    with pytest.raises(ValueError, match=r"`path` must be a .onnx file, but .* is a folder"):
        haste_keras.to_onnx(model, tmp_path)
    with pytest.raises(ValueError, match=r"`input_signature` must have a tf.TensorSpec"):
        haste_keras.to_onnx(model, path, input_signature=[3])
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r'package tf2onnx.*pip install "haste-keras\[onnx\]"'):
        haste_keras.to_onnx(model, path)
    assert not path.exists()
