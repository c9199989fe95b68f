"""Exports a model with its results, and compares the loaded model's results on another device.

python exported.py save|check FOLDER
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import haste_keras


def save(folder):
    model = keras.Sequential(
        [keras.Input((None, 6)), haste_keras.LSTM(16, direction="bidirectional")]
    )
    x = np.random.default_rng(0).normal(size=(3, 11, 6)).astype(np.float32)
    np.savez(f"{folder}/io.npz", x=x, want=model(x))
    model.export(f"{folder}/export", verbose=False)


def check(folder):
    io = np.load(f"{folder}/io.npz")
    model = tf.saved_model.load(f"{folder}/export")
    # A GPU multiplies as TensorFloat-32 does.
    np.testing.assert_allclose(model.serve(io["x"]), io["want"], rtol=0, atol=1e-4)


if __name__ == "__main__":
    {"save": save, "check": check}[sys.argv[1]](sys.argv[2])
