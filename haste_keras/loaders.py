"""Weights that other libraries trained, as the layers of this package take them.

Each function takes arrays (NumPy, or what NumPy can read: a detached CPU tensor of PyTorch) and
returns the list for `set_weights` of the layer that computes the same; build the layer first. For
two directions give the layer both lists: `forward + backward`.

    layer = haste_keras.LSTM(units, return_sequences=True)
    layer.build((None, None, features))
    layer.set_weights(loaders.haste_tf("LSTM", {"kernel": kernel, "bias": bias}))

Columns of gates, theirs → ours:

    Haste LSTM    i, g, f, o → i, f, g, o (Keras's order)     Haste GRU    z, r, h: the same
    pytorch-qrnn  z, f, o, with f the share of the new → z, f, o, with f the share of the old
"""

import numpy as np

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
FLASHRNN_GATES = {"lstm": "ifgo", "elman": "g", "slstm": "ifzo"}  # in our order


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
        kernel = _array(given, "kernel", 2)
        gates = _GATES[layer.removeprefix("LayerNorm")]
        hidden = kernel.shape[1] // gates
        if kernel.shape[1] % gates or kernel.shape[0] <= hidden:
            raise ValueError(
                f"`kernel` of haste_tf's {layer} must be [C + H, {gates}·H]. "
                f"Received: shape {kernel.shape}"
            )
        given["kernel"], given["recurrent_kernel"] = kernel[:-hidden], kernel[-hidden:]
        if "GRU" in layer:
            bias = _array(given, "bias", 1)
            _check("bias", bias, (6 * hidden,))
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
    kernel = _array(given, "kernel", 2)
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
        weights[name] = _array(given, name, len(shapes[name]))
        _check(name, weights[name], shapes[name])
    if base == "LSTM":
        for name in weights.keys() & {"kernel", "recurrent_kernel", "bias", "gamma"}:
            i, g, f, o = np.split(weights[name], 4, axis=-1)
            weights[name] = np.concatenate([i, f, g, o], axis=-1)
    if base == "GRU":
        weights["bias"] = np.stack([weights["bias"], weights.pop("recurrent_bias")])
    if layer == "LayerNormIndRNN":
        weights["gamma"] = weights["gamma"][0]  # of x·W; there is no product to use the other on
    return list(weights.values())


def pytorch_qrnn(weight, bias, *, window=1, output_gate=True):
    """Weights of a `QRNNLayer` of salesforce/pytorch-qrnn, for `haste_keras.QRNN`.

    Its linear layer takes [x_t, x_{t-1}] to z, f, o. There f is the share of the new:
    1 - σ(v) = σ(-v), so that the weights of f come back negated.

    Args:
      weight: `linear.weight`, [3·H, window·C], or [2·H, window·C] without output_gate.
      bias: `linear.bias`, [3·H] or [2·H].
      window, output_gate: the layer's. Ours is then
        `QRNN(H, window=window, pooling="fo" if output_gate else "f")`.
    Returns:
      list for `set_weights`.
    Raises:
      ValueError: an argument is not as above; the message names it.
    """
    given = {"weight": weight, "bias": bias}
    weight, bias = _array(given, "weight", 2), _array(given, "bias", 1)
    gates = 3 if output_gate else 2
    if window not in (1, 2):
        raise ValueError(f"`window` must be 1 or 2. Received: window={window!r}")
    rows, columns = weight.shape
    if rows % gates or columns % window:
        raise ValueError(
            f"`weight` must be [{gates}·H, {window}·C] with window={window} and "
            f"output_gate={output_gate}. Received: shape {weight.shape}"
        )
    _check("bias", bias, (rows,))
    hidden = rows // gates
    sign = np.ones(rows, weight.dtype)
    sign[hidden : 2 * hidden] = -1
    kernel = (weight * sign[:, np.newaxis]).T.reshape(window, columns // window, rows)
    return [kernel[::-1], bias * sign]


def flashrnn(function, recurrent, bias, *, gates, output_axis, kernel=None):
    """Weights of FlashRNN's functional form `flashrnn(Wx, R, b, …)`.

    Args:
      function: "lstm", "elman" or "slstm".
      recurrent: R, [G, N, D, D]: gates, heads N, head dimension D.
      bias: b, [G, N, D].
      gates: a letter for each of the G slices, in their order: of "lstm" i, f, g (the candidate)
        and o, of "slstm" i, f, z and o, of "elman" g. FlashRNN's documentation does not fix it.
      output_axis: -2 if R[g, n] is [output, input], as the R·s of FlashRNN's equations has it; -1
        if it is [input, output].
      kernel: [C, G, N, D], the linear layer that made Wx = x·kernel; None: the list begins with
        the recurrent kernel.
    Returns:
      list for `set_weights` of `haste_keras.LSTM`, `Elman` or `SLSTM` of heads=N, units=N·D;
      without `kernel`: [recurrent_kernel [N, D, G, D] (N = 1: [D, G·D]), bias [G·N·D]].
    Raises:
      ValueError: an argument is not as above; the message names it.
    """
    if function not in FLASHRNN_GATES:
        raise ValueError(
            f"`function` must be one of {', '.join(FLASHRNN_GATES)}. Received: "
            f"function={function!r}. (Of a GRU FlashRNN's documentation does not say which of the "
            "sums its reset gate scales.)"
        )
    ours = FLASHRNN_GATES[function]
    if sorted(gates) != sorted(ours):
        raise ValueError(
            f"`gates` of {function} must hold each of {', '.join(ours)} once. "
            f"Received: gates={gates!r}"
        )
    if output_axis not in (-1, -2):
        raise ValueError(f"`output_axis` must be -1 or -2. Received: output_axis={output_axis!r}")
    given = {"recurrent": recurrent, "bias": bias, "kernel": kernel}
    order = [list(gates).index(gate) for gate in ours]
    recurrent = _array(given, "recurrent", 4)
    count, heads, hidden, _ = recurrent.shape
    _check("recurrent", recurrent, (len(ours), heads, hidden, hidden))
    bias = _array(given, "bias", 3)
    _check("bias", bias, (count, heads, hidden))
    recurrent = recurrent[order].transpose((1, 2, 0, 3) if output_axis == -1 else (1, 3, 0, 2))
    if heads == 1:
        recurrent = recurrent.reshape(hidden, count * hidden)
    weights = [recurrent, bias[order].transpose(1, 0, 2).reshape(-1)]
    if kernel is not None:
        kernel = _array(given, "kernel", 4)
        _check("kernel", kernel, (kernel.shape[0], count, heads, hidden))
        kernel = kernel[:, order].transpose(0, 2, 1, 3)
        weights.insert(0, kernel.reshape(kernel.shape[0], -1))
    return weights


def _array(given, name, rank):
    if name not in given:
        raise ValueError(f"`{name}` is missing among {', '.join(given) or 'no variables'}.")
    array = np.asarray(given[name])
    if array.ndim != rank:
        raise ValueError(f"`{name}` must have {rank} axes. Received: shape {array.shape}")
    return array


def _check(name, array, shape):
    if array.shape != tuple(shape):
        raise ValueError(f"`{name}` must be of shape {tuple(shape)}. Received: {array.shape}")
