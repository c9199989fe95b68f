"""Functional form: the recurrences alone, on projected inputs. The layers are made of these.

N batch, T time, K lanes (independent recurrences: heads × directions), H hidden units a lane, G
gates. A function takes wx = x·W + b for all steps at once and walks time; products with W and their
gradients stay outside, where TensorFlow does them best.
"""

import tensorflow as tf

from haste_keras.ops import gradients, vectorize  # noqa: F401  (register by import)
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.bias import add_bias
from haste_keras.ops.dense import elman, gru, ligru, lstm, slstm
from haste_keras.ops.matmul import matmul_int8
from haste_keras.ops.normalization import layer_norm, layer_norm_gru, layer_norm_lstm
from haste_keras.ops.pooling import forget_mult, indrnn, mingru, minlstm, qrnn
from haste_keras.ops.shapes import sizes

__all__ = [
    "elman",
    "forget_mult",
    "gru",
    "indrnn",
    "layer_norm",
    "layer_norm_gru",
    "layer_norm_lstm",
    "ligru",
    "lstm",
    "matmul_int8",
    "mingru",
    "minlstm",
    "qrnn",
    "recurrence",
    "slstm",
]

_FUNCTIONS = {
    "lstm": lstm,
    "gru": gru,
    "ligru": ligru,
    "elman": elman,
    "slstm": slstm,
    "layer_norm_lstm": layer_norm_lstm,
    "layer_norm_gru": layer_norm_gru,
    "indrnn": indrnn,
    "qrnn": qrnn,
    "mingru": mingru,
    "minlstm": minlstm,
}
_WITHOUT_KERNEL = {"qrnn", "mingru", "minlstm"}


def recurrence(function, wx, recurrent_kernel=None, bias=None, initial_state=None, **options):
    """Any recurrence on wx, by name: for programs that choose it at run time.

    Every lane is a head with a recurrent kernel of its own. (`forget_mult` is not among them: it
    takes two tensors in place of wx.)

    Args:
      function: "lstm", "gru", "ligru", "elman", "slstm", "layer_norm_lstm", "layer_norm_gru",
        "indrnn", "qrnn", "mingru" or "minlstm".
      wx: [N, T, K, G, H], projected input without its bias.
      recurrent_kernel: [K, H, G, H] of wx's dtype; of "indrnn" [K, 1, H]; None for
        "qrnn", "mingru" and "minlstm".
      bias: [K, G, H] of wx's dtype, added to wx; None: none.
      initial_state: tuple of the cell's states, each [N, K, H] of wx's dtype; None: zeros.
      options: keyword arguments of the function that bears the name.

    Returns:
      y, states: y [N, T, K, H], h of each step; states, each [N, K, H], after the walk's last.

    Raises:
      ValueError: function is none of these, or recurrent_kernel is not as above.
      Others: as the function raises.
    """
    arguments = Arguments("recurrence", None)
    operation = _FUNCTIONS[arguments.choice("function", function, tuple(_FUNCTIONS))]
    if (recurrent_kernel is None) != (function in _WITHOUT_KERNEL):
        expected = "None" if function in _WITHOUT_KERNEL else "a tensor"
        came = "None" if recurrent_kernel is None else type(recurrent_kernel).__name__
        raise arguments.error(
            ValueError, f"recurrent_kernel must be {expected} for {function!r}, but is {came}"
        )
    if bias is not None:
        wx = arguments.tensor("wx", wx, "NTKGH")
        bias = arguments.tensor("bias", bias, "KGH")
        shape = sizes(wx)
        columns = shape[2] * shape[3] * shape[4]
        wx = tf.reshape(add_bias(tf.reshape(wx, [-1, columns]), tf.reshape(bias, [-1])), shape)
    kernel = [] if recurrent_kernel is None else [recurrent_kernel]
    return operation(wx, *kernel, initial_state, **options)
