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
    match = "from_keras cannot convert layer it, whose activation=gelu the fused kernels"
    with pytest.raises(ValueError, match=match):
        haste_keras.from_keras(row.stock(4, activation="gelu", name="it"))


@pytest.mark.stock
def test_other_names_of_an_activation_are_converted(row):
    fused = haste_keras.from_keras(row.stock(4, activation=keras.layers.ReLU()))
    assert fused.activation is keras.activations.relu


@pytest.mark.stock
def test_what_is_not_converted_is_named_or_kept(row, rng):
    """All of it in one model, in a wrapper too; the rest of the model is converted."""
    stock = keras.Sequential(
        [
            keras.Input((None, 3)),
            row.stock(4, return_sequences=True, name="first"),
            row.stock(4, return_sequences=True, activation="gelu", name="second"),
            keras.layers.Bidirectional(row.stock(4, activation="silu", name="third")),
        ]
    )
    match = "second, whose activation=gelu .* forward_third, .* backward_third, .*=silu .*keep"
    with pytest.raises(ValueError, match=match):
        haste_keras.from_keras(stock)
    fused = haste_keras.from_keras(stock, on_unsupported="keep")
    assert [type(layer) for layer in fused.layers] == [
        row.layer_class,
        row.stock_class,
        keras.layers.Bidirectional,
    ]
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    np.testing.assert_allclose(fused(x), stock(x), atol=1e-6)


@pytest.mark.stock
@pytest.mark.parametrize("wrapped", [False, True])
def test_rnn_of_a_stock_cell(row, wrapped, rng):
    cell_class = getattr(keras.layers, f"{row.stock_class.__name__}Cell")
    cell = cell_class(4, dropout=0.1, seed=3, use_bias=False)
    stock = keras.layers.RNN(cell, return_sequences=True, go_backwards=not wrapped, name="it")
    if wrapped:
        stock = keras.layers.Bidirectional(stock, name="it")
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    expected = stock(x)
    fused = haste_keras.from_keras(stock)
    assert (type(fused), fused.name) == (row.layer_class, "it")
    assert (fused.dropout, fused.use_bias, fused.go_backwards) == (0.1, False, not wrapped)
    np.testing.assert_allclose(fused(x), expected, atol=1e-6)


def test_rnn_of_other_cells(rng):
    stacked = keras.layers.RNN([keras.layers.LSTMCell(4), keras.layers.LSTMCell(4)], name="it")
    with pytest.raises(ValueError, match="layer it, an RNN of several cells"):
        haste_keras.from_keras(stacked)
    assert type(haste_keras.from_keras(stacked, on_unsupported="keep")) is keras.layers.RNN
    own = keras.layers.RNN(keras.layers.LSTMCell(4, dtype="float64"), name="it")
    with pytest.raises(ValueError, match="layer it, whose cell has a dtype"):
        haste_keras.from_keras(own)
    fused_cell = keras.layers.RNN(haste_keras.LSTMCell(4))
    assert type(haste_keras.from_keras(fused_cell)) is keras.layers.RNN


def test_what_keras_does_not_have_is_named_or_kept(row, rng):
    if row.stock_class is not None:
        return
    model = keras.Sequential(
        [
            keras.Input((None, 3)),
            haste_keras.GRU(4, return_sequences=True, name="first"),
            row.layer(4, return_sequences=True, name="second"),
            haste_keras.LSTM(4, heads=2, name="third"),
        ]
    )
    kind = row.layer_class.__name__
    match = f"layer second, a {kind}, which Keras does not have; layer third: .*LSTM has no heads"
    with pytest.raises(ValueError, match=match):
        haste_keras.to_keras(model)
    stock = haste_keras.to_keras(model, on_unsupported="keep")
    kinds = [keras.layers.GRU, row.layer_class, haste_keras.LSTM]
    assert [type(layer) for layer in stock.layers] == kinds
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    np.testing.assert_allclose(stock(x), model(x), atol=1e-6)


