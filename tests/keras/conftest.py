"""Fixtures of the layer tests. Every test runs under a seed that is printed if it fails.

HASTE_TEST_SEED=n runs them all under seed n.
"""

import os
import zlib

import keras
import numpy as np
import pytest
from rows import ROWS


@pytest.fixture(autouse=True)
def seed(request):
    """Seeds Python, NumPy, TensorFlow and Keras; a number of the test's own, or HASTE_TEST_SEED."""
    number = int(os.environ.get("HASTE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"HASTE_TEST_SEED={number}")
    keras.utils.set_random_seed(number)
    yield number
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request):
    """Each layer of the package in turn."""
    return request.param
