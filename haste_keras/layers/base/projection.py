"""Where the input projection x·W + b is formed."""

import tensorflow as tf

from haste_keras.native import library
from haste_keras.native.emit import prefers_projection

# On a CPU, above this the op's product, whose panels of W then exceed the first-level cache several
# times, is slower than TensorFlow's (measured at 768: 1 to 4 %; at 256 it is faster).
_MOST_FEATURES = 512


def op_projects(spec, features, dtype, training, int8=False):
    """Whether the op of the cell `spec` forms x·W + b, for inputs of `features` and `dtype`.

    On a GPU it does wherever it can: there the library overlaps products with the recurrence. On a
    CPU it does so in inference, in the cache, just before the steps that read the result; float16
    inputs would have to be converted first, and bfloat16 ones of cells without a matrix. In
    training the reserve is as large as wx, so that little is saved: a float layer with a matrix
    does so where its op has the faster products too. int8: whether the weights are.
    """
    if not spec.has_layer_op:
        return False
    if int8:
        return spec.has_int8_op
    if library.may_use_gpu() or prefers_projection():
        return True
    dense = spec.recurrence == "dense"
    if dtype == tf.float16:
        return False
    if training and not (dense and dtype.size > 2 and library.multiplies_in_training()):
        return False
    if dtype == tf.bfloat16:
        return dense
    return features <= _MOST_FEATURES
