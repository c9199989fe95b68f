"""libhaste.so's C ABI (lib/haste/c_api.h) on torch tensors: what the GPU tests and benchmarks call.

Tensors live on the GPU and keep the shapes of the header: N batch, T time, K lanes, G gates,
H hidden units, C features. Sizes and dtype are read off them.
"""

import ctypes
import os
import pathlib

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATES = 2  # h, c
MAX_STATES = 4
CUDA = 1
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
ACTIVATIONS = {"tanh": 0, "sigmoid": 1, "relu": 2, "hard_sigmoid": 3, "linear": 4}

_p = ctypes.c_void_p
_i32 = ctypes.c_int32
_i64 = ctypes.c_int64
_f32 = ctypes.c_float


class Status(ctypes.Structure):
    _fields_ = [("code", _i32), ("message", ctypes.c_char * 508)]


class RnnConfig(ctypes.Structure):
    _fields_ = [
        ("cell", ctypes.c_char_p),
        ("engine", ctypes.c_char_p),
        ("dtype", _i32),
        ("device", _i32),
        ("batch", _i64),
        ("time", _i64),
        ("lanes", _i64),
        ("hidden", _i64),
        ("reverse", ctypes.POINTER(ctypes.c_uint8)),
        ("activation", _i32),
        ("recurrent_activation", _i32),
        ("training", _i32),
        ("zero_output_for_mask", _i32),
        ("zoneout", _f32 * MAX_STATES),
        ("recurrent_dropout", _f32),
    ]


class RnnForwardArgs(ctypes.Structure):
    _fields_ = [
        ("wx", _p),
        ("R", _p),
        ("s0", _p * MAX_STATES),
        ("mask", _p),
        ("seed", _p),
        ("y", _p),
        ("sT", _p * MAX_STATES),
        ("gates", _p),
        ("states", _p * MAX_STATES),
    ]


class RnnBackwardArgs(ctypes.Structure):
    _fields_ = [
        ("R", _p),
        ("mask", _p),
        ("seed", _p),
        ("gates", _p),
        ("states", _p * MAX_STATES),
        ("dy", _p),
        ("dsT", _p * MAX_STATES),
        ("dwx", _p),
        ("ds0", _p * MAX_STATES),
    ]


class Executor(ctypes.Structure):
    _fields_ = [("stream", _p), ("threads", _i32), ("schedule", _p), ("pool", _p)]


class Gemm(ctypes.Structure):
    _fields_ = [
        ("dtype", _i32),
        ("device", _i32),
        ("m", _i64),
        ("n", _i64),
        ("k", _i64),
        ("a", _p),
        ("a_row", _i64),
        ("a_col", _i64),
        ("b", _p),
        ("b_row", _i64),
        ("b_col", _i64),
        ("c", _p),
        ("c_row", _i64),
        ("bias", _p),
    ]


class LayerForwardArgs(ctypes.Structure):
    _fields_ = [("features", _i64), ("x", _p), ("W", _p), ("b", _p), ("wx", _p)]


class LayerBackwardArgs(ctypes.Structure):
    _fields_ = [
        ("features", _i64),
        ("x", _p),
        ("W", _p),
        ("dx", _p),
        ("dW", _p),
        ("db", _p),
        ("dR", _p),
    ]


def library_path():
    """HASTE_LIBRARY, or the library that the build leaves in the package; None if there is none."""
    named = os.environ.get("HASTE_LIBRARY")
    path = pathlib.Path(named) if named else ROOT / "haste_keras" / "libhaste.so"
    return path if path.exists() else None


