"""Fixtures of the tests under TensorFlow."""

import pytest


@pytest.fixture
def true_float32():
    """Products in float32: TensorFlow's default is TF32."""
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)
