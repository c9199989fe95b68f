"""Finds and loads the op library, and says what cannot run here."""

import ctypes
import functools
import importlib.util
import os
import pathlib
import warnings

import tensorflow as tf

from haste_keras.native import binding

PACKAGE = pathlib.Path(__file__).resolve().parents[1]  # where the build puts the libraries
LIBRARY = PACKAGE / "libhaste_ops.so"
CUDA_PACKAGE = "haste_keras_cuda"


def check_keras():
    """Raises ImportError unless Keras is Keras 3 on TensorFlow."""
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        raise ImportError(
            "haste_keras needs Keras 3, but TF_USE_LEGACY_KERAS makes tf.keras the legacy "
            "tf_keras; unset it: `unset TF_USE_LEGACY_KERAS`."
        )
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend == "tensorflow":
        import keras

        backend = keras.config.backend()
    if backend != "tensorflow":
        raise ImportError(
            f"haste_keras runs on TensorFlow, but Keras's backend is {backend!r}; set it before "
            "Python starts: `export KERAS_BACKEND=tensorflow`."
        )


def _offer_cuda_half():
    """Gives libhaste.so the path of the CUDA half, if that is on another path of Python's.

    libhaste.so itself looks next to the package and where the environment says. If it refuses a
    half, gpu_kernels() says why.
    """
    if "HASTE_CUDA_LIBRARY" in os.environ or (PACKAGE / "libhaste_cuda.so").exists():
        return
    spec = importlib.util.find_spec(CUDA_PACKAGE)
    if spec is not None and spec.origin is not None:
        half = pathlib.Path(spec.origin).with_name("libhaste_cuda.so")
        ctypes.CDLL(str(PACKAGE / "libhaste.so")).haste_load_cuda(str(half).encode(), None)


@functools.cache
def _op_module():
    if not LIBRARY.exists():
        raise ImportError(
            f"haste_keras is not built: {LIBRARY} is missing; run `make build` in its source tree, "
            "or install the wheel that `make wheel` builds."
        )
    _offer_cuda_half()  # before kernels are registered
    try:
        module = tf.load_op_library(str(LIBRARY))
        if hasattr(module, "haste_lstm"):
            return module
        # TensorFlow has loaded the library as a plug-in before, and does not list its ops now.
        from haste_keras._compat import op_wrappers  # not at the top: check_keras comes first

        return op_wrappers("Haste")
    except (RuntimeError, tf.errors.OpError) as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} cannot load {LIBRARY} ({error}); `make build` in its "
            "source tree builds it anew."
        ) from error


@functools.cache
def _c_library():
    _op_module()  # first, since TensorFlow registers what is loaded by itself only
    library = ctypes.CDLL(str(LIBRARY))
    library.haste_tf_abi.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.haste_tf_gpu_kernels.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.haste_tf_graph_plugin.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.haste_tf_graph_calls.restype = ctypes.c_int64
    size = ctypes.POINTER(ctypes.c_size_t)
    library.haste_tf_kept_weights.argtypes = [size, size]
    library.haste_tf_xla.argtypes = [ctypes.c_int32, ctypes.c_char_p, ctypes.c_size_t]
    return library


@functools.cache
def c_api():
    """The C ABI of lib/include/haste/c_api.h, of the same library."""
    return binding.Library(_c_library())


def version():
    """Version of the op library, which is that of the package it was built with."""
    return c_api().version()


def has_cuda():
    """Whether the CUDA half is there."""
    return c_api().has_cuda()


def _ask(function):
    """What a C function that returns 0 or 1 and fills a buffer says: (bool, str)."""
    text = ctypes.create_string_buffer(1024)
    return bool(function(text, len(text))), text.value.decode()


@functools.cache
def abi():
    """Whether the C++ ABI of the running TensorFlow is known, and its version or what is wrong.

    Without it CPU ops run on threads of their own, and there are no GPU kernels.
    """
    return _ask(_c_library().haste_tf_abi)


@functools.cache
def gpu_kernels():
    """Whether the ops' GPU kernels are registered, and if not, why."""
    return _ask(_c_library().haste_tf_gpu_kernels)


@functools.cache
def graph_plugin():
    """Whether the graph optimizer is registered (portable models then run our ops); else why."""
    return _ask(_c_library().haste_tf_graph_plugin)


def kept_weights():
    """Layers whose weights ops on a CPU keep between calls: (how many, bytes of what is packed)."""
    entries, size = ctypes.c_size_t(), ctypes.c_size_t()
    _c_library().haste_tf_kept_weights(ctypes.byref(entries), ctypes.byref(size))
    return entries.value, size.value


def graph_calls():
    """How many calls of tagged functions it made ops of, in the graphs of this process."""
    return _c_library().haste_tf_graph_calls()


@functools.cache
def xla(device):
    """Whether XLA compiles the ops on `device`, "cpu" or "cuda", and if not, why."""
    return _ask(functools.partial(_c_library().haste_tf_xla, binding.DEVICES[device]))


def xla_here():
    """The same for all of TensorFlow's devices. If not, layers run Keras's loop under XLA."""
    compiles, why = xla("cpu")
    if compiles and tf.config.get_visible_devices("GPU"):
        compiles, why = xla("cuda")
    return compiles, why


def may_use_gpu():
    """Whether an op may run on a GPU: it has kernels for one, and TensorFlow has a GPU."""
    return gpu_kernels()[0] and bool(tf.config.list_logical_devices("GPU"))


def _cpu_vendor(path="/proc/cpuinfo"):
    """What an x86 processor calls its maker, "AuthenticAMD" say; "" where Linux does not tell."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    vendors = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(vendors, "")


@functools.cache
def multiplies_in_training():
    """Whether on the CPU our products around a recurrence in training are faster than TensorFlow's.

    TensorFlow multiplies floats by oneDNN. Ours take less time on an AMD Zen 5, with AVX-512 and
    limited to AVX2, and more on an Intel Xeon (docs/performance/cpu_zen5.md).
    """
    return _cpu_vendor() == "AuthenticAMD"


def _warn_of_what_cannot_run():
    known, unknown = abi()
    registered, why = gpu_kernels()
    if not registered and tf.config.list_physical_devices("GPU"):
        message = f"{why}. Until then the layers run on the CPU, though TensorFlow has a GPU."
    elif not known:
        message = f"{unknown}. Until then CPU ops run on threads of haste_keras's own."
    else:
        return
    warnings.warn(message, RuntimeWarning, stacklevel=4)


@functools.cache
def load():
    """Loads all once; returns the module of op wrappers (`haste_lstm`, `haste_lstm_grad`, …).

    Raises:
      ImportError: one sentence that says what is wrong and how to fix it.
    """
    module = _op_module()
    _warn_of_what_cannot_run()
    return module
