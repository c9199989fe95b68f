"""Character models side by side: what zoneout.py and layer_norm.py have in common."""

import argparse
import math

import keras
import tensorflow as tf

from benchmarks.papers import draw, text, training


def main(name, what, variants, defaults, title, arguments):
    """Trains the variants and plots them; what a result's program does.

    Args:
      name: of the result: "layer-norm".
      what: what it shows, in a line.
      variants: {name: function that takes units and makes a layer}.
      defaults: {option: its value in the small run}.
      title: of the plot, with options in braces: "{units} units".
      arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog=name, description=what)
    for option, value in defaults.items():
        parser.add_argument(option, type=type(value), default=value)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", default=f"{name.replace('-', '_')}.png")
    options = parser.parse_args(arguments)
    plot(run_all(variants, options), title.format(**vars(options)), options.plot)


def run_all(variants, options):
    """{name: bits a character by epoch, of training and of held-out text}, printed as they come."""
    parts, symbols = text.characters(options.characters)
    print(
        f"TensorFlow {tf.__version__}, {draw.device()}, float32; {len(parts[0]):,} characters, "
        f"batch {options.batch}, {options.length} steps, {options.units} units"
    )
    print(
        f"{'model':34}{'train':>8}{'valid':>8}{'best epoch':>12}{'s/epoch':>9}   (bits/character)"
    )
    results = {}
    for name, build in variants.items():
        keras.backend.clear_session()
        keras.utils.set_random_seed(options.seed)
        model = keras.Sequential(
            [
                keras.Input(batch_shape=(options.batch, None), dtype="int32"),
                keras.layers.Embedding(symbols, 32),
                build(options.units),
                keras.layers.Dense(symbols),
            ]
        )
        training.compile_model(model, options.rate)
        result = training.train(model, parts, options.batch, options.length, options.epochs)
        result["loss"] = [loss / math.log(2) for loss in result["loss"]]
        result["val_loss"] = [loss / math.log(2) for loss in result["val_loss"]]
        results[name] = result
        best = min(range(options.epochs), key=result["val_loss"].__getitem__)
        print(
            f"{name:34}{result['loss'][-1]:8.3f}{result['val_loss'][best]:8.3f}{best + 1:12}"
            f"{result['seconds']:9.2f}",
            flush=True,
        )
    return results


def plot(results, title, path):
    """Bits a character by epoch: held-out text and, dashed, training."""
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(7, 4))
    for i, (name, result) in enumerate(results.items()):
        epochs = range(1, len(result["loss"]) + 1)
        look = draw.style(i)
        panel.plot(epochs, result["val_loss"], label=name, **look)
        panel.plot(epochs, result["loss"], "--", color=look["color"], linewidth=0.9)
    panel.plot([], [], "--", color="gray", linewidth=0.9, label="the same in training")
    panel.set_xlabel("epoch")
    panel.set_ylabel("bits per character, held-out text")
    panel.set_title(f"{title}\n{draw.device()}, float32", fontsize=10)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    figure.tight_layout()
    draw.save(figure, path)
