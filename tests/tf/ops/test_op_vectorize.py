"""`tf.vectorized_map` folds its loop into the batch, or into the lanes."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS, SEED, gradients

from haste_keras import ops

LOOP, N, T, K, H = 4, 3, 5, 2, 6
LOOPS = {"While", "StatelessWhile"}
# Ops of which the gradient sums over the batch: of parameters, which belong to lanes.
SUMS = {"gru", "layer_norm_lstm", "layer_norm_gru", "indrnn"}  # by the name of the row


def ops_of(function):
    """Types of all ops in a traced function, those in functions that it calls included."""
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *[f.node_def for f in graph.library.function]]
    return {node.op for body in bodies for node in body}


@pytest.fixture
def stacks(row, rng):
    """(parameters, what differs between iterations): {name: tensor}, {name: [LOOP, tensor]}."""
    each = [row.inputs(rng, N, T, K, H) for _ in range(LOOP)]
    own = [n for n, dims in row.spec.forward_inputs.items() if dims[0] == "N" and n in each[0]]
    parameters = {name: tensor for name, tensor in each[0].items() if name not in own}
    return parameters, {name: tf.stack([tensors[name] for tensors in each]) for name in own}


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


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("with_mask", [None, "shared", "own"])
@pytest.mark.parametrize("training", [False, True])
def test_forward(row, stacks, rng, with_mask, training):
    parameters, own = stacks
    mask = tf.constant(rng.random([LOOP, N, T]) < 0.6)

    def function(e):
        tensors, own_mask = e
        options = {"mask": {"own": own_mask, "shared": mask[0], None: None}[with_mask]}
        options |= {"training": training, "reverse": [False, True]}
        return row.call({**parameters, **tensors}, **options)

    found, expected, types = both(function, (own, mask))
    assert not LOOPS & types
    assert_same(found, expected)


@pytest.mark.parametrize("differs", ["wx or gates", "state"])
def test_one_input_alone_differs(row, stacks, differs):
    parameters, own = stacks
    name = next(iter(own)) if differs != "state" else f"{row.spec.states[0]}0"
    first = {n: tensor[0] for n, tensor in own.items()}
    found, expected, types = both(
        lambda tensor: row.call({**parameters, **first, name: tensor}), own[name]
    )
    assert not LOOPS & types
    assert_same(found, expected)


@pytest.mark.parametrize("save", [False, True])
def test_gradient_inside(row, stacks, save):
    parameters, own = stacks

    def loss(outputs):
        return tf.add_n([tf.reduce_sum(v**2) for v in outputs[:3]])

    def function(tensors):
        return gradients(row, {**parameters, **tensors}, loss, save=save, reverse=[False, True])

    found, expected, types = both(function, own)
    assert not LOOPS & types
    assert_same(found, expected)


def test_gradient_inside_with_masks_of_their_own(row, stacks, rng):
    parameters, own = stacks
    mask = tf.constant(rng.random([LOOP, N, T]) < 0.6)

    def function(e):
        tensors, own_mask = e
        return gradients(
            row,
            {**parameters, **tensors},
            lambda outputs: tf.reduce_sum(outputs[0] ** 2),
            mask=own_mask,
        )

    found, expected, types = both(function, (own, mask))
    assert bool(LOOPS & types) == (row.name in SUMS)
    assert_same(found, expected)


def test_gradient_around(row, stacks):
    parameters, own = stacks

    def run(mapping):
        sources = {**parameters, **own}
        with tf.GradientTape() as tape:
            tape.watch(list(sources.values()))
            y = mapping(
                lambda tensors: row.call({**parameters, **tensors}, save=True)[0],
                own,
                fn_output_signature=tf.float64,
            )
            loss = tf.reduce_sum(y**2)
        found = tape.gradient(loss, sources, unconnected_gradients="zero")
        return list(found.values())

    def vectorized(function, elements, fn_output_signature):
        return tf.vectorized_map(function, elements)

    assert_same(run(vectorized), run(tf.map_fn))


def test_sizes_known_at_run_time_only(row, stacks):
    parameters, own = stacks
    name = next(iter(own))
    shape = [s if i in (3, 4) else None for i, s in enumerate(own[name].shape[:-1])]
    first = {n: tensor[0] for n, tensor in own.items()}

    @tf.function(input_signature=[tf.TensorSpec([*shape, H], tf.float64)])
    def function(stack):
        return tf.vectorized_map(
            lambda tensor: row.call({**parameters, **first, name: tensor})[0], stack
        )

    assert not LOOPS & ops_of(function.get_concrete_function())
    expected = [row.call({**parameters, **first, name: tensor})[0] for tensor in own[name]]
    assert_same([function(own[name])], [expected])


def test_parameters_of_their_own_are_looped_over(row, stacks):
    parameters, own = stacks
    if not parameters:
        return
    first = {n: tensor[0] for n, tensor in own.items()}
    for name, parameter in parameters.items():
        stack = tf.stack([parameter * (1.0 + i) for i in range(LOOP)])
        found, expected, types = both(
            lambda tensor, name=name: row.call({**parameters, **first, name: tensor})[0], stack
        )
        assert LOOPS & types
        assert_same(found, expected)


@pytest.mark.parametrize("option", ["zoneout", "recurrent_dropout"])
def test_gradient_draws_what_its_op_drew(row, stacks, option):
    """Seen in y and its gradient together: one is the slope of the other."""
    if not row.takes(option):
        return
    parameters, own = stacks

    def function(tensors):
        tensors = {**parameters, **tensors}
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            y = row.call(tensors, training=True, seed=SEED, **{option: 0.5})[0]
            loss = tf.reduce_sum(y**2)
        found = tape.gradient(loss, tensors, unconnected_gradients="zero")
        return y, found

    found = tf.vectorized_map(function, own)[1]
    step = 1e-6
    name = next(iter(own))
    direction = tf.cos(tf.reshape(tf.range(tf.size(own[name]), dtype=tf.float64), own[name].shape))
    ends = [
        tf.reduce_sum(
            tf.vectorized_map(function, {**own, name: own[name] + sign * step * direction})[0] ** 2
        )
        for sign in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(
        tf.reduce_sum(found[name] * direction), expected, rtol=1e-5, atol=1e-7
    )


def test_jacobian(row, rng):
    tensors = row.inputs(rng, 2, 3, 1, 2)
    source = next(iter(tensors))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors[source])
        y = row.call(tensors)[0][:, -1, 0]
    jacobian = tape.batch_jacobian(y, tensors[source])
    one_by_one = tape.batch_jacobian(y, tensors[source], experimental_use_pfor=False)
    np.testing.assert_allclose(jacobian, one_by_one, rtol=1e-12, atol=1e-14)
    assert np.abs(jacobian).max() > 0


def test_jacobian_draws_what_the_op_drew(inputs):
    wx, recurrent_kernel, *states = inputs(2, 3, 1, 2)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(wx)
        options = {"zoneout": 0.5, "recurrent_dropout": 0.5, "training": True, "seed": SEED}
        y = ops.lstm(wx, recurrent_kernel, states, **options)[0][:, -1, 0]
    jacobian = tape.batch_jacobian(y, wx)
    one_by_one = tape.batch_jacobian(y, wx, experimental_use_pfor=False)
    np.testing.assert_allclose(jacobian, one_by_one, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("with_beta", [False, True])
def test_layer_norm(rng, with_beta):
    x = tf.constant(rng.normal(size=[LOOP, 3, K, H]))
    gamma, beta = (tf.constant(rng.normal(size=[K, H])) for _ in range(2))
    sources = [gamma, beta] if with_beta else [gamma]

    def function(e):
        with tf.GradientTape() as tape:
            tape.watch([e, *sources])
            y = ops.layer_norm(e, *sources)
            loss = tf.reduce_sum(y**3)
        return y, tape.gradient(loss, [e, *sources])

    found, expected, types = both(function, x)
    assert not LOOPS & types
    assert_same(found, expected)


def test_table_of_sums():
    """`SUMS` agrees with the ops' outputs."""
    for row in ROWS:
        sums = any("N" not in dims for dims in row.spec.backward_outputs.values())
        assert sums == (row.name in SUMS)
