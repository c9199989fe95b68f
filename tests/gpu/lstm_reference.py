"""The LSTM recurrence as a plain loop in torch: float64 on the CPU, gradients by autograd."""

import numpy as np
import torch

ACTIVATIONS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "hard_sigmoid": lambda x: torch.clamp(x / 6 + 0.5, 0, 1),
    "linear": lambda x: x,
}


def philox(seed, counter):
    """Philox4x32-10 of counters [..., 4] (uint32) under a seed of two int64: words [..., 4]."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = (np.uint64(int(s) % 2**64) for s in seed)
    b_low = b & low
    rotated = ((b_low << np.uint64(16)) | (b_low >> np.uint64(16))) & low
    key = [(a & low) ^ rotated, (a >> high) ^ (b >> high)]
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> high) ^ c[1] ^ key[0], p1 & low, (p0 >> high) ^ c[3] ^ key[1], p0 & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, -1)


def draw(words, rate):
    """True with probability `rate`."""
    uniform = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    return torch.from_numpy(uniform < np.float32(rate))


def draws(seed, t, n, k, h):
    """Words that decide on Zoneout [T, N, K, H, 4] and on recurrent dropout [N, K, H, 4]."""
    unit = np.arange(k * h).reshape(k, h)

    def at(time, row, stream):
        grid = np.broadcast_arrays(time, row, unit, stream)
        return philox(seed, np.stack(grid, -1))

    rows = np.arange(n)[:, None, None]
    return at(np.arange(t)[:, None, None, None], rows, 0), at(0, rows, 1)


def lstm(
    wx,
    kernel,
    h0,
    c0,
    *,
    mask=None,
    reverse=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=(0.0, 0.0),
    recurrent_dropout=0.0,
    training=0,
    zero_output_for_mask=0,
    seed=(0, 0),
):
    """y [N, T, K, H], h and c [N, K, H] of wx [N, T, K, G, H], kernel [K, H, G, H], h0 and c0."""
    n, t, k, _, h = wx.shape
    act, gate_act = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]
    rates = [float(np.float32(rate)) for rate in zoneout]
    if training:
        keep_words, drop_words = draws(seed, t, n, k, h)
    scale = torch.ones(n, k, h, dtype=wx.dtype)
    if training and recurrent_dropout > 0:
        kept = 1 / (1 - np.float32(recurrent_dropout))
        scale = torch.where(draw(drop_words[..., 0], recurrent_dropout), 0.0, float(kept))
        scale = scale.to(wx.dtype)
    outputs, last_h, last_c = [], [], []
    for lane in range(k):
        times = range(t - 1, -1, -1) if reverse is not None and reverse[lane] else range(t)
        hidden, cell = h0[:, lane], c0[:, lane]
        repeated = torch.zeros_like(hidden)
        steps = [None] * t
        for time in times:
            q = torch.einsum("ni,igj->ngj", hidden * scale[:, lane], kernel[lane])
            i, f, g, o = (wx[:, time, lane] + q).unbind(1)
            new_cell = gate_act(f) * cell + gate_act(i) * act(g)
            new_hidden = gate_act(o) * act(new_cell)
            news = []
            for s, (old, new) in enumerate(((hidden, new_hidden), (cell, new_cell))):
                if training and rates[s] > 0:
                    keep = draw(keep_words[time, :, lane, :, s], rates[s])
                    new = torch.where(keep, old, new)
                elif rates[s] > 0:
                    new = rates[s] * old + (1 - rates[s]) * new
                news.append(new)
            if mask is None:
                hidden, cell = news
                steps[time] = hidden
                continue
            live = mask[:, time, None]
            hidden = torch.where(live, news[0], hidden)
            cell = torch.where(live, news[1], cell)
            repeated = torch.where(live, hidden, repeated)
            steps[time] = torch.where(live, hidden, 0.0) if zero_output_for_mask else repeated
        outputs.append(torch.stack(steps, 1))
        last_h.append(hidden)
        last_c.append(cell)
    return torch.stack(outputs, 2), torch.stack(last_h, 1), torch.stack(last_c, 1)
