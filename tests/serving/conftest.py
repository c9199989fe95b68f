"""Fixtures of the tests of exports: all of them, run by one process without haste_keras."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "keras"))  # rows.py

import stock_cases  # noqa: E402
import stock_models  # noqa: E402


@pytest.fixture(scope="session")
def stock(tmp_path_factory):
    """Folder in which stock TensorFlow ran all exports: see `run_stock.py`."""
    keras.utils.set_random_seed(7)
    folder = tmp_path_factory.mktemp("exports")
    stock_cases.export_cases(folder / "cases")
    stock_models.export_models(folder)
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, str(HERE / "run_stock.py"), str(folder)]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def found(stock):
    """What stock TensorFlow computed: {model: [outputs of each call]}."""
    results = np.load(stock / "found.npz")
    return {name: results[name] for name in results.files}


@pytest.fixture(scope="session")
def expected(stock):
    """The same by our ops, in this process."""
    results = {}
    for path in (stock / "cases" / "expected.npz", stock / "expected.npz"):
        loaded = np.load(path)
        results.update({name: loaded[name] for name in loaded.files})
    return results
