"""The independently recurrent network: the layer, its cell, and the bound on its weights.

    h' = a(x·W + b + u ∘ h)                      a = activation, u = recurrent_kernel

Li et al., "Independently recurrent neural network (IndRNN)", arXiv 1803.04831.
"""

import numbers

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.native import cell_spec


def _check_positive(argument, value):
    if not isinstance(value, numbers.Real) or not value > 0:
        raise ValueError(f"`{argument}` must be a positive number. Received: {argument}={value!r}")
    return float(value)


@keras.saving.register_keras_serializable("haste_keras")
class AbsoluteMax(keras.constraints.Constraint):
    """Keeps every weight in [-max_value, max_value]: the paper's bound on u.

    Args:
      max_value: a positive number.

    Raises:
      ValueError: it is not one.
    """

    def __init__(self, max_value=1.0):
        self.max_value = _check_positive("max_value", max_value)

    def __call__(self, w):
        return keras.ops.clip(w, -self.max_value, self.max_value)

    def get_config(self):
        return {"max_value": self.max_value}


@keras.saving.register_keras_serializable("haste_keras")
class IndRNNCell(RecurrentCell):
    """One step of `IndRNN`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `IndRNN` takes of a cell. State: h [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.INDRNN
    without = ("heads", "dropconnect")

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
        implementation=2,
        **kwargs,
    ):
        self._refuse(kwargs)
        bound = 1.0
        if recurrent_clip is not None:
            bound = _check_positive("recurrent_clip", recurrent_clip)
            if recurrent_constraint is not None:
                raise ValueError(
                    "`recurrent_clip` is a constraint on recurrent_kernel and must be None beside "
                    f"`recurrent_constraint`. Received: recurrent_clip={recurrent_clip!r}"
                )
            recurrent_constraint = AbsoluteMax(bound)
        if recurrent_initializer is None:
            recurrent_initializer = keras.initializers.RandomUniform(0.0, bound)
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
            zoneout=zoneout,
            kernel_transform=kernel_transform,
            recurrent_transform=recurrent_transform,
            bias_transform=bias_transform,
            implementation=implementation,
            **kwargs,
        )
        self.recurrent_clip = recurrent_clip

    def _recurrent_shape(self):
        return (self.units,)

    def _lane_shape(self):
        return self.gate_shape

    def step(self, x, states, weights, share):
        q = weights["recurrent_kernel"] * self.dropped(states[0], weights)[:, :, tf.newaxis]
        return None, [self.activation(x + q)[:, :, 0]]

    def get_config(self):
        config = {**super().get_config(), "recurrent_clip": self.recurrent_clip}
        if self.recurrent_clip is not None:
            config["recurrent_constraint"] = None
        return config


@keras.saving.register_keras_serializable("haste_keras")
class IndRNN(RecurrentLayer):
    """Independently recurrent network over whole sequences, fused.

    Each unit sees only its own past, so that layers are stacked to mix them: deep stacks, with
    BatchNormalization in between, are what the paper trains.

    Args:
      units: size of the state and of the output.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear"; any other runs
        step by step.
      use_bias: whether to add b.
      recurrent_initializer: of u. None: uniform in [0, recurrent_clip], or in [0, 1], which the
        paper's range [0, 2^(1/T)] comes to for long sequences.
      recurrent_clip: keeps |u| at or below this number, by `recurrent_constraint`:
        `IndRNN.max_abs(T)` is the paper's bound for sequences of T steps. None: no bound.
      Others: as of `haste_keras.LSTM`. There is no recurrent matrix, so no heads and no
        dropconnect.

    Weights: kernel [C, units], recurrent_kernel u [units], bias [units]; twice when bidirectional,
    forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = IndRNNCell

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
            zero_output_for_mask=zero_output_for_mask,
            implementation=implementation,
            engine=engine,
            **kwargs,
        )

    @staticmethod
    def max_abs(steps, gamma=2.0):
        """γ^(1/T): the bound on |u| that lets h grow by no more than a factor of γ in T steps.

        Args:
          steps: T, a positive number.
          gamma: γ, a positive number.

        Returns:
          A float.

        Raises:
          ValueError: one of them is not positive.
        """
        return _check_positive("gamma", gamma) ** (1.0 / _check_positive("steps", steps))

    def recurrence(self, wx, **arguments):
        return ops.indrnn(
            wx, activation=self.activation.__name__, zoneout=self.zoneout, **arguments
        )
