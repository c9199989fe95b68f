"""Training: policies, compilation, strategies, regularizers."""

import contextlib
import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import assert_close, make_mask, make_states, randomize

import haste_keras
from haste_keras.native import library

TOLERANCE = {"float32": 1e-6, "float64": 1e-12, "float16": 1e-2, "bfloat16": 5e-2}


def _model(row, **options):
    return keras.Sequential([row.layer(6, **options), keras.layers.Dense(1, dtype="float32")])


def _fit(model, epochs=6, **compile_options):
    optimizer = compile_options.pop("optimizer", None) or keras.optimizers.Adam(0.02)
    model.compile(optimizer, "mse", **compile_options)
    x = np.random.default_rng(0).normal(size=(16, 5, 3)).astype("float32")
    target = x.sum(axis=(1, 2))[:, None]
    losses = model.fit(x, target, epochs=epochs, batch_size=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    return model


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("policy", "compute", "variable"),
    [
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("mixed_float16", "float16", "float32"),
        ("mixed_bfloat16", "bfloat16", "float32"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}], ids=str)
def test_policies(row, policy, compute, variable, options, rng):
    # The default "orthogonal" is a QR decomposition, which TensorFlow does not have in bfloat16.
    layer = row.layer(
        4,
        dtype=policy,
        return_state=True,
        return_sequences=True,
        **row.allowed({"recurrent_initializer": "glorot_uniform"}),
        **options,
    )
    exact = row.layer(4, dtype="float64", return_state=True, return_sequences=True, **options)
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    mask = make_mask("holes", 2, 5, rng)
    layer.build(x.shape), exact.build(x.shape)
    randomize(layer, rng)
    exact.set_weights([np.asarray(w, "float64") for w in layer.get_weights()])
    outputs = layer(x, mask=mask)
    assert {o.dtype for o in outputs} == {tf.as_dtype(compute)}
    assert {w.dtype for w in layer.weights} == {variable}
    got = {i: tf.cast(output, "float64").numpy() for i, output in enumerate(outputs)}
    want = {i: output.numpy() for i, output in enumerate(exact(x, mask=mask))}
    assert_close(got, want, TOLERANCE[compute])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x)[0])
    for gradient, weight in zip(
        tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True
    ):
        assert gradient.dtype == weight.dtype


@pytest.mark.spread(4)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_trains_under_a_global_mixed_policy(row, policy):
    keras.config.set_dtype_policy(policy)
    model = _fit(_model(row, **row.noise(0.1)))
    if policy == "mixed_float16":
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_gradients_of_many_rows_in_16_bits(row, policy, rng):
    # Sums over N·T rows, which an accumulator of 16 bits would get wrong. Rows are short, because
    # layer normalisation amplifies rounding errors over long ones.
    x = rng.normal(size=(600, 6, 8)).astype("float32")
    target = rng.normal(size=(600, 6, 16)).astype("float32")
    exact, layer = (
        row.layer(16, return_sequences=True, activation="tanh", dtype=dtype)
        for dtype in ("float32", policy)
    )
    exact.build(x.shape), layer.build(x.shape)
    layer.set_weights(exact.get_weights())

    def gradients(each):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(each(x, training=True), "float32") * target)
        return tape.gradient(loss, each.trainable_variables)

    tolerance = {"mixed_float16": 2e-3, "mixed_bfloat16": 1.5e-2}[policy]
    for got, want in zip(gradients(layer), gradients(exact), strict=True):
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < tolerance * (3 if hasattr(layer, "epsilon") else 1)


def _ops_of_gradients(call, inputs, weights=()):
    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = call(inputs)
        return tape.gradient(y, [inputs, list(weights)])

    return {op.type for op in gradients.get_concrete_function().graph.get_operations()}


@pytest.mark.parametrize("in_op", [False, True], ids=["products apart", "in the op"])
@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}], ids=str)
def test_no_gradient_is_copied_into_zeros(row, options, in_op, monkeypatch):
    """That of a strided slice is: all of its input's gradient is written once more."""
    monkeypatch.setattr(library, "multiplies_in_training", lambda: in_op)
    x = tf.zeros([2, 5, 3])
    layer = row.layer(4, return_sequences=True, **options)
    layer(x)
    ops = _ops_of_gradients(lambda x: layer(x, training=True), x, layer.trainable_weights)
    assert any(op.startswith("Haste") and op.endswith("Grad") for op in ops)
    assert "StridedSliceGrad" not in ops


