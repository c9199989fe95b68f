"""Weights that stay packed between calls of inference: never those of before a change."""

import gc
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import randomize

import haste_keras
from haste_keras.native import library

LAYERS = {
    "LSTM": (haste_keras.LSTM, keras.layers.LSTM, {}),
    "GRU": (haste_keras.GRU, keras.layers.GRU, {}),
    "GRU, reset before": (haste_keras.GRU, keras.layers.GRU, {"reset_after": False}),
    "Elman": (haste_keras.Elman, keras.layers.SimpleRNN, {}),
}
SHAPE, UNITS = (2, 7, 5), 12


@pytest.fixture(autouse=True)
def on_a_cpu():
    with tf.device("CPU:0"):
        yield


def assert_close(actual, expected, tolerance):
    actual, expected = (tf.cast(each, tf.float64).numpy() for each in (actual, expected))
    error = np.max(np.abs(actual - expected), initial=0)
    assert error <= tolerance * np.max(np.abs(expected), initial=1), error


def entries():
    return library.kept_weights()[0]


def kept_bytes():
    return library.kept_weights()[1]


def let_go():
    """Drops what belongs to variables that are gone, as the first call of any layer does."""
    gc.collect()
    haste_keras.Elman(3)(np.zeros((1, 1, 1), "float32"))


def make(name, dtype="float32"):
    """A layer of ours in a tf.function, and the stock one."""
    ours, stock, options = LAYERS[name]
    # TensorFlow has no orthogonal initializer in bfloat16.
    options = {"return_sequences": True, "recurrent_initializer": "glorot_uniform", **options}
    fused = ours(UNITS, dtype=dtype, **options)
    like = stock(UNITS, dtype="float32", **options)
    fused.build(SHAPE), like.build(SHAPE)
    return fused, tf.function(fused), like


def expect(layer, function, stock, x, tolerance=1e-5):
    """`function` gives what Keras's layer does with the same weights: three calls, to be kept."""
    stock.set_weights([np.asarray(w, np.float32) for w in layer.get_weights()])
    want = stock(tf.cast(x, tf.float32))
    for _ in range(3):
        assert_close(function(x), want, tolerance)


def changes(layer, x, rng):
    """Ways in which weights change, each a name and a function."""
    optimizer = keras.optimizers.Adam(0.05)
    plain = [tf.Variable(0.0)]

    def draw(weight):
        return rng.normal(size=weight.shape).astype("float32") / 3

    def train(jit_compile=None):
        @tf.function(jit_compile=jit_compile)
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(x, training=True) ** 2)
            variables = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

        step()

    def in_place(weight):
        weight.value.assign_add(tf.constant(draw(weight)))

    def row(weight):
        weight.value.scatter_nd_update([[0]], [draw(weight)[0]])

    def sliced(weight):
        weight.value[1:2].assign(draw(weight)[1:2])

    kernel, recurrent_kernel = layer.cell.kernel, layer.cell.recurrent_kernel
    yield "assign", lambda: recurrent_kernel.assign(draw(recurrent_kernel))
    yield "assign of W alone", lambda: kernel.assign(draw(kernel))
    yield "assign of the bias", lambda: layer.cell.bias.assign(draw(layer.cell.bias))
    yield "assign_add", lambda: in_place(recurrent_kernel)
    yield "scatter", lambda: row(recurrent_kernel)
    yield "scatter again", lambda: row(recurrent_kernel)
    yield "slice", lambda: sliced(recurrent_kernel)
    yield "set_weights", lambda: layer.set_weights([draw(w) for w in layer.weights])
    yield "an optimizer", train
    yield "an optimizer again", train
    yield "nothing of it", lambda: plain[0].assign(1.0)


@pytest.mark.parametrize("name", LAYERS)
def test_follows_every_change(name, rng):
    layer, function, stock = make(name)
    randomize(stock, rng), layer.set_weights(stock.get_weights())
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    expect(layer, function, stock, x)
    assert kept_bytes() > 0
    for what, change in changes(layer, x, rng):
        print(what)
        change()
        expect(layer, function, stock, x)


@pytest.mark.skipif(not library.xla_here()[0], reason="XLA has no kernel of the ops here")
def test_follows_a_training_step_by_xla(rng):
    layer, function, stock = make("LSTM")
    model = keras.Sequential([layer])
    model.compile("adam", "mse", jit_compile=True)
    x = rng.normal(size=(4, *SHAPE[1:])).astype("float32")
    y = rng.normal(size=(4, SHAPE[1], UNITS)).astype("float32")
    for _ in range(3):
        model.fit(x, y, batch_size=2, verbose=0)
        expect(layer, function, stock, tf.constant(x))
        expect(layer, lambda x: model.predict(x, verbose=0), stock, tf.constant(x))


