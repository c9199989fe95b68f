"""Two GPUs in one process: a model trained over both ends where one GPU brings it."""

import numpy as np
import pytest
from needs import need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

import haste_keras  # noqa: E402

GPUS = tf.config.list_logical_devices("GPU")
pytestmark = [
    pytest.mark.usefixtures("true_float32"),
    # Not of a machine that HASTE_REQUIRE_GPU=1 asks for: one GPU is enough there.
    pytest.mark.skipif(len(GPUS) < 2, reason="needs two GPUs"),
]
# What "auto" is here: a block alone, a cluster, the whole GPU (backward in clusters for Elman's).
CASES = [(16, "auto"), (100, "auto"), (640, "auto")]
CASES += [(96, engine) for engine in ("blas", "stepwise", "tiled")]


def model(units, engine):
    keras.utils.set_random_seed(7)
    layers = [
        keras.Input((20, 8)),
        haste_keras.LSTM(units, return_sequences=True, engine=engine),
        haste_keras.Elman(units, return_sequences=True, engine=engine),
        haste_keras.GRU(units, engine=engine),
        keras.layers.Dense(1),
    ]
    built = keras.Sequential(layers)
    built.compile(keras.optimizers.SGD(0.1), "mse")
    return built


def data():
    rng = np.random.default_rng(8)
    return rng.normal(size=(48, 20, 8)).astype("float32"), rng.normal(size=(48, 1))


@pytest.mark.parametrize(("units", "engine"), CASES)
def test_mirrored_strategy_trains_as_one_gpu_does(units, engine):
    x, y = data()
    with tf.device(GPUS[0].name):
        alone = model(units, engine)
        alone.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    strategy = tf.distribute.MirroredStrategy(
        [gpu.name for gpu in GPUS[:2]],
        cross_device_ops=tf.distribute.HierarchicalCopyAllReduce(),
    )
    with strategy.scope():
        both = model(units, engine)
        both.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    for got, want in zip(both.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("units", "engine"), CASES)
def test_the_second_gpu_gives_what_the_first_gives(units, engine):
    x, _ = data()
    weights = model(units, engine).get_weights()
    results = []
    for gpu in GPUS[:2]:
        with tf.device(gpu.name):
            here = model(units, engine)
            here.set_weights(weights)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(here(tf.constant(x), training=True) ** 2)
            results.append([loss, *tape.gradient(loss, here.trainable_variables)])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
