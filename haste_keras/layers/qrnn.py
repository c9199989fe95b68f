"""The quasi-recurrent layer and its cell: a convolution over time, and pooling.

    x_z, x_f, x_o, x_i = Σ_k x[t - (window-1) + k]·W[k] + b
    z = a(x_z)   f, o, i = ρ(x_f), ρ(x_o), ρ(x_i)          a = activation, ρ = recurrent_activation
    F = p + (1 - p) ∘ f                                    Zoneout: p = 1 where a unit is kept
    h' = F ∘ h + (1 - F) ∘ z                               pooling="f"
    c' = F ∘ c + (1 - F) ∘ z         y = o ∘ c'            pooling="fo"
    c' = F ∘ c + i ∘ z               y = o ∘ c'            pooling="ifo"

Bradbury, Merity, Xiong & Socher, "Quasi-recurrent neural networks", arXiv 1611.01576.
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base import directions
from haste_keras.layers.base.activation import get_activation
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.pooling_cell import PoolingCell
from haste_keras.layers.base.validation import check_choice, is_integer
from haste_keras.native import cell_spec
from haste_keras.ops.shapes import size

POOLINGS = {"f": cell_spec.QRNN_F, "fo": cell_spec.QRNN_FO, "ifo": cell_spec.QRNN_IFO}


@keras.saving.register_keras_serializable("haste_keras")
class QRNNCell(PoolingCell):
    """One step of `QRNN`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `QRNN` takes of a cell. States: c (h with pooling="f") [N, units] and, with
    window > 1, the last window - 1 inputs [N, (window - 1)·C], oldest first.

    Call: inputs [N, C], cast to the compute dtype, and the states. Returns the output [N, units],
    and a list of the new states.

    Raises:
      ValueError: an argument that the cell cannot honour; the message names it.
    """

    activations = ("activation", "recurrent_activation")

    def __init__(
        self,
        units,
        window=1,
        pooling="fo",
        activation="tanh",
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
        check_choice("pooling", pooling, tuple(POOLINGS))
        if not is_integer(window) or window < 1:
            raise ValueError(f"`window` must be a positive integer. Received: window={window!r}")
        self.pooling = pooling  # before all else: `spec` tells by it
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
        self.window = int(window)
        self.recurrent_activation = get_activation(recurrent_activation)
        if self.window > 1:
            self.state_size = [self.units, None]  # until `build` knows the features

    @property
    def spec(self):
        return POOLINGS[self.pooling]

    @property
    def outputs_state(self):
        return self.pooling == "f"

    def _kernel_shape(self, features):
        if self.window > 1:
            self.state_size = [self.units, (self.window - 1) * features]
        return (self.window, *super()._kernel_shape(features))

    def prepared(self, int8=False):
        projection, recurrence = super().prepared(int8)
        kernel = projection["kernel"]
        projection["kernel"] = tf.reshape(kernel, [-1, kernel.shape[-1]])
        return projection, recurrence

    def project(self, inputs, states, keep, weights):
        if self.window > 1:
            keep = None if keep is None else tf.tile(keep, [1, self.window])
            inputs = tf.concat([states[0], inputs], axis=1)
            states = [inputs[:, -states[0].shape[1] :]]
        return super().project(inputs, states, keep, weights)

    def coefficients(self, x, share):
        z, *gates = tf.unstack(x, axis=-2)
        z, gates = self.activation(z), [self.recurrent_activation(gate) for gate in gates]
        keep = gates[0] if share is None else share + (1 - share) * gates[0]
        new = (gates[2] if self.pooling == "ifo" else 1 - keep) * z
        return keep, new, None if self.outputs_state else gates[1]

    def get_config(self):
        return {
            **super().get_config(),
            "window": self.window,
            "pooling": self.pooling,
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
        }


def causal_windows(x, previous, keep, mask, window):
    """The input of the convolution at each step (im2col), and what the next sequence needs of it.

    Masked steps are skipped: a window holds the latest unmasked inputs.

    Args:
      x: [N, T, C].
      previous: [N, (window - 1)·C], the inputs before step 0.
      keep: [N, C], a factor of every step, or None.
      mask: [N, T] bool, or None.
      window: 2 or more.
    Returns:
      [N, T, window·C], and the last window - 1 inputs [N, (window - 1)·C].
    """
    batch, time, features = size(x, 0), size(x, 1), x.shape[2]
    known = window - 1
    steps = tf.concat([tf.reshape(previous, [batch, known, features]), x], axis=1)
    source = steps if keep is None else steps * keep[:, tf.newaxis]
    if mask is None:
        # By tf.slice, whose gradient pads: that of steps[:, k:] writes zeros, and then copies.
        shifted = [tf.slice(source, [0, k, 0], [-1, time, -1]) for k in range(window)]
        columns = tf.concat(shifted, axis=2)
        return columns, tf.reshape(steps[:, time:], [batch, known * features])
    # Live steps in order, then the others; before them what was known.
    position = tf.broadcast_to(tf.range(time), [batch, time])
    order = known + tf.argsort(tf.where(mask, position, position + time), axis=1)
    order = tf.concat([tf.broadcast_to(tf.range(known), [batch, known]), order], axis=1)
    live = tf.cast(mask, tf.int32)
    before = tf.cumsum(live, axis=1, exclusive=True)
    index = tf.gather(order, tf.expand_dims(before, 2) + tf.range(window), batch_dims=1)
    last = tf.reduce_sum(live, axis=1, keepdims=True) + tf.range(known)
    last = tf.gather(steps, tf.gather(order, last, batch_dims=1), batch_dims=1)
    columns = tf.reshape(tf.gather(source, index, batch_dims=1), [batch, time, window * features])
    return columns, tf.reshape(last, [batch, known * features])


@keras.saving.register_keras_serializable("haste_keras")
class QRNN(RecurrentLayer):
    """Quasi-recurrent layer over whole sequences, fused: all products are outside the recurrence.

    Args:
      units: size of the state and of the output.
      window: steps that the convolution sees: the present one and those before it in the walk.
      pooling: "f", "fo" (an output gate) or "ifo" (an input gate too).
      activation: a: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear"; any other runs
        step by step.
      recurrent_activation: ρ of the gates: one of these.
      use_bias: whether to add b.
      Others: as of `haste_keras.LSTM`. There is no recurrent matrix, so no heads, no dropconnect
        and nothing that is named after one.

    Weights: kernel [window, C, G·units] (kernel[window - 1] meets the present step), bias
    [G·units]; gates z, f, o, i, as many as `pooling` has; twice when bidirectional, forward first.
    States: c (h with pooling="f") [N, units] and, with window > 1, the last window - 1 inputs
    [N, (window - 1)·C], oldest of the walk first: with return_state or stateful a sequence goes on
    as if it had not been cut.

    Raises:
      ValueError: an argument that the layer cannot honour; the message names it.
    """

    cell_class = QRNNCell

    def __init__(
        self,
        units,
        window=1,
        pooling="fo",
        activation="tanh",
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
            window=window,
            pooling=pooling,
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

    def project(self, sequences, weights, *, keep, mask, reverse, carried, training):
        if self.window == 1:
            return super().project(
                sequences,
                weights,
                keep=keep,
                mask=mask,
                reverse=reverse,
                carried=carried,
                training=training,
            )
        features = self.cell.kernel.shape[1]
        sequences = tf.ensure_shape(sequences, [None, None, features])
        products, last = [], []
        for each, states, backwards in zip(weights, carried, reverse, strict=True):
            x = tf.reverse(sequences, [1]) if backwards else sequences
            live = tf.reverse(mask, [1]) if backwards and mask is not None else mask
            columns, final = causal_windows(x, states[0], keep, live, self.window)
            columns = tf.reverse(columns, [1]) if backwards else columns
            rows = tf.reshape(columns, [-1, self.window * features])
            products.append(self.multiply(rows, each))
            last.append([final])
        wx = products[0] if len(products) == 1 else tf.concat(products, axis=1)
        others = [{name: each[name] for name in each if name == "bias"} for each in weights]
        return self._in_lanes(self.shift(wx, directions.join(others, -1)), sequences), last

    def recurrence(self, wx, **arguments):
        return ops.qrnn(
            wx,
            pooling=self.pooling,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            **arguments,
        )
