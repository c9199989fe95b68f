"""The layer-normalised gated recurrent unit: the layer and its cell.

The GRU of `gru.py`, reset after the product, with x·W and h·R normalised (`normalized.py`).
"""

import keras

from haste_keras import ops
from haste_keras.layers.gru import GRU, GRUCell
from haste_keras.layers.normalized import NormalizedCell, NormalizedLayer
from haste_keras.native import cell_spec


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormGRUCell(NormalizedCell, GRUCell):
    """One step of `LayerNormGRU`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `GRUCell` takes, and epsilon. State: h [N, units].
    """

    spec = cell_spec.LAYER_NORM_GRU
    stock = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not self.reset_after:
            raise ValueError(
                "`reset_after` must be True: the layer normalises h·R as a whole. Received: "
                "reset_after=False"
            )


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormGRU(NormalizedLayer, GRU):
    """Layer-normalised gated recurrent unit over whole sequences, fused.

    Takes what `haste_keras.GRU` takes, in its order (reset_after is True), and by keyword:

    Args:
      epsilon: what is added to each variance.

    Weights: kernel, recurrent_kernel and bias [2, 3·units] of `haste_keras.GRU`; gamma
    [2, 3·units] (row 0 for x·W, row 1 for h·R; columns as of kernel); all of them twice when
    bidirectional, forward first.
    """

    cell_class = LayerNormGRUCell

    def recurrence(self, wx, **arguments):
        return ops.layer_norm_gru(
            wx,
            activation=self.activation.__name__,
            recurrent_activation=self.recurrent_activation.__name__,
            zoneout=self.zoneout,
            epsilon=self.epsilon,
            **arguments,
        )
