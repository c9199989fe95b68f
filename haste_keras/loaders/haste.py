"""Weights of Haste, for TensorFlow and for PyTorch.

Columns of gates: of the LSTM i, g, f, o; of the GRU z, r, h.
"""

import numpy as np

from haste_keras.loaders._arrays import array, check

# Haste's variables beside kernel and recurrent kernel, in the order of our weights.
_HASTE = {
    "LSTM": ("bias",),
    "GRU": ("bias", "recurrent_bias"),
    "IndRNN": ("bias",),
    "LayerNormLSTM": ("bias", "gamma", "gamma_h", "beta_h"),
    "LayerNormGRU": ("bias", "recurrent_bias", "gamma"),
    "LayerNormIndRNN": ("bias", "gamma"),
}
_GATES = {"LSTM": 4, "GRU": 3, "IndRNN": 1}


def haste_tf(layer, variables):
    """Weights of a layer of `haste_tf`.

    Args:
      layer: its class: "LSTM", "GRU", "IndRNN", "LayerNormLSTM", "LayerNormGRU" or
        "LayerNormIndRNN". Ours has the same name; Haste's IndRNN has activation="tanh".
      variables: {name: array} by the last part of the variable's name. kernel [C + H, G·H]: W and R
        stacked; bias [G·H], of the GRUs [2·G·H]: of the input, then of the product with R; gamma
        [2, G·H]; gamma_h, beta_h [H]. The IndRNNs have kernel [C, H] and recurrent_scale [H].
        (An LSTM of cudnn_compat=True has one opaque variable, which this does not read.)
    Returns:
      list for `set_weights`.
    Raises:
      ValueError: a name or a shape is not as above; the message names it.
    """
    given = _taken("haste_tf", layer, variables)
    if "IndRNN" not in layer:
        kernel = array(given, "kernel", 2)
        gates = _GATES[layer.removeprefix("LayerNorm")]
        hidden = kernel.shape[1] // gates
        if kernel.shape[1] % gates or kernel.shape[0] <= hidden:
            raise ValueError(
                f"`kernel` of haste_tf's {layer} must be [C + H, {gates}·H]. "
                f"Received: shape {kernel.shape}"
            )
        given["kernel"], given["recurrent_kernel"] = kernel[:-hidden], kernel[-hidden:]
        if "GRU" in layer:
            bias = array(given, "bias", 1)
            check("bias", bias, (6 * hidden,))
            given["bias"], given["recurrent_bias"] = np.split(bias, 2)
    return _haste(layer, given)


def haste_pytorch(layer, state):
    """Weights of a layer of `haste_pytorch`.

    Args:
      layer: as of `haste_tf`.
      state: the layer's `state_dict()`: kernel [C, G·H], recurrent_kernel [H, G·H], bias [G·H],
        recurrent_bias [G·H] of the GRUs, gamma [2, G·H], gamma_h and beta_h [H]; of the IndRNNs
        kernel [C, H], recurrent_scale [H], bias [H] and gamma [2, H].
    Returns:
      list for `set_weights`.
    Raises:
      ValueError: a name or a shape is not as above; the message names it.
    """
    return _haste(layer, _taken("haste_pytorch", layer, state))


def _taken(function, layer, variables):
    if layer not in _HASTE:
        raise ValueError(
            f"{function}: `layer` must be one of {', '.join(_HASTE)}. Received: layer={layer!r}"
        )
    return dict(variables)


def _haste(layer, given):
    """The list for set_weights, of variables as haste_pytorch has them."""
    base = layer.removeprefix("LayerNorm")
    gates = _GATES[base]
    kernel = array(given, "kernel", 2)
    hidden = kernel.shape[1] // gates
    columns = gates * hidden
    shapes = {
        "kernel": (kernel.shape[0], columns),
        "recurrent_kernel": (hidden, columns),
        "recurrent_scale": (hidden,),
        "bias": (columns,),
        "recurrent_bias": (columns,),
        "gamma": (2, columns),
        "gamma_h": (hidden,),
        "beta_h": (hidden,),
    }
    recurrent = "recurrent_scale" if base == "IndRNN" else "recurrent_kernel"
    weights = {}
    for name in ("kernel", recurrent, *_HASTE[layer]):
        weights[name] = array(given, name, len(shapes[name]))
        check(name, weights[name], shapes[name])
    if base == "LSTM":
        for name in weights.keys() & {"kernel", "recurrent_kernel", "bias", "gamma"}:
            i, g, f, o = np.split(weights[name], 4, axis=-1)
            weights[name] = np.concatenate([i, f, g, o], axis=-1)
    if base == "GRU":
        weights["bias"] = np.stack([weights["bias"], weights.pop("recurrent_bias")])
    if layer == "LayerNormIndRNN":
        weights["gamma"] = weights["gamma"][0]  # of x·W; there is no product to use the other on
    return list(weights.values())
