"""The C ABI of lib/include/haste/c_api.h in ctypes: its enums, its structs and its functions.

The one binding of the project. It imports nothing but ctypes, so that a program without TensorFlow
loads this file by its path. Fields and their order are those of the header.
"""

import ctypes

MAX_GATES = 4
MAX_STATES = 4
MAX_EXTRAS = 3
MAX_SAVED = 6
MAX_CLUSTER = 16
DEVICES = {"cpu": 0, "cuda": 1}
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4}
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
    """HasteStatus."""

    _fields_ = [("code", _i32), ("message", ctypes.c_char * 508)]


class Sized(ctypes.Structure):
    """A structure that begins with struct_size. Its constructor sets that, and takes the rest."""

    _fields_ = [("struct_size", ctypes.c_size_t)]

    def __init__(self, *args, **kwargs):
        super().__init__(ctypes.sizeof(self), *args, **kwargs)


class RnnConfig(Sized):
    """HasteRnnConfig."""

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
        ("reserved", _i32),
        ("weights_dtype", _i32),
        ("reserved_after", _i32),
    ]


class CellInfo(Sized):
    """HasteCellInfo."""

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
        ("state_bound", _i32),
    ]


class RnnForwardArgs(Sized):
    """HasteRnnForwardArgs."""

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
        ("R_scale", _p),
        ("packed", _p),
    ]


class RnnBackwardArgs(Sized):
    """HasteRnnBackwardArgs."""

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


class Executor(Sized):
    """HasteExecutor."""

    _fields_ = [("stream", _p), ("threads", _i32), ("schedule", _p), ("pool", _p)]


class Gemm(Sized):
    """HasteGemm."""

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
        ("reserved", _i32),
        ("b_scale", _p),
    ]


class LayerForwardArgs(Sized):
    """HasteLayerForwardArgs."""

    _fields_ = [
        ("features", _i64),
        *((name, _p) for name in ("x", "W", "b", "wx", "gamma", "xw", "W_scale")),
    ]


class LayerBackwardArgs(Sized):
    """HasteLayerBackwardArgs."""

    _fields_ = [
        ("features", _i64),
        *((name, _p) for name in ("x", "W", "dx", "dW", "db", "dR", "gamma", "xw", "dgamma")),
    ]


class Windows(Sized):
    """HasteWindows."""

    _fields_ = [
        ("dtype", _i32),
        ("device", _i32),
        *((name, _i64) for name in ("batch", "time", "features", "window")),
        ("reverse", _i32),
        *((name, _p) for name in ("mask", "x", "before", "seen", "after")),
    ]


class WindowsGrad(Sized):
    """HasteWindowsGrad."""

    _fields_ = [
        *Windows._fields_[:-4],
        *((name, _p) for name in ("dseen", "dafter", "dx", "dbefore")),
    ]


class DeviceProperties(Sized):
    """HasteDeviceProperties."""

    _fields_ = [
        ("sm_major", _i32),
        ("sm_minor", _i32),
        ("multiprocessors", _i32),
        ("shared_bytes_per_block", _i32),
        ("l2_bytes", _i64),
        ("clusters", _i32 * (MAX_CLUSTER + 1)),
    ]


class CudaInfo(Sized):
    """HasteCudaInfo."""

    _fields_ = [
        ("path", ctypes.c_char * 4096),
        ("architectures", ctypes.c_char * 256),
        ("toolkit_version", _i32),
        ("driver_version", _i32),
    ]


class Error(RuntimeError):
    """A call that failed. message: of its status, without the name of the function."""

    def __init__(self, function, message):
        super().__init__(f"{function}: {message}")
        self.message = message


class PackedWeights:
    """A HastePackedWeights, for `RnnForwardArgs.packed`."""

    def __init__(self, library):
        """library: a `Library`."""
        self._library = library
        self.address = _p()
        library.call("haste_packed_weights_create", ctypes.byref(self.address))

    def __del__(self):
        if getattr(self, "address", None):
            self._library.call("haste_packed_weights_free", self.address)

    def clear(self):
        """To be called after a weight has changed."""
        self._library.call("haste_packed_weights_clear", self.address)


class Library:
    """The functions of the C ABI; one that fails raises `Error`."""

    def __init__(self, lib):
        """lib: a ctypes.CDLL of libhaste.so, or of a library that is linked to it."""
        self._lib = lib
        lib.haste_cell.restype = ctypes.POINTER(CellInfo)
        lib.haste_version.restype = ctypes.c_char_p
        lib.haste_cpu_target.restype = ctypes.c_char_p

    def call(self, name, *args):
        """Calls the function `name`, which takes `args` and a status."""
        status = Status()
        if getattr(self._lib, name)(*args, ctypes.byref(status)) != 0:
            raise Error(name, status.message.decode())

    def version(self):
        """Version of the library."""
        return self._lib.haste_version().decode()

    def cpu_target(self):
        """The SIMD instructions that CPU kernels use here."""
        return self._lib.haste_cpu_target().decode()

    def cells(self):
        """{name: CellInfo} of the cells that the library was built with."""
        infos = [self._lib.haste_cell(i).contents for i in range(self._lib.haste_cell_count())]
        return {info.name.decode(): info for info in infos}

    def plan(self, config, executor=None):
        """One line: the engine that runs `config`, and why. executor: None: threads of its own."""
        return self._text("haste_plan", config, executor or Executor())

    def plan_for(self, config, properties):
        """`plan` on the GPU of these DeviceProperties, which need not be here."""
        return self._text("haste_plan_for", config, properties)

    def _text(self, name, config, where):
        text = ctypes.create_string_buffer(1024)
        size = ctypes.c_size_t(len(text))
        self.call(name, ctypes.byref(config), ctypes.byref(where), text, size)
        return text.value.decode()

    def has_cuda(self):
        """Whether the CUDA half is there."""
        return bool(self._lib.haste_has_cuda())

    def cuda_status(self):
        """Raises Error unless the CUDA half is there and runs on the current device."""
        self.call("haste_cuda_status")

    def cuda_info(self):
        """CudaInfo of the CUDA half."""
        info = CudaInfo()
        self.call("haste_cuda_info", ctypes.byref(info))
        return info

    def cuda_device(self):
        """DeviceProperties of the current device, as plans count on them."""
        properties = DeviceProperties()
        self.call("haste_cuda_device", ctypes.byref(properties))
        return properties
