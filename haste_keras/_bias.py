"""Adding a bias so that its gradient is right in every dtype."""

import tensorflow as tf


def add_bias(wx, bias):
    """wx [rows, columns] + bias [columns]."""
    if wx.dtype.size > 2:
        return tf.nn.bias_add(wx, bias)
    # TensorFlow sums BiasAdd's gradient over the rows in the 16-bit type itself. Of a product it
    # sums in float32.
    ones = tf.ones([tf.shape(wx)[0], 1], wx.dtype)
    return wx + tf.matmul(ones, bias[tf.newaxis])


def bias_gradient(d):
    """The gradient of `add_bias`'s bias, [columns], from that of its result [rows, columns]."""
    if d.dtype.size > 2:
        return tf.raw_ops.BiasAddGrad(out_backprop=d)
    return tf.matmul(tf.ones([1, tf.shape(d)[0]], d.dtype), d)[0]
