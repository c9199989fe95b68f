"""The independently recurrent network: the layer, its cell, and the bound on its weights.

    h' = a(x·W + b + u ∘ h)                      a = activation, u = recurrent_kernel

Li et al., "Independently recurrent neural network (IndRNN)", arXiv 1803.04831.
"""

import numbers

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.cell import RecurrentCell, arguments
from haste_keras.layers.layer import RecurrentLayer, from_cell
from haste_keras.native import cell_spec


def _check_positive(argument, value):
    if not isinstance(value, numbers.Real) or not value > 0:
        raise ValueError(f"`{argument}` must be a positive number. Received: {argument}={value!r}")
    return float(value)


@keras.saving.register_keras_serializable("haste_keras")
class AbsoluteMax(keras.constraints.Constraint):
    """Keeps every weight in [-max_value, max_value]: the paper's bound on u."""

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
    """

    spec = cell_spec.INDRNN
    without = ("heads", "dropconnect")

    def __init__(
        self,
        units,
        activation="relu",
        use_bias=True,
        *,
        recurrent_initializer=None,
        recurrent_constraint=None,
        recurrent_clip=None,
        **kwargs,
    ):
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
        super().__init__(**arguments(locals(), without=("recurrent_clip", "bound")))
        self.recurrent_clip = recurrent_clip

    def _recurrent_shape(self):
        return (self.units,)

    def _lane_shape(self):
        return self.gate_shape

    def step(self, x, states, weights, share):
        q = weights["recurrent_kernel"] * states[0][:, :, tf.newaxis]
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
      activation: "relu", "tanh", "sigmoid", "hard_sigmoid" or "linear".
      use_bias: whether to add b.
      recurrent_initializer: of u. None: uniform in [0, recurrent_clip], or in [0, 1], which the
        paper's range [0, 2^(1/T)] comes to for long sequences.
      recurrent_clip: keeps |u| at or below this number, by `recurrent_constraint`:
        `IndRNN.max_abs(T)` is the paper's bound for sequences of T steps. None: no bound.
      kwargs: all else that `haste_keras.LSTM` takes, by keyword: kernel_initializer
        ("glorot_uniform"), bias_initializer ("zeros"), regularizers, constraints, transforms,
        dropout, recurrent_dropout, seed, return_sequences, return_state, go_backwards, stateful,
        direction, merge_mode, zoneout, engine. There is no recurrent matrix, so no heads and no
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
        recurrent_initializer=None,
        recurrent_constraint=None,
        recurrent_clip=None,
        **kwargs,
    ):
        super().__init__(**arguments(locals()))

    recurrent_clip = from_cell("recurrent_clip")

    @staticmethod
    def max_abs(steps, gamma=2.0):
        """γ^(1/T): the bound on |u| that lets h grow by no more than a factor of γ in T steps."""
        return _check_positive("gamma", gamma) ** (1.0 / _check_positive("steps", steps))

    def recurrence(self, wx, **arguments):
        return ops.indrnn(
            wx, activation=self.activation.__name__, zoneout=self.zoneout, **arguments
        )
