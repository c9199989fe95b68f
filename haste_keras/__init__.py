"""Fused recurrent layers for TensorFlow and Keras: `haste_keras.LSTM` for `keras.layers.LSTM`."""

from haste_keras import _library

# First of all, so that whatever is missing is said in one sentence, and so that a process that
# loads a SavedModel need import nothing else.
_library.check_keras()
_library.load()

from haste_keras import loaders, ops  # noqa: E402
from haste_keras.convert import from_keras, to_keras  # noqa: E402
from haste_keras.elman import Elman, ElmanCell, SimpleRNN, SimpleRNNCell  # noqa: E402
from haste_keras.explain import explain  # noqa: E402
from haste_keras.forget_mult import ForgetMult  # noqa: E402
from haste_keras.gru import GRU, GRUCell  # noqa: E402
from haste_keras.indrnn import AbsoluteMax, IndRNN, IndRNNCell  # noqa: E402
from haste_keras.layer_norm_gru import LayerNormGRU, LayerNormGRUCell  # noqa: E402
from haste_keras.layer_norm_indrnn import LayerNormIndRNN, LayerNormIndRNNCell  # noqa: E402
from haste_keras.layer_norm_lstm import LayerNormLSTM, LayerNormLSTMCell  # noqa: E402
from haste_keras.lstm import LSTM, LSTMCell  # noqa: E402
from haste_keras.qrnn import QRNN, QRNNCell  # noqa: E402
from haste_keras.slstm import SLSTM, SLSTMCell  # noqa: E402

__version__ = _library.version()
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
    "QRNNCell",
    "SLSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "explain",
    "from_keras",
    "library_path",
    "loaders",
    "ops",
    "to_keras",
]


def library_path():
    """Path of the op library, for programs that load it themselves: C++ servers, other bindings."""
    return str(_library.LIBRARY)
