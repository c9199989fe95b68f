"""The cells without a matrix product as plain loops in torch: float64, gradients by autograd.

Each cell is one function, written from the equations that head its file in lib/cells; everything
else of a walk (masks, directions, Zoneout, recurrent dropout) is common to them.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from cell_reference import ACTIVATIONS, draw, draws, inputs_of


@dataclasses.dataclass(frozen=True)
class Cell:
    """The parameters of a walk of this cell.

    step(x, s, share, u, activation, recurrent) returns the new state and the output: x [G, n, H];
    s, the state before; share of it that Zoneout keeps, for a cell that mixes within a gate; u
    [G, H], of a cell with a diagonal recurrence.
    """

    step: Callable
    gates: int
    zoneout_in_gate: bool = True
    diagonal: bool = False
    separate_gates: bool = False
    outputs_state: bool = False


def _pooling(forms):
    def step(x, s, share, _, activation, recurrent):
        act, gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent]
        z, f = act(x[0]), gate(x[1])
        keep = share + (1 - share) * f
        new = keep * s + (gate(x[3]) if forms == 4 else 1 - keep) * z
        return new, new if forms == 2 else gate(x[2]) * new

    return step


def _mingru(x, s, share, _, activation, recurrent):
    z = (1 - share) * ACTIVATIONS[recurrent](x[0])
    new = (1 - z) * s + z * ACTIVATIONS[activation](x[1])
    return new, new


def _minlstm(x, s, share, _, activation, *__):
    f, i = torch.nn.functional.logsigmoid(x[:2])
    z = (1 - share) * torch.sigmoid(i - f)
    new = (1 - z) * s + z * ACTIVATIONS[activation](x[2])
    return new, new


def _forget_mult(x, s, *_):
    new = x[0] * x[1] + (1 - x[0]) * s
    return new, new


def _indrnn(x, s, share, u, activation, _):
    new = ACTIVATIONS[activation](x[0] + u[0] * s)
    return new, new


CELLS = {
    "qrnn_f": Cell(_pooling(2), 2, outputs_state=True),
    "qrnn_fo": Cell(_pooling(3), 3),
    "qrnn_ifo": Cell(_pooling(4), 4),
    "forget_mult": Cell(
        _forget_mult, 2, zoneout_in_gate=False, separate_gates=True, outputs_state=True
    ),
    "mingru": Cell(_mingru, 2, outputs_state=True),
    "minlstm": Cell(_minlstm, 3, outputs_state=True),
    "indrnn": Cell(_indrnn, 1, zoneout_in_gate=False, diagonal=True, outputs_state=True),
}


def run(
    name,
    wx,
    s0,
    u=None,
    *,
    mask=None,
    reverse=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=(0.0,),
    recurrent_dropout=0.0,
    training=0,
    zero_output_for_mask=0,
    seed=(0, 0),
):
    """A walk of the cell `name`; options are those of HasteRnnConfig.

    Args:
        wx: [N, T, K, G, H], s0: [N, K, H], u: [K, G, H] or None.

    Returns:
        y [N, T, K, H] and the final state [N, K, H].
    """
    cell = CELLS[name]
    n, t, k, _, h = wx.shape
    rate = float(np.float32(zoneout[0]))
    if training:
        keep_words, drop_words = draws(seed, t, n, k, h)
        kept = draw(keep_words[..., 0], rate).to(wx.dtype)  # [T, N, K, H]
    scale = torch.ones(n, k, h, dtype=wx.dtype)
    if training and recurrent_dropout > 0:
        raised = float(1 / (1 - np.float32(recurrent_dropout)))
        scale = torch.where(draw(drop_words[..., 0], recurrent_dropout), 0.0, raised)
        scale = scale.to(wx.dtype)
    outputs, finals = [], []
    for lane in range(k):
        s = s0[:, lane]
        inputs = inputs_of(wx, lane)
        repeated = torch.zeros_like(s)
        steps = [None] * t
        backwards = reverse is not None and reverse[lane]
        for time in range(t - 1, -1, -1) if backwards else range(t):
            share = kept[time, :, lane] if training else torch.full_like(s, rate)
            within = share if cell.zoneout_in_gate else torch.zeros_like(s)
            x = inputs[time]
            lane_u = None if u is None else u[lane]
            entered = s * scale[:, lane] if cell.diagonal else s
            new, y = cell.step(x, entered, within, lane_u, activation, recurrent_activation)
            if not cell.zoneout_in_gate and rate > 0:
                new = share * s + (1 - share) * new
            if cell.outputs_state:
                y = new
            live = torch.ones(n, 1, dtype=torch.bool) if mask is None else mask[:, time, None]
            s = torch.where(live, new, s)
            repeated = torch.where(live, y, repeated)
            steps[time] = torch.where(live, y, 0.0) if zero_output_for_mask else repeated
        outputs.append(torch.stack(steps, 1))
        finals.append(s)
    return torch.stack(outputs, 2), torch.stack(finals, 1)
