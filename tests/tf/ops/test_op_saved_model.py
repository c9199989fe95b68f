"""The ops in a SavedModel: they run and are differentiated where only haste_keras was imported."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS

READER = """
import sys
import numpy as np
import tensorflow as tf
import haste_keras

model = tf.saved_model.load(sys.argv[1])
found = {}
for name, x in np.load(sys.argv[1] + "/in.npz").items():
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = getattr(model, name)(x)
        loss = tf.reduce_sum(y**2)
    found[name + "_y"], found[name + "_dx"] = y, tape.gradient(loss, x)
np.savez(sys.argv[1] + "/found.npz", **found)
"""


def saved_function(row, name, variables):
    """A function of the input `name`; the others are variables."""
    shape = row.shape(row.spec.forward_inputs[name], {"N": None, "T": None, "K": 2, "H": 4})

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float64)])
    def function(x):
        given = {key: tf.convert_to_tensor(variable) for key, variable in variables.items()}
        return row.call({**given, name: x}, reverse=[False, True], zoneout=0.25)[0]

    return function


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(model, {row: input}, results of another process) of one SavedModel of all rows."""
    path = tmp_path_factory.mktemp("model")
    model, sources = tf.Module(), {}
    model.variables_of_rows = []
    for row in ROWS:
        tensors = row.inputs(np.random.default_rng(7))
        name = next(iter(tensors))
        sources[row.name] = tensors.pop(name)
        variables = {key: tf.Variable(tensor) for key, tensor in tensors.items()}
        model.variables_of_rows.append(variables)
        setattr(model, row.name, saved_function(row, name, variables))
    tf.saved_model.save(model, str(path))
    np.savez(path / "in.npz", **sources)
    subprocess.run([sys.executable, "-c", READER, str(path)], check=True)
    return model, sources, np.load(path / "found.npz")


def test_in_a_fresh_process(models, row):
    model, sources, found = models
    x = sources[row.name]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = getattr(model, row.name)(x)
        loss = tf.reduce_sum(y**2)
    np.testing.assert_array_equal(found[f"{row.name}_y"], y)
    expected = tape.gradient(loss, x)
    np.testing.assert_allclose(found[f"{row.name}_dx"], expected, rtol=1e-12, atol=1e-15)
