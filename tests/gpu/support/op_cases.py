"""Every op of haste_keras.ops: random inputs, a run with gradients, errors against the oracle."""

import dataclasses
import functools
import inspect

import numpy as np
import tensorflow as tf

from haste_keras import ops, reference
from haste_keras.native.cell_spec import CELLS, SLSTM, CellSpec

# Largest error allowed, of the largest value in the oracle's result: rounding of the storage
# type, carried through a few steps.
TOLERANCE = {tf.float64: 1e-12, tf.float32: 1e-5, tf.float16: 1e-2, tf.bfloat16: 5e-2}
# Cells that an option of another's function chooses.
CHOSEN = {
    "gru_reset_before": ("gru", {"reset_after": False}),
    "qrnn_f": ("qrnn", {"pooling": "f"}),
    "qrnn_fo": ("qrnn", {"pooling": "fo"}),
    "qrnn_ifo": ("qrnn", {"pooling": "ifo"}),
}


@dataclasses.dataclass(frozen=True)
class OpCase:
    """One op, or one choice of options for which it computes something else."""

    name: str
    spec: CellSpec
    function: str
    options: dict

    @property
    def inputs(self):
        """The arguments with gradients: argument → dimensions, a letter each."""
        named = self.spec.forward_inputs.items()
        return {name: dims for name, dims in named if name not in ("mask", "seed")}

    def takes(self, option):
        """Whether an option of FEATURES has an effect on the op."""
        if option == "recurrent_dropout":
            return self.spec.recurrence != "none"
        if option in ("mask", "seed", "training", "zero_output_for_mask"):
            return True
        return option in inspect.signature(getattr(reference, self.function)).parameters

    @property
    def has_kinks(self):
        """Whether the candidate is a ReLU unless the caller says otherwise."""
        parameters = inspect.signature(getattr(reference, self.function)).parameters
        return "activation" in parameters and parameters["activation"].default == "relu"

    def make_inputs(self, n, t, reverse, h, dtype):
        """Random inputs by name, rounded to `dtype`."""
        rng = np.random.default_rng(n * 1000 + h)
        sizes = {"N": n, "T": t, "K": len(reverse), "G": len(self.spec.gates), "H": h}
        made = {}
        for name, dims in self.inputs.items():
            array = rng.normal(size=[sizes[letter] for letter in dims])
            if dims == "KHGH":
                array /= np.sqrt(h)
            if name == "f":  # a share
                array = np.abs(np.tanh(array))
            if name == "n0":  # at least 1, as a normaliser is from its first step on
                array = 1 + np.abs(array)
            if name.endswith("gamma"):
                array = 1 + array / 4
            made[name] = tf.constant(array, dtype)
        return made

    def run(self, module, inputs, **options):
        """Outputs by name, and gradients of a weighted sum of them, as float64 arrays.

        module: haste_keras.ops or its oracle.
        """
        if self.has_kinks:  # rounding may move a unit over one: only the feature "relu" has them
            options.setdefault("activation", "tanh")
        function = functools.partial(getattr(module, self.function), **self.options, **options)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            initial = {f"{state}0": inputs[f"{state}0"] for state in self.spec.states}
            others = {name: each for name, each in inputs.items() if name not in initial}
            if self.function == "forget_mult":
                outputs = [function(**others, **initial)]
            else:
                y, last = function(**others, initial_state=list(initial.values()))
                assert len(last) == len(initial)
                outputs = [y, *last]
            outputs = [tf.cast(output, tf.float64) for output in outputs]
            rng = np.random.default_rng(len(inputs))
            loss = tf.add_n([tf.reduce_sum(o * rng.normal(size=o.shape)) for o in outputs])
        gradients = tape.gradient(loss, inputs, unconnected_gradients="zero")
        results = {f"output {i}": output.numpy() for i, output in enumerate(outputs)}
        for name, gradient in gradients.items():
            results[f"d {name}"] = tf.cast(gradient, tf.float64).numpy()
        return results


OPS = [OpCase(spec.name, spec, *CHOSEN.get(spec.name, (spec.name, {}))) for spec in CELLS]
OPS.append(OpCase("slstm_sigmoid", SLSTM, "slstm", {"forget_activation": "sigmoid"}))

SIZES = [  # N, T, lane directions, H
    (1, 1, [False], 1),
    (2, 7, [False], 9),
    (5, 9, [False, True], 33),
    (17, 5, [True], 130),
    (64, 4, [False, False, True], 64),
]
FEATURES = {
    "plain": {},
    "masked": {"mask": 0.6},
    "masked to zero": {"mask": 0.6, "zero_output_for_mask": True},
    "relu": {"activation": "relu", "recurrent_activation": "hard_sigmoid", "mask": 0.8},
    "drawn": {
        "zoneout": 0.2,
        "zoneout_cell": 0.1,
        "recurrent_dropout": 0.3,
        "training": True,
        "seed": (20, 26),
        "mask": 0.8,
    },
    "expected": {"zoneout": 0.2, "zoneout_cell": 0.1},
}


def feature_options(case, feature, n, t, reverse):
    """The options of a feature that have an effect on the op, with a real mask."""
    options = {k: value for k, value in FEATURES[feature].items() if case.takes(k)}
    if "mask" in options:
        rng = np.random.default_rng(n)
        options["mask"] = tf.constant(rng.random((n, t)) < options["mask"])
    return {**options, "reverse": reverse}


def problems(dtypes):
    """(op, dtype, sizes, feature): each dtype meets every size and feature, in half of the pairs.

    The other half is the next dtype's.
    """
    return [
        (case, dtype, sizes, feature)
        for case in OPS
        for d, dtype in enumerate(dtypes)
        for s, sizes in enumerate(SIZES)
        for f, feature in enumerate(FEATURES)
        if (s + f + d) % 2 == 0
    ]


def compare(case, inputs, options, device, *, kinks=False, engine="auto"):
    """Runs op on `device` and oracle on the CPU → {tensor: error, of the oracle's largest value}.

    kinks: errors are of the norm. Where rounding puts an element on the other side of a kink its
      gradient jumps, on the CPU as on a GPU (one of 196,608 at the largest size).
    """
    with tf.device("CPU:0"):
        expected = case.run(reference, inputs, **options)
    with tf.device(device):
        inputs = {name: tf.identity(tensor) for name, tensor in inputs.items()}
        actual = case.run(ops, inputs, engine=engine, **options)
    size = np.linalg.norm if kinks else lambda e: np.max(np.abs(e), initial=0)
    errors = {}
    for name, want in expected.items():
        assert actual[name].shape == want.shape, name
        error = size(actual[name] - want) / max(1.0, size(want))
        errors[name] = np.inf if np.isnan(error) else error
    return errors
