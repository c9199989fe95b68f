"""What differs between cells, as the ops, their gradients and the layers need to know it."""

import dataclasses
import functools

# What the kernels have; the exponential, of the sLSTM's forget gate alone, is not among them.
ACTIVATIONS = ("tanh", "sigmoid", "relu", "hard_sigmoid", "linear")
DTYPES = ("float16", "bfloat16", "float32", "float64")
ENGINES = ("auto", "cpu", "stepwise", "blas", "tiled", "block", "cluster", "grid", "scan")


@dataclasses.dataclass(frozen=True, eq=False)
class CellSpec:
    """One cell: the Python side of `lib/cells/<name>.h`, and of HasteCellInfo in the C ABI.

    name: as `haste_cell` of the C ABI lists it, in snake case.
    layer: name of the Keras layer; that of its cell ends in "Cell".
    gates: names in the order of axis G of wx and recurrent_kernel.
    states: names in the order of initial_state; the first enters h·R.
    saved: tensors [N, T, K, H] that the gradient reads; the first is what R multiplies. "h_prev" is
      h without dropout, where it enters a step beside h·R: empty if there is no recurrent dropout.
    extras: {parameter other than recurrent_kernel: its axes, "KGH" or "KH"}.
    recurrence: "dense" (h·R, R [K, H, G, H]), "diagonal" (u ∘ h, [K, G, H]) or "none" (no R).
    separate_gates: each gate is an input [N, T, K, H] of its own; there is no wx.
    normalizes: h·R goes through layer normalisation.
    splits_gradient: the gradient of h·R is not that of wx.
    reset_gates: so many gates take h·R, the others saved[1]·R; 0: all take h·R.
    exponential: recurrent_activation may be "exponential".
    """

    name: str
    layer: str
    gates: tuple[str, ...]
    states: tuple[str, ...]
    saved: tuple[str, ...]
    extras: dict[str, str] = dataclasses.field(default_factory=dict)
    recurrence: str = "dense"
    separate_gates: bool = False
    normalizes: bool = False
    splits_gradient: bool = False
    reset_gates: int = 0
    exponential: bool = False

    @property
    def op(self):
        """Name of the TensorFlow op, "HasteLstm".

        That of its gradient is `op + "Grad"`; with `has_layer_op`, that of the op which is given x,
        W and b in place of wx is `op + "Layer"`, that of its gradient `op + "LayerGrad"`.
        """
        return "Haste" + "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def python_op(self):
        """Name of the op's wrapper in the loaded library.

        Of the others, with "_grad", "_layer", "_layer_grad", "_int8" and "_layer_int8".
        """
        return "haste_" + self.name

    @property
    def has_layer_op(self):
        """Whether there is an op that forms x·W + b itself."""
        return not self.separate_gates and not self.normalizes

    @property
    def has_int8_op(self):
        """Whether there is an op with an int8 recurrent kernel: `op + "Int8"`.

        With `has_layer_op` too, one is given x, W and b in place of wx: `op + "LayerInt8"`.
        """
        return self.recurrence == "dense"

    @property
    def kernel_dims(self):
        """Axes of recurrent_kernel, a letter each; None without one."""
        return {"dense": "KHGH", "diagonal": "KGH", "none": None}[self.recurrence]

    @functools.cached_property
    def _projected(self):
        return dict.fromkeys(self.gates, "NTKH") if self.separate_gates else {"wx": "NTKGH"}

    @functools.cached_property
    def parameters(self):
        """Inputs that are weights of the recurrence: {name: axes}."""
        kernel = {"recurrent_kernel": self.kernel_dims} if self.kernel_dims else {}
        return {**kernel, **self.extras}

    @functools.cached_property
    def reserve(self):
        """What the forward op leaves for the gradient: {name: axes}, in the op's order."""
        return {
            **({} if self.separate_gates else {"gates": "NTKGH"}),
            **({"products": "NTKGH"} if self.normalizes else {}),
            **dict.fromkeys(self.saved, "NTKH"),
        }

    @functools.cached_property
    def _other_inputs(self):
        initial = {f"{state}0": "NKH" for state in self.states}
        return {**self.parameters, **initial, "mask": "NT", "seed": "2"}

    @functools.cached_property
    def forward_inputs(self):
        """Inputs of the op, in its order: {name: axes}."""
        return {**self._projected, **self._other_inputs}

    @functools.cached_property
    def layer_inputs(self):
        """Inputs of the op that forms x·W + b; an empty bias stands for none."""
        return {"x": "NTC", "kernel": "CKGH", "bias": "KGH", **self._other_inputs}

    @functools.cached_property
    def int8_inputs(self):
        """Inputs of the op with int8 weights; it returns y and the final states."""
        return {**self._projected, **self._other_int8_inputs}

    @functools.cached_property
    def layer_int8_inputs(self):
        """Inputs of the op with int8 weights that forms x·W + b; an empty bias stands for none."""
        kernel = {"kernel": "CKGH", "kernel_scale": "KGH"}
        return {"x": "NTC", **kernel, "bias": "KGH", **self._other_int8_inputs}

    @functools.cached_property
    def _other_int8_inputs(self):
        inputs = {"recurrent_kernel": "KHGH", "recurrent_scale": "KGH", **self.extras}
        return {**inputs, **{f"{state}0": "NKH" for state in self.states}, "mask": "NT"}

    @functools.cached_property
    def forward_outputs(self):
        """Outputs of either op; those of `reserve` are empty unless it saves."""
        return {"y": "NTKH", **dict.fromkeys(self.states, "NKH"), **self.reserve}

    @functools.cached_property
    def backward_inputs(self):
        """Inputs of the gradient's op."""
        return {
            **self.parameters,
            "mask": "NT",
            "seed": "2",
            **(self._projected if self.separate_gates else {}),
            **self.reserve,
            "dy": "NTKH",
            **{f"d{state}": "NKH" for state in self.states},
        }

    @functools.cached_property
    def backward_outputs(self):
        """Outputs of the gradient's op: "d" and the name of the input, and dq if it is split."""
        kernel = {"recurrent_kernel": "KGH"} if self.recurrence == "diagonal" else {}
        split = {"q": "NTKGH"} if self.splits_gradient else {}
        initial = {f"{state}0": "NKH" for state in self.states}
        of = {**self._projected, **split, **kernel, **self.extras, **initial}
        return {f"d{name}": dims for name, dims in of.items()}

    @functools.cached_property
    def layer_backward_inputs(self):
        """Inputs of the gradient's op of the op that forms x·W + b."""
        return {"x": "NTC", "kernel": "CKGH", **self.backward_inputs}

    @functools.cached_property
    def layer_gradients(self):
        """Further outputs of that op, after `backward_outputs`; those not wanted are empty."""
        of = {"x": "NTC", "kernel": "CKGH", "bias": "KGH"}
        if self.recurrence == "dense":
            of["recurrent_kernel"] = self.kernel_dims
        return {f"d{name}": dims for name, dims in of.items()}

    @functools.cached_property
    def layer_backward_outputs(self):
        """Outputs of that op."""
        return {**self.backward_outputs, **self.layer_gradients}


