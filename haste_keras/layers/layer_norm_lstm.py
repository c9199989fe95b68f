"""The layer-normalised long short-term memory: the layer and its cell.

The LSTM of `lstm.py` with x·W and h·R normalised (`base/normalized.py`), and c where it makes h:

    h' = o ∘ a(γ_h ∘ LN(c') + β_h)               LN over the units of a head
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.normalized import NormalizedCell, NormalizedLayer, normalized
from haste_keras.layers.lstm import LSTM, LSTMCell
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormLSTMCell(NormalizedCell, LSTMCell):
    """One step of `LayerNormLSTM`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `LSTMCell` takes, and epsilon. States: h and c, each [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.LAYER_NORM_LSTM

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        unit_forget_bias=True,
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        *,
        heads=1,
        zoneout=0.0,
        zoneout_cell=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        epsilon=1e-5,
        implementation=2,
        **kwargs,
    ):
        super().__init__(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
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
            zoneout_cell=zoneout_cell,
            dropconnect=dropconnect,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            epsilon=epsilon,
            implementation=implementation,
            **kwargs,
        )

    def _build_more(self, features):
        super()._build_more(features)
        self.gamma_h = self._add_plain("gamma_h", (self.units,), "ones")
        self.beta_h = self._add_plain("beta_h", (self.units,), "zeros")

    def prepared(self, int8=False):
        projection, recurrence = super().prepared(int8)
        heads, _, hidden = self.gate_shape
        for argument, name in (("state_gamma", "gamma_h"), ("state_beta", "beta_h")):
            recurrence[argument] = tf.reshape(self._transformed(name, int8), [heads, hidden])
        return projection, recurrence

    def normalize_state(self, c, weights):
        return normalized(c, weights["state_gamma"], self.epsilon, [2]) + weights["state_beta"]


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormLSTM(NormalizedLayer, LSTM):
    """Layer-normalised long short-term memory over whole sequences, fused.

    Takes what `haste_keras.LSTM` takes, in its order, and by keyword:

    Args:
      epsilon: what is added to each variance.

    Weights: kernel, recurrent_kernel and bias of `haste_keras.LSTM`; gamma [2, 4·units] (row 0 for
    x·W, row 1 for h·R; columns as of kernel); gamma_h and beta_h [units]; all of them twice when
    bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = LayerNormLSTMCell

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        unit_forget_bias=True,
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
        use_cudnn="auto",
        *,
        direction="forward",
        merge_mode="concat",
        heads=1,
        zoneout=0.0,
        zoneout_cell=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        epsilon=1e-5,
        zero_output_for_mask=False,
        implementation=2,
        engine="auto",
        **kwargs,
    ):
        super().__init__(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
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
            use_cudnn=use_cudnn,
            direction=direction,
            merge_mode=merge_mode,
            heads=heads,
            zoneout=zoneout,
            zoneout_cell=zoneout_cell,
            dropconnect=dropconnect,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            epsilon=epsilon,
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )

    def recurrence(self, wx, **arguments):
        return ops.layer_norm_lstm(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            zoneout_cell=self.zoneout_cell,
            epsilon=self.epsilon,
            **arguments,
        )
