"""Layers and models of Keras to fused ones and back, weights and all, exactly.

A conversion rewrites the configuration, nested as it may be, and copies the weights, which the
two share in number, order, shape and meaning. So a layer, a wrapper around one, and a whole
Sequential or functional model all go the same way.
"""

import copy

import keras

from haste_keras.layers.elman import Elman, SimpleRNN
from haste_keras.layers.gru import GRU
from haste_keras.layers.lstm import LSTM

_FUSED = {"LSTM": LSTM, "GRU": GRU, "SimpleRNN": SimpleRNN}  # stock class name → ours
_STOCK = {LSTM: "LSTM", GRU: "GRU", SimpleRNN: "SimpleRNN", Elman: "SimpleRNN"}
_NEW_ARGUMENTS = {
    "direction": "forward",
    "merge_mode": "concat",
    "heads": 1,
    "zoneout": 0.0,
    "zoneout_cell": 0.0,
    "dropconnect": 0.0,
    "kernel_transform": None,
    "recurrent_transform": None,
    "bias_transform": None,
    "engine": "auto",
}


def from_keras(source):
    """A fused copy of a Keras layer or model, with the same weights.

    Args:
      source: `keras.layers.LSTM`, `GRU` or `SimpleRNN`; `Bidirectional` of one, which becomes one
        bidirectional layer (stays a `Bidirectional`, of fused layers, if its two layers differ);
        another wrapper, or a Sequential or functional model, with such layers anywhere in it.
    Returns:
      a new layer or model of the same name; uncompiled. Layers of other kinds are cloned.
    Raises:
      ValueError: a layer has an activation that the kernels have not.
    """
    return _convert(source, _to_fused)


def to_keras(source):
    """A stock copy of a fused layer, or of a model with such layers, with the same weights.

    Args:
      source: what `from_keras` returns; `haste_keras.LSTM`, `GRU`, `Elman` or `SimpleRNN` of any
        direction.
    Returns:
      a new layer or model of the same name; a bidirectional layer becomes `Bidirectional`.
    Raises:
      ValueError: a layer uses what Keras has not (heads, Zoneout, DropConnect, a transform).
    """
    return _convert(source, _to_stock)


def _convert(source, rewrite):
    if not isinstance(source, keras.layers.Layer):
        raise ValueError(f"`source` must be a Keras layer or model. Received: {source!r}")
    config = keras.saving.serialize_keras_object(source)
    config.pop("compile_config", None)
    # The configuration comes from an object of this very process: nothing foreign to guard from.
    result = keras.saving.deserialize_keras_object(_rewritten(config, rewrite), safe_mode=False)
    if source.built:
        if not result.built:
            result.build_from_config(source.get_build_config())
        result.set_weights(source.get_weights())
    return result


def _rewritten(value, rewrite):
    """`value` with every serialized object in it passed through `rewrite`, inner ones last."""
    if isinstance(value, dict):
        if "class_name" in value and isinstance(value.get("config"), dict):
            value = rewrite(value)
        return {key: _rewritten(item, rewrite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rewritten(item, rewrite) for item in value)
    return value


def _is_stock(value, class_name):
    return value["class_name"] == class_name and value.get("module") == "keras.layers"


def _stock_name(value):
    for fused, name in _STOCK.items():
        if value.get("registered_name") == keras.saving.get_registered_name(fused):
            return name
    return None


def _serialized_fused(name, config, value):
    fused = _FUSED[name]
    return {
        **value,
        "module": fused.__module__,
        "class_name": fused.__name__,
        "registered_name": keras.saving.get_registered_name(fused),
        "config": config,
    }


def _serialized_stock(name, config, value):
    stock = {"module": "keras.layers", "class_name": name, "registered_name": None}
    return {**value, **stock, "config": config}


def _to_fused(value):
    for name in _FUSED:
        if _is_stock(value, name):
            return _serialized_fused(name, value["config"], value)
        if _is_stock(value, "Bidirectional"):
            config = _merged_directions(value["config"], name)
            if config is not None:
                return _serialized_fused(name, config, value)
    return value


def _merged_directions(config, name):
    """Config of one bidirectional layer that is this Bidirectional; None if none is."""
    forward, backward = config["layer"], config.get("backward_layer")
    if not (backward and _is_stock(forward, name) and _is_stock(backward, name)):
        return None
    one, other = copy.deepcopy(forward["config"]), copy.deepcopy(backward["config"])
    for ignored in ("name", "go_backwards", "seed"):
        one.pop(ignored, None), other.pop(ignored, None)
    # An activity regularizer of each direction has no place in a layer of two.
    if one != other or one.get("activity_regularizer") or one["dtype"] != config["dtype"]:
        return None
    return {
        **forward["config"],
        "name": config["name"],
        "trainable": config.get("trainable", True),
        "zero_output_for_mask": False,
        "direction": "bidirectional",
        "merge_mode": config["merge_mode"],
    }


def _to_stock(value):
    name = _stock_name(value)
    if name is None:
        return value
    config = dict(value["config"])
    new = {key: config.pop(key) for key in _NEW_ARGUMENTS if key in config}
    direction, merge_mode = new.pop("direction"), new.pop("merge_mode")
    new.pop("engine")
    used = [key for key, item in new.items() if item != _NEW_ARGUMENTS[key]]
    if direction == "backward" and config["return_sequences"]:
        used.append("direction='backward' with return_sequences")
    if used:
        raise ValueError(
            f"Layer {config['name']} cannot become keras.layers.{name}, which has no "
            f"{', '.join(used)}."
        )
    if direction == "backward":
        config["go_backwards"] = not config["go_backwards"]
    if direction != "bidirectional":
        return _serialized_stock(name, config, value)
    layers = {}
    for key, prefix, flip in (("layer", "forward", False), ("backward_layer", "backward", True)):
        layer = dict(config, name=f"{prefix}_{config['name']}", activity_regularizer=None)
        layer["go_backwards"] = config["go_backwards"] != flip
        bare = {key: item for key, item in value.items() if key != "build_config"}
        layers[key] = _serialized_stock(name, layer, bare)
    wrapper = {key: config[key] for key in ("name", "trainable", "dtype")}
    return _serialized_stock(
        "Bidirectional", {**wrapper, "merge_mode": merge_mode, **layers}, value
    )
