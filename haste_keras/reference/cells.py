"""The equations: one function for each op, one inner `step` for each recurrence.

N batch, T time, K lanes, H hidden units a lane. `options` of every function: mask [N, T], seed (two
int64), reverse (a bool a lane), recurrent_dropout, training, zero_output_for_mask, as of the ops.
Every function but `forget_mult` and `layer_norm` returns y [N, T, K, H] and the tuple of final
states, each [N, K, H]; all float64.
"""

import numpy as np
import tensorflow as tf

from haste_keras.reference.walk import recurrence

ACTIVATIONS = {
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "relu": tf.nn.relu,
    "hard_sigmoid": lambda x: tf.clip_by_value(x / 6 + 0.5, 0, 1),
    "linear": tf.identity,
}


def _float64(*tensors):
    wide = [None if tensor is None else tf.cast(tensor, tf.float64) for tensor in tensors]
    return wide if len(wide) > 1 else wide[0]


def _product(h, kernel):
    """h [N, K, H] · kernel [K, H, G, H] → [N, K, G, H]."""
    return tf.einsum("nkh,khgj->nkgj", h, kernel)


def _normalized(x, axes, epsilon):
    mean = tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean((x - mean) ** 2, axes, keepdims=True)
    return (x - mean) / tf.sqrt(variance + np.float64(np.float32(epsilon)))


def layer_norm(x, gamma, beta=None, epsilon=1e-5):
    """γ ∘ (x - mean) / sqrt(variance + ε) + β over the last axis (Ba et al., arXiv 1607.06450).

    Args:
      x: [..., K, F].
      gamma, beta: [K, F]; beta None: 0.
    Returns:
      like x, float64.
    """
    x, gamma, beta = _float64(x, gamma, beta)
    y = gamma * _normalized(x, -1, epsilon)
    return y if beta is None else y + beta


def _lstm(wx, initial_state, product, squash, activation, recurrent_activation, rates, options):
    """LSTM with q = product(h), and h = o ∘ a(squash(c))."""
    a, r = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]

    def step(x, h, states, share):
        z_i, z_f, z_g, z_o = tf.unstack(x + product(h), axis=2)
        c = r(z_f) * states[1] + r(z_i) * a(z_g)
        return None, [r(z_o) * a(squash(c)), c]

    return recurrence(step, wx, initial_state, states=2, rates=rates, **options)


def lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    **options,
):
    """LSTM. wx [N, T, K, 4, H], gates i, f, g, o; recurrent_kernel [K, H, 4, H]; states h, c."""
    kernel = _float64(recurrent_kernel)
    return _lstm(
        wx,
        initial_state,
        lambda h: _product(h, kernel),
        tf.identity,
        activation,
        recurrent_activation,
        (zoneout, zoneout_cell),
        options,
    )


def layer_norm_lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_gamma,
    state_gamma,
    state_beta,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    epsilon=1e-5,
    **options,
):
    """LSTM with h·R normalised, and c where it makes h.

    wx, recurrent_kernel, states: as of `lstm`; recurrent_gamma [K, 4, H] scales h·R, which is
    normalised over all gates and units of a lane; state_gamma, state_beta [K, H] are of c.
    """
    kernel, gamma = _float64(recurrent_kernel, recurrent_gamma)
    return _lstm(
        wx,
        initial_state,
        lambda h: gamma * _normalized(_product(h, kernel), (2, 3), epsilon),
        lambda c: layer_norm(c, state_gamma, state_beta, epsilon),
        activation,
        recurrent_activation,
        (zoneout, zoneout_cell),
        options,
    )


def _gru(wx, initial_state, product, activation, recurrent_activation, rates, options):
    """GRU, reset after the product, with q = product(h)."""
    a, r = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]

    def step(x, h, states, share):
        x_z, x_r, x_g = tf.unstack(x, axis=2)
        q_z, q_r, q_g = tf.unstack(product(h), axis=2)
        z, reset = r(x_z + q_z), r(x_r + q_r)
        return None, [z * states[0] + (1 - z) * a(x_g + reset * q_g)]

    return recurrence(step, wx, initial_state, states=1, rates=rates, **options)


