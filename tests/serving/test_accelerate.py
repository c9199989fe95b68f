"""SavedModels of Keras's own layers: which loops become calls, and that they compute the same."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import haste_keras as hk
from haste_keras import accelerate as command
from haste_keras import serving
from haste_keras._compat import saved_model_pb2
from haste_keras.native import library
from haste_keras.serving.rewrite import loops
from haste_keras.serving.rewrite.functions import Function
from haste_keras.serving.rewrite.terms import Terms

BATCH, TIME, FEATURES, HIDDEN = 3, 8, 5, 6
HERE = pathlib.Path(__file__).parent
KINDS = {"LSTM": keras.layers.LSTM, "GRU": keras.layers.GRU, "SimpleRNN": keras.layers.SimpleRNN}
ALL = {"return_sequences": True, "return_state": True}
LAYERS = {
    "plain": {},
    "states": ALL,
    "backward": {"go_backwards": True, **ALL},
    "no_bias": {"use_bias": False, "return_sequences": True},
}
OF_GATES = {
    "relu": {"activation": "relu", "recurrent_activation": "hard_sigmoid", "dropout": 0.3},
    "linear": {"activation": "linear", "recurrent_activation": "tanh"},
    "recurrent_dropout": {"recurrent_dropout": 0.2, "return_sequences": True},
}
MASKED = {
    "states": ALL,
    "backward": {"go_backwards": True, **ALL},
    "zero": {"zero_output_for_mask": True, **ALL},
}


def every(options, of_gates=None):
    """[layer] of each kind with each of `options`."""
    made = []
    for kind, make in KINDS.items():
        given = {**options, **((of_gates or {}) if kind != "SimpleRNN" else {})}
        made += [make(HIDDEN, name=f"{kind}_{name}", **each) for name, each in given.items()]
    return made


def model_of(layers, masked=False, time=None, batch=None, dtype="float32"):
    """A model of layers side by side, each with outputs of its own."""
    given = keras.Input((time, FEATURES), batch_size=batch, name="x", dtype=dtype)
    x = keras.layers.Masking()(given) if masked else given
    outputs = [each for layer in layers for each in tf.nest.flatten(layer(x))]
    return keras.Model(given, outputs)


def plain():
    return model_of([*every(LAYERS, OF_GATES), gru_before("before")])


def masked():
    both = [
        keras.layers.Bidirectional(make(HIDDEN, return_sequences=True)) for make in KINDS.values()
    ]
    return model_of([*every(MASKED), *both, gru_before("before")], masked=True)


def static():
    layers = [
        make(HIDDEN, return_sequences=True, go_backwards=make is KINDS["GRU"])
        for make in KINDS.values()
    ]
    return model_of(layers, True, TIME)


def of_64_bits():
    layers = [
        make(HIDDEN, dtype="float64", return_sequences=True, recurrent_activation="linear")
        for make in (keras.layers.LSTM, keras.layers.GRU)
    ]
    return model_of(layers, masked=True, dtype="float64")


def of_16_bits():
    layers = [make(HIDDEN, dtype="mixed_float16") for make in list(KINDS.values())[:2]]
    return model_of(layers, masked=True)


def stateful():
    return model_of([keras.layers.LSTM(HIDDEN, stateful=True)], time=TIME, batch=BATCH)


def gru_before(name):
    return keras.layers.GRU(HIDDEN, reset_after=False, return_sequences=True, name=name)


class Wrapped(keras.layers.Layer):
    """A layer that calls others, one on the other's states."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.LSTM(HIDDEN, **ALL)
        self.second = keras.layers.GRU(HIDDEN)

    def build(self, shape):
        self.first.build(shape)
        self.second.build((*shape[:2], HIDDEN))

    def call(self, x):
        y, h, c = self.first(x * 2)
        return self.second(y, initial_state=tf.tanh(h + c)) + tf.reduce_mean(x)


def nested():
    given = keras.Input((None,), dtype="int32", name="x")
    x = keras.layers.Embedding(9, FEATURES, mask_zero=True)(given)
    x = keras.layers.LSTM(HIDDEN, return_sequences=True)(x)
    cells = keras.layers.RNN(keras.layers.GRUCell(HIDDEN), return_sequences=True)(x)
    return keras.Model(given, Wrapped()(cells))


# name: how it is made, how many loops it has.
MODELS = {
    "plain": (plain, 3 * len(LAYERS) + 2 * len(OF_GATES) + 1),
    "masked": (masked, 3 * len(MASKED) + 7),
    "static": (static, 3),
    "of_64_bits": (of_64_bits, 2),
    "of_16_bits": (of_16_bits, 2),
    "stateful": (stateful, 1),
    "nested": (nested, 4),
}
STOCK = ("masked", "nested")  # run without us too


