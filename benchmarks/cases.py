"""The cases of the benchmarks: our layers against those of Keras, with the same weights."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import haste_keras


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer of ours and its peers; both are called with units and Keras's arguments.

    peer: the same function in Keras: its own layer, or its loop over our step-wise cell.
    gates, saved: tensors of H in the reserve of a step. kernels: how many [C, G·H] or [H, G·H]
    products a step takes, of x and of h. other: another layer to time, and its name.
    """

    ours: Callable
    peer: Callable
    gates: int
    saved: int
    kernels: tuple[int, int] = (1, 1)
    other: tuple[str, Callable] | None = None


def _loop(cell):
    """Keras's own loop over a step-wise cell of ours, as a layer."""

    def build(units, return_sequences, **arguments):
        return keras.layers.RNN(cell(units, **arguments), return_sequences=return_sequences)

    return build


LAYERS = {
    "LSTM": Case(haste_keras.LSTM, keras.layers.LSTM, 4, 2),
    "GRU": Case(haste_keras.GRU, keras.layers.GRU, 3, 2),
    "GRU-before": Case(
        functools.partial(haste_keras.GRU, reset_after=False),
        functools.partial(keras.layers.GRU, reset_after=False),
        3,
        2,
    ),
    "LiGRU": Case(
        haste_keras.LiGRU, _loop(haste_keras.LiGRUCell), 2, 1, other=("our GRU", haste_keras.GRU)
    ),
    "Elman": Case(haste_keras.Elman, keras.layers.SimpleRNN, 1, 1),
    "SLSTM": Case(haste_keras.SLSTM, _loop(haste_keras.SLSTMCell), 4, 4),
    "LN-LSTM": Case(
        haste_keras.LayerNormLSTM,
        _loop(haste_keras.LayerNormLSTMCell),
        12,
        2,
        other=("our LSTM", haste_keras.LSTM),
    ),
    "LN-GRU": Case(
        haste_keras.LayerNormGRU,
        _loop(haste_keras.LayerNormGRUCell),
        9,
        2,
        other=("our GRU", haste_keras.GRU),
    ),
    "IndRNN": Case(haste_keras.IndRNN, _loop(haste_keras.IndRNNCell), 1, 1, kernels=(1, 0)),
    "LN-IndRNN": Case(
        haste_keras.LayerNormIndRNN,
        _loop(haste_keras.LayerNormIndRNNCell),
        2,
        1,
        kernels=(1, 0),
    ),
    "QRNN": Case(
        haste_keras.QRNN,
        _loop(haste_keras.QRNNCell),
        3,
        1,
        kernels=(1, 0),
        other=("Keras LSTM", keras.layers.LSTM),
    ),
    "MinGRU": Case(
        haste_keras.MinGRU,
        _loop(haste_keras.MinGRUCell),
        2,
        1,
        kernels=(1, 0),
        other=("Keras GRU", keras.layers.GRU),
    ),
    "MinLSTM": Case(
        haste_keras.MinLSTM,
        _loop(haste_keras.MinLSTMCell),
        3,
        1,
        kernels=(1, 0),
        other=("Keras LSTM", keras.layers.LSTM),
    ),
}


def make_functions(layer, x, target, mask=None, jit_compile=None):
    """Inference and training step of a layer, each a tf.function of no arguments."""

    @tf.function(jit_compile=jit_compile)
    def infer():
        return layer(x, mask=mask, training=False)

    @tf.function(jit_compile=jit_compile)
    def train():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(layer(x, mask=mask, training=True), target.dtype)
            loss = tf.reduce_sum(y * target)
        return tape.gradient(loss, [x, *layer.trainable_weights])

    return infer, train


def make_layers(name, n, t, c, h, **arguments):
    """x, target, and [ours, the peer on the same weights, `other` where there is one]."""
    case = LAYERS[name]
    keras.utils.set_random_seed(n + h)
    x = tf.random.normal((n, t, c))
    target = tf.random.normal((n, t, h)) / (n * t)

    def make(build):
        layer = build(h, return_sequences=True, **arguments)
        layer(x)
        return layer

    ours, peer = make(case.ours), make(case.peer)
    # With gamma = 1 layer normalisation makes a random recurrence chaotic: rounding errors grow at
    # each step, and after some hundreds no comparison is possible.
    for weight in peer.weights:
        if weight.name == "gamma":
            weight.assign(0.1 * weight)
    ours.set_weights(peer.get_weights())
    return x, target, [ours, peer] + ([make(case.other[1])] if case.other else [])


def make_case(name, n, t, c, h, mask=None, **arguments):
    """(inference, training step) of ours, of the peer on the same weights, of `other` or None."""
    x, target, layers = make_layers(name, n, t, c, h, **arguments)
    functions = [make_functions(layer, x, target, mask) for layer in layers]
    return functions if len(functions) == 3 else [*functions, None]


def check(ours, peer, where, tolerance=1e-4):
    """Exits if a result differs from the peer's by more than `tolerance` of its scale."""
    for got, want in zip(tf.nest.flatten(ours()), tf.nest.flatten(peer()), strict=True):
        got, want = (tf.cast(tensor, tf.float32).numpy() for tensor in (got, want))
        error = float(np.abs(got - want).max() / (np.abs(want).max() + 1e-12))
        if not error < tolerance:
            raise SystemExit(f"{where}: differs by {error:.1e} of the largest value")


def blocking(function):
    """`function`, but it returns only when its results are computed."""

    def call():
        function()
        tf.test.experimental.sync_devices()

    return call


def gates_of(name):
    """Gates of the cell: columns of a kernel over units."""
    return len(LAYERS[name].ours(1).cell.spec.gates)


def multiply_adds(name, n, t, c, h, of_x=True):
    """Of a forward pass; a training step has three times as many. of_x: those of x·W too."""
    inputs, states = LAYERS[name].kernels
    return n * t * gates_of(name) * h * (of_x * inputs * c + states * h)


def make_surroundings(name, n, t, c, h):
    """A training step without its recurrence: the products and sums over all steps together.

    None for a layer whose recurrence is not a single product with h.
    """
    if name not in ("LSTM", "GRU", "Elman", "SLSTM"):
        return None
    width = gates_of(name) * h
    shapes = {"x": (n * t, c), "states": (n * t, h), "kernel": (c, width), "bias": (width,)}
    x, states, kernel, bias = (tf.random.normal(shape) for shape in shapes.values())

    @tf.function
    def step():
        # The inputs of the recurrence are used as its results.
        d = tf.nn.bias_add(tf.matmul(x, kernel), bias)
        return (
            tf.matmul(d, kernel, transpose_b=True),
            tf.matmul(x, d, transpose_a=True),
            tf.matmul(states, d, transpose_a=True),
            tf.raw_ops.BiasAddGrad(out_backprop=d),
        )

    return step


def memory_budget(name, n, t, c, h):
    """Bytes: reserve + inputs, outputs and all gradients + one recurrent kernel."""
    case, gates = LAYERS[name], gates_of(name)
    reserve = n * t * (case.gates + case.saved) * h
    inputs_outputs = 2 * n * t * (c + h)
    weight_gradients = gates * h * (c + h + 1)
    return 4 * (reserve + inputs_outputs + weight_gradients + gates * h * h)