def gru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_bias=None,
    reset_after=True,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    **options,
):
    """GRU. wx [N, T, K, 3, H], gates z, r, g; recurrent_kernel [K, H, 3, H]; state h.

    recurrent_bias: [K, 3, H], added to h·R; None: 0. Not with reset_after=False.
    """
    kernel, bias = _float64(recurrent_kernel, recurrent_bias)
    if reset_after:
        bias = tf.zeros([], tf.float64) if bias is None else bias

        def product(h):
            return _product(h, kernel) + bias

        return _gru(
            wx, initial_state, product, activation, recurrent_activation, (zoneout,), options
        )
    if bias is not None:
        raise ValueError("recurrent_bias must be None with reset_after=False, but is given")
    a, r = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]

    def step(x, h, states, share):
        x_z, x_r, x_g = tf.unstack(x, axis=2)
        z = r(x_z + _product(h, kernel[:, :, 0:1])[:, :, 0])
        reset = r(x_r + _product(h, kernel[:, :, 1:2])[:, :, 0])
        g = a(x_g + _product(reset * h, kernel[:, :, 2:3])[:, :, 0])
        return None, [z * states[0] + (1 - z) * g]

    return recurrence(step, wx, initial_state, states=1, rates=(zoneout,), **options)


def layer_norm_gru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_gamma,
    recurrent_bias=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    epsilon=1e-5,
    **options,
):
    """GRU, reset after the product, with h·R normalised over all gates and units of a lane.

    wx, recurrent_kernel, state: as of `gru`; recurrent_gamma [K, 3, H] scales the normalised
    product, recurrent_bias [K, 3, H] (None: 0) is then added.
    """
    kernel, gamma, bias = _float64(recurrent_kernel, recurrent_gamma, recurrent_bias)
    bias = tf.zeros([], tf.float64) if bias is None else bias

    def product(h):
        return gamma * _normalized(_product(h, kernel), (2, 3), epsilon) + bias

    return _gru(wx, initial_state, product, activation, recurrent_activation, (zoneout,), options)


def ligru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="relu",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    **options,
):
    """Light GRU. wx [N, T, K, 2, H], gates z, g; recurrent_kernel [K, H, 2, H]; state h."""
    kernel = _float64(recurrent_kernel)

    def step(x, h, states, share):
        z, g = tf.unstack(x + _product(h, kernel), axis=2)
        z = ACTIVATIONS[recurrent_activation](z)
        return None, [z * states[0] + (1 - z) * ACTIVATIONS[activation](g)]

    return recurrence(step, wx, initial_state, states=1, rates=(zoneout,), **options)


def elman(wx, recurrent_kernel, initial_state=None, *, activation="tanh", zoneout=0.0, **options):
    """h' = a(x + h·R). wx [N, T, K, 1, H], recurrent_kernel [K, H, 1, H]; state h."""
    kernel = _float64(recurrent_kernel)

    def step(x, h, states, share):
        return None, [ACTIVATIONS[activation](x + _product(h, kernel))[:, :, 0]]

    return recurrence(step, wx, initial_state, states=1, rates=(zoneout,), **options)


def indrnn(wx, recurrent_kernel, initial_state=None, *, activation="tanh", zoneout=0.0, **options):
    """h' = a(x + u ∘ h). wx [N, T, K, 1, H], recurrent_kernel u [K, 1, H] or [K, H]; state h."""
    kernel = _float64(recurrent_kernel)
    kernel = kernel if kernel.shape.rank == 3 else kernel[:, tf.newaxis]

    def step(x, h, states, share):
        return None, [ACTIVATIONS[activation](x[:, :, 0] + kernel[:, 0] * h)]

    return recurrence(step, wx, initial_state, states=1, rates=(zoneout,), **options)


def slstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="tanh",
    forget_activation="exponential",
    zoneout=0.0,
    zoneout_cell=0.0,
    **options,
):
    """The sLSTM of arXiv 2405.04517. wx [N, T, K, 4, H], gates i, f, z, o; states h, c, n, m.

    c and n are to be multiplied by e^m; m is no variable but a choice of scale, so that it has no
    gradient. A state with n = 0 is empty: what its m says does not matter. `zoneout_cell` keeps, or
    mixes, c e^m and n e^m.
    """
    kernel = _float64(recurrent_kernel)
    log_gate = {"exponential": tf.identity, "sigmoid": tf.math.log_sigmoid}[forget_activation]

    def step(x, h, states, share):
        _, c, n, m = states
        z_i, z_f, z_z, z_o = tf.unstack(x + _product(h, kernel), axis=2)
        held = n > 0
        log_f = log_gate(z_f) + tf.stop_gradient(m)
        new_m = tf.stop_gradient(tf.where(held, tf.maximum(log_f, z_i), z_i))
        i = tf.exp(z_i - new_m)
        # The inner choice keeps an exponential that nobody reads from overflowing.
        f = tf.where(held, tf.exp(tf.where(held, log_f - new_m, 0.0)), 0.0)
        new_c, new_n = f * c + i * ACTIVATIONS[activation](z_z), f * n + i
        new_h = tf.sigmoid(z_o) * new_c / new_n
        # Weights of what was and of what is new, by logarithms; -inf: none.
        with np.errstate(divide="ignore"):
            log_past, log_new = np.log(share[1]), np.log1p(-share[1])
        past = tf.where(held, m + log_past, -np.inf)
        new = new_m + log_new
        some = tf.maximum(past, new) > -np.inf  # else empty, and kept so
        scale = tf.reduce_logsumexp(tf.where(some, [past, new], 0.0), axis=0)
        scale = tf.stop_gradient(scale)
        past, new = tf.stop_gradient((tf.exp(past - scale), tf.exp(new - scale)))
        mixed = [past * c + new * new_c, past * n + new * new_n, scale]
        # An m that is kept is the m it was, with what gradient the caller gives that.
        mixed[2] = tf.where(some & (share[1] < 1), scale, m)
        return None, [new_h, *mixed]

    rates = (zoneout, zoneout_cell)
    return recurrence(
        step, wx, initial_state, states=4, rates=rates, own_zoneout=(1, 2, 3), **options
    )