def sample(name):
    rng = np.random.default_rng(3)
    if name == "nested":
        return rng.integers(0, 4, (BATCH, TIME)).astype("int32")
    x = rng.standard_normal((BATCH, TIME, FEATURES))
    x[0, 2], x[1, 5:], x[2, 0] = 0, 0, 0
    return x.astype("float64" if name == "of_64_bits" else "float32")


def randomize(model, rng):
    """Biases are zeros otherwise, and would not show where they are added."""
    for weight in model.weights:
        if tf.as_dtype(weight.dtype).is_floating and "state" not in weight.path:
            weight.assign(weight + 0.3 * rng.standard_normal(weight.shape))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Exports of all models, old/NAME, and what is made of them: new/NAME."""
    rng, path = np.random.default_rng(1), tmp_path_factory.mktemp("accelerate")
    keras.utils.set_random_seed(1)
    for name, (make, _) in MODELS.items():
        model = make()
        randomize(model, rng)
        model.export(path / "old" / name, verbose=False)
    return path


def outputs(model, x, calls=1):
    """What calls return, one after the other."""
    found = [tf.nest.flatten(model.serve(x)) for _ in range(calls)]
    return [tf.cast(each, tf.float64).numpy() for call in found for each in call]


@pytest.mark.parametrize("name", MODELS)
def test_model(name, folder):
    """All loops are rewritten, and compute what they did: by our ops, by stock ops elsewhere."""
    reports = serving.accelerate(folder / "old" / name, folder / "new" / name)
    assert [str(each) for each in reports if each.layer is None] == []
    assert len(reports) == MODELS[name][1]
    x, old = sample(name), tf.saved_model.load(folder / "old" / name)
    expected = outputs(old, x, calls=2)
    new = tf.saved_model.load(folder / "new" / name)
    before = library.graph_calls()
    found = outputs(new, x, calls=2)
    assert library.graph_calls() - before == MODELS[name][1]
    limit = {"of_16_bits": 4e-3, "of_64_bits": 1e-12}.get(name, 2e-5)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=limit, rtol=limit)
    if name in STOCK:
        np.savez(folder / "new" / name / "inputs.npz", **{"serve/x": x})
        np.savez(folder / f"{name}.npz", *expected[: len(expected) // 2])


def test_stock(folder):
    """The same files in a process without us."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, str(HERE / "run_stock.py"), str(folder)]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(folder / "found.npz")
    for name in STOCK:
        for i, want in enumerate(np.load(folder / f"{name}.npz").values()):
            np.testing.assert_allclose(found[f"{name}/serve/{i}"], want, atol=2e-5, rtol=2e-5)


class Asserted(keras.layers.Layer):
    """Says that there are TIME steps, which nothing checks: as a C++ server feeds what comes."""

    def call(self, x):
        x = tf.identity(x)
        x.set_shape([None, TIME, FEATURES])
        return x


