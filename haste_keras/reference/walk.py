"""The walk over time that every recurrence shares: lanes, directions, masks, noise."""

import numpy as np
import tensorflow as tf

from haste_keras.reference.random import draw, dropout_scale, zoneout_draws


def _in_order_of_walk(x, reverse):
    """x [N, T, K, ...], reversed in time on the lanes of `reverse`; so twice gives x again."""
    lanes = [
        tf.reverse(lane, [1]) if backwards else lane
        for lane, backwards in zip(tf.unstack(x, axis=2), reverse, strict=True)
    ]
    return tf.stack(lanes, axis=2)


def recurrence(
    step,
    x,
    initial_state=None,
    *,
    states,
    rates,
    own_zoneout=(),
    mask=None,
    seed=None,
    reverse=None,
    recurrent_dropout=0.0,
    training=False,
    zero_output_for_mask=False,
):
    """Walks `step` over time, all lanes at once.

    Args:
      step: (x [N, K, G, H], h, list of states [N, K, H], share) → (y [N, K, H], list of states).
        h is the first of the states as R multiplies it: with dropout where there is any. `share`
        is, of each state, how much Zoneout keeps of it: 0 or 1 in training. y None: it is the first
        state, after Zoneout.
      x: [N, T, K, G, H].
      initial_state: sequence of tensors [N, K, H]; default 0.
      states: their number.
      rates: Zoneout's rate for each of the first states; those left out have none.
      own_zoneout: states whose share `step` applies itself.
      Others: as of the ops.
    Returns:
      y [N, T, K, H], tuple of states [N, K, H]; float64.
    """
    x = tf.cast(x, tf.float64)
    batch, time, lanes, _, hidden = x.shape
    shape = (batch, lanes, hidden)
    reverse = [False] * lanes if reverse is None else list(reverse)
    if initial_state is None:
        initial_state = [tf.zeros(shape, tf.float64)] * states
    if len(initial_state) != states:
        raise ValueError(f"initial_state must hold {states} states, but holds {len(initial_state)}")
    now = [tf.cast(state, tf.float64) for state in initial_state]
    live = np.ones([batch, time], bool) if mask is None else np.asarray(mask).astype(bool)
    live = _in_order_of_walk(tf.repeat(live[:, :, np.newaxis, np.newaxis], lanes, axis=2), reverse)
    x = _in_order_of_walk(x, reverse)
    x = tf.where(live[..., tf.newaxis], x, tf.zeros_like(x))
    drop = np.ones(shape)
    if training and recurrent_dropout:
        drop = dropout_scale(seed, shape, recurrent_dropout)

    outputs = []
    previous = tf.zeros(shape, tf.float64)
    for i in range(time):
        share = [np.zeros(shape)] * states
        if training and any(rates):
            words = zoneout_draws(seed, np.where(reverse, time - 1 - i, i), shape)
        for s, rate in enumerate(rates):
            if rate and training:
                share[s] = draw(words[s], rate).astype(np.float64)
            elif rate:
                share[s] = np.full(shape, np.float64(np.float32(rate)))
        y, new = step(x[:, i], now[0] * drop, now, share)
        kept = enumerate(zip(share, now, new, strict=True))
        new = [
            fresh if state in own_zoneout else s * old + (1 - s) * fresh
            for state, (s, old, fresh) in kept
        ]
        y = new[0] if y is None else y
        now = [tf.where(live[:, i], fresh, old) for fresh, old in zip(new, now, strict=True)]
        masked = tf.zeros_like(previous) if zero_output_for_mask else previous
        previous = tf.where(live[:, i], y, masked)
        outputs.append(previous)
    if not outputs:
        return tf.zeros([batch, 0, lanes, hidden], tf.float64), tuple(now)
    return _in_order_of_walk(tf.stack(outputs, axis=1), reverse), tuple(now)
