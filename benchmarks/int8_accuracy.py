"""What int8 costs in accuracy: three tasks, trained in float32, then quantised and compared.

    python -m benchmarks.int8_accuracy [--steps 400]

Prints a table: the loss on data that was held out before and after `model.quantize("int8")`, and
the memory of the weights. The data is the source of Python's standard library, and a series that
is computed here.
"""

import argparse
import math
import pathlib
import sys
import sysconfig

import keras
import numpy as np
import tensorflow as tf

import haste_keras

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
import char_model

PACKAGES = (
    "asyncio",
    "ctypes",
    "email",
    "http",
    "importlib",
    "json",
    "multiprocessing",
    "unittest",
)
SNIPPET = 100  # characters of a snippet
SERIES = 100  # steps of a window of the series


def characters(steps):
    """The character model of the demo: two layers of LSTM, the next character."""
    text = char_model.read_text()
    alphabet = sorted(set(text))
    index = np.zeros(128, np.int32)
    index[[ord(c) for c in alphabet]] = np.arange(len(alphabet))
    codes = index[np.frombuffer(text.encode(), np.uint8)]
    split = len(codes) * 19 // 20
    model = char_model.build_model(len(alphabet))
    model.compile(
        keras.optimizers.Adam(3e-3, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    train = char_model.make_dataset(codes[:split], True)
    model.fit(train, steps_per_epoch=steps, verbose=2)
    test = char_model.make_dataset(codes[split:], False)
    return model, test, "LSTM 2 × 256: the next character", "cross-entropy"


def snippets(steps):
    """Which package of the standard library 100 characters are from: a bidirectional GRU."""
    rng = np.random.default_rng(1)
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    x, y = [], []
    for label, package in enumerate(PACKAGES):
        files = sorted((library / package).rglob("*.py"))
        text = np.frombuffer(b"".join(each.read_bytes() for each in files), np.uint8)
        text = np.minimum(text[: len(text) // SNIPPET * SNIPPET], 127)
        x.append(text.reshape(-1, SNIPPET))
        y.append(np.full(len(x[-1]), label))
    x, y = np.concatenate(x), np.concatenate(y)
    order = rng.permutation(len(x))
    x, y = x[order], y[order]
    split = len(x) * 4 // 5
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(128, 32),
            haste_keras.GRU(96, direction="bidirectional"),
            keras.layers.Dense(len(PACKAGES)),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    train = tf.data.Dataset.from_tensor_slices((x[:split], y[:split]))
    train = train.shuffle(20_000, seed=1).repeat().batch(64)
    model.fit(train, steps_per_epoch=steps, verbose=2)
    test = tf.data.Dataset.from_tensor_slices((x[split:], y[split:])).batch(64)
    return model, test, "GRU 2 × 96, both directions: the package of a snippet", "cross-entropy"


def mackey_glass(length, delay=17):
    """The chaotic series of Mackey & Glass (Science 197, 1977), by steps of 1, standardised."""
    x = np.full(length + delay, 1.2)
    for t in range(delay, len(x) - 1):
        x[t + 1] = 0.9 * x[t] + 0.2 * x[t - delay] / (1 + x[t - delay] ** 10)
    x = x[delay + 500 :]
    return (x - x.mean()) / x.std()


def forecast(steps):
    """A noisy chaotic series, five steps ahead: a layer-normalised LSTM."""
    rng = np.random.default_rng(2)
    clean = mackey_glass(30_000)
    seen = (clean + rng.normal(scale=0.1, size=clean.shape)).astype(np.float32)
    ahead = 5
    starts = np.arange(0, len(seen) - SERIES - ahead, 10)
    at = starts[:, np.newaxis] + np.arange(SERIES)
    x, y = seen[at][..., np.newaxis], seen[at + ahead][..., np.newaxis]
    split = len(x) * 4 // 5
    model = keras.Sequential(
        [
            keras.Input((None, 1)),
            haste_keras.LayerNormLSTM(64, return_sequences=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3, clipnorm=1.0), "mse")
    train = tf.data.Dataset.from_tensor_slices((x[:split], y[:split]))
    train = train.shuffle(10_000, seed=1).repeat().batch(64)
    model.fit(train, steps_per_epoch=steps, verbose=2)
    test = tf.data.Dataset.from_tensor_slices(
        (x[split + SERIES // 10 :], y[split + SERIES // 10 :])
    )
    return model, test.batch(64), "LayerNormLSTM 64: a chaotic series, 5 steps on", "mean square"


def weight_bytes(model):
    """Bytes of the weights of the recurrent layers."""
    layers = [each for each in model.layers if hasattr(each, "cell")]
    return sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for layer in layers
        for weight in layer.weights
    )


def quantize(model):
    """int8 in the recurrent layers alone, so that the difference is theirs."""
    for layer in model.layers:
        if hasattr(layer, "cell"):
            layer.quantize("int8")
    model.compile(loss=model.loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="of training, for each task")
    parser.add_argument("--tasks", nargs="+", default=["characters", "snippets", "forecast"])
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        keras.utils.set_random_seed(1)
        model, test, name, loss = globals()[task](options.steps)
        before, bytes_before = model.evaluate(test, verbose=0), weight_bytes(model)
        quantize(model)
        after, bytes_after = model.evaluate(test, verbose=0), weight_bytes(model)
        change = 100 * (after / before - 1)
        rows.append(
            f"| {name} | {loss} | {before:.4f} | {after:.4f} | {change:+.2f} % | "
            f"{bytes_before / 1e3:.0f} | {bytes_after / 1e3:.0f} |"
        )
        print(rows[-1], flush=True)
    print("\n| task | loss | float32 | int8 | change | kB float32 | kB int8 |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    main()
