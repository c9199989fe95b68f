"""What XLA costs and gains: the same calls with and without it, on a GPU if there is one.

    python -m benchmarks.xla [op] [step] [lengths] [--seconds 4] [--units 256] [--limit 30]

op       the LSTM's op alone in a tf.function, forward and gradient, T=1 and T=100: microseconds.
         Beside it a trivial body: a function with the same arguments and results that runs one
         stock op a result. What XLA adds to that is the cost of XLA's launch, which no op can
         avoid; "ours" is what it adds to our op beyond that.
step     a training step of Embedding → LSTM → Dense, compiled and not: milliseconds
lengths  `fit` on batches of many lengths with jit_compile="auto" and False: all compiling included.
         Each of the two ends after --limit seconds; it prints how far it came, and what a batch of
         a new length and one of a known length cost.

Peers take turns; the figures are medians, but for `lengths`, which is one run of each.
"""

import argparse
import os
import statistics
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
    """Returns when the results are there. Copies none of them from a GPU, which takes time too."""
    if tf.config.list_logical_devices("GPU"):
        tf.test.experimental.sync_devices()
    else:
        tf.nest.flatten(results)[0].numpy()


def _forward(wx, kernel):
    return haste_keras.ops.lstm(wx, kernel)[0]


def _gradient(wx, kernel):
    with tf.GradientTape() as tape:
        tape.watch([wx, kernel])
        y = haste_keras.ops.lstm(wx, kernel, training=True)[0]
    return tape.gradient(y, [wx, kernel])


# name: (ours, a trivial body)
_OPS = {
    "forward": (_forward, lambda wx, kernel: tf.reduce_max(wx, axis=3)),
    "gradient of `wx`": (lambda *inputs: _gradient(*inputs)[0], lambda wx, kernel: -wx),
    "gradient of `wx` and R": (_gradient, lambda wx, kernel: [-wx, -kernel]),
}


def _check_same(functions, arguments):
    outputs = [tf.nest.flatten(function(*arguments)) for function in functions.values()]
    # Products by other algorithms, on a GPU in TensorFloat-32.
    tolerance = 1e-3 if tf.config.list_logical_devices("GPU") else 1e-5
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


def _times(ours, trivial, arguments, seconds):
    """Microseconds of ours and of the trivial body: without XLA, with it, the difference."""
    functions = {}
    for name, function in {"ours": ours, "trivial": trivial}.items():
        both = _both(function)
        _check_same(both, arguments)
        functions.update({(name, kind): f for kind, f in both.items()})
    calls = {name: lambda f=f: _wait(f(*arguments)) for name, f in functions.items()}
    times = interleaved_medians(calls, seconds, burst=0.02)
    row = []
    for name in ("ours", "trivial"):
        plain, compiled = (1e6 * times[name, kind] for kind in ("plain", "xla"))
        row += [plain, compiled, compiled - plain]
    return row


def op(seconds, units):
    """Prints a row for each of forward and gradient, T=1 and T=100."""
    rng = np.random.default_rng(0)
    print(f"LSTM, float32, H={units}, µs; `ours` = the first difference less the second")
    print("| op alone | N | T | without XLA | with | + | trivial body | with | + | ours | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for batch, steps in ((1, 1), (1, 100), (BATCH, 100)):
        wx = tf.constant(rng.normal(size=(batch, steps, 1, 4, units)), tf.float32)
        kernel = tf.constant(rng.normal(size=(1, units, 4, units)) / units**0.5, tf.float32)
        for name, (ours, trivial) in _OPS.items():
            row = _times(ours, trivial, (wx, kernel), seconds)
            figures = " | ".join(f"{figure:.0f}" for figure in [*row, row[2] - row[5]])
            ratio = row[1] / row[0]
            print(f"| {name} | {batch} | {steps} | {figures} | {ratio:.2f} |", flush=True)


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


class _Clock(keras.callbacks.Callback):
    """Seconds of each batch; ends `fit` at `limit` seconds."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.seconds = limit, []

    def on_train_begin(self, logs=None):
        self.start = self.last = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        np.asarray(logs["loss"])  # when it is there the batch has been computed
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        self.model.stop_training = now - self.start > self.limit


def lengths(limit, units):
    """Prints what an epoch whose batches have 20 lengths costs, compiled "auto" and not."""
    rng = np.random.default_rng(0)
    repeats = 3
    sizes = np.repeat(rng.permutation(np.arange(20, 120, 5)), repeats)

    def batches():
        for size in sizes:
            tokens = rng.integers(0, VOCABULARY, (BATCH, size + 1))
            yield tokens[:, :-1], tokens[:, 1:]

    signature = tf.TensorSpec([None, None], tf.int64)
    data = tf.data.Dataset.from_generator(batches, output_signature=(signature, signature))
    for compiled in ("auto", False):
        model = _model(units, compiled)
        clock = _Clock(limit)
        model.fit(data, epochs=1, verbose=0, callbacks=[clock])
        done = clock.seconds
        new = statistics.median(done[repeats::repeats] or done)  # the first one traces, too
        known = statistics.median(s for i, s in enumerate(done) if i % repeats)
        print(
            f"jit_compile={compiled!r} ({'compiled' if model.jit_compile else 'not compiled'}): "
            f"{len(done)} of {len(sizes)} batches of {len(set(sizes))} lengths in "
            f"{sum(done):.1f} s; a batch of a new length {1e3 * new:.1f} ms, of a known one "
            f"{1e3 * known:.1f} ms",
            flush=True,
        )


def main():
    """Runs the benchmarks that the command line names."""
    known = {"op": op, "step": step, "lengths": lengths}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", nargs="*", help=f"of {', '.join(known)}; none: all")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of each of lengths' two")
    arguments = parser.parse_args()
    for name in arguments.what or known:
        if name not in known:
            parser.error(f"what: expected {', '.join(known)}, got {name}")
        known[name](arguments.limit if name == "lengths" else arguments.seconds, arguments.units)


if __name__ == "__main__":
    main()
