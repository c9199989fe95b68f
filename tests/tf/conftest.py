"""Fixtures of the op tests. Every test runs under a seed that is printed if it fails.

HASTE_TEST_SEED=n runs them all under seed n.
"""

import os
import zlib

import numpy as np
import pytest
import tensorflow as tf
from op_rows import LSTM, ROWS


@pytest.fixture
def rng(request):
    """Random numbers of the test's own."""
    number = int(os.environ.get("HASTE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"HASTE_TEST_SEED={number}")
    return np.random.default_rng(number)


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request):
    """Each row of the table."""
    return request.param


@pytest.fixture
def inputs(rng):
    """inputs(N, T, K, H, dtype) -> [wx, recurrent_kernel, h0, c0] of random tensors."""

    def make(batch=3, time=5, lanes=2, hidden=4, dtype=tf.float64):
        return list(LSTM.inputs(rng, batch, time, lanes, hidden, dtype).values())

    return make
