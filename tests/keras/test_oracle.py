"""What Keras has not, against the float64 oracle: outputs and every gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows import assert_close, call, make_mask, oracle, randomize, values_and_gradients

TOLERANCE = {"float32": 3e-5, "float64": 1e-11}
BATCH, TIME, FEATURES, UNITS = 3, 5, 4, 6

FEATURES_OF_OURS = {
    "zoneout": lambda row: {name: 0.3 - 0.1 * i for i, name in enumerate(row.zoneout)},
    "recurrent_dropout": lambda row: {"recurrent_dropout": 0.4},
    "heads": lambda row: {"heads": 3},
    "bidirectional": lambda row: {"direction": "bidirectional", "merge_mode": "concat"},
    "backward": lambda row: {"direction": "backward"},
    "all": lambda row: {
        **dict.fromkeys(row.zoneout, 0.2),
        "recurrent_dropout": 0.3,
        "heads": 2,
        "direction": "bidirectional",
    },
}


def _set_seed(layer, numbers):
    layer.cell.seed_generator.state.assign(numbers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask_kind", [None, "all"])
@pytest.mark.parametrize("feature", FEATURES_OF_OURS)
def test_feature(row, feature, mask_kind, training, dtype, rng, seed):
    layer = row.layer(
        UNITS,
        dtype=dtype,
        return_sequences=True,
        return_state=True,
        **FEATURES_OF_OURS[feature](row),
    )
    layer.zero_output_for_mask = False
    layer.build((BATCH, TIME, FEATURES))
    randomize(layer, rng)
    x = tf.constant(rng.normal(size=(BATCH, TIME, FEATURES)), dtype)
    states = [tf.constant(rng.normal(size=(BATCH, UNITS)), dtype) for _ in layer.state_size]
    mask = make_mask(mask_kind, BATCH, TIME, rng) if mask_kind else None
    numbers = [2**31 + 7, 99]

    def expected():
        y, final = oracle(row, layer, x, states, numbers, training, mask)
        y = tf.concat(y, axis=-1)
        if mask is not None and layer.direction == "bidirectional":
            y = tf.where(mask[:, :, None], y, tf.zeros_like(y))
        return [y, *final]

    def actual():
        _set_seed(layer, numbers)
        return call(layer, x, states, mask=mask, training=training)

    sources = [x, *states, *(v.value for v in layer.trainable_variables)]
    assert_close(
        values_and_gradients(actual, sources, seed),
        values_and_gradients(expected, sources, seed),
        TOLERANCE[dtype],
    )


def test_dropconnect_is_dropout_on_the_recurrent_kernel(row, rng, seed):
    layer = row.layer(UNITS, dtype="float64", dropconnect=0.4, return_sequences=True)
    layer.build((BATCH, TIME, FEATURES))
    randomize(layer, rng)
    x = tf.constant(rng.normal(size=(BATCH, TIME, FEATURES)))
    sources = [x, *(v.value for v in layer.trainable_variables)]

    def expected():
        lanes = tf.reshape(layer.cell.recurrent_kernel.value, [1, UNITS, row.gates, UNITS])
        lanes = keras.random.dropout(lanes, 0.4, seed=keras.random.SeedGenerator(17))
        return oracle(row, layer, x, lanes=lanes)[0]

    def actual():
        _set_seed(layer, [17, 0])
        return [layer(x, training=True)]

    got = values_and_gradients(actual, sources, seed)
    assert_close(got, values_and_gradients(expected, sources, seed), 1e-11)
    dropped = got["gradient 2"] == 0
    assert 0.2 < dropped.mean() < 0.6


def test_zoneout_keeps_about_its_rate_of_the_units(row):
    layer = row.layer(64, return_sequences=True, **{row.zoneout[0]: 0.25})
    y = layer(tf.random.normal([8, 30, 4]), training=True).numpy()
    kept = (y[:, 1:] == y[:, :-1]).mean()
    assert abs(kept - 0.25) < 0.02


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 2},
        {"use_bias": False, "activation": "relu"},
        {"zoneout": 0.3},
        {"zoneout_all": 0.2, "recurrent_activation": "hard_sigmoid"},
        {"dtype": "float64"},
        {"dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_cell_in_keras_rnn_is_the_layer(row, options, rng):
    options = dict(options)
    rate = options.pop("zoneout_all", None)
    if rate:
        options.update(dict.fromkeys(row.zoneout, rate))
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    mask = make_mask("all", BATCH, TIME, rng)
    layer = row.layer(UNITS, return_sequences=True, return_state=True, **options)
    dtype = {"dtype": options["dtype"]} if "dtype" in options else {}
    steps = keras.layers.RNN(
        row.cell(UNITS, **options), return_sequences=True, return_state=True, **dtype
    )
    layer.build(x.shape), steps.build(x.shape)
    randomize(layer, rng)
    steps.set_weights(layer.get_weights())
    tolerance = 0.05 if options.get("dtype") == "mixed_bfloat16" else 1e-5
    for got, want in zip(call(layer, x, mask=mask), call(steps, x, mask=mask), strict=True):
        np.testing.assert_allclose(
            tf.cast(got, "float32"), tf.cast(want, "float32"), atol=tolerance
        )


def test_cell_trains_in_keras_rnn_with_all_kinds_of_noise(row):
    noise = {"dropout": 0.2, "recurrent_dropout": 0.2, "dropconnect": 0.3}
    noise.update(dict.fromkeys(row.zoneout, 0.2))
    model = keras.Sequential([keras.layers.RNN(row.cell(6, **noise)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(np.ones([8, 5, 3]), np.ones([8, 1]), epochs=3, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))


def test_cell_steps_by_hand(row, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    layer = row.layer(UNITS, return_sequences=True)
    expected = layer(x)
    states = layer.cell.get_initial_state(BATCH)
    for t in range(TIME):
        output, states = layer.cell(x[:, t], states)
        np.testing.assert_allclose(output, expected[:, t], atol=1e-6)


def test_cell_config_round_trip(row):
    cell = row.cell(6, heads=2, dropconnect=0.1, seed=3, **{row.zoneout[0]: 0.2})
    config = keras.saving.serialize_keras_object(cell)
    assert keras.saving.deserialize_keras_object(config).get_config() == cell.get_config()


@keras.saving.register_keras_serializable("haste_tests")
def halved(weight):
    return weight / 2


@pytest.mark.parametrize("transform", [halved, "haste_tests>halved", keras.constraints.UnitNorm()])
def test_transforms_apply_before_use(row, transform, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    names = ("kernel_transform", "recurrent_transform", "bias_transform")
    layer = row.layer(UNITS, **dict.fromkeys(names, transform))
    plain = row.layer(UNITS)
    layer.build(x.shape), plain.build(x.shape)
    randomize(layer, rng)
    function = halved if transform == "haste_tests>halved" else transform
    plain.set_weights([function(tf.constant(weight)) for weight in layer.get_weights()])
    np.testing.assert_allclose(layer(x), plain(x), atol=1e-6)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    again.build(x.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x), layer(x))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x))
    assert all(g is not None for g in tape.gradient(loss, layer.trainable_variables))


def test_heads_begin_differently_and_orthogonal(row):
    layer = row.layer(UNITS, heads=3)
    layer.build((None, None, FEATURES))
    kernel = layer.cell.recurrent_kernel.numpy()
    hidden = UNITS // 3
    assert kernel.shape == (3, hidden, row.gates, hidden)
    assert np.any(kernel[0] != kernel[1])
    for head in kernel.reshape(3, hidden, -1):
        np.testing.assert_allclose(head @ head.T, np.eye(hidden), atol=1e-5)


def test_heads_are_independent_layers(row, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    layer = row.layer(UNITS, heads=2, return_sequences=True)
    layer.build(x.shape)
    randomize(layer, rng)
    kernel, recurrent, bias = layer.get_weights()
    half, columns = UNITS // 2, UNITS * row.gates // 2
    for head in range(2):
        part = slice(head * columns, (head + 1) * columns)
        one = row.layer(half, return_sequences=True)
        one.build(x.shape)
        one.set_weights([kernel[:, part], recurrent[head].reshape(half, -1), bias[part]])
        np.testing.assert_allclose(
            layer(x)[..., head * half : (head + 1) * half], one(x), atol=1e-6
        )


@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
def test_go_backwards_is_the_reversed_sequence(row, direction, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    mask = make_mask("all", BATCH, TIME, rng)
    options = {"direction": direction, "return_state": True}
    for sequences in (False, True):
        ahead = row.layer(UNITS, return_sequences=sequences, **options)
        back = row.layer(UNITS, return_sequences=sequences, go_backwards=True, **options)
        ahead.build(x.shape), back.build(x.shape)
        back.set_weights(ahead.get_weights())
        expected = call(ahead, x[:, ::-1], mask=mask[:, ::-1])
        for got, want in zip(call(back, x, mask=mask), expected, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
