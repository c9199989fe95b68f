"""The fused layer against the stock one: outputs and every gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import (
    assert_close,
    call,
    make_mask,
    make_states,
    pairwise,
    randomize,
    values_and_gradients,
    variables,
)
from rows import ROWS

CHOICES = {
    "use_bias": [True, False],
    "return_sequences": [False, True],
    "return_state": [False, True],
    "go_backwards": [False, True],
    "zero_output_for_mask": [False, True],
    "unroll": [False, True],
    "dtype": ["float32", "float64"],
    "mask": [None, "left", "right", "holes", "all"],
    "initial_state": [False, True],
    "graph": [False, True],
}
TOLERANCE = {"float32": 5e-5, "float64": 1e-12}
CASES = [
    pytest.param(row, case, id=f"{row.name}-{i}")
    for row in ROWS
    if row.stock_class is not None
    for i, case in enumerate(pairwise({**row.choices, **CHOICES}))
]


@pytest.mark.spread(3)
@pytest.mark.parametrize(("row", "case"), CASES)
def test_outputs_and_gradients(row, case, rng, seed):
    print(case)
    case = dict(case)
    mask_kind, with_states, graph = (case.pop(k) for k in ("mask", "initial_state", "graph"))
    batch, time, features, units = 3, 5, 4, 6
    fused = row.layer(units, **case)
    if case["go_backwards"] and case["zero_output_for_mask"]:
        case["unroll"] = False  # unrolled, Keras zeroes by the mask in the wrong order
    stock = row.stock(units, **case)
    x = tf.constant(rng.normal(size=(batch, time, features)), case["dtype"])
    stock.build(x.shape), fused.build(x.shape)
    randomize(stock, rng)
    fused.set_weights(stock.get_weights())
    mask = make_mask(mask_kind, batch, time, rng) if mask_kind else None
    states = [tf.constant(s, case["dtype"]) for s in make_states(row, fused, batch, rng)]
    states = states if with_states else None

    results = []
    for layer in (fused, stock):
        run = tf.function(call) if graph else call
        sources = [x, *(states or []), *variables(layer)]
        results.append(
            values_and_gradients(lambda f=run, a=layer: f(a, x, states, mask=mask), sources, seed)
        )
    assert_close(*results, TOLERANCE[case["dtype"]])


@pytest.mark.stock
def test_each_output_alone_has_its_gradient(row, rng, seed):
    x = tf.constant(rng.normal(size=(2, 4, 3)), "float64")
    layers = [
        make(5, dtype="float64", return_sequences=sequences, return_state=True)
        for sequences in (False, True)
        for make in (row.stock, row.layer)
    ]
    for stock, fused in (layers[:2], layers[2:]):
        stock.build(x.shape)
        fused.build(x.shape)
        randomize(stock, rng)
        fused.set_weights(stock.get_weights())
        for only in range(1 + row.states):
            pair = [
                values_and_gradients(lambda a=a, i=only: [call(a, x)[i]], [x, *variables(a)], seed)
                for a in (fused, stock)
            ]
            assert_close(*pair, 1e-12)


@pytest.mark.stock
def test_stateful_over_calls(row, rng):
    xs = rng.normal(size=(3, 2, 4, 3)).astype("float32")
    stock, fused = (make(5, stateful=True, return_state=True) for make in (row.stock, row.layer))
    stock.build(xs[0].shape), fused.build(xs[0].shape)
    fused.set_weights(stock.get_weights())
    for x in xs:
        for got, want in zip(call(fused, x), call(stock, x), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
    stock_states = tf.nest.flatten([stock.states])
    for variable, state in zip(fused.states, stock_states, strict=True):
        assert not variable.trainable
        np.testing.assert_allclose(variable, state, atol=1e-6)
    assert len(fused.get_weights()) == len(stock.get_weights())
    fused.reset_state()
    assert all(not np.any(v) for v in fused.states)
    fused.reset_states()


def test_stateful_in_graph(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    eager, graph = row.layer(5, stateful=True), row.layer(5, stateful=True)
    eager(x), graph(x)
    graph.set_weights(eager.get_weights())
    eager.reset_state(), graph.reset_state()
    run = tf.function(graph)
    for _ in range(3):
        np.testing.assert_allclose(run(x), eager(x), atol=1e-6)


@pytest.mark.stock
def test_same_seed_gives_the_stock_weights(row):
    made = []
    for make in (row.stock, row.layer):
        keras.utils.set_random_seed(5)
        layer = make(6)
        layer.build((None, None, 4))
        made.append(layer)
    stock, fused = made
    for ours, theirs in zip(fused.weights, stock.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert (ours.name, ours.path.split("/")[1:]) == (theirs.name, theirs.path.split("/")[1:])
    assert len(fused.variables) == len(stock.variables)


@pytest.mark.stock
def test_dropout_draws_what_the_stock_layer_draws(row, rng):
    x = rng.normal(size=(3, 4, 5)).astype("float32")
    stock, fused = (make(6, dropout=0.5, seed=11) for make in (row.stock, row.layer))
    stock.build(x.shape), fused.build(x.shape)
    fused.set_weights(stock.get_weights())
    for _ in range(2):  # fresh masks each call
        np.testing.assert_allclose(fused(x, training=True), stock(x, training=True), atol=1e-6)
    assert np.any(fused(x, training=True) != fused(x, training=True))
    np.testing.assert_allclose(fused(x), stock(x), atol=1e-6)


def test_dropout_is_equal_in_eager_and_graph(row, rng):
    x = rng.normal(size=(3, 4, 5)).astype("float32")
    options = {"dropout": 0.3, "zoneout": 0.2, **row.noise(0.3)}
    eager, graph = (row.layer(6, seed=3, **options) for _ in range(2))
    eager.build(x.shape), graph.build(x.shape)
    graph.set_weights(eager.get_weights())
    run = tf.function(lambda x: graph(x, training=True))
    first = run(x)
    np.testing.assert_allclose(first, eager(x, training=True), atol=1e-6)
    second = run(x)
    assert np.any(first != second)
    np.testing.assert_allclose(second, eager(x, training=True), atol=1e-6)


@pytest.mark.stock
def test_stock_config_is_ours(row):
    stock = row.stock(4, kernel_regularizer="l2", dropout=0.1, go_backwards=True, name="it")
    fused = row.layer_class.from_config(stock.get_config())
    config = fused.get_config()
    for name, value in stock.get_config().items():
        assert config[name] == value, name
    assert row.layer_class.from_config(config).get_config() == config


@pytest.mark.stock
def test_attributes_of_the_stock_layer(row):
    stock, fused = row.stock(4), row.layer(4)
    for ours, theirs in ((fused, stock), (fused.cell, stock.cell)):
        public = [n for n in dir(theirs) if not n.startswith("_") and hasattr(theirs, n)]
        assert [name for name in public if not hasattr(ours, name)] == []
    assert fused.state_size == stock.state_size
    assert fused.input_spec.ndim == 3
    assert fused.supports_masking == stock.supports_masking
    assert not isinstance(fused, row.stock_class)
    assert fused.output_size == 4


def test_persistent_tape_and_shared_weights(row, rng):
    x = tf.constant(rng.normal(size=(2, 3, 4)).astype("float32"))
    layer = row.layer(5)
    layer.build(x.shape)
    with tf.GradientTape(persistent=True) as tape:
        one, two = layer(x), layer(2 * x)
        both = tf.reduce_sum(one) + tf.reduce_sum(two)
    kernel = layer.cell.kernel.value
    total = tape.gradient(both, kernel)
    parts = [tape.gradient(each, kernel) for each in (one, two)]
    np.testing.assert_allclose(total, parts[0] + parts[1], atol=1e-5)
