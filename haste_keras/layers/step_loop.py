"""What a layer does where XLA compiles: the fused ops have no XLA kernel.

Keras asks `supports_jit` and leaves such a model uncompiled. This is for the functions that a
user marks `tf.function(jit_compile=True)` by hand: they get the same layer as Keras's own loop of
steps over the same weights, and a warning.
"""

import warnings

import tensorflow as tf

from haste_keras._compat import keras_loop
from haste_keras.ops.shapes import size


def warn(name):
    """Says that steps of `name` run in place of its op."""
    warnings.warn(
        "XLA compiles this function, and the fused ops have no kernel for XLA: Keras's loop over "
        f"{name} runs in their place. The result is the same, but dropout, DropConnect and Zoneout "
        "draw other numbers. For speed leave jit_compile unset.",
        stacklevel=3,
    )


def loop_of_steps(cell, sequences, states, *, training, **options):
    """`keras.layers.RNN`'s loop over `cell`: sequences [N, T, C], states a list of [N, units].

    Returns last output [N, units], outputs in walking order, states. `options` go to Keras's loop.
    """
    warn(type(cell).__name__)
    if sequences.shape[1] == 0:  # Keras's loop reads step 0
        outputs = tf.zeros([size(sequences, 0), 0, cell.units], sequences.dtype)
        return tf.zeros_like(states[0]), outputs, states
    cell.get_dropout_mask(sequences[:, 0, :])
    cell.get_recurrent_dropout_mask(states[0])
    result = keras_loop(
        lambda inputs, states: cell(inputs, states, training=training),
        sequences,
        states,
        input_length=sequences.shape[1],
        **options,
    )
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
    return result
