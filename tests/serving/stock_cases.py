"""Every layer with its options as a function of one SavedModel, and what our ops give."""

import dataclasses
import os

import numpy as np
import tensorflow as tf
from rows import ROWS

import haste_keras

BATCH, TIME, FEATURES, UNITS = 3, 6, 5, 4
DTYPES = ("float32", "float64", "float16", "bfloat16")
# Largest relative difference that stock ops may have.
TOLERANCE = {"float32": 4e-6, "float64": 1e-13, "float16": 4e-3, "bfloat16": 4e-2, "int8": 4e-2}

# Arguments of the layer; "states" and "other" (activations) are of the case.
OPTIONS = {
    "both": {"direction": "bidirectional", "heads": 2, "zoneout": 0.2, "zoneout_cell": 0.3},
    "back": {
        "direction": "backward",
        "zoneout": 0.4,
        "zoneout_cell": 1.0,
        "use_bias": False,
        "states": True,
        "other": True,
    },
}
LAYERS = [*(row.name for row in ROWS), "ForgetMult"]
QUANTIZED = ["LSTM", "GRU reset before"]


def names():
    """[(layer, kind, dtype)] of the cases: both kinds in float32, and one of the other dtypes.

    HASTE_TEST_ALL=1: each of the other dtypes.
    """
    found = []
    for i, layer in enumerate(LAYERS):
        others = DTYPES[1:] if os.environ.get("HASTE_TEST_ALL") == "1" else [DTYPES[1 + i % 3]]
        found += [(layer, kind, "float32") for kind in OPTIONS]
        found += [(layer, "back", dtype) for dtype in others]
    return found + [(layer, "both", "int8") for layer in QUANTIZED]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function (x, mask) → outputs of a layer.

    kind: of OPTIONS.
    """

    layer: str
    kind: str
    dtype: str
    function: tf.function
    variables: list

    @property
    def name(self):
        return f"{self.layer} {self.kind} {self.dtype}".replace(" ", "_")


def _randomized(layer, rng):
    """Weights that no symmetry makes equal."""
    for weight in layer.weights:
        weight.assign(weight.value + tf.cast(0.2 * rng.normal(size=weight.shape), weight.dtype))


def _function(call):
    return tf.function(
        call,
        input_signature=[
            tf.TensorSpec([None, None, FEATURES], tf.float64),
            tf.TensorSpec([None, None], tf.bool),
        ],
        autograph=False,
    )


def _layer_case(row, kind, dtype, rng):
    options = dict(OPTIONS[kind])
    given, other = (options.pop(name, False) for name in ("states", "other"))
    if other:
        options = {**row.other_activations, **options}
    options = {name: value for name, value in options.items() if row.takes(name)}
    int8 = dtype == "int8"
    dtype = "float32" if int8 else dtype
    policy = dtype if dtype in ("float32", "float64") else f"mixed_{dtype}"
    layer = row.layer(UNITS, dtype=policy, return_sequences=True, return_state=True, **options)
    layer.build((None, None, FEATURES))
    _randomized(layer, rng)
    if int8:
        layer.quantize("int8")
    start = [np.exp(rng.normal(size=(1, size))) for size in layer.state_size]

    def call(x, mask):
        states = [tf.tile(tf.cast(s, dtype), [tf.shape(x)[0], 1]) for s in start]
        outputs = layer(
            tf.cast(x, dtype),
            initial_state=states if given else None,
            mask=mask,
        )
        return [tf.cast(output, tf.float64) for output in outputs]

    variables = [weight.value for weight in layer.weights]
    return Case(row.name, kind, "int8" if int8 else dtype, _function(call), variables)


def _forget_mult_case(kind, dtype):
    layer = haste_keras.ForgetMult(direction="backward", dtype=dtype)

    def call(x, mask):
        f, x = tf.cast(tf.sigmoid(x), dtype), tf.cast(x, dtype)
        if kind == "both":
            f, x = (tf.stack([each, each], axis=2) for each in (f, x))
            options = {"zoneout": 0.2, "zero_output_for_mask": True, "reverse": [True, False]}
            y = haste_keras.ops.forget_mult(f, x, mask=mask, **options)
        else:
            y = layer([f, x, x[:, 0]], mask=mask)
        return [tf.cast(y, tf.float64)]

    return Case("ForgetMult", kind, dtype, _function(call), [])


def make_cases():
    """All cases, in the order of `names`."""
    rng, rows = np.random.default_rng(11), {row.name: row for row in ROWS}
    for layer, kind, dtype in names():
        if layer in rows:
            yield _layer_case(rows[layer], kind, dtype, rng)
        else:
            yield _forget_mult_case(kind, dtype)


def export_cases(folder):
    """One SavedModel of all cases, its inputs, and expected.npz: what our ops give."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(BATCH, TIME, FEATURES))
    mask = rng.random((BATCH, TIME)) < 0.6
    mask[0] = False
    mask[1] = [False, True, True, False, True, False]
    module, inputs, expected = tf.Module(), {}, {}
    module.variables_of = []
    for case in make_cases():
        inputs[f"{case.name}/x"], inputs[f"{case.name}/mask"] = x, mask
        outputs = case.function.python_function(tf.constant(x), tf.constant(mask))
        for i, output in enumerate(outputs):
            expected[f"{folder.name}/{case.name}/{i}"] = output.numpy()
        module.variables_of.append(case.variables)
        setattr(module, case.name, case.function)
    with haste_keras.portable():
        tf.saved_model.save(module, str(folder))
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "expected.npz", **expected)
