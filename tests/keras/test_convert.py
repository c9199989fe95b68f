"""from_keras and to_keras."""

import keras
import numpy as np
import pytest

import haste_keras


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_bias": False, "go_backwards": True, "return_sequences": True},
        {"return_state": True, "dropout": 0.2, "kernel_regularizer": "l2"},
        {"dtype": "float64", "activation": "relu", "trainable": False},
    ],
    ids=str,
)
@pytest.mark.stock
def test_layer_both_ways(row, options, rng):
    stock = row.stock(5, name="it", **options)
    stock.build((2, 4, 3))
    fused = haste_keras.from_keras(stock)
    assert (type(fused), fused.name, fused.built) == (row.layer_class, "it", True)
    assert fused.trainable == stock.trainable
    back = haste_keras.to_keras(fused)
    assert type(back) is row.stock_class
    assert back.get_config() == stock.get_config()
    for weights in (fused.get_weights(), back.get_weights()):
        for got, want in zip(weights, stock.get_weights(), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.stock
def test_unbuilt_layer(row):
    fused = haste_keras.from_keras(row.stock(5))
    assert not fused.built
    assert not haste_keras.to_keras(fused).built


@pytest.mark.stock
def test_model_with_wrappers_and_shared_layers(row, rng):
    inputs = keras.Input((None, 3))
    shared = row.stock(3, return_sequences=True)
    x = shared(shared(inputs))
    x = keras.layers.Bidirectional(row.stock(4, return_sequences=True))(x)
    x, *states = row.stock(8, return_sequences=True, return_state=True)(x)
    x = row.stock(8)(x, initial_state=states)
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Reshape((4, 2)), row.stock(2)])
    model = keras.Model(inputs, inner(x))
    data = rng.normal(size=(2, 5, 3)).astype("float32")

    fused = haste_keras.from_keras(model)
    kinds = [type(layer) for layer in fused._flatten_layers()]
    assert row.stock_class not in kinds
    assert kinds.count(row.layer_class) == 5
    np.testing.assert_allclose(fused(data), model(data), atol=1e-6)
    np.testing.assert_allclose(haste_keras.to_keras(fused)(data), model(data), atol=1e-6)


@pytest.mark.stock
def test_time_distributed(row, rng):
    stock = keras.layers.TimeDistributed(row.stock(4))
    data = rng.normal(size=(2, 3, 5, 2)).astype("float32")
    expected = stock(data)
    fused = haste_keras.from_keras(stock)
    assert type(fused.layer) is row.layer_class
    np.testing.assert_allclose(fused(data), expected, atol=1e-6)


@pytest.mark.stock
def test_backward_becomes_go_backwards(row, rng):
    data = rng.normal(size=(2, 5, 3)).astype("float32")
    layer = row.layer(4, direction="backward")
    expected = layer(data)
    np.testing.assert_allclose(haste_keras.to_keras(layer)(data), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"heads": 2}, "heads"),
        ({"zoneout": 0.1, "dropconnect": 0.2}, "zoneout, dropconnect"),
        ({"direction": "backward", "return_sequences": True}, "direction='backward'"),
    ],
)
@pytest.mark.stock
def test_what_keras_has_not_is_named(row, options, named):
    with pytest.raises(ValueError, match=named):
        haste_keras.to_keras(row.layer(4, name="it", **options))


@pytest.mark.stock
def test_unknown_activation_is_named(row):
    with pytest.raises(ValueError, match="activation=gelu"):
        haste_keras.from_keras(row.stock(4, activation="gelu"))


def test_not_a_layer():
    with pytest.raises(ValueError, match="`source`"):
        haste_keras.from_keras("lstm")
