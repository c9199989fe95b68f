"""Fixtures of the op tests. Every test runs under a seed that is printed if it fails.

HASTE_TEST_SEED=n runs them all under seed n.
"""

import os
import zlib

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture
def rng(request):
    """Random numbers of the test's own."""
    number = int(os.environ.get("HASTE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"HASTE_TEST_SEED={number}")
    return np.random.default_rng(number)


@pytest.fixture
def inputs(rng):
    """inputs(N, T, K, H, dtype) -> [wx, recurrent_kernel, h0, c0] of random tensors."""

    def make(batch=3, time=5, lanes=2, hidden=4, dtype=tf.float64):
        shapes = [
            (batch, time, lanes, 4, hidden),
            (lanes, hidden, 4, hidden),
            (batch, lanes, hidden),
            (batch, lanes, hidden),
        ]
        arrays = [rng.normal(size=shape) for shape in shapes]
        arrays[1] /= np.sqrt(hidden)
        return [tf.constant(array, dtype) for array in arrays]

    return make
