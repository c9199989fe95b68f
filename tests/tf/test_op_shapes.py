"""Shapes: at run time, inferred for graphs, and of inputs with nothing in them."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import _library, ops

DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64]


def raw(inputs, mask=None, seed=None, **options):
    """The op itself, with all its outputs."""
    wx, recurrent_kernel, h0, c0 = inputs
    return _library.load().haste_lstm(
        wx,
        recurrent_kernel,
        h0,
        c0,
        tf.zeros([0], tf.bool) if mask is None else mask,
        tf.zeros([0], tf.int64) if seed is None else seed,
        **{"reverse": [False] * wx.shape[2], "zoneout": [0.0, 0.0], **options},
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("save", [False, True])
def test_outputs(inputs, dtype, save):
    outputs = raw(inputs(3, 5, 2, 7, dtype), save=save)
    expected = [(3, 5, 2, 7), (3, 2, 7), (3, 2, 7)]
    expected += [(3, 5, 2, 4, 7), (3, 5, 2, 7), (3, 5, 2, 7)] if save else [(0,)] * 3
    assert [tuple(o.shape) for o in outputs] == expected
    assert {o.dtype for o in outputs} == {dtype}
    assert all(np.isfinite(o.numpy().astype(np.float64)).all() for o in outputs)


@pytest.mark.parametrize("hidden", [1, 3, 17, 64, 65])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_dtypes_agree_with_float64(inputs, dtype, hidden):
    exact = inputs(3, 6, 1, hidden)
    rounded = [tf.cast(tf.cast(x, dtype), tf.float64) for x in exact]
    y, (h, c) = ops.lstm(
        *[tf.cast(x, dtype) for x in exact[:2]], [tf.cast(x, dtype) for x in exact[2:]]
    )
    y64, (h64, c64) = ops.lstm(*rounded[:2], rounded[2:])
    tolerance = {tf.float16: 4e-3, tf.bfloat16: 3e-2, tf.float32: 3e-6, tf.float64: 0}[dtype]
    for value, reference in ((y, y64), (h, h64), (c, c64)):
        np.testing.assert_allclose(
            tf.cast(value, tf.float64), reference, atol=tolerance, rtol=tolerance
        )


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("time", [None, 5])
@pytest.mark.parametrize("hidden", [None, 7])
def test_inferred_shapes(batch, time, hidden):
    @tf.function(
        input_signature=[
            tf.TensorSpec([batch, time, None, 4, hidden]),
            tf.TensorSpec([2, None, None, 7]),
            tf.TensorSpec(None),
            tf.TensorSpec([None, None, None]),
        ]
    )
    def function(wx, recurrent_kernel, h0, c0):
        y, (h, c) = ops.lstm(wx, recurrent_kernel, [h0, c0])
        assert y.shape.as_list() == [batch, time, 2, 7]
        assert h.shape.as_list() == c.shape.as_list() == [batch, 2, 7]
        return y

    function.get_concrete_function()


def test_inferred_gradient_shapes():
    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 1, 4, 7]), tf.TensorSpec([1, 7, 4, 7])]
    )
    def function(wx, recurrent_kernel):
        y, (h, _) = ops.lstm(wx, recurrent_kernel, training=True)
        dwx, dkernel = tf.gradients([y, h], [wx, recurrent_kernel])
        assert dwx.shape.as_list() == [None, None, 1, 4, 7]
        assert dkernel.shape.as_list() == [1, 7, 4, 7]
        return dwx

    function.get_concrete_function()


def test_unknown_sizes_at_run_time(inputs):
    wx, recurrent_kernel, *_ = inputs()
    spec = [tf.TensorSpec([None, None, None, 4, None], tf.float64)]
    spec += [tf.TensorSpec([2, None, 4, None], tf.float64)]
    spec += [tf.TensorSpec([None, None], tf.bool)]

    @tf.function(input_signature=spec)
    def function(wx, recurrent_kernel, mask):
        y, states = ops.lstm(wx, recurrent_kernel, mask=mask)
        return y, states, tf.gradients(tf.reduce_sum(y * y), [wx, recurrent_kernel])

    mask = tf.constant([[True, False, True, True, False]] * 3)
    y, states, (dwx, dkernel) = function(wx, recurrent_kernel, mask)
    with tf.GradientTape() as tape:
        tape.watch([wx, recurrent_kernel])
        y_eager, states_eager = ops.lstm(wx, recurrent_kernel, mask=mask)
        loss = tf.reduce_sum(y_eager * y_eager)
    np.testing.assert_array_equal(y, y_eager)
    np.testing.assert_array_equal(states, states_eager)
    expected = tape.gradient(loss, [wx, recurrent_kernel])
    np.testing.assert_allclose(dwx, expected[0], atol=1e-14)
    np.testing.assert_allclose(dkernel, expected[1], atol=1e-14)


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize(("batch", "time"), [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_do(inputs, batch, time, save):
    wx, recurrent_kernel, h0, c0 = inputs(batch, time)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([wx, recurrent_kernel, h0, c0])
        y, (h, c) = ops.lstm(wx, recurrent_kernel, [h0, c0], save=save)
        loss = tf.reduce_sum(y) + tf.reduce_sum(2 * h) + tf.reduce_sum(3 * c)
        of_c = tf.reduce_sum(3 * c)
    assert y.shape == (batch, time, 2, 4)
    np.testing.assert_array_equal(h, h0)
    np.testing.assert_array_equal(c, c0)
    dwx, dkernel, dh0, dc0 = tape.gradient(loss, [wx, recurrent_kernel, h0, c0])
    assert dwx.shape == wx.shape
    np.testing.assert_array_equal(dkernel, tf.zeros_like(recurrent_kernel))
    np.testing.assert_array_equal(dh0, tf.fill(h0.shape, tf.constant(2.0, tf.float64)))
    np.testing.assert_array_equal(dc0, tf.fill(c0.shape, tf.constant(3.0, tf.float64)))
    np.testing.assert_array_equal(tape.gradient(of_c, h0), tf.zeros_like(h0))


def test_wx_is_not_overwritten_while_in_use(inputs):
    """`gates` may take wx's memory, but not when anyone else reads wx."""
    wx, *rest = inputs()

    @tf.function
    def function(x):
        x = x * 1.0  # a buffer of the graph's own
        before = tf.identity(x)
        y, _ = ops.lstm(x, rest[0], rest[1:], save=True)
        with tf.control_dependencies([y]):
            return before + 0.0, x + 0.0, y

    before, after, y = function(wx)
    np.testing.assert_array_equal(before, wx)
    np.testing.assert_array_equal(after, wx)
    np.testing.assert_array_equal(y, ops.lstm(wx, rest[0], rest[1:])[0])