LSTM = CellSpec("lstm", "LSTM", ("i", "f", "g", "o"), ("h", "c"), ("h_in", "c_in"))
GRU = CellSpec(
    "gru",
    "GRU",
    ("z", "r", "g"),
    ("h",),
    ("h_in", "q_g", "h_prev"),
    extras={"recurrent_bias": "KGH"},
    splits_gradient=True,
)
GRU_RESET_BEFORE = CellSpec(
    "gru_reset_before", "GRU", ("z", "r", "g"), ("h",), ("h_in", "rh_in", "h_prev"), reset_gates=2
)
ELMAN = CellSpec("elman", "Elman", ("g",), ("h",), ("h_in",))
SLSTM = CellSpec(
    "slstm",
    "SLSTM",
    ("i", "f", "z", "o"),
    ("h", "c", "n", "m"),
    ("h_in", "c_in", "n_in", "f_slope"),
    exponential=True,
)
LIGRU = CellSpec("ligru", "LiGRU", ("z", "g"), ("h",), ("h_in", "h_prev"))
LAYER_NORM_LSTM = CellSpec(
    "layer_norm_lstm",
    "LayerNormLSTM",
    LSTM.gates,
    LSTM.states,
    LSTM.saved,
    extras={"recurrent_gamma": "KGH", "state_gamma": "KH", "state_beta": "KH"},
    normalizes=True,
    splits_gradient=True,
)
LAYER_NORM_GRU = CellSpec(
    "layer_norm_gru",
    "LayerNormGRU",
    GRU.gates,
    GRU.states,
    GRU.saved,
    extras={"recurrent_gamma": "KGH", "recurrent_bias": "KGH"},
    normalizes=True,
    splits_gradient=True,
)
INDRNN = CellSpec("indrnn", "IndRNN", ("g",), ("h",), ("h_in",), recurrence="diagonal")
QRNN_F = CellSpec("qrnn_f", "QRNN", ("z", "f"), ("h",), ("h_in",), recurrence="none")
QRNN_FO = CellSpec("qrnn_fo", "QRNN", ("z", "f", "o"), ("c",), ("c_in",), recurrence="none")
QRNN_IFO = CellSpec("qrnn_ifo", "QRNN", ("z", "f", "o", "i"), ("c",), ("c_in",), recurrence="none")
FORGET_MULT = CellSpec(
    "forget_mult",
    "ForgetMult",
    ("f", "x"),
    ("h",),
    ("h_in",),
    recurrence="none",
    separate_gates=True,
)
MINGRU = CellSpec("mingru", "MinGRU", ("z", "g"), ("h",), ("h_in",), recurrence="none")
MINLSTM = CellSpec("minlstm", "MinLSTM", ("f", "i", "g"), ("h",), ("h_in",), recurrence="none")

CELLS = (
    LSTM,
    GRU,
    GRU_RESET_BEFORE,
    ELMAN,
    SLSTM,
    LIGRU,
    LAYER_NORM_LSTM,
    LAYER_NORM_GRU,
    INDRNN,
    QRNN_F,
    QRNN_FO,
    QRNN_IFO,
    FORGET_MULT,
    MINGRU,
    MINLSTM,
)
