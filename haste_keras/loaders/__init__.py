"""Weights that other libraries trained, as the layers of this package take them.

Each function takes arrays (NumPy, or what NumPy can read; of PyTorch any tensor) and returns the
list for `set_weights` of the layer that computes the same; build the layer first. For two
directions give the layer both lists, `forward + backward`; `torch` joins them itself.

    layer = haste_keras.LSTM(units, return_sequences=True)
    layer.build((None, None, features))
    layer.set_weights(loaders.haste_tf("LSTM", {"kernel": kernel, "bias": bias}))

Columns of gates, theirs → ours:

    torch LSTM    i, f, g, o: the same            torch GRU     r, z, n → z, r, g
    Haste LSTM    i, g, f, o → i, f, g, o         Haste GRU     z, r, h: the same
    FlashRNN lstm i, f, z, o: the same            FlashRNN gru  r, z, n → z, r, g
    pytorch-qrnn  z, f, o, with f the share of the new → z, f, o, with f the share of the old
"""

from haste_keras.loaders.flash import flashrnn
from haste_keras.loaders.haste import haste_pytorch, haste_tf
from haste_keras.loaders.quasi_recurrent import pytorch_qrnn
from haste_keras.loaders.torch_nn import torch

__all__ = ["flashrnn", "haste_pytorch", "haste_tf", "pytorch_qrnn", "torch"]
