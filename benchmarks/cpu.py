"""haste_keras against keras.layers on a CPU: inference and a training step, inside tf.function.

    python -m benchmarks.cpu [--seconds 4] [--csv FILE] [--plot FILE]

float32, return_sequences, the same weights. A training step is forward and the gradients of all
weights and of the input. Each case first compares outputs and gradients with Keras's, and is not
timed if they differ.

`bound` is the ratio that the layer would show if its multiply-adds ran at the speed of one large
tf.matmul, timed in turn with the peers, and everything else were free: both sides do the same
multiply-adds, so a ratio far above it is out of reach in float32. The last columns state the memory
of our training step at its peak, beside what it should need: the reserve (gates and states),
inputs, outputs and gradients, and one recurrent kernel.
"""

import argparse
import csv
import json
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from benchmarks import cases, measure, shapes

MATMUL_SIZE = 1024


def make_matmul():
    """One large product: what the machine's multiply-adds can do at best, to compare with."""
    a = tf.random.normal((MATMUL_SIZE, MATMUL_SIZE))
    return tf.function(lambda: tf.matmul(a, a))


def multiply_adds(name, n, t, c, h):
    """Of a forward pass; a training step has three times as many."""
    gates = cases.LAYERS[name][2]
    return n * t * gates * h * (c + h)


def run_case(name, shape, seconds):
    """Medians of inference and of a training step: {peer: seconds} each."""
    (infer, train), (peer_infer, peer_train) = cases.make_case(name, *shape)
    cases.check(infer, peer_infer, f"{name} {shape} inference")
    cases.check(train, peer_train, f"{name} {shape} training")

    matmul = make_matmul()
    functions = (
        {"ours": infer, "keras": peer_infer, "matmul": matmul},
        {"ours": train, "keras": peer_train, "matmul": matmul},
    )
    return [
        measure.interleaved_medians({peer: cases.blocking(f) for peer, f in each.items()}, seconds)
        for each in functions
    ]


def describe(times, work):
    """Milliseconds, the ratio to Keras and its bound, from the medians of a case."""
    floor = work * times["matmul"] / MATMUL_SIZE**3
    return {
        "ms": 1e3 * times["ours"],
        "keras_ms": 1e3 * times["keras"],
        "ratio": times["keras"] / times["ours"],
        "bound": times["keras"] / floor,
    }


def memory_of(name, shape):
    """Peak bytes of our training step, in a process of its own."""
    code = (
        "import json, sys; from benchmarks import cases, measure;"
        "step = cases.make_case(sys.argv[1], *json.loads(sys.argv[2]))[0][1]; step(); step();"
        "print(measure.peak_bytes(step))"
    )
    # oneDNN's allocator and malloc's free lists keep what they have: both out of the way.
    environment = dict(os.environ, TF_ENABLE_ONEDNN_OPTS="0", MALLOC_MMAP_THRESHOLD_="262144")
    command = [sys.executable, "-c", code, name, json.dumps(shape)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def plot(rows, path):
    """Bars of the speed-up over keras.layers, a pair for each shape."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = ["×".join(str(s) for s in row["shape"]) for row in rows]
    at = np.arange(len(rows))
    plt.figure(figsize=(9, 4))
    plt.bar(at - 0.2, [r["infer_ratio"] for r in rows], 0.4, label="inference")
    plt.bar(at + 0.2, [r["train_ratio"] for r in rows], 0.4, label="training step")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="to time a pair of peers")
    parser.add_argument("--csv", help="write the table there")
    parser.add_argument("--plot", help="draw it there")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory columns")
    options = parser.parse_args()

    print(
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, float32, {os.cpu_count()} cores"
    )
    print("medians; ratio = keras / ours; memory: peak of a training step, MiB")
    part = "      ms  keras  ratio  bound"
    print(f"layer   N    T    C    H | inference{part[9:]} | training{part[8:]} | MiB budget")
    rows = []
    for name in cases.LAYERS:
        for shape in shapes.CPU:
            inference, training = run_case(name, shape, options.seconds)
            work = multiply_adds(name, *shape)
            row = {"layer": name, "shape": shape}
            text = f"{name:5}" + "".join(f"{s:5}" for s in shape)
            for kind, times, times_work in (("infer", inference, 1), ("train", training, 3)):
                numbers = describe(times, times_work * work)
                text += " |{ms:8.2f} {keras_ms:6.1f} {ratio:6.2f} {bound:6.2f}".format(**numbers)
                row.update({f"{kind}_{key}": value for key, value in numbers.items()})
            if not options.no_memory:
                row["mib"] = memory_of(name, shape) / 2**20
                row["budget_mib"] = cases.memory_budget(name, *shape) / 2**20
                text += " |{mib:4.0f} {budget_mib:6.0f}".format(**row)
            rows.append(row)
            print(text, flush=True)
        of_layer = [row for row in rows if row["layer"] == name]
        means = {
            key: measure.geometric_mean([row[key] for row in of_layer])
            for key in ("infer_ratio", "infer_bound", "train_ratio", "train_bound")
        }
        print(
            "{}: geometric means: inference {infer_ratio:.2f} (bound {infer_bound:.2f}), "
            "training {train_ratio:.2f} (bound {train_bound:.2f})".format(name, **means)
        )
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