def test_fit_and_predict_in_turns(rng, tmp_path):
    layer, function, stock = make("GRU")
    model = keras.Sequential([layer])
    model.compile("sgd", "mse", jit_compile=False)
    x = rng.normal(size=(4, *SHAPE[1:])).astype("float32")
    y = rng.normal(size=(4, SHAPE[1], UNITS)).astype("float32")
    model(x)
    model.save_weights(tmp_path / "first.weights.h5")
    for _ in range(3):
        model.fit(x, y, batch_size=2, verbose=0, validation_data=(x, y))
        expect(layer, function, stock, tf.constant(x))
    model.load_weights(tmp_path / "first.weights.h5")
    expect(layer, function, stock, tf.constant(x))


def test_models_in_turns(rng):
    made = [make("LSTM") for _ in range(3)]
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    for _ in range(3):
        for layer, function, stock in made:
            expect(layer, function, stock, x)
    expect(made[0][0], made[0][0], made[0][2], x)  # eagerly, where layers share a kernel
    expect(made[1][0], made[1][0], made[1][2], x)


def test_one_pack_for_all_sizes(rng):
    let_go()
    before = kept_bytes()
    layer, function, stock = make("LSTM")
    expect(layer, function, stock, tf.constant(rng.normal(size=SHAPE), "float32"))
    first = kept_bytes()
    assert first > before
    for size in ((1, 1), (1, 50), (3, 1), (33, 2)):
        expect(layer, function, stock, tf.constant(rng.normal(size=(*size, 5)), "float32"))
    for size in ((0, 4), (2, 0)):
        assert function(tf.zeros((*size, 5))).shape == (*size, UNITS)
    assert kept_bytes() == first


def test_is_given_back(rng):
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    let_go()
    before = library.kept_weights()

    def use():
        layer, function, stock = make("LSTM")
        expect(layer, function, stock, x)
        assert kept_bytes() > before[1]
        layer.cell.recurrent_kernel.assign(layer.cell.recurrent_kernel / 2)
        let_go()
        assert library.kept_weights() == before
        expect(layer, function, stock, x)

    use()
    let_go()
    assert library.kept_weights() == before


def test_training_copies_no_weight(rng):
    """An optimizer would copy a variable whose buffer is referred to."""
    layer, function, stock = make("LSTM")
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    expect(layer, function, stock, x)
    before = entries()
    layer(x, training=True)
    assert entries() < before


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "mixed_bfloat16"])
def test_dtypes(dtype, rng):
    layer, function, stock = make("LSTM", dtype)
    randomize(stock, rng), layer.set_weights(stock.get_weights())
    x = tf.constant(rng.normal(size=SHAPE), layer.compute_dtype)
    for part in (x, x[:1, :1]):
        expect(layer, function, stock, part, 1e-5 if dtype == "float64" else 0.05)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_int8(name, rng):
    layer, _, stock = make(name)
    randomize(stock, rng), layer.set_weights(stock.get_weights())
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    want = layer(x)
    layer.quantize("int8")
    function = tf.function(layer)
    let_go()
    before = kept_bytes()
    first = function(x)
    assert_close(first, want, 0.05)
    for _ in range(3):
        np.testing.assert_array_equal(function(x), first)
    assert kept_bytes() > before  # though its scales are computed anew in each call
    layer.cell.kernel_scale.assign(layer.cell.kernel_scale / 2)
    assert np.abs(function(x) - first).max() > 1e-3


def test_a_loaded_model(rng, tmp_path):
    layer, _, stock = make("LSTM")
    randomize(stock, rng), layer.set_weights(stock.get_weights())
    inputs = keras.Input(SHAPE[1:])
    model = keras.Model(inputs, layer(inputs))
    model.export(tmp_path / "model", verbose=False)
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    let_go()
    before = kept_bytes()
    expect(layer, loaded.serve, stock, x)
    assert kept_bytes() > before
    weight = next(v for v in loaded.variables if v.shape == layer.cell.recurrent_kernel.shape)
    weight.assign(-weight)
    layer.cell.recurrent_kernel.assign(-layer.cell.recurrent_kernel)
    expect(layer, loaded.serve, stock, x)


def test_assigned_while_others_predict(rng):
    """Each result is that of one of the values that R takes."""
    layer, function, _ = make("LSTM")
    x = tf.constant(rng.normal(size=SHAPE), "float32")
    recurrent_kernel = layer.cell.recurrent_kernel
    values = [tf.constant(rng.normal(size=recurrent_kernel.shape) / 3, "float32") for _ in range(3)]
    expected = []
    for value in values:
        recurrent_kernel.assign(value)
        expected.append(function(x).numpy())
    wrong, stop = [], threading.Event()

    def predict():
        while not stop.is_set():
            y = function(x).numpy()
            if not any((y == each).all() for each in expected):
                wrong.append(y)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(300):
        recurrent_kernel.assign(values[i % 3])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_array_of_the_users_is_no_variable(rng):
    """A fed array has no buffer of its own: its weights are not kept."""
    x = rng.normal(size=(2, 3, 1, 4, UNITS)).astype("float32")
    recurrent_kernel = rng.normal(size=(1, UNITS, 4, UNITS)).astype("float32") / 3
    before = library.kept_weights()
    for _ in range(3):
        haste_keras.ops.lstm(x, recurrent_kernel)
    assert library.kept_weights() == before
