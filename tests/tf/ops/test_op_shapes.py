"""Shapes: at run time, inferred for graphs, and of inputs with nothing in them."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS, gradients

from haste_keras import ops

DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64]


def raw(row, tensors, mask=None, seed=None, **options):
    """{name: output} of the op itself."""
    tensors = {
        **tensors,
        "mask": tf.zeros([0], tf.bool) if mask is None else mask,
        "seed": tf.zeros([0], tf.int64) if seed is None else seed,
    }
    found = row.raw([tensors[name] for name in row.spec.forward_inputs], **options)
    return dict(zip(row.spec.forward_outputs, found, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("save", [False, True])
def test_outputs(row, rng, dtype, save):
    outputs = raw(row, row.inputs(rng, 3, 5, 2, 7, dtype), save=save)
    sizes = {"N": 3, "T": 5, "K": 2, "H": 7}
    for name, dims in row.spec.forward_outputs.items():
        absent = name in row.spec.reserve and not (save and name != "h_prev")
        assert outputs[name].shape.as_list() == ([0] if absent else row.shape(dims, sizes)), name
        assert outputs[name].dtype == dtype
        assert np.isfinite(tf.cast(outputs[name], tf.float64)).all(), name


@pytest.mark.parametrize("hidden", [1, 3, 17, 64, 65])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_dtypes_agree_with_float64(row, rng, dtype, hidden):
    rounded = {n: tf.cast(x, dtype) for n, x in row.inputs(rng, 3, 6, 1, hidden).items()}
    exact = {name: tf.cast(tensor, tf.float64) for name, tensor in rounded.items()}
    tolerance = {tf.float16: 8e-3, tf.bfloat16: 6e-2, tf.float32: 5e-6, tf.float64: 0}[dtype]
    for value, reference in zip(row.call(rounded), row.call(exact), strict=True):
        np.testing.assert_allclose(
            tf.cast(value, tf.float64), reference, atol=tolerance, rtol=tolerance
        )


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("time", [None, 5])
@pytest.mark.parametrize("hidden", [None, 7])
def test_inferred_shapes(row, batch, time, hidden):
    """Sizes that one argument knows reach all outputs."""
    known = {"N": batch, "T": time, "K": 2, "H": hidden}
    spec = {
        name: tf.TensorSpec(row.shape(dims, known))
        for name, dims in row.spec.forward_inputs.items()
        if name not in ("mask", "seed")
    }
    last = f"{row.spec.states[-1]}0"
    spec[last] = tf.TensorSpec([None, None, 7])

    @tf.function(input_signature=[spec])
    def function(tensors):
        y, *states = row.call(tensors)
        assert y.shape.as_list() == [batch, time, 2, 7]
        for state in states:
            assert state.shape.as_list() == [batch, 2, 7]
        return y

    function.get_concrete_function()


def test_inferred_gradient_shapes(row):
    sizes = {"N": None, "T": None, "K": 2, "H": 7}
    spec = {
        name: tf.TensorSpec(row.shape(dims, sizes))
        for name, dims in row.spec.forward_inputs.items()
        if name not in ("mask", "seed")
    }

    @tf.function(input_signature=[spec])
    def function(tensors):
        found = tf.gradients(row.call(tensors, training=True)[0], list(tensors.values()))
        for name, gradient in zip(tensors, found, strict=True):
            assert gradient.shape.as_list() == spec[name].shape.as_list(), name
        return found

    function.get_concrete_function()


def test_unknown_sizes_at_run_time(row, rng):
    tensors = row.inputs(rng)
    sizes = {"N": None, "T": None, "K": 2, "H": None}
    spec = {
        name: tf.TensorSpec(row.shape(row.spec.forward_inputs[name], sizes), tensor.dtype)
        for name, tensor in tensors.items()
    }
    mask = tf.constant([[True, False, True, True, False]] * 3)

    def run(tensors, mask):
        def loss(outputs):
            return tf.reduce_sum(outputs[0] ** 2)

        return row.call(tensors, mask=mask), gradients(row, tensors, loss, mask=mask)

    function = tf.function(run, input_signature=[spec, tf.TensorSpec([None, None], tf.bool)])
    for found, expected in zip(
        tf.nest.flatten(function(tensors, mask)), tf.nest.flatten(run(tensors, mask)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_states_left_out_are_zeros(row, rng):
    tensors = row.inputs(rng)
    initial = {name: t for name, t in tensors.items() if name[:-1] in row.spec.states}
    zeros = {**tensors, **{name: tf.zeros_like(t) for name, t in initial.items()}}
    arguments = [tensors[n] for n in (*row.spec.gates, "wx", "recurrent_kernel") if n in tensors]
    extras = {name: tensors[name] for name in row.spec.extras}
    found = getattr(ops, row.function)(*arguments, **extras, **row.options)
    for a, b in zip(tf.nest.flatten(found), row.call(zeros), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("function", ["gru", "layer_norm_gru"])
def test_recurrent_bias_left_out_is_zero(rng, function):
    row = next(row for row in ROWS if row.name == function)
    tensors = row.inputs(rng)
    zero = {**tensors, "recurrent_bias": tf.zeros_like(tensors["recurrent_bias"])}
    tensors.pop("recurrent_bias")
    for a, b in zip(row.call(tensors), row.call(zero), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize(("batch", "time"), [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_do(row, rng, batch, time, save):
    tensors = row.inputs(rng, batch, time)
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        y, *states = row.call(tensors, save=save)
        loss = tf.reduce_sum(y)
        for s, state in enumerate(states):
            loss += tf.reduce_sum((s + 2.0) * state)
    assert y.shape == (batch, time, 2, 4)
    found = tape.gradient(loss, tensors)
    initial = [f"{state}0" for state in row.spec.states][: len(states)]
    for s, (name, state) in enumerate(zip(initial, states, strict=True)):
        np.testing.assert_array_equal(state, tensors[name])
        np.testing.assert_array_equal(found.pop(name), np.full(state.shape, s + 2.0))
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, tf.zeros_like(tensors[name]), err_msg=name)


def test_inputs_are_not_overwritten_while_in_use(row, rng):
    """`gates` may take wx's memory, but not when anyone else reads wx."""
    tensors = row.inputs(rng)
    name = next(iter(tensors))

    @tf.function
    def function(x):
        x = x * 1.0  # a buffer of the graph's own
        before = tf.identity(x)
        y = row.call({**tensors, name: x}, save=True)[0]
        with tf.control_dependencies([y]):
            return before + 0.0, x + 0.0, y

    before, after, y = function(tensors[name])
    np.testing.assert_array_equal(before, tensors[name])
    np.testing.assert_array_equal(after, tensors[name])
    np.testing.assert_array_equal(y, row.call(tensors)[0])


