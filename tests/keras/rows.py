"""The table of the layers that every test of this folder runs over. A new layer is a new row."""

import dataclasses
import inspect
from collections.abc import Callable

import keras
import layer_oracle

import haste_keras
from haste_keras import reference

# Arguments that Keras's layers and ours have in common; the first value is the default.
ACTIVATION = ["tanh", "relu", "linear", "hard_sigmoid", "sigmoid", None]
GATED = {
    "activation": ACTIVATION,
    "recurrent_activation": ["sigmoid", "hard_sigmoid", "tanh", "relu"],
    "implementation": [2, 1],
}
# Arguments of layers that have a recurrent matrix, or gates that Keras gives an activation.
OF_SOME = (
    "heads",
    "dropconnect",
    "recurrent_dropout",
    "recurrent_activation",
    "recurrent_initializer",
    "recurrent_regularizer",
    "recurrent_constraint",
    "recurrent_transform",
    "use_cudnn",
)
HARD = {"activation": "relu", "recurrent_activation": "hard_sigmoid"}


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A fused layer, its cell, and their references.

    states: of the recurrence; a layer may carry more.
    stock_class: the layer of Keras, if there is one.
    options: what the layer, its cell and the stock layer are made with to be this row.
    choices: argument → values that the stock layer takes too.
    other_activations: arguments that replace every activation there is.
    zoneout: Zoneout's arguments, in the order of the states.
    oracle_arguments: attributes of the layer that the oracle takes by the same name.
    recurrence: "dense", "diagonal" or "none".
    convolve: of the oracle: (cell, x, states of it, mask, backwards) → x·W, new states of it.
    positive_states: the states that are 1 or more once there was a step.
    pools: the output is made of the state, and not the state itself.
    """

    name: str
    layer_class: type
    cell_class: type
    oracle: Callable
    gates: int
    states: int = 1
    stock_class: type | None = None
    options: dict = dataclasses.field(default_factory=dict)
    choices: dict = dataclasses.field(default_factory=dict)
    other_activations: dict = dataclasses.field(default_factory=lambda: HARD)
    zoneout: tuple = ("zoneout",)
    oracle_arguments: tuple = ("zoneout",)
    recurrence: str = "dense"
    convolve: Callable = layer_oracle.dense
    positive_states: tuple = ()
    pools: bool = False

    @property
    def activations(self):
        """Names of the arguments that are activations of Keras."""
        return [name for name in self.other_activations if name != "forget_activation"]

    def layer(self, units, **arguments):
        return self.layer_class(units, **{**self.options, **arguments})

    def cell(self, units, **arguments):
        return self.cell_class(units, **{**self.options, **arguments})

    def stock(self, units, **arguments):
        """The stock layer, on its generic path unless `use_cudnn` says otherwise."""
        if "use_cudnn" in inspect.signature(self.stock_class.__init__).parameters:
            arguments = {"use_cudnn": False, **arguments}
        return self.stock_class(units, **{**self.options, **arguments})

    def takes(self, argument):
        """Whether the layer has this argument."""
        cell = self.cell_class
        names = {*cell.argument_names(), *inspect.signature(self.layer_class.__init__).parameters}
        return argument in names and argument not in cell.without

    def allowed(self, arguments):
        """`arguments` without those of OF_SOME that this layer does not have."""
        return {k: v for k, v in arguments.items() if k not in OF_SOME or self.takes(k)}

    def noise(self, rate):
        """All kinds of noise that the layer has, at `rate`."""
        rates = self.allowed({"dropout": rate, "recurrent_dropout": rate, "dropconnect": rate})
        return {**rates, **dict.fromkeys(self.zoneout, rate)}


LSTM = {
    "gates": 4,
    "states": 2,
    "zoneout": ("zoneout", "zoneout_cell"),
    "oracle_arguments": ("zoneout", "zoneout_cell"),
}
GRU = {"gates": 3, "oracle_arguments": ("zoneout", "reset_after")}
INDRNN = {
    "gates": 1,
    "recurrence": "diagonal",
    "other_activations": {"activation": "tanh"},
}

ROWS = [
    Row(
        "LSTM",
        haste_keras.LSTM,
        haste_keras.LSTMCell,
        reference.lstm,
        **LSTM,
        stock_class=keras.layers.LSTM,
        choices={**GATED, "unit_forget_bias": [True, False]},
    ),
    Row(
        "GRU",
        haste_keras.GRU,
        haste_keras.GRUCell,
        reference.gru,
        **GRU,
        stock_class=keras.layers.GRU,
        choices=GATED,
    ),
    Row(
        "GRU reset before",
        haste_keras.GRU,
        haste_keras.GRUCell,
        reference.gru,
        **GRU,
        stock_class=keras.layers.GRU,
        options={"reset_after": False},
        choices=GATED,
    ),
    Row(
        "SimpleRNN",
        haste_keras.SimpleRNN,
        haste_keras.SimpleRNNCell,
        reference.elman,
        gates=1,
        stock_class=keras.layers.SimpleRNN,
        choices={"activation": ACTIVATION},
        other_activations={"activation": "relu"},
    ),
    Row(
        "LiGRU",
        haste_keras.LiGRU,
        haste_keras.LiGRUCell,
        reference.ligru,
        gates=2,
        other_activations={"activation": "tanh", "recurrent_activation": "hard_sigmoid"},
    ),
    Row(
        "LiGRU layernorm",
        haste_keras.LiGRU,
        haste_keras.LiGRUCell,
        reference.ligru,
        gates=2,
        options={"normalization": "layernorm"},
        other_activations={"activation": "tanh", "recurrent_activation": "hard_sigmoid"},
    ),
    Row("IndRNN", haste_keras.IndRNN, haste_keras.IndRNNCell, reference.indrnn, **INDRNN),
    Row(
        "SLSTM",
        haste_keras.SLSTM,
        haste_keras.SLSTMCell,
        reference.slstm,
        gates=4,
        states=4,
        other_activations={"activation": "relu", "forget_activation": "sigmoid"},
        zoneout=("zoneout", "zoneout_cell"),
        oracle_arguments=("zoneout", "zoneout_cell", "forget_activation"),
        positive_states=(2,),
    ),
    *(
        Row(
            f"QRNN {pooling} {window}",
            haste_keras.QRNN,
            haste_keras.QRNNCell,
            reference.qrnn,
            gates=1 + len(pooling),
            options={"pooling": pooling, "window": window},
            oracle_arguments=("zoneout", "pooling"),
            recurrence="none",
            convolve=layer_oracle.window,
            pools=pooling != "f",
        )
        for pooling, window in (("f", 1), ("fo", 2), ("ifo", 3))
    ),
    Row(
        "MinGRU",
        haste_keras.MinGRU,
        haste_keras.MinGRUCell,
        reference.mingru,
        gates=2,
        recurrence="none",
    ),
    Row(
        "MinLSTM",
        haste_keras.MinLSTM,
        haste_keras.MinLSTMCell,
        reference.minlstm,
        gates=3,
        recurrence="none",
        other_activations={"activation": "relu"},
    ),
    Row(
        "LayerNormLSTM",
        haste_keras.LayerNormLSTM,
        haste_keras.LayerNormLSTMCell,
        reference.layer_norm_lstm,
        **{**LSTM, "oracle_arguments": (*LSTM["oracle_arguments"], "epsilon")},
    ),
    Row(
        "LayerNormGRU",
        haste_keras.LayerNormGRU,
        haste_keras.LayerNormGRUCell,
        reference.layer_norm_gru,
        gates=3,
        oracle_arguments=("zoneout", "epsilon"),
    ),
    Row(
        "LayerNormIndRNN",
        haste_keras.LayerNormIndRNN,
        haste_keras.LayerNormIndRNNCell,
        reference.indrnn,
        **INDRNN,
    ),
]
