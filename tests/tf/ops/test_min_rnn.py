"""MinLSTM's gates where neither can be told from 0 or from 1."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops, reference

EXTREMES = [-1e4, -200.0, -90.0, -20.0, -1.0, 0.0, 3.0, 40.0, 1e4]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6), ("float16", 1e-3)]
)
def test_gates_of_any_size(dtype, tolerance):
    """f / (f + i) of sigmoids would be 0 / 0 where both are below the smallest number."""
    f, i = np.meshgrid(EXTREMES, EXTREMES)
    gates = np.stack([f.ravel(), i.ravel(), np.ones(f.size)])
    wx = tf.constant(gates[None, None, None], dtype)
    h = tf.fill([1, 1, f.size], tf.constant(-1.0, dtype))
    with tf.GradientTape() as tape:
        tape.watch(wx)
        y, _ = ops.minlstm(wx, (h,))
    expected, _ = reference.minlstm(wx, (h,))
    np.testing.assert_allclose(y, expected, atol=tolerance)
    gradient = tape.gradient(y, wx).numpy()[0, 0, 0]
    z = (expected.numpy().ravel() + 1) / 2  # h = -1 and g = 1

    def complement(x):  # 1 - sigmoid(x)
        return np.exp(-np.logaddexp(0, x))

    slope = 2 * z * (1 - z)
    for got, want in zip(
        gradient, [-slope * complement(gates[0]), slope * complement(gates[1]), z], strict=True
    ):
        np.testing.assert_allclose(got, want, atol=tolerance)


def test_what_the_gates_weigh():
    """Equal gates share evenly, however small; with training Zoneout keeps to the last bit."""
    wx = tf.constant(np.full([2, 3, 1, 3, 4], -500.0), tf.float32)
    y, _ = ops.minlstm(wx, (tf.zeros([2, 1, 4]),), activation="hard_sigmoid")
    np.testing.assert_array_equal(y, np.zeros([2, 3, 1, 4]))
    h = tf.random.stateless_normal([2, 1, 4], (1, 2))
    kept, _ = ops.minlstm(wx, (h,), zoneout=1.0, training=True, seed=(1, 2))
    np.testing.assert_array_equal(kept, np.broadcast_to(h[:, None], [2, 3, 1, 4]))
