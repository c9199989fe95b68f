"""haste_keras on a CPU against keras.layers, PyTorch and ONNX Runtime: inference, training step.

    python -m benchmarks.cpu [--layers LSTM GRU …] [--shape N T C H] [--seconds 4] [--csv FILE]
                             [--plot FILE] [--phases PHASE …] [--small]
                             [--dtype {float32,bfloat16,int8}]

float32, return_sequences, the same weights, ours and Keras's inside tf.function. If Keras does not
have the layer, the peer is Keras's loop over our step-wise cell; some layers are also compared with
another layer (`vs`: its time over ours). PyTorch and ONNX Runtime (inference only) are timed if
they are installed, see requirements-bench.txt: the columns are their times over ours. A training
step is forward and the gradients of all weights and of the input. Each case first compares outputs
and gradients with the peers', and is not timed if they differ.

`bound` is the ratio that the layer would show if its multiply-adds ran at the speed of one large
tf.matmul, timed in turn with the peers, and everything else were free. Both sides do the same
multiply-adds, so a ratio far above it is out of reach in float32. `reach` is the ratio of a
training step whose recurrence runs at that speed and whose other parts are TensorFlow's: the call,
x·W + b, dx, dW, dR and the bias's gradient, timed in turn too. The last columns are the peak memory
of our training step and its budget: the reserve (gates and states), inputs, outputs and gradients,
and one recurrent kernel.

--dtype bfloat16, --dtype int8: inference in it beside the peers' own, see narrow.py.
--small: small batches in inference instead, see small.py.
"""

import argparse
import csv
import functools
import json
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from benchmarks import cases, measure, shapes
from benchmarks.cpu import narrow, peers, small

MATMUL_SIZE = 1024
PHASES = ("inference", "training")
# Columns of a table in addition to the comparison with Keras.
COLUMNS = {"inference": ("torch", "ort", "vs"), "training": ("reach", "torch", "vs")}
REST, BURST = 0.02, 0.05  # seconds; see measure.interleaved_medians


def make_matmul():
    """One large product: the machine's best rate of multiply-adds, to compare with."""
    a = tf.random.normal((MATMUL_SIZE, MATMUL_SIZE))
    return tf.function(lambda: tf.matmul(a, a))


def run_case(name, shape, seconds, phases=PHASES):
    """Medians of `phases`, of inference and of a training step: {phase: {peer: seconds}}."""
    x, target, layers = cases.make_layers(name, *shape)
    steps = [cases.make_functions(layer, x, target) for layer in layers]
    beside = {}
    if peers.knows(name):
        beside = {
            who: make(name, layers[1].get_weights(), x.numpy(), target.numpy())
            for who, make in peers.installed().items()
        }
    medians = {}
    for kind in phases:
        i = PHASES.index(kind)
        where = f"{name} {shape} {kind}"
        cases.check(steps[0][i], steps[1][i], f"{where}: ours and Keras's")
        functions = dict(zip(("ours", "keras", "other"), (step[i] for step in steps), strict=False))
        blocking = {who: cases.blocking(function) for who, function in functions.items()}
        for who, peer in beside.items():
            function, to_keras = peer.of(kind)
            if function is None:
                continue
            check = functools.partial(peers.in_keras_layout, function, to_keras)
            cases.check(check, steps[1][i], f"{where}: {who}'s and Keras's")
            blocking[who] = function
        blocking["matmul"] = cases.blocking(make_matmul())
        rest = cases.make_surroundings(name, *shape) if kind == "training" else None
        if rest is not None:
            blocking["rest"] = cases.blocking(rest)
        for function in blocking.values():
            function()
        medians[kind] = measure.interleaved_medians(blocking, seconds, rest=REST, burst=BURST)
    return medians


def describe(times, work, of_recurrence):
    """Milliseconds, the ratio to Keras and its bounds, from the medians of a case.

    work, of_recurrence: multiply-adds, of all and of the products of a step.
    """
    multiply_add = times["matmul"] / MATMUL_SIZE**3
    floor = work * multiply_add
    reach = {}
    if "rest" in times:
        reach["reach"] = times["keras"] / (times["rest"] + of_recurrence * multiply_add)
    columns = {"other": "vs", "torch": "torch", "ort": "ort"}
    return {
        **{column: times[who] / times["ours"] for who, column in columns.items() if who in times},
        "ms": 1e3 * times["ours"],
        "keras_ms": 1e3 * times["keras"],
        "ratio": times["keras"] / times["ours"],
        "bound": times["keras"] / floor,
        **reach,
    }


