"""The ops give the results of the layers of `keras.layers`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops, reference

SEED = (7, 8)
ROWS = {
    "lstm": (keras.layers.LSTM, {}, ops.lstm, 4),
    "gru": (keras.layers.GRU, {}, ops.gru, 3),
    "gru_reset_before": (keras.layers.GRU, {"reset_after": False}, ops.gru, 3),
    "elman": (keras.layers.SimpleRNN, {}, ops.elman, 1),
}


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(("stock", "options", "op", "gates"), ROWS.values(), ids=ROWS.keys())
def test_matches_keras(rng, stock, options, op, gates, rate):
    batch, time, features, hidden = 3, 7, 5, 6
    implementation = {"implementation": 1} if rate and gates > 1 else {}  # a mask for each gate
    layer = stock(
        hidden,
        return_sequences=True,
        return_state=True,
        dtype="float64",
        bias_initializer="random_normal",
        recurrent_dropout=rate,
        **options,
        **implementation,
    )
    noise = {"recurrent_dropout": rate, "training": True, "seed": SEED} if rate else {}
    if rate:  # Keras with the op's mask
        scale = tf.constant(reference.dropout_scale(SEED, (batch, 1, hidden), rate)[:, 0])
        several = hasattr(layer.cell, "dropout_mask_count")
        if op is ops.gru and not several:
            pytest.skip(f"Keras {keras.__version__} drops units of h in z∘h too")
        masks = [scale] * gates if several else scale
        layer.cell.get_recurrent_dropout_mask = lambda h: masks
    x = tf.constant(rng.normal(size=[batch, time, features]))
    mask = tf.constant(rng.random([batch, time]) < 0.7)
    states = [tf.constant(rng.normal(size=[batch, hidden])) for _ in range(1 + (op is ops.lstm))]
    weights = [tf.constant(rng.normal(size=[batch, time, hidden]))]
    weights += [tf.constant(rng.normal(size=[batch, hidden])) for _ in states]

    def by_keras():
        return layer(x, initial_state=states, mask=mask, training=rate > 0)

    def by_op():
        kernel, recurrent_kernel, bias = layer.trainable_variables
        more = options | noise
        if bias.shape.rank == 2:  # GRU that resets after the product
            bias, recurrent_bias = tf.unstack(bias)
            more["recurrent_bias"] = tf.reshape(recurrent_bias, [1, gates, hidden])
        wx = tf.reshape(tf.matmul(x, kernel) + bias, [batch, time, 1, gates, hidden])
        recurrent_kernel = tf.reshape(recurrent_kernel, [1, hidden, gates, hidden])
        y, last = op(wx, recurrent_kernel, [s[:, None] for s in states], mask=mask, **more)
        return y[:, :, 0], *(state[:, 0] for state in last)

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
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
