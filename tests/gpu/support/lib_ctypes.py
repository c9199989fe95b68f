"""libhaste.so's C ABI (lib/include/haste/c_api.h) on torch tensors, for GPU tests and benchmarks.

Tensors live on the GPU and keep the shapes of the header: N batch, T time, K lanes, G gates,
H hidden units, C features. Sizes and dtype are read off them.
"""

import ctypes
import importlib.util
import os
import pathlib

import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]


def _binding():
    """haste_keras/native/binding.py by its path: the package itself imports TensorFlow."""
    path = ROOT / "haste_keras" / "native" / "binding.py"
    spec = importlib.util.spec_from_file_location("haste_binding", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


binding = _binding()
ACTIVATIONS = binding.ACTIVATIONS
Status = binding.Status
DTYPES = {getattr(torch, name): number for name, number in binding.DTYPES.items()}


def library_path():
    """HASTE_LIBRARY, or the library that the build leaves in the package; None if there is none."""
    named = os.environ.get("HASTE_LIBRARY")
    path = pathlib.Path(named) if named else ROOT / "haste_keras" / "libhaste.so"
    return path if path.exists() else None


class Library(binding.Library):
    """The C ABI; a call that fails raises RuntimeError with the status's message."""

    def __init__(self, path, device="cuda"):
        super().__init__(ctypes.CDLL(str(path)))
        self.device = device

    def cell(self, name):
        """The CellInfo of the cell `name`."""
        return self.cells()[name]

    def config(self, cell, wx, **options):
        """The RnnConfig of a cell, of wx [N, T, K, G, H] and of options named as in the header."""
        n, t, k, _, h = wx.shape
        config = binding.RnnConfig(cell=cell.encode(), dtype=DTYPES[wx.dtype])
        config.engine = options.pop("engine", "auto").encode()
        config.device = binding.DEVICES[self.device]
        config.batch, config.time, config.lanes, config.hidden = n, t, k, h
        reverse = options.pop("reverse", None)
        if reverse is not None:
            config.reverse = (ctypes.c_uint8 * k)(*[int(r) for r in reverse])
        config.activation = ACTIVATIONS[options.pop("activation", "tanh")]
        usual = "exponential" if self.cell(cell).exponential else "sigmoid"
        config.recurrent_activation = ACTIVATIONS[options.pop("recurrent_activation", usual)]
        config.zoneout = (ctypes.c_float * binding.MAX_STATES)(*options.pop("zoneout", ()))
        for name, value in options.items():
            setattr(config, name, value)
        return config

    def plan(self, config, executor=None):
        return super().plan(config, executor or self._executor())

    def saved(self, config):
        """Saved tensors of a call: h without dropout is one where there is dropout."""
        cell = self.cell(config.cell.decode())
        drops = config.training and config.recurrent_dropout > 0
        return cell.saved - (cell.saved_names[cell.saved - 1] == b"h_prev" and not drops)

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
        layer = binding.LayerBackwardArgs(features=features)
        if not backward:
            layer = binding.LayerForwardArgs(features=features, wx=_at(wx))
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
        args = binding.RnnForwardArgs(wx=_at(wx), R=_at(kernel), y=_at(y))
        _set(args, keep=int(tensors.get("gates") is not None), **tensors)
        self._run("haste_rnn_forward", config, args, workspace=workspace)

    def backward(self, config, kernel, *, workspace, **tensors):
        """haste_rnn_backward; tensors: dwx, dq, gates, dy, mask, seed; saved, extra, … (lists)."""
        args = binding.RnnBackwardArgs(R=_at(kernel))
        _set(args, **tensors)
        self._run("haste_rnn_backward", config, args, workspace=workspace)

    def layer_forward(self, config, x, kernel, bias, recurrent, *, wx, y, workspace, **tensors):
        """haste_layer_forward of x [N, T, C], kernel [C, K, G, H], bias [K, G, H] or None."""
        layer = binding.LayerForwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel), b=_at(bias))
        layer.wx = _at(wx)
        args = binding.RnnForwardArgs(R=_at(recurrent), y=_at(y))
        _set(args, keep=int(tensors.get("gates") is not None), **tensors)
        self._run("haste_layer_forward", config, layer, args, workspace=workspace)

    def layer_backward(self, config, x, kernel, recurrent, *, gradients, workspace, **tensors):
        """haste_layer_backward; gradients: {"dx", "dW", "db", "dR"} to be written."""
        layer = binding.LayerBackwardArgs(features=x.shape[-1], x=_at(x), W=_at(kernel))
        _set(layer, **gradients)
        args = binding.RnnBackwardArgs(R=_at(recurrent))
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
        self.call("haste_gemm", ctypes.byref(g), ctypes.c_void_p(_at(workspace)), where)

    def gemm_workspace(self, a, b, allow_tf32=False):
        """Bytes of scratch memory that a·b wants."""
        return self._gemm_workspace(self._gemm_of(a, b, allow_tf32))

    def _gemm_of(self, a, b, allow_tf32):
        g = binding.Gemm(
            dtype=DTYPES[a.dtype], device=binding.DEVICES[self.device], allow_tf32=allow_tf32
        )
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
        args = self._windows_of(binding.Windows, window, reverse, mask, x)
        _set(args, x=x, before=before, seen=seen, after=after)
        self.call("haste_windows", ctypes.byref(args), ctypes.byref(self._executor()))

    def windows_grad(self, window, reverse, mask, *, dseen, dafter, dx, dbefore):
        """haste_windows_grad; shapes as those of `windows`."""
        args = self._windows_of(binding.WindowsGrad, window, reverse, mask, dx)
        _set(args, dseen=dseen, dafter=dafter, dx=dx, dbefore=dbefore)
        self.call("haste_windows_grad", ctypes.byref(args), ctypes.byref(self._executor()))

    def _windows_of(self, kind, window, reverse, mask, x):
        args = kind(
            dtype=DTYPES[x.dtype], device=binding.DEVICES[self.device], reverse=int(reverse)
        )
        args.batch, args.time, args.features = x.shape
        args.window, args.mask = window, _at(mask)
        return args

    def _executor(self):
        """On a GPU: torch's current stream."""
        if self.device != "cuda":
            return binding.Executor()
        return binding.Executor(stream=torch.cuda.current_stream().cuda_stream)

    def _run(self, name, config, *args, workspace):
        pointers = [ctypes.byref(a) for a in (config, *args)]
        self.call(name, *pointers, ctypes.c_void_p(_at(workspace)), ctypes.byref(self._executor()))


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
