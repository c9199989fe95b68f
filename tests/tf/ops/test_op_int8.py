"""Ops with int8 weights, against the same arithmetic in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops
from haste_keras.native import raw_ops
from haste_keras.native.cell_spec import CELLS

DENSE = [spec for spec in CELLS if spec.has_int8_op]
LAYERS = [spec for spec in DENSE if spec.has_layer_op]
TOLERANCES = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


def quantized(rng, *shape):
    """Weights [..., depth, …] with scales for a depth on the first axis but one."""
    return rng.integers(-127, 128, shape, np.int8)


def product(a, q, scale):
    """a [M, C], q [C, U], scale [U]."""
    m = np.abs(a).max(1, keepdims=True).astype(np.float32)
    rows = np.rint(a * np.where(m > 0, np.float32(127) / np.where(m > 0, m, 1), 0))
    return (rows.astype(np.int64) @ q.astype(np.int64)).astype(np.float32) * (m / 127) * scale


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 70, 33), (40, 33, 130)], ids=str)
def test_matmul(rng, sizes, dtype):
    m, c, u = sizes
    a = tf.cast(rng.standard_normal((m, c)), dtype)
    q, scale = quantized(rng, c, u), rng.uniform(0.001, 0.01, u).astype("float32")
    want = product(tf.cast(a, tf.float32).numpy(), q, scale)
    got = tf.function(ops.matmul_int8)(a, q, scale)
    assert got.dtype == dtype
    assert got.shape == (m, u)
    difference = np.abs(tf.cast(got, tf.float32).numpy() - want).max()
    assert difference <= TOLERANCES[dtype] * np.abs(want).max()


def test_matmul_has_nan_rows_and_no_gradient(rng):
    a = rng.standard_normal((3, 8)).astype("float32")
    a[1, 2] = np.inf
    q, scale = quantized(rng, 8, 4), np.ones(4, "float32")
    got = ops.matmul_int8(a, q, scale).numpy()
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()
    a = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(a)
        out = ops.matmul_int8(a, q, scale)
    with pytest.raises(NotImplementedError, match="HasteMatMulInt8 has no gradient"):
        tape.gradient(out, a)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("spec", DENSE, ids=lambda spec: spec.name)
def test_near_the_op_of_floats(rng, spec, dtype):
    n, t, k, h = 3, 6, 2, 24
    sizes = {"N": n, "T": t, "K": k, "G": len(spec.gates), "H": h}
    q = quantized(rng, k, h, sizes["G"], h)
    scale = rng.uniform(0.5, 1.5, (k, sizes["G"], h)).astype("float32") / 127 / h**0.5
    inputs = {}
    for name, dims in spec.int8_inputs.items():
        value = 0.5 * rng.standard_normal([sizes[letter] for letter in dims])
        if "gamma" in name:
            value += 1
        if spec.name == "slstm" and name == "n0":
            value = 1 + np.abs(value)
        inputs[name] = tf.cast(value, dtype)
    inputs |= {"recurrent_kernel": q, "recurrent_scale": scale}
    inputs["mask"] = tf.constant(np.arange(t) < np.array([[t], [4], [2]]))
    attributes = {
        "reverse": [False, True],
        "zoneout": [0.1] + [0.0] * (len(spec.states) - 1),
        "recurrent_activation": "exponential" if spec.exponential else "sigmoid",
        "zero_output_for_mask": True,
    }
    got = raw_ops.forward_int8(spec, list(inputs.values()), **attributes)
    floats = {**inputs, "recurrent_kernel": tf.cast(q * scale[:, None], dtype)}
    del floats["recurrent_scale"]
    floats["seed"] = tf.zeros([0], tf.int64)
    near = raw_ops.forward(spec, list(floats.values()), save=False, **attributes)
    for ours, theirs in zip(got, near, strict=False):
        assert ours.shape == theirs.shape
        assert ours.dtype == dtype
        ours, theirs = (tf.cast(v, tf.float32).numpy() for v in (ours, theirs))
        assert np.linalg.norm(ours - theirs) <= 0.03 * np.linalg.norm(theirs)
        assert (ours != theirs).any()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("spec", LAYERS, ids=lambda spec: spec.name)
def test_layer_is_the_product_and_the_op(rng, spec, dtype, steps, bias):
    n, k, h, c = 3, 2, 24, 10
    sizes = {"N": n, "T": steps, "K": k, "G": len(spec.gates), "H": h, "C": c}
    inputs = {}
    for name, dims in spec.layer_int8_inputs.items():
        shape = [sizes[letter] for letter in dims]
        value = 0.5 * rng.standard_normal(shape)
        if name.endswith("_scale"):
            value = rng.uniform(0.5, 1.5, shape) / 127 / h**0.5
        if spec.name == "slstm" and name == "n0":
            value = 1 + np.abs(value)
        inputs[name] = tf.cast(value, "float32" if name.endswith("_scale") else dtype)
    for name in ("kernel", "recurrent_kernel"):
        inputs[name] = tf.constant(quantized(rng, *inputs[name].shape))
    inputs["mask"] = tf.constant(np.arange(steps) < np.array([[steps], [steps // 2], [1]]))
    if not bias:
        inputs["bias"] = tf.zeros([0], dtype)
    attributes = {
        "reverse": [False, True],
        "zoneout": [0.1] + [0.0] * (len(spec.states) - 1),
        "recurrent_activation": "exponential" if spec.exponential else "sigmoid",
        "zero_output_for_mask": True,
    }
    got = raw_ops.forward_int8(spec, list(inputs.values()), layer=True, **attributes)

    x, kernel, scale, added = (inputs.pop(e) for e in ("x", "kernel", "kernel_scale", "bias"))
    wx = ops.matmul_int8(
        tf.reshape(x, [-1, c]), tf.reshape(kernel, [c, -1]), tf.reshape(scale, [-1])
    )
    wx = tf.reshape(wx, [n, steps, k, -1, h]) + (added if bias else 0)
    want = raw_ops.forward_int8(spec, [wx, *inputs.values()], **attributes)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        ours, theirs = (tf.cast(each, tf.float32).numpy() for each in (ours, theirs))
        # Another rounding of a sum may turn one of the integers of a row. In 16 bits wx is rounded
        # where it is a tensor.
        error = np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))
        assert np.mean(error) < 5 * TOLERANCES[dtype]
        assert np.max(error) < max(1e-2, 10 * TOLERANCES[dtype])


def test_layer_in_a_vectorized_map(rng):
    spec = next(spec for spec in LAYERS if spec.name == "lstm")
    q, scale = quantized(rng, 1, 8, 4, 8), np.full((1, 4, 8), 1e-3, "float32")
    kernel, kernel_scale = quantized(rng, 5, 1, 4, 8), np.full((1, 4, 8), 1e-3, "float32")
    x = tf.constant(rng.standard_normal((6, 2, 3, 5)), tf.float32)

    def run(x):
        none = tf.zeros([0])
        inputs = [x, kernel, kernel_scale, none, q, scale, none, none, tf.zeros([0], tf.bool)]
        return raw_ops.forward_int8(spec, inputs, layer=True, reverse=[False], zoneout=[0.0, 0.0])

    got = tf.function(lambda: tf.vectorized_map(run, x))()
    want = [run(each) for each in x]
    for i, outputs in enumerate(zip(*want, strict=True)):
        np.testing.assert_array_equal(got[i], tf.stack(outputs))


def test_layer_errors(rng):
    _, q, scale = lstm_arguments(rng)
    x, kernel = tf.zeros([2, 3, 5]), quantized(rng, 5, 1, 4, 8)
    layer = raw_ops.Projection(x, kernel, None, scale)
    y, _ = ops.lstm(layer, q, recurrent_scale=scale)
    assert y.shape == (2, 3, 1, 8)
    with pytest.raises(TypeError, match="kernel_scale and recurrent_scale must both be given"):
        ops.lstm(layer._replace(kernel_scale=None), q, recurrent_scale=scale)
    with pytest.raises(TypeError, match="kernel must be int8 with kernel_scale"):
        ops.lstm(layer._replace(kernel=tf.zeros(kernel.shape)), q, recurrent_scale=scale)
    with pytest.raises(ValueError, match="kernel_scale must have shape"):
        ops.lstm(layer._replace(kernel_scale=scale[0]), q, recurrent_scale=scale)


def lstm_arguments(rng):
    wx = tf.constant(rng.standard_normal((2, 3, 1, 4, 8)), tf.float32)
    return wx, quantized(rng, 1, 8, 4, 8), np.full((1, 4, 8), 1e-3, "float32")


def test_function_of_a_cell(rng):
    wx, q, scale = lstm_arguments(rng)
    y, states = tf.function(ops.lstm)(wx, q, recurrent_scale=scale)
    assert y.shape == (2, 3, 1, 8)
    assert len(states) == 2
    np.testing.assert_array_equal(y[:, -1].numpy(), states[0].numpy())


def test_errors(rng):
    wx, q, scale = lstm_arguments(rng)
    with pytest.raises(TypeError, match="recurrent_kernel must be int8 with"):
        ops.lstm(wx, tf.cast(q, tf.float32), recurrent_scale=scale)
    with pytest.raises(ValueError, match=r"recurrent_scale must have shape"):
        ops.lstm(wx, q, recurrent_scale=scale[0])
    with pytest.raises(ValueError, match="training must be False with recurrent_scale"):
        ops.lstm(wx, q, recurrent_scale=scale, training=True)
    with pytest.raises(TypeError, match="but is float64"):
        ops.lstm(tf.cast(wx, tf.float64), q, recurrent_scale=scale)
    compiled = tf.function(lambda: ops.lstm(wx, q, recurrent_scale=scale), jit_compile=True)
    with pytest.raises(NotImplementedError, match="no kernel with int8 weights"):
        compiled()