def test_no_gradient_of_forget_mult_is_copied_into_zeros():
    f = x = tf.zeros([2, 5, 4])
    ops = _ops_of_gradients(haste_keras.ForgetMult(), [f, x])
    assert "HasteForgetMultGrad" in ops
    assert "StridedSliceGrad" not in ops


@pytest.mark.spread(4)
def test_loss_scale_optimizer(row):
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01))
    _fit(_model(row, dtype="mixed_float16"), optimizer=optimizer)


@pytest.mark.spread(4)
def test_compile_with_jit_trains(row):
    compiles = library.xla_here()[0]
    warned = pytest.warns(UserWarning, match="jit_compile")
    with contextlib.nullcontext() if compiles else warned:
        model = _fit(_model(row), jit_compile=True)
    assert model.jit_compile == compiles


def test_auto_jit_stays_off_without_a_word(row):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = _model(row)
        model.compile("adam", "mse", jit_compile="auto")
    assert model.jit_compile == (os.environ.get("HASTE_TEST_XLA") == "1")


def _warns_without_kernels():
    """Where XLA cannot run the ops, a layer says that it runs Keras's loop."""
    if library.xla_here()[0]:
        return contextlib.nullcontext()
    return pytest.warns(UserWarning, match="XLA")


@pytest.mark.spread(12)
@pytest.mark.parametrize(
    "options",
    [
        {"return_sequences": True},
        {"return_sequences": True, "go_backwards": True},
        {"direction": "backward", "return_sequences": True},
        {"direction": "bidirectional", "return_sequences": True},
        {"direction": "bidirectional", "go_backwards": True, "return_sequences": True},
        {"heads": 2, "zoneout": 0.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("masked", [False, True])
def test_function_that_xla_compiles_gives_the_same(row, options, masked, rng):
    layer = row.layer(4, return_state=True, **row.allowed(options))
    x = tf.constant(rng.normal(size=(3, 5, 2)).astype("float32"))
    mask = tf.constant(make_mask("all", 3, 5, rng)) if masked else None
    layer.build(x.shape)
    randomize(layer, rng)

    def step(x):
        with tf.GradientTape() as tape:
            outputs = layer(x, mask=mask)
            loss = tf.add_n([tf.reduce_sum(o**2) for o in outputs])
        return [*outputs, *tape.gradient(loss, layer.trainable_variables)]

    with _warns_without_kernels():
        compiled = tf.function(step, jit_compile=True)(x)
    for got, want in zip(compiled, step(x), strict=True):  # gradients are sums of up to some 20
        np.testing.assert_allclose(got, want, rtol=4e-6, atol=2e-5)


@pytest.mark.spread(2)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_function_that_xla_compiles_takes_no_steps(row, direction, rng):
    layer = row.layer(4, return_sequences=True, return_state=True, direction=direction)
    layer.build((None, None, 2))
    states = [tf.constant(state, tf.float32) for state in make_states(row, layer, 3, rng)]
    x = tf.zeros([3, 0, 2])
    with _warns_without_kernels():
        compiled = tf.function(layer, jit_compile=True)(x, initial_state=states)
    for got, want in zip(compiled, layer(x, initial_state=states), strict=True):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@pytest.mark.spread(2)
def test_runs_eagerly(row):
    _fit(_model(row, dropout=0.1), epochs=3, run_eagerly=True)


REGULARIZERS = {
    "kernel_regularizer": "l2",
    "recurrent_regularizer": "l2",
    "bias_regularizer": "l1",
    "activity_regularizer": "l2",
}


def test_regularizers_count_once(row, rng):
    layer = row.layer(4, **row.allowed(REGULARIZERS))
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    layer.build(x.shape)
    randomize(layer, rng)
    layer(x)
    penalty = {
        "kernel": lambda w: 0.01 * np.sum(w**2),
        "recurrent_kernel": lambda w: 0.01 * np.sum(w**2),
        "bias": lambda w: 0.01 * np.sum(np.abs(w)),
    }
    expected = sum(penalty[w.name](w.numpy()) for w in layer.weights if w.name in penalty)
    assert len(layer.losses) == 1 + sum(w.name in penalty for w in layer.weights)
    # Whether it is divided by the batch depends on the version of Keras: a plain layer shows it.
    plain = keras.layers.Activation("linear", activity_regularizer="l2")
    plain(layer(x))
    expected += sum(plain.losses)
    layer(x)
    np.testing.assert_allclose(sum(layer.losses), expected, rtol=1e-5)


@pytest.mark.stock
def test_regularizers_count_what_the_stock_layer_counts(row, rng):
    regularizers = dict(REGULARIZERS)
    if row.stock_class is keras.layers.SimpleRNN:
        del regularizers["activity_regularizer"]  # Keras drops it
    layer, stock = row.layer(4, **regularizers), row.stock(4, **regularizers)
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    layer(x), stock(x)
    stock.set_weights(layer.get_weights())
    layer(x), stock(x)
    np.testing.assert_allclose(sum(layer.losses), sum(stock.losses), rtol=1e-5)


@pytest.mark.spread(2)
def test_constraints_hold(row, rng):
    constraints = {
        "kernel_constraint": "non_neg",
        "recurrent_constraint": "unit_norm",
        "bias_constraint": "non_neg",
    }
    layer = row.layer(4, **row.allowed(constraints))
    model = keras.Sequential([layer])
    model.compile("adam", "mse", run_eagerly=True)
    model.fit(rng.normal(size=(8, 5, 3)).astype("float32"), np.ones((8, 4)), verbose=0)
    assert np.all(layer.cell.kernel.numpy() >= 0)
    assert np.all(layer.cell.bias.numpy() >= 0)
    if row.recurrence != "none":
        norms = np.linalg.norm(layer.cell.recurrent_kernel.numpy(), axis=0)
        np.testing.assert_allclose(norms, 1, atol=1e-5)


def test_native_bidirectional_regularizes_each_direction(row, rng):
    layer = row.layer(4, direction="bidirectional", kernel_regularizer="l2")
    layer(rng.normal(size=(2, 3, 3)).astype("float32"))
    expected = 0.01 * sum(np.sum(cell.kernel.numpy() ** 2) for cell in layer.cells)
    np.testing.assert_allclose(sum(layer.losses), expected, rtol=1e-5)


@pytest.mark.spread(2)
def test_trainable_false(row, rng):
    layer = row.layer(4, trainable=False)
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    model(x)
    before = layer.get_weights()
    model.fit(x, np.ones((8, 1)), verbose=0)
    for got, want in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(got, want)
    assert layer.trainable_variables == []
    layer.trainable = True
    assert len(layer.trainable_variables) == len(before)


@pytest.mark.spread(4)
def test_mirrored_strategy_of_one_device(row):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        _fit(_model(row, **row.noise(0.1)))


@pytest.mark.spread(2)
def test_stateful_model_trains_and_predicts(row, rng):
    inputs = keras.Input(batch_shape=(4, 5, 3))
    layer = row.layer(6, stateful=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model.compile("adam", "mse")
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    model.fit(x, np.ones((8, 1)), batch_size=4, shuffle=False, verbose=0)
    assert np.any(layer.states[0])
    layer.reset_state()
    first = model.predict(x[:4], batch_size=4, verbose=0)
    assert np.any(model.predict(x[:4], batch_size=4, verbose=0) != first)


def test_no_variable_appears_after_build(row, rng):
    layer = row.layer(4, **row.noise(0.1))
    layer.build((None, None, 3))
    names = [v.path for v in layer.variables]
    x = rng.normal(size=(2, 3, 3)).astype("float32")
    layer(x, training=True), layer(x)
    assert [v.path for v in layer.variables] == names


@pytest.mark.parametrize("masked", [False, True])
def test_xla_of_forget_mult_of_any_length(masked, rng, monkeypatch):
    """The loop of steps where the graph does not know their number, and where there is none."""
    monkeypatch.setattr(library, "xla_here", lambda: (False, "XLA is too old"))
    layer = haste_keras.ForgetMult(direction="backward")
    specs = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, None], tf.bool)]

    @tf.function(input_signature=specs, jit_compile=True, autograph=False)
    def compiled(x, mask):
        return layer([tf.sigmoid(x), x], mask=mask if masked else None)

    x = tf.constant(rng.normal(size=(2, 5, 3)), tf.float32)
    mask = tf.constant(rng.random((2, 5)) < 0.5)
    ours = layer([tf.sigmoid(x), x], mask=mask if masked else None)
    with pytest.warns(UserWarning, match="XLA compiles this function"):
        np.testing.assert_allclose(compiled(x, mask), ours, atol=1e-6)
    assert compiled(x[:, :0], mask[:, :0]).shape == (2, 0, 3)
