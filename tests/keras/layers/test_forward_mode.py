"""tf.autodiff.ForwardAccumulator: layers run step by step, ops say that they cannot."""

import numpy as np
import pytest
import tensorflow as tf

import haste_keras
from haste_keras import ops


def differences(function, x, direction, step=1e-6):
    """The derivative of `function` at x in a direction, by central differences."""
    ahead, behind = (function(x + sign * step * direction) for sign in (1, -1))
    return (ahead - behind) / (2 * step)


@pytest.fixture
def case(row, rng):
    """(layer, x, direction) in float64, masked, both directions."""
    layer = row.layer(
        4, dtype="float64", return_sequences=True, direction="bidirectional", activation="tanh"
    )
    x, direction = (tf.constant(rng.normal(size=[2, 5, 3])) for _ in range(2))
    mask = tf.constant(rng.random((2, 5)) < 0.8)
    layer.build(x.shape)
    return lambda x: layer(x, mask=mask), layer, x, direction


def test_derivative_in_the_input(case):
    function, _, x, direction = case
    with (
        pytest.warns(UserWarning, match=r"no derivative for tf\.autodiff\.ForwardAccumulator"),
        tf.autodiff.ForwardAccumulator(x, direction) as accumulator,
    ):
        y = function(x)
    np.testing.assert_allclose(
        accumulator.jvp(y), differences(function, x, direction), rtol=1e-6, atol=1e-7
    )


def test_derivative_in_a_weight(case, rng):
    function, layer, x, _ = case
    kernel = layer.cell.kernel
    direction = tf.constant(rng.normal(size=kernel.shape))
    with tf.autodiff.ForwardAccumulator(kernel.value, direction) as accumulator:
        y = function(x)

    def of_kernel(value):
        kernel.assign(value)
        return function(x)

    expected = differences(of_kernel, tf.identity(kernel.value), direction)
    np.testing.assert_allclose(accumulator.jvp(y), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.spread(2)
def test_product_with_a_hessian(case):
    """Forward mode over a tape: the second derivative that the ops do not have."""
    function, _, x, direction = case

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(function(x)))
        return tape.gradient(loss, x)

    with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
        found = gradient(x)
    np.testing.assert_allclose(
        accumulator.jvp(found), differences(gradient, x, direction), rtol=1e-5, atol=1e-6
    )


def test_without_tangents_the_op_runs(case):
    """An accumulator that watches something else changes nothing."""
    function, _, x, _ = case
    expected = function(x)
    other = tf.constant(1.0)
    with tf.autodiff.ForwardAccumulator(other, other):
        np.testing.assert_array_equal(function(x), expected)


def test_forget_mult(rng):
    f, x, direction = (tf.constant(rng.random([2, 5, 3])) for _ in range(3))
    layer = haste_keras.ForgetMult(dtype="float64")
    with (
        pytest.warns(UserWarning, match="ForwardAccumulator"),
        tf.autodiff.ForwardAccumulator(x, direction) as accumulator,
    ):
        y = layer((f, x))
    expected = differences(lambda x: layer((f, x)), x, direction)
    np.testing.assert_allclose(accumulator.jvp(y), expected, rtol=1e-6, atol=1e-7)


def test_ops_say_that_they_cannot(rng):
    wx, kernel = tf.constant(rng.normal(size=[2, 3, 1, 4, 5])), tf.zeros([1, 5, 4, 5], tf.float64)
    with (
        tf.autodiff.ForwardAccumulator(wx, wx),
        pytest.raises(
            NotImplementedError, match=r"ops\.lstm: .*ForwardAccumulator.*haste_keras\.LSTM"
        ),
    ):
        ops.lstm(wx, kernel)
    x, gamma = tf.ones([2, 1, 4]), tf.ones([1, 4])
    with (
        tf.autodiff.ForwardAccumulator(x, x),
        pytest.raises(NotImplementedError, match=r"ops\.layer_norm: .*ForwardAccumulator"),
    ):
        ops.layer_norm(x, gamma)


def test_within_a_function_it_is_refused(case):
    """The function is traced before TensorFlow knows of the accumulator."""
    function, _, x, direction = case
    traced = tf.function(function)
    with (
        tf.autodiff.ForwardAccumulator(x, direction),
        pytest.raises(Exception, match=r"within a tf\.function none in forward mode"),
    ):
        traced(x)
