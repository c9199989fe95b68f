"""Adding a bias so that its gradient is right in every dtype."""

import tensorflow as tf


def add_bias(wx, bias):
    """wx [rows, columns] + bias [columns]."""
    return tf.nn.bias_add(wx, bias) if wx.dtype.size > 2 else _add_bias_of_16_bits(wx, bias)


@tf.custom_gradient
def _add_bias_of_16_bits(wx, bias):
    """TensorFlow sums BiasAdd's gradient over the rows in the 16-bit type itself."""
    return tf.nn.bias_add(wx, bias), lambda d: (d, bias_gradient(d))


def bias_gradient(d):
    """The gradient of `add_bias`'s bias, [columns], from that of its result [rows, columns]."""
    if d.dtype.size > 2:
        return tf.raw_ops.BiasAddGrad(out_backprop=d)
    # Of a product it sums in float32.
    return tf.matmul(tf.ones([1, tf.shape(d)[0]], d.dtype), d)[0]
