"""How much faster a QRNN is than an LSTM: Figure 4 of the QRNN's paper.

    python -m benchmarks.papers qrnn-speed [--small] [--dtype mixed_bfloat16] [--plot FILE]
    python -m benchmarks.papers qrnn-speed --redraw TABLE --plot FILE

Bradbury et al., "Quasi-Recurrent Neural Networks" (arXiv 1611.01576): inference of one layer of
320 units against cuDNN's LSTM of the same size, by batch and length. Here the QRNN is ours, and the
LSTM is Keras's: cuDNN on a GPU, TensorFlow's loop on a CPU. Our LSTM is timed too.

--small takes three batches and three lengths, which a CPU does in a minute. --redraw draws the
table that an earlier run printed, also one that did not end.
"""

import argparse
import pathlib

import keras
import numpy as np
import tensorflow as tf

import haste_keras
from benchmarks import measure
from benchmarks.papers import draw

UNITS = 320
BATCHES, LENGTHS = (8, 16, 32, 64, 128, 256), (32, 64, 128, 256, 512)
# The paper's figure, on the right: a row for each batch.
PAPER = (
    (5.5, 8.8, 11.0, 12.4, 16.9),
    (5.5, 6.7, 7.8, 8.3, 10.8),
    (4.2, 4.5, 4.9, 4.9, 6.4),
    (3.0, 3.0, 3.0, 3.0, 3.7),
    (2.1, 1.9, 2.0, 2.0, 2.4),
    (1.4, 1.4, 1.3, 1.3, 1.3),
)
LAYERS = {
    "QRNN": lambda: haste_keras.QRNN(UNITS, window=2, pooling="fo", return_sequences=True),
    "Keras LSTM": lambda: keras.layers.LSTM(UNITS, return_sequences=True),
    "our LSTM": lambda: haste_keras.LSTM(UNITS, return_sequences=True),
}


def make_function(layer, batch, length, calls):
    """Runs the layer `calls` times, each on the outputs of the call before, and waits."""
    x = tf.random.normal((batch, length, UNITS))

    @tf.function
    def run():
        y = x
        for _ in range(calls):
            y = layer(y, training=False)
        return y[0, -1, 0]

    return lambda: run().numpy()


def times_of(batch, length, seconds):
    """{layer: seconds of a call}, timed in turns."""
    # On a GPU so many that TensorFlow prepares the next calls while the first one runs.
    calls = 8 if tf.config.list_physical_devices("GPU") else 1
    functions = {}
    for name, build in LAYERS.items():
        functions[name] = make_function(build(), batch, length, calls)
        functions[name]()
    medians = measure.interleaved_medians(functions, seconds, least=3)
    return {name: value / calls for name, value in medians.items()}


def read(path):
    """(results, where they were measured) of a table that main printed."""
    first, *lines = pathlib.Path(path).read_text().splitlines()
    results = {}
    for words in (line.split() for line in lines):
        if len(words) == len(LAYERS) + 5 and words[0].isdigit():
            milliseconds = map(float, words[2 : 2 + len(LAYERS)])
            times = {name: ms / 1e3 for name, ms in zip(LAYERS, milliseconds, strict=True)}
            results[int(words[0]), int(words[1])] = times
    return results, first.partition(", ")[2].partition(";")[0]


def plot(results, title, path):
    """The paper's speed-ups and ours, a panel each, a line for each batch."""
    from matplotlib import pyplot as plt

    batches = sorted({batch for batch, _ in results})
    paper = {
        (batch, length): PAPER[i][j]
        for i, batch in enumerate(BATCHES)
        for j, length in enumerate(LENGTHS)
    }
    panels = {
        "paper, 2016: QRNN over cuDNN's LSTM": paper,
        "our QRNN over Keras's LSTM": {k: t["Keras LSTM"] / t["QRNN"] for k, t in results.items()},
        "our QRNN over our LSTM": {k: t["our LSTM"] / t["QRNN"] for k, t in results.items()},
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 4), sharey=True)
    for panel, (name, ratios) in zip(axes, panels.items(), strict=True):
        for i, batch in enumerate(BATCHES):
            line = sorted((length, r) for (n, length), r in ratios.items() if n == batch)
            if line and batch in batches:
                panel.plot(*zip(*line, strict=True), label=f"batch {batch}", **draw.style(i))
        panel.axhline(1, color="gray", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        panel.set_xlabel("time steps")
        panel.set_title(name, fontsize=10)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("times as fast, inference, one layer of 320 units")
    axes[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    draw.save(figure, path)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="qrnn-speed", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--small", action="store_true", help="batches 8, 32, 128; 32, 128, 512 steps"
    )
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES)
    parser.add_argument("--lengths", nargs="+", type=int, choices=LENGTHS)
    parser.add_argument("--dtype", default="float32", help="or mixed_bfloat16, …")
    parser.add_argument("--seconds", type=float, default=1.0, help="to time a size")
    parser.add_argument("--redraw", metavar="TABLE", help="draw what an earlier run printed")
    parser.add_argument("--plot", default="qrnn_speed.png")
    options = parser.parse_args(arguments)
    if options.redraw:
        return plot(*read(options.redraw), options.plot)
    keras.config.set_dtype_policy(options.dtype)
    keras.utils.set_random_seed(1)
    batches = options.batches or (BATCHES[::2] if options.small else BATCHES)
    lengths = options.lengths or (LENGTHS[::2] if options.small else LENGTHS)
    where = f"{draw.device()}, {options.dtype}"
    if options.dtype == "float32" and tf.config.list_physical_devices("GPU"):
        where += " (TensorFloat-32 allowed)"
    print(f"TensorFlow {tf.__version__}, {where}; milliseconds, and times as fast")
    print(
        f"{'N':>5}{'T':>6}"
        + "".join(f"{name:>12}" for name in LAYERS)
        + "   /ours  /our LSTM  paper"
    )
    results = {}
    for batch in batches:
        for length in lengths:
            times = times_of(batch, length, options.seconds)
            results[batch, length] = times
            ratio, over_ours = (times[n] / times["QRNN"] for n in ("Keras LSTM", "our LSTM"))
            paper = PAPER[BATCHES.index(batch)][LENGTHS.index(length)]
            row = "".join(f"{1e3 * times[name]:12.3f}" for name in LAYERS)
            print(f"{batch:5}{length:6}{row}{ratio:8.2f}{over_ours:11.2f}{paper:7.1f}", flush=True)
    mean = np.exp(np.mean([np.log(t["Keras LSTM"] / t["QRNN"]) for t in results.values()]))
    print(f"geometric mean over Keras's LSTM: {mean:.2f}")
    plot(results, where, options.plot)


if __name__ == "__main__":
    main()
