"""A stack of large LSTM layers through the C library, beside cuDNN.

Three layers of 1,150 units, the size of the AWD-LSTM (Merity, Keskar & Socher, ICLR 2018), whose
rows begin at no multiples of 16 bytes. Each of our layers is compared with float64 or cuDNN before
it is timed. Times are those of CUDA events around several calls, medians: a single one would count
the host's time, of which torch takes more.
"""

import argparse

import torch

from benchmarks.gpu.cases import DTYPES, Case
from benchmarks.gpu.check import check
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.peers import Cudnn, Haste
from tests.gpu.support import lib_ctypes

CALLS = 20  # of a sample


def run_row(library, dtype, sizes):
    """Prints the times of a dtype. sizes: (N, T, C, H, layers)."""
    n, t, features, hidden, count = sizes
    torch.manual_seed(0)
    tf32 = dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    dy = torch.randn(n, t, 1, hidden, device="cuda", dtype=DTYPES[dtype])
    layers = []
    for width in (features, *(count - 1) * (hidden,)):
        case = Case("lstm", dtype, n, t, width, hidden)
        x = torch.randn(n, t, width, device="cuda", dtype=DTYPES[dtype])
        cudnn = Cudnn(case, x)
        layers.append(
            Haste(library, case, x, cudnn.weights(split_bias=library.cell("lstm").extras > 0))
        )
        check(layers[-1], cudnn, dy)
    net = torch.nn.LSTM(features, hidden, num_layers=count, batch_first=True)
    net = net.to("cuda", DTYPES[dtype])
    net.flatten_parameters()
    x = torch.randn(n, t, features, device="cuda", dtype=DTYPES[dtype], requires_grad=True)

    def infer():
        with torch.no_grad():
            net(x)

    def train():
        net.zero_grad()
        x.grad = None
        net(x)[0].backward(dy[:, :, 0])

    clock = Clock("cuda", budget=1000)
    ours = [
        clock.median(lambda: [layer.infer() for layer in layers], CALLS)[0],
        clock.median(lambda: [layer.step(dy) for layer in layers], CALLS)[0],
    ]
    theirs = [clock.median(infer, CALLS)[0], clock.median(train, CALLS)[0]]
    texts = [f"{a:8.2f}{b:8.2f}{b / a:6.2f}" for a, b in zip(ours, theirs, strict=True)]
    print(f"{dtype:9}|", " |".join(texts), flush=True)


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["bfloat16", "float16"])
    for name, value in {"batch": 128, "steps": 35, "features": 400, "units": 1150}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--layers", type=int, default=3)
    arguments = parser.parse_args()
    library = lib_ctypes.Library(lib_ctypes.library_path(), "cuda")
    print(torch.cuda.get_device_name(), "cuDNN", torch.backends.cudnn.version())
    print("ms       | inference: ours, cuDNN, ratio | training: ours, cuDNN, ratio")
    sizes = (
        arguments.batch,
        arguments.steps,
        arguments.features,
        arguments.units,
        arguments.layers,
    )
    for dtype in arguments.dtype:
        run_row(library, dtype, sizes)


if __name__ == "__main__":
    main()
