"""Calls of every op, forward and gradient, that XLA compiles; for a CPU here, for tests/gpu too."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tf"))
from op_rows import ROWS

from haste_keras.native import library, raw_ops

DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
SIZES = (3, 5, 2, 4)  # batch, time, lanes, hidden
FEATURES = 6
__all__ = ["DTYPES", "ROWS", "calls", "compiled", "other_calls", "same_bits"]


def _random(rng, shape, dtype):
    return tf.constant(rng.normal(size=shape) / 2, dtype)


def _attributes(row, lanes):
    rates = [0.2] + [0.0] * (len(row.spec.states) - 1)
    dense = row.spec.recurrence != "none"
    attrs = {
        "reverse": [lane % 2 == 1 for lane in range(lanes)],
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "zoneout": rates,
        "recurrent_dropout": 0.3 if dense else 0.0,
        "training": True,
        "zero_output_for_mask": False,
        "engine": "auto",
        "allow_tf32": False,
    }
    return attrs | ({"epsilon": 1e-3} if row.spec.normalizes else {})


def calls(row, dtype, rng, sizes=SIZES):
    """{op: (function, arguments)} of the ops of a row, with a mask and all that is drawn.

    Each function runs one op and returns all of its outputs; a gradient's op is given what the
    forward op kept, and random gradients.
    """
    batch, time, lanes, hidden = sizes
    spec, attrs = row.spec, _attributes(row, lanes)
    tensors = row.inputs(rng, *sizes, dtype)
    tensors["mask"] = tf.constant(rng.random([batch, time]) < 0.7)
    tensors["seed"] = tf.constant([3, 4], tf.int64)
    gates = len(spec.gates)
    tensors["x"] = _random(rng, [batch, time, FEATURES], dtype)
    tensors["kernel"] = _random(rng, [FEATURES, lanes, gates, hidden], dtype)
    tensors["bias"] = _random(rng, [lanes, gates, hidden], dtype)
    if spec.separate_gates:
        tensors.update(row.inputs(rng, *sizes, dtype))

    def given(names):
        return [tensors[name] for name in names]

    def forward(*inputs):
        return raw_ops.forward(spec, inputs, save=True, **attrs)

    def layer(*inputs):
        return raw_ops.forward(spec, inputs, save=True, layer=True, **attrs)

    def gradient(*inputs):
        return raw_ops.backward(spec, inputs, **attrs)

    def layer_gradient(*inputs):
        wanted = [True] * len(spec.layer_gradients)
        return raw_ops.layer_backward(spec, inputs, wanted=wanted, **attrs)

    outputs = dict(zip(spec.forward_outputs, forward(*given(spec.forward_inputs)), strict=True))
    tensors.update({name: outputs[name] for name in spec.reserve})
    for name in ("y", *spec.states):
        tensors[f"d{name}"] = _random(rng, outputs[name].shape, dtype)
    made = {
        "forward": (forward, given(spec.forward_inputs)),
        "gradient": (gradient, given(spec.backward_inputs)),
    }
    if spec.has_layer_op:
        made["layer"] = (layer, given(spec.layer_inputs))
        made["layer_gradient"] = (layer_gradient, given(spec.layer_backward_inputs))
    return made


def other_calls(dtype, rng):
    """The same of the ops that are not of a cell."""
    ops = library.load()
    x, gamma, beta = (_random(rng, s, dtype) for s in ([7, 2, 5], [2, 5], [2, 5]))
    a, b, c = (_random(rng, s, dtype) for s in ([6, 4], [4, 3], [6, 3]))
    return {
        "layer_norm": (lambda *i: [ops.haste_layer_norm(*i, epsilon=1e-3)], [x, gamma, beta]),
        "layer_norm_gradient": (
            lambda *i: list(ops.haste_layer_norm_grad(*i, epsilon=1e-3)),
            [x, gamma, _random(rng, [7, 2, 5], dtype)],
        ),
        "mat_mul": (lambda *i: [ops.haste_mat_mul(*i)], [a, b]),
        "mat_mul_transpose_a": (lambda *i: [ops.haste_mat_mul_transpose_a(*i)], [a, c]),
        "mat_mul_transpose_b": (lambda *i: [ops.haste_mat_mul_transpose_b(*i)], [c, b]),
    }


def compiled(made):
    """{op: (outputs without XLA, outputs with it)}: one XLA program for all functions of `made`."""

    def everything(arguments):
        return {op: function(*arguments[op]) for op, (function, _) in made.items()}

    arguments = {op: inputs for op, (_, inputs) in made.items()}
    without = everything(arguments)
    return without, tf.function(everything, jit_compile=True)(arguments)


def same_bits(one, other):
    """Whether two lists of tensors are equal, bit by bit."""
    arrays = zip(one, other, strict=True)
    return all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() and a.shape == b.shape for a, b in arrays
    )
