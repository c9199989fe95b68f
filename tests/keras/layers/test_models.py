"""The layer inside models and wrappers of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import make_states

import haste_keras


@pytest.mark.spread(4)
@pytest.mark.parametrize("outer", [3, None])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}], ids=str)
def test_time_distributed(row, options, outer, dtype, rng):
    # As many rows as outer steps: with an unknown outer length Keras mistakes one for the other.
    x = rng.normal(size=(3, 3, 5, 4)).astype("float32")
    inputs = keras.Input((outer, 5, 4))
    layer = row.layer(6, dtype=dtype, return_sequences=True, **options)
    outputs = keras.layers.TimeDistributed(layer, dtype=dtype)(inputs)
    model = keras.Model(inputs, outputs)
    compiled = tf.function(model, input_signature=[tf.TensorSpec([None, outer, 5, 4])])
    with tf.GradientTape() as tape:
        y = compiled(x)
        loss = tf.reduce_sum(tf.cast(y, "float32"))
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(g is not None for g in gradients)
    for t in range(3):
        np.testing.assert_allclose(
            tf.cast(y[:, t], "float32"), tf.cast(layer(x[:, t]), "float32"), atol=2e-2
        )


def test_time_distributed_takes_integers(row):
    x = np.arange(24).reshape(1, 2, 4, 3)
    layer = row.layer(3)
    y = keras.layers.TimeDistributed(layer)(x)
    np.testing.assert_allclose(y[:, 1], layer(x[:, 1].astype("float32")), atol=1e-6)


def test_integer_and_float64_inputs(row):
    layer = row.layer(3)
    x = np.arange(12).reshape(1, 4, 3)
    y = layer(x.astype("float32"))
    assert y.dtype == tf.float32
    np.testing.assert_array_equal(layer(x.astype("float64")), y)
    np.testing.assert_array_equal(layer(x), y)


@pytest.mark.spread(2)
def test_encoder_decoder(row, rng):
    # Of one size, since a window over time hands its last inputs on.
    source, target = keras.Input((None, 2)), keras.Input((None, 2))
    _, *states = row.layer(5, return_state=True)(source)
    decoder = row.layer(5, return_sequences=True, return_state=True)
    decoded, *_ = decoder(target, initial_state=states)
    model = keras.Model([source, target], keras.layers.Dense(1)(decoded))
    model.compile("adam", "mse")
    data = [rng.normal(size=(4, t, c)).astype("float32") for t, c in ((6, 2), (5, 2))]
    model.fit(data, np.ones((4, 5, 1)), verbose=0)

    given = [keras.Input((size,)) for size in decoder.state_size]
    step = keras.Model([target, *given], decoder(target, initial_state=given))
    states = [tf.constant(state, "float32") for state in make_states(row, decoder, 4, rng)]
    whole = decoder(data[1], initial_state=states)[0]
    for t in range(5):
        y, *states = step([tf.constant(data[1][:, t : t + 1]), *states])
        np.testing.assert_allclose(y[:, 0], whole[:, t], atol=1e-6)


def test_states_positional_tuple_and_array(row, rng):
    layer = row.layer(5)
    x = tf.constant(rng.normal(size=(2, 3, 4)).astype("float32"))
    layer.build(x.shape)
    states = [tf.constant(state, "float32") for state in make_states(row, layer, 2, rng)]
    expected = layer(x, initial_state=states)
    np.testing.assert_array_equal(layer(x, states), expected)
    np.testing.assert_array_equal(layer(x, initial_state=tuple(states)), expected)
    arrays = [state.numpy() for state in states]
    np.testing.assert_array_equal(layer(x, initial_state=arrays), expected)


def test_embedding_mask_reaches_the_layer_and_goes_on(row, rng):
    tokens = rng.integers(0, 5, size=(3, 6))
    tokens[0, :3] = 0
    embedding = keras.layers.Embedding(5, 4, mask_zero=True)
    layer = row.layer(3, return_sequences=True)
    y = layer(embedding(tokens))
    np.testing.assert_array_equal(y, layer(embedding(tokens), mask=tokens != 0))
    np.testing.assert_array_equal(y._keras_mask, tokens != 0)
    assert getattr(row.layer(3)(embedding(tokens)), "_keras_mask", None) is None


def test_mask_of_other_types(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    mask = np.array([[1, 0, 1, 1], [0, 0, 1, 0]])
    layer = row.layer(3)
    expected = layer(x, mask=mask.astype(bool))
    for dtype in ("int32", "float32"):
        np.testing.assert_array_equal(layer(x, mask=mask.astype(dtype)), expected)
    np.testing.assert_array_equal(layer(x, mask=[mask]), expected)


@pytest.mark.spread(3)
def test_nested_and_subclassed(row, rng):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = keras.Sequential([row.layer(4, return_sequences=True)])
            self.second = keras.layers.Bidirectional(row.layer(3))
            self.third = keras.layers.Dense(1)

        def call(self, x, training=False):
            return self.third(self.second(self.first(x, training=training), training=training))

    model = Subclassed()
    model.compile("sgd", "mse")
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    losses = model.fit(x, np.ones((8, 1)), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    one = len(model.first.trainable_variables)
    assert len(model.trainable_variables) == one + 2 * one + 2


def test_one_trace_for_every_batch_and_length(row):
    layer = row.layer(4, return_sequences=True)
    layer.build((None, None, 3))
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3])])
    def run(x):
        traces.append(1)
        y = layer(x)
        assert y.shape.as_list() == [None, None, 4]
        return y

    for shape in ((2, 5), (1, 1), (4, 9), (0, 3), (3, 0)):
        x = tf.random.normal([*shape, 3])
        y = run(x)
        assert y.shape == (*shape, 4)
        np.testing.assert_allclose(y, layer(x), atol=1e-6)
    assert len(traces) == 1


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
def test_graph_of_unknown_sizes_computes_none(layer, return_sequences):
    """With one step each node counts, so the graph has no more than it needs."""
    layer = getattr(haste_keras, layer)(4, return_sequences=return_sequences)
    layer(tf.zeros([2, 3, 5]))
    run = tf.function(lambda x: layer(x), input_signature=[tf.TensorSpec([None, None, 5])])
    waiting = [output.op for output in run.get_concrete_function().graph.outputs]
    seen = {}
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen[op.name] = op.type
            waiting += [tensor.op for tensor in op.inputs]
    ours = {kind for kind in seen.values() if kind.startswith("Haste")}
    given = {"Placeholder", "Const", "ReadVariableOp", "Identity"}
    assert len(ours) == 1
    assert set(seen.values()) - ours - given <= {"Reshape", "StridedSlice", "Unpack"}
    assert run(tf.zeros([2, 0, 5])).shape == ((2, 0, 4) if return_sequences else (2, 4))


def test_static_shapes_are_kept(row):
    layer = row.layer(4, return_sequences=True, return_state=True)

    @tf.function(input_signature=[tf.TensorSpec([2, 5, 3])])
    def run(x):
        y, *states = layer(x)
        assert y.shape == (2, 5, 4)
        assert [s.shape for s in states] == [(2, size) for size in layer.state_size]
        return y

    run(np.ones((2, 5, 3), "float32"))


@pytest.mark.spread(2)
def test_summary_counts_the_parameters(row):
    lines = []
    model = keras.Sequential([keras.Input((4, 3)), row.layer(5)])
    model.summary(print_fn=lambda line, **_: lines.append(line))
    total = sum(int(np.prod(weight.shape)) for weight in model.layers[0].weights)
    assert str(total) in "".join(lines)
    if row.stock_class is not None:
        stock = row.stock(5)
        stock.build((None, 4, 3))
        assert total == stock.count_params()


@pytest.mark.parametrize("when", ["before", "after"])
def test_policy_that_is_set_later(row, when, rng):
    layer = row.layer(4)
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    if when == "after":
        layer(x)
    layer.dtype_policy = "mixed_bfloat16"
    model = keras.Sequential([keras.Input((None, 3)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, np.zeros((2, 1), "float32"), verbose=0)
    assert np.all(np.isfinite(model.predict(x, verbose=0)))
    assert layer(x).dtype == tf.bfloat16
    assert all(weight.dtype == "float32" for weight in layer.trainable_variables)
