"""Weights of PyTorch's recurrent modules."""

import re

import numpy as np

from haste_keras.loaders._arrays import array, check

# Their gates in our order.
_ORDER = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2), "RNN": (0,)}
_NAME = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh|weight_hr)_l(\d+)(_reverse)?")


def torch(layer, state, *, prefix=""):
    """Weights of `torch.nn.LSTM`, `GRU` or `RNN`: all of its layers, in both directions.

        module = torch.nn.GRU(features, units, num_layers=2, bidirectional=True)
        for layer, weights in zip(layers, loaders.torch("GRU", module.state_dict()), strict=True):
            layer.set_weights(weights)

    The layers are `haste_keras.LSTM`, `GRU` (reset_after=True, the default) or `Elman`, each
    with direction="bidirectional" where the module is, return_sequences=True for all but the last,
    and use_bias=False where the module has no bias. A RNN's nonlinearity is `Elman`'s activation.
    An LSTM's and a RNN's two biases are added up; a GRU keeps both. `batch_first` does not matter
    here: our layers take [N, T, C].

    Args:
      layer: "LSTM", "GRU" or "RNN".
      state: the module's `state_dict()`; for layer k weight_ih_l{k} [G·H, C], weight_hh_l{k}
        [G·H, H], and with a bias bias_ih_l{k} and bias_hh_l{k} [G·H]; of the backward direction
        the same names with "_reverse".
      prefix: what the names of the module begin with in the `state_dict()` of a larger one,
        "encoder.rnn." for instance; names that begin otherwise are ignored.
    Returns:
      a list with the list for `set_weights` of each layer; a bidirectional layer's holds the
      forward direction and then the backward one.
    Raises:
      ValueError: a name or a shape is not as above, or the module has a projection (proj_size),
        which no layer of this package has; the message names it.
    """
    if layer not in _ORDER:
        raise ValueError(
            f"torch: `layer` must be one of {', '.join(_ORDER)}. Received: layer={layer!r}"
        )
    given = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    suffixes = _suffixes(given, prefix)
    biased = any(name.startswith("bias") for name in given)
    features = None  # of the first layer any, of the others the outputs of the one before
    result = []
    for directions in suffixes:
        joined, sizes = [], set()
        for suffix in directions:
            weights, columns, hidden = _direction(layer, given, suffix, biased, features)
            joined += weights
            sizes.add((columns, hidden))
        if len(sizes) > 1:
            raise ValueError(
                f"`weight_ih_{directions[0]}` and `weight_ih_{directions[1]}` must have one shape."
            )
        result.append(joined)
        features = len(directions) * hidden
    return result


def _suffixes(given, prefix):
    """[["l0", "l0_reverse"], …]: how the names of each layer and direction end."""
    found = set()
    for name in given:
        match = _NAME.fullmatch(name)
        if not match:
            raise ValueError(
                f"`{prefix}{name}` is not a variable of torch.nn.LSTM, GRU or RNN. Of the "
                "state_dict() of a larger module say where its names begin: prefix='encoder.rnn.'"
            )
        if match[1] == "weight_hr":
            raise ValueError(
                f"`{prefix}{name}`: the module projects its output (proj_size), which no layer of "
                "haste_keras does."
            )
        found.add((int(match[2]), bool(match[3])))
    count = 1 + max((layer for layer, _ in found), default=0)
    both = any(backward for _, backward in found)
    return [[f"l{k}", f"l{k}_reverse"] if both else [f"l{k}"] for k in range(count)]


def _direction(layer, given, suffix, biased, features):
    """Weights of one layer's one direction; its features and its units."""
    order = _ORDER[layer]

    def transposed(name, rows, columns):
        """[rows, columns], or [rows] → ours, with columns of gates in our order."""
        value = array(given, name, 2 if columns else 1)
        check(name, value, (rows, columns) if columns else (rows,))
        gates = np.split(value, len(order), axis=0)
        return np.concatenate([gates[gate] for gate in order]).T

    name = f"weight_ih_{suffix}"
    rows, columns = array(given, name, 2).shape
    hidden = rows // len(order)
    if rows % len(order):
        raise ValueError(f"`{name}` must be [{len(order)}·H, C]. Received: shape {(rows, columns)}")
    kernel = transposed(name, rows, features or columns)
    weights = [kernel, transposed(f"weight_hh_{suffix}", rows, hidden)]
    if biased:
        biases = [transposed(f"bias_{part}_{suffix}", rows, None) for part in ("ih", "hh")]
        if layer == "GRU":
            weights.append(np.stack(biases))
        else:  # half precision would round the sum
            wide = np.result_type(biases[0], np.float32)
            weights.append(biases[0].astype(wide) + biases[1].astype(wide))
    return weights, columns, hidden
