"""Weights of salesforce/pytorch-qrnn."""

import numpy as np

from haste_keras.loaders._arrays import array, check


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
    weight, bias = array(given, "weight", 2), array(given, "bias", 1)
    gates = 3 if output_gate else 2
    if window not in (1, 2):
        raise ValueError(f"`window` must be 1 or 2. Received: window={window!r}")
    rows, columns = weight.shape
    if rows % gates or columns % window:
        raise ValueError(
            f"`weight` must be [{gates}·H, {window}·C] with window={window} and "
            f"output_gate={output_gate}. Received: shape {weight.shape}"
        )
    check("bias", bias, (rows,))
    hidden = rows // gates
    sign = np.ones(rows, weight.dtype)
    sign[hidden : 2 * hidden] = -1
    kernel = (weight * sign[:, np.newaxis]).T.reshape(window, columns // window, rows)
    return [kernel[::-1], bias * sign]
