"""Keras's own unit tests, which newer wheels of it hold, with our class for the stock one."""

import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

import haste_keras

FOLDER = pathlib.Path(keras.__file__).parent / "src/layers"

# Whether Bidirectional would take its cuDNN path, which is for the stock classes alone.
DESELECTED = "not test_fused_lstm_eligibility and not test_fused_gru_eligibility"

# `layers` of a test module is keras.src.layers: one namespace, changed before the module is read.
IN_PLACE = ("LSTM", "GRU", "SimpleRNN")
PLUGIN = "import keras.src.layers as layers\nimport haste_keras\n" + "".join(
    f"layers.{name} = haste_keras.{name}\n"
    for layer in IN_PLACE
    for name in (layer, f"{layer}Cell")
)

FILES = [
    "rnn/lstm_test.py",
    "rnn/gru_test.py",
    "rnn/simple_rnn_test.py",
    "rnn/bidirectional_test.py",
    "rnn/time_distributed_test.py",
    "rnn/stacked_rnn_cells_test.py",
    "core/masking_test.py",
]


def test_keras_own(tmp_path):
    missing = [file for file in FILES if not (FOLDER / file).exists()]
    if missing == FILES:
        pytest.skip(f"the wheel of Keras {keras.__version__} has no tests in it")
    assert not missing, f"Keras {keras.__version__} ships no {', '.join(missing)}"
    (tmp_path / "in_place.py").write_text(PLUGIN)
    root = str(pathlib.Path(haste_keras.__file__).parents[1])
    command = [sys.executable, "-m", "pytest", *(str(FOLDER / file) for file in FILES)]
    command += ["-p", "in_place", "-p", "no:cacheprovider", "-q", "-rA"]
    command += ["--rootdir", str(FOLDER), "-c", os.devnull, "-k", DESELECTED]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), root]))
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for file in FILES:  # nothing that is not collected can pass
        assert re.search(rf"PASSED \S*{re.escape(file)}::", done.stdout), file
