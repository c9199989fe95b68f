"""Which recurrences can count: the parity of a bit string, on strings several times as long.

A model reads bits and says after each whether the number of ones so far is odd. It is trained on
strings of up to 40 bits, which grow in the course of training, and tested on the last answer for
strings of 40 to 256. A model that has learnt the rule, and not the lengths, is right every time.

    python examples/parity.py [--models LSTM SLSTM] [--steps 1200] [--plot parity.png]

Prints a table and draws it. The task is the one by which FlashRNN's authors tell recurrent networks
that track a state from models that cannot (Pöppel, Beck & Hochreiter, arXiv 2412.07752).
"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

import haste_keras

UNITS, LONGEST, BATCH = 64, 40, 64
TEST_LENGTHS = ((40, 64), (65, 128), (129, 256))


class Attention(keras.layers.Layer):
    """A small causal Transformer with sinusoidal positions: two blocks, four heads."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [
            (
                keras.layers.LayerNormalization(),
                keras.layers.MultiHeadAttention(4, units // 4),
                keras.layers.LayerNormalization(),
                keras.Sequential(
                    [keras.layers.Dense(2 * units, "gelu"), keras.layers.Dense(units)]
                ),
            )
            for _ in range(2)
        ]
        self.widen = keras.layers.Dense(units)
        self.units = units

    def call(self, x):
        position = tf.range(tf.shape(x)[1], dtype=tf.float32)[:, tf.newaxis]
        rate = 10000.0 ** (-tf.range(0, self.units, 2, dtype=tf.float32) / self.units)
        waves = tf.concat([tf.sin(position * rate), tf.cos(position * rate)], axis=-1)
        x = self.widen(x) + waves
        for norm, attend, norm_after, dense in self.blocks:
            y = norm(x)
            x = x + attend(y, y, use_causal_mask=True)
            x = x + dense(norm_after(x))
        return x


MODELS = {
    "Elman": lambda: haste_keras.Elman(UNITS, return_sequences=True),
    "GRU": lambda: haste_keras.GRU(UNITS, return_sequences=True),
    "LSTM": lambda: haste_keras.LSTM(UNITS, return_sequences=True),
    "SLSTM": lambda: haste_keras.SLSTM(UNITS, return_sequences=True),
    "IndRNN": lambda: haste_keras.IndRNN(UNITS, return_sequences=True),
    "QRNN": lambda: haste_keras.QRNN(UNITS, window=2, return_sequences=True),
    "Transformer": lambda: Attention(UNITS),
}


def strings(rng, count, shortest, longest):
    """Random bits [count, longest], where they are live, and the parity after each of them."""
    length = rng.integers(shortest, longest + 1, size=(count, 1))
    bits = rng.integers(0, 2, size=(count, longest))
    live = np.arange(longest) < length
    return bits, live, np.cumsum(bits * live, axis=1) % 2


def accuracy(model, rng, shortest, longest, count=512):
    """Share of strings whose last answer is right."""
    bits, live, parity = strings(rng, count, shortest, longest)
    said = model(tf.constant(bits))[..., 0].numpy() > 0
    last = live.sum(axis=1) - 1
    return float(np.mean(said[np.arange(count), last] == parity[np.arange(count), last]))


def train(name, steps, seed):
    """A trained model, and the steps that it took."""
    keras.utils.set_random_seed(seed)
    bits = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(2, 16)(bits)
    model = keras.Model(bits, keras.layers.Dense(1)(MODELS[name]()(x)))
    optimizer = keras.optimizers.Adam(3e-3, clipnorm=1.0)

    @tf.function(reduce_retracing=True)
    def step(bits, live, parity):
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(parity, model(bits)[..., 0])
            loss = tf.reduce_sum(losses * live) / tf.reduce_sum(live)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    rng = np.random.default_rng(seed)
    streak = 0
    for i in range(1, steps + 1):
        bits, live, parity = strings(rng, BATCH, 1, min(LONGEST, 2 + i // 15))
        step(tf.constant(bits), tf.constant(live, tf.float32), tf.constant(parity, tf.float32))
        # On strings of its own, no longer than twice those that it is trained on.
        if i % 50 == 0:
            right = accuracy(model, np.random.default_rng(i), LONGEST, 80) == 1
            streak = streak + 1 if right else 0
        if streak == 8:
            return model, i
    return model, steps


def draw(table, path):
    """Accuracy by length, a group of bars a model."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2))
    width = 0.8 / len(TEST_LENGTHS)
    for i, (shortest, longest) in enumerate(TEST_LENGTHS):
        at = np.arange(len(table)) + (i - 1) * width
        axes.bar(at, [row[i] for row in table.values()], width, label=f"{shortest}–{longest} bits")
    axes.axhline(0.5, color="gray", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(table)), table)
    axes.set_ylim(0.4, 1.02)
    axes.set_ylabel("accuracy")
    axes.set_title(f"Parity, trained on up to {LONGEST} bits")
    axes.legend(loc="lower left", framealpha=1)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    print(f"drawn: {path}")


def main():
    """Trains, prints the table, draws it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--steps", type=int, default=1200, help="training steps at most")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--plot", default="parity.png")
    options = parser.parse_args()

    columns = "".join(f"{f'{low}-{high}':>10}" for low, high in TEST_LENGTHS)
    print(f"{'model':12}{'steps':>7}{'seconds':>9}{columns}")
    table = {}
    for name in options.models:
        start = time.perf_counter()
        model, steps = train(name, options.steps, options.seed)
        seconds = time.perf_counter() - start
        rng = np.random.default_rng(options.seed + 1)
        table[name] = [accuracy(model, rng, *lengths) for lengths in TEST_LENGTHS]
        results = "".join(f"{share:10.3f}" for share in table[name])
        print(f"{name:12}{steps:7}{seconds:9.1f}{results}", flush=True)
    draw(table, options.plot)


if __name__ == "__main__":
    main()
