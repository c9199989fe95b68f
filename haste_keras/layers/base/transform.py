"""Transforms: functions that a weight goes through before it is used."""

import keras


def get_transform(identifier, argument):
    """The callable that `identifier` stands for: itself, a registered name, or a Keras config."""
    found = identifier
    if isinstance(identifier, dict):
        found = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str):
        found = keras.saving.get_registered_object(identifier)
    if isinstance(found, type):
        found = found()
    if (found is not None and not callable(found)) or (found is None and identifier is not None):
        raise ValueError(
            f"`{argument}` must be None, a callable, or the name of a function registered with "
            f"keras.saving.register_keras_serializable. Received: {argument}={identifier!r}"
        )
    return found


def serialize_transform(transform):
    """What `get_transform` takes back."""
    return None if transform is None else keras.saving.serialize_keras_object(transform)


def check_transformed(argument, value, variable):
    """Raises ValueError unless the transform in `argument` kept the shape of `variable`."""
    if not value.shape.is_compatible_with(variable.shape):
        raise ValueError(
            f"`{argument}` must return a tensor of its argument's shape {tuple(variable.shape)}. "
            f"Received: shape {value.shape}"
        )
