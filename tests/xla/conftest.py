"""Fixtures of the XLA tests. Every test runs under a seed that is printed if it fails.

HASTE_TEST_SEED=n runs them all under seed n.
"""

import os
import pathlib
import zlib

import keras
import numpy as np
import pytest
from xla_cases import ROWS

from haste_keras.native import library


def pytest_collection_modifyitems(items):
    """Where XLA cannot run the kernels, only what says so is tested."""
    compiles, why = library.xla("cpu")
    here = pathlib.Path(__file__).parent
    for item in items:
        needs = item.path.parent == here and not item.get_closest_marker("everywhere")
        if needs and not compiles:
            item.add_marker(pytest.mark.skip(reason=why))


def pytest_configure(config):
    config.addinivalue_line("markers", "everywhere: also where XLA cannot run the kernels")


@pytest.fixture
def rng(request):
    number = int(os.environ.get("HASTE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"HASTE_TEST_SEED={number}")
    keras.utils.set_random_seed(number)
    return np.random.default_rng(number)


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request):
    """Each op in turn."""
    return request.param
