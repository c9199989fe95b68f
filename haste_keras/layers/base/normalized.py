"""What the layer-normalised layers share: x·W and h·R go through it, each with a gamma.

    LN(v) = γ ∘ (v - mean(v)) / sqrt(variance(v) + ε), over all gates and units of a head

    x = LN(x·W) + b                              γ = gamma[0]
    q = LN(h·R), of the LSTM and the GRU         γ = gamma[1]

Ba, Kiros & Hinton, "Layer normalization", arXiv 1607.06450, as Haste defines it for these cells.
"""

import numbers

import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer


def normalized(x, gamma, epsilon, axes, centred=False):
    """γ ∘ (x - mean) / sqrt(variance + ε) over `axes`; in float32 at least.

    centred: the mean is 0 already.
    """
    wide = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
    if not centred:
        # tf.nn.moments stops the gradient of the mean, which makes second derivatives wrong.
        wide = wide - tf.reduce_mean(wide, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(wide), axes, keepdims=True)
    return tf.cast(wide * tf.math.rsqrt(variance + epsilon), x.dtype) * gamma


class NormalizedCell(RecurrentCell):
    """A cell with `gamma`, one for x·W and, where `spec` normalises it, one for h·R; `epsilon`."""

    normalizes_input = True  # x·W

    def __init__(self, *args, epsilon=1e-5, **kwargs):
        super().__init__(*args, **kwargs)
        if not isinstance(epsilon, numbers.Real) or not epsilon > 0:
            raise ValueError(f"`epsilon` must be a positive number. Received: epsilon={epsilon!r}")
        self.epsilon = float(epsilon)

    def _build_more(self, features):
        columns = len(self.spec.gates) * self.units
        shape = (2, columns) if self.spec.normalizes else (columns,)
        if self.normalizes_input:
            self.gamma = self._add_plain("gamma", shape, "ones")

    def _add_plain(self, name, shape, initializer):
        return self.add_weight(shape=shape, name=name, initializer=initializer, autocast=False)

    def prepared(self, int8=False):
        projection, recurrence = super().prepared(int8)
        if self.normalizes_input:
            projection["gamma"] = self._transformed("gamma", int8)
        if self.spec.normalizes:
            projection["gamma"], gamma = tf.unstack(projection["gamma"])
            recurrence["recurrent_gamma"] = tf.reshape(gamma, self.gate_shape)
        return projection, recurrence

    def shift(self, wx, weights):
        if not self.normalizes_input:
            return super().shift(wx, weights)
        gamma = tf.reshape(weights["gamma"], self.gate_shape)
        lanes = normalized(tf.reshape(wx, [-1, *self.gate_shape]), gamma, self.epsilon, [2, 3])
        return super().shift(tf.reshape(lanes, [-1, wx.shape[-1]]), weights)

    def hoisted(self, weights, loop=False):
        if loop and self.spec.normalizes and "recurrent_scale" not in weights:
            # mean(h·R) is h·mean(R): without it in R, no step need subtract it.
            kernel = weights["recurrent_kernel"]
            kernel = kernel - tf.reduce_mean(kernel, [2, 3], keepdims=True)
            weights = {**weights, "recurrent_kernel": kernel, "centred": True}
        return super().hoisted(weights, loop)

    def product(self, h, weights):
        q = super().product(h, weights)
        if not self.spec.normalizes:
            return q
        gamma, centred = weights["recurrent_gamma"], weights.get("centred", False)
        return normalized(q, gamma, self.epsilon, [2, 3], centred)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


class NormalizedLayer(RecurrentLayer):
    """A layer of `NormalizedCell`s: normalises x·W of all steps and lanes by one op."""

    @property
    def only_adds_bias(self):
        return not self.cell.normalizes_input

    def shift(self, wx, weights):
        if self.only_adds_bias:
            return super().shift(wx, weights)
        lanes = len(self.cells) * self.heads
        gamma = tf.reshape(weights["gamma"], [lanes, -1])
        beta = tf.reshape(weights["bias"], [lanes, -1]) if "bias" in weights else None
        rows = tf.reshape(wx, [-1, *gamma.shape])
        return tf.reshape(ops.layer_norm(rows, gamma, beta, epsilon=self.epsilon), tf.shape(wx))
