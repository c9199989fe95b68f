"""Layers on an NVIDIA GPU against the same layers, with the same weights, on the CPU."""

import numpy as np
import pytest
from needs import need_tensorflow

tf = need_tensorflow()

import haste_keras  # noqa: E402

pytestmark = pytest.mark.usefixtures("true_float32")
UNITS, FEATURES = 12, 5


def make_mask(batch, time):
    mask = np.random.default_rng(1).random((batch, time)) < 0.6
    mask[:1] = False  # a row that is all masked
    return mask


def run(device, options, x, *, mask=None, training=False, calls=1):
    """Outputs of each call of a new layer on `device`, and gradients of a weighted sum of them."""
    with tf.device(device):
        layer = haste_keras.LSTM(UNITS, return_state=True, seed=3, **options)
        layer.build(x.shape)
        rng = np.random.default_rng(2)
        layer.set_weights([rng.normal(scale=0.4, size=w.shape) for w in layer.get_weights()])
        x = tf.constant(x)
        mask = None if mask is None else tf.constant(mask)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = []
            for _ in range(calls):
                outputs += tf.nest.flatten(layer(x, mask=mask, training=training))
            rng = np.random.default_rng(4)
            loss = tf.add_n([tf.reduce_sum(o * rng.normal(size=o.shape)) for o in outputs])
        gradients = tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])
    assert all(device in output.device for output in outputs)
    return [tensor.numpy() for tensor in (*outputs, *gradients)]


def assert_same(options, x, **how):
    """Runs on both devices; returns the GPU's results."""
    actual, expected = (run(d, options, x, **how) for d in ("GPU:0", "CPU:0"))
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        assert np.all(np.isfinite(got))
        np.testing.assert_allclose(got, want, atol=2e-5 * np.max(np.abs(want), initial=1))
    return actual


CASES = {
    "plain": {},
    "heads": {"heads": 2},
    "dropconnect": {"dropconnect": 0.3},
    "bidirectional": {"direction": "bidirectional"},
    "bidirectional, summed": {"direction": "bidirectional", "merge_mode": "sum"},
    "backward": {"direction": "backward"},
    "everything drawn": {"dropout": 0.2, "recurrent_dropout": 0.2, "zoneout": 0.1},
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_matches_the_cpu(case, return_sequences, masked):
    options = {"return_sequences": return_sequences, **CASES[case]}
    x = np.random.default_rng(0).normal(size=(4, 9, FEATURES)).astype(np.float32)
    mask = make_mask(4, 9) if masked else None
    assert_same(options, x, mask=mask, training=True)
    assert_same(options, x, mask=mask, training=False)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_stateful(direction):
    x = np.random.default_rng(0).normal(size=(4, 9, FEATURES)).astype(np.float32)
    options = {"stateful": True, "direction": direction, "return_sequences": True}
    results = assert_same(options, x, calls=3)
    per_call = 3 if direction == "forward" else 5
    assert not np.allclose(results[0], results[per_call])  # the second call went on


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("shape", [(4, 0), (0, 9), (0, 0)], ids=["T=0", "N=0", "N=T=0"])
@pytest.mark.parametrize("masked", [False, True])
def test_empty(shape, direction, return_sequences, masked):
    options = {"direction": direction, "return_sequences": return_sequences}
    x = np.zeros((*shape, FEATURES), np.float32)
    assert_same(options, x, mask=np.ones(shape, bool) if masked else None, training=True)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("return_sequences", [False, True])
def test_nan_at_masked_steps(direction, return_sequences):
    options = {"direction": direction, "return_sequences": return_sequences}
    x = np.random.default_rng(0).normal(size=(4, 9, FEATURES)).astype(np.float32)
    mask = make_mask(4, 9)
    x[~mask] = np.nan
    gradient = assert_same(options, x, mask=mask, training=True)[3 if direction == "forward" else 5]
    assert not np.any(gradient[~mask])
