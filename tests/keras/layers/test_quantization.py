"""int8: what a quantised layer computes, what it keeps, and what it says of itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import call, make_mask, make_states, randomize
from int8_oracle import oracle

import haste_keras
from haste_keras.native import library

BATCH, TIME, FEATURES, UNITS = 4, 6, 5, 6


def quantized(row, rng, shape=(BATCH, TIME, FEATURES), **options):
    """A layer with random weights, quantised."""
    layer = row.layer(UNITS, **options)
    layer.build(shape)
    randomize(layer, rng)
    layer.quantize("int8")
    return layer


def assert_equal_rows(actual, expected, most=1):
    """Equal but for rounding; in at most `most` rows of the batch a value rounded the other way."""
    for got, want in zip(actual, expected, strict=True):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        error = np.abs(got - want).reshape(len(got), -1).max(1) / max(1, np.abs(want).max())
        assert error.max() < 0.1, error
        assert np.sum(error > 2e-5) <= most, error


OPTIONS = {
    "plain": lambda row: {},
    "heads": lambda row: row.allowed({"heads": 2}),
    "zoneout": lambda row: {**dict.fromkeys(row.zoneout, 0.2), "use_bias": False},
    "activations": lambda row: row.other_activations,
}


@pytest.mark.parametrize("mask_kind", [None, "holes", "all"])
@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
@pytest.mark.parametrize("feature", OPTIONS)
@pytest.mark.spread(17)
def test_is_the_oracle(row, feature, direction, mask_kind, rng, monkeypatch):
    options = {"direction": direction, "return_sequences": True, "return_state": True}
    layer = quantized(row, rng, **options, **OPTIONS[feature](row))
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    states = [state.astype("float32") for state in make_states(row, layer, BATCH, rng)]
    mask = None if mask_kind is None else make_mask(mask_kind, BATCH, TIME, rng)
    y, final = oracle(monkeypatch, row, layer, x, states, mask=mask)
    y = tf.concat(y, axis=-1)
    if mask is not None and direction == "bidirectional":
        y = tf.where(mask[:, :, None], y, tf.zeros_like(y))
    assert_equal_rows(call(layer, x, states, mask=mask), [y, *final])


@pytest.mark.spread(2)
@pytest.mark.parametrize("options", [{}, {"heads": 3}, {"dtype": "mixed_bfloat16"}], ids=str)
def test_one_step_is_that_of_the_cell(row, options, rng):
    """One step has no rounding before it: the op and the cell must have the same integers."""
    options = row.allowed(options)
    layer = quantized(row, rng, (BATCH, 1, FEATURES), return_state=True, **options)
    x = rng.normal(size=(BATCH, 1, FEATURES)).astype("float32")
    states = [tf.cast(s, layer.compute_dtype) for s in make_states(row, layer, BATCH, rng)]
    output, new = layer.cell(x[:, 0], states)
    wide = options.get("dtype") is None
    twice_rounded = row.name == "GRU reset before"  # r ∘ h is a result of floats
    for got, want in zip(call(layer, x, states), [output, *new], strict=True):
        got, want = tf.cast(got, "float64").numpy(), tf.cast(want, "float64").numpy()
        # The op's activations are approximate. A wrong integer would be off by some 1e-3.
        tolerance = (0.05 if twice_rounded else 5e-5) if wide else 0.02
        np.testing.assert_allclose(got, want, atol=tolerance * max(1, np.abs(want).max()))


def test_cell_in_keras_rnn(row, rng):
    layer = quantized(row, rng, return_sequences=True)
    steps = keras.layers.RNN(row.cell(UNITS), return_sequences=True)
    model = keras.Sequential([keras.Input((None, FEATURES)), steps])
    with pytest.warns(UserWarning, match="InputLayer"):
        model.quantize("int8")
    steps.set_weights(layer.get_weights())
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    assert_equal_rows([model(x)], [layer(x)])
    again = keras.layers.RNN.from_config(steps.get_config())
    assert again.cell.quantization_mode == "int8"


def test_is_near_to_float(row, rng):
    layer = row.layer(32)
    x = rng.normal(size=(8, 20, FEATURES)).astype("float32")
    expected = layer(x)
    layer.quantize("int8")
    error = np.abs(layer(x) - expected)
    assert 0 < np.mean(error) < 0.03 * np.mean(np.abs(expected))
    assert np.max(error) < 0.3


@pytest.mark.spread(2)
@pytest.mark.parametrize("size", [1, 3])
def test_a_row_does_not_depend_on_its_batch(row, size, rng):
    layer = quantized(row, rng, return_sequences=True, direction="bidirectional")
    x = rng.normal(size=(7, TIME, FEATURES)).astype("float32")
    x[3:] *= 100
    np.testing.assert_array_equal(layer(x[:size]), layer(x)[:size])


def test_weights(row, rng):
    layer = quantized(row, rng, direction="bidirectional")
    for cell in layer.cells:
        assert cell.kernel.dtype == "int8"
        assert not cell.kernel.trainable
        assert cell.kernel_scale.shape == cell.kernel.shape[-1:]
        names = {variable.name for variable in cell.trainable_weights}
        assert "kernel" not in names
        assert "bias" in names
        if row.recurrence == "dense":
            assert cell.recurrent_kernel.dtype == "int8"
            assert "recurrent_kernel" not in names
            assert np.abs(cell.recurrent_kernel).max() == 127
        elif row.recurrence == "diagonal":
            assert cell.recurrent_kernel.dtype == "float32"
            assert "recurrent_kernel" in names
    policies = {each.dtype_policy.name for each in (layer, *layer.cells)}
    assert policies == {"int8_from_float32"}
    assert layer.quantization_mode == "int8"


def test_each_output_has_a_scale(rng):
    layer = haste_keras.LSTM(4, heads=2)
    layer.build((None, None, 3))
    randomize(layer, rng)
    kernel, recurrent, _ = layer.get_weights()
    layer.quantize("int8")
    for name, value, axis in (("kernel", kernel, 0), ("recurrent_kernel", recurrent, 1)):
        scale = getattr(layer.cell, f"{name}_scale").numpy()
        np.testing.assert_allclose(scale, 127 / np.abs(value).max(axis), rtol=1e-5)
        again = getattr(layer.cell, name).numpy() / np.expand_dims(scale, axis)
        assert np.all(np.abs(again - value) <= 0.5001 / np.expand_dims(scale, axis))


@pytest.mark.spread(2)
@pytest.mark.parametrize("options", [{"direction": "bidirectional"}, {"heads": 2}], ids=str)
def test_files(row, options, rng, tmp_path):
    layer = row.layer(UNITS, **row.allowed(options))
    model = keras.Sequential([keras.Input((None, FEATURES)), layer, keras.layers.Dense(2)])
    randomize(layer, rng)
    with pytest.warns(UserWarning, match="InputLayer"):
        model.quantize("int8")
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    expected = model(x).numpy()
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "it.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].quantization_mode == "int8"
    np.testing.assert_array_equal(loaded(x), expected)
    dtype = "int8_from_float32"
    made = row.layer(UNITS, dtype=dtype, **row.allowed(options))
    made = keras.Sequential(
        [keras.Input((None, FEATURES)), made, keras.layers.Dense(2, dtype=dtype)]
    )
    made.load_weights(tmp_path / "it.weights.h5")
    np.testing.assert_array_equal(made(x), expected)
    assert [v.path for v in made.layers[0].weights] != []
    names = [variable.name for variable in layer.weights]
    assert [variable.name for variable in made.layers[0].weights] == names


def test_a_file_of_floats_is_refused(rng, tmp_path):
    def model(dtype):
        layer = haste_keras.LSTM(4, dtype=dtype)
        return keras.Sequential([keras.Input((None, 3)), layer])

    model("float32").save_weights(tmp_path / "float.weights.h5")
    with pytest.raises(ValueError, match="expected 5 variables"):
        model("int8_from_float32").load_weights(tmp_path / "float.weights.h5")


def test_wrappers_and_stateful(rng):
    x = rng.normal(size=(2, TIME, FEATURES)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((None, FEATURES), batch_size=2),
            keras.layers.Masking(),
            keras.layers.Bidirectional(haste_keras.GRU(4, return_sequences=True)),
            haste_keras.LSTM(4, stateful=True),
        ]
    )
    expected = [model(x).numpy() for _ in range(2)]
    with pytest.warns(UserWarning, match="quantize"):
        model.quantize("int8")
    model.layers[2].reset_state()
    for want in expected:
        np.testing.assert_allclose(model(x), want, atol=0.03)
    copy = keras.models.clone_model(model)
    assert copy.layers[1].forward_layer.cell.quantization_mode == "int8"
    copy.set_weights(model.get_weights())
    model.layers[2].reset_state(), copy.layers[2].reset_state()
    np.testing.assert_array_equal(copy(x), model(x))


def test_dtype_policies(rng):
    built = haste_keras.GRU(4)
    built.build((None, None, 3))
    built.dtype_policy = "int8_from_float32"
    assert built.cell.kernel.dtype == "int8"
    before = haste_keras.GRU(4, direction="bidirectional")
    before.dtype_policy = "int8_from_float32"
    before.build((None, None, 3))
    assert {cell.kernel.dtype for cell in before.cells} == {"int8"}
    mixed = haste_keras.GRU(4, dtype="mixed_bfloat16")
    mixed.build((None, None, 3))
    mixed.quantize("int8")
    assert mixed.dtype_policy.name == "int8_from_mixed_bfloat16"
    assert mixed(np.ones([2, 3, 3])).dtype == "bfloat16"
    half = haste_keras.GRU(4, dtype="mixed_float16")
    half.build((None, None, 3))
    with pytest.raises(ValueError, match="float16"):
        half.quantize("int8")


def test_errors(rng):
    layer = haste_keras.LSTM(4)
    with pytest.raises(ValueError, match="isn't yet built"):
        layer.quantize("int8")
    layer.build((None, None, 3))
    with pytest.raises(ValueError, match="Invalid quantization mode"):
        layer.quantize("int3")
    with pytest.raises(NotImplementedError, match=r"LSTM layer .* has 'int8' alone.*float8"):
        layer.quantize("float8")
    layer.quantize("int8")
    for each in (layer, layer.cell):
        with pytest.raises(ValueError, match="already quantized with dtype_policy='int8_from"):
            each.quantize("int8")

    class Mine(haste_keras.LSTM):
        pass

    mine = Mine(4)
    mine.build((None, None, 3))
    with pytest.raises(NotImplementedError, match="Mine does not have a `quantize` method"):
        mine.quantize("int8")
    mine.quantize("int8", type_check=False)
    with pytest.raises(NotImplementedError, match="has 'int8' alone"):
        haste_keras.LSTM(4, dtype="float8_from_float32").build((None, None, 3))
    with pytest.raises(ValueError, match="LSTM is not quantized"):
        haste_keras.to_keras(layer)


def test_half_a_layer(rng):
    layer = haste_keras.LSTM(4, direction="bidirectional")
    layer.build((None, None, 3))
    layer.cell.quantize("int8")
    with pytest.raises(ValueError, match="one that is not"):
        layer(np.ones([2, 3, 3]))
    layer.quantize("int8")
    layer(np.ones([2, 3, 3]))


def test_config_of_keras(rng):
    make = getattr(keras.quantizers, "Int8QuantizationConfig", None)
    if make is None:
        pytest.skip("this Keras has no QuantizationConfig")
    layers = [haste_keras.LSTM(4, seed=1) for _ in range(3)]
    for layer in layers:
        layer.build((None, None, 3))
    coarse = keras.quantizers.AbsMaxQuantizer(axis=0, value_range=(-7, 7))
    layers[0].quantize(config=make(weight_quantizer=coarse))
    assert np.abs(layers[0].cell.kernel).max() == 7
    with pytest.raises(NotImplementedError, match="activation_quantizer"):
        layers[1].quantize(config=make(activation_quantizer=None))
    whole = keras.quantizers.AbsMaxQuantizer(axis=None)
    with pytest.raises(ValueError, match="one scale for each column"):
        layers[2].quantize(config=make(weight_quantizer=whole))
    layers[2](np.ones([2, 3, 3]))  # a failure leaves the layer as it was


def test_transforms_are_folded(rng):
    layer = haste_keras.GRU(
        4,
        kernel_transform=keras.activations.tanh,
        recurrent_transform=keras.activations.tanh,
        bias_transform=keras.activations.tanh,
    )
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    layer.build(x.shape)
    randomize(layer, rng)
    expected = layer(x)
    layer.quantize("int8")
    assert (layer.kernel_transform, layer.recurrent_transform) == (None, None)
    np.testing.assert_allclose(layer(x), expected, atol=0.05)


@pytest.mark.spread(3)
def test_training_goes_through(row, rng):
    """The matrices stay; biases and what comes before the layer are trained, as with Dense."""
    layer = row.layer(UNITS, **row.noise(0.1))
    model = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.Dense(FEATURES), layer])
    layer.quantize("int8")
    model.compile("sgd", "mse")
    before = [w.copy() for w in layer.cell.get_weights()], model.layers[0].get_weights()
    model.fit(np.ones([8, 5, FEATURES]), np.ones([8, UNITS]), epochs=2, verbose=0)
    after = layer.cell.get_weights(), model.layers[0].get_weights()
    assert np.abs(after[1][0] - before[1][0]).max() > 0
    for variable, old, new in zip(layer.cell.weights, before[0], after[0], strict=True):
        changed = np.any(old != new)
        assert changed == variable.trainable, variable.name


def test_gradient_of_the_cell(row, rng):
    layer = quantized(row, rng)
    x = tf.constant(rng.normal(size=(BATCH, FEATURES)), tf.float32)
    states = [tf.constant(s, tf.float32) for s in make_states(row, layer, BATCH, rng)]
    gradients = []
    for training in (False, True):  # in int8, and by the weights as floats
        with tf.GradientTape() as tape:
            tape.watch(x)
            output, _ = layer.cell(x, states, training=training)
        gradients.append(tape.gradient(output, x))
    assert np.abs(gradients[0]).max() > 0
    np.testing.assert_allclose(*gradients, atol=0.1 * np.abs(gradients[1]).max())


def test_explain_and_the_gradient_of_an_op(rng):
    layer = haste_keras.LSTM(8)
    layer.build((None, None, 3))
    layer.quantize("int8")
    (line,) = haste_keras.explain(layer, (2, 5, 3), device="CPU")
    assert line.endswith(", int8 weights")
    (line,) = haste_keras.explain(layer, (2, 5, 3), device="H200")
    assert "int8" not in line
    x = tf.ones([2, 5, 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=False)
    with pytest.raises(NotImplementedError, match="int8 weights are for inference"):
        tape.gradient(y, x)


def test_compiled_by_xla(rng):
    """XLA's kernels multiply by the weights as floats; a loop over the cell is in int8."""
    layer = haste_keras.GRU(8, return_sequences=True)
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    layer.build(x.shape)
    layer.quantize("int8")
    compiled = tf.function(layer, jit_compile=True)(x)
    if library.xla_here()[0]:
        np.testing.assert_allclose(compiled, layer(x, training=True), atol=1e-5)
    np.testing.assert_allclose(compiled, layer(x), atol=0.03)


def test_large_sums_are_exact(rng):
    from haste_keras.ops import int8

    x = np.ones([2, 3000], np.float32)
    weights = np.full([3000, 4], 127, np.int8)
    weights[0] = 126
    scale = np.ones([4], np.float32)
    product = int8.product(tf.constant(x), tf.constant(weights), tf.constant(scale))
    assert np.all(product.numpy() == np.float32(127 * (2999 * 127 + 126)) * np.float32(1 / 127))


def test_rows_that_are_zero_or_not_finite(rng):
    layer = haste_keras.LSTM(4, dtype="int8_from_float32")
    layer.build((None, None, 3))
    layer.set_weights([rng.integers(-127, 128, w.shape) for w in layer.weights])
    x = np.zeros([4, 2, 3], np.float32)
    x[1] = 1e-38
    x[2, 0, 0] = np.inf
    x[3, 0, 0] = np.nan
    y = layer(x).numpy()
    np.testing.assert_array_equal(y[1], y[0])
    assert np.all(np.isnan(y[2:]))
    assert np.all(np.isfinite(y[:2]))
