"""The layer-normalised independently recurrent network: the layer and its cell.

    h' = a(LN(x·W) + b + u ∘ h)                  LN of `normalized.py`

Only x·W is normalised: u ∘ h is no product with a matrix.
"""

import keras

from haste_keras.layers.indrnn import IndRNN, IndRNNCell
from haste_keras.layers.normalized import NormalizedCell, NormalizedLayer


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormIndRNNCell(NormalizedCell, IndRNNCell):
    """One step of `LayerNormIndRNN`, with its weights, for `keras.layers.RNN` and decoding loops.

    Takes what `IndRNNCell` takes, and epsilon. State: h [N, units].
    """


@keras.saving.register_keras_serializable("haste_keras")
class LayerNormIndRNN(NormalizedLayer, IndRNN):
    """Layer-normalised independently recurrent network over whole sequences, fused.

    Takes what `haste_keras.IndRNN` takes, in its order, and by keyword:

    Args:
      epsilon: what is added to the variance.

    Weights: kernel, recurrent_kernel and bias of `haste_keras.IndRNN`; gamma [units]; all of them
    twice when bidirectional, forward first.
    """

    cell_class = LayerNormIndRNNCell
