"""Weights: heads, transforms."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import randomize

BATCH, TIME, FEATURES, UNITS = 3, 5, 4, 6


@keras.saving.register_keras_serializable("haste_tests")
def halved(weight):
    return weight / 2


@pytest.mark.parametrize("transform", [halved, "haste_tests>halved", keras.constraints.UnitNorm()])
def test_transforms_apply_before_use(row, transform, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    roles = [role for role in ("kernel", "recurrent", "bias") if row.takes(f"{role}_transform")]
    layer = row.layer(UNITS, **{f"{role}_transform": transform for role in roles})
    plain = row.layer(UNITS)
    layer.build(x.shape), plain.build(x.shape)
    randomize(layer, rng)
    function = halved if transform == "haste_tests>halved" else transform
    names = {"kernel": "kernel", "recurrent": "recurrent_kernel", "bias": "bias"}
    transformed = [names[role] for role in roles]
    plain.set_weights(
        [
            function(tf.constant(weight.numpy())) if weight.name in transformed else weight
            for weight in layer.weights
        ]
    )
    np.testing.assert_allclose(layer(x), plain(x), atol=5e-6)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    again.build(x.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x), layer(x))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x))
    assert all(g is not None for g in tape.gradient(loss, layer.trainable_variables))


@pytest.mark.dense
def test_heads_begin_differently_and_orthogonal(row):
    layer = row.layer(UNITS, heads=3)
    layer.build((None, None, FEATURES))
    kernel = layer.cell.recurrent_kernel.numpy()
    hidden = UNITS // 3
    assert kernel.shape == (3, hidden, row.gates, hidden)
    assert np.any(kernel[0] != kernel[1])
    for head in kernel.reshape(3, hidden, -1):
        np.testing.assert_allclose(head @ head.T, np.eye(hidden), atol=1e-5)


@pytest.mark.dense
def test_heads_are_independent_layers(row, rng):
    x = rng.normal(size=(BATCH, TIME, FEATURES)).astype("float32")
    layer = row.layer(UNITS, heads=2, return_sequences=True)
    layer.build(x.shape)
    randomize(layer, rng)
    half, columns = UNITS // 2, UNITS * row.gates // 2
    for head in range(2):
        one = row.layer(half, return_sequences=True)
        one.build(x.shape)
        parts = []
        for whole, weight in zip(layer.weights, one.weights, strict=True):
            assert whole.name == weight.name
            value = whole.numpy()
            if value.shape[0] == 2 and whole.name == "recurrent_kernel":
                parts.append(value[head].reshape(weight.shape))
            else:  # head by head along the last axis
                width = weight.shape[-1]
                parts.append(value[..., head * width : (head + 1) * width])
        assert parts[0].shape == (FEATURES, columns)
        one.set_weights(parts)
        np.testing.assert_allclose(
            layer(x)[..., head * half : (head + 1) * half], one(x), atol=5e-6
        )


@pytest.mark.dense
def test_constraint_and_regularizer_of_each_head(row, rng):
    """As of independent layers: each sees the matrix [H, G·H] of a head."""
    if not row.takes("heads"):
        pytest.skip("one head")
    layer = row.layer(
        6,
        heads=2,
        recurrent_constraint=keras.constraints.UnitNorm(axis=0),
        recurrent_regularizer=keras.regularizers.OrthogonalRegularizer(mode="columns"),
    )
    layer.build((None, None, 3))
    weight = layer.cell.recurrent_kernel
    weight.assign(rng.normal(size=weight.shape))
    matrices = tf.reshape(weight, [2, 3, -1])
    penalty = sum(layer.cell.recurrent_regularizer(matrices[head]) for head in range(2))
    np.testing.assert_allclose(sum(layer.losses), penalty, rtol=1e-6)
    norms = np.linalg.norm(np.reshape(weight.constraint(weight), (2, 3, -1)), axis=1)
    np.testing.assert_allclose(norms, np.ones_like(norms), rtol=1e-5)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert isinstance(again.cell.recurrent_constraint, keras.constraints.UnitNorm)