@pytest.mark.spread(2)
@pytest.mark.parametrize("where", ["time_distributed", "bidirectional", "nested", "rnn"])
def test_what_keras_does_not_have_is_named_inside(row, where, rng):
    """Alone, in wrappers, in nested models, and as a cell of keras.layers.RNN."""
    options = {} if row.stock_class is None else {"zoneout": 0.1}
    if where == "rnn":
        layer = keras.layers.RNN(row.cell(4, name="it", **options))
        said = f"layer it, a {row.cell_class.__name__}"
    else:
        layer = row.layer(4, name="it", **options)
        said = f"it, a {row.layer_class.__name__}"
    if row.stock_class is not None:
        said = r"it: keras.layers.\w+ has no zoneout"
    if where == "time_distributed":
        layer, shape = keras.layers.TimeDistributed(layer), (2, 5, 3)
    elif where == "bidirectional":
        layer, shape = keras.layers.Bidirectional(layer), (5, 3)
    elif where == "nested":
        inner = keras.Sequential([keras.Input((5, 3)), layer])
        layer, shape = keras.Sequential([keras.Input((5, 3)), inner]), (5, 3)
    else:
        shape = (5, 3)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, layer(inputs))
    with pytest.raises(ValueError, match=said):
        haste_keras.to_keras(model)
    kept = haste_keras.to_keras(model, on_unsupported="keep")
    x = rng.normal(size=(2, *shape)).astype("float32")
    np.testing.assert_allclose(kept(x), model(x), atol=1e-6)


@pytest.mark.stock
@pytest.mark.parametrize("stacked", [False, True])
def test_rnn_of_fused_cells(row, stacked, rng):
    cells = [row.cell(4, dropout=0.1, seed=3), row.cell(4)] if stacked else row.cell(4)
    fused = keras.layers.RNN(cells, return_sequences=True)
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    expected = fused(x)
    stock = haste_keras.to_keras(fused)
    kinds = [type(cell) for cell in (stock.cell.cells if stacked else [stock.cell])]
    stock_cell = getattr(keras.layers, f"{row.stock_class.__name__}Cell")
    assert kinds == [stock_cell] * len(kinds)
    np.testing.assert_allclose(stock(x), expected, atol=1e-6)


@keras.saving.register_keras_serializable("haste_tests")
class Hiding(keras.layers.Layer):
    """A layer that makes another one."""

    def __init__(self, fused, **kwargs):
        super().__init__(**kwargs)
        self.fused = fused
        self.inner = (haste_keras if fused else keras.layers).GRU(3, name="inner")

    def build(self, input_shape):
        self.inner.build(input_shape)

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {**super().get_config(), "fused": self.fused}


@pytest.mark.parametrize("fused", [False, True])
def test_a_layer_that_no_configuration_holds_is_named(fused):
    convert = haste_keras.to_keras if fused else haste_keras.from_keras
    model = keras.Sequential([keras.Input((None, 2)), Hiding(fused)], name="model")
    with pytest.raises(ValueError, match="layer inner, a GRU that the configuration of model"):
        convert(model)
    kept = convert(model, on_unsupported="keep")
    assert type(kept.layers[0].inner) is type(model.layers[0].inner)


@keras.saving.register_keras_serializable("haste_tests")
class OwnLSTM(haste_keras.LSTM):
    """A subclass, which may do anything."""


def test_a_subclass_is_named():
    with pytest.raises(ValueError, match="layer it, a OwnLSTM, which Keras does not have"):
        haste_keras.to_keras(OwnLSTM(3, name="it"))


def test_forget_mult_is_named():
    with pytest.raises(ValueError, match="a ForgetMult, which Keras does not have"):
        haste_keras.to_keras(haste_keras.ForgetMult())


def test_unknown_choice():
    with pytest.raises(ValueError, match="`on_unsupported` must be one of 'raise', 'keep'"):
        haste_keras.from_keras(keras.layers.LSTM(4), on_unsupported="ignore")


def test_not_a_layer():
    with pytest.raises(ValueError, match="`source`"):
        haste_keras.from_keras("lstm")


@pytest.mark.stock
@pytest.mark.parametrize("how", ["argument", "later"])
def test_frozen_layer_in_a_bidirectional(row, how):
    layer = row.stock(4, trainable=how != "argument")
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.Bidirectional(layer)])
    if how == "later":
        model.layers[0].forward_layer.trainable = False
        model.layers[0].backward_layer.trainable = False
    model.add(keras.layers.Dense(1))
    assert len(haste_keras.from_keras(model).trainable_variables) == 2


def test_class_that_nobody_has_registered(rng):
    class Doubled(keras.layers.Layer):
        def call(self, inputs):
            return 2 * inputs

    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4), Doubled()])
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    fused = haste_keras.from_keras(model)
    np.testing.assert_allclose(fused(x), model(x), atol=1e-6)
    np.testing.assert_allclose(haste_keras.to_keras(fused)(x), model(x), atol=1e-6)


def test_model_that_keras_cannot_make_again():
    class Own(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.rnn = keras.layers.LSTM(units)

        def get_config(self):
            return {"size": 4}

    with pytest.raises(ValueError, match=r"from_keras cannot make a copy of own.* from its config"):
        haste_keras.from_keras(Own(4))
