"""Weights of FlashRNN."""

import numpy as np

from haste_keras.loaders._arrays import array, check

# Of each function the gates of Wx (and of a linear layer that made it), of R and of b, in
# FlashRNN's order.
_GATES = {
    "lstm": ("ifzo", "ifzo", "ifzo"),
    "slstm": ("ifzo", "ifzo", "ifzo"),
    "gru": ("rzn", "grz", "grzn"),
    "elman": ("z", "z", "z"),
}
# Our gates, by theirs: of the input and of the product with R.
_OURS = {"lstm": ("ifzo",) * 2, "slstm": ("ifzo",) * 2, "gru": ("zrn", "zrg"), "elman": ("z",) * 2}


def flashrnn(function, recurrent, bias, *, kernel=None, gates=None, output_axis=-2):
    """Weights of FlashRNN's functional form `flashrnn(Wx, R, b, …)`.

    FlashRNN has the gates i, f, z (the candidate) and o of "lstm" and "slstm" in this order. Its
    "gru" resets after the product, h' = z ∘ h + (1 - z) ∘ n with n = tanh(Wx_n + b_n + r ∘ g) and
    g = R_g·h + b_g: Wx has r, z, n; R has g, r, z; b has g, r, z, n.

    Args:
      function: "lstm", "slstm", "gru" or "elman".
      recurrent: R, [G, N, D, D]: gates, heads N, output and input of the head dimension D
        (g = R·h).
      bias: b, [G, N, D]; of "gru" [4, N, D].
      kernel: [C, G, N, D], the linear layer that made Wx = x·kernel; None: the list begins with
        the recurrent kernel.
      gates: the order of the gates in all three, if it is not FlashRNN's: each of i, f, z, o
        once, "ifoz" for instance. Not for "gru".
      output_axis: -1 if R[g, n] is [input, output], which is not FlashRNN's own order.
    Returns:
      list for `set_weights` of `haste_keras.LSTM`, `SLSTM`, `GRU` (reset_after=True, the default)
      or `Elman` of heads=N, units=N·D; without `kernel`: [recurrent_kernel [N, D, G, D] (N = 1:
      [D, G·D]), bias [G·N·D], of "gru" [2, G·N·D]].
    Raises:
      ValueError: an argument is not as above; the message names it.
    """
    if function not in _GATES:
        raise ValueError(
            f"`function` must be one of {', '.join(_GATES)}. Received: function={function!r}"
        )
    of_kernel, of_recurrent, of_bias = _GATES[function]
    if gates is not None:
        if function == "gru" or sorted(gates) != sorted(of_kernel):
            expected = f"hold each of {', '.join(of_kernel)} once"
            expected = "be None" if function == "gru" else expected
            raise ValueError(f"`gates` of {function} must {expected}. Received: gates={gates!r}")
        of_kernel = of_recurrent = of_bias = "".join(gates)
    if output_axis not in (-1, -2):
        raise ValueError(f"`output_axis` must be -1 or -2. Received: output_axis={output_axis!r}")
    given = {"recurrent": recurrent, "bias": bias, "kernel": kernel}
    ours, ours_of_product = _OURS[function]
    count = len(ours)
    recurrent = array(given, "recurrent", 4)
    heads, hidden = recurrent.shape[1:3]
    check("recurrent", recurrent, (count, heads, hidden, hidden))
    bias = array(given, "bias", 3)
    check("bias", bias, (len(of_bias), heads, hidden))
    recurrent = recurrent[[of_recurrent.index(gate) for gate in ours_of_product]]
    recurrent = recurrent.transpose((1, 2, 0, 3) if output_axis == -1 else (1, 3, 0, 2))
    if heads == 1:
        recurrent = recurrent.reshape(hidden, count * hidden)
    columns = [_columns(bias[[of_bias.index(gate) for gate in ours]])]
    if function == "gru":
        # z and r have one bias, which goes to the input's.
        product = np.zeros_like(bias[:count])
        product[ours_of_product.index("g")] = bias[of_bias.index("g")]
        columns.append(_columns(product))
    weights = [recurrent, np.stack(columns) if function == "gru" else columns[0]]
    if kernel is not None:
        kernel = array(given, "kernel", 4)
        check("kernel", kernel, (kernel.shape[0], count, heads, hidden))
        weights.insert(0, _columns(kernel[:, [of_kernel.index(gate) for gate in ours]]))
    return weights


def _columns(gates):
    """[..., G, N, D] → [..., N·G·D]: head, gate, unit."""
    moved = np.moveaxis(gates, -3, -2)
    return moved.reshape(*moved.shape[:-3], -1)
