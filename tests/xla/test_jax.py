"""`haste_keras.jax` against the same recurrence by lax.scan, in a process with JAX alone."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: requirements-jax.txt")

from jax_cases import arguments, check_outputs_and_gradients, load, reference  # noqa: E402


@pytest.fixture(scope="module")
def lstm():
    return load().lstm


def test_outputs_and_gradients(lstm, rng):
    check_outputs_and_gradients(lstm, rng, atol=5e-6)


def test_reversed_lanes_and_masks(lstm, rng):
    wx, R, states = arguments(rng)
    y, _ = lstm(wx, R, states, reverse=[True, True])
    want, _ = reference(wx[:, ::-1], R, states)
    np.testing.assert_allclose(y, want[:, ::-1], atol=5e-6)
    mask = np.ones(wx.shape[:2], bool)
    mask[:, 4:] = False
    y, (h, _) = lstm(wx, R, states, mask=mask)
    np.testing.assert_array_equal(h, y[:, 3])
    np.testing.assert_array_equal(y[:, 5], y[:, 3])


def test_errors(lstm, rng):
    wx, R, states = arguments(rng)
    with pytest.raises(ValueError, match=r"lstm: R must have shape \[2, 8, 4, 8\]"):
        lstm(wx, R[:1], states)
    with pytest.raises(ValueError, match="lstm: activation must be one of tanh"):
        lstm(wx, R, activation="gelu")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r'HasteLstm: engine: .* got "nonsense"'):
        lstm(wx, R, engine="nonsense")
