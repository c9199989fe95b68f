"""The expected results of a layer, from the oracle and the definition of the layer's weights."""

import numpy as np
import tensorflow as tf

from haste_keras import reference

REVERSE = {"forward": [False], "backward": [True], "bidirectional": [False, True]}


def _wide(variable):
    return tf.cast(variable.value, tf.float64)


def _parameters(cell, recurrent_kernel=None):
    """Weights and constants of a cell's recurrence as the oracle takes them, one lane a head."""
    heads, gates, hidden = cell.gate_shape
    given = {}
    if cell.recurrent_kernel is not None:
        kernel = _wide(cell.recurrent_kernel) if recurrent_kernel is None else recurrent_kernel
        dense = [heads, hidden, gates, hidden]
        shape = [heads, gates, hidden] if kernel.shape.rank == 1 else dense
        given["recurrent_kernel"] = tf.reshape(kernel, shape)
    if cell.bias is not None and cell.bias.shape.rank == 2:
        given["recurrent_bias"] = tf.reshape(_wide(cell.bias)[1], [heads, gates, hidden])
    if hasattr(cell, "gamma") and cell.gamma.shape.rank == 2:
        given["recurrent_gamma"] = tf.reshape(_wide(cell.gamma)[1], [heads, gates, hidden])
    if hasattr(cell, "gamma_h"):
        given["state_gamma"] = tf.reshape(_wide(cell.gamma_h), [heads, hidden])
        given["state_beta"] = tf.reshape(_wide(cell.beta_h), [heads, hidden])
    return given


def _shifted(cell, wx):
    """x·W [N, T, G·units] → [N, T, heads, G, H], normalised if the cell does so, and with bias."""
    heads, gates, hidden = cell.gate_shape
    lanes = [heads, gates * hidden]
    bias = tf.zeros(lanes, tf.float64)
    if cell.bias is not None:
        bias = _wide(cell.bias)[0] if cell.bias.shape.rank == 2 else _wide(cell.bias)
        bias = tf.reshape(bias, lanes)
    batch, time, _ = wx.shape
    wx = tf.reshape(wx, [batch, time, *lanes])
    if hasattr(cell, "gamma"):
        gamma = _wide(cell.gamma)[0] if cell.gamma.shape.rank == 2 else _wide(cell.gamma)
        wx = reference.layer_norm(wx, tf.reshape(gamma, lanes), bias, cell.epsilon)
    else:
        wx += bias
    return tf.reshape(wx, [batch, time, heads, gates, hidden])


def oracle(
    row,
    layer,
    x,
    states=None,
    seed=None,
    *,
    training=False,
    mask=None,
    recurrent_kernel=None,
):
    """What `layer` should return: (y of each direction in the order of time, final states).

    x [N, T, C], states direction by direction; all float64. `recurrent_kernel` is in the place of
    the layer's own.
    """
    cells = layer.cells
    x = tf.cast(x, tf.float64)
    batch, time, _ = x.shape
    if mask is not None:
        x = tf.where(mask[:, :, None], x, tf.zeros_like(x))
    reverse = REVERSE[layer.direction]
    per_cell = len(layer.state_size) // len(cells)
    given = [None] * len(cells)
    if states is not None:
        states = [tf.cast(state, tf.float64) for state in states]
        given = [states[i * per_cell : (i + 1) * per_cell] for i in range(len(cells))]
    projected, carried = [], []
    for cell, backwards, own in zip(cells, reverse, given, strict=True):
        carries = None if own is None else own[row.states :]
        wx, after = row.convolve(cell, x, carries, mask, backwards)
        projected.append(_shifted(cell, wx))
        carried.append(after)
    parameters = [_parameters(cell, recurrent_kernel) for cell in cells]
    joined = {
        name: tf.concat([each[name] for each in parameters], axis=0) for name in parameters[0]
    }
    options = {name: getattr(layer, name) for name in row.oracle_arguments}
    for name in ("activation", "recurrent_activation"):
        if name in row.activations:
            options[name] = getattr(layer, name).__name__
    if "recurrent_kernel" in joined:
        options["recurrent_dropout"] = layer.recurrent_dropout
    heads, _, hidden = layer.cell.gate_shape
    initial = None
    if states is not None:
        shape = [batch, len(cells) * heads, hidden]
        initial = [
            tf.reshape(tf.stack([own[i] for own in given], axis=1), shape)
            for i in range(row.states)
        ]
    y, final = row.oracle(
        tf.concat(projected, axis=2),
        initial_state=initial,
        mask=mask,
        seed=seed,
        reverse=np.repeat(reverse, heads),
        training=training,
        **joined,
        **options,
    )
    y = tf.unstack(tf.reshape(y, [batch, time, len(cells), layer.units]), axis=2)
    split = [tf.unstack(tf.reshape(s, [batch, len(cells), layer.units]), axis=1) for s in final]
    ends = []
    for direction, after in zip(zip(*split, strict=True), carried, strict=True):
        ends += [*direction, *after]
    return y, ends


def dense(cell, x, carries, mask, backwards):
    """x·W: [N, T, C] → [N, T, G·units], no states."""
    return tf.einsum("ntc,cg->ntg", x, _wide(cell.kernel)), []


def window(cell, x, carries, mask, backwards):
    """The convolution of the live steps: kernel[-1] meets the present one, the others those before.

    carries: the inputs before the first step of the walk, [N, (window - 1)·C], oldest first; None:
      zeros. Returns [N, T, G·units], [the last of the walk's].
    """
    kernel = _wide(cell.kernel)
    size, features, _ = kernel.shape
    batch, time, _ = x.shape
    known = tf.zeros([batch, size - 1, features], tf.float64)
    if carries:
        known = tf.reshape(carries[0], known.shape)
    outputs = [None] * time
    for t in reversed(range(time)) if backwards else range(time):
        seen = tf.concat([known, x[:, t : t + 1]], axis=1)
        outputs[t] = tf.einsum("nwc,wcg->ng", seen, kernel)
        live = np.ones([batch, 1, 1], bool) if mask is None else mask[:, t, None, None]
        known = tf.where(live, seen[:, 1:], known)
    return tf.stack(outputs, axis=1), [tf.reshape(known, [batch, -1])] if size > 1 else []
