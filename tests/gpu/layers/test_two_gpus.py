"""Two GPUs in one process: training on both gives the weights that one GPU gives."""

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
    # So small that training does not diverge, which would make any rounding large.
    built.compile(keras.optimizers.SGD(0.01), "mse")
    return built


def data():
    rng = np.random.default_rng(8)
    return rng.normal(size=(48, 20, 8)).astype("float32"), rng.normal(size=(48, 1))


def updates(trained):
    """The change of each weight in two epochs."""
    before = trained.get_weights()
    trained.fit(*data(), batch_size=16, epochs=2, shuffle=False, verbose=0)
    return [after - weight for after, weight in zip(trained.get_weights(), before, strict=True)]


@pytest.mark.parametrize(("units", "engine"), CASES)
def test_mirrored_strategy_trains_as_one_gpu_does(units, engine):
    with tf.device(GPUS[0].name):
        alone = updates(model(units, engine))
    strategy = tf.distribute.MirroredStrategy(
        [gpu.name for gpu in GPUS[:2]],
        cross_device_ops=tf.distribute.HierarchicalCopyAllReduce(),
    )
    with strategy.scope():
        both = updates(model(units, engine))
    for got, want in zip(both, alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 * np.abs(want).max())


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
    names = ["loss", *(variable.name for variable in here.trainable_variables)]
    for name, first, second in zip(names, *results, strict=True):
        if name == "bias":  # TensorFlow's sum for its gradient has no fixed order
            np.testing.assert_allclose(first, second, rtol=0, atol=1e-5 * np.abs(first).max())
        else:
            np.testing.assert_array_equal(first, second)
