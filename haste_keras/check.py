"""`python -m haste_keras.check`: what is installed, and whether it computes the right numbers.

Prints what is installed and what can run, with a command for each thing that stands in the way;
then compares forward and gradients of every op with the float64 oracle, for each dtype on each
device. Exits with 1 if a number is wrong.
"""

import sys

import numpy as np
import tensorflow as tf

from haste_keras import _installation, ops, reference
from haste_keras._check_cases import BATCH, CASES, HIDDEN, TIME

# Largest error allowed, of the largest value in the oracle's result: rounding of the storage
# type, carried through a few steps.
TOLERANCE = {tf.float64: 1e-12, tf.float32: 5e-6, tf.float16: 1e-2, tf.bfloat16: 5e-2}


def _inputs(case, dtype):
    """Random arguments of the op by name, rounded to `dtype`, and the options of the call."""
    rng = np.random.default_rng(7)
    inputs = {name: rng.normal(size=shape) for name, shape in case.shapes.items()}
    if "recurrent_kernel" in inputs:
        inputs["recurrent_kernel"] /= np.sqrt(HIDDEN)
    if "n0" in inputs:  # a sum of positive numbers
        inputs["n0"] = 1 + np.abs(inputs["n0"])
    if "f" in inputs:  # a share
        inputs["f"] = 1 / (1 + np.exp(-inputs["f"]))
    options = dict(case.options)
    if options.get("mask"):
        options["mask"] = tf.constant(rng.random((BATCH, TIME)) < 0.7)
    return {name: tf.constant(array, dtype) for name, array in inputs.items()}, options


def _run(function, inputs, options):
    """Outputs of `function` and gradients of a weighted sum of them, as float64 arrays."""
    rng = np.random.default_rng(11)
    states = [name for name in inputs if name.endswith("0") and "wx" in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        named = {name: value for name, value in inputs.items() if name not in states}
        if states:
            named["initial_state"] = [inputs[name] for name in states]
        outputs = [tf.cast(o, tf.float64) for o in tf.nest.flatten(function(**named, **options))]
        loss = tf.add_n([tf.reduce_sum(o * rng.normal(size=o.shape)) for o in outputs])
    gradients = tape.gradient(loss, inputs, unconnected_gradients="zero")
    results = dict(zip(["y", *(name[:-1] for name in states)], outputs, strict=True))
    results.update({f"d {name}": gradient for name, gradient in gradients.items()})
    return {name: tf.cast(result, tf.float64).numpy() for name, result in results.items()}


def check_parity(device, dtype, case):
    """Name of the tensor farthest from the oracle, and its error over the oracle's largest."""
    inputs, options = _inputs(case, dtype)
    with tf.device("CPU:0"):
        expected = _run(getattr(reference, case.name), inputs, options)
    with tf.device(device):
        inputs = {name: tf.identity(each) for name, each in inputs.items()}
        actual = _run(getattr(ops, case.name), inputs, options)
    errors = {}
    for name, want in expected.items():
        error = np.max(np.abs(actual[name] - want)) / max(1.0, np.max(np.abs(want)))
        errors[name] = np.inf if np.isnan(error) else error
    worst = max(errors, key=errors.get)
    return worst, errors[worst]


def main():
    """Prints the report; returns the exit status."""
    facts = _installation.collect()
    print(*_installation.report(facts), sep="\n")
    problems = list(_installation.problems(facts))
    for sentence, fix in problems:
        print(f"\n{sentence}:\n    {fix}")
    print(flush=True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    wrong = 0
    devices = tf.config.list_logical_devices("CPU")
    if facts.gpu_kernels[0]:  # else TensorFlow would run them on the CPU, and say so nowhere
        devices += tf.config.list_logical_devices("GPU")
    for device in devices:
        for dtype, tolerance in TOLERANCE.items():
            for case in CASES:
                wrong += not _report(device.name, dtype, case, tolerance)
    if problems:
        print(f"see the first lines: {len(problems)} to be fixed")
    print("all right" if not wrong else f"{wrong} of the checks above went wrong")
    return 1 if wrong else 0


def _report(device, dtype, case, tolerance):
    head = f"{device.removeprefix('/device:'):7}{dtype.name:9} {case!s:48}"
    try:
        worst, error = check_parity(device, dtype, case)
    except tf.errors.OpError as failure:
        print(f"{head}FAILED: {failure.message}")
        return False
    right = error <= tolerance
    verdict = "ok" if right else f"WRONG, at most {tolerance:.0e} allowed"
    print(f"{head}worst {worst}: {error:.1e}  {verdict}")
    return right


if __name__ == "__main__":
    sys.exit(main())
