"""The graph optimizer: calls of a portable model become ops, and compute the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from plugin_models import (
    BATCH,
    FEATURES,
    HIDDEN,
    LIMIT,
    SEQUENCES,
    TIME,
    count,
    load,
    model_of,
    sample,
)

import haste_keras as hk
from haste_keras.native import library

NOINLINE = {"_noinline": True}


@pytest.fixture(autouse=True)
def active():
    assert library.graph_plugin() == (True, "")


@pytest.fixture
def rng():
    return np.random.default_rng(5)


BOTH = {"direction": "bidirectional"}
LAYERS = {
    "lstm": lambda: hk.LSTM(HIDDEN, zoneout=0.1, zoneout_cell=0.2, **SEQUENCES),
    "lstm_heads": lambda: hk.LSTM(HIDDEN, heads=2, **BOTH),
    "lstm_states": lambda: hk.LSTM(HIDDEN, return_state=True, use_bias=False),
    "lstm_backward": lambda: hk.LSTM(HIDDEN, direction="backward", activation="relu"),
    "gru": lambda: hk.GRU(HIDDEN, **BOTH),
    "gru_before": lambda: hk.GRU(HIDDEN, reset_after=False),
    "slstm": lambda: hk.SLSTM(HIDDEN, zoneout_cell=0.2, **SEQUENCES),
    "qrnn": lambda: hk.QRNN(HIDDEN, window=2, pooling="ifo", **BOTH),
    "layer_norm_lstm": lambda: hk.LayerNormLSTM(HIDDEN),
    "layer_norm_gru": lambda: hk.LayerNormGRU(HIDDEN, **BOTH),
    "layer_norm_indrnn": lambda: hk.LayerNormIndRNN(HIDDEN),
    "indrnn": lambda: hk.IndRNN(HIDDEN, **SEQUENCES),
    "elman": lambda: hk.Elman(HIDDEN),
    "min_lstm": lambda: hk.MinLSTM(HIDDEN, **SEQUENCES),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, rng, tmp_path):
    model = model_of(LAYERS[name](), masked=name not in ("qrnn", "gru_before"))
    x = sample(rng)
    hk.export(model, tmp_path / "model", verbose=False)
    result, calls = count(load(tmp_path / "model"), x)
    # Layer normalisation of the projected input is a call of its own.
    assert calls == (2 if name.startswith("layer_norm") else 1)
    expected = tf.nest.map_structure(np.asarray, model(x))
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_allclose(got, want, atol=LIMIT), result, expected
    )


@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16"])
def test_dtype_and_known_batch(dtype, rng, tmp_path):
    """Of a known batch the initial states are constants, which Grappler moves into the function."""
    keras.utils.set_random_seed(3)
    model = model_of(hk.LSTM(HIDDEN, dtype=dtype), masked=True, batch=BATCH, time=TIME)
    x = sample(rng)
    hk.export(model, tmp_path / "model", verbose=False)
    result, calls = count(load(tmp_path / "model"), x)
    assert calls == 1
    limit = LIMIT if dtype == "float64" else 2e-2
    np.testing.assert_allclose(
        tf.cast(result, tf.float64), tf.cast(model(x), tf.float64), atol=limit
    )


TIMED = {
    "lstm": lambda: hk.LSTM(HIDDEN, zoneout=0.1, return_sequences=True, **BOTH),
    "gru": lambda: hk.GRU(HIDDEN, dtype="float64", heads=2),
    "layer_norm_gru": lambda: hk.LayerNormGRU(HIDDEN),
    "qrnn": lambda: hk.QRNN(HIDDEN, window=2, pooling="ifo"),
    "int8": lambda: hk.GRU(64, reset_after=False),
}


def masks_in_a_graph():
    """Whether this Keras's TimeDistributed takes a mask of steps whose number is not known."""
    layer = keras.layers.TimeDistributed(keras.layers.LSTM(2))
    layer.build((None, None, None, 3))

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])], autograph=False)
    def call(x):
        return layer(x, mask=tf.reduce_any(x != 0, axis=-1))

    try:
        call.get_concrete_function()
    except tf.errors.OperatorNotAllowedInGraphError:
        return False
    return True


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", TIMED)
def test_time_distributed(name, masked, rng, tmp_path):
    """Over a number of outer steps that is not known: tf.vectorized_map keeps the call."""
    layer = TIMED[name]()
    layer.build((None, None, FEATURES))
    if name == "int8":
        layer.quantize("int8")
    given = keras.Input((None, None, FEATURES))
    mask = keras.ops.any(keras.ops.not_equal(given, 0), axis=-1) if masked else None
    model = keras.Model(given, keras.layers.TimeDistributed(layer)(given, mask=mask))
    if masked and not masks_in_a_graph():
        pytest.skip(f"Keras {keras.__version__} cannot mask a TimeDistributed layer in a graph")
    # Keras counts the rows for the steps.
    x = np.stack([sample(rng) for _ in range(BATCH)], axis=1)
    hk.export(model, tmp_path / "model", verbose=False)
    result, calls = count(load(tmp_path / "model"), x)
    assert calls == (2 if name == "layer_norm_gru" else 1)
    for step in range(BATCH):
        own = {"mask": tf.constant((x[:, step] != 0).any(-1))} if masked else {}
        expected = layer(x[:, step], **own)
        # An integer of a row may be rounded to the other side.
        limit = 2e-3 if name == "int8" else LIMIT
        np.testing.assert_allclose(result[:, step], expected, atol=limit)


