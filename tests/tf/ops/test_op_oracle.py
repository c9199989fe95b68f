"""Outputs and gradients of every op against the oracle, in float64, with every option."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS, make_case, row_cases

from haste_keras import ops, reference


def results(module, row, tensors, loss, options):
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        outputs = row.call(tensors, module, **options)
        value = loss(outputs)
    found = tape.gradient(value, tensors, unconnected_gradients="zero")
    return {**dict(enumerate(outputs)), **found}


@pytest.mark.parametrize(("row", "options"), **row_cases())
def test_oracle(row, options, rng):
    tensors, options = make_case(row, options, rng)
    loss = row.loss(rng, row.call(tensors, **options))
    found = results(ops, row, tensors, loss, options)
    expected = results(reference, row, tensors, loss, options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-10, atol=1e-11, err_msg=f"{row.name}: {name}"
        )


@pytest.mark.parametrize("forget_activation", ["exponential", "sigmoid"])
@pytest.mark.parametrize("given", [False, True])
def test_slstm_of_large_inputs(rng, forget_activation, given):
    wx = tf.constant(100 * rng.normal(size=[3, 12, 2, 4, 4]))
    kernel = tf.constant(rng.normal(size=[2, 4, 4, 4]))
    states = None
    if given:
        states = [tf.constant(rng.normal(size=[3, 2, 4])) for _ in range(4)]
        states[2] = tf.exp(states[2])
    options = {"forget_activation": forget_activation}
    y, found = ops.slstm(wx, kernel, states, **options)
    expected_y, expected = reference.slstm(wx, kernel, states, **options)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y, expected_y, rtol=1e-10, atol=1e-12)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_h0", [False, True])
def test_forget_mult_without_lanes(rng, reverse, with_h0):
    f = tf.constant(rng.random([3, 5, 4]))
    x = tf.constant(rng.normal(size=[3, 5, 4]))
    h0 = tf.constant(rng.normal(size=[3, 4])) if with_h0 else None
    sources = [t for t in (f, x, h0) if t is not None]
    results = []
    for module in (ops, reference):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = module.forget_mult(f, x, h0, reverse=reverse)
            loss = tf.reduce_sum(y**2)
        results.append([y, *tape.gradient(loss, sources)])
    for found, expected in zip(*results, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(4, 2, 6), (3, 5, 2, 6), (2, 6)], ids=len)
@pytest.mark.parametrize("with_beta", [False, True])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_layer_norm(rng, shape, with_beta, epsilon):
    x, weight = (tf.constant(rng.normal(size=shape)) for _ in range(2))
    gamma, beta = (tf.constant(rng.normal(size=(2, 6))) for _ in range(2))
    sources = [x, gamma, *([beta] if with_beta else [])]
    results = []
    for module in (ops, reference):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = module.layer_norm(x, gamma, beta if with_beta else None, epsilon)
            loss = tf.reduce_sum(weight * y)
        results.append([y, *tape.gradient(loss, sources)])
    for found, expected in zip(*results, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


# Every function but forget_mult, which takes two tensors in place of wx: {name: spec by default}.
BY_NAME = {
    row.function: row.spec
    for row in ROWS
    if not row.spec.separate_gates and row.options in ({}, {"pooling": "fo"})
}


def test_every_function_has_its_name():
    assert BY_NAME.keys() == set(ops.__all__) - {
        "recurrence",
        "forget_mult",
        "layer_norm",
        "matmul_int8",
    }


@pytest.mark.parametrize("function", BY_NAME)
@pytest.mark.parametrize("dtype", [tf.float64, tf.float16], ids=lambda d: d.name)
def test_recurrence_by_name(rng, function, dtype):
    spec = BY_NAME[function]
    gates = len(spec.gates)
    wx = tf.constant(rng.normal(size=[3, 5, 2, gates, 4]), dtype)
    kernel = []
    if spec.kernel_dims:
        sizes = {"K": 2, "H": 4, "G": gates}
        kernel = [tf.constant(rng.normal(size=[sizes[d] for d in spec.kernel_dims]), dtype)]
    options = {"reverse": [False, True]}
    if function.startswith("layer_norm"):
        options["recurrent_gamma"] = tf.ones([2, gates, 4], dtype)
    if function == "layer_norm_lstm":
        options |= {"state_gamma": tf.ones([2, 4], dtype), "state_beta": tf.zeros([2, 4], dtype)}
    bias = tf.constant(rng.normal(size=[2, gates, 4]), dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(bias)
        y, states = ops.recurrence(function, wx, *(kernel or [None]), bias, **options)
        expected, expected_states = getattr(ops, function)(wx + bias, *kernel, **options)
    tolerance = 1e-12 if dtype == tf.float64 else 2e-2
    np.testing.assert_allclose(y, expected, atol=tolerance)
    assert len(states) == len(expected_states)
    for a, b in zip(states, expected_states, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(
        tape.gradient(y, bias), tape.gradient(expected, bias), atol=20 * tolerance
    )


def test_recurrence_of_no_such_name():
    message = "ops.recurrence: function must be one of lstm, gru, .*, but is 'mlp'"
    with pytest.raises(ValueError, match=message):
        ops.recurrence("mlp", None, None)


def test_recurrence_with_a_kernel_too_many_or_too_few():
    wx = tf.zeros([2, 3, 1, 3, 4])
    with pytest.raises(ValueError, match=r"recurrent_kernel must be a tensor for 'gru'"):
        ops.recurrence("gru", wx)
    with pytest.raises(ValueError, match="recurrent_kernel must be None for 'qrnn', but is Eager"):
        ops.recurrence("qrnn", wx, tf.zeros([1, 4, 3, 4]))
