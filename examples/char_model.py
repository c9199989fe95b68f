"""Trains a character model on real text, samples from it, exports it and reloads the export.

    python examples/char_model.py [--minutes 1] [--out demo]

The text is the source of Python's own standard library: every machine has it. Writes a loss
curve (loss.png), the trained model (model.keras) and a SavedModel (export/) to --out, and says
how long each part took.
"""

# ruff: noqa: E402 (the clock starts before the imports, which are a part of the time)
import time

STARTED = time.monotonic()

import argparse
import contextlib
import math
import os
import pathlib
import sysconfig

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


class Parts:
    """Says what begins and how long it took; keeps the times for the end."""

    def __init__(self):
        self.seconds = {"import": time.monotonic() - STARTED}

    @contextlib.contextmanager
    def __call__(self, name, what):
        print(f"==> {name}: {what}", flush=True)
        start = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - start
        print(f"    {name} took {self.seconds[name]:.1f} s\n", flush=True)

    def print_total(self):
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        print(f"{time.monotonic() - STARTED:.1f} s in all: {each}")


def device():
    """What TensorFlow trains on, in words."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        return f"GPU: {details.get('device_name', gpus[0].name)}"
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return f"CPU, {threads or len(os.sched_getaffinity(0))} threads"


def read_text(limit=3_000_000):
    """The standard library's modules in one string, ASCII only, in a fixed order."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    text = np.frombuffer(b"".join(p.read_bytes() for p in sorted(library.glob("*.py"))), np.uint8)
    text = text[(text == ord("\n")) | ((text >= ord(" ")) & (text <= ord("~")))]
    return text[:limit].tobytes().decode()


def make_dataset(codes, shuffle):
    """Batches of (characters, the characters that follow)."""
    sequences = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    sequences = tf.data.Dataset.from_tensor_slices(sequences)
    if shuffle:
        sequences = sequences.shuffle(50_000, seed=1).repeat()
    pairs = sequences.batch(BATCH, drop_remainder=True).map(lambda s: (s[:, :-1], s[:, 1:]))
    return pairs.prefetch(2)


def build_model(symbols, streams=False):
    """Two LSTM layers, with Zoneout and recurrent dropout on the fast path.

    Args:
      symbols: how many characters there are.
      streams: whether the model takes one character a call and keeps its states from call to call.
    """
    shape = {"batch_shape": (1, 1)} if streams else {"shape": (None,)}
    common = {"return_sequences": True, "zoneout": 0.05, "stateful": streams}
    return keras.Sequential(
        [
            keras.Input(**shape, dtype="int32"),
            keras.layers.Embedding(symbols, 64),
            haste_keras.LSTM(UNITS, recurrent_dropout=0.05, **common),
            haste_keras.LSTM(UNITS, **common),
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


class Stream:
    """A trained model that reads on, one character a call, from where it was."""

    def __init__(self, model):
        self._model = build_model(model.output_shape[-1], streams=True)
        self._model.set_weights(model.get_weights())
        self._step = tf.function(lambda code: self._model(code, training=False)[0, 0])

    def restart(self):
        """Forgets all that was read."""
        for layer in self._model.layers:
            if getattr(layer, "stateful", False):
                layer.reset_state()

    def read(self, code):
        """Reads a character; returns the logits of the one that follows."""
        return self._step(tf.constant([[code]], tf.int32)).numpy()


def sample(stream, alphabet, prompt, length=300, temperature=0.6, seed=0):
    """Continues `prompt`: each character is read once, and the states remember it."""
    random = np.random.default_rng(seed)
    text = prompt
    stream.restart()
    for character in prompt:
        logits = stream.read(alphabet.index(character))
    for _ in range(length):
        logits = logits.astype(np.float64)
        p = np.exp((logits - logits.max()) / temperature)
        character = alphabet[random.choice(len(alphabet), p=p / p.sum())]
        text += character
        logits = stream.read(alphabet.index(character))
    return text


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


def save_and_reload(model, probe, out):
    """Writes the model both ways; returns how far the export's logits are from the model's."""
    model.save(out / "model.keras")
    model.export(str(out / "export"), verbose=False)
    reloaded = tf.saved_model.load(str(out / "export"))
    return float(np.abs(reloaded.serve(probe) - model(probe, training=False)).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="time to train")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("demo"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    part = Parts()
    print(f"imports took {part.seconds['import']:.1f} s\n")

    with part("read text", "Python's standard library"):
        text = read_text()
        alphabet = sorted(set(text))
        index = np.zeros(128, np.int32)
        index[[ord(c) for c in alphabet]] = np.arange(len(alphabet))
        codes = index[np.frombuffer(text.encode(), np.uint8)]
        split = len(codes) * 19 // 20
        train, test = make_dataset(codes[:split], True), make_dataset(codes[split:], False)
        print(f"{len(codes):,} characters, {len(alphabet)} different ones")

    with part("train", f"{options.minutes:g} minutes on {device()}"):
        model = build_model(len(alphabet))
        model.summary()
        model.compile(
            keras.optimizers.Adam(3e-3, clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        curve = Curve(options.minutes * 60)
        steps = split // (LENGTH + 1) // BATCH
        model.fit(train, steps_per_epoch=steps, epochs=100, callbacks=[curve], shuffle=False)
        plot(curve.losses, options.out / "loss.png")

    uniform = len(alphabet)
    with part("evaluate", "text that was held out"):
        perplexity = math.exp(model.evaluate(test, verbose=0))
        print(f"held-out perplexity {perplexity:.2f} (guessing: {uniform})")

    with part("sample", "300 characters, one a step, from states that go on"):
        print(sample(Stream(model), alphabet, "def "))

    with part("save", "model.keras, and an export that is loaded again"):
        error = save_and_reload(model, codes[None, :LENGTH], options.out)
        print(f"reloaded {options.out / 'export'}: largest difference {error:.1e}")

    print(f"wrote {options.out}/loss.png, model.keras, export/")
    part.print_total()
    if error > 1e-5 or perplexity > uniform / 4:
        raise SystemExit("the model did not learn, or its export differs")


if __name__ == "__main__":
    main()
