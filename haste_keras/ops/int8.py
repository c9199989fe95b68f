"""int8 products in TensorFlow's own operations: rows are quantised as they come, weights before.

    m = max |row|      q = round(row · 127 / m)      row · W ≈ (q · Wq) · (m / 127) · scale

A row is quantised by itself, so that its result does not depend on the batch that it is in.
"""

import tensorflow as tf

LIMIT = 127.0  # the largest integer; -128 is not used

# So many products of two integers add up in a float32 without rounding: 1024 · 127² < 2²⁴.
_EXACT = 1024
_LEAST = 2.0**-120  # a row of smaller values counts as 0; of the least floats 127 / m is infinite


def quantize_rows(x):
    """Quantises each row, the last axis of x.

    Args:
      x: [..., C] float32. A row that is not finite gives NaN in each of its products.
    Returns:
      q: [..., C] float32 of integers in [-127, 127], ties to even; its gradient is that of x·127/m.
      unit: [..., 1] float32, m / 127: row ≈ q · unit.
    """
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(x), axis=-1, keepdims=True))
    live = largest >= _LEAST
    inverse = tf.where(live, LIMIT / tf.where(live, largest, 1.0), 0.0)
    scaled = x * inverse
    # Exact: the difference of a float and its nearest integer is a float.
    return scaled + tf.stop_gradient(tf.round(scaled) - scaled), largest / LIMIT


def widened(weights):
    """int8 weights as `product` multiplies by them: a loop does it once for all steps."""
    return tf.cast(weights, tf.float32)


def dequantized(weights, scale):
    """weights · scale in float32: weights [..., C, M], scale [..., M]."""
    return widened(weights) * scale[..., tf.newaxis, :]


def product(x, weights, scale):
    """x·W of quantised rows; sums are exact.

    Args:
      x: [N, C], or with K lanes [N, K, C], float32.
      weights: [C, M] or [K, C, M] integers, int8 or `widened`.
      scale: [M] or [K, M] float32: W ≈ weights · scale.
    Returns:
      [N, M] or [N, K, M] float32.
    """
    q, unit = quantize_rows(x)
    weights = widened(weights)
    if weights.shape.rank == 2:
        return _exact(q, weights) * unit * scale
    lanes = _exact(tf.transpose(q, [1, 0, 2]), weights)
    return tf.transpose(lanes, [1, 0, 2]) * unit * scale


def _exact(q, weights):
    """q·W of integers in float32, rounded once."""
    inner = weights.shape[-2]
    if inner <= _EXACT:
        return tf.matmul(q, weights)
    parts = [
        tf.cast(tf.matmul(q[..., at : at + _EXACT], weights[..., at : at + _EXACT, :]), tf.float64)
        for at in range(0, inner, _EXACT)
    ]
    return tf.cast(tf.add_n(parts), tf.float32)
