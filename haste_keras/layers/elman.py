"""Elman's simple recurrent network: the layer and its cell.

    h' = a(x·W + b + h·R)                        a = activation

Elman, "Finding structure in time", Cognitive Science 14(2), 1990.
"""

import keras

from haste_keras import ops
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class ElmanCell(RecurrentCell):
    """One step of `Elman`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `keras.layers.SimpleRNNCell` takes, in its order, and what `Elman` adds to it.
    State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.ELMAN
    seeds_first = True

    def __init__(
        self,
        units,
        activation="tanh",
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

    def step(self, x, states, weights, share):
        return None, [self.activation(x + self.product(states[0], weights))[:, :, 0]]


@keras.saving.register_keras_serializable("haste_keras")
class SimpleRNNCell(ElmanCell):
    """`ElmanCell` by Keras's name."""


@keras.saving.register_keras_serializable("haste_keras")
class Elman(RecurrentLayer):
    """Elman's network over whole sequences, fused; a drop-in for `keras.layers.SimpleRNN`.

    Every argument of `keras.layers.SimpleRNN` is taken, in its order and with its default. What
    `haste_keras.LSTM` says of its arguments holds here: the activations, those that change nothing,
    the dropouts, and what it takes by keyword: direction, merge_mode, heads, zoneout, dropconnect,
    the transforms and engine; there is no zoneout_cell.

    Weights as Keras's: kernel [C, units], recurrent_kernel [units, units] (with heads > 1:
    [heads, H, 1, H]), bias [units]; twice when bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = ElmanCell

    def __init__(
        self,
        units,
        activation="tanh",
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
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        stateful=False,
        unroll=False,
        seed=None,
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
        super().__init__(
            units=units,
            activation=activation,
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
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            seed=seed,
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
        return ops.elman(wx, activation=self.activation.__name__, zoneout=self.zoneout, **arguments)


@keras.saving.register_keras_serializable("haste_keras")
class SimpleRNN(Elman):
    """`Elman` by Keras's name: weight files find a layer by the name of its class."""

    cell_class = SimpleRNNCell
