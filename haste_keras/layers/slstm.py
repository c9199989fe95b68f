"""The sLSTM layer and its cell: exponential gates, a normaliser n and a stabiliser m.

    i~, f~, z~, o~ = x·W + b + h·R               a = activation
    log f = f~, or log σ(f~)                     forget_activation "exponential", or "sigmoid"
    m' = max(log f + m, i~)
    i = exp(i~ - m')     f = exp(log f + m - m')     o = σ(o~)
    c' = f ∘ c + i ∘ a(z~)                       n' = f ∘ n + i
    h' = o ∘ c' / n'

A state with n = 0, as at the start, is empty: its m does not count and f is 0.

Beck et al., "xLSTM: extended long short-term memory", arXiv 2405.04517.
"""

import numbers

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.validation import check_choice, check_rate
from haste_keras.native import cell_spec

FORGET_ACTIVATIONS = ("exponential", "sigmoid")


@keras.saving.register_keras_serializable("haste_keras")
class SLSTMCell(RecurrentCell):
    """One step of `SLSTM`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `SLSTM` takes of a cell. States: h, c, n, m, each [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.SLSTM
    own_zoneout = (1, 2, 3)

    def __init__(
        self,
        units,
        activation="tanh",
        forget_activation="exponential",
        use_bias=True,
        *,
        forget_bias=None,
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
        zoneout_cell=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        implementation=2,
        **kwargs,
    ):
        check_choice("forget_activation", forget_activation, FORGET_ACTIVATIONS)
        if forget_bias is not None and not isinstance(forget_bias, numbers.Real):
            raise ValueError(
                f"`forget_bias` must be None or a number. Received: forget_bias={forget_bias!r}"
            )
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
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
        self.forget_activation = forget_activation
        self.forget_bias = forget_bias
        self.zoneout_cell = check_rate("zoneout_cell", zoneout_cell, one=True)

    @property
    def zoneout_rates(self):
        return (self.zoneout, self.zoneout_cell, 0.0, 0.0)

    def _initialize_bias(self, shape, dtype=None):
        value = self.forget_bias
        if value is None and self.forget_activation == "sigmoid":
            value = 1.0
        if value is None:
            return self.bias_initializer(shape, dtype=dtype)
        return self._bias_with(value, self.spec.gates.index("f"), dtype)

    def step(self, x, states, weights, share):
        h, c, n, m = states
        z_i, z_f, z_z, z_o = tf.unstack(x + self.product(h, weights), axis=2)
        log_f = z_f if self.forget_activation == "exponential" else tf.math.log_sigmoid(z_f)
        # m is a choice of scale, which h does not depend on.
        held, carried = n > 0, log_f + tf.stop_gradient(m)
        new_m = tf.stop_gradient(tf.where(held, tf.maximum(carried, z_i), z_i))
        i = tf.exp(z_i - new_m)
        # Chosen before exp too: a gradient of inf would come back as NaN.
        f = tf.where(held, tf.exp(tf.where(held, carried - new_m, tf.zeros_like(c))), 0)
        new_c = f * c + i * self.activation(z_z)
        new_n = f * n + i
        new_h = tf.sigmoid(z_o) * (new_c / new_n)
        kept = self._kept(share[1], (c, n, m), (new_c, new_n, new_m))
        return None, [new_h, *kept]

    @staticmethod
    def _kept(share, past, new):
        """Zoneout of (c, n, m): of c·exp(m) and n·exp(m), `share` of it from the past."""
        if share is None:
            return new
        c, n, m = past
        new_c, new_n, new_m = new
        lowest = tf.constant(m.dtype.min, m.dtype)  # of an exponent: has no part
        past_m = tf.where((n > 0) & (share > 0), tf.stop_gradient(m) + tf.math.log(share), lowest)
        new_m = tf.where(share < 1, new_m + tf.math.log1p(-share), lowest)
        lead = past_m - new_m
        scale = tf.maximum(past_m, new_m) + tf.math.softplus(-tf.abs(lead))
        past_part, new_part = tf.sigmoid(lead), tf.sigmoid(-lead)
        mixed = (past_part * c + new_part * new_c, past_part * n + new_part * new_n, scale)
        kept = share >= 1
        return [tf.where(kept, old, state) for old, state in zip(past, mixed, strict=True)]

    def get_config(self):
        return {
            **super().get_config(),
            "forget_activation": self.forget_activation,
            "forget_bias": self.forget_bias,
            "zoneout_cell": self.zoneout_cell,
        }


@keras.saving.register_keras_serializable("haste_keras")
class SLSTM(RecurrentLayer):
    """The sLSTM over whole sequences, fused. Safe in 16 bits whatever the size of its inputs.

    Args:
      units: size of each state and of the output.
      activation: a: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear"; any other runs
        step by step.
      forget_activation: "exponential" or "sigmoid", of the forget gate.
      use_bias: whether to add b.
      forget_bias: what the forget gate's bias begins with. None: what `bias_initializer` gives to
        the others if the gate is exponential (f = 1 at 0, all is kept), 1 if it is a sigmoid.
      zoneout_cell: chance that a unit of c, with n and m, keeps its last value in a step; the
        expectation (of c·exp(m) and n·exp(m)) at inference.
      Others: as of `haste_keras.LSTM`.

    Weights: kernel [C, 4·units], recurrent_kernel [units, 4·units] (with heads > 1:
    [heads, H, 4, H]), bias [4·units]; gates i, f, z, o; twice when bidirectional, forward first.
    States: h, c, n, m.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = SLSTMCell

    def __init__(
        self,
        units,
        activation="tanh",
        forget_activation="exponential",
        use_bias=True,
        *,
        forget_bias=None,
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
        zoneout_cell=0.0,
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
            forget_activation=forget_activation,
            use_bias=use_bias,
            forget_bias=forget_bias,
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
            zoneout_cell=zoneout_cell,
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
        return ops.slstm(
            wx,
            activation=self.activation.__name__,
            forget_activation=self.forget_activation,
            zoneout=self.zoneout,
            zoneout_cell=self.zoneout_cell,
            **arguments,
        )
