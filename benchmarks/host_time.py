"""Host time of a call of the C ABI: the time until the call returns. Needs torch.

    python -m benchmarks.host_time                  on the GPU, if there is one, else on the CPU
    HASTE_LIBRARY=/elsewhere/libhaste.so python -m benchmarks.host_time --device cpu

Microseconds, medians over batches of calls. On a GPU there is no wait within a batch, which is
small enough for the queue of launches. `bytes` is the query for the workspace that TensorFlow's ops
make before each call. Each figure includes about a microsecond of ctypes.
"""

import argparse
import ctypes
import statistics
import time

import torch

from tests.gpu.support import lib_ctypes

# N, T, C, H
SIZES = [(1, 1, 64, 64), (1, 100, 64, 64), (16, 1, 768, 768), (16, 100, 768, 768)]
CELLS = ["lstm", "gru"]
BATCH, BATCHES = 20, 40


class Calls:
    """A layer's calls with everything made beforehand: `run[name]()` is one."""

    def __init__(self, library, cell, dtype, size):
        n, t, c, h = size
        info = library.cell(cell)
        gates = info.gates

        def make(*shape):
            return torch.randn(*shape, dtype=torch.float32, device=library.device).to(dtype) * 0.1

        self.library = library
        self.x, self.kernel, self.recurrent = (
            make(n, t, c),
            make(c, 1, gates, h),
            make(1, h, gates, h),
        )
        self.bias, self.gates = make(1, gates, h), make(n, t, 1, gates, h)
        self.y, self.dwx = make(n, t, 1, h), make(n, t, 1, gates, h)
        self.saved = [torch.zeros_like(self.y) for _ in range(info.saved)]
        self.dq = make(n, t, 1, gates, h) if info.splits_gradient else None
        extra = [make(1, gates, h) for _ in range(info.extras)]
        gradients = [torch.zeros_like(t) for t in (self.x, self.kernel, self.bias, self.recurrent)]
        dextra = [torch.zeros_like(t) for t in extra]
        config = library.config(cell, self.gates, training=1)
        scratch = [
            library.layer_workspace(
                config, c, wx=None if backward else self.gates, backward=backward
            )
            for backward in (False, True)
        ]
        self.keep = (config, scratch, extra, gradients, dextra)
        tensors = {"gates": self.gates, "saved": self.saved, "extra": extra}
        self.run = {
            "bytes": lambda: library.layer_bytes(config, c, self.gates),
            "plan": lambda: library.plan(config),
            "forward": self._prepared(
                library.layer_forward, config, self.x, self.kernel, self.bias, self.recurrent,
                wx=self.gates, y=self.y, workspace=scratch[0], **tensors,
            ),
            "backward": self._prepared(
                library.layer_backward, config, self.x, self.kernel, self.recurrent,
                gradients=dict(zip(("dx", "dW", "db", "dR"), gradients, strict=True)),
                workspace=scratch[1], dy=self.y, dwx=self.dwx, dq=self.dq, dextra=dextra, **tensors,
            ),
        }  # fmt: skip

    def _prepared(self, call, *args, **kwargs):
        """The arguments that `call` passes to the C ABI, prepared beforehand."""
        passed = []

        class Recorder(lib_ctypes.Library):
            def __init__(self, library):
                self.__dict__.update(library.__dict__)

            def call(self, name, *arguments):
                passed.append((getattr(self._lib, name), arguments))

        getattr(Recorder(self.library), call.__name__)(*args, **kwargs)
        ((function, arguments),) = passed
        status = lib_ctypes.Status()
        whole = (*arguments, ctypes.byref(status))

        def run():
            if function(*whole) != 0:
                raise RuntimeError(status.message.decode())

        return run

    def microseconds(self, name):
        run, samples = self.run[name], []
        for batch in range(BATCHES + 3):
            if self.library.device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(BATCH):
                run()
            if batch >= 3:
                samples.append(1e6 * (time.perf_counter() - start) / BATCH)
        return statistics.median(samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    options = parser.parse_args()
    library = lib_ctypes.Library(lib_ctypes.library_path(), options.device)
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"µs a call on {where}, {lib_ctypes.library_path()}")
    names = ("bytes", "plan", "forward", "backward")
    print(f"{'cell dtype':16s} {'N, T, C, H':20s}" + "".join(f"{name:>10s}" for name in names))
    dtypes = [torch.float32] + [torch.bfloat16] * (options.device == "cuda")
    for cell in CELLS:
        for dtype in dtypes:
            for size in SIZES:
                calls = Calls(library, cell, dtype, size)
                times = "".join(f"{calls.microseconds(name):10.1f}" for name in names)
                print(f"{cell + ' ' + str(dtype)[6:]:16s} {str(size)[1:-1]:20s}{times}", flush=True)


if __name__ == "__main__":
    main()
