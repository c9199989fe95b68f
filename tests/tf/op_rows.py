"""The table of recurrent ops that the tests of this folder run over."""

import dataclasses
import inspect

import numpy as np
import tensorflow as tf

from haste_keras import ops
from haste_keras.native import cell_spec, library

SEED = tf.constant([11, 12], tf.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """An op: its public function with the options that make it the op of `spec`."""

    name: str
    spec: cell_spec.CellSpec
    function: str
    options: dict = dataclasses.field(default_factory=dict)

    def takes(self, *options):
        """Whether the public function has all these arguments."""
        return set(options) <= set(inspect.signature(getattr(ops, self.function)).parameters)

    def shape(self, dims, sizes):
        """Shape of axes `dims` for {letter: size}."""
        sizes = {**sizes, "G": len(self.spec.gates), "2": 2}
        return [sizes[letter] for letter in dims]

    def inputs(self, rng, batch=3, time=5, lanes=2, hidden=4, dtype=tf.float64):
        """{name: random tensor} of all inputs but mask and seed."""
        sizes = {"N": batch, "T": time, "K": lanes, "H": hidden}
        tensors = {}
        for name, dims in self.spec.forward_inputs.items():
            if name in ("mask", "seed"):
                continue
            array = rng.normal(size=self.shape(dims, sizes))
            # Such that rounding errors do not grow from step to step.
            if dims == "KHGH":
                array /= np.sqrt(hidden)
            if name == "recurrent_kernel" and dims == "KGH":
                array = np.tanh(array)
            if name == "recurrent_gamma":
                array /= 2
            if name == "n0":  # sLSTM's normaliser: a sum of exponentials
                array = np.exp(array)
            if name == "f":  # ForgetMult's: a share
                array = 1 / (1 + np.exp(-array))
            tensors[name] = tf.constant(array, dtype)
        return tensors

    def call(self, tensors, module=ops, **options):
        """[y, *states] of the public function of `module`; states only as it returns them.

        Without h0 among `tensors` there is no initial state.
        """
        function = getattr(module, self.function)
        options = {**self.options, **options}
        if self.spec.separate_gates:
            gates = [tensors[gate] for gate in self.spec.gates]
            return [function(*gates, tensors.get("h0"), **options)]
        arguments = [tensors["wx"]]
        if self.spec.kernel_dims:
            arguments.append(tensors["recurrent_kernel"])
        states = [f"{state}0" for state in self.spec.states]
        arguments.append([tensors[name] for name in states] if states[0] in tensors else None)
        extras = {name: tensors[name] for name in self.spec.extras if name in tensors}
        y, states = function(*arguments, **extras, **options)
        return [y, *states]

    def loss(self, rng, outputs):
        """A loss of [y, *states] shaped like `outputs`; not of sLSTM's m, which has no gradient."""
        weights = [tf.constant(rng.normal(size=output.shape)) for output in outputs]

        def weigh(found):
            terms = [
                tf.reduce_sum(weight * tf.cast(value, tf.float64))
                for weight, value, name in zip(
                    weights, found, ("y", *self.spec.states), strict=False
                )
                if name != "m"
            ]
            return tf.add_n(terms)

        return weigh

    def raw(self, arguments, backward=False, **attrs):
        """The op itself, or its gradient's, on all of its inputs."""
        op = getattr(library.load(), self.spec.python_op + ("_grad" if backward else ""))
        lanes = attrs.pop("lanes", 2)
        defaults = {"reverse": [False] * lanes, "zoneout": [0.0] * len(self.spec.states)}
        return op(*arguments, **{**defaults, **attrs})

    def arguments(self, backward=False, batch=2, time=3, lanes=2, hidden=4, **shapes):
        """{name: zeros} of all inputs of the op, but for the `shapes` given."""
        sizes = {"N": batch, "T": time, "K": lanes, "H": hidden}
        dims = self.spec.backward_inputs if backward else self.spec.forward_inputs
        types = {"mask": tf.bool, "seed": tf.int64}
        return {
            name: tf.zeros(shapes.get(name, self.shape(axes, sizes)), types.get(name, tf.float32))
            for name, axes in dims.items()
        }


ROWS = [
    Row("lstm", cell_spec.LSTM, "lstm"),
    Row("gru", cell_spec.GRU, "gru"),
    Row("gru_reset_before", cell_spec.GRU_RESET_BEFORE, "gru", {"reset_after": False}),
    Row("elman", cell_spec.ELMAN, "elman"),
    Row("ligru", cell_spec.LIGRU, "ligru"),
    Row("slstm", cell_spec.SLSTM, "slstm"),
    Row("slstm_sigmoid", cell_spec.SLSTM, "slstm", {"forget_activation": "sigmoid"}),
    Row("layer_norm_lstm", cell_spec.LAYER_NORM_LSTM, "layer_norm_lstm"),
    Row("layer_norm_gru", cell_spec.LAYER_NORM_GRU, "layer_norm_gru"),
    Row("indrnn", cell_spec.INDRNN, "indrnn"),
    Row("qrnn_f", cell_spec.QRNN_F, "qrnn", {"pooling": "f"}),
    Row("qrnn_fo", cell_spec.QRNN_FO, "qrnn", {"pooling": "fo"}),
    Row("qrnn_ifo", cell_spec.QRNN_IFO, "qrnn", {"pooling": "ifo"}),
    Row("mingru", cell_spec.MINGRU, "mingru"),
    Row("minlstm", cell_spec.MINLSTM, "minlstm"),
    Row("forget_mult", cell_spec.FORGET_MULT, "forget_mult"),
]
LSTM = ROWS[0]

NOISE = {"training": True, "seed": SEED}
CASES = {
    "plain": {},
    "one_lane": {"lanes": 1},
    "both_ways": {"reverse": [False, True]},
    "relu": {"activation": "relu"},
    "sigmoid": {"activation": "sigmoid"},
    "linear": {"activation": "linear", "scale": 0.3},
    "hard": {"activation": "hard_sigmoid", "recurrent_activation": "hard_sigmoid"},
    "tanh_gates": {"activation": "sigmoid", "recurrent_activation": "tanh"},
    "linear_gates": {"activation": "tanh", "recurrent_activation": "linear", "scale": 0.3},
    "mask": {"mask": True, "reverse": [False, True]},
    "mask_zero": {"mask": True, "reverse": [True, False], "zero_output_for_mask": True},
    "zoneout": {"zoneout": 0.4, **NOISE},
    "zoneout_cell": {"zoneout": 0.4, "zoneout_cell": 0.3, **NOISE},
    "zoneout_expected": {"zoneout": 0.4, "mask": True},
    "zoneout_cell_expected": {"zoneout": 0.4, "zoneout_cell": 0.3, "mask": True},
    "zoneout_all": {"zoneout": 1.0, **NOISE},
    "zoneout_cell_all": {"zoneout_cell": 1.0, "mask": True},
    "dropout": {"recurrent_dropout": 0.4, **NOISE},
    "noise": {"mask": True, "reverse": [True, False], "zoneout": 0.2, **NOISE},
    "everything": {
        "mask": True,
        "reverse": [True, False],
        "zoneout": 0.2,
        "recurrent_dropout": 0.3,
        **NOISE,
    },
    "epsilon": {"epsilon": 0.1, "mask": True},
}
MADE = {"lanes", "scale"}  # of the inputs, not of the op


def row_cases(only=None):
    """[(row, options)] with ids: the cases whose options the row's function takes."""
    names = [f"{row.name}-{case}" for row in ROWS for case in CASES]
    pairs = [(row, options) for row in ROWS for options in CASES.values()]
    kept = [
        (name, pair)
        for name, pair in zip(names, pairs, strict=True)
        if pair[0].takes(*(pair[1].keys() - MADE)) and (only is None or name.split("-")[1] in only)
    ]
    return {"argvalues": [pair for _, pair in kept], "ids": [name for name, _ in kept]}


def make_case(row, options, rng):
    """(tensors, options) of a case of `CASES`: random inputs, and a mask where it asks for one."""
    options = dict(options)
    scale = options.pop("scale", 1.0)
    tensors = row.inputs(rng, lanes=options.pop("lanes", 2))
    tensors = {name: scale * tensor for name, tensor in tensors.items()}
    if options.get("mask"):
        mask = rng.random([3, 5]) < 0.6
        mask[0] = False
        mask[1, 0] = mask[1, -1] = False
        options["mask"] = tf.constant(mask)
    return tensors, options


def gradients(row, tensors, loss, **options):
    """{name: gradient} of loss([y, *states]) with respect to `tensors`."""
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        value = loss(row.call(tensors, **options))
    return tape.gradient(value, tensors, unconnected_gradients="zero")
