"""Keras models that are exported, and called with the inputs here."""

import warnings

import keras
import numpy as np
import tensorflow as tf

import haste_keras

N, T, C, H = 3, 6, 5, 4


def _sequential(*layers, shape=(None, C)):
    return keras.Sequential([keras.Input(shape), *layers])


def _with_states():
    x, h, c = keras.Input((None, C)), keras.Input((H,)), keras.Input((H,))
    layer = haste_keras.LSTM(H, return_sequences=True, return_state=True)
    return keras.Model([x, h, c], layer(x, initial_state=[h, c]))


def _stateful():
    layer = haste_keras.QRNN(H, window=2, stateful=True)
    return keras.Sequential([keras.Input(batch_shape=(N, None, C)), layer])


class _Ops(keras.layers.Layer):
    """Functions of `haste_keras.ops` and what a layer does not ask them for."""

    def call(self, x):
        wx = tf.reshape(tf.tile(x, [1, 1, 24 // x.shape[-1]]), [-1, tf.shape(x)[1], 3, 4, 2])
        kernel = tf.reshape(tf.cos(tf.range(48, dtype=x.dtype)), [3, 2, 4, 2]) / 2
        y, (h, c) = haste_keras.ops.lstm(wx, kernel, reverse=[False, True, False])
        rows = tf.reshape(wx, [-1, 3, 8])
        norm = haste_keras.ops.layer_norm(rows, tf.ones([3, 8]), tf.ones([3, 8]))
        return y, h, c, norm


def _ops():
    x = keras.Input((None, 6))
    return keras.Model(x, _Ops()(x))


MODELS = {
    "masking": lambda: _sequential(
        keras.layers.Masking(), haste_keras.GRU(H, return_sequences=True), haste_keras.LSTM(H)
    ),
    "keras_bidirectional": lambda: _sequential(
        keras.layers.Masking(),
        keras.layers.Bidirectional(haste_keras.LSTM(H, return_sequences=True)),
    ),
    "merge_sum": lambda: _sequential(
        haste_keras.QRNN(H, direction="bidirectional", merge_mode="sum")
    ),
    "time_distributed": lambda: _sequential(
        keras.layers.TimeDistributed(haste_keras.LSTM(H)), shape=(2, None, C)
    ),
    "time_distributed_unknown": lambda: _sequential(
        keras.layers.TimeDistributed(haste_keras.LSTM(H, direction="bidirectional")),
        shape=(None, None, C),
    ),
    "cells": lambda: _sequential(
        keras.layers.RNN([haste_keras.LSTMCell(H), haste_keras.GRUCell(H)])
    ),
    "unfused": lambda: _sequential(haste_keras.LSTM(H, activation="swish", return_sequences=True)),
    "transform": lambda: _sequential(
        haste_keras.IndRNN(H, recurrent_transform=haste_keras.AbsoluteMax(0.5))
    ),
    "with_states": _with_states,
    "stateful": _stateful,
    "ops": _ops,
}


def _inputs(name, rng):
    """{call: [arrays]} of a model."""
    x = rng.normal(size=(N, T, C)).astype("float32")
    x[1, 2] = 0
    if name == "with_states":
        return {"serve": [x, *rng.normal(size=(2, N, H)).astype("float32")]}
    if name == "time_distributed":
        return {"serve": [rng.normal(size=(N, 2, T, C)).astype("float32")]}
    if name == "time_distributed_unknown":  # Keras loops over N in place of the steps
        return {"serve": [rng.normal(size=(N, N, T, C)).astype("float32")]}
    if name == "stateful":
        return {"serve": [x], "serve.again": [x[:, :2]]}
    if name == "cells":  # Keras's own layer reads step 0
        return {"serve": [x]}
    if name == "ops":
        x = rng.normal(size=(N, T, 6)).astype("float32")
    return {"serve": [x], "serve.empty": [x[:, :0]], "serve.one": [x[:1, :1]]}


def export_models(folder):
    """A SavedModel of each, its inputs.npz, and for all of them expected.npz."""
    rng, expected = np.random.default_rng(13), {}
    for name, make in MODELS.items():
        model, inputs = make(), {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "unfused" says that it is
            haste_keras.export(model, folder / name, verbose=False)
            for call, arrays in _inputs(name, rng).items():
                for i, array in enumerate(arrays):
                    inputs[f"{call}/{i}"] = array
                outputs = model(arrays if len(arrays) > 1 else arrays[0])
                for i, output in enumerate(tf.nest.flatten(outputs)):
                    expected[f"{name}/{call}/{i}"] = output.numpy()
        np.savez(folder / name / "inputs.npz", **inputs)
    np.savez(folder / "expected.npz", **expected)
