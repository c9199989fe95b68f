"""Layers and models of Keras to fused ones and back, weights and all, exactly.

A conversion rewrites the configuration, nested as it may be, and copies the weights, which the
two share in number, order, shape and meaning. So a layer, a wrapper around one, and a whole
Sequential or functional model all go the same way.
"""

import copy

import keras

from haste_keras._compat import flattened_layers
from haste_keras.layers.base.activation import get_activation, is_fused, name_of
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.validation import check_choice
from haste_keras.layers.elman import Elman, ElmanCell, SimpleRNN, SimpleRNNCell
from haste_keras.layers.forget_mult import ForgetMult
from haste_keras.layers.gru import GRU, GRUCell
from haste_keras.layers.lstm import LSTM, LSTMCell

_FUSED = {"LSTM": LSTM, "GRU": GRU, "SimpleRNN": SimpleRNN}  # stock class name → ours
_STOCK = {
    **{LSTM: "LSTM", GRU: "GRU", SimpleRNN: "SimpleRNN", Elman: "SimpleRNN"},
    **{LSTMCell: "LSTMCell", GRUCell: "GRUCell"},
    **{SimpleRNNCell: "SimpleRNNCell", ElmanCell: "SimpleRNNCell"},
}
# What a conversion leaves none of, unless it names it.
_STOCK_KINDS = (keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN)
_FUSED_KINDS = (RecurrentLayer, RecurrentCell, ForgetMult)
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


class _UnsupportedError(Exception):
    """A layer that a conversion finds no counterpart of; the message names it and says why."""


def from_keras(source, on_unsupported="raise"):
    """A fused copy of a Keras layer or model, with the same weights.

    Args:
      source: `keras.layers.LSTM`, `GRU` or `SimpleRNN`, or `RNN` of one of their cells;
        `Bidirectional` of one, which becomes one bidirectional layer (stays a `Bidirectional`, of
        fused layers, if its two layers differ); another wrapper, or a Sequential or functional
        model, with such layers anywhere in it.
      on_unsupported: what becomes of a recurrent layer of Keras that has no fused counterpart: an
        activation that the kernels do not have, stacked cells, or a layer inside one of another
        kind, whose configuration does not hold it. "raise": a ValueError names all of them; "keep":
        they stay Keras's.
    Returns:
      a new layer or model of the same name; uncompiled. Layers of other kinds are cloned.
    Raises:
      ValueError: an argument is not as above, there is such a layer, or Keras cannot make `source`
        from its configuration (a class without `get_config`, a function that is not registered).
    """
    return _convert(
        "from_keras", source, _to_fused, on_unsupported, lambda layer: type(layer) in _STOCK_KINDS
    )


def to_keras(source, on_unsupported="raise"):
    """A stock copy of a fused layer, or of a model with such layers, with the same weights.

    Args:
      source: what `from_keras` returns; `haste_keras.LSTM`, `GRU`, `Elman` or `SimpleRNN` of any
        direction, or `keras.layers.RNN` of their cells; a wrapper or model with such layers.
      on_unsupported: what becomes of a layer of this package that Keras has no counterpart of:
        another cell, or heads, Zoneout, DropConnect or a transform in use, or a layer inside one of
        another kind, whose configuration does not hold it. "raise": a ValueError names all of them;
        "keep": they stay as they are.
    Returns:
      a new layer or model of the same name; a bidirectional layer becomes `Bidirectional`.
    Raises:
      ValueError: as of `from_keras`.
    """
    return _convert(
        "to_keras",
        source,
        _to_stock,
        on_unsupported,
        lambda layer: isinstance(layer, _FUSED_KINDS),
    )


def _convert(function, source, rewrite, on_unsupported, unconverted):
    check_choice("on_unsupported", on_unsupported, ("raise", "keep"))
    if not isinstance(source, keras.layers.Layer):
        raise ValueError(f"`source` must be a Keras layer or model. Received: {source!r}")
    config = keras.saving.serialize_keras_object(source)
    config.pop("compile_config", None)
    unsupported = []
    config = _rewritten(config, rewrite, unsupported)
    _raise_of(function, unsupported, on_unsupported)
    # The configuration comes from an object of this very process: nothing foreign to guard from,
    # and classes that nobody has registered are there.
    classes = {
        keras.saving.get_registered_name(type(each)): type(each)
        for each in (source, *flattened_layers(source))
    }
    try:
        result = keras.saving.deserialize_keras_object(
            config, custom_objects=classes, safe_mode=False
        )
    except TypeError as error:
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise ValueError(
            f"{function} cannot make a copy of {source.name}, since Keras cannot make it from its "
            f"configuration: {reason}"
        ) from error
    if source.built:
        if not result.built:
            result.build_from_config(source.get_build_config())
        result.set_weights(source.get_weights())
    # A subclassed model or layer makes its own: no configuration tells of them.
    hidden = [
        f"layer {each.name}, a {type(each).__name__} that the configuration of {source.name} does "
        "not hold"
        for each in flattened_layers(result)
        if unconverted(each)
    ]
    _raise_of(function, hidden, on_unsupported)
    return result


