"""Keras's own loop over the cell, where a layer cannot run its fused op.

The result is the same; the warning says what it costs. What is drawn (dropout, DropConnect,
Zoneout) are other numbers than the op's.
"""

import warnings

import tensorflow as tf

from haste_keras._compat import has_tangents, keras_loop, xla_compiles_here
from haste_keras.layers.base.activation import name_of
from haste_keras.native import library
from haste_keras.native.cell_spec import ACTIVATIONS
from haste_keras.ops.shapes import size

# Reasons to run the loop. Where XLA cannot run the ops, Keras, which asks `supports_jit`, leaves a
# model uncompiled: XLA is met in functions that a user marks `tf.function(jit_compile=True)`.
XLA = "XLA compiles this function, and cannot run the fused ops here"
FORWARD_MODE = "the fused ops have no derivative for tf.autodiff.ForwardAccumulator"
ACTIVATION = f"the fused kernels have no activations but {', '.join(ACTIVATIONS)}"

_ADVICE = {
    XLA: "For speed leave jit_compile unset; `python -m haste_keras.check` says why.",
    FORWARD_MODE: "For speed use a tf.GradientTape.",
    ACTIVATION: "For speed use one of these.",
}


def xla_lacks_ops():
    """Whether XLA compiles the function that is being traced, and cannot run our ops in it."""
    return xla_compiles_here() and not library.xla_here()[0]


def why(cell, tensors):
    """Why the cell runs step by step, in place of its op on `tensors`; None: it does not."""
    if cell.unfused:
        return ACTIVATION
    if xla_lacks_ops():
        return XLA
    return FORWARD_MODE if has_tangents(tf.nest.flatten(tensors)) else None


def warn(layer, reason):
    """Says that Keras's loop runs in place of the op of `layer`, why, and what it costs."""
    unfused = getattr(layer, "cell", layer)
    chosen = ", ".join(
        f"{argument}={name_of(function)}"
        for argument, function in getattr(unfused, "unfused", {}).items()
    )
    name = f"{type(layer).__name__} layer {layer.name}" + (f" ({chosen})" if chosen else "")
    warnings.warn(
        f"{name} runs Keras's loop over its cell, at the speed of Keras's layers (on a CPU its op "
        f"is up to ten times as fast): {reason}. The result is the same, but dropout, DropConnect "
        f"and Zoneout draw other numbers. {_ADVICE[reason]}",
        stacklevel=3,
    )


def loop(step, sequences, states, *, mask, **options):
    """Keras's loop over `step`, which may have no step at all.

    Args:
      step: (inputs [N, ...], states) → output, states.
      sequences: [N, T, ...].
      states: list of [N, ...].
      mask: [N, T] or None.
      options: of Keras's loop.
    Returns:
      last output, outputs in walking order, states.
    """
    time = size(sequences, 1)
    if isinstance(time, int):
        return keras_loop(step, sequences, states, mask=mask, input_length=time, **options)
    # Keras's loop reads step 0: where there is none, it gets one, and its results are dropped.
    empty = tf.equal(time, 0)
    pad = [[0, 0], [0, tf.cast(empty, tf.int32)]]
    sequences = tf.pad(sequences, pad + [[0, 0]] * (sequences.shape.rank - 2))
    mask = None if mask is None else tf.pad(mask, pad)
    last, outputs, new = keras_loop(step, sequences, states, mask=mask, **options)
    new = [tf.where(empty, old, state) for old, state in zip(states, new, strict=True)]
    return tf.where(empty, tf.zeros_like(last), last), outputs[:, :time], new


def loop_of_steps(cell, sequences, states, *, training, **options):
    """`keras.layers.RNN`'s loop over `cell`: sequences [N, T, C], states a list of [N, units].

    Returns last output [N, units], outputs in walking order, states. `options` go to `loop`.
    """
    if sequences.shape[1] == 0:  # Keras's loop reads step 0
        outputs = tf.zeros([size(sequences, 0), 0, cell.units], sequences.dtype)
        return tf.zeros_like(states[0]), outputs, states
    cell.get_dropout_mask(tf.zeros([size(sequences, 0), size(sequences, 2)], sequences.dtype))
    cell.get_recurrent_dropout_mask(states[0])
    result = loop(
        lambda inputs, states: cell(inputs, states, training=training),
        sequences,
        states,
        **options,
    )
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
    return result
