"""Every example runs and does what its first lines say. `make test` has built the C++ ones."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import haste_keras

ROOT = pathlib.Path(__file__).resolve().parents[2]


def built(name):
    """The program that Bazel built from examples/`name`.cc."""
    program = ROOT / "bazel-bin" / "examples" / name
    assert program.exists(), f"{program} does not exist: `make test-python` builds it"
    return str(program)


@pytest.mark.parametrize("name", ["cpp/inference", "cpp/train"])
def test_cpp_program(name):
    # Each checks its own result and says so by its exit status.
    subprocess.run([built(name)], check=True)


def test_streaming_program():
    first = {}
    for dtype in ("float32", "bfloat16", "int8"):
        said = subprocess.run(
            [built("cpp/streaming"), dtype, "300"], capture_output=True, text=True, check=True
        ).stdout
        assert "300 steps: p50" in said
        first[dtype] = float(said.split("y[0] =")[1])
    assert abs(first["float32"]) > 0.01
    for dtype in ("bfloat16", "int8"):
        assert 0 < abs(first[dtype] - first["float32"]) < 0.02
    assert subprocess.run([built("cpp/streaming"), "float16"], stderr=subprocess.DEVNULL).returncode


def test_served_from_cpp_to_the_last_bit(tmp_path):
    keras.utils.set_random_seed(8)
    model = keras.Sequential(
        [
            keras.Input((None, 5)),
            haste_keras.LSTM(24, direction="bidirectional", return_sequences=True),
            haste_keras.LSTM(16),
            keras.layers.Dense(3),
        ]
    )
    x = np.random.default_rng(0).normal(size=(4, 13, 5)).astype(np.float32)
    export = str(tmp_path / "export")
    model.export(export, verbose=False)
    served = subprocess.run(
        [built("serve_cpp/serve"), export, *map(str, x.shape), haste_keras.library_path()],
        input=x.tobytes(),
        stdout=subprocess.PIPE,
        check=True,
    )
    got = np.frombuffer(served.stdout, np.float32).reshape(4, 3)
    want = model.predict(x, verbose=0)
    np.testing.assert_array_equal(got, want)


def test_character_model(tmp_path):
    # Exits with an error if the model learnt nothing or its export differs.
    command = [sys.executable, "examples/char_model.py", "--minutes", "0.3", "--out", str(tmp_path)]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "loss.png").stat().st_size > 1000
    assert (tmp_path / "model.keras").exists()


def test_parity(tmp_path):
    """A recurrence that tracks a state counts at any length; one that does not guesses."""
    plot = tmp_path / "parity.png"
    command = [sys.executable, "examples/parity.py", "--models", "SLSTM", "QRNN"]
    done = subprocess.run(
        [*command, "--steps", "400", "--plot", str(plot)],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        check=True,
        capture_output=True,
        text=True,
    )
    table = {line.split()[0]: line.split()[-3:] for line in done.stdout.splitlines()[1:3]}
    assert all(float(share) > 0.98 for share in table["SLSTM"]), done.stdout
    assert float(table["QRNN"][-1]) < 0.7, done.stdout
    assert plot.stat().st_size > 1000
