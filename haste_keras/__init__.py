"""Fused recurrent layers for TensorFlow and Keras: `haste_keras.LSTM` for `keras.layers.LSTM`."""

from haste_keras.native import library as _library

# First of all, so that whatever is missing is said in one sentence, and so that a process that
# loads a SavedModel need import nothing else.
_library.check_keras()
_library.load()

from haste_keras import loaders, ops  # noqa: E402
from haste_keras.convert import from_keras, to_keras  # noqa: E402
from haste_keras.explain import explain  # noqa: E402
from haste_keras.formats import to_litert, to_onnx  # noqa: E402
from haste_keras.layers import (  # noqa: E402
    GRU,
    LSTM,
    QRNN,
    SLSTM,
    AbsoluteMax,
    Elman,
    ElmanCell,
    ForgetMult,
    GRUCell,
    IndRNN,
    IndRNNCell,
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormIndRNN,
    LayerNormIndRNNCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LiGRU,
    LiGRUCell,
    LSTMCell,
    MinGRU,
    MinGRUCell,
    MinLSTM,
    MinLSTMCell,
    QRNNCell,
    SimpleRNN,
    SimpleRNNCell,
    SLSTMCell,
)
from haste_keras.serving import export, portable  # noqa: E402

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
    "explain",
    "export",
    "from_keras",
    "library_path",
    "loaders",
    "ops",
    "portable",
    "to_keras",
    "to_litert",
    "to_onnx",
]


def library_path():
    """Path of the op library, for programs that load it themselves: C++ servers, other bindings."""
    return str(_library.LIBRARY)
