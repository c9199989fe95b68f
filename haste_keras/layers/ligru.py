"""The light gated recurrent unit: the layer and its cell.

    z = ρ(x_z + q_z)                             x = x·W + b, q = h·R
    g = a(x_g + q_g)                             a = activation, ρ = recurrent_activation
    h' = z ∘ h + (1 - z) ∘ g

The paper normalises x·W by batch; `normalization="layernorm"` does it by layer, which is the same
in training and inference (`base/normalized.py`).

Ravanelli, Brakel, Omologo & Bengio, "Light gated recurrent units for speech recognition", IEEE
TETCI 2(2), 2018 (arXiv 1803.10225).
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.activation import get_activation
from haste_keras.layers.base.normalized import NormalizedCell, NormalizedLayer
from haste_keras.layers.base.validation import check_choice
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class LiGRUCell(NormalizedCell):
    """One step of `LiGRU`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `LiGRU` takes of a cell. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.LIGRU
    activations = ("activation", "recurrent_activation")

    def __init__(
        self,
        units,
        activation="relu",
        recurrent_activation="sigmoid",
        use_bias=True,
        *,
        normalization=None,
        epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        heads=1,
        zoneout=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        implementation=2,
        **kwargs,
    ):
        check_choice("normalization", normalization, (None, "layernorm"))
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            heads=heads,
            zoneout=zoneout,
            dropconnect=dropconnect,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            implementation=implementation,
            **kwargs,
        )
        self.normalization = normalization
        self.recurrent_activation = get_activation(recurrent_activation)

    @property
    def normalizes_input(self):
        return self.normalization is not None

    def step(self, x, states, weights, share):
        (h,) = states
        z, g = tf.unstack(x + self.product(h, weights), axis=2)
        z = self.recurrent_activation(z)
        return None, [z * h + (1 - z) * self.activation(g)]

    def get_config(self):
        return {
            **super().get_config(),
            "normalization": self.normalization,
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
        }


@keras.saving.register_keras_serializable("haste_keras")
class LiGRU(NormalizedLayer):
    """Light gated recurrent unit over whole sequences, fused: a GRU without a reset gate.

    Args:
      units: size of the state and of the output.
      activation: a of the candidate: "relu", "tanh", "sigmoid", "hard_sigmoid" or "linear"; any
        other runs step by step.
      recurrent_activation: ρ of the update gate: one of these.
      use_bias: whether to add b.
      normalization: None, or "layernorm": x·W goes through layer normalisation before b is added.
      epsilon: what "layernorm" adds to the variance.
      Others: as of `haste_keras.LSTM`; there is no zoneout_cell.

    Weights: kernel [C, 2·units], recurrent_kernel [units, 2·units] (with heads > 1:
    [heads, H, 2, H]), bias [2·units] and, with "layernorm", gamma [2·units]; gates z, g; twice when
    bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = LiGRUCell

    def __init__(
        self,
        units,
        activation="relu",
        recurrent_activation="sigmoid",
        use_bias=True,
        *,
        normalization=None,
        epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        stateful=False,
        unroll=False,
        direction="forward",
        merge_mode="concat",
        heads=1,
        zoneout=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        zero_output_for_mask=False,
        implementation=2,
        engine="auto",
        **kwargs,
    ):
        super().__init__(
            units=units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            normalization=normalization,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            direction=direction,
            merge_mode=merge_mode,
            heads=heads,
            zoneout=zoneout,
            dropconnect=dropconnect,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )

    def recurrence(self, wx, **arguments):
        return ops.ligru(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            **arguments,
        )
