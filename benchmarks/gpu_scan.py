"""The CUDA engine `scan` against the bandwidth of memory, on one GPU: needs torch.

    python -m benchmarks.gpu_scan [--cell forget_mult] [--csv FILE]

Scans do so little arithmetic that a copy is their peer: a copy of 1 GiB is timed in the same run
(bytes read plus bytes written), and `of copy` is a scan's bytes, each tensor counted once, over its
time, as a share of that. `fwd` keeps nothing, `fwd, kept` writes the reserve of backward as well.
Outputs and gradients are compared with a float64 reference first, on the inputs that are timed, and
a case that differs is not timed. Calls go round over copies of all tensors that together exceed the
L2 cache. Times are milliseconds a call, the median of runs of many calls.
"""

import argparse
import csv
import statistics
import sys

import torch

from tests.gpu.support import lib_ctypes

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
CELLS = ["forget_mult", "qrnn_fo", "qrnn_ifo", "mingru", "minlstm", "indrnn"]
# The layers' own where it is not tanh. (IndRNN has tanh here: drawn weights need a bound.)
ACTIVATIONS = {"mingru": "linear", "minlstm": "linear"}
FUNCTIONS = {"linear": lambda x: x, "tanh": torch.tanh}
SHAPES = [(16, 1024, 768), (1, 4096, 256), (64, 256, 1024)]  # N, T, H
COPY_BYTES = 1 << 30
L2_TIMES = 4  # the tensors that calls go round over, in L2 caches
RUNS, MIN_CALLS = 9, 20


