"""The long short-term memory layer and its cell.

    i, f, g, o = r(x_i + q_i), r(x_f + q_f), a(x_g + q_g), r(x_o + q_o)    x = x·W + b, q = h·R
    c' = f ∘ c + i ∘ g
    h' = o ∘ a(c')

Hochreiter & Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997; forget gate of
Gers, Schmidhuber & Cummins, 2000. Zoneout: Krueger et al., ICLR 2017. DropConnect on the
recurrent kernel: Merity, Keskar & Socher, ICLR 2018.
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.activation import get_activation
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.validation import check_rate, check_use_cudnn
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class LSTMCell(RecurrentCell):
    """One step of `LSTM`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `keras.layers.LSTMCell` takes; `heads`, `zoneout`, `zoneout_cell`, `dropconnect` and
    the transforms are as in `LSTM`. States: h and c, each [N, units].

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    spec = cell_spec.LSTM
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
        self.unit_forget_bias = unit_forget_bias
        self.zoneout_cell = check_rate("zoneout_cell", zoneout_cell, one=True)

    @property
    def zoneout_rates(self):
        return (self.zoneout, self.zoneout_cell)

    def _initialize_bias(self, shape, dtype=None):
        if self.unit_forget_bias:
            return self._bias_with(1, self.spec.gates.index("f"), dtype)
        return self.bias_initializer(shape, dtype=dtype)

    def step(self, x, states, weights, share):
        z_i, z_f, z_g, z_o = tf.unstack(x + self.product(states[0], weights), axis=2)
        i, f = self.recurrent_activation(z_i), self.recurrent_activation(z_f)
        c = f * states[1] + i * self.activation(z_g)
        h = self.recurrent_activation(z_o) * self.activation(self.normalize_state(c, weights))
        return None, [h, c]

    def normalize_state(self, c, weights):
        """What c [N, heads, H] goes through where it makes h."""
        return c

    def get_config(self):
        return {
            **super().get_config(),
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
            "unit_forget_bias": self.unit_forget_bias,
            "zoneout_cell": self.zoneout_cell,
        }


@keras.saving.register_keras_serializable("haste_keras")
class LSTM(RecurrentLayer):
    """Long short-term memory over whole sequences, fused; a drop-in for `keras.layers.LSTM`.

    Every argument of `keras.layers.LSTM` is taken, in its order and with its default.
    The kernels have the activations tanh, sigmoid, relu, hard_sigmoid and linear; with another one
    the layer runs step by step, as Keras's does, and warns. `unroll`, `use_cudnn` and
    `implementation` are checked and change nothing. `dropout` and `recurrent_dropout` draw one mask
    a call, the same for all steps and gates. By keyword:

    Args:
      direction: "forward"; "backward": walks from the end, outputs in the order of time;
        "bidirectional": both at once, as `keras.layers.Bidirectional` of this layer.
      merge_mode: of a bidirectional layer: "concat", "sum", "mul", "ave", None.
      heads: independent recurrences of units / heads units each.
      zoneout, zoneout_cell: chance in [0, 1] that a unit of h, of c, keeps its last value in a
        step; the expectation at inference.
      dropconnect: rate of dropout on the recurrent kernel, once a call.
      kernel_transform, recurrent_transform, bias_transform: callable, or name of a registered
        one, that the variable goes through before use, as spectral normalisation.
      zero_output_for_mask: whether outputs of masked steps are 0, in place of the last output.
      engine: "auto", or the name of one engine of the op.
      kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Weights as Keras's: kernel [C, 4·units], recurrent_kernel [units, 4·units] (with heads > 1:
    [heads, H, 4, H]), bias [4·units], gates i, f, c, o; twice when bidirectional, forward first.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = LSTMCell

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
        self.use_cudnn = use_cudnn

    def recurrence(self, wx, **arguments):
        return ops.lstm(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            zoneout_cell=self.zoneout_cell,
            **arguments,
        )
