"""The recurrences of the matrix cells as plain loops in torch: float64, gradients by autograd.

Each cell is one function, written from the equations that head its file in lib/cells; everything
else of a walk (masks, directions, Zoneout, recurrent dropout) is common to them.
"""

import dataclasses
from collections.abc import Callable

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
    return torch.as_tensor(uniform < np.float32(rate))


def draws(seed, t, n, k, h):
    """Words that decide on Zoneout [T, N, K, H, 4] and on recurrent dropout [N, K, H, 4]."""
    unit = np.arange(k * h).reshape(k, h)

    def at(time, row, stream):
        grid = np.broadcast_arrays(time, row, unit, stream)
        return philox(seed, np.stack(grid, -1))

    rows = np.arange(n)[:, None, None]
    return at(np.arange(t)[:, None, None, None], rows, 0), at(0, rows, 1)


def inputs_of(wx, lane):
    """The inputs of each step, [G, n, H]. Indexing would make a gradient of all of wx each step."""
    return [x.transpose(0, 1) for x in wx[:, :, lane].unbind(1)]


@dataclasses.dataclass(frozen=True)
class Cell:
    """The parameters of a recurrence of this cell.

    step(x, times, s, activation, recurrent) returns the new states of one lane: x [G, n, H];
    times(v, first, last) is v [n, H] with dropout through R of gates first … last - 1, with their
    recurrent bias, [last - first, n, H]; s are the states before; the last two name activations.
    expect(rate, old, new): where Zoneout on the states but h is one, its expectation.
    """

    step: Callable
    gates: int
    states: tuple[str, ...]
    recurrent_bias: bool = False
    recurrent_activation: str = "sigmoid"
    expect: Callable | None = None


def _lstm(x, times, s, activation, recurrent):
    act, gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent]
    h, c = s
    i, f, g, o = x + times(h, 0, 4)
    c = gate(f) * c + gate(i) * act(g)
    return gate(o) * act(c), c


def _gru(x, times, s, activation, recurrent):
    act, gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent]
    (h,) = s
    q = times(h, 0, 3)
    z, r = gate(x[:2] + q[:2])
    return (z * h + (1 - z) * act(x[2] + r * q[2]),)


def _gru_reset_before(x, times, s, activation, recurrent):
    act, gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent]
    (h,) = s
    z, r = gate(x[:2] + times(h, 0, 2))
    return (z * h + (1 - z) * act(x[2] + times(r * h, 2, 3)[0]),)


def _elman(x, times, s, activation, recurrent):
    return (ACTIVATIONS[activation]((x + times(s[0], 0, 1))[0]),)


def _ligru(x, times, s, activation, recurrent):
    (h,) = s
    z, g = x + times(h, 0, 2)
    z = ACTIVATIONS[recurrent](z)
    return (z * h + (1 - z) * ACTIVATIONS[activation](g),)


def _slstm(x, times, s, activation, recurrent):
    """m scales both c and n, so the function does not depend on it: a constant to autograd."""
    h, c, n, m = s
    i, f, z, o = x + times(h, 0, 4)
    log_f = f if recurrent == "exponential" else torch.nn.functional.logsigmoid(f)
    carried = log_f + m.detach()
    m = torch.where(n > 0, torch.maximum(carried, i), i).detach()
    i = torch.exp(i - m)
    f = torch.where(n > 0, torch.exp(torch.where(n > 0, carried - m, 0.0)), 0.0)
    c = f * c + i * ACTIVATIONS[activation](z)
    n = f * n + i
    return torch.sigmoid(o) * c / n, c, n, m


def _expect_slstm(rate, old, new):
    """The expectation of Zoneout between the old and the new c e^m and n e^m."""
    past = torch.where(old[1] > 0, old[2] + np.log(rate), -torch.inf)
    fresh = new[2] + np.log1p(-rate)
    m = torch.logaddexp(past, fresh).detach()
    past, fresh = torch.exp((past - m).detach()), torch.exp((fresh - m).detach())
    return [past * old[0] + fresh * new[0], past * old[1] + fresh * new[1], m]