def milliseconds(calls):
    """A call's time, each of `calls` in turn: in a CUDA graph, so that the host takes no part."""
    count = -(-MIN_CALLS // len(calls)) * len(calls)
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % len(calls)]()
    times = []
    for run in range(RUNS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        if run > 0:  # the first one warms up
            times.append(start.elapsed_time(end) / count)
    return statistics.median(times)


def copy_bandwidth():
    """Bytes a second, read plus written, of a copy of COPY_BYTES."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / milliseconds([lambda: target.copy_(source)]) * 1e3


class Scan:
    """A scan of libhaste's with its tensors: one lane, from random initial states."""

    def __init__(self, library, cell, shape, dtype, seed):
        n, t, h = shape
        self.library, self.info, self.cell = library, library.cell(cell), cell
        generator = torch.Generator("cuda").manual_seed(seed)

        def random(*size):
            return torch.randn(size, generator=generator, device="cuda").to(dtype)

        g = self.info.gates
        self.apart = bool(self.info.separate_gates)
        if self.apart:
            self.x = [torch.sigmoid(random(n, t, 1, h)), random(n, t, 1, h)]
            self.wx = self.gates = None
        else:
            self.x, self.wx = [], random(n, t, 1, g, h)
            self.gates = torch.empty_like(self.wx)
        self.u = random(1, g, h).mul_(0.5) if self.info.recurrence == 1 else None
        self.s0, self.dy = random(n, 1, h), random(n, t, 1, h)
        self.y, self.saved = torch.empty_like(self.dy), torch.empty_like(self.dy)
        self.final, self.ds0 = torch.empty_like(self.s0), torch.empty_like(self.s0)
        self.dx = [torch.empty_like(x) for x in self.x]
        self.dwx = None if self.apart else torch.empty_like(self.wx)
        self.du = None if self.u is None else torch.empty_like(self.u)
        like = self.dy.new_empty(n, t, 1, g, h, device="meta")
        activation = ACTIVATIONS.get(cell, "tanh")
        self.function = FUNCTIONS[activation]
        self.config = library.config(cell, like, activation=activation)
        self.scratch = [library.workspace(self.config, backward) for backward in (False, True)]

    def forward(self, keep):
        # A `gates` tensor asks for the reserve; a cell with separate gates does not read it.
        kept = {"gates": self.saved if self.apart else self.gates, "saved": [self.saved]}
        self.library.forward(
            self.config,
            self.wx,
            self.u,
            x=self.x,
            s0=[self.s0],
            sT=[self.final],
            y=self.y,
            workspace=self.scratch[0],
            **(kept if keep else {}),
        )

    def backward(self):
        self.library.backward(
            self.config,
            self.u,
            x=self.x,
            gates=self.gates,
            saved=[self.saved],
            dy=self.dy,
            dwx=self.dwx,
            dx=self.dx,
            dR=self.du,
            ds0=[self.ds0],
            workspace=self.scratch[1],
        )

    def bytes(self):
        """Bytes that forward, forward with its reserve, and backward must move."""

        def size(*tensors):
            return sum(x.numel() * x.element_size() for x in tensors if x is not None)

        read = size(*self.x, self.wx)
        forward = read + size(self.y, self.s0, self.final, self.u)
        kept = forward + size(self.saved, self.gates)
        backward = read + size(self.saved, self.dy, *self.dx, self.dwx, self.ds0, self.u, self.du)
        return forward, kept, backward

    def reference(self):
        """y, final state, gradients of the inputs, of s0 and of u, in float64 by autograd."""
        given = [*self.x] if self.apart else [self.wx]
        wide = [v.double().requires_grad_() for v in (*given, self.s0)]
        u = None if self.u is None else self.u.double().requires_grad_()
        gates = [v[:, :, 0] for v in wide[:-1]] if self.apart else wide[0][:, :, 0].unbind(2)
        s, outputs = wide[-1][:, 0], []
        if self.cell == "indrnn":
            for x in gates[0].unbind(1):
                s = self.function(x + u[0, 0] * s)
                outputs.append(s)
        else:
            keep, add, weight = self.affine(gates)
            for a, b in zip(keep.unbind(1), add.unbind(1), strict=True):
                s = a * s + b
                outputs.append(s)
        y = torch.stack(outputs, 1)
        if self.cell.startswith("qrnn"):
            y = weight * y
        wide += [] if u is None else [u]
        gradients = torch.autograd.grad((y * self.dy[:, :, 0].double()).sum(), wide)
        return y[:, :, None].detach(), s[:, None].detach(), *gradients

    def affine(self, gates):
        """a, b, w of s = a·s + b, y = w·s."""
        if self.cell == "forget_mult":
            return 1 - gates[0], gates[0] * gates[1], None
        if self.cell == "mingru":
            z = torch.sigmoid(gates[0])
            return 1 - z, z * self.function(gates[1]), None
        if self.cell == "minlstm":
            z = torch.sigmoid(gates[1]) / (torch.sigmoid(gates[0]) + torch.sigmoid(gates[1]))
            return 1 - z, z * self.function(gates[2]), None
        z, f, o, *i = self.function(gates[0]), *map(torch.sigmoid, gates[1:])
        return f, (i[0] if i else 1 - f) * z, o

    def error(self):
        """The largest ‖ours − reference‖ / ‖reference‖."""
        self.forward(keep=True)
        self.backward()
        ours = [self.y, self.final, *self.dx]
        ours += [v for v in (self.dwx, self.ds0, self.du) if v is not None]
        pairs = zip(ours, self.reference(), strict=True)
        return max(((a.double() - b).norm() / b.norm()).item() for a, b in pairs)


def measure(library, cell, shape, dtype, copy):
    scans = [Scan(library, cell, shape, dtype, 0)]
    error = scans[0].error()
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"{cell} {shape} {dtype}: error {error:.1e} against float64")
    torch.cuda.empty_cache()
    smallest = scans[0].bytes()[0]
    sets = -(-L2_TIMES * torch.cuda.get_device_properties(0).L2_cache_size // smallest)
    for seed in range(1, sets):
        scans.append(Scan(library, cell, shape, dtype, seed))
        scans[-1].forward(keep=True)
    runs = (
        ("fwd", [lambda s=s: s.forward(False) for s in scans]),
        ("fwd, kept", [lambda s=s: s.forward(True) for s in scans]),
        ("bwd", [s.backward for s in scans]),
    )
    for (name, calls), moved in zip(runs, scans[0].bytes(), strict=True):
        ms = milliseconds(calls)
        yield {
            "cell": cell,
            "N,T,H": ",".join(map(str, shape)),
            "dtype": str(dtype)[6:],
            "pass": name,
            "ms": ms,
            "MB": moved / 1e6,
            "of copy": moved / (ms * 1e-3) / copy,
            "error": error,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", choices=CELLS, action="append", help="default: all of them")
    parser.add_argument("--dtype", choices=[str(d)[6:] for d in TOLERANCE], action="append")
    parser.add_argument("--csv", help="write the rows there as well")
    args = parser.parse_args()
    path = lib_ctypes.library_path()
    if path is None or not torch.cuda.is_available():
        sys.exit("gpu_scan: needs a GPU and haste_keras/libhaste.so (or HASTE_LIBRARY)")
    library = lib_ctypes.Library(path)
    copy = copy_bandwidth()
    print(f"scan on {torch.cuda.get_device_name()}; copy: {copy / 1e12:.2f} TB/s", flush=True)
    rows = []
    for cell in args.cell or CELLS:
        for shape in SHAPES:
            for dtype in args.dtype or ["float32", "bfloat16"]:
                for row in measure(library, cell, shape, getattr(torch, dtype), copy):
                    if not rows:
                        print("  ".join(f"{name:>12}" for name in row))
                    cells = (v if isinstance(v, str) else f"{v:.3g}" for v in row.values())
                    print("  ".join(f"{cell:>12}" for cell in cells), flush=True)
                    rows.append(row)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
