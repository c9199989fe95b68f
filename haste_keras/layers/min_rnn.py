"""The minimal GRU and the minimal LSTM: the layers and their cells. Gates see the input alone.

    MinGRU      z = ρ(x_z)                       x = x·W + b, a = activation
    MinLSTM     z = σ(x_i) / (σ(x_f) + σ(x_i))   ρ = recurrent_activation, σ = sigmoid
    both        Z = (1 - p) ∘ z                  Zoneout: p = 1 where a unit is kept
                h' = (1 - Z) ∘ h + Z ∘ a(x_g)

Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, sections 3.1 and 3.2.
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.activation import get_activation
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.pooling_cell import PoolingCell
from haste_keras.native import cell_spec


class _MinCell(PoolingCell):
    """Both cells; a subclass says in `renewal` what makes z of the gates but g.

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    def renewal(self, *gates):
        """z of the projected gates, each [..., H]."""
        raise NotImplementedError

    def coefficients(self, x, share):
        *gates, g = tf.unstack(x, axis=-2)
        z = self.renewal(*gates)
        z = z if share is None else (1 - share) * z
        return 1 - z, z * self.activation(g), None


@keras.saving.register_keras_serializable("haste_keras")
class MinGRUCell(_MinCell):
    """One step of `MinGRU`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `MinGRU` takes of a cell. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.MINGRU
    activations = ("activation", "recurrent_activation")

    def __init__(
        self,
        units,
        activation="linear",
        recurrent_activation="sigmoid",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        seed=None,
        zoneout=0.0,
        kernel_transform=None,
        bias_transform=None,
        implementation=2,
        **kwargs,
    ):
        self._refuse(kwargs)
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            seed=seed,
            zoneout=zoneout,
            kernel_transform=kernel_transform,
            bias_transform=bias_transform,
            implementation=implementation,
            **kwargs,
        )
        self.recurrent_activation = get_activation(recurrent_activation)

    def renewal(self, z):
        return self.recurrent_activation(z)

    def get_config(self):
        activation = keras.activations.serialize(self.recurrent_activation)
        return {**super().get_config(), "recurrent_activation": activation}


@keras.saving.register_keras_serializable("haste_keras")
class MinLSTMCell(_MinCell):
    """One step of `MinLSTM`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `MinLSTM` takes of a cell. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.MINLSTM

    def __init__(
        self,
        units,
        activation="linear",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        seed=None,
        zoneout=0.0,
        kernel_transform=None,
        bias_transform=None,
        implementation=2,
        **kwargs,
    ):
        self._refuse(kwargs)
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            seed=seed,
            zoneout=zoneout,
            kernel_transform=kernel_transform,
            bias_transform=bias_transform,
            implementation=implementation,
            **kwargs,
        )

    def renewal(self, f, i):
        # By logarithms: the quotient of two gates that are nearly 0 is lost.
        return tf.sigmoid(tf.math.log_sigmoid(i) - tf.math.log_sigmoid(f))


@keras.saving.register_keras_serializable("haste_keras")
class MinGRU(RecurrentLayer):
    """Minimal GRU over whole sequences, fused: all products are outside the recurrence.

    Args:
      units: size of the state and of the output.
      activation: a of the candidate: "linear", which is the paper's, "tanh", "sigmoid", "relu" or
        "hard_sigmoid"; any other runs step by step.
      recurrent_activation: ρ of the update gate: one of these.
      use_bias: whether to add b.
      Others: as of `haste_keras.LSTM`. There is no recurrent matrix, so no heads, no dropconnect
        and nothing that is named after one.

    Weights: kernel [C, 2·units], bias [2·units]; gates z (the share of the new), g; twice when
    bidirectional, forward first. State: h [N, units].

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = MinGRUCell

    def __init__(
        self,
        units,
        activation="linear",
        recurrent_activation="sigmoid",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        dropout=0.0,
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
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
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
            bias_transform=bias_transform,
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )

    def recurrence(self, wx, **arguments):
        return ops.mingru(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            **arguments,
        )


@keras.saving.register_keras_serializable("haste_keras")
class MinLSTM(RecurrentLayer):
    """Minimal LSTM over whole sequences, fused: all products are outside the recurrence.

    The two gates are scaled to a sum of 1, so that the size of the state does not depend on time.

    Args:
      units: size of the state and of the output.
      activation: a of the candidate: "linear", which is the paper's, "tanh", "sigmoid", "relu" or
        "hard_sigmoid"; any other runs step by step. The gates are sigmoids.
      use_bias: whether to add b.
      Others: as of `haste_keras.LSTM`. There is no recurrent matrix, so no heads, no dropconnect
        and nothing that is named after one.

    Weights: kernel [C, 3·units], bias [3·units]; gates f, i, g; twice when bidirectional, forward
    first. State: h [N, units].

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = MinLSTMCell

    def __init__(
        self,
        units,
        activation="linear",
        use_bias=True,
        *,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        dropout=0.0,
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
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
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
            bias_transform=bias_transform,
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )

    def recurrence(self, wx, **arguments):
        return ops.minlstm(
            wx, activation=self.activation.__name__, zoneout=self.zoneout, **arguments
        )
