"""The CUDA engine `stepwise` beside cuDNN (torch.nn.LSTM, GRU, RNN), on one GPU: needs torch.

    python -m benchmarks.gpu_stepwise [--cell lstm] [--dtype float32] [--csv FILE]

A layer is x·W + b by torch.matmul, then libhaste's recurrence; backward adds dx, dW, db and dR.
Each case first compares outputs and all gradients with cuDNN's, and is not timed if they differ.
Cells that cuDNN has not are timed alone, on random weights. Times are medians by CUDA events, in
milliseconds; TF32 is off.
"""

import argparse
import csv
import statistics
import sys

import torch

from benchmarks import shapes
from tests.gpu import lib_ctypes

TOLERANCE = {
    torch.float32: 1e-4,
    torch.float64: 1e-10,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
# The peer, and where it has each of our gates.
PEERS = {
    "lstm": (torch.nn.LSTM, (0, 1, 2, 3)),
    "gru": (torch.nn.GRU, (1, 0, 2)),  # torch: r, z, n
    "elman": (torch.nn.RNN, (0,)),
    "gru_reset_before": None,
    "slstm": None,
}


class Peer:
    """A layer of cuDNN's, its weights and gradients in our order of gates."""

    def __init__(self, cell, x, h):
        kind, self.order = PEERS[cell]
        self.x = x.detach().requires_grad_()
        self.layer = kind(x.shape[-1], h, batch_first=True, device="cuda", dtype=x.dtype)
        self.layer.flatten_parameters()

    def _ordered(self, of, split_bias):
        """Kernel [C, G·H], recurrent kernel [H, G·H], bias [G·H], and of h·R where it is apart."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        ordered = []
        for name in names:
            value = of(getattr(self.layer, name))
            gates = value.view(len(self.order), self.layer.hidden_size, -1)[list(self.order)]
            ordered.append(gates.reshape(value.shape).T.contiguous())
        return ordered if split_bias else ordered[:3]

    def weights(self, split_bias):
        kernel, recurrent, *biases = self._ordered(lambda p: p.detach(), True)
        return [kernel, recurrent, *(biases if split_bias else [sum(biases)])]

    def gradients(self, split_bias):
        return [self.x.grad, *self._ordered(lambda p: p.grad, split_bias)]

    def forward(self):
        with torch.no_grad():
            return self.layer(self.x)[0]

    def step(self, dy):
        self.layer.zero_grad()
        self.x.grad = None
        self.layer(self.x)[0].backward(dy)


class Haste:
    """A layer of libhaste's; weights: kernel, recurrent kernel, bias, and of h·R where it is."""

    def __init__(self, library, cell, x, weights):
        self.library, self.x, self.info = library, x, library.cell(cell)
        n, t, _ = x.shape
        self.kernel, recurrent, self.bias, *extra = weights
        h, g = recurrent.shape[0], self.info.gates
        self.recurrent = recurrent.view(1, h, g, h)
        self.extra = [e.view(1, g, h) for e in extra]
        self.gates = x.new_empty(n, t, 1, g, h)
        self.y = x.new_empty(n, t, 1, h)
        self.saved = [torch.empty_like(self.y) for _ in range(self.info.saved)]
        self.dq = torch.empty_like(self.gates) if self.info.splits_gradient else None
        self.dextra = [torch.empty_like(e) for e in self.extra]
        self.config = library.config(cell, self.gates)
        self.scratch = [library.workspace(self.config, backward) for backward in (False, True)]

    def project(self):
        n, t, c = self.x.shape
        rows = self.gates.view(n * t, -1)
        torch.addmm(self.bias, self.x.view(n * t, c), self.kernel, out=rows)

    def recur(self):
        self.library.forward(
            self.config,
            self.gates,
            self.recurrent,
            extra=self.extra,
            y=self.y,
            gates=self.gates,
            saved=self.saved,
            workspace=self.scratch[0],
        )

    def forward(self):
        self.project()
        self.recur()

    def recur_back(self, dy):
        self.library.backward(
            self.config,
            self.recurrent,
            extra=self.extra,
            gates=self.gates,
            saved=self.saved,
            dy=dy,
            dwx=self.gates,
            dq=self.dq,
            dextra=self.dextra,
            workspace=self.scratch[1],
        )

    def backward(self, dy):
        """dx, dW, dR, db, and that of the bias of h·R."""
        self.recur_back(dy)
        n, t, _ = self.x.shape
        dwx = self.gates.view(n * t, -1)
        dq = dwx if self.dq is None else self.dq.view(n * t, -1)
        x, *saved = (v.view(n * t, -1) for v in (self.x, *self.saved))
        split = self.info.reset_gates * saved[0].shape[1] or dq.shape[1]
        recurrent = [saved[0].T @ dq[:, :split]]
        if split < dq.shape[1]:
            recurrent.append(saved[1].T @ dq[:, split:])
        dx = (dwx @ self.kernel.T).view_as(self.x)
        dextra = [e.view(-1) for e in self.dextra]
        return dx, x.T @ dwx, torch.cat(recurrent, 1), dwx.sum(0), *dextra


def random_weights(info, x, h):
    """As Peer.weights, for a cell that has no peer."""
    columns = info.gates * h
    shapes_of = [(x.shape[-1], columns), (h, columns)] + [(columns,)] * (1 + info.extras)
    return [torch.randn(s, device="cuda").mul_(h**-0.5).to(x.dtype) for s in shapes_of]


def median_ms(run, repeats=7):
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def largest_error(ours, theirs):
    pairs = zip(ours, theirs, strict=True)
    return max(((a.double() - b.double()).norm() / b.double().norm()).item() for a, b in pairs)


def measure(library, cell, shape, dtype):
    n, t, c, h = shape
    x = torch.randn(n, t, c, device="cuda", dtype=dtype)
    dy = torch.randn(n, t, h, device="cuda", dtype=dtype)
    info = library.cell(cell)
    peer = Peer(cell, x, h) if PEERS[cell] else None
    split_bias = info.extras > 0
    weights = peer.weights(split_bias) if peer else random_weights(info, x, h)
    haste = Haste(library, cell, x, weights)

    def ours_step():
        haste.forward()
        return haste.backward(dy)

    row = {"N,T,C,H": ",".join(map(str, shape))}
    gradients = ours_step()
    if peer:
        peer.step(dy)
        theirs = (peer.forward(), *peer.gradients(split_bias))
        error = largest_error((haste.y[:, :, 0], *gradients), theirs)
        if not error <= TOLERANCE[dtype]:
            raise SystemExit(f"{cell} {shape} {dtype}: error {error:.1e} against cuDNN")
    recur = median_ms(haste.recur)
    row |= {"fwd": median_ms(haste.forward), "fwd+bwd": median_ms(ours_step)}
    if peer:
        row |= {"cuDNN fwd": median_ms(peer.forward)}
        row |= {"cuDNN fwd+bwd": median_ms(lambda: peer.step(dy))}
    haste.forward()
    back = median_ms(lambda: haste.recur_back(dy))
    row |= {"us/step fwd": recur / t * 1e3, "us/step bwd": back / t * 1e3}
    return row | ({"error": error} if peer else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", default="lstm", choices=list(PEERS))
    parser.add_argument("--dtype", default="float32", choices=[str(d)[6:] for d in TOLERANCE])
    parser.add_argument("--csv", help="write the rows there as well")
    args = parser.parse_args()
    path = lib_ctypes.library_path()
    if path is None or not torch.cuda.is_available():
        sys.exit("gpu_stepwise: needs a GPU and haste_keras/libhaste.so (or HASTE_LIBRARY)")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    dtype = getattr(torch, args.dtype)
    library = lib_ctypes.Library(path)
    device = torch.cuda.get_device_name()
    print(f"{args.cell} on {device}, {args.dtype}, milliseconds; cuDNN by torch", flush=True)
    rows = []
    for shape in shapes.GPU:
        row = measure(library, args.cell, shape, dtype)
        if not rows:
            print("  ".join(f"{name:>16}" for name in row))
        cells = (v if isinstance(v, str) else f"{v:.3g}" for v in row.values())
        print("  ".join(f"{cell:>16}" for cell in cells), flush=True)
        rows.append(row)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
