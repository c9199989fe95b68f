"""The large products around a recurrence: TensorFlow's, but for exact floats on a GPU.

There float32 units are a dozen times slower than tensor cores, which libhaste multiplies two
float16 parts of each float with (compute capability 9.0): about as exact, two to four times as
fast, but for an infinity, which becomes NaN. Where TensorFloat-32 is allowed, TensorFlow uses
tensor cores itself.
"""

import tensorflow as tf

from haste_keras._compat import skipped_inputs
from haste_keras.native import library


def matmul(a, b, transpose_a=False, transpose_b=False):
    """tf.matmul of two matrices of one dtype, of which at most one is transposed."""
    if not _in_parts(a.dtype):
        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return OPS[transpose_a, transpose_b](a, b)


def _in_parts(dtype):
    """Whether a GPU may have the product, and float32 is to be exact."""
    if dtype != tf.float32 or tf.config.experimental.tensor_float_32_execution_enabled():
        return False
    return library.may_use_gpu()


def _plain(a, b):
    return library.load().haste_mat_mul(a, b)


def _transpose_a(a, b):
    return library.load().haste_mat_mul_transpose_a(a, b)


def _transpose_b(a, b):
    return library.load().haste_mat_mul_transpose_b(a, b)


OPS = {(False, False): _plain, (True, False): _transpose_a, (False, True): _transpose_b}


def _register(name, of_a, of_b):
    """of_a, of_b: (a, b, gradient of the product) → the gradient."""

    @tf.RegisterGradient(name)
    def gradient(op, d):
        # The tape says which inputs it wants no gradient of.
        skipped = skipped_inputs(op)
        a, b = op.inputs
        return [None if i in skipped else of(a, b, d) for i, of in enumerate((of_a, of_b))]


_register("HasteMatMul", lambda a, b, d: _transpose_b(d, b), lambda a, b, d: _transpose_a(a, d))
_register("HasteMatMulTransposeA", lambda a, b, d: _transpose_b(b, d), lambda a, b, d: _plain(a, d))
_register("HasteMatMulTransposeB", lambda a, b, d: _plain(d, b), lambda a, b, d: _transpose_a(d, a))
