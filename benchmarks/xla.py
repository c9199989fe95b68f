"""What XLA costs and gains: the same calls with and without it, on a GPU if there is one.

    python -m benchmarks.xla [op] [step] [lengths] [--seconds 4] [--units 256]

op       the LSTM's op alone in a tf.function, forward and gradient, T=1 and T=100: microseconds
step     a training step of Embedding → LSTM → Dense, compiled and not: milliseconds
lengths  `fit` on batches of many lengths with jit_compile="auto" and False: seconds, all compiling
         included

Peers take turns; the figures are medians, but for `lengths`, which is one run of each.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import haste_keras
from benchmarks.measure import interleaved_medians

BATCH, VOCABULARY = 32, 1000


def _both(function):
    """{name: the function as a tf.function, without XLA and with it}."""
    return {
        "plain": tf.function(function, jit_compile=False),
        "xla": tf.function(function, jit_compile=True),
    }


def _wait(results):
    tf.nest.flatten(results)[0].numpy()


def _medians(functions, arguments, seconds):
    for function in functions.values():
        _wait(function(*arguments))
    calls = {name: lambda f=f: _wait(f(*arguments)) for name, f in functions.items()}
    return interleaved_medians(calls, seconds, burst=0.02)


def op(seconds, units):
    """Prints a row for each of forward and gradient, T=1 and T=100."""
    rng = np.random.default_rng(0)
    print("| op alone | N | T | H | without XLA, µs | with, µs | ratio |")
    print("|---|---|---|---|---|---|---|")
    for batch, steps in ((1, 1), (1, 100), (BATCH, 100)):
        wx = tf.constant(rng.normal(size=(batch, steps, 1, 4, units)), tf.float32)
        kernel = tf.constant(rng.normal(size=(1, units, 4, units)) / units**0.5, tf.float32)

        def forward(wx, kernel):
            return haste_keras.ops.lstm(wx, kernel)[0]

        def gradient(wx, kernel):
            with tf.GradientTape() as tape:
                tape.watch([wx, kernel])
                y = haste_keras.ops.lstm(wx, kernel, training=True)[0]
            return tape.gradient(y, [wx, kernel])

        def input_gradient(wx, kernel):
            return gradient(wx, kernel)[0]

        functions = {
            "forward": forward,
            "gradient": gradient,
            "gradient of wx alone": input_gradient,
        }
        for name, function in functions.items():
            outputs = [tf.nest.flatten(f(wx, kernel)) for f in _both(function).values()]
            for one, other in zip(*outputs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
            times = _medians(_both(function), (wx, kernel), seconds)
            plain, compiled = (1e6 * times[kind] for kind in ("plain", "xla"))
            print(
                f"| {name} | {batch} | {steps} | {units} | {plain:.0f} | {compiled:.0f} | "
                f"{compiled / plain:.2f} |",
                flush=True,
            )


def _model(units, compiled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Embedding(VOCABULARY, 128),
            haste_keras.LSTM(units, return_sequences=True),
            keras.layers.Dense(VOCABULARY),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=compiled)
    return model


def step(seconds, units):
    """Prints the time of a training step, compiled and not."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, 101))
    x, y = tf.constant(tokens[:, :-1]), tf.constant(tokens[:, 1:])
    models = {"plain": _model(units, False), "xla": _model(units, True)}
    losses = {name: model.train_on_batch(x, y) for name, model in models.items()}
    np.testing.assert_allclose(losses["plain"], losses["xla"], rtol=1e-5)
    calls = {name: lambda m=model: m.train_on_batch(x, y) for name, model in models.items()}
    times = interleaved_medians(calls, seconds, least=10, burst=0.1)
    plain, compiled = (1e3 * times[kind] for kind in ("plain", "xla"))
    print(
        f"training step, N={BATCH} T=100 C=128 H={units}, vocabulary {VOCABULARY}: "
        f"{plain:.2f} ms without XLA, {compiled:.2f} with, ratio {compiled / plain:.2f}",
        flush=True,
    )


def lengths(seconds, units):
    """Prints the time of an epoch whose batches have 20 lengths, compiled "auto" and not."""
    del seconds
    rng = np.random.default_rng(0)
    sizes = [int(size) for size in rng.permutation(np.arange(20, 120, 5))] * 3

    def batches():
        for size in sizes:
            tokens = rng.integers(0, VOCABULARY, (BATCH, size + 1))
            yield tokens[:, :-1], tokens[:, 1:]

    signature = tf.TensorSpec([None, None], tf.int64)
    data = tf.data.Dataset.from_generator(batches, output_signature=(signature, signature))
    for compiled in ("auto", False):
        model = _model(units, compiled)
        start = time.perf_counter()
        model.fit(data, epochs=1, verbose=0)
        print(
            f"jit_compile={compiled!r} ({'compiled' if model.jit_compile else 'not compiled'}): "
            f"{time.perf_counter() - start:.1f} s for {len(sizes)} batches of "
            f"{len(set(sizes))} lengths",
            flush=True,
        )


def main():
    """Runs the benchmarks that the command line names."""
    known = {"op": op, "step": step, "lengths": lengths}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", nargs="*", help=f"of {', '.join(known)}; none: all")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--units", type=int, default=256)
    arguments = parser.parse_args()
    for name in arguments.what or known:
        if name not in known:
            parser.error(f"what: expected {', '.join(known)}, got {name}")
        known[name](arguments.seconds, arguments.units)


if __name__ == "__main__":
    main()
