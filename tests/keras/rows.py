"""The layers under test: what every test of this folder runs over. A new layer is a new row."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import haste_keras
from haste_keras import reference


@dataclasses.dataclass(frozen=True)
class Row:
    """A fused layer, its cell, and what to hold them against."""

    name: str
    layer: type
    cell: type
    stock: type
    oracle: Callable  # of haste_keras.reference
    gates: int
    states: int
    # Argument → values that the stock layer takes too; the first is the default.
    stock_choices: dict
    # Zoneout arguments, in the order of the states.
    zoneout: tuple
    # Arguments of the layer that the oracle takes by the same name.
    oracle_arguments: tuple


ROWS = [
    Row(
        name="LSTM",
        layer=haste_keras.LSTM,
        cell=haste_keras.LSTMCell,
        stock=keras.layers.LSTM,
        oracle=reference.lstm,
        gates=4,
        states=2,
        stock_choices={
            "activation": ["tanh", "relu", "linear", "hard_sigmoid", "sigmoid", None],
            "recurrent_activation": ["sigmoid", "hard_sigmoid", "tanh", "relu"],
            "unit_forget_bias": [True, False],
        },
        zoneout=("zoneout", "zoneout_cell"),
        oracle_arguments=("zoneout", "zoneout_cell"),
    )
]

MASKS = ("left", "right", "holes", "all")


def make_mask(kind, batch, time, rng):
    """A mask [batch, time]: padding on the left or right, holes, or rows that are all masked."""
    lengths = rng.integers(1, time + 1, size=(batch, 1))
    steps = np.arange(time)
    if kind == "left":
        return steps >= time - lengths
    if kind == "right":
        return steps < lengths
    mask = rng.random((batch, time)) < 0.6
    if kind == "all":
        mask[0] = False
    return mask


def randomize(layer, rng):
    """Gives every weight of a built layer values that no initializer would: biases too."""
    layer.set_weights([rng.normal(scale=0.4, size=w.shape) for w in layer.weights])


def call(layer, x, states=None, **kwargs):
    """Outputs of `layer` as a flat list of tensors."""
    if states is not None:
        kwargs["initial_state"] = list(states)
    return tf.nest.flatten(layer(x, **kwargs))


def values_and_gradients(run, sources, seed):
    """Outputs of `run()`, and gradients of a random weighting of them all.

    Returns arrays by name: "output 0" ..., "gradient 0" ... in the order of `sources`.
    """
    rng = np.random.default_rng(seed)
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        outputs = run()
        loss = 0.0
        for output in outputs:
            loss += tf.reduce_sum(tf.cast(output, tf.float64) * rng.normal(size=output.shape))
    gradients = tape.gradient(loss, sources)
    results = {f"output {i}": output.numpy() for i, output in enumerate(outputs)}
    for i, gradient in enumerate(gradients):
        assert gradient is not None, f"no gradient of source {i}"
        results[f"gradient {i}"] = tf.convert_to_tensor(gradient).numpy()
    return results


def assert_close(actual, expected, tolerance):
    """Each result within `tolerance` of the largest value of its counterpart (or of 1)."""
    assert actual.keys() == expected.keys()
    for name, want in expected.items():
        got = actual[name].astype(np.float64)
        want = want.astype(np.float64)
        assert got.shape == want.shape, f"{name}: shape {got.shape}, expected {want.shape}"
        error = np.max(np.abs(got - want), initial=0) / np.max(np.abs(want), initial=1)
        assert error <= tolerance, f"{name}: error {error:.2e}, at most {tolerance:.0e} allowed"


def oracle(row, layer, x, states=None, seed=None, training=False, mask=None, lanes=None):
    """What `layer` should return: (y of each direction in the order of time, final states).

    x [N, T, C], states direction by direction; all float64. `lanes` replaces the recurrent kernel.
    """
    cells = layer.cells
    heads, hidden = layer.heads, layer.units // layer.heads
    x = tf.cast(x, tf.float64)
    batch, time, _ = x.shape
    if mask is not None:
        x = tf.where(mask[:, :, None], x, tf.zeros_like(x))
    projected = []
    for cell in cells:
        wx = tf.einsum("ntc,cg->ntg", x, tf.cast(cell.kernel.value, tf.float64))
        if cell.bias is not None:
            wx += tf.cast(cell.bias.value, tf.float64)
        projected.append(tf.reshape(wx, [batch, time, heads, row.gates, hidden]))
    if lanes is None:
        shape = [heads, hidden, row.gates, hidden]
        lanes = tf.concat([tf.reshape(c.recurrent_kernel.value, shape) for c in cells], axis=0)
    if states is not None:
        per_cell = [states[i :: row.states] for i in range(row.states)]
        states = [
            tf.reshape(tf.stack(each, axis=1), [batch, len(cells) * heads, hidden])
            for each in per_cell
        ]
    reverse = {"forward": [False], "backward": [True], "bidirectional": [False, True]}
    y, final = row.oracle(
        tf.concat(projected, axis=2),
        lanes,
        states,
        mask=mask,
        seed=seed,
        reverse=np.repeat(reverse[layer.direction], heads),
        activation=layer.activation.__name__,
        recurrent_activation=layer.recurrent_activation.__name__,
        recurrent_dropout=layer.recurrent_dropout,
        training=training,
        **{name: getattr(layer, name) for name in row.oracle_arguments},
    )
    y = tf.unstack(tf.reshape(y, [batch, time, len(cells), layer.units]), axis=2)
    split = [tf.unstack(tf.reshape(s, [batch, len(cells), layer.units]), axis=1) for s in final]
    return y, [state for direction in zip(*split, strict=True) for state in direction]
