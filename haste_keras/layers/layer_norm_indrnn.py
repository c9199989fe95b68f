"""The layer-normalised independently recurrent network: the layer and its cell.

    h' = a(LN(x·W) + b + u ∘ h)                  LN of `base/normalized.py`

Only x·W is normalised: u ∘ h is no product with a matrix.
"""

import keras

from haste_keras.layers.base.normalized import NormalizedCell, NormalizedLayer
from haste_keras.layers.indrnn import IndRNN, IndRNNCell


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormIndRNNCell(NormalizedCell, IndRNNCell):
    """One step of `LayerNormIndRNN`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `IndRNNCell` takes, and epsilon. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    def __init__(
        self,
        units,
        activation="relu",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        recurrent_initializer=None,
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        recurrent_clip=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        zoneout=0.0,
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
            recurrent_clip=recurrent_clip,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            zoneout=zoneout,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            epsilon=epsilon,
            implementation=implementation,
            **kwargs,
        )


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormIndRNN(NormalizedLayer, IndRNN):
    """Layer-normalised independently recurrent network over whole sequences, fused.

    Takes what `haste_keras.IndRNN` takes, in its order, and by keyword:

    Args:
      epsilon: what is added to the variance.

    Weights: kernel, recurrent_kernel and bias of `haste_keras.IndRNN`; gamma [units]; all of them
    twice when bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = LayerNormIndRNNCell

    def __init__(
        self,
        units,
        activation="relu",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        recurrent_initializer=None,
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        recurrent_clip=None,
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
        zoneout=0.0,
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
            recurrent_clip=recurrent_clip,
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
            zoneout=zoneout,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            epsilon=epsilon,
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )
