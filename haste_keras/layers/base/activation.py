"""Activations: any callable, and which of them the fused kernels have."""

import keras
import tensorflow as tf

from haste_keras.native.cell_spec import ACTIVATIONS

# Functions that compute one of ACTIVATIONS under another name.
_ALIASES = {
    "tanh": (tf.tanh, tf.nn.tanh, keras.ops.tanh),
    "sigmoid": (tf.sigmoid, tf.nn.sigmoid, keras.ops.sigmoid),
    "relu": (tf.nn.relu, keras.ops.relu),
    "hard_sigmoid": (keras.ops.hard_sigmoid,),
    "linear": (tf.identity,),
}


def get_activation(identifier):
    """The callable that `identifier` is or names.

    It is Keras's own function wherever it computes one of ACTIVATIONS, so that these are known by
    identity and are saved by name.
    """
    if isinstance(identifier, dict) and identifier.get("class_name") != "function":
        # A layer's configuration, which `get` of Keras 3.6 does not read.
        identifier = keras.saving.deserialize_keras_object(identifier)
    function = keras.activations.get(identifier)
    while type(function) is keras.layers.Activation:
        function = function.activation
    if type(function) is keras.layers.Identity:
        return keras.activations.linear
    if type(function) is keras.layers.ReLU and _is_plain(function):
        return keras.activations.relu
    for name, aliases in _ALIASES.items():
        if any(function is alias for alias in aliases):
            return getattr(keras.activations, name)
    return function


def _is_plain(relu):
    return relu.max_value is None and not relu.negative_slope and not relu.threshold


def is_fused(function):
    """Whether the kernels have `function`, which is as `get_activation` gives it."""
    return any(function is getattr(keras.activations, name) for name in ACTIVATIONS)


def name_of(function):
    """What messages call `function`."""
    return getattr(function, "__name__", None) or type(function).__name__
