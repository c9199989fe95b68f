"""Fixtures of the layer tests. Every test runs under a seed that is printed if it fails.

HASTE_TEST_SEED=n runs them all under seed n. HASTE_TEST_ALL=1 runs every case on every layer: a
test marked `spread(n)` else runs every n-th of its cases on a layer, others on the next one.
HASTE_TEST_XLA=1 compiles each model by XLA that does not say otherwise, also where there is no GPU.
"""

import collections
import os
import zlib

import keras
import numpy as np
import pytest
from rows import ROWS, Row


def pytest_configure(config):
    config.addinivalue_line("markers", "stock: for the layers that Keras has too")
    config.addinivalue_line("markers", "dense: for the layers with a recurrent matrix")
    config.addinivalue_line("markers", "spread(n): a layer runs every n-th case of the test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    seen, kept, left_out = collections.Counter(), [], []
    for item in items:
        row = item.callspec.params.get("row") if hasattr(item, "callspec") else None
        runs = True
        if isinstance(row, Row):
            of_row = (item.path, item.originalname, row.name)
            spread = item.get_closest_marker("spread")
            if spread and os.environ.get("HASTE_TEST_ALL") != "1":
                runs = (seen[of_row] + ROWS.index(row)) % spread.args[0] == 0
            seen[of_row] += 1
            runs = runs and (row.stock_class is not None or not item.get_closest_marker("stock"))
            runs = runs and (row.recurrence == "dense" or not item.get_closest_marker("dense"))
        (kept if runs else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def seed(request):
    """Seeds Python, NumPy, TensorFlow and Keras; a number of the test's own, or HASTE_TEST_SEED."""
    number = int(os.environ.get("HASTE_TEST_SEED", zlib.crc32(request.node.name.encode())))
    print(f"HASTE_TEST_SEED={number}")
    keras.utils.set_random_seed(number)
    yield number
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True)
def compiled_by_xla(monkeypatch):
    """With HASTE_TEST_XLA=1, what `jit_compile="auto"` is on a GPU."""
    if os.environ.get("HASTE_TEST_XLA") == "1":
        from keras.src.trainers.trainer import model_supports_jit  # seen in Keras 3.6 and 3.15

        monkeypatch.setattr(keras.Model, "_resolve_auto_jit_compile", model_supports_jit)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request):
    """Each layer of the package in turn."""
    return request.param
