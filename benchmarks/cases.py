"""The pairs of layers that benchmarks compare: ours and Keras's with the same weights."""

import keras
import numpy as np
import tensorflow as tf

import haste_keras

# ours, the peer, the gates of a unit, the states that backward reads
LAYERS = {"LSTM": (haste_keras.LSTM, keras.layers.LSTM, 4, 2)}


def make_functions(layer, x, target, mask=None):
    """Inference and training step of a layer, each a tf.function of no arguments."""

    @tf.function
    def infer():
        return layer(x, mask=mask, training=False)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(layer(x, mask=mask, training=True), target.dtype)
            loss = tf.reduce_sum(y * target)
        return tape.gradient(loss, [x, *layer.trainable_weights])

    return infer, train


def make_case(name, n, t, c, h, mask=None, **arguments):
    """((inference, training step) of ours, the same of the peer), on the same weights and input."""
    ours_class, peer_class, _, _ = LAYERS[name]
    keras.utils.set_random_seed(n + h)
    ours, peer = (cls(h, return_sequences=True, **arguments) for cls in (ours_class, peer_class))
    x = tf.random.normal((n, t, c))
    target = tf.random.normal((n, t, h)) / (n * t)
    ours(x)
    peer(x)
    ours.set_weights(peer.get_weights())
    return make_functions(ours, x, target, mask), make_functions(peer, x, target, mask)


def check(ours, peer, where, tolerance=1e-4):
    """Refuses to go on if a result differs from the peer's by over `tolerance` of its scale."""
    for got, want in zip(tf.nest.flatten(ours()), tf.nest.flatten(peer()), strict=True):
        got, want = (tf.cast(tensor, tf.float32).numpy() for tensor in (got, want))
        error = float(np.abs(got - want).max() / (np.abs(want).max() + 1e-12))
        if not error < tolerance:
            raise SystemExit(f"{where}: differs from Keras by {error:.1e} of the largest value")


def blocking(function):
    """`function`, returning when its results are there."""

    def call():
        function()
        tf.test.experimental.sync_devices()

    return call


def memory_budget(name, n, t, c, h):
    """Bytes: reserve + inputs, outputs and all gradients + one recurrent kernel."""
    _, _, gates, states = LAYERS[name]
    reserve = n * t * (gates + states) * h
    inputs_outputs = 2 * n * t * (c + h)
    weight_gradients = gates * h * (c + h + 1)
    return 4 * (reserve + inputs_outputs + weight_gradients + gates * h * h)
