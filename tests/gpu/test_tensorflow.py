"""The ops and layers on an NVIDIA GPU under TensorFlow; `pytest -s` prints the errors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from needs import need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

import haste_keras  # noqa: E402
from haste_keras import check, ops, reference  # noqa: E402

pytestmark = pytest.mark.usefixtures("true_float32")  # dR is TensorFlow's product
DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
SIZES = [  # N, T, lane directions, H
    (1, 1, [False], 1),
    (2, 7, [False], 9),
    (5, 9, [False, True], 33),
    (17, 5, [True], 130),
    (64, 4, [False, False, True], 64),
]
FEATURES = {
    "plain": {},
    "masked": {"mask": 0.6},
    "masked to zero": {"mask": 0.6, "zero_output_for_mask": True},
    "relu": {"activation": "relu", "recurrent_activation": "hard_sigmoid", "mask": 0.8},
    "drawn": {
        "zoneout": 0.2,
        "zoneout_cell": 0.1,
        "recurrent_dropout": 0.3,
        "training": True,
        "seed": (20, 26),
        "mask": 0.8,
    },
    "expected": {"zoneout": 0.2, "zoneout_cell": 0.1},
}


def make_inputs(n, t, reverse, h, dtype, options):
    """Random wx, R, h0, c0 rounded to `dtype`, weights of a loss, options with a real mask."""
    rng = np.random.default_rng(n * 1000 + h)
    k = len(reverse)
    shapes = [(n, t, k, 4, h), (k, h, 4, h), (n, k, h), (n, k, h)]
    arrays = [rng.normal(size=shape) for shape in shapes]
    arrays[1] /= np.sqrt(h)
    options = dict(options, reverse=reverse)
    if "mask" in options:
        options["mask"] = tf.constant(rng.random((n, t)) < options["mask"])
    weights = [tf.constant(rng.normal(size=shape)) for shape in ((n, t, k, h), *shapes[2:])]
    return [tf.constant(a, dtype) for a in arrays], weights, options


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_matches_the_oracle(dtype, sizes, features):
    inputs, weights, options = make_inputs(*sizes, dtype, FEATURES[features])
    with tf.device("CPU:0"):
        expected = check._run(reference.lstm, inputs, weights, options)
    with tf.device("GPU:0"):
        actual = check._run(ops.lstm, [tf.identity(i) for i in inputs], weights, options)
    errors = {}
    for name, want in expected.items():
        # Where rounding puts an element on the other side of a kink its gradient jumps, on the CPU
        # as here (one of 196,608 at the largest size): with ReLU the norm is what can be held.
        size = np.linalg.norm if "activation" in FEATURES[features] else lambda e: np.abs(e).max()
        errors[name] = size(actual[name] - want) / max(1.0, size(want))
    worst = max(errors, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    print(f"{dtype.name:9} {sizes!s:34} {features:15} worst {worst}: {errors[worst]:.1e}")
    assert errors[worst] <= check.TOLERANCE[dtype]


def test_ops_run_on_the_gpu():
    inputs, _, _ = make_inputs(2, 3, [False], 8, tf.float32, {})
    with tf.device("GPU:0"):
        y, _ = ops.lstm(*inputs[:2])
    assert "GPU:0" in y.device


def test_same_bits_every_time():
    inputs, weights, options = make_inputs(16, 30, [False], 100, tf.float32, FEATURES["drawn"])
    with tf.device("GPU:0"):
        first = check._run(ops.lstm, inputs, weights, options)
        again = check._run(ops.lstm, inputs, weights, options)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])


@pytest.mark.parametrize("policy", ["float32", "float64", "mixed_float16", "mixed_bfloat16"])
def test_layer_trains(policy):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((20, 2)),
            haste_keras.LSTM(32, zoneout=0.05, recurrent_dropout=0.05, dtype=policy),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    rng = np.random.default_rng(5)
    x = rng.random((1024, 20, 2)).astype(np.float32)
    x[:, :, 1] = 0
    x[np.arange(1024), rng.integers(0, 10, 1024), 1] = 1
    x[np.arange(1024), rng.integers(10, 20, 1024), 1] = 1
    y = (x[:, :, 0] * x[:, :, 1]).sum(1)
    losses = model.fit(x, y, epochs=25, batch_size=64, verbose=0).history["loss"]
    print(f"{policy}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.5 * losses[0]


def test_layer_matches_keras():
    keras.utils.set_random_seed(4)
    ours, stock = (cls(65, return_sequences=True) for cls in (haste_keras.LSTM, keras.layers.LSTM))
    x = tf.random.normal((7, 31, 20))
    with tf.device("CPU:0"):
        stock(x)
    ours(x)
    ours.set_weights(stock.get_weights())

    def gradients(layer, device):
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(y * tf.cos(tf.range(65.0)))
        return [y, *tape.gradient(loss, [x, *layer.trainable_weights])]

    for got, want in zip(gradients(ours, "GPU:0"), gradients(stock, "CPU:0"), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 * float(tf.reduce_max(tf.abs(want))))


def test_export_from_the_gpu_loads_without_one(tmp_path):
    model = keras.Sequential(
        [keras.Input((None, 6)), haste_keras.LSTM(16, direction="bidirectional")]
    )
    x = np.random.default_rng(0).normal(size=(3, 11, 6)).astype(np.float32)
    want = model(x).numpy()
    model.export(str(tmp_path / "export"), verbose=False)
    np.savez(tmp_path / "io.npz", x=x, want=want)
    code = (
        "import sys, numpy as np, tensorflow as tf, haste_keras\n"
        "assert not tf.config.list_physical_devices('GPU')\n"
        "io = np.load(sys.argv[1] + '/io.npz')\n"
        "model = tf.saved_model.load(sys.argv[1] + '/export')\n"
        "np.testing.assert_allclose(model.serve(io['x']), io['want'], atol=2e-5)\n"
    )
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)


def test_peak_memory_of_a_training_step():
    n, t, c, h = 16, 128, 512, 512
    layer = haste_keras.LSTM(h, return_sequences=True)
    x = tf.random.normal((n, t, c))
    target = tf.random.normal((n, t, h))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=True) * target)
        return tape.gradient(loss, [x, *layer.trainable_weights])

    step()
    tf.config.experimental.reset_memory_stats("GPU:0")
    before = tf.config.experimental.get_memory_info("GPU:0")["current"]
    step()
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] - before
    reserve = 4 * n * t * 6 * h
    inputs_outputs = 4 * (2 * n * t * (c + h) + 4 * h * (c + h + 1))
    budget = reserve + inputs_outputs + 4 * 4 * h * h
    print(f"peak {peak / 2**20:.1f} MiB of {budget / 2**20:.1f}")
    assert peak <= budget


def test_errors_reach_python():
    inputs, _, _ = make_inputs(2, 3, [False], 8, tf.float32, {})
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="engine"):
        ops.lstm(*inputs[:2], engine="cpu")
