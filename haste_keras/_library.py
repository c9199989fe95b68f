"""Finds and loads the op library, and the shim for the TensorFlow that runs."""

import ctypes
import functools
import os
import pathlib
import warnings

import tensorflow as tf

PACKAGE = pathlib.Path(__file__).resolve().parent
LIBRARY = PACKAGE / "libhaste_ops.so"


def shim_path():
    """Where the shim for the running TensorFlow belongs, whether or not it is there."""
    major, minor = tf.__version__.split(".")[:2]
    return PACKAGE / "shims" / f"libhaste_shim_{major}_{minor}.so"


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


@functools.cache
def _op_module():
    if not LIBRARY.exists():
        raise ImportError(
            f"haste_keras is not built: {LIBRARY} is missing; run `make build` in its source tree, "
            "or install the wheel that `make wheel` builds."
        )
    try:
        return tf.load_op_library(str(LIBRARY))
    except (RuntimeError, tf.errors.OpError) as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} cannot load {LIBRARY} ({error}); `make build` in its "
            "source tree builds it anew."
        ) from error


@functools.cache
def c_library():
    """The same library through ctypes: the C ABI of lib/haste/c_api.h and the shim's loader."""
    _op_module()  # first, since TensorFlow registers what is loaded by itself only
    library = ctypes.CDLL(str(LIBRARY))
    library.haste_tf_set_shim.argtypes = [ctypes.c_char_p]
    library.haste_tf_shim_error.restype = ctypes.c_char_p
    library.haste_version.restype = ctypes.c_char_p
    return library


def version():
    """Version of the op library, which is that of the package it was built with."""
    return c_library().haste_version().decode()


def has_cuda():
    """Whether the op library was built with CUDA code."""
    return bool(c_library().haste_has_cuda())


def may_use_gpu():
    """Whether an op may run on a GPU: TensorFlow has one, and the library code for it."""
    return bool(tf.config.list_logical_devices("GPU")) and has_cuda()


@functools.cache
def shim():
    """Path of the shim in use, or None where there is none and only the CPU is there.

    Raises:
      ImportError: a GPU is there, and no shim for this TensorFlow.
    """
    path = shim_path()
    if path.exists():
        if c_library().haste_tf_set_shim(str(path).encode()) == 0:
            return path
        reason = c_library().haste_tf_shim_error().decode()
    else:
        present = sorted(p.stem.removeprefix("libhaste_shim_") for p in path.parent.glob("*.so"))
        reason = "it has " + (", ".join(present).replace("_", ".") or "none at all")
    missing = (
        f"haste_keras has no shim for TensorFlow {tf.__version__} ({reason}); "
        f"`make wheel TF_VERSIONS={tf.__version__}` in its source tree builds a wheel that has."
    )
    if has_cuda() and tf.config.list_physical_devices("GPU"):
        raise ImportError(missing)
    warnings.warn(
        missing + " Without it the CPU ops run on threads of their own.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


@functools.cache
def load():
    """Loads all once; returns the module of op wrappers (`haste_lstm`, `haste_lstm_grad`, …).

    Raises:
      ImportError: one sentence that says what is wrong and what mends it.
    """
    module = _op_module()
    shim()
    return module