def test_longer_than_static(tmp_path):
    """A loop of a known number of steps walks so many of a longer sequence, from either end."""
    given = keras.Input((None, FEATURES))
    layers = [keras.layers.LSTM(HIDDEN), keras.layers.GRU(HIDDEN, go_backwards=True)]
    model = keras.Model(given, [layer(Asserted()(given)) for layer in layers])
    model.export(tmp_path / "old", verbose=False)
    assert len(serving.accelerate(tmp_path / "old", tmp_path / "new")) == 2
    x = np.concatenate([sample("static"), 2 * sample("plain")], axis=1)
    old, new = (tf.saved_model.load(tmp_path / which) for which in ("old", "new"))
    for got, want in zip(new.serve(x), old.serve(x), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_load(folder):
    """`load` gives the same, writes nothing, and keeps the files that the model needs."""
    before = sorted(os.listdir(folder / "old" / "nested"))
    model = serving.load(folder / "old" / "nested")
    assert {each.layer for each in model.loop_reports} == {"LSTM", "GRU"}
    x, old = sample("nested"), tf.saved_model.load(folder / "old" / "nested")
    np.testing.assert_allclose(model.serve(x), old.serve(x), atol=2e-5)
    assert sorted(os.listdir(folder / "old" / "nested")) == before


class Scaled(keras.layers.LSTMCell):
    def call(self, inputs, states, training=False):
        h, new = super().call(inputs, states, training)
        return h * 1.5, new


class Swapped(keras.layers.LSTMCell):
    """An LSTM but for the order of its gates."""

    def _compute_carry_and_output_fused(self, z, c_tm1):
        i, f, g, o = z
        return super()._compute_carry_and_output_fused((f, i, g, o), c_tm1)


class Shifted(keras.layers.GRUCell):
    def call(self, inputs, states, training=False):
        return super().call(inputs + 1, states, training)


def test_left_as_they_are(folder, tmp_path, capsys):
    """What is not exactly a layer of Keras's keeps its loop; the report says why."""
    layers = [keras.layers.RNN(make(HIDDEN)) for make in (Scaled, Swapped, Shifted)]
    layers += [keras.layers.LSTM(HIDDEN, activation="gelu"), keras.layers.GRU(HIDDEN, name="good")]
    layers += [keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.LSTMCell(4)])]
    model = model_of(layers)
    model.export(tmp_path / "old", verbose=False)
    assert command.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    assert "1 of 6 loops rewritten" in said
    assert said.count("as it is") == 5
    x, new = sample("plain"), tf.saved_model.load(tmp_path / "new")
    for got, want in zip(new.serve(x), model(x), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    # Again: the call that is ours is no loop.
    again = serving.accelerate(tmp_path / "new", tmp_path / "again")
    assert [each.layer for each in again] == [None] * 5
    unrolled = model_of([keras.layers.LSTM(HIDDEN, unroll=True)], time=3)
    unrolled.export(tmp_path / "unrolled", verbose=False)
    assert serving.accelerate(tmp_path / "unrolled", tmp_path / "same") == []


def test_ours_is_left(tmp_path):
    """A portable export has no loop but ours."""
    model = model_of([hk.LSTM(HIDDEN)])
    hk.export(model, tmp_path / "ours", verbose=False)
    assert serving.accelerate(tmp_path / "ours", tmp_path / "new") == []


def test_bad_paths(folder, tmp_path):
    source = folder / "old" / "plain"
    with pytest.raises(ValueError, match="there is no"):
        serving.accelerate(tmp_path, tmp_path / "new")
    with pytest.raises(ValueError, match="another folder than `source`"):
        serving.accelerate(source, source)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        serving.accelerate(source, tmp_path / "file")
    assert command.main([str(tmp_path), str(tmp_path / "new")]) == 2


_UNARY = {"Sigmoid": "Tanh", "Tanh": "Relu6"}
_NAMED = {"AddV2": "Mul", "Mul": "AddV2", "Sub": "AddV2", "Less": "LessEqual", "BiasAdd": "BiasSub"}


def mutations(function):
    """Changes, each of one node, that make a function compute something else."""
    for i, node in enumerate(function.node_def):
        if node.op in _UNARY or node.op in _NAMED:
            yield i, "op", lambda n: setattr(n, "op", {**_UNARY, **_NAMED}[n.op])
        if node.op in ("Sub", "SelectV2", "Less", "TensorListSetItem"):
            yield i, "order", lambda n: n.input.append(n.input.pop(0))
        # Masks of a slice make its numbers meaningless; those of shapes are the model's own.
        if node.op == "Const" and not any(e in node.name for e in ("element_shape", "slice")):
            yield i, "value", _other_constant
        if node.op == "Split":
            yield i, "part", _other_part
        if node.op == "StridedSlice" and "before" not in node.name:  # there one is sliced twice
            yield i, "end", _other_end
        if node.op == "MatMul":
            yield i, "transposed", lambda n: n.attr["transpose_b"].SetInParent() or _true(n)


def _true(node):
    node.attr["transpose_b"].b = True


def _other_part(node):
    node.attr["num_split"].i = 1


def _other_end(node):
    node.attr["end_mask"].i ^= 2


def _other_constant(node):
    array = tf.make_ndarray(node.attr["value"].tensor)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array + 1, array.dtype))


def is_refused(node, function, library_):
    try:
        loops.read(node, function, library_)
    except loops.RefusedError:
        return True
    return False


@pytest.mark.parametrize("name", ["plain", "masked"])
def test_mutations(name, folder):
    """No loop with one operation changed is taken for a layer's."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "old" / name / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    read = {each.signature.name: each for each in functions}
    tried = 0
    for outer in functions:
        for node in outer.node_def:
            chosen = ("LSTM_states", "GRU_states", "SimpleRNN_states", "before")
            if node.op != "While" or not any(f"/{each}" in node.name for each in chosen):
                continue
            loops.read(node, Function(outer, Terms(), "outer", arithmetic=False), read)
            for key in ("body", "cond"):
                original = read[node.attr[key].func.name]
                for i, what, change in mutations(original):
                    changed = type(original)()
                    changed.CopyFrom(original)
                    change(changed.node_def[i])
                    library_ = {**read, original.signature.name: changed}
                    function = Function(outer, Terms(), "outer", arithmetic=False)
                    where = f"{changed.node_def[i].name}: {what}"
                    assert is_refused(node, function, library_), where
                    tried += 1
    assert tried > 80
