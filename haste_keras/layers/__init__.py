"""The Keras layers and their cells; `haste_keras` has all of these names."""

from haste_keras.layers.elman import Elman, ElmanCell, SimpleRNN, SimpleRNNCell
from haste_keras.layers.forget_mult import ForgetMult
from haste_keras.layers.gru import GRU, GRUCell
from haste_keras.layers.indrnn import AbsoluteMax, IndRNN, IndRNNCell
from haste_keras.layers.layer_norm_gru import LayerNormGRU, LayerNormGRUCell
from haste_keras.layers.layer_norm_indrnn import LayerNormIndRNN, LayerNormIndRNNCell
from haste_keras.layers.layer_norm_lstm import LayerNormLSTM, LayerNormLSTMCell
from haste_keras.layers.ligru import LiGRU, LiGRUCell
from haste_keras.layers.lstm import LSTM, LSTMCell
from haste_keras.layers.min_rnn import MinGRU, MinGRUCell, MinLSTM, MinLSTMCell
from haste_keras.layers.qrnn import QRNN, QRNNCell
from haste_keras.layers.slstm import SLSTM, SLSTMCell

__all__ = [
    "GRU",
    "LSTM",
    "QRNN",
    "SLSTM",
    "AbsoluteMax",
    "Elman",
    "ElmanCell",
    "ForgetMult",
    "GRUCell",
    "IndRNN",
    "IndRNNCell",
    "LSTMCell",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormIndRNN",
    "LayerNormIndRNNCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LiGRU",
    "LiGRUCell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "QRNNCell",
    "SLSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
]