class Scenes:
    """Graphs around a tagged call, as functions of wx [N, T, K, G, H] and R."""

    def __init__(self, rng):
        normal = lambda *shape: rng.standard_normal(shape).astype("float32")  # noqa: E731
        self.wx, self.kernel = normal(BATCH, TIME, 1, 4, HIDDEN), normal(1, HIDDEN, 4, HIDDEN) / 3
        self.h, self.c = normal(BATCH, 1, HIDDEN), normal(BATCH, 1, HIDDEN)
        self.mask = rng.random((BATCH, TIME)) < 0.6

    def lstm(self, wx, kernel, **options):
        return hk.ops.lstm(wx, kernel, **options)

    def constants(self, wx, kernel):
        """All that is no argument is a constant."""
        return self.lstm(wx, kernel, initial_state=[self.h, self.c], mask=self.mask)[0]

    def constant_weights(self, wx, kernel):
        return self.lstm(wx, tf.constant(self.kernel))[0]

    def large_constants(self, wx, kernel):
        """Too large for a tag, and not moved into the function."""
        rng = np.random.default_rng(2)
        kernel, wx = (rng.standard_normal(n).astype("float32") / 8 for n in (65536, 71680))
        return self.lstm(wx.reshape(20, 7, 1, 4, 128), kernel.reshape(1, 128, 4, 128))[0]

    def last_state(self, wx, kernel):
        """Outputs before the one that is read are dropped."""
        return self.lstm(wx, kernel, mask=self.mask)[1][1]

    def states_alone(self, wx, kernel):
        _, (h, c) = self.lstm(wx, kernel)
        return c - h

    def chain(self, wx, kernel):
        """Edges from call to call."""
        y, states = self.lstm(wx, kernel)
        wx = tf.tile(y[:, :, :, None, :], [1, 1, 1, 4, 1])
        return self.lstm(wx, kernel, initial_state=states[::-1], mask=self.mask)

    def nested(self, wx, kernel):
        """In a function that is not inlined, called from two places."""

        @tf.function(autograph=False, experimental_attributes=NOINLINE)
        def inner(wx, kernel):
            return self.constants(wx * 2, kernel) + self.last_state(wx, kernel)[:, None]

        return inner(wx + 1, kernel) * inner(wx - 1, kernel)

    def loop(self, wx, kernel):
        """In the frame of a loop, with constants that must be in the frame too."""

        def body(i, wx):
            y = self.lstm(wx, kernel, mask=self.mask, initial_state=[self.h, self.c])[0]
            return i + 1, wx + y[:, :, :, None, :]

        return tf.while_loop(lambda i, _: i < 3, body, (0, wx))[1]

    def branch(self, wx, kernel):
        return tf.cond(
            tf.reduce_sum(wx) > -1e9,
            lambda: self.constants(wx, kernel),
            lambda: self.lstm(wx, kernel)[0] - 1,
        )

    def control(self, wx, kernel):
        """Control edges to the call and from it."""
        seen = tf.Variable(0.0, trainable=False) if not hasattr(self, "seen") else self.seen
        self.seen = seen
        with tf.control_dependencies([seen.assign_add(1)]):
            y, (h, _) = self.lstm(wx, kernel, mask=self.mask)
        with tf.control_dependencies([h]):
            after = seen.assign_add(1)
        return y + 0 * after

    def colocated(self, wx, kernel):
        y, _ = self.lstm(wx, kernel)
        with tf.compat.v1.colocate_with(y.op), tf.device("/CPU:0"):
            wx = wx + y[:, :, :, None, :]
            return self.lstm(wx, kernel)[0]

    def mapped(self, wx, kernel):
        return tf.map_fn(lambda one: self.constants(one, kernel), tf.stack([wx, wx / 2]))


# Scene: how many calls at least become ops; of a function that is instantiated twice each counts.
SCENES = {
    "constants": 1,
    "constant_weights": 1,
    "large_constants": 1,
    "last_state": 1,
    "states_alone": 1,
    "chain": 2,
    "nested": 2,
    "loop": 1,
    "branch": 2,
    "control": 1,
    "colocated": 2,
    "mapped": 1,
}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name, rng):
    scenes = Scenes(rng)
    scene = getattr(scenes, name)
    arguments = tf.constant(scenes.wx), tf.constant(scenes.kernel)
    with hk.portable():
        portable = tf.function(scene, autograph=False)
        portable.get_concrete_function(*arguments)
    result, calls = count(portable, *arguments)
    assert calls >= SCENES[name]
    expected, of_ops = count(tf.function(scene, autograph=False), *arguments)
    assert of_ops == 0
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_allclose(got, want, atol=LIMIT), result, expected
    )
