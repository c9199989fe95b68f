"""The ops and layers in functions that XLA compiles for a GPU, beside the same without XLA.

HASTE_TEST_DEVICE=CPU:0 tries these tests on the CPU; `pytest -s` prints the times.
"""

import pathlib
import re
import sys

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow, on_gpu_only

tf = need_tensorflow()

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "xla"))
import keras  # noqa: E402
from xla_cases import DTYPES, ROWS, calls, compiled, other_calls, same_bits  # noqa: E402

import haste_keras  # noqa: E402
from haste_keras.native import library  # noqa: E402

pytestmark = pytest.mark.usefixtures("true_float32")  # as TensorFlow's products are compared
PLACE = "cuda" if DEVICE.startswith("GPU") else "cpu"
SIZES = [(3, 5, 2, 4), (16, 20, 1, 256)]


def test_xla_runs_the_kernels():
    assert library.xla(PLACE) == (True, "")
    assert haste_keras.LSTM(4).supports_jit


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_op_and_dtype_has_the_same_bits(row, sizes):
    rng = np.random.default_rng(7)
    with tf.device(DEVICE):
        made = {
            f"{op} {dtype.name}": call
            for dtype in DTYPES
            for op, call in calls(row, dtype, rng, sizes).items()
        }
        without, within = compiled(made)
    assert [op for op in made if not same_bits(without[op], within[op])] == []


def test_ops_without_a_cell_have_the_same_bits():
    with tf.device(DEVICE):
        made = other_calls(tf.float32, np.random.default_rng(8))
        without, within = compiled(made)
    assert [op for op in made if not same_bits(without[op], within[op])] == []


def _step(layer, x):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
        return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]

    return step


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "LayerNormLSTM", "IndRNN", "QRNN", "SLSTM"])
def test_layers_and_gradients(name, dtype):
    options = {"return_sequences": True, "dtype": dtype}
    with tf.device(DEVICE):
        layer = getattr(haste_keras, name)(48, **options)
        x = tf.random.stateless_normal([8, 30, 32], [1, 2])
        layer(x)
        step = _step(layer, x)
        without, within = step(x), tf.function(step, jit_compile=True)(x)
    tolerance = {"float32": 1e-5, "mixed_float16": 1e-2, "mixed_bfloat16": 8e-2}[dtype]
    for got, want in zip(within, without, strict=True):
        got, want = (tf.cast(each, tf.float32).numpy() for each in (got, want))
        np.testing.assert_allclose(got, want, atol=tolerance * max(1.0, np.abs(want).max()))


def _model():
    keras.utils.set_random_seed(7)
    inputs = keras.Input([None])
    x = keras.layers.Embedding(50, 32, mask_zero=True)(inputs)
    x = haste_keras.LSTM(64, zoneout=0.1, recurrent_dropout=0.1, return_sequences=True)(x)
    x = haste_keras.GRU(64, direction="bidirectional")(x)
    return keras.Model(inputs, keras.layers.Dense(5)(x))


def _fit(jit_compile, **options):
    model = _model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=jit_compile, **options)
    rng = np.random.default_rng(9)
    tokens, labels = rng.integers(1, 50, [256, 40]), rng.integers(0, 5, 256)
    tokens[::3, 25:] = 0
    history = model.fit(tokens, labels, batch_size=16, epochs=3, shuffle=False, verbose=0)
    return model, history.history["loss"]


@on_gpu_only
def test_keras_compiles_by_itself():
    """48 steps: enough that XLA runs what it can as command buffers (CUDA graphs)."""
    _, without = _fit(False)
    for options in ({}, {"steps_per_execution": 4}):
        model, within = _fit("auto", **options)
        assert model.jit_compile
        np.testing.assert_allclose(within, without, rtol=1e-3)


@on_gpu_only
def test_calls_are_not_in_command_buffers():
    layer = haste_keras.LSTM(64, return_sequences=True)
    x = tf.random.stateless_normal([16, 20, 32], [3, 4])
    layer(x)
    function = tf.function(_step(layer, x), jit_compile=True)
    text = function.experimental_get_compiler_ir(x)(stage="optimized_hlo")
    assert "haste_op" in text
    for computation in re.split(r"\n\n", text):
        if re.match(r"%?command_buffer", computation.strip()):
            assert "haste_op" not in computation
