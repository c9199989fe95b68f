"""The layer-normalised long short-term memory: the layer and its cell.

The LSTM of `lstm.py` with x·W and h·R normalised (`normalized.py`), and c where it makes h:

    h' = o ∘ a(γ_h ∘ LN(c') + β_h)               LN over the units of a head
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras.layers.lstm import LSTM, LSTMCell
from haste_keras.layers.normalized import NormalizedCell, NormalizedLayer, normalized
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormLSTMCell(NormalizedCell, LSTMCell):
    """One step of `LayerNormLSTM`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `LSTMCell` takes, and epsilon. States: h and c, each [N, units].
    """

    spec = cell_spec.LAYER_NORM_LSTM
    stock = None

    def _build_more(self, features):
        super()._build_more(features)
        self.gamma_h = self._add_plain("gamma_h", (self.units,), "ones")
        self.beta_h = self._add_plain("beta_h", (self.units,), "zeros")

    def prepared(self):
        projection, recurrence = super().prepared()
        heads, _, hidden = self.gate_shape
        for argument, name in (("state_gamma", "gamma_h"), ("state_beta", "beta_h")):
            recurrence[argument] = tf.reshape(self._transformed(name), [heads, hidden])
        return projection, recurrence

    def normalize_state(self, c, weights):
        return normalized(c, weights["state_gamma"], self.epsilon, [2]) + weights["state_beta"]


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormLSTM(NormalizedLayer, LSTM):
    """Layer-normalised long short-term memory over whole sequences, fused.

    Takes what `haste_keras.LSTM` takes, in its order, and by keyword:

    Args:
      epsilon: what is added to each variance.

    Weights: kernel, recurrent_kernel and bias of `haste_keras.LSTM`; gamma [2, 4·units] (row 0 for
    x·W, row 1 for h·R; columns as of kernel); gamma_h and beta_h [units]; all of them twice when
    bidirectional, forward first.
    """

    cell_class = LayerNormLSTMCell

    def recurrence(self, wx, **arguments):
        return ops.layer_norm_lstm(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            zoneout_cell=self.zoneout_cell,
            epsilon=self.epsilon,
            **arguments,
        )
