"""All arguments of a layer and of a cell are in its signature and docs/reference/arguments.md."""

import inspect
import pathlib
import re

import keras
import pytest
from rows import ROWS

import haste_keras

ROOT = pathlib.Path(__file__).parents[3]
OF_LAYER = {"name", "dtype", "trainable"}  # of keras.layers.Layer, by **kwargs
CLASSES = [
    each
    for each in (getattr(haste_keras, name) for name in haste_keras.__all__)
    if isinstance(each, type) and issubclass(each, keras.layers.Layer)
]
LAYERS = [each for each in CLASSES if issubclass(each, keras.layers.RNN)]


def parameters(each):
    """{name: parameter} of a constructor, without those that it passes to Keras."""
    found = inspect.signature(each).parameters
    return {name: p for name, p in found.items() if p.kind is not p.VAR_KEYWORD}


def test_classes():
    assert set(LAYERS) == {row.layer_class for row in ROWS} | {haste_keras.Elman}
    assert len(CLASSES) == 2 * len(LAYERS) + 1  # their cells, and ForgetMult


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: each.__name__)
def test_nothing_that_a_configuration_holds_is_hidden(each):
    instance = each() if each is haste_keras.ForgetMult else each(4)
    assert not any(p.kind is p.VAR_POSITIONAL for p in parameters(each).values())
    assert set(instance.get_config()) - OF_LAYER <= set(parameters(each))


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: each.__name__)
def test_every_argument_arrives(each):
    """An argument with a special value is found in the configuration or as an attribute."""
    values = {
        "units": 6,
        "window": 3,
        "pooling": "ifo",
        "activation": "sigmoid",
        "recurrent_activation": "hard_sigmoid",
        "forget_activation": "sigmoid",
        "forget_bias": 2.0,
        "direction": "backward",
        "merge_mode": "sum",
        "heads": 3,
        "epsilon": 0.5,
        "normalization": "layernorm",
        "recurrent_clip": 0.5,
        "implementation": 1,
        "engine": "cpu",
        "use_cudnn": False,
        "seed": 5,
        "recurrent_constraint": None,  # not together with recurrent_clip
        "reset_after": each in (haste_keras.LayerNormGRU, haste_keras.LayerNormGRUCell),
    }
    for name, parameter in parameters(each).items():
        if name.endswith(("_initializer", "_transform")):
            values[name] = "ones" if name.endswith("_initializer") else keras.ops.abs
        elif name.endswith("_regularizer"):
            values[name] = "l2"
        elif name.endswith("_constraint"):
            values.setdefault(name, "non_neg")
        elif isinstance(parameter.default, bool):
            values.setdefault(name, not parameter.default)
        elif isinstance(parameter.default, float):
            values.setdefault(name, 0.25)
    given = {name: values[name] for name in parameters(each)}
    instance = each(**given)
    for name, value in given.items():
        found = getattr(
            instance.cell if name == "seed" and hasattr(instance, "cell") else instance, name
        )
        if name.endswith(("_initializer", "_regularizer", "_constraint")):
            if value is not None:
                assert type(found) is type(getattr(keras, f"{name.split('_')[-1]}s").get(value))
        elif "activation" in name and name != "forget_activation":
            assert found is keras.activations.get(value)
        else:
            assert found == value, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_stock_arguments_come_first(row):
    if row.stock_class is None:
        return
    stock = list(parameters(row.stock_class))
    assert list(parameters(row.layer_class))[: len(stock)] == stock


def documented():
    """{layer: {argument: default}} of docs/reference/arguments.md."""
    names = [each.__name__ for each in LAYERS if each is not haste_keras.SimpleRNN]
    found = {name: {} for name in names}
    for line in (ROOT / "docs/reference/arguments.md").read_text().splitlines():
        if not line.startswith("| `"):
            continue
        argument, default, layers, meaning = (part.strip() for part in line.strip("|").split("|"))
        assert meaning
        words = re.findall(r"\w+", layers)
        chosen = [n for n in names if n not in words] if words[0] == "all" else words
        for layer in chosen:
            assert argument not in found[layer], (layer, argument)
            found[layer][argument.strip("`")] = default.strip("`")
    return found


@pytest.mark.parametrize("name", documented())
def test_documented(name):
    def text(default):
        if default is inspect.Parameter.empty:
            return ""
        return f'"{default}"' if isinstance(default, str) else repr(default)

    ours = parameters(getattr(haste_keras, name))
    assert documented()[name] == {n: text(p.default) for n, p in ours.items()}


@pytest.mark.parametrize("name", ["heads", "dropconnect"])
def test_what_a_cell_has_no_use_for_is_refused(name):
    cells = [each.cell_class for each in LAYERS]
    without = [
        each for each in [*cells, *LAYERS] if name in getattr(each, "cell_class", each).without
    ]
    assert {haste_keras.IndRNN, haste_keras.QRNN, haste_keras.QRNNCell} <= set(without)
    for each in without:
        with pytest.raises(ValueError, match=f"`{name}` is not an argument of .*{name}=1"):
            each(4, **{name: 1})


@pytest.mark.parametrize("name", sorted({*haste_keras.ops.__all__} - {"recurrence"}))
def test_ops_hide_nothing(name):
    """Except `recurrence`, whose options are those of the function that it gets."""
    kinds = {p.kind for p in inspect.signature(getattr(haste_keras.ops, name)).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
