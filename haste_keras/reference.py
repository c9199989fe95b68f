"""The oracle: the recurrences as a readable loop in float64, by TensorFlow and NumPy alone.

Every feature of the ops, none of their code: lanes, directions, any mask, Zoneout and recurrent
dropout drawn by NumPy's own Philox arithmetic. `tf.GradientTape` differentiates it. Slow.
"""

import numpy as np
import tensorflow as tf

ACTIVATIONS = {
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "relu": tf.nn.relu,
    "hard_sigmoid": lambda x: tf.clip_by_value(x / 6 + 0.5, 0, 1),
    "linear": tf.identity,
}


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011).

    Args:
      key: two numbers below 2^32.
      counter: four uint64 arrays of numbers below 2^32, of shapes that broadcast.
    Returns:
      four uint64 arrays of numbers below 2^32.
    """
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, np.uint64) for c in counter))
    k0, k1 = (int(word) for word in key)
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def philox_key(seed):
    """Two 32-bit words out of a seed of two int64."""
    a, b = (int(word) % 2**64 for word in np.asarray(seed))
    b_low = b & 0xFFFFFFFF
    rotated = ((b_low << 16) | (b_low >> 16)) & 0xFFFFFFFF
    return (a & 0xFFFFFFFF) ^ rotated, (a >> 32) ^ (b >> 32)


def draw(word, rate):
    """True where a 32-bit word falls below `rate`, by its upper 24 bits."""
    return (word >> np.uint64(8)).astype(np.float32) * np.float32(2**-24) < np.float32(rate)


def zoneout_draws(seed, time, shape):
    """Four words for each element of a step: [N, K, H] each; word s decides on state s."""
    batch, lanes, hidden = shape
    n = np.arange(batch).reshape(-1, 1)
    unit = np.arange(lanes * hidden).reshape(1, -1)
    words = philox(philox_key(seed), (time, n, unit, 0))
    return [word.reshape(shape) for word in words]


def dropout_scale(seed, shape, rate):
    """What h [N, K, H] is multiplied by under recurrent dropout: 0 or 1 / (1 - rate)."""
    batch, lanes, hidden = shape
    n = np.arange(batch).reshape(-1, 1)
    unit = np.arange(lanes * hidden).reshape(1, -1)
    word = philox(philox_key(seed), (0, n, unit, 1))[0].reshape(shape)
    kept = np.float32(1) / (np.float32(1) - np.float32(rate))
    return np.where(draw(word, rate), 0.0, np.float64(kept))


def lstm_step(x, q, states, activation, recurrent_activation):
    """One LSTM step. x, q: [N, K, 4, H], gates i, f, g, o; states: h, c [N, K, H] → new h, c."""
    z_i, z_f, z_g, z_o = tf.unstack(x + q, axis=2)
    i, f, o = (recurrent_activation(z) for z in (z_i, z_f, z_o))
    c = f * states[1] + i * activation(z_g)
    return [o * activation(c), c]


def _walk(step, x, kernel, states, live, times, *, zoneout, drop, seed, training, zero_masked):
    """One lane through the time indices `times`. x: [N, T, 1, G, H] → {t: y [N, 1, H]}, states."""
    lane, x = x
    outputs = {}
    previous = tf.zeros_like(states[0])
    for t in times:
        q = tf.einsum("nkh,khgj->nkgj", states[0] * drop, kernel)
        new = step(x[:, t], q, states)
        if seed is not None and any(zoneout):
            words = [word[:, lane : lane + 1] for word in seed(t)]
        for s, rate in enumerate(zoneout):
            if rate and training:
                new[s] = tf.where(draw(words[s], rate), states[s], new[s])
            elif rate:
                p = np.float64(np.float32(rate))
                new[s] = p * states[s] + (1 - p) * new[s]
        alive = live[:, t, tf.newaxis, tf.newaxis]
        states = [tf.where(alive, n, o) for n, o in zip(new, states, strict=True)]
        masked = tf.zeros_like(previous) if zero_masked else previous
        previous = tf.where(alive, new[0], masked)
        outputs[t] = previous
    return outputs, states


def recurrence(
    step,
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    state_count,
    mask=None,
    seed=None,
    reverse=None,
    zoneout=(),
    recurrent_dropout=0.0,
    training=False,
    zero_output_for_mask=False,
):
    """Walks `step` over time for every lane; arguments as of `lstm`."""
    wx = tf.cast(wx, tf.float64)
    kernel = tf.cast(recurrent_kernel, tf.float64)
    batch, time, lanes, _, hidden = wx.shape
    shape = (batch, lanes, hidden)
    if initial_state is None:
        initial_state = [tf.zeros(shape, tf.float64)] * state_count
    states = [tf.cast(state, tf.float64) for state in initial_state]
    live = tf.ones([batch, time], tf.bool) if mask is None else tf.cast(mask, tf.bool)
    wx = tf.where(live[:, :, tf.newaxis, tf.newaxis, tf.newaxis], wx, tf.zeros_like(wx))
    drop = np.ones(shape)
    if training and recurrent_dropout:
        drop = dropout_scale(seed, shape, recurrent_dropout)

    lane_outputs, lane_states = [], []
    for lane in range(lanes):
        backwards = reverse is not None and reverse[lane]
        only = slice(lane, lane + 1)
        outputs, final = _walk(
            step,
            (lane, wx[:, :, only]),
            kernel[only],
            [state[:, only] for state in states],
            live,
            range(time - 1, -1, -1) if backwards else range(time),
            zoneout=zoneout,
            drop=drop[:, only],
            seed=(lambda t: zoneout_draws(seed, t, shape)) if training else None,
            training=training,
            zero_masked=zero_output_for_mask,
        )
        empty = tf.zeros([batch, 0, 1, hidden], tf.float64)
        steps = [outputs[t] for t in range(time)]
        lane_outputs.append(tf.stack(steps, axis=1) if steps else empty)
        lane_states.append(final)
    states = [tf.concat(parts, axis=1) for parts in zip(*lane_states, strict=True)]
    return tf.concat(lane_outputs, axis=2), states


def lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    mask=None,
    seed=None,
    reverse=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    recurrent_dropout=0.0,
    training=False,
    zero_output_for_mask=False,
):
    """What `haste_keras.ops.lstm` computes, in float64, for eager tensors.

    Args:
      wx: [N, T, K, 4, H] projected input, gates i, f, g, o; cast to float64, as the next two.
      recurrent_kernel: [K, H, 4, H].
      initial_state: (h, c), each [N, K, H]; default 0.
      mask: [N, T], true at live steps.
      seed: two int64: what Zoneout and recurrent dropout are drawn from in training.
      reverse: a bool a lane; true walks from T-1 to 0.
      Others: as of the op.
    Returns:
      y [N, T, K, H], (h, c) each [N, K, H]; float64.
    """

    def step(x, q, states):
        return lstm_step(x, q, states, ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation])

    y, states = recurrence(
        step,
        wx,
        recurrent_kernel,
        initial_state,
        state_count=2,
        mask=mask,
        seed=seed,
        reverse=reverse,
        zoneout=(zoneout, zoneout_cell),
        recurrent_dropout=recurrent_dropout,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
    )
    return y, tuple(states)
