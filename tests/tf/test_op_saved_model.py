"""The op in a SavedModel: it runs and is differentiated where only haste_keras was imported."""

import subprocess
import sys

import numpy as np
import tensorflow as tf

from haste_keras import ops

READER = """
import sys
import numpy as np
import tensorflow as tf
import haste_keras

model = tf.saved_model.load(sys.argv[1])
x = tf.constant(np.load(sys.argv[1] + "/x.npy"))
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model.run(x)
    loss = tf.reduce_sum(y**2)
np.savez(sys.argv[1] + "/found.npz", y=y, dx=tape.gradient(loss, x))
"""


def test_in_a_fresh_process(inputs, tmp_path):
    wx, recurrent_kernel, *_ = inputs()
    model = tf.Module()
    model.recurrent_kernel = tf.Variable(recurrent_kernel)
    model.run = tf.function(
        lambda x: ops.lstm(x, model.recurrent_kernel, reverse=[False, True], zoneout=0.25)[0],
        input_signature=[tf.TensorSpec([None, None, 2, 4, 4], tf.float64)],
    )
    tf.saved_model.save(model, str(tmp_path))
    np.save(tmp_path / "x.npy", wx)
    subprocess.run([sys.executable, "-c", READER, str(tmp_path)], check=True)

    with tf.GradientTape() as tape:
        tape.watch(wx)
        y = model.run(wx)
        loss = tf.reduce_sum(y**2)
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(found["y"], y)
    np.testing.assert_allclose(found["dx"], tape.gradient(loss, wx), rtol=1e-12, atol=1e-15)
