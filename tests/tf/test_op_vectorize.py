"""`tf.vectorized_map` folds its loop into the batch."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops

LOOP, N, T, K, H = 4, 3, 5, 2, 6
LOOPS = {"While", "StatelessWhile"}


def ops_of(function):
    """Types of all ops in a traced function, those in functions that it calls included."""
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *[f.node_def for f in graph.library.function]]
    return {node.op for body in bodies for node in body}


@pytest.fixture
def stacks(rng):
    shapes = [(LOOP, N, T, K, 4, H), (K, H, 4, H), (LOOP, N, K, H), (LOOP, N, K, H)]
    return [tf.constant(0.5 * rng.normal(size=shape)) for shape in shapes]


def both(function, elements):
    """Results of vectorized_map in a graph and of a plain loop; and the graph's op types."""
    mapped = tf.function(lambda e: tf.vectorized_map(function, e))
    concrete = mapped.get_concrete_function(elements)
    found = tf.nest.flatten(mapped(elements))
    each = [
        tf.nest.flatten(function(tf.nest.map_structure(lambda x, i=i: x[i], elements)))
        for i in range(LOOP)
    ]
    expected = [tf.stack(values) for values in zip(*each, strict=True)]
    return found, expected, ops_of(concrete)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("with_mask", [None, "shared", "own"])
@pytest.mark.parametrize("training", [False, True])
def test_forward(stacks, rng, with_states, with_mask, training):
    wx, recurrent_kernel, h0, c0 = stacks
    mask = tf.constant(rng.random([LOOP, N, T]) < 0.6)

    def function(e):
        x, h, c, own_mask = e
        return ops.lstm(
            x,
            recurrent_kernel,
            [h, c] if with_states else None,
            mask={"own": own_mask, "shared": mask[0], None: None}[with_mask],
            training=training,
            reverse=[False, True],
        )

    found, expected, types = both(function, (wx, h0, c0, mask))
    assert not LOOPS & types
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("save", [False, True])
def test_gradient_inside(stacks, save):
    wx, recurrent_kernel, h0, c0 = stacks

    def function(e):
        x, h, c = e
        with tf.GradientTape() as tape:
            tape.watch([x, recurrent_kernel, h, c])
            y, (h_last, c_last) = ops.lstm(x, recurrent_kernel, [h, c], save=save)
            loss = tf.reduce_sum(y**2) + tf.reduce_sum(h_last * c_last)
        return tape.gradient(loss, [x, recurrent_kernel, h, c])

    found, expected, types = both(function, (wx, h0, c0))
    assert not LOOPS & types
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_gradient_around(stacks):
    wx, recurrent_kernel, *_ = stacks

    def run(mapping):
        with tf.GradientTape() as tape:
            tape.watch([wx, recurrent_kernel])
            y = mapping(lambda x: ops.lstm(x, recurrent_kernel, save=True)[0], wx)
            loss = tf.reduce_sum(y**2)
        return tape.gradient(loss, [wx, recurrent_kernel])

    for a, b in zip(run(tf.vectorized_map), run(tf.map_fn), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_sizes_known_at_run_time_only(stacks):
    wx, recurrent_kernel, *_ = stacks

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, K, 4, H], tf.float64)])
    def function(x):
        return tf.vectorized_map(lambda e: ops.lstm(e, recurrent_kernel)[0], x)

    assert not LOOPS & ops_of(function.get_concrete_function())
    expected = [ops.lstm(x, recurrent_kernel)[0] for x in wx]
    np.testing.assert_allclose(function(wx), expected, rtol=1e-12, atol=1e-14)


def test_kernels_of_their_own_are_looped_over(stacks):
    wx, recurrent_kernel, *_ = stacks
    kernels = tf.stack([recurrent_kernel * (1.0 + i) for i in range(LOOP)])
    found, expected, types = both(lambda e: ops.lstm(*e)[0], (wx, kernels))
    assert LOOPS & types
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-14)


def test_jacobian(inputs):
    wx, recurrent_kernel, *states = inputs(2, 3, 1, 2)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(wx)
        y = ops.lstm(wx, recurrent_kernel, states)[0][:, -1, 0]
    jacobian = tape.batch_jacobian(y, wx)
    one_by_one = tape.batch_jacobian(y, wx, experimental_use_pfor=False)
    np.testing.assert_allclose(jacobian, one_by_one, rtol=1e-12, atol=1e-14)
    assert np.abs(jacobian).max() > 0