class Library:
    """The C ABI; a call that fails raises RuntimeError with the status's message."""

    def __init__(self, path):
        self._lib = ctypes.CDLL(str(path))
        self._lib.haste_has_cuda.restype = _i32

    def has_cuda(self):
        return bool(self._lib.haste_has_cuda())

    def call(self, name, *args):
        status = Status()
        code = getattr(self._lib, name)(*args, ctypes.byref(status))
        if code != 0:
            raise RuntimeError(f"{name}: {status.message.decode()}")

    def cuda_status(self):
        self.call("haste_cuda_status")

    def config(self, wx, **options):
        """The RnnConfig of wx [N, T, K, G, H] and of options named as in the header."""
        n, t, k, _, h = wx.shape
        config = RnnConfig(cell=b"lstm", engine=b"auto", dtype=DTYPES[wx.dtype], device=CUDA)
        config.batch, config.time, config.lanes, config.hidden = n, t, k, h
        reverse = options.pop("reverse", None)
        if reverse is not None:
            config.reverse = (ctypes.c_uint8 * k)(*[int(r) for r in reverse])
        config.activation = ACTIVATIONS[options.pop("activation", "tanh")]
        config.recurrent_activation = ACTIVATIONS[options.pop("recurrent_activation", "sigmoid")]
        config.zoneout = (_f32 * MAX_STATES)(*options.pop("zoneout", (0.0, 0.0)))
        for name, value in options.items():
            setattr(config, name, value)
        return config

    def workspace(self, config, backward):
        """Scratch memory of one call, filled with NaN: nothing may be read before it is written."""
        size = ctypes.c_size_t()
        self.call(
            "haste_rnn_workspace_bytes",
            ctypes.byref(config),
            int(backward),
            ctypes.byref(executor()),
            ctypes.byref(size),
        )
        return torch.full((size.value,), 0xFF, dtype=torch.uint8, device="cuda")

    def forward(self, config, wx, kernel, *, y, workspace, **tensors):
        """haste_rnn_forward; tensors: s0, sT, states (pairs), mask, seed, gates, each or None."""
        args = RnnForwardArgs(wx=_at(wx), R=_at(kernel), y=_at(y))
        _set(args, tensors)
        self.call(
            "haste_rnn_forward",
            ctypes.byref(config),
            ctypes.byref(args),
            _p(_at(workspace)),
            ctypes.byref(executor()),
        )

    def backward(self, config, kernel, *, workspace, **tensors):
        """haste_rnn_backward; tensors: gates, states, dwx; dy, dsT, ds0, mask, seed or None."""
        args = RnnBackwardArgs(R=_at(kernel))
        _set(args, tensors)
        self.call(
            "haste_rnn_backward",
            ctypes.byref(config),
            ctypes.byref(args),
            _p(_at(workspace)),
            ctypes.byref(executor()),
        )
        return args

    def layer_forward(self, config, x, kernel, bias, recurrent, *, wx, y, workspace, **tensors):
        """haste_layer_forward of x [N, T, C], kernel [C, K, G, H], bias [K, G, H] or None."""
        layer = LayerForwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel), b=_at(bias))
        layer.wx = _at(wx)
        args = RnnForwardArgs(R=_at(recurrent), y=_at(y))
        _set(args, tensors)
        self.call(
            "haste_layer_forward",
            ctypes.byref(config),
            ctypes.byref(layer),
            ctypes.byref(args),
            _p(_at(workspace)),
            ctypes.byref(executor()),
        )

    def layer_backward(self, config, x, kernel, recurrent, *, gradients, workspace, **tensors):
        """haste_layer_backward; gradients: {"dx", "dW", "db", "dR"} to be written."""
        layer = LayerBackwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel))
        for name, tensor in gradients.items():
            setattr(layer, name, _at(tensor))
        args = RnnBackwardArgs(R=_at(recurrent))
        _set(args, tensors)
        self.call(
            "haste_layer_backward",
            ctypes.byref(config),
            ctypes.byref(layer),
            ctypes.byref(args),
            _p(_at(workspace)),
            ctypes.byref(executor()),
        )

    def gemm(self, a, b, c, bias=None):
        """c = a·b + bias, of any views a [m, k] and b [k, n]; the columns of c are contiguous."""
        g = Gemm(dtype=DTYPES[a.dtype], device=CUDA, m=a.shape[0], n=b.shape[1], k=a.shape[1])
        g.a, g.a_row, g.a_col = _at(a), a.stride(0), a.stride(1)
        g.b, g.b_row, g.b_col = _at(b), b.stride(0), b.stride(1)
        g.c, g.c_row, g.bias = _at(c), c.stride(0), _at(bias)
        self.call("haste_gemm", ctypes.byref(g), ctypes.byref(executor()))


def executor():
    """Runs on torch's current stream."""
    return Executor(stream=torch.cuda.current_stream().cuda_stream)


def _at(tensor):
    return None if tensor is None else tensor.data_ptr()


def _set(args, tensors):
    for name, value in tensors.items():
        if isinstance(value, (tuple, list)):
            pointers = [_at(tensor) for tensor in value]
            setattr(args, name, (_p * MAX_STATES)(*pointers))
        else:
            setattr(args, name, _at(value))
