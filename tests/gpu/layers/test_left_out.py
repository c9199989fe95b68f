"""What is left out of an op counts as zeros, on every engine: initial states, gradients of outputs.

HASTE_TEST_DEVICE=CPU:0 tries these tests on the CPU.
"""

import pathlib
import sys

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow

tf = need_tensorflow()

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "xla"))
from xla_cases import ROWS, same_bits  # noqa: E402

ENGINES = ["stepwise", "blas", "tiled", "block", "cluster", "grid", "scan"]
if not DEVICE.startswith("GPU"):
    ENGINES = ["cpu", "scan"]
SIZES = [(3, 7, 2, 64), (40, 5, 1, 256)]
each_case = pytest.mark.parametrize(
    ("row", "engine", "sizes", "dtype"),
    [
        pytest.param(row, engine, sizes, dtype, id=f"{row.name} {engine} {sizes} {dtype.name}")
        for row in ROWS
        for engine in ENGINES
        for sizes in SIZES
        for dtype in (tf.float32, tf.bfloat16)
        if (engine == "scan") == (row.spec.recurrence != "dense")
    ],
)


def _run(row, names, given, backward, **options):
    try:
        outputs = row.raw([given[name] for name in names], backward, training=True, **options)
    except tf.errors.OpError as error:
        if "engine" not in error.message:
            raise
        pytest.skip(error.message)  # what the engine cannot run on this device
    return tf.nest.flatten(outputs)


@each_case
def test_left_out_is_zeros(row, engine, sizes, dtype):
    spec = row.spec
    options = {"engine": engine, "reverse": [False, True][: sizes[2]]}
    rng = np.random.default_rng(5)
    with tf.device(DEVICE):
        given = row.inputs(rng, *sizes, dtype)
        given |= {"mask": tf.zeros([0], tf.bool), "seed": tf.zeros([0], tf.int64)}
        states = {f"{state}0": tf.zeros_like(given[f"{state}0"]) for state in spec.states}
        nothing = tf.zeros([0], dtype)

        def forward(states):
            return _run(row, spec.forward_inputs, given | states, False, save=True, **options)

        outputs = forward(states)
        assert same_bits(forward(dict.fromkeys(states, nothing)), outputs)

        given |= dict(zip(spec.forward_outputs, outputs, strict=True))
        gradients = {f"d{name}": given[name] for name in ("y", *spec.states)}
        for left_out in gradients:
            zeros = gradients | {left_out: tf.zeros_like(gradients[left_out])}

            def backward(gradients):
                return _run(row, spec.backward_inputs, given | gradients, True, **options)

            assert same_bits(backward(gradients | {left_out: nothing}), backward(zeros)), left_out
