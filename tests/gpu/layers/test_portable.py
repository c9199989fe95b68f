"""A portable export that is made where there is a GPU: the same numbers there and on a CPU."""

import os
import subprocess
import sys

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

import haste_keras  # noqa: E402

PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
np.save(sys.argv[2], model.serve(np.load(sys.argv[3])).numpy())
"""
LAYERS = {
    "LSTM": lambda **options: haste_keras.LSTM(16, **options),
    "GRU": lambda **options: haste_keras.GRU(16, reset_after=False, **options),
    "QRNN": lambda **options: haste_keras.QRNN(16, window=2, **options),
    "LayerNormLSTM": lambda **options: haste_keras.LayerNormLSTM(16, **options),
}


@pytest.mark.parametrize("name", LAYERS)
def test_on_the_gpu_and_on_a_cpu(name, tmp_path, true_float32):
    """By stock ops in processes without haste_keras, of which one sees no GPU."""
    layer = LAYERS[name](return_sequences=True, direction="bidirectional")
    model = keras.Sequential([keras.Input((None, 8)), layer])
    x = np.random.default_rng(3).normal(size=(4, 9, 8)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    with tf.device(DEVICE):
        ours = model(x).numpy()
    haste_keras.export(model, tmp_path / "m", verbose=False)
    for place, seen in (("gpu", {}), ("cpu", {"CUDA_VISIBLE_DEVICES": "-1"})):
        result = tmp_path / f"{place}.npy"
        arguments = [str(each) for each in (tmp_path / "m", result, tmp_path / "x.npy")]
        environment = {**os.environ, "NVIDIA_TF32_OVERRIDE": "0", **seen}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        subprocess.run(command, check=True, env=environment, cwd=tmp_path, timeout=300)
        np.testing.assert_allclose(np.load(result), ours, atol=2e-5, err_msg=place)
