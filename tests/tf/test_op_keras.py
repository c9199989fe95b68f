"""The op computes what `keras.layers.LSTM` computes."""

import keras
import numpy as np
import tensorflow as tf

from haste_keras import ops


def test_matches_keras(rng):
    batch, time, features, hidden = 3, 7, 5, 6
    layer = keras.layers.LSTM(hidden, return_sequences=True, return_state=True, dtype="float64")
    x = tf.constant(rng.normal(size=[batch, time, features]))
    mask = tf.constant(rng.random([batch, time]) < 0.7)
    states = [tf.constant(rng.normal(size=[batch, hidden])) for _ in range(2)]
    weights = [tf.constant(rng.normal(size=[batch, time, hidden]))]
    weights += [tf.constant(rng.normal(size=[batch, hidden])) for _ in range(2)]

    def by_keras():
        return layer(x, initial_state=states, mask=mask)

    def by_op():
        kernel, recurrent_kernel, bias = layer.trainable_variables
        wx = tf.reshape(tf.matmul(x, kernel) + bias, [batch, time, 1, 4, hidden])
        recurrent_kernel = tf.reshape(recurrent_kernel, [1, hidden, 4, hidden])
        y, (h, c) = ops.lstm(wx, recurrent_kernel, [s[:, None] for s in states], mask=mask)
        return y[:, :, 0], h[:, 0], c[:, 0]

    results = []
    for function in (by_keras, by_op):
        with tf.GradientTape() as tape:
            tape.watch([x, *states])
            outputs = function()
            terms = [tf.reduce_sum(w * v) for w, v in zip(weights, outputs, strict=True)]
            loss = tf.add_n(terms)
        sources = [x, *states, *[v.value for v in layer.trainable_variables]]
        results.append([*outputs, *tape.gradient(loss, sources)])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
