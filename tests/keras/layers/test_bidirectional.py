"""The two ways to run both directions: Keras's Bidirectional around our layer, and direction=."""

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

import haste_keras

MERGE_MODES = ["concat", "sum", "mul", "ave", None]
CASES = pairwise(
    {
        "merge_mode": MERGE_MODES,
        "mask": [None, "left", "right", "all"],
        "sequences": [False, True],
        "with_states": [False, True],
    }
)


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['merge_mode']}-{case['mask']}")
def test_native_is_keras_bidirectional(row, case, rng, seed):
    """For our layer and, if Keras has the layer, for Keras's."""
    print(case)
    merge_mode = case["merge_mode"]
    options = {"return_sequences": case["sequences"], "return_state": True, "dtype": "float64"}
    native = row.layer(5, direction="bidirectional", merge_mode=merge_mode, **options)
    x = tf.constant(rng.normal(size=(3, 4, 2)))
    mask = make_mask(case["mask"], 3, 4, rng) if case["mask"] else None
    native.build(x.shape)
    randomize(native, rng)
    states = [tf.constant(state) for state in make_states(row, native, 3, rng)]
    states = states if case["with_states"] else None

    def results(layer):
        sources = [x, *(states or []), *variables(layer)]
        return values_and_gradients(lambda: call(layer, x, states, mask=mask), sources, seed)

    actual = results(native)
    for make in [row.layer] + [row.stock] * (row.stock_class is not None):
        wrapped = keras.layers.Bidirectional(
            make(5, **options), merge_mode=merge_mode, dtype="float64"
        )
        wrapped.build(x.shape)
        wrapped.set_weights(native.get_weights())
        assert_close(actual, results(wrapped), 1e-12)


@pytest.mark.spread(6)
@pytest.mark.parametrize("merge_mode", MERGE_MODES)
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_symbolic_shapes_and_masks(row, merge_mode, sequences, states):
    layer = row.layer(
        5,
        direction="bidirectional",
        merge_mode=merge_mode,
        return_sequences=sequences,
        return_state=states,
    )
    x = keras.layers.Masking()(keras.Input((None, 3)))
    symbolic = tf.nest.flatten(layer(x))
    actual = call(layer, np.ones((2, 4, 3), "float32"))
    assert len(symbolic) == len(actual)
    for spec, tensor in zip(symbolic, actual, strict=True):
        assert all(s in (None, n) for s, n in zip(spec.shape, tensor.shape, strict=True))
        assert spec.dtype == tensor.dtype.name
    outputs = 2 if merge_mode is None else 1
    masks = [getattr(each, "_keras_mask", None) for each in symbolic]
    assert [m is not None for m in masks] == [
        sequences and i < outputs for i in range(len(symbolic))
    ]


def test_native_stateful(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    layer = row.layer(5, direction="bidirectional", stateful=True, return_state=True)
    first = call(layer, x)
    for state, variable in zip(first[1:], layer.states, strict=True):
        np.testing.assert_array_equal(state, variable)
    assert np.any(call(layer, x)[0] != first[0])
    layer.reset_state()
    np.testing.assert_array_equal(call(layer, x)[0], first[0])


def test_native_initializes_directions_apart_and_shares_one_generator(row):
    layer = row.layer(5, direction="bidirectional", kernel_initializer="glorot_uniform")
    layer.build((None, None, 3))
    one = row.layer(5)
    one.build((None, None, 3))
    forward, backward = (cell.kernel.numpy() for cell in layer.cells)
    assert np.any(forward != backward)
    assert [w.path.split("/")[1].split("_")[0] for w in layer.weights] == (
        ["forward"] * len(one.weights) + ["backward"] * len(one.weights)
    )
    assert len(layer.variables) == len(layer.weights) + 1


def test_bidirectional_inside_takes_our_path(row, rng):
    layer = keras.layers.Bidirectional(row.layer(5, return_sequences=True))
    layer(rng.normal(size=(2, 4, 3)).astype("float32"))
    assert type(layer.forward_layer) is type(layer.backward_layer) is row.layer_class
    assert layer.backward_layer.go_backwards
    again = keras.layers.Bidirectional.from_config(layer.get_config())
    assert type(again.forward_layer) is row.layer_class


def test_wrapped_stateful_resets(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    layer = keras.layers.Bidirectional(row.layer(5, stateful=True))
    first = layer(x).numpy()
    assert len(layer.states) == 2 * len(layer.forward_layer.state_size)
    layer(x)
    layer.reset_state()
    np.testing.assert_array_equal(layer(x), first)


@pytest.mark.stock
def test_convert_both_ways(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    stock = keras.layers.Bidirectional(row.stock(5, return_sequences=True), merge_mode="ave")
    expected = stock(x)
    fused = haste_keras.from_keras(stock)
    assert type(fused) is row.layer_class
    assert (fused.direction, fused.merge_mode, fused.name) == ("bidirectional", "ave", stock.name)
    np.testing.assert_allclose(fused(x), expected, atol=1e-6)
    back = haste_keras.to_keras(fused)
    assert type(back.forward_layer) is row.stock_class
    np.testing.assert_array_equal(back(x), expected)


@pytest.mark.stock
def test_convert_two_unlike_layers_stays_a_wrapper(row, rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    stock = keras.layers.Bidirectional(
        row.stock(5), backward_layer=row.stock(5, activation="relu", go_backwards=True)
    )
    expected = stock(x)
    fused = haste_keras.from_keras(stock)
    assert type(fused) is keras.layers.Bidirectional
    assert type(fused.backward_layer) is row.layer_class
    np.testing.assert_allclose(fused(x), expected, atol=1e-6)
