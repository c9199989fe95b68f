"""What `haste_keras.check` runs: each op, with its features, on small random tensors."""

import dataclasses

from haste_keras.native import cell_spec

BATCH, TIME, HIDDEN = 2, 7, 9

PLAIN, MASKED, NOISE = "plain", "bidirectional, masked", "noise"


@dataclasses.dataclass(frozen=True)
class Case:
    """An op, one of its features, and what it takes then.

    name: of the function in `haste_keras.ops` and in `haste_keras.reference`.
    title: of the feature.
    dims: {argument: its axes, a letter each}; those whose name ends in 0 are initial states.
    gates: G.
    options: of the call; mask True: a random one.
    """

    name: str
    title: str
    dims: dict
    gates: int
    options: dict

    def __str__(self):
        chosen = [value for key, value in self.options.items() if isinstance(value, str)]
        chosen += ["reset before"] * (self.options.get("reset_after") is False)
        return f"{', '.join([self.name, *chosen]):24}{self.title}"

    @property
    def shapes(self):
        """{argument: shape}."""
        lanes = len(self.options.get("reverse", [False]))
        sizes = {"N": BATCH, "T": TIME, "K": lanes, "G": self.gates, "H": HIDDEN}
        return {name: [sizes[axis] for axis in dims] for name, dims in self.dims.items()}


def _cases(name, dims, gates, noise, **options):
    yield Case(name, PLAIN, dims, gates, options)
    masked = {"reverse": [False, True], "mask": True}
    yield Case(name, MASKED, dims, gates, {**options, **masked})
    if noise:
        drawn = {**noise, "training": True, "seed": (20, 26)}
        yield Case(name, NOISE, dims, gates, {**options, **drawn})


def _of_cell(name, spec, *rates, **options):
    kernel = {"recurrent_kernel": spec.kernel_dims} if spec.kernel_dims else {}
    states = {f"{state}0": "NKH" for state in spec.states}
    dims = {"wx": "NTKGH", **kernel, **spec.extras, **states}
    noise = dict(zip(rates, (0.2, 0.3, 0.1), strict=False))
    yield from _cases(name, dims, len(spec.gates), noise, **options)


_RATES = ("zoneout", "recurrent_dropout")
CASES = [
    *_of_cell("lstm", cell_spec.LSTM, *_RATES, "zoneout_cell"),
    *_of_cell("gru", cell_spec.GRU, *_RATES),
    *_of_cell("gru", cell_spec.GRU_RESET_BEFORE, *_RATES, reset_after=False),
    *_of_cell("elman", cell_spec.ELMAN, *_RATES),
    *_of_cell("ligru", cell_spec.LIGRU, *_RATES),
    *_of_cell("indrnn", cell_spec.INDRNN, *_RATES),
    *_of_cell("slstm", cell_spec.SLSTM, *_RATES, "zoneout_cell"),
    *_of_cell("slstm", cell_spec.SLSTM, *_RATES, "zoneout_cell", forget_activation="sigmoid"),
    *_of_cell("qrnn", cell_spec.QRNN_F, "zoneout", pooling="f"),
    *_of_cell("qrnn", cell_spec.QRNN_FO, "zoneout", pooling="fo"),
    *_of_cell("qrnn", cell_spec.QRNN_IFO, "zoneout", pooling="ifo"),
    *_of_cell("mingru", cell_spec.MINGRU, "zoneout"),
    *_of_cell("minlstm", cell_spec.MINLSTM, "zoneout"),
    *_of_cell("layer_norm_lstm", cell_spec.LAYER_NORM_LSTM, *_RATES, "zoneout_cell"),
    *_of_cell("layer_norm_gru", cell_spec.LAYER_NORM_GRU, *_RATES),
    *_cases("forget_mult", {"f": "NTKH", "x": "NTKH", "h0": "NKH"}, 1, None),
    Case("layer_norm", PLAIN, {"x": "TKH", "gamma": "KH", "beta": "KH"}, 1, {}),
]
