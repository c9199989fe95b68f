"""Keras's own unit tests, which ship in its wheel, with our class where they name the stock one."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest
from rows import ROWS

import haste_keras

FOLDER = pathlib.Path(keras.__file__).parent / "src/layers"

# Whether Bidirectional would take its cuDNN path, which is for the stock class alone.
DESELECTED = "not test_fused_lstm_eligibility"

# `layers` of a test module is keras.src.layers: one namespace, changed before the module is read.
PLUGIN = """
import keras.src.layers as layers
import haste_keras
layers.{name} = haste_keras.{name}
layers.{cell} = haste_keras.{cell}
"""

FILES = [
    "rnn/bidirectional_test.py",
    "rnn/time_distributed_test.py",
    "rnn/stacked_rnn_cells_test.py",
    "core/masking_test.py",
]


@pytest.mark.parametrize(
    ("row", "file"),
    [(row, file) for row in ROWS for file in (f"rnn/{row.name.lower()}_test.py", *FILES)],
    ids=lambda value: getattr(value, "name", value),
)
def test_keras_own(row, file, tmp_path):
    if not (FOLDER / file).exists():
        pytest.fail(f"Keras {keras.__version__} ships no {file}")
    plugin = PLUGIN.format(name=row.layer.__name__, cell=row.cell.__name__)
    (tmp_path / "in_place.py").write_text(plugin)
    root = str(pathlib.Path(haste_keras.__file__).parents[1])
    command = [sys.executable, "-m", "pytest", str(FOLDER / file), "-p", "in_place", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(FOLDER), "-c", os.devnull]
    command += ["-k", DESELECTED]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), root]))
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
