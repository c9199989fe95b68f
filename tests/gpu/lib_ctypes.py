"""libhaste.so's C ABI (lib/haste/c_api.h) on torch tensors: what the GPU tests and benchmarks call.

Tensors live on the GPU and keep the shapes of the header: N batch, T time, K lanes, G gates,
H hidden units, C features. Sizes and dtype are read off them.
"""

import ctypes
import os
import pathlib

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_GATES = 4
MAX_STATES = 4
MAX_EXTRAS = 3
MAX_SAVED = 6
DEVICES = {"cpu": 0, "cuda": 1}
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
ACTIVATIONS = {
    "tanh": 0,
    "sigmoid": 1,
    "relu": 2,
    "hard_sigmoid": 3,
    "linear": 4,
    "exponential": 5,
}

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
        ("epsilon", _f32),
        ("allow_tf32", _i32),
    ]


class CellInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("gates", _i32),
        ("states", _i32),
        ("gate_names", ctypes.c_char_p * MAX_GATES),
        ("state_names", ctypes.c_char_p * MAX_STATES),
        ("recurrence", _i32),
        ("separate_gates", _i32),
        ("normalizes", _i32),
        ("splits_gradient", _i32),
        ("reset_gates", _i32),
        ("exponential", _i32),
        ("tied_zoneout", _i32),
        ("extras", _i32),
        ("extra_names", ctypes.c_char_p * MAX_EXTRAS),
        ("extra_dims", ctypes.c_char_p * MAX_EXTRAS),
        ("saved", _i32),
        ("saved_names", ctypes.c_char_p * MAX_SAVED),
    ]


class RnnForwardArgs(ctypes.Structure):
    _fields_ = [
        ("wx", _p),
        ("x", _p * MAX_GATES),
        ("R", _p),
        ("extra", _p * MAX_EXTRAS),
        ("s0", _p * MAX_STATES),
        ("mask", _p),
        ("seed", _p),
        ("y", _p),
        ("sT", _p * MAX_STATES),
        ("keep", _i32),
        ("gates", _p),
        ("products", _p),
        ("saved", _p * MAX_SAVED),
    ]


class RnnBackwardArgs(ctypes.Structure):
    _fields_ = [
        ("x", _p * MAX_GATES),
        ("R", _p),
        ("extra", _p * MAX_EXTRAS),
        ("mask", _p),
        ("seed", _p),
        ("gates", _p),
        ("products", _p),
        ("saved", _p * MAX_SAVED),
        ("dy", _p),
        ("dsT", _p * MAX_STATES),
        ("dwx", _p),
        ("dx", _p * MAX_GATES),
        ("dq", _p),
        ("dR", _p),
        ("dextra", _p * MAX_EXTRAS),
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
        ("allow_tf32", _i32),
    ]


class LayerForwardArgs(ctypes.Structure):
    _fields_ = [("features", _i64), *((name, _p) for name in ("x", "W", "b", "wx", "gamma", "xw"))]


class LayerBackwardArgs(ctypes.Structure):
    _fields_ = [
        ("features", _i64),
        *((name, _p) for name in ("x", "W", "dx", "dW", "db", "dR", "gamma", "xw", "dgamma")),
    ]


class Windows(ctypes.Structure):
    _fields_ = [
        ("dtype", _i32),
        ("device", _i32),
        *((name, _i64) for name in ("batch", "time", "features", "window")),
        ("reverse", _i32),
        *((name, _p) for name in ("mask", "x", "before", "seen", "after")),
    ]


class WindowsGrad(ctypes.Structure):
    _fields_ = [
        *Windows._fields_[:-4],
        *((name, _p) for name in ("dseen", "dafter", "dx", "dbefore")),
    ]


def library_path():
    """HASTE_LIBRARY, or the library that the build leaves in the package; None if there is none."""
    named = os.environ.get("HASTE_LIBRARY")
    path = pathlib.Path(named) if named else ROOT / "haste_keras" / "libhaste.so"
    return path if path.exists() else None


