"""What Zoneout and recurrent dropout draw, by NumPy: a function of the seed and of the place."""

import numbers

import numpy as np


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
    """Two 32-bit words out of a seed: two int64, or one and 0."""
    seed = (seed, 0) if isinstance(seed, numbers.Integral) else np.asarray(seed)
    a, b = (int(word) % 2**64 for word in seed)
    b_low = b & 0xFFFFFFFF
    rotated = ((b_low << 16) | (b_low >> 16)) & 0xFFFFFFFF
    return (a & 0xFFFFFFFF) ^ rotated, (a >> 32) ^ (b >> 32)


def draw(word, rate):
    """True where a 32-bit word falls below `rate`, by its upper 24 bits."""
    return (word >> np.uint64(8)).astype(np.float32) * np.float32(2**-24) < np.float32(rate)


def _words(seed, time, shape, stream):
    batch, lanes, hidden = shape
    n = np.arange(batch).reshape(-1, 1, 1)
    unit = np.arange(lanes * hidden).reshape(1, lanes, hidden)
    time = np.asarray(time).reshape(1, -1, 1)
    words = philox(philox_key(seed), (time, n, unit, stream))
    return [np.broadcast_to(word, shape) for word in words]


def zoneout_draws(seed, time, shape):
    """Four words for each element of a step: [N, K, H] each; word s decides on state s.

    time: the step's index, of all lanes or for each [K].
    """
    return _words(seed, time, shape, 0)


def dropout_scale(seed, shape, rate):
    """What h [N, K, H] is multiplied by under recurrent dropout: 0 or 1 / (1 - rate)."""
    word = _words(seed, 0, shape, 1)[0]
    kept = np.float32(1) / (np.float32(1) - np.float32(rate))
    return np.where(draw(word, rate), 0.0, np.float64(kept))
