"""A layer of the library through its C API, with no TensorFlow in the call.

Its weights are packed once, as those of an ONNX Runtime session are.
"""

import ctypes

import ml_dtypes
import numpy as np

from haste_keras.native import binding, library

CELLS = {"LSTM": b"lstm", "GRU": b"gru"}
FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def _aligned(array, dtype):
    """A copy that begins at a multiple of 64 bytes, as memory of haste_allocate or TensorFlow does.

    NumPy's often begins 16 bytes later, where each vector of AVX-512 crosses cache lines.
    """
    array = np.asarray(array, dtype)
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Engine:
    """A layer through the C API on the CPU, on threads of the library's own.

    Args:
      name: of `CELLS`.
      weights: kernel, recurrent kernel and bias of a Keras layer, float32; or with integers in
        place of a kernel, then `scales`.
      x: [N, T, C], float32.
      dtype: of `FLOATS`; that of x, of weights that are not integers, and of the results.
      scales: of the columns of the kernel and of the recurrent kernel, both int8, or None.
    """

    def __init__(self, name, weights, x, dtype="float32", scales=None):
        kernel, recurrent_kernel, bias = weights
        float_type = FLOATS[dtype]
        x, bias = (_aligned(each, float_type) for each in (x, bias))
        matrix_type = float_type if scales is None else np.int8
        kernel, recurrent_kernel = (
            _aligned(each, matrix_type) for each in (kernel, recurrent_kernel)
        )
        n, t, c = x.shape
        hidden = recurrent_kernel.shape[0]
        self._library = library.c_api()
        self._reverse = (ctypes.c_uint8 * 1)(0)
        self._config = binding.RnnConfig(
            cell=CELLS[name],
            engine=b"auto",
            dtype=binding.DTYPES[dtype],
            weights_dtype=binding.DTYPES[dtype if scales is None else "int8"],
            batch=n,
            time=t,
            lanes=1,
            hidden=hidden,
            reverse=self._reverse,
            recurrent_activation=binding.ACTIVATIONS["sigmoid"],
        )
        self.y = _aligned(np.zeros((n, t, hidden)), float_type)
        self._kept = [x, kernel, recurrent_kernel, bias]  # the structures hold only addresses
        self._layer = binding.LayerForwardArgs(features=c, x=x.ctypes.data, W=kernel.ctypes.data)
        self._rnn = binding.RnnForwardArgs(R=recurrent_kernel.ctypes.data, y=self.y.ctypes.data)
        if scales is not None:
            scales = [_aligned(each, np.float32) for each in scales]
            self._kept += scales
            self._layer.W_scale, self._rnn.R_scale = (each.ctypes.data for each in scales)
        biases = bias.reshape(-1, bias.shape[-1])  # a GRU's: of the input and of the state
        self._layer.b = biases[0].ctypes.data
        if len(biases) > 1:
            self._rnn.extra[0] = biases[1].ctypes.data
        executor = binding.Executor()
        size = ctypes.c_size_t()
        arguments = [ctypes.byref(each) for each in (self._config, self._layer, executor, size)]
        self._library.call("haste_layer_forward_workspace_bytes", *arguments)
        self._workspace = np.empty(size.value + 64, np.uint8)
        start = -self._workspace.ctypes.data % 64
        packed = binding.PackedWeights(self._library)
        self._rnn.packed = packed.address
        self._kept += [executor, packed]
        self._arguments = (
            ctypes.byref(self._config),
            ctypes.byref(self._layer),
            ctypes.byref(self._rnn),
            ctypes.c_void_p(self._workspace.ctypes.data + start),
            ctypes.byref(executor),
        )

    def __call__(self):
        """Runs it; returns y [N, T, H], the same array each time."""
        self._library.call("haste_layer_forward", *self._arguments)
        return self.y