class Library:
    """The C ABI; a call that fails raises RuntimeError with the status's message."""

    def __init__(self, path, device="cuda"):
        self.device = device
        self._lib = ctypes.CDLL(str(path))
        self._lib.haste_has_cuda.restype = _i32
        self._lib.haste_cell.restype = ctypes.POINTER(CellInfo)

    def has_cuda(self):
        return bool(self._lib.haste_has_cuda())

    def call(self, name, *args):
        status = Status()
        code = getattr(self._lib, name)(*args, ctypes.byref(status))
        if code != 0:
            raise RuntimeError(f"{name}: {status.message.decode()}")

    def cuda_status(self):
        self.call("haste_cuda_status")

    def cell(self, name):
        """The CellInfo of the cell `name`."""
        for index in range(self._lib.haste_cell_count()):
            info = self._lib.haste_cell(index).contents
            if info.name.decode() == name:
                return info
        raise KeyError(f"{name}: libhaste has no such cell")

    def config(self, cell, wx, **options):
        """The RnnConfig of a cell, of wx [N, T, K, G, H] and of options named as in the header."""
        n, t, k, _, h = wx.shape
        config = RnnConfig(cell=cell.encode(), dtype=DTYPES[wx.dtype])
        config.engine = options.pop("engine", "auto").encode()
        config.device = DEVICES[self.device]
        config.batch, config.time, config.lanes, config.hidden = n, t, k, h
        reverse = options.pop("reverse", None)
        if reverse is not None:
            config.reverse = (ctypes.c_uint8 * k)(*[int(r) for r in reverse])
        config.activation = ACTIVATIONS[options.pop("activation", "tanh")]
        usual = "exponential" if self.cell(cell).exponential else "sigmoid"
        config.recurrent_activation = ACTIVATIONS[options.pop("recurrent_activation", usual)]
        config.zoneout = (_f32 * MAX_STATES)(*options.pop("zoneout", ()))
        for name, value in options.items():
            setattr(config, name, value)
        return config

    def plan(self, config):
        """One line: the engine that runs this, and why."""
        text = ctypes.create_string_buffer(1024)
        where = ctypes.byref(self._executor())
        self.call("haste_plan", ctypes.byref(config), where, text, ctypes.c_size_t(len(text)))
        return text.value.decode()

    def workspace(self, config, backward):
        """Scratch memory of one call, filled with NaN: nothing may be read before it is written."""
        size = ctypes.c_size_t()
        self.call(
            "haste_rnn_workspace_bytes",
            ctypes.byref(config),
            int(backward),
            ctypes.byref(self._executor()),
            ctypes.byref(size),
        )
        return self._scratch(size.value)

    def layer_workspace(self, config, features, wx=None, *, backward=False):
        """The same for `layer_forward`, with its wx, and `layer_backward`."""
        return self._scratch(self.layer_bytes(config, features, wx, backward=backward))

    def layer_bytes(self, config, features, wx=None, *, backward=False):
        """Bytes of that."""
        size = ctypes.c_size_t()
        layer = LayerBackwardArgs(features=features)
        if not backward:
            layer = LayerForwardArgs(features=features, wx=_at(wx))
        self.call(
            f"haste_layer_{'backward' if backward else 'forward'}_workspace_bytes",
            ctypes.byref(config),
            ctypes.byref(layer),
            ctypes.byref(self._executor()),
            ctypes.byref(size),
        )
        return size.value

    def _scratch(self, size):
        # 64 bytes more than that, so that a size of 0 has an address too.
        return torch.full((size + 64,), 0xFF, dtype=torch.uint8, device=self.device)

    def forward(self, config, wx, kernel, *, y, workspace, **tensors):
        """haste_rnn_forward; tensors: mask, seed, gates, or lists: s0, sT, extra, saved; or None.

        With `gates` the reserve is kept.
        """
        args = RnnForwardArgs(wx=_at(wx), R=_at(kernel), y=_at(y))
        _set(args, keep=int(tensors.get("gates") is not None), **tensors)
        self._run("haste_rnn_forward", config, args, workspace=workspace)

    def backward(self, config, kernel, *, workspace, **tensors):
        """haste_rnn_backward; tensors: dwx, dq, gates, dy, mask, seed; saved, extra, … (lists)."""
        args = RnnBackwardArgs(R=_at(kernel))
        _set(args, **tensors)
        self._run("haste_rnn_backward", config, args, workspace=workspace)

    def layer_forward(self, config, x, kernel, bias, recurrent, *, wx, y, workspace, **tensors):
        """haste_layer_forward of x [N, T, C], kernel [C, K, G, H], bias [K, G, H] or None."""
        layer = LayerForwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel), b=_at(bias))
        layer.wx = _at(wx)
        args = RnnForwardArgs(R=_at(recurrent), y=_at(y))
        _set(args, keep=int(tensors.get("gates") is not None), **tensors)
        self._run("haste_layer_forward", config, layer, args, workspace=workspace)

    def layer_backward(self, config, x, kernel, recurrent, *, gradients, workspace, **tensors):
        """haste_layer_backward; gradients: {"dx", "dW", "db", "dR"} to be written."""
        layer = LayerBackwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel))
        _set(layer, **gradients)
        args = RnnBackwardArgs(R=_at(recurrent))
        _set(args, **tensors)
        self._run("haste_layer_backward", config, layer, args, workspace=workspace)

    def gemm(self, a, b, c, bias=None, allow_tf32=False, workspace=None):
        """c = a·b + bias, of any views a [m, k] and b [k, n]; the columns of c are contiguous.

        workspace: at least as many bytes as `gemm_workspace` says; None: made for the call.
        """
        g = self._gemm_of(a, b, allow_tf32)
        g.c, g.c_row, g.bias = _at(c), c.stride(0), _at(bias)
        if workspace is None:
            workspace = self._scratch(self._gemm_workspace(g))
        where = ctypes.byref(self._executor())
        self.call("haste_gemm", ctypes.byref(g), _p(_at(workspace)), where)

    def gemm_workspace(self, a, b, allow_tf32=False):
        """Bytes of scratch memory that a·b wants."""
        return self._gemm_workspace(self._gemm_of(a, b, allow_tf32))

    def _gemm_of(self, a, b, allow_tf32):
        g = Gemm(dtype=DTYPES[a.dtype], device=DEVICES[self.device], allow_tf32=allow_tf32)
        g.m, g.n, g.k = a.shape[0], b.shape[1], a.shape[1]
        g.a, g.a_row, g.a_col = _at(a), a.stride(0), a.stride(1)
        g.b, g.b_row, g.b_col = _at(b), b.stride(0), b.stride(1)
        g.c_row = g.n
        return g

    def _gemm_workspace(self, g):
        size = ctypes.c_size_t()
        self.call("haste_gemm_workspace_bytes", ctypes.byref(g), ctypes.byref(size))
        return size.value

    def windows(self, window, reverse, mask, *, x, before, seen, after):
        """haste_windows of x [N, T, C] into seen [N, T, window, C] and after [N, window - 1, C]."""
        args = self._windows_of(Windows, window, reverse, mask, x)
        _set(args, x=x, before=before, seen=seen, after=after)
        self.call("haste_windows", ctypes.byref(args), ctypes.byref(self._executor()))

    def windows_grad(self, window, reverse, mask, *, dseen, dafter, dx, dbefore):
        """haste_windows_grad; shapes as those of `windows`."""
        args = self._windows_of(WindowsGrad, window, reverse, mask, dx)
        _set(args, dseen=dseen, dafter=dafter, dx=dx, dbefore=dbefore)
        self.call("haste_windows_grad", ctypes.byref(args), ctypes.byref(self._executor()))

    def _windows_of(self, kind, window, reverse, mask, x):
        args = kind(dtype=DTYPES[x.dtype], device=DEVICES[self.device], reverse=int(reverse))
        args.batch, args.time, args.features = x.shape
        args.window, args.mask = window, _at(mask)
        return args

    def _executor(self):
        """On a GPU: torch's current stream."""
        if self.device != "cuda":
            return Executor()
        return Executor(stream=torch.cuda.current_stream().cuda_stream)

    def _run(self, name, config, *args, workspace):
        pointers = [ctypes.byref(a) for a in (config, *args)]
        self.call(name, *pointers, _p(_at(workspace)), ctypes.byref(self._executor()))


def _at(tensor):
    return None if tensor is None else tensor.data_ptr()


def _set(args, **values):
    """Fields from tensors, lists of them, None, or numbers."""
    sizes = dict(args._fields_)
    for name, value in values.items():
        if isinstance(value, (tuple, list)):
            setattr(args, name, sizes[name](*[_at(tensor) for tensor in value]))
        else:
            setattr(args, name, value if isinstance(value, int) else _at(value))
