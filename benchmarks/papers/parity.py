"""Which recurrences track a state: parity, over several seeds, on this machine's device.

    python -m benchmarks.papers parity [--seeds 0 1] [--steps 1200] [--plot FILE]

The task, its models and its training are those of examples/parity.py. By it FlashRNN's authors
(Pöppel, Beck & Hochreiter, arXiv 2412.07752) tell recurrences that track a state from models that
cannot. For each model the mean accuracy of the last answer over the seeds, by length.
"""

import argparse
import importlib.util
import pathlib
import time

import numpy as np
import tensorflow as tf

import haste_keras
from benchmarks.papers import draw

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "parity.py"


def load_example():
    """examples/parity.py as a module, with one more model."""
    spec = importlib.util.spec_from_file_location("parity_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.MODELS["MinGRU"] = lambda: haste_keras.MinGRU(module.UNITS, return_sequences=True)
    return module


def plot(table, lengths, title, path):
    """Accuracy by length, a group of bars a model."""
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(8, 3.4))
    width = 0.8 / len(lengths)
    for i, (shortest, longest) in enumerate(lengths):
        at = np.arange(len(table)) + (i - 1) * width
        label = f"{shortest}–{longest} bits"
        panel.bar(at, [row[i] for row in table.values()], width, color=draw.COLORS[i], label=label)
    panel.axhline(0.5, color="gray", linewidth=0.8, linestyle="--")
    panel.set_xticks(range(len(table)), table)
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("accuracy of the last answer")
    panel.set_title(title, fontsize=10)
    panel.legend(loc="upper right", framealpha=1, fontsize=8)
    figure.tight_layout()
    draw.save(figure, path)


def main(arguments=None):
    example = load_example()
    parser = argparse.ArgumentParser(prog="parity", description=__doc__.splitlines()[0])
    models = list(example.MODELS)
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=1200, help="training steps at most")
    parser.add_argument("--plot", default="parity.png")
    options = parser.parse_args(arguments)
    lengths = example.TEST_LENGTHS
    print(f"TensorFlow {tf.__version__}, {draw.device()}, float32; seeds {options.seeds}")
    columns = "".join(f"{f'{low}-{high}':>10}" for low, high in lengths)
    print(f"{'model':12}{'steps':>7}{'s/seed':>9}{columns}   seeds all right")
    table = {}
    for name in options.models:
        start, steps, rows = time.perf_counter(), [], []
        for seed in options.seeds:
            model, took = example.train(name, options.steps, seed)
            steps.append(took)
            rng = np.random.default_rng(seed + 1)
            rows.append([example.accuracy(model, rng, *each) for each in lengths])
        seconds = (time.perf_counter() - start) / len(rows)
        table[name] = np.mean(rows, axis=0)
        right = sum(min(row) == 1 for row in rows)
        shares = "".join(f"{share:10.3f}" for share in table[name])
        mean = int(np.mean(steps))
        print(f"{name:12}{mean:7}{seconds:9.1f}{shares}   {right} of {len(rows)}", flush=True)
    title = f"Parity, trained on up to {example.LONGEST} bits; {draw.device()}, float32"
    plot(table, lengths, title, options.plot)


if __name__ == "__main__":
    main()
