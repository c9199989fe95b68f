"""`haste_keras.jax` in a process with JAX alone, and the same recurrence by lax.scan."""

import importlib.util
import pathlib

import jax
import numpy as np

jnp = jax.numpy
_PATH = pathlib.Path(__file__).parents[2] / "haste_keras/jax.py"


def load():
    """haste_keras.jax without haste_keras, which imports TensorFlow."""
    spec = importlib.util.spec_from_file_location("haste_keras_jax", _PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference(wx, R, states):
    def step(states, w):
        h, c = states
        q = w + jnp.einsum("nkh,khgj->nkgj", h, R)
        i, f, g, o = (q[:, :, gate] for gate in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    states, y = jax.lax.scan(step, states, jnp.moveaxis(wx, 1, 0))
    return jnp.moveaxis(y, 0, 1), states


def arguments(rng, n=3, t=6, k=2, h=8):
    shapes = (n, t, k, 4, h), (k, h, 4, h), (n, k, h), (n, k, h)
    scales = 0.4, h**-0.5, 0.4, 0.4  # with a larger R the recurrence is chaotic
    wx, R, *states = (
        jnp.asarray(scale * rng.normal(size=shape), jnp.float32)
        for scale, shape in zip(scales, shapes, strict=True)
    )
    return wx, R, tuple(states)


def check_outputs_and_gradients(lstm, rng, atol, **sizes):
    """Compares both, and their gradients in every argument."""

    def with_gradient(function):
        def loss(*given):
            return sum(jnp.sum(jnp.sin(o)) for o in jax.tree.leaves(function(*given)))

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))

    given = arguments(rng, **sizes)
    for function in (jax.jit, with_gradient):
        got = jax.tree.leaves(function(lstm)(*given))
        want = jax.tree.leaves(function(reference)(*given))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, atol=atol, rtol=atol)
