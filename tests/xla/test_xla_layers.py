"""Layers and models that XLA compiles, against themselves without it."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import haste_keras
from haste_keras.layers.base import step_loop
from haste_keras.native import library

NOISE = {"zoneout": 0.2, "recurrent_dropout": 0.2}


def _model(make, **options):
    keras.utils.set_random_seed(7)
    inputs = keras.Input([None], batch_size=options.pop("batch_size", None))
    x = keras.layers.Embedding(11, 6, mask_zero=options.pop("mask", True))(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(make(5, **options)(x)))


def _compile(model, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, **options)
    return model


def _data(rng, rows=12, time=7):
    tokens = rng.integers(1, 11, [rows, time])
    tokens[: rows // 2, 4:] = 0
    return tokens, rng.integers(0, 3, rows)


def _train(model, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # Keras's, if it leaves XLA out
        losses = model.fit(*data, batch_size=4, epochs=2, shuffle=False, verbose=0, **options)
    return losses.history["loss"], model.predict(data[0], batch_size=4, verbose=0)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (haste_keras.LSTM, {"direction": "bidirectional", **NOISE}),
        (haste_keras.LayerNormGRU, NOISE),
        (haste_keras.QRNN, {"window": 2, "mask": False}),
        (haste_keras.GRU, {"stateful": True, "batch_size": 4}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_training_step(make, options, rng):
    """With steps_per_execution; whatever the op draws is the same with XLA and without."""
    data = _data(rng)
    results = []
    for jit in (False, True):
        model = _compile(_model(make, **options), jit_compile=jit, steps_per_execution=2)
        assert model.jit_compile == jit
        results.append(_train(model, data))
    for without, within in zip(*results, strict=True):
        np.testing.assert_allclose(within, without, atol=2e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy, rng):
    x = tf.constant(rng.normal(size=[3, 5, 4]), tf.float32)
    layer = haste_keras.LSTM(6, dtype=policy, return_sequences=True, **NOISE)
    layer.build(x.shape)

    def step(x):
        layer.cell.seed_generator.state.assign([5, 0])
        with tf.GradientTape() as tape:
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
        return y, *tape.gradient(loss, layer.trainable_variables)

    without, within = step(x), tf.function(step, jit_compile=True)(x)
    tolerance = 2e-3 if policy == "mixed_float16" else 2e-2
    for got, want in zip(within, without, strict=True):
        assert got.dtype == want.dtype
        got, want = (tf.cast(each, tf.float32).numpy() for each in (got, want))
        np.testing.assert_allclose(got, want, atol=tolerance * max(1, np.abs(want).max()))


def test_mirrored_strategy(rng):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = _compile(_model(haste_keras.LSTM), jit_compile=True)
    data = _data(rng)
    losses, outputs = _train(model, data)
    want, expected = _train(_compile(_model(haste_keras.LSTM), jit_compile=False), data)
    np.testing.assert_allclose(losses, want, atol=2e-5)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


def test_auto_is_what_keras_makes_of_it():
    """Keras compiles by itself where there is a GPU, and every layer of the model says it can."""
    layers = [haste_keras.LSTM(4), haste_keras.LayerNormLSTM(4), haste_keras.ForgetMult()]
    assert all(layer.supports_jit for layer in layers)
    model = _compile(_model(haste_keras.LSTM))
    assert model.jit_compile == bool(tf.config.list_physical_devices("GPU"))


def test_a_layer_runs_its_op(rng):
    x = tf.constant(rng.normal(size=[2, 3, 4]), tf.float32)
    function = tf.function(haste_keras.GRU(5), jit_compile=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = function.experimental_get_compiler_ir(x)(stage="hlo")
    assert 'op = "HasteGruLayer"' in text


@pytest.fixture
def without_kernels(monkeypatch):
    monkeypatch.setattr(library, "xla_here", lambda: (False, "reasons"))


@pytest.mark.everywhere
@pytest.mark.usefixtures("without_kernels")
def test_where_xla_cannot_run_the_kernels(rng):
    layer = haste_keras.LSTM(4, return_sequences=True)
    assert not layer.supports_jit
    assert not haste_keras.ForgetMult().supports_jit
    x = tf.constant(rng.normal(size=[2, 3, 4]), tf.float32)
    with pytest.warns(UserWarning, match=step_loop.XLA):
        got = tf.function(layer, jit_compile=True)(x)
    np.testing.assert_allclose(got, layer(x), atol=1e-6)
    wx, kernel = tf.zeros([2, 3, 1, 4, 4]), tf.zeros([1, 4, 4, 4])
    run = tf.function(lambda: haste_keras.ops.lstm(wx, kernel)[0], jit_compile=True)
    message = "ops.lstm: XLA compiles this function .* cannot run the op: reasons; leave"
    with pytest.raises(NotImplementedError, match=message):
        run()
    norm = tf.function(lambda: haste_keras.ops.layer_norm(x, x[0, :, :]), jit_compile=True)
    with pytest.raises(NotImplementedError, match=r"ops.layer_norm: .*LayerNormalization"):
        norm()