def test_layer_norm_of_no_rows(rng):
    x = tf.zeros([0, 2, 4], tf.float64)
    gamma, beta = (tf.constant(rng.normal(size=[2, 4])) for _ in range(2))
    with tf.GradientTape() as tape:
        tape.watch([x, gamma, beta])
        y = ops.layer_norm(x, gamma, beta)
    found = tape.gradient(y, [x, gamma, beta])
    assert y.shape == x.shape == found[0].shape
    np.testing.assert_array_equal(found[1], tf.zeros_like(gamma))
    np.testing.assert_array_equal(found[2], tf.zeros_like(beta))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("features", [1, 5, 64, 65, 1000])
def test_layer_norm_dtypes(rng, dtype, features):
    x, gamma, beta, dy = (
        tf.cast(tf.constant(rng.normal(size=shape)), dtype)
        for shape in ([7, 2, features], [2, features], [2, features], [7, 2, features])
    )
    results = []
    for kind in (dtype, tf.float64):
        sources = [tf.cast(t, kind) for t in (x, gamma, beta)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = ops.layer_norm(*sources, epsilon=0.01)
        results.append([y, *tape.gradient(y, sources, tf.cast(dy, kind))])
    tolerance = {tf.float16: 4e-3, tf.bfloat16: 3e-2, tf.float32: 2e-6, tf.float64: 0}[dtype]
    for found, expected in zip(*results, strict=True):
        assert found.dtype == dtype
        found = tf.cast(found, tf.float64)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=3 * tolerance)
