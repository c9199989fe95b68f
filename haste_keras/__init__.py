"""Fused recurrent layers for TensorFlow and Keras: `haste_keras.LSTM` for `keras.layers.LSTM`."""

from haste_keras import _library

# First of all, so that whatever is missing is said in one sentence, and so that a process that
# loads a SavedModel need import nothing else.
_library.check_keras()
_library.load()

from haste_keras import ops  # noqa: E402
from haste_keras.convert import from_keras, to_keras  # noqa: E402
from haste_keras.lstm import LSTM, LSTMCell  # noqa: E402

__version__ = _library.version()
__all__ = ["LSTM", "LSTMCell", "from_keras", "library_path", "ops", "to_keras"]


def library_path():
    """Path of the op library, for programs that load it themselves: C++ servers, other bindings."""
    return str(_library.LIBRARY)
