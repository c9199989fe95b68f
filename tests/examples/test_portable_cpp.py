"""A portable model in a C++ program: TensorFlow's loader, with our op library and without it."""

import pathlib
import subprocess

import keras
import numpy as np

import haste_keras

# `make test-python` builds it.
SERVE = pathlib.Path(__file__).resolve().parents[2] / "bazel-bin/examples/serve_cpp/serve"


def serve(folder, x, *library):
    done = subprocess.run(
        [SERVE, folder, *map(str, x.shape), *library], input=x.tobytes(), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32)


def test_with_and_without_the_op_library(tmp_path):
    assert SERVE.exists(), f"{SERVE} does not exist: `make test-python` builds it."
    keras.utils.set_random_seed(8)
    model = keras.Sequential(
        [
            keras.Input((None, 5)),
            keras.layers.Masking(),
            haste_keras.LSTM(24, direction="bidirectional", return_sequences=True),
            haste_keras.LayerNormGRU(16),
        ]
    )
    x = np.random.default_rng(0).normal(size=(4, 13, 5)).astype(np.float32)
    x[1, 5:] = 0
    haste_keras.export(model, tmp_path / "portable", verbose=False)
    model.export(tmp_path / "fused", verbose=False)
    ops = haste_keras.library_path()
    of_ops = serve(tmp_path / "fused", x, ops)
    portable, stock = serve(tmp_path / "portable", x, ops), serve(tmp_path / "portable", x)
    np.testing.assert_allclose(stock, of_ops, atol=1e-5)
    # The bits are those of our ops, which TensorFlow's do not give.
    np.testing.assert_array_equal(portable, of_ops)
    assert np.any(stock != of_ops)
