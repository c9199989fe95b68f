"""The gated recurrent unit layer and its cell.

    z, r = ρ(x_z + q_z), ρ(x_r + q_r)            x = x·W + b, a = activation
    g = a(x_g + r ∘ q_g)                         q = h·R + b_r, reset_after=True
    g = a(x_g + (r ∘ h)·R_g)                     q = h·R,       reset_after=False
    h' = z ∘ h + (1 - z) ∘ g                     ρ = recurrent_activation

Cho et al., arXiv 1406.1078: version 1 resets after the product, version 3 before it.
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.activation import get_activation
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.validation import check_use_cudnn
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class GRUCell(RecurrentCell):
    """One step of `GRU`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `keras.layers.GRUCell` takes, and what `GRU` adds to it. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.GRU
    activations = ("activation", "recurrent_activation")

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
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
        reset_after=True,
        seed=None,
        *,
        heads=1,
        zoneout=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        implementation=2,
        **kwargs,
    ):
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
        self.recurrent_activation = get_activation(recurrent_activation)
        self.reset_after = bool(reset_after)

    def _bias_shape(self):
        (columns,) = super()._bias_shape()
        return (2, columns) if self.reset_after else (columns,)

    def prepared(self, int8=False):
        projection, recurrence = super().prepared(int8)
        if self.bias is not None and self.reset_after:
            projection["bias"], bias = tf.unstack(projection["bias"])
            recurrence["recurrent_bias"] = tf.reshape(bias, self.gate_shape)
        return projection, recurrence

    def hoisted(self, weights, loop=False):
        if self.reset_after:
            return super().hoisted(weights, loop)
        # Gates z and r, and the candidate, whose product comes after theirs.
        before = {name: w[..., :2, :] for name, w in weights.items()}
        after = {name: w[..., 2:, :] for name, w in weights.items()}
        return {**super().hoisted(before, loop), "candidate": super().hoisted(after, loop)}

    def step(self, x, states, weights, share):
        (h,) = states
        x_z, x_r, x_g = tf.unstack(x, axis=2)
        q = self.product(h, weights) + weights.get("recurrent_bias", 0)
        z, r = (self.recurrent_activation(v) for v in (x_z + q[:, :, 0], x_r + q[:, :, 1]))
        if self.reset_after:
            q_g = r * q[:, :, 2]
        else:
            q_g = self.product(r * h, {**weights, **weights["candidate"]})[:, :, 0]
        return None, [z * h + (1 - z) * self.activation(x_g + q_g)]

    def get_config(self):
        return {
            **super().get_config(),
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
            "reset_after": self.reset_after,
        }


@keras.saving.register_keras_serializable("haste_keras")
class GRU(RecurrentLayer):
    """Gated recurrent unit over whole sequences, fused; a drop-in for `keras.layers.GRU`.

    Every argument of `keras.layers.GRU` is taken, in its order and with its default. What
    `haste_keras.LSTM` says of its arguments holds here: the activations, those that change nothing,
    the dropouts, and what it takes by keyword: direction, merge_mode, heads, zoneout, dropconnect,
    the transforms and engine; there is no zoneout_cell.

    Weights as Keras's: kernel [C, 3·units], recurrent_kernel [units, 3·units] (with heads > 1:
    [heads, H, 3, H]), bias [2, 3·units], of the input and of the product with R, or with
    reset_after=False [3·units]; gates z, r, h; twice when bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = GRUCell

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
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
        reset_after=True,
        use_cudnn="auto",
        *,
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
        use_cudnn = check_use_cudnn(use_cudnn)
        super().__init__(
            units=units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
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
            reset_after=reset_after,
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
        self.use_cudnn = use_cudnn

    def recurrence(self, wx, **arguments):
        return ops.gru(
            wx,
            reset_after=self.reset_after,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            **arguments,
        )
