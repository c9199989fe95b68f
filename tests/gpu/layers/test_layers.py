"""Layers on an NVIDIA GPU: against the oracle, and against themselves on the CPU."""

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

# From tests/keras: the table of the layers, and their comparison with the oracle.
from compare import (  # noqa: E402
    assert_close,
    make_mask,
    make_states,
    randomize,
    values_and_gradients,
    variables,
)
from layer_oracle import oracle  # noqa: E402
from rows import ROWS  # noqa: E402

import haste_keras  # noqa: E402

pytestmark = pytest.mark.usefixtures("true_float32")
UNITS, FEATURES = 12, 5
TOLERANCE = {"float32": 3e-5, "float64": 1e-11, "mixed_float16": 2e-2, "mixed_bfloat16": 1e-1}
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@every_row
@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_matches_the_oracle(row, policy, direction):
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(2)
    with tf.device(DEVICE):
        layer = row.layer(
            UNITS, return_sequences=True, return_state=True, dtype=policy, direction=direction
        )
        layer.build((4, 9, FEATURES))
        randomize(layer, rng)
        x = tf.constant(rng.normal(size=(4, 9, FEATURES)), layer.compute_dtype)
        states = make_states(row, layer, 4, rng)
        states = [tf.constant(state, layer.compute_dtype) for state in states]
    mask = make_mask("all", 4, 9, rng)
    sources = [x, *states, *variables(layer)]

    def expected():
        y, final = oracle(row, layer, x, states, mask=mask)
        y = tf.concat(y, axis=-1)
        if direction == "bidirectional":
            y = tf.where(mask[:, :, None], y, tf.zeros_like(y))
        return [y, *final]

    with tf.device("CPU:0"):
        want = values_and_gradients(expected, sources, 3)
    with tf.device(DEVICE):
        got = values_and_gradients(lambda: layer(x, initial_state=states, mask=mask), sources, 3)
    assert_close(got, want, TOLERANCE[policy])


@pytest.mark.parametrize("policy", [policy for policy in TOLERANCE if policy != "float64"])
@pytest.mark.parametrize("forget_activation", ["exponential", "sigmoid"])
def test_slstm_bears_inputs_scaled_by_100(policy, forget_activation):
    """With an input for each gate of each unit: x·W is x, not rounded once more."""
    row = next(row for row in ROWS if row.layer_class is haste_keras.SLSTM)
    rng = np.random.default_rng(2)
    with tf.device(DEVICE):
        layer = row.layer(
            32, return_sequences=True, dtype=policy, forget_activation=forget_activation
        )
        x = tf.constant(100 * rng.normal(size=(4, 60, 128)), layer.compute_dtype)
        layer.build(x.shape)
        _, recurrent, bias = layer.get_weights()
        layer.set_weights([np.eye(128), rng.normal(scale=0.2, size=recurrent.shape), bias])
        sources = [x, *variables(layer)]
        got = values_and_gradients(lambda: [layer(x)], sources, 3)
    assert all(np.all(np.isfinite(value)) for value in got.values())
    with tf.device("CPU:0"):
        want = values_and_gradients(lambda: oracle(row, layer, x)[0], sources, 3)
    assert_close(got, want, 4 * TOLERANCE[policy])


def run(device, row, options, x, *, mask=None, training=False, calls=1):
    """Outputs of each call of a new layer on `device`, and gradients of a weighted sum of them."""
    with tf.device(device):
        layer = row.layer(UNITS, return_state=True, seed=3, **row.allowed(options))
        layer.build(x.shape)
        randomize(layer, np.random.default_rng(2))
        x = tf.constant(x)
        mask = None if mask is None else tf.constant(mask)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = []
            for _ in range(calls):
                outputs += tf.nest.flatten(layer(x, mask=mask, training=training))
            rng = np.random.default_rng(4)
            loss = tf.add_n([tf.reduce_sum(o * rng.normal(size=o.shape)) for o in outputs])
        gradients = tape.gradient(loss, [x, *variables(layer)])
    assert all(device in output.device for output in outputs)
    return [tensor.numpy() for tensor in (*outputs, *gradients)]


def assert_same(row, options, x, **how):
    """Runs on both devices; returns the results of DEVICE."""
    actual, expected = (run(d, row, options, x, **how) for d in (DEVICE, "CPU:0"))
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        assert np.all(np.isfinite(got))
        np.testing.assert_allclose(got, want, atol=3e-5 * np.max(np.abs(want), initial=1))
    return actual


def data():
    return np.random.default_rng(0).normal(size=(4, 9, FEATURES)).astype(np.float32)


def fixed_mask():
    return make_mask("all", 4, 9, np.random.default_rng(1))


CASES = {
    "plain": lambda row: {},
    "heads": lambda row: {"heads": 2},
    "dropconnect": lambda row: {"dropconnect": 0.3},
    "bidirectional": lambda row: {"direction": "bidirectional"},
    "bidirectional, summed": lambda row: {"direction": "bidirectional", "merge_mode": "sum"},
    "backward": lambda row: {"direction": "backward"},
    "everything drawn": lambda row: row.noise(0.1),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", CASES)
@every_row
def test_matches_the_cpu(row, case, masked):
    options = {"return_sequences": masked, **CASES[case](row)}
    mask = fixed_mask() if masked else None
    assert_same(row, options, data(), mask=mask, training=True)
    if case == "everything drawn":
        assert_same(row, options, data(), mask=mask, training=False)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@every_row
def test_stateful(row, direction):
    options = {"stateful": True, "direction": direction, "return_sequences": True}
    results = assert_same(row, options, data(), calls=3)
    per_call = 1 + len(row.layer(UNITS, direction=direction).state_size)
    assert not np.allclose(results[0], results[per_call])  # the second call went on


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("shape", [(4, 0), (0, 9), (0, 0)], ids=["T=0", "N=0", "N=T=0"])
@every_row
def test_empty(row, shape, direction):
    masked = direction == "forward"
    options = {"direction": direction, "return_sequences": masked}
    x = np.zeros((*shape, FEATURES), np.float32)
    assert_same(row, options, x, mask=np.ones(shape, bool) if masked else None, training=True)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@every_row
def test_nan_at_masked_steps(row, direction):
    options = {"direction": direction, "return_sequences": direction == "forward"}
    x, mask = data(), fixed_mask()
    x[~mask] = np.nan
    outputs = 1 + len(row.layer(UNITS, direction=direction).state_size)
    gradient = assert_same(row, options, x, mask=mask, training=True)[outputs]
    assert not np.any(gradient[~mask])
