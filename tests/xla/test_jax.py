"""`haste_keras.jax` against the same recurrence by lax.scan, in a process with JAX alone."""

import importlib.util
import pathlib

import numpy as np
import pytest

import haste_keras

jax = pytest.importorskip("jax", reason="JAX is not installed: requirements-jax.txt")
jnp = jax.numpy
PATH = pathlib.Path(haste_keras.__file__).with_name("jax.py")


@pytest.fixture(scope="module")
def lstm():
    spec = importlib.util.spec_from_file_location("haste_keras_jax", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.lstm


def _reference(wx, R, states):
    def step(states, w):
        h, c = states
        q = w + jnp.einsum("nkh,khgj->nkgj", h, R)
        i, f, g, o = (q[:, :, gate] for gate in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    states, y = jax.lax.scan(step, states, jnp.moveaxis(wx, 1, 0))
    return jnp.moveaxis(y, 0, 1), states


def _arguments(rng, n=3, t=6, k=2, h=8):
    shapes = (n, t, k, 4, h), (k, h, 4, h), (n, k, h), (n, k, h)
    wx, R, *states = (jnp.asarray(0.4 * rng.normal(size=shape), jnp.float32) for shape in shapes)
    return wx, R, tuple(states)


def test_outputs_and_gradients(lstm, rng):
    def with_gradient(function):
        def loss(*arguments):
            return sum(jnp.sum(jnp.sin(o)) for o in jax.tree.leaves(function(*arguments)))

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    arguments = _arguments(rng)
    for function in (lambda f: jax.jit(f), with_gradient):
        got = jax.tree.leaves(function(lstm)(*arguments))
        want = jax.tree.leaves(function(_reference)(*arguments))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, atol=5e-6)


def test_reversed_lanes_and_masks(lstm, rng):
    wx, R, states = _arguments(rng)
    y, _ = lstm(wx, R, states, reverse=[True, True])
    want, _ = _reference(wx[:, ::-1], R, states)
    np.testing.assert_allclose(y, want[:, ::-1], atol=5e-6)
    mask = np.ones(wx.shape[:2], bool)
    mask[:, 4:] = False
    y, (h, _) = lstm(wx, R, states, mask=mask)
    np.testing.assert_array_equal(h, y[:, 3])
    np.testing.assert_array_equal(y[:, 5], y[:, 3])


def test_errors(lstm, rng):
    wx, R, states = _arguments(rng)
    with pytest.raises(ValueError, match=r"lstm: R must have shape \[2, 8, 4, 8\]"):
        lstm(wx, R[:1], states)
    with pytest.raises(ValueError, match="lstm: activation must be one of tanh"):
        lstm(wx, R, activation="gelu")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r'HasteLstm: engine: .* got "nonsense"'):
        lstm(wx, R, engine="nonsense")