def memory_of(name, shape):
    """Peak bytes of our training step, in a process of its own."""
    code = (
        "import json, sys; from benchmarks import cases, measure;"
        "step = cases.make_case(sys.argv[1], *json.loads(sys.argv[2]))[0][1]; step(); step();"
        "print(measure.peak_bytes(step))"
    )
    # oneDNN's allocator and malloc's free lists keep freed memory, so both are turned off.
    environment = dict(os.environ, TF_ENABLE_ONEDNN_OPTS="0", MALLOC_MMAP_THRESHOLD_="262144")
    command = [sys.executable, "-c", code, name, json.dumps(shape)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def plot(rows, path):
    """Bars of the speed-up of one layer over Keras's, a pair for each shape."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = ["×".join(str(s) for s in row["shape"]) for row in rows]
    at = np.arange(len(rows))
    plt.figure(figsize=(9, 4))
    plt.bar(at - 0.2, [r["inference_ratio"] for r in rows], 0.4, label="inference")
    plt.bar(at + 0.2, [r["training_ratio"] for r in rows], 0.4, label="training step")
    plt.axhline(1, color="black", linewidth=0.8)
    plt.yscale("log")
    plt.yticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
    plt.minorticks_off()
    plt.ylabel("times faster than keras.layers")
    plt.xticks(at, labels, rotation=15)
    plt.xlabel("N×T×C×H")
    plt.title(f"haste_keras.{rows[0]['layer']}, float32, {os.cpu_count()} CPU cores")
    plt.legend()
    plt.grid(axis="y", alpha=0.3)
    plt.tight_layout()
    plt.savefig(path, dpi=120)


def run_row(name, shape, options):
    """Times a layer at a shape and prints the line; returns the numbers by column."""
    row = {"layer": name, "shape": shape}
    text = f"{name:10}" + "".join(f"{s:5}" for s in shape)
    work = cases.multiply_adds(name, *shape)
    medians = run_case(name, shape, options.seconds, options.phases)
    for kind, times in medians.items():
        times_work = 3 if kind == "training" else 1
        # A step is multiplied once forward and once backward.
        of_recurrence = 2 * cases.multiply_adds(name, *shape, of_x=False)
        numbers = describe(times, times_work * work, of_recurrence)
        text += " |{ms:8.2f} {keras_ms:6.1f} {ratio:6.2f} {bound:6.2f}".format(**numbers)
        for column in COLUMNS[kind]:
            text += f" {numbers[column]:6.2f}" if column in numbers else 7 * " "
        row.update({f"{kind}_{key}": value for key, value in numbers.items()})
    if not options.no_memory and "training" in options.phases:
        row["mib"] = memory_of(name, shape) / 2**20
        row["budget_mib"] = cases.memory_budget(name, *shape) / 2**20
        text += " |{mib:4.0f} {budget_mib:6.0f}".format(**row)
    print(text, flush=True)
    return row


def print_means(name, rows):
    """Prints the geometric means of a layer's ratios."""
    texts = []
    for kind in PHASES:
        text = kind
        for key in ("ratio", "bound", *COLUMNS[kind]):
            values = [row[f"{kind}_{key}"] for row in rows if f"{kind}_{key}" in row]
            if values:
                text += f" {key} {measure.geometric_mean(values):.2f}"
        if text != kind:
            texts.append(text)
    other = cases.LAYERS[name].other
    versus = f" (vs: {other[0]})" if other else ""
    print(f"{name}: geometric means: {', '.join(texts)}{versus}", flush=True)


def write_csv(path, rows):
    """Writes rows, each {column: value}, unless path is None."""
    if path is None:
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, dict.fromkeys(key for row in rows for key in row))
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--layers", nargs="+", choices=list(cases.LAYERS), default=["LSTM", "GRU", "Elman"]
    )
    parser.add_argument(
        "--shape", nargs=4, type=int, action="append", metavar=tuple("NTCH"), help="in place of all"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="to time a pair of peers")
    parser.add_argument("--csv", help="write the table there")
    parser.add_argument("--plot", help="draw it there")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory columns")
    parser.add_argument(
        "--phases", nargs="+", choices=PHASES, default=PHASES, help="what of a layer is timed"
    )
    parser.add_argument("--small", action="store_true", help="small batches, inference")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "int8"), default="float32", help="of the weights"
    )
    options = parser.parse_args()
    if options.plot and len(options.phases) < len(PHASES):
        parser.error("--plot draws both phases. Received: --phases " + " ".join(options.phases))
    if options.small and options.dtype != "float32":
        parser.error(f"--small is a table in float32. Received: --dtype {options.dtype}")

    print(
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {options.dtype}, "
        f"{os.cpu_count()} cores"
    )
    print(f"peers beside Keras: {', '.join(peers.versions()) or 'none is installed'}")
    if options.small:
        chosen = [tuple(shape) for shape in options.shape or shapes.CPU_SMALL]
        return write_csv(options.csv, small.run(options.layers, chosen, options.seconds))
    if options.dtype != "float32":
        chosen = [tuple(shape) for shape in options.shape or shapes.CPU_NARROW]
        rows = narrow.run(options.layers, chosen, options.dtype, options.seconds)
        return write_csv(options.csv, rows)
    print("medians; ratio = keras / ours; memory: peak of a training step, MiB")
    print("layer        N    T    C    H", end="")
    for kind in options.phases:
        columns = "".join(f" {column:>6}" for column in COLUMNS[kind])
        print(f" | {kind[:5]} ms  keras  ratio  bound{columns}", end="")
    print("" if options.no_memory else " | MiB budget")
    rows = []
    for name in options.layers:
        of_layer = [
            run_row(name, shape, options) for shape in map(tuple, options.shape or shapes.CPU)
        ]
        print_means(name, of_layer)
        rows += of_layer
    write_csv(options.csv, rows)
    if options.plot:
        plot([row for row in rows if row["layer"] == options.layers[0]], options.plot)


if __name__ == "__main__":
    main()
