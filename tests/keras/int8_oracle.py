"""The expected results of a quantised layer: NumPy's integers within the float64 oracle."""

import dataclasses

import keras
import layer_oracle
import numpy as np
import tensorflow as tf

from haste_keras.reference import cells


def quantize_rows(x):
    """Each row (last axis) of x as int64 in [-127, 127], and its unit, by the definition."""
    x = np.asarray(x, np.float32)
    largest = np.abs(x).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    return np.rint(x * inverse).astype(np.int64), largest.astype(np.float64) / 127


def _scale(cell, name):
    return 1 / np.asarray(getattr(cell, f"{name}_scale"), np.float64)


def _dense(cell, x, carries, mask, backwards):
    q, unit = quantize_rows(x)
    return (q @ np.asarray(cell.kernel, np.int64)) * unit * _scale(cell, "kernel"), []


def _window(cell, x, carries, mask, backwards):
    """By a convolution that multiplies by 1, so that it gives the windows: rows of window·C."""
    size, features, columns = cell.kernel.shape
    unit_kernel = np.eye(size * features).reshape(size, features, -1)
    apart = _Weights(keras.Variable(unit_kernel, dtype="float64"))
    windows, after = layer_oracle.window(apart, x, carries, mask, backwards)
    q, unit = quantize_rows(windows)
    matrix = np.asarray(cell.kernel, np.int64).reshape(-1, columns)
    return (q @ matrix) * unit * _scale(cell, "kernel"), after


@dataclasses.dataclass
class _Weights:
    kernel: keras.Variable


def _product(h, kernel):
    """The oracle's product with a kernel whose every column has 127 as its largest integer."""
    kernel = np.asarray(kernel)
    scale = np.abs(kernel).max(1) / 127
    integers = np.rint(kernel / scale[:, np.newaxis]).astype(np.int64)
    q, unit = quantize_rows(h)
    total = np.einsum("nkh,khgj->nkgj", q, integers)
    return tf.constant(total * unit[..., np.newaxis] * scale, tf.float64)


def oracle(monkeypatch, row, layer, x, states=None, *, mask=None):
    """As `layer_oracle.oracle`, of a layer that is quantised."""
    scales = {}
    for cell in layer.cells:
        if cell.is_quantized("recurrent_kernel"):
            scale = _scale(cell, "recurrent_kernel")
            scales[id(cell.recurrent_kernel)] = scale[:, np.newaxis] if scale.ndim == 3 else scale

    def wide(variable):
        return tf.cast(variable.value, tf.float64) * scales.get(id(variable), 1.0)

    convolve = _dense if row.convolve is layer_oracle.dense else _window
    with monkeypatch.context() as patched:
        patched.setattr(layer_oracle, "_wide", wide)
        patched.setattr(cells, "_product", _product)
        return layer_oracle.oracle(
            dataclasses.replace(row, convolve=convolve), layer, x, states, mask=mask
        )