def _raise_of(function, unsupported, on_unsupported):
    if unsupported and on_unsupported == "raise":
        raise ValueError(
            f"{function} cannot convert {'; '.join(dict.fromkeys(unsupported))}. "
            'on_unsupported="keep" leaves such layers as they are.'
        )


def _rewritten(value, rewrite, unsupported):
    """`value` with every serialized object in it passed through `rewrite`, inner ones last.

    What `rewrite` raises of a layer, which then stays as it is, goes to the list `unsupported`.
    """
    if isinstance(value, dict):
        if "class_name" in value and isinstance(value.get("config"), dict):
            try:
                value = rewrite(value)
            except _UnsupportedError as error:
                unsupported.append(str(error))
                return value
        return {key: _rewritten(item, rewrite, unsupported) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rewritten(item, rewrite, unsupported) for item in value)
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
    if _is_stock(value, "Bidirectional"):
        config = value["config"]
        config = {**config, **{k: _as_layer(config.get(k)) for k in ("layer", "backward_layer")}}
        for name in _FUSED:
            merged = _merged_directions(config, name)
            if merged is not None and not _unfused(merged):
                return _serialized_fused(name, merged, value)
        return value
    layer = _as_layer(value)
    for name in _FUSED:
        if _is_stock(layer, name):
            config = layer["config"]
            if unfused := _unfused(config):
                raise _UnsupportedError(
                    f"layer {config['name']}, whose {' and '.join(unfused)} the fused kernels do "
                    "not have"
                )
            return _serialized_fused(name, config, value)
    return value


def _unfused(config):
    """["activation=gelu"]: the activations of a configuration that the kernels do not have."""
    given = {key: config[key] for key in ("activation", "recurrent_activation") if key in config}
    functions = {key: get_activation(identifier) for key, identifier in given.items()}
    return [f"{key}={name_of(each)}" for key, each in functions.items() if not is_fused(each)]


def _as_layer(value):
    """keras.layers.RNN of a stock cell as the stock layer of that cell; all else as it is."""
    if not value or not _is_stock(value, "RNN"):
        return value
    config = dict(value["config"])
    cell = config.pop("cell")
    name = next((each for each in _FUSED if _is_stock(cell, f"{each}Cell")), None)
    if name is None:
        if _is_stock(cell, "StackedRNNCells"):
            raise _UnsupportedError(f"layer {config['name']}, an RNN of several cells")
        return value  # of a cell that is not Keras's
    own = dict(cell["config"])
    trainable = own.pop("trainable", True) and config.get("trainable", True)
    own.pop("name")
    if own.pop("dtype") != config["dtype"] or "activity_regularizer" in own:
        raise _UnsupportedError(
            f"layer {config['name']}, whose cell has a dtype or an activity_regularizer of its own"
        )
    return _serialized_stock(name, {**own, **config, "trainable": trainable}, value)


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
        "trainable": one.get("trainable", True) and config.get("trainable", True),
        "zero_output_for_mask": False,
        "direction": "bidirectional",
        "merge_mode": config["merge_mode"],
    }


def _to_stock(value):
    name = _stock_name(value)
    if name is None:
        kind = keras.saving.get_registered_object(value.get("registered_name"))
        if isinstance(kind, type) and issubclass(kind, _FUSED_KINDS):
            raise _UnsupportedError(
                f"layer {value['config']['name']}, a {kind.__name__}, which Keras does not have"
            )
        return value
    config = dict(value["config"])
    if keras.dtype_policies.get(config["dtype"]).quantization_mode is not None:
        raise _UnsupportedError(f"layer {config['name']}: keras.layers.{name} is not quantized")
    new = {key: config.pop(key) for key in _NEW_ARGUMENTS if key in config}
    direction, merge_mode = new.pop("direction", "forward"), new.pop("merge_mode", None)
    new.pop("engine", None)
    used = [key for key, item in new.items() if item != _NEW_ARGUMENTS[key]]
    if direction == "backward" and config["return_sequences"]:
        used.append("direction='backward' with return_sequences")
    if used:
        raise _UnsupportedError(
            f"layer {config['name']}: keras.layers.{name} has no {', '.join(used)}"
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
