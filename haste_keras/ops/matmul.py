"""The large products around a recurrence: TensorFlow's, except for exact float32 on a GPU.

TensorFlow's float32 units are a dozen times slower than tensor cores. On a GPU of compute
capability 9.0 libhaste multiplies each float as two split terms of float16 on tensor cores: about
as exact, and two to four times as fast, but an infinity becomes NaN. Where TensorFloat-32 is
allowed, TensorFlow uses tensor cores itself.
"""

import functools

import tensorflow as tf

from haste_keras._compat import skipped_inputs
from haste_keras.native import library, raw_ops
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.call import public, refuse_xla


def matmul(a, b, transpose_a=False, transpose_b=False):
    """tf.matmul of two matrices of one dtype, of which at most one is transposed."""
    if not _splits(a.dtype):
        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return OPS[transpose_a, transpose_b](a, b)


@public
def matmul_int8(a, b, b_scale):
    """Product with int8 weights, whose rows are quantised one by one, on a CPU.

        m = max |row of a|    q = round(row · 127 / m)    row · W = (q · b) · (m / 127) · b_scale

    The sums are exact. A row with an infinity or a NaN gives NaN, one with m < 2^-120 gives 0. It
    has no gradient.

    Args:
      a: [M, C], float16, bfloat16 or float32.
      b: [C, U] int8.
      b_scale: [U] float32; b stands for b · b_scale.

    Returns:
      [M, U] of a's dtype.

    Raises:
      TypeError, ValueError: an argument is not as above; the message names it.
      NotImplementedError: a gradient is asked for, or XLA compiles the function that calls this.
    """
    arguments = Arguments("matmul_int8", None)
    refuse_xla(arguments, "", int8=True)
    a = arguments.tensor("a", a, "MC")
    return raw_ops.matmul_int8(a, *arguments.int8("b", b, "CU", "b_scale", b_scale, "U"))


def _splits(dtype):
    """Whether the product may run on a GPU, in float32 that must be exact."""
    if dtype != tf.float32 or tf.config.experimental.tensor_float_32_execution_enabled():
        return False
    return library.may_use_gpu()


_plain = raw_ops.matmul
_transpose_a = functools.partial(raw_ops.matmul, transpose_a=True)
_transpose_b = functools.partial(raw_ops.matmul, transpose_b=True)
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
