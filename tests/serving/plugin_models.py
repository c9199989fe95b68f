"""What the tests of the graph optimizer share: small portable models, and counted calls."""

import keras
import numpy as np
import tensorflow as tf

from haste_keras.native import library

BATCH, TIME, FEATURES, HIDDEN = 3, 7, 6, 8
LIMIT = 1e-5
SEQUENCES = {"return_sequences": True}


def count(function, *arguments):
    """What `function` returns, and how many calls became ops on the way."""
    before = library.graph_calls()
    result = tf.nest.map_structure(np.asarray, function(*arguments))
    return result, library.graph_calls() - before


def load(folder):
    """`serve` of a SavedModel, which holds the model's variables too."""
    model = tf.saved_model.load(folder)
    return lambda x: model.serve(x)


def sample(rng):
    x = rng.standard_normal((BATCH, TIME, FEATURES)).astype("float32")
    x[0, 2] = 0
    x[1, 4:] = 0
    return x


def model_of(layer, masked=False, batch=None, time=None):
    given = keras.Input((time, FEATURES), batch_size=batch)
    return keras.Model(given, layer(keras.layers.Masking()(given) if masked else given))