def qrnn(
    wx,
    initial_state=None,
    *,
    pooling="fo",
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    **options,
):
    """Pooling of the QRNN (arXiv 1611.01576). wx [N, T, K, G, H], gates z, f, o, i; state h or c.

    pooling: "f" (gates z, f; state h), "fo" (z, f, o; state c) or "ifo" (all; state c). Zoneout is
    in the forget gate: F = p + (1 - p) f.
    """
    a, r = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]

    def step(x, h, states, share):
        z, *gates = tf.unstack(x, axis=2)
        z, gates = a(z), [r(gate) for gate in gates]
        forget = share[0] + (1 - share[0]) * gates[0]
        entering = gates[2] if pooling == "ifo" else 1 - forget
        c = forget * states[0] + entering * z
        return (c if pooling == "f" else gates[1] * c), [c]

    return recurrence(
        step, wx, initial_state, states=1, rates=(zoneout,), own_zoneout=(0,), **options
    )


def _minimal(wx, initial_state, renewal, activation, zoneout, options):
    """h' = h + Z ∘ (a(x_g) - h), Z = (1 - p) z, where renewal(x_0, …) makes z of all but the last.

    Zoneout is in the gate.
    """

    def step(x, h, states, share):
        *gates, g = tf.unstack(x, axis=2)
        z = (1 - share[0]) * renewal(*gates)
        return None, [(1 - z) * states[0] + z * ACTIVATIONS[activation](g)]

    return recurrence(
        step, wx, initial_state, states=1, rates=(zoneout,), own_zoneout=(0,), **options
    )


def mingru(
    wx,
    initial_state=None,
    *,
    activation="linear",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    **options,
):
    """MinGRU (arXiv 2410.01201). wx [N, T, K, 2, H], gates z, g; state h."""
    renewal = ACTIVATIONS[recurrent_activation]
    return _minimal(wx, initial_state, renewal, activation, zoneout, options)


def minlstm(wx, initial_state=None, *, activation="linear", zoneout=0.0, **options):
    """MinLSTM (arXiv 2410.01201). wx [N, T, K, 3, H], gates f, i, g; state h."""

    def renewal(f, i):  # σ(i) / (σ(f) + σ(i)), by logarithms as in the paper's appendix
        return tf.sigmoid(tf.math.log_sigmoid(i) - tf.math.log_sigmoid(f))

    return _minimal(wx, initial_state, renewal, activation, zoneout, options)


def forget_mult(f, x, h0=None, *, reverse=False, **options):
    """h' = f ∘ x + (1 - f) ∘ h. f, x [N, T, H] or [N, T, K, H]; h0 without T; y like x.

    reverse: a bool, or with lanes one for each.
    """
    f, x, h0 = _float64(f, x, h0)
    one_lane = x.shape.rank == 3
    if one_lane:
        f, x = f[:, :, tf.newaxis], x[:, :, tf.newaxis]
        h0 = None if h0 is None else h0[:, tf.newaxis]
    lanes = x.shape[2]

    def step(x, h, states, share):
        forget, value = tf.unstack(x, axis=2)
        return None, [forget * value + (1 - forget) * states[0]]

    y, _ = recurrence(
        step,
        tf.stack([f, x], axis=3),
        None if h0 is None else [h0],
        states=1,
        rates=(options.pop("zoneout", 0.0),),
        reverse=[reverse] * lanes if isinstance(reverse, bool) else reverse,
        **options,
    )
    return y[:, :, 0] if one_lane else y
