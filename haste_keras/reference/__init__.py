"""The oracle: every op of `haste_keras.ops` as a readable loop in float64, by TensorFlow and NumPy.

Every feature of the ops, none of their code: lanes, directions, any mask, Zoneout and recurrent
dropout drawn by NumPy's own Philox arithmetic. The functions have the names and the arguments of
the ops (but `engine` and `save`), take eager tensors of any float type, cast them to float64, and
are differentiated by `tf.GradientTape`. Slow.
"""

from haste_keras.reference.cells import (
    ACTIVATIONS,
    elman,
    forget_mult,
    gru,
    indrnn,
    layer_norm,
    layer_norm_gru,
    layer_norm_lstm,
    ligru,
    lstm,
    mingru,
    minlstm,
    qrnn,
    slstm,
)
from haste_keras.reference.random import (
    draw,
    dropout_scale,
    philox,
    philox_key,
    zoneout_draws,
)

__all__ = [
    "ACTIVATIONS",
    "draw",
    "dropout_scale",
    "elman",
    "forget_mult",
    "gru",
    "indrnn",
    "layer_norm",
    "layer_norm_gru",
    "layer_norm_lstm",
    "ligru",
    "lstm",
    "mingru",
    "minlstm",
    "philox",
    "philox_key",
    "qrnn",
    "slstm",
    "zoneout_draws",
]
