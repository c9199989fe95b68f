"""libhaste's CUDA recurrences against cuDNN (torch.nn.LSTM, GRU, RNN), on one GPU: needs torch.

    python -m benchmarks.gpu                             the cases that goals were stated for
    python -m benchmarks.gpu --setting shapes --cell lstm gru --dtype float32
    python -m benchmarks.gpu --setting grid --dtype bfloat16 --csv grid.csv --time-limit 300
    python -m benchmarks.gpu --only N=1,16 H=768 --engine stepwise

A layer is haste_layer_forward and _backward, as TensorFlow's layers call them: x·W + b and the
recurrence, with the gradients dx, dW, db and dR. A recurrence alone (C=0) has the gradient of wx,
and torch computes those of R and the biases. Each case is checked (`check.py`) and not timed if it
is wrong. `infer` keeps nothing for a gradient, `fwd` is forward in training, `both` forward and
backward. Times are medians by CUDA events in milliseconds; a sample has as many calls as take a
millisecond. "tf32" is float32 on both sides with TF32 allowed.
"""

import argparse
import collections
import pathlib
import sys
import time
import zlib

import torch

from benchmarks.gpu.cases import CELLS, DTYPES, grid, headline, usual
from benchmarks.gpu.check import WrongResultError, check
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.peers import Cudnn, Haste, cudnn_has, random_weights
from benchmarks.gpu.table import Table, summarize
from tests.gpu.support import lib_ctypes


def measure_case(library, case, engine, clock, alone):
    """A row of the table: what ran, its error, and the times; with `alone` of the recurrence too.

    Raises:
      WrongResultError, or RuntimeError of libhaste or torch.
    """
    torch.manual_seed(zlib.crc32(str(case).encode()))  # inputs do not depend on earlier cases
    dtype, device = DTYPES[case.dtype], library.device
    tf32 = case.dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    x = torch.randn(case.N, case.T, case.C, device=device, dtype=dtype) if case.C else None
    dy = torch.randn(case.N, case.T, case.K, case.H, device=device, dtype=dtype)
    info = library.cell(case.cell)
    cudnn = Cudnn(case, x) if cudnn_has(case) else None
    if cudnn:
        weights = cudnn.weights(split_bias=info.extras > 0)
    else:
        weights = random_weights(info, case, device, dtype)
    haste = Haste(library, case, x, weights, engine)
    row = {"plan": haste.plan()}
    row["error"], row["against"] = check(haste, cudnn, dy)
    runs = {"infer": haste.infer, "fwd": haste.forward, "both": lambda: haste.step(dy)}
    if cudnn:
        theirs = dy.flatten(2)
        runs |= {"cudnn infer": cudnn.infer, "cudnn fwd": cudnn.forward}
        runs |= {"cudnn both": lambda: cudnn.step(theirs)}
    if alone:
        runs |= {"recur": haste.recur, "recur back": lambda: haste.recur_back(dy)}
    for name, run in runs.items():
        row[name], row["samples"] = clock.median(run)
    if case.flashrnn:
        row["flashrnn fwd"], row["flashrnn both"] = case.flashrnn
    return row


def selected(options):
    """The cases that the command line asks for."""
    if options.setting == "headline":
        cases = headline()
    else:
        setting = {"shapes": usual, "grid": grid}[options.setting]
        cases = setting(options.cell or ["lstm"], options.dtype or ["float32"])
    cases = list(dict.fromkeys(cases))
    for name, wanted in (("cell", options.cell), ("dtype", options.dtype), *options.only):
        cases = [c for c in cases if not wanted or getattr(c, name) in wanted]
    return cases[:: options.every]


def run(library, cases, options):
    """Measures the cases, prints and writes each; returns the rows."""
    table = Table(options.csv)
    done = table.done(options.engine) if options.resume else set()
    clock = Clock(library.device, options.budget)
    alone = options.setting != "grid"
    end = time.monotonic() + options.time_limit if options.time_limit else float("inf")
    rows = []
    for i, case in enumerate(cases):
        if case in done:
            continue
        if time.monotonic() > end:
            print(f"time limit: {len(cases) - i} cases are left out")
            break
        try:
            row = measure_case(library, case, options.engine, clock, alone)
        except (WrongResultError, RuntimeError) as error:
            row = {"note": f"{type(error).__name__}: {error}".splitlines()[0]}
            if library.device == "cuda":
                torch.cuda.synchronize()  # raises if the context is lost
        rows.append(table.add(case, options.engine, row))
    return rows


def _only(text):
    """N=1,16 → ("N", [1, 16])."""
    name, _, values = text.partition("=")
    if name not in tuple("NTCHK") or not values:
        raise argparse.ArgumentTypeError(f"expected one of N, T, C, H, K = sizes, got {text!r}")
    return name, [int(value) for value in values.split(",")]


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--setting", default="headline", choices=["headline", "shapes", "grid"])
    add("--cell", nargs="+", choices=CELLS, help="default: lstm, or all of headline")
    add("--dtype", nargs="+", choices=list(DTYPES), help="default: float32; headline: all")
    add("--engine", default="auto", help="of libhaste: auto, cluster, grid or stepwise")
    add("--only", nargs="+", type=_only, default=[], metavar="N=1,16", help="cases of these sizes")
    add("--every", type=int, default=1, metavar="n", help="each n-th case")
    add("--time-limit", type=float, metavar="s", help="start no case after this many seconds")
    add("--budget", type=float, default=60.0, metavar="ms", help="to time one function")
    add("--csv", type=pathlib.Path, help="append each row to this file as it is measured")
    add("--resume", action="store_true", help="leave out cases that --csv has")
    add("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try this program")
    options = parser.parse_args(arguments)
    if options.resume and options.csv is None:
        parser.error("--resume needs --csv")
    return options


def main():
    options = parse()
    path = lib_ctypes.library_path()
    if path is None or (options.device == "cuda" and not torch.cuda.is_available()):
        sys.exit("gpu: needs a GPU and haste_keras/libhaste.so (or HASTE_LIBRARY)")
    library = lib_ctypes.Library(path, options.device)
    cases = selected(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    peer = f"cuDNN {torch.backends.cudnn.version()}"
    if options.device == "cpu":
        peer = "torch's CPU layers in cuDNN's place"
    print(f"{len(cases)} cases on {name}, torch {torch.__version__}, {peer}; medians in ms")
    rows = run(library, cases, options)
    summarize(rows)
    wrong = collections.Counter(row["note"].split(":")[0] for row in rows if row["note"])
    if wrong:
        sys.exit("not timed: " + ", ".join(f"{count} of {kind}" for kind, count in wrong.items()))


if __name__ == "__main__":
    main()
