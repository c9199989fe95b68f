"""`python -m haste_keras.check`: what is installed, and whether it computes the right numbers.

Prints versions, the shim in use and the devices, then compares forward and gradients of every op
with the float64 oracle, for each dtype on each device. Exits with 1 if anything is wrong.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import haste_keras
from haste_keras import _library, ops, reference

# Largest error allowed, of the largest value in the oracle's result: rounding of the storage
# type, carried through a few steps.
TOLERANCE = {tf.float64: 1e-12, tf.float32: 5e-6, tf.float16: 1e-2, tf.bfloat16: 5e-2}

CASES = {
    "plain": {},
    "bidirectional, masked": {"reverse": [False, True], "mask": True},
    "zoneout, recurrent dropout": {
        "zoneout": 0.2,
        "zoneout_cell": 0.1,
        "recurrent_dropout": 0.3,
        "training": True,
        "seed": (20, 26),
    },
}


def _inputs(options, dtype):
    """Random wx [2, 7, K, 4, 9], R, h0, c0, and the weights of the loss, rounded to `dtype`."""
    rng = np.random.default_rng(7)
    batch, time, hidden = 2, 7, 9
    lanes = len(options.get("reverse", [False]))
    shapes = [
        (batch, time, lanes, 4, hidden),
        (lanes, hidden, 4, hidden),
        (batch, lanes, hidden),
        (batch, lanes, hidden),
    ]
    arrays = [rng.normal(size=shape) for shape in shapes]
    arrays[1] /= np.sqrt(hidden)
    inputs = [tf.constant(array, dtype) for array in arrays]
    weights = [rng.normal(size=shape) for shape in ((batch, time, lanes, hidden), *shapes[2:])]
    options = dict(options)
    if options.get("mask"):
        options["mask"] = tf.constant(rng.random((batch, time)) < 0.7)
    return inputs, [tf.constant(weight) for weight in weights], options


def _run(lstm, inputs, weights, options):
    """Outputs of `lstm` and gradients of a weighted sum of them, as float64 arrays."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y, (h, c) = lstm(inputs[0], inputs[1], inputs[2:], **options)
        outputs = [tf.cast(output, tf.float64) for output in (y, h, c)]
        loss = tf.add_n([tf.reduce_sum(o * w) for o, w in zip(outputs, weights, strict=True)])
    gradients = tape.gradient(loss, inputs)
    names = ("y", "h", "c", "d wx", "d recurrent_kernel", "d h0", "d c0")
    results = [*outputs, *(tf.cast(gradient, tf.float64) for gradient in gradients)]
    return {name: result.numpy() for name, result in zip(names, results, strict=True)}


def check_parity(device, dtype, options):
    """Name of the tensor farthest from the oracle, and its error over the oracle's largest."""
    inputs, weights, options = _inputs(options, dtype)
    with tf.device("CPU:0"):
        expected = _run(reference.lstm, inputs, weights, options)
    with tf.device(device):
        inputs = [tf.identity(each) for each in inputs]
        actual = _run(ops.lstm, inputs, weights, options)
    errors = {}
    for name, want in expected.items():
        error = np.max(np.abs(actual[name] - want)) / max(1.0, np.max(np.abs(want)))
        errors[name] = np.inf if np.isnan(error) else error
    worst = max(errors, key=errors.get)
    return worst, errors[worst]


def main():
    """Prints the report; returns the exit status."""
    print(f"haste_keras {haste_keras.__version__}")
    print(f"TensorFlow  {tf.__version__}")
    print(f"Keras       {keras.__version__}")
    print(f"Python      {sys.version.split()[0]}")
    print(*_library_report(), sep="\n")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    wrong = 0
    devices = tf.config.list_logical_devices("CPU") + tf.config.list_logical_devices("GPU")
    for device in devices:
        for dtype, tolerance in TOLERANCE.items():
            for title, options in CASES.items():
                wrong += not _report(device.name, dtype, title, options, tolerance)
    print("all right" if not wrong else f"{wrong} of the checks above went wrong")
    return 1 if wrong else 0


def _report(device, dtype, title, options, tolerance):
    head = f"{device.removeprefix('/device:'):7}{dtype.name:9} lstm  {title:28}"
    try:
        worst, error = check_parity(device, dtype, options)
    except tf.errors.OpError as failure:
        print(f"{head}FAILED: {failure.message}")
        return False
    right = error <= tolerance
    verdict = "ok" if right else f"WRONG, at most {tolerance:.0e} allowed"
    print(f"{head}worst {worst}: {error:.1e}  {verdict}")
    return right


def _library_report():
    """Lines on what the op library is made of."""
    yield f"op library  {_library.LIBRARY}, {'with' if _library.has_cuda() else 'without'} CUDA"
    yield f"shim        {_library.shim() or 'none for this TensorFlow: CPU on threads of its own'}"


if __name__ == "__main__":
    sys.exit(main())
