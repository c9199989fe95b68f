"""Helpers of the layer tests: they make inputs, run layers and compare results."""

import itertools

import numpy as np
import tensorflow as tf

MASKS = ("left", "right", "holes", "all")


def make_mask(kind, batch, time, rng):
    """A mask [batch, time]: padding on the left or right, holes, or rows that are all masked."""
    lengths = rng.integers(1, time + 1, size=(batch, 1))
    steps = np.arange(time)
    if kind == "left":
        return steps >= time - lengths
    if kind == "right":
        return steps < lengths
    mask = rng.random((batch, time)) < 0.6
    if kind == "all":
        mask[0] = False
    return mask


def make_states(row, layer, batch, rng):
    """Random states of `layer`, as float64 arrays in the order of its `initial_state`."""
    states = []
    for i, size in enumerate(layer.state_size):
        state = rng.normal(size=(batch, *np.atleast_1d(size)))
        per_direction = len(layer.state_size) // len(layer.cells)
        states.append(1 + np.abs(state) if i % per_direction in row.positive_states else state)
    return states


def randomize(layer, rng):
    """Gives every weight of a built layer random values, also the biases."""
    layer.set_weights([rng.normal(scale=0.4, size=w.shape) for w in layer.weights])


def call(layer, x, states=None, **kwargs):
    """Outputs of `layer` as a flat list of tensors."""
    if states is not None:
        kwargs["initial_state"] = list(states)
    return tf.nest.flatten(layer(x, **kwargs))


def variables(layer):
    """The tensors of a layer's trainable weights."""
    return [variable.value for variable in layer.trainable_variables]


def values_and_gradients(run, sources, seed):
    """Outputs of `run()`, and gradients of a random weighting of them all.

    Returns arrays by name: "output 0" ..., "gradient 0" ... in the order of `sources`.
    """
    rng = np.random.default_rng(seed)
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        outputs = run()
        loss = 0.0
        for output in outputs:
            loss += tf.reduce_sum(tf.cast(output, tf.float64) * rng.normal(size=output.shape))
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    results = {f"output {i}": output.numpy() for i, output in enumerate(outputs)}
    for i, gradient in enumerate(gradients):
        results[f"gradient {i}"] = tf.convert_to_tensor(gradient).numpy()
    return results


def assert_close(actual, expected, tolerance):
    """Each result within `tolerance` of the largest value of its counterpart (or of 1)."""
    assert actual.keys() == expected.keys()
    for name, want in expected.items():
        got = actual[name].astype(np.float64)
        want = want.astype(np.float64)
        assert got.shape == want.shape, f"{name}: shape {got.shape}, expected {want.shape}"
        error = np.max(np.abs(got - want), initial=0) / np.max(np.abs(want), initial=1)
        assert error <= tolerance, f"{name}: error {error:.2e}, at most {tolerance:.0e} allowed"


def pairwise(choices):
    """Cases in which every pair of values of every two arguments occurs; greedy, always the same.

    choices: {argument: list of values} → list of {argument: value}.
    """
    names = list(choices)
    left = {
        (a, x, b, y)
        for a, b in itertools.combinations(range(len(names)), 2)
        for x in range(len(choices[names[a]]))
        for y in range(len(choices[names[b]]))
    }
    rng = np.random.default_rng(0)

    def covered(case):
        return {(a, case[a], b, case[b]) for a, b in itertools.combinations(range(len(case)), 2)}

    cases = []
    while left:
        a, x, b, y = min(left)
        candidates = rng.integers(0, [len(choices[name]) for name in names], (40, len(names)))
        candidates[:, a], candidates[:, b] = x, y
        best = max(candidates.tolist(), key=lambda case: len(covered(case) & left))
        left -= covered(best)
        cases.append({name: choices[name][i] for name, i in zip(names, best, strict=True)})
    return cases
