"""Trains a character model on real text, samples from it, exports it and reloads the export.

    python examples/char_model.py [--minutes 3] [--out demo]

The text is the source of Python's own standard library: every machine has it. Writes a loss
curve (loss.png), the trained model (model.keras) and a SavedModel (export/) to --out.
"""

import argparse
import math
import pathlib
import sysconfig
import time

import keras
import matplotlib
import numpy as np
import tensorflow as tf

import haste_keras

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LENGTH = 100  # characters of a training sequence
BATCH = 64
UNITS = 256


def read_text(limit=3_000_000):
    """The standard library's modules in one string, ASCII only, in a fixed order."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    text = "".join(p.read_text(errors="ignore") for p in sorted(library.glob("*.py")))
    text = "".join(c for c in text if c == "\n" or " " <= c <= "~")
    return text[:limit]


def make_dataset(codes, shuffle):
    """Batches of (characters, the characters that follow)."""
    sequences = tf.data.Dataset.from_tensor_slices(codes).batch(LENGTH + 1, drop_remainder=True)
    if shuffle:
        sequences = sequences.shuffle(50_000, seed=1).repeat()
    pairs = sequences.map(lambda s: (s[:-1], s[1:]))
    return pairs.batch(BATCH, drop_remainder=True).prefetch(2)


def build_model(symbols):
    """Two LSTM layers, with Zoneout and recurrent dropout on the fast path."""
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(symbols, 64),
            haste_keras.LSTM(UNITS, return_sequences=True, zoneout=0.05, recurrent_dropout=0.05),
            haste_keras.LSTM(UNITS, return_sequences=True, zoneout=0.05),
            keras.layers.Dense(symbols),
        ]
    )


class Curve(keras.callbacks.Callback):
    """Keeps the loss of every step, and stops when the time is up."""

    def __init__(self, seconds):
        super().__init__()
        self.losses = []
        self.total = 0.0
        self.seconds = seconds
        self.start = None

    def on_train_batch_end(self, batch, logs=None):
        # The first step traces and is not counted.
        self.start = self.start or time.monotonic()
        # Keras reports the mean since the epoch began; take the step's own share out of it.
        total = logs["loss"] * (batch + 1)
        self.losses.append(total - (self.total if batch else 0.0))
        self.total = total
        if time.monotonic() - self.start > self.seconds:
            self.model.stop_training = True


def sample(model, alphabet, prompt, length=300, temperature=0.6, seed=0):
    """Continues `prompt` one character at a time."""
    random = np.random.default_rng(seed)
    codes = [alphabet.index(c) for c in prompt]
    window = LENGTH
    step = tf.function(lambda x: model(x, training=False)[0, -1], reduce_retracing=True)
    for _ in range(length):
        logits = step(tf.constant([codes[-window:]], tf.int32)).numpy().astype(np.float64)
        p = np.exp((logits - logits.max()) / temperature)
        codes.append(random.choice(len(alphabet), p=p / p.sum()))
    return "".join(alphabet[c] for c in codes)


def plot(losses, path):
    """Draws the training loss, in bits a character."""
    smooth = np.convolve(losses, np.ones(20) / 20, mode="valid") / math.log(2)
    plt.figure(figsize=(7, 4))
    plt.plot(np.arange(len(smooth)) + 20, smooth)
    plt.xlabel("training step")
    plt.ylabel("bits per character")
    plt.title("Character model on Python's standard library")
    plt.grid(alpha=0.3)
    plt.tight_layout()
    plt.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="time to train")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("demo"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)

    text = read_text()
    alphabet = sorted(set(text))
    index = np.zeros(128, np.int32)
    index[[ord(c) for c in alphabet]] = np.arange(len(alphabet))
    codes = index[np.frombuffer(text.encode(), np.uint8)]
    split = len(codes) * 19 // 20
    train, test = make_dataset(codes[:split], True), make_dataset(codes[split:], False)
    print(f"{len(codes):,} characters, {len(alphabet)} different ones")

    model = build_model(len(alphabet))
    model.summary()
    model.compile(
        keras.optimizers.Adam(3e-3, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    curve = Curve(options.minutes * 60)
    steps = split // (LENGTH + 1) // BATCH
    model.fit(train, steps_per_epoch=steps, epochs=100, callbacks=[curve], shuffle=False)

    loss = model.evaluate(test, verbose=0)
    uniform = len(alphabet)
    print(f"\nheld-out perplexity {math.exp(loss):.2f} (guessing: {uniform})\n")
    print(sample(model, alphabet, "def "))
    plot(curve.losses, options.out / "loss.png")

    model.save(options.out / "model.keras")
    export = options.out / "export"
    model.export(str(export), verbose=False)
    probe = codes[None, :LENGTH]
    reloaded = tf.saved_model.load(str(export))
    error = float(np.abs(reloaded.serve(probe) - model(probe, training=False)).max())
    print(f"\nreloaded {export}: largest difference {error:.1e}")
    print(f"wrote {options.out}/loss.png, model.keras, export/")
    if error > 1e-5 or math.exp(loss) > uniform / 4:
        raise SystemExit("the model did not learn, or its export differs")


if __name__ == "__main__":
    main()