CELLS = {
    "lstm": Cell(_lstm, 4, ("h", "c")),
    "gru": Cell(_gru, 3, ("h",), recurrent_bias=True),
    "gru_reset_before": Cell(_gru_reset_before, 3, ("h",)),
    "elman": Cell(_elman, 1, ("h",)),
    "ligru": Cell(_ligru, 2, ("h",)),
    "slstm": Cell(
        _slstm, 4, ("h", "c", "n", "m"), recurrent_activation="exponential", expect=_expect_slstm
    ),
}


def run(
    name,
    wx,
    kernel,
    s0,
    bias=None,
    *,
    mask=None,
    reverse=None,
    activation="tanh",
    recurrent_activation=None,
    zoneout=(),
    recurrent_dropout=0.0,
    training=0,
    zero_output_for_mask=0,
    seed=(0, 0),
    product_dtype=None,
):
    """A walk of the cell `name`; options are those of HasteRnnConfig.

    Args:
        wx: [N, T, K, G, H], kernel: [K, H, G, H], s0: states [N, K, H], bias: [K, G, H] or None.
        product_dtype: what h is rounded to where it enters a product; its gradient is not.

    Returns:
        y [N, T, K, H] and the list of final states [N, K, H].
    """
    cell = CELLS[name]
    n, t, k, _, h = wx.shape
    recurrent = recurrent_activation or cell.recurrent_activation
    rates = [float(np.float32(rate)) for rate in zoneout] or [0.0] * len(s0)
    word = list(range(len(s0)))
    if cell.expect and len(rates) == 2:  # the draw for state 1 also decides on the others
        rates, word = [rates[0], *[rates[1]] * (len(s0) - 1)], [0] + [1] * (len(s0) - 1)
    if training:
        keep_words, drop_words = draws(seed, t, n, k, h)
    scale = torch.ones(n, k, h, dtype=wx.dtype)
    if training and recurrent_dropout > 0:
        kept = 1 / (1 - np.float32(recurrent_dropout))
        scale = torch.where(draw(drop_words[..., 0], recurrent_dropout), 0.0, float(kept))
        scale = scale.to(wx.dtype)
    outputs, finals = [], []
    for lane in range(k):

        def times(v, first, last, lane=lane):
            v = v * scale[:, lane]
            if product_dtype is not None:
                v = v + (v.to(product_dtype).to(v.dtype) - v).detach()
            q = torch.einsum("ni,igj->gnj", v, kernel[lane, :, first:last])
            return q if bias is None else q + bias[lane, first:last, None]

        states = [s[:, lane] for s in s0]
        inputs = inputs_of(wx, lane)
        repeated = torch.zeros_like(states[0])
        steps = [None] * t
        backwards = reverse is not None and reverse[lane]
        for time in range(t - 1, -1, -1) if backwards else range(t):
            news = list(cell.step(inputs[time], times, states, activation, recurrent))
            expected = not training and cell.expect is not None and 0 < rates[1] < 1
            if expected:
                news[1:] = cell.expect(rates[1], states[1:], news[1:])
            for s, (old, new) in enumerate(zip(states, news, strict=True)):
                if training and rates[s] > 0:
                    words = keep_words[time, :, lane, :, word[s]]
                    news[s] = torch.where(draw(words, rates[s]), old, new)
                elif rates[s] > 0 and not (expected and s > 0):
                    news[s] = rates[s] * old + (1 - rates[s]) * new
            if mask is None:
                states = news
                steps[time] = states[0]
                continue
            live = mask[:, time, None]
            states = [torch.where(live, new, old) for new, old in zip(news, states, strict=True)]
            repeated = torch.where(live, states[0], repeated)
            steps[time] = torch.where(live, states[0], 0.0) if zero_output_for_mask else repeated
        outputs.append(torch.stack(steps, 1))
        finals.append(states)
    return torch.stack(outputs, 2), [torch.stack(s, 1) for s in zip(*finals, strict=True)]
