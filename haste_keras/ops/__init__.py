"""Functional form: the recurrences alone, on projected inputs. The layers are made of these.

N batch, T time, K lanes (independent recurrences: heads × directions), H hidden units a lane, G
gates. A function takes wx = x·W + b for all steps at once and walks time; products with W and their
gradients stay outside, where TensorFlow does them best.
"""

import tensorflow as tf

from haste_keras.ops import gradients, vectorize  # noqa: F401  (register by import)
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.bias import add_bias
from haste_keras.ops.dense import elman, gru, lstm, slstm
from haste_keras.ops.normalization import layer_norm, layer_norm_gru, layer_norm_lstm
from haste_keras.ops.pooling import forget_mult, indrnn, qrnn
from haste_keras.ops.shapes import sizes

__all__ = [
    "elman",
    "forget_mult",
    "gru",
    "indrnn",
    "layer_norm",
    "layer_norm_gru",
    "layer_norm_lstm",
    "lstm",
    "qrnn",
    "recurrence",
    "slstm",
]

_FUNCTIONS = {"lstm": (lstm, 4), "gru": (gru, 3), "elman": (elman, 1), "slstm": (slstm, 4)}


def recurrence(function, wx, recurrent_kernel, bias=None, initial_state=None, **options):
    """Any recurrence with a matrix, by name: for programs that choose it at run time.

    Every lane is a head with a recurrent matrix of its own.

    Args:
      function: "lstm", "gru", "elman" or "slstm".
      wx: [N, T, K, G, H], projected input without its bias.
      recurrent_kernel: [K, H, G, H] of wx's dtype.
      bias: [K, G, H] of wx's dtype, added to wx; None: none.
      initial_state: tuple of the cell's states, each [N, K, H] of wx's dtype; None: zeros.
      options: of the function that bears the name.

    Returns:
      y, states: y [N, T, K, H], h of each step; states, each [N, K, H], after the walk's last.

    Raises:
      ValueError: function is none of these.
      Others: as the function raises.
    """
    arguments = Arguments("recurrence", None)
    operation, gates = _FUNCTIONS[arguments.choice("function", function, tuple(_FUNCTIONS))]
    if bias is not None:
        arguments.sizes["G"] = gates
        wx = arguments.tensor("wx", wx, "NTKGH")
        bias = arguments.tensor("bias", bias, "KGH")
        shape = sizes(wx)
        columns = shape[2] * shape[3] * shape[4]
        wx = tf.reshape(add_bias(tf.reshape(wx, [-1, columns]), tf.reshape(bias, [-1])), shape)
    return operation(wx, recurrent_kernel, initial_state, **options)
