"""`haste_keras.jax` on a GPU: kernels of the CUDA half, called by JAX's XLA."""

import pathlib
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: requirements-jax.txt")

sys.path.append(str(pathlib.Path(__file__).parents[2] / "xla"))

from jax_cases import arguments, check_outputs_and_gradients, load  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")  # of the reference

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX sees no GPU")


@pytest.fixture(scope="module")
def lstm():
    return load().lstm


@pytest.mark.parametrize("sizes", [(3, 6, 2, 8), (7, 33, 1, 40), (32, 50, 1, 256)], ids=str)
def test_outputs_and_gradients(lstm, sizes):
    # Gradients are sums over all steps and rows.
    n, t, k, h = sizes
    rng = np.random.default_rng(0)
    check_outputs_and_gradients(lstm, rng, atol=1e-4, n=n, t=t, k=k, h=h)


def test_a_gpu_and_a_cpu_agree(lstm):
    given = arguments(np.random.default_rng(1))
    on_gpu = jax.jit(lstm)(*given)
    cpu = jax.devices("cpu")[0]
    on_cpu = jax.jit(lstm)(*jax.device_put(given, cpu))
    assert on_gpu[0].device != on_cpu[0].device
    for one, other in zip(jax.tree.leaves(on_gpu), jax.tree.leaves(on_cpu), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)
