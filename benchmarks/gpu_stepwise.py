"""The CUDA engine `stepwise` beside cuDNN (torch.nn.LSTM), on one GPU: needs torch.

    python -m benchmarks.gpu_stepwise [--dtype float32] [--csv FILE]

A layer is x·W + b by torch.matmul, then libhaste's recurrence; backward adds dx, dW, db and dR.
Each case first compares outputs and all gradients with cuDNN's, and is not timed if they differ.
Times are medians by CUDA events, in milliseconds; TF32 is off.
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


class Haste:
    """A layer of libhaste's with the weights of a torch.nn.LSTM."""

    def __init__(self, library, peer, x):
        self.library, self.x = library, x
        n, t, _ = x.shape
        h = peer.hidden_size
        self.kernel = peer.weight_ih_l0.detach().T.contiguous()
        self.recurrent = peer.weight_hh_l0.detach().T.contiguous().view(1, h, 4, h)
        self.bias = (peer.bias_ih_l0 + peer.bias_hh_l0).detach()
        self.gates = x.new_empty(n, t, 1, 4, h)
        self.y = x.new_empty(n, t, 1, h)
        self.states = [torch.empty_like(self.y) for _ in range(2)]
        self.config = library.config(self.gates)
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
            y=self.y,
            gates=self.gates,
            states=self.states,
            workspace=self.scratch[0],
        )

    def forward(self):
        self.project()
        self.recur()

    def recur_back(self, dy):
        self.library.backward(
            self.config,
            self.recurrent,
            gates=self.gates,
            states=self.states,
            dy=dy,
            dwx=self.gates,
            workspace=self.scratch[1],
        )

    def backward(self, dy):
        self.recur_back(dy)
        n, t, c = self.x.shape
        dwx = self.gates.view(n * t, -1)
        x, h = self.x.view(n * t, c), self.states[0].view(n * t, -1)
        return (dwx @ self.kernel.T).view_as(self.x), x.T @ dwx, h.T @ dwx, dwx.sum(0)


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


def measure(library, shape, dtype):
    n, t, c, h = shape
    peer = torch.nn.LSTM(c, h, batch_first=True, device="cuda", dtype=dtype)
    peer.flatten_parameters()
    x = torch.randn(n, t, c, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn(n, t, h, device="cuda", dtype=dtype)
    haste = Haste(library, peer, x.detach())

    def peer_step():
        peer.zero_grad()
        x.grad = None
        peer(x)[0].backward(dy)

    def peer_forward():
        with torch.no_grad():
            return peer(x)[0]

    def ours_step():
        haste.forward()
        return haste.backward(dy)

    peer_step()
    gradients = ours_step()
    theirs = (x.grad, peer.weight_ih_l0.grad.T, peer.weight_hh_l0.grad.T, peer.bias_ih_l0.grad)
    error = largest_error((haste.y[:, :, 0], *gradients), (peer_forward(), *theirs))
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"{shape} {dtype}: error {error:.1e} against cuDNN")

    recur = median_ms(haste.recur)
    forward = median_ms(haste.forward)
    both = median_ms(ours_step)
    peer_times = median_ms(peer_forward), median_ms(peer_step)
    haste.forward()
    back = median_ms(lambda: haste.recur_back(dy))
    return {
        "N,T,C,H": ",".join(map(str, shape)),
        "fwd": forward,
        "fwd+bwd": both,
        "cuDNN fwd": peer_times[0],
        "cuDNN fwd+bwd": peer_times[1],
        "us/step fwd": recur / t * 1e3,
        "us/step bwd": back / t * 1e3,
        "error": error,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
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
    print(f"{torch.cuda.get_device_name()}, {args.dtype}, milliseconds; cuDNN by torch", flush=True)
    rows = []
    for shape in shapes.GPU:
        row = measure(library, shape, dtype)
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
