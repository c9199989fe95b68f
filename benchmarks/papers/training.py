"""Training of stateful language models, for all results that train one."""

import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.papers import text


class FromStart(keras.callbacks.Callback):
    """Each pass over a text begins with states of zeros; keeps the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def _reset(self, *_):
        for layer in self.model.layers:
            if getattr(layer, "stateful", False):
                layer.reset_state()

    on_test_begin = _reset

    def on_epoch_begin(self, epoch, logs=None):
        self._reset()
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._start)


def dataset(codes, batch, length):
    """The batches of a text in order."""
    return tf.data.Dataset.from_tensor_slices(text.streams(codes, batch, length)).prefetch(2)


def compile_model(model, rate, clip=1.0):
    """Adam on the cross-entropy of the next symbol."""
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=clip),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # The time to compile would be most of the time of such short runs.
        jit_compile=False,
    )


def train(model, parts, batch, length, epochs, callbacks=()):
    """Trains on the first part and validates on the second after each epoch.

    Returns {"loss", "val_loss": of each epoch in nats, "seconds": median of an epoch}.
    """
    begin = FromStart()
    train_set, validation = (dataset(part, batch, length) for part in parts[:2])
    history = model.fit(
        train_set,
        epochs=epochs,
        validation_data=validation,
        callbacks=[begin, *callbacks],
        shuffle=False,
        verbose=0,
    ).history
    # The first epoch traces.
    seconds = float(np.median(begin.seconds[1:] or begin.seconds))
    return {"loss": history["loss"], "val_loss": history["val_loss"], "seconds": seconds}


def loss_of(model, codes, batch, length):
    """Mean cross-entropy over a text, in nats."""
    return model.evaluate(dataset(codes, batch, length), callbacks=[FromStart()], verbose=0)
