"""Runs two layers that together fill a GPU of 132 multiprocessors repeatedly, with products that
overlap the walks: in two threads of a process, and in two processes.

    python tests/gpu/products/soak_overlap.py MINUTES [--how threads] [--dtype float32]
        [--time 2048]

LSTMs of N=16 H=768 and N=8 H=576 walk on 96 and 36 blocks. If both walks started before their own
products, they would wait for ever (docs/design/gpu_products.md). Exits with 1 if a call fails or
bits differ from those of the first run, and with 3 if there is no progress for 90 s.
"""

import argparse
import multiprocessing
import os
import pathlib
import sys
import threading
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import lib_ctypes

SHAPES = [(16, 768), (8, 576)]
PATIENCE = 90.0  # seconds
TOGETHER = 4  # runs that are queued before one waits for them


class Layer:
    """An LSTM of C = H units, forward and backward by haste_layer_*, on a stream of its own."""

    def __init__(self, lib, batch, hidden, steps, dtype):
        generator = torch.Generator("cuda").manual_seed(hidden)

        def make(*shape, by=1.0):
            return (torch.randn(*shape, device="cuda", generator=generator) * by).to(dtype)

        self.lib, self.stream = lib, torch.cuda.Stream()
        self.x = make(batch, steps, hidden)
        self.dy = make(batch, steps, 1, hidden)
        self.kernel = make(hidden, 1, 4, hidden, by=hidden**-0.5)
        self.recurrent = make(1, hidden, 4, hidden, by=hidden**-0.5)
        self.bias = make(1, 4, hidden)
        self.gates = torch.empty(batch, steps, 1, 4, hidden, device="cuda", dtype=dtype)
        self.config = lib.config("lstm", self.gates)
        self.saved = [torch.empty_like(self.dy) for _ in range(lib.cell("lstm").saved)]
        self.y = torch.empty_like(self.dy)
        like = {"dx": self.x, "dW": self.kernel, "db": self.bias, "dR": self.recurrent}
        self.gradients = {name: torch.empty_like(tensor) for name, tensor in like.items()}
        self.scratch = [
            lib.layer_workspace(self.config, hidden, wx=self.gates),
            lib.layer_workspace(self.config, hidden, backward=True),
        ]
        self.first = None
        self.differs = torch.zeros((), dtype=torch.bool, device="cuda")
        torch.cuda.synchronize()

    def results(self):
        return [self.y, *self.gradients.values()]

    def run(self):
        """Queues both passes, and a check of their bits."""
        with torch.cuda.stream(self.stream):
            self.lib.layer_forward(
                self.config, self.x, self.kernel, self.bias, self.recurrent, wx=self.gates,
                y=self.y, workspace=self.scratch[0], gates=self.gates, saved=self.saved,
            )  # fmt: skip
            self.lib.layer_backward(
                self.config, self.x, self.kernel, self.recurrent, gradients=self.gradients,
                workspace=self.scratch[1], gates=self.gates, saved=self.saved, dy=self.dy,
                dwx=self.gates,
            )  # fmt: skip
            if self.first is None:
                self.first = [tensor.clone() for tensor in self.results()]
            for ours, first in zip(self.results(), self.first, strict=True):
                self.differs |= ~torch.isclose(ours, first, rtol=0, atol=0, equal_nan=True).all()

    def wait(self):
        self.stream.synchronize()
        if self.differs.item():
            raise AssertionError("bits differ from those of the first run")


def watch(moved, end):
    """Ends the process if there is no progress for too long."""
    while time.monotonic() < end + PATIENCE:
        time.sleep(1)
        for name, at in list(moved.items()):
            if time.monotonic() - at > PATIENCE:
                print(f"{name}: no progress for {PATIENCE:.0f} s", flush=True)
                os._exit(3)


def soak(shapes, options):
    """Runs layers of these shapes, a thread each, until the time is over."""
    lib = lib_ctypes.Library(lib_ctypes.library_path())
    end = time.monotonic() + 60 * options.minutes
    moved, failures = {}, []

    def work(batch, hidden):
        name, runs = f"N={batch} H={hidden}", 0
        moved[name] = time.monotonic()
        try:
            layer = Layer(lib, batch, hidden, options.time, getattr(torch, options.dtype))
            print(f"{name}: {lib.plan(layer.config)}", flush=True)
            while time.monotonic() < end and not failures:
                for _ in range(TOGETHER):
                    layer.run()
                layer.wait()
                runs += TOGETHER
                moved[name] = time.monotonic()
        except (AssertionError, RuntimeError) as error:
            failures.append(name)
            print(f"{name}: after {runs} runs: {error}", flush=True)
        del moved[name]
        print(f"{name}: {runs} runs", flush=True)

    threading.Thread(target=watch, args=(moved, end), daemon=True).start()
    threads = [threading.Thread(target=work, args=shape) for shape in shapes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        os._exit(1)  # a failed context may hang in destructors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("minutes", type=float, help="of each of the two ways")
    parser.add_argument("--how", choices=["threads", "processes", "both"], default="both")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--time", type=int, default=2048, help="steps")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ways = {"threads": [SHAPES], "processes": [[shape] for shape in SHAPES]}
    for how, groups in ways.items():
        if options.how not in (how, "both"):
            continue
        print(f"In {how}:", flush=True)
        workers = [spawn.Process(target=soak, args=(shapes, options)) for shapes in groups]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode != 0 for worker in workers):
            sys.exit(max(abs(worker.exitcode) for worker in workers))


if __name__ == "__main__":
    main()
