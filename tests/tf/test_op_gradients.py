"""Gradients against finite differences of the op itself, in float64, and of all its options."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import _library, ops

SEED = tf.constant([11, 12], tf.int64)
CASES = {
    "plain": {},
    "one_lane": {"lanes": 1},
    "both_ways": {"reverse": [False, True]},
    "relu_hard": {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
    "sigmoid_tanh": {"activation": "sigmoid", "recurrent_activation": "tanh"},
    "linear": {"activation": "linear", "recurrent_activation": "linear", "scale": 0.3},
    "mask": {"mask": True, "reverse": [False, True]},
    "mask_zero": {"mask": True, "reverse": [True, False], "zero_output_for_mask": True},
    "zoneout": {"zoneout": 0.4, "zoneout_cell": 0.3, "training": True, "seed": SEED},
    "zoneout_expected": {"zoneout": 0.4, "zoneout_cell": 0.3, "mask": True},
    "zoneout_all": {"zoneout": 1.0, "zoneout_cell": 1.0, "training": True, "seed": SEED},
    "dropout": {"recurrent_dropout": 0.4, "training": True, "seed": SEED},
    "everything": {
        "mask": True,
        "reverse": [True, False],
        "zoneout": 0.2,
        "zoneout_cell": 0.1,
        "recurrent_dropout": 0.3,
        "training": True,
        "seed": SEED,
    },
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request, inputs, rng):
    """(tensors, loss): loss(*tensors, **more options) weighs all outputs."""
    options = dict(request.param)
    batch, time, lanes, hidden = 3, 5, options.pop("lanes", 2), 4
    scale = options.pop("scale", 1.0)
    tensors = [scale * x for x in inputs(batch, time, lanes, hidden)]
    if options.get("mask"):
        mask = rng.random([batch, time]) < 0.6
        mask[0] = False
        mask[1, 0] = mask[1, -1] = False
        options["mask"] = tf.constant(mask)
    weights = [tf.constant(rng.normal(size=[batch, time, lanes, hidden]))]
    weights += [tf.constant(rng.normal(size=[batch, lanes, hidden])) for _ in range(2)]

    def loss(wx, recurrent_kernel, h0, c0, **more):
        y, states = ops.lstm(wx, recurrent_kernel, [h0, c0], **{**options, **more})
        return tf.add_n([tf.reduce_sum(w * v) for w, v in zip(weights, (y, *states), strict=True)])

    return tensors, loss


def gradients(tensors, loss, **more):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = loss(*tensors, **more)
    return tape.gradient(value, tensors)


def test_finite_differences(case, rng):
    tensors, loss = case
    found = gradients(tensors, loss)
    step = 1e-6
    for i, tensor in enumerate(tensors):
        flat = tensor.numpy().ravel()
        for element in rng.choice(flat.size, min(flat.size, 25), replace=False):
            ends = []
            for sign in (1, -1):
                moved = flat.copy()
                moved[element] += sign * step
                moved = tf.constant(moved.reshape(tensor.shape))
                ends.append(loss(*tensors[:i], moved, *tensors[i + 1 :]).numpy())
            expected = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(
                found[i].numpy().ravel()[element], expected, atol=2e-8, rtol=1e-6
            )


def test_save_makes_no_difference(case):
    tensors, loss = case
    for kept, again in zip(
        gradients(tensors, loss, save=True), gradients(tensors, loss, save=False), strict=True
    ):
        np.testing.assert_array_equal(kept, again)


def test_graphs_make_no_difference(case):
    tensors, loss = case
    in_graph = tf.function(lambda *t: gradients(list(t), loss, save=True))
    by_graph = tf.function(lambda *t: tf.gradients(loss(*t, save=False), t))
    for eager, one, other in zip(
        gradients(tensors, loss), in_graph(*tensors), by_graph(*tensors), strict=True
    ):
        np.testing.assert_allclose(one, eager, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(other, eager, rtol=1e-12, atol=1e-14)


def test_runs_repeat_to_the_bit(case):
    tensors, loss = case
    tensors = [tf.cast(x, tf.float64) for x in tensors]
    first = [loss(*tensors), *gradients(tensors, loss)]
    for _ in range(3):
        for a, b in zip(first, [loss(*tensors), *gradients(tensors, loss)], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("only", [0, 1, 2], ids=["y", "h", "c"])
@pytest.mark.parametrize("save", [False, True])
def test_one_output_alone(inputs, only, save):
    """Outputs that nobody uses count as zero."""
    tensors = inputs()

    def run(weights):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y, states = ops.lstm(tensors[0], tensors[1], tensors[2:], save=save)
            terms = [
                w * tf.reduce_sum(v**2)
                for w, v in zip(weights, (y, *states), strict=True)
                if w is not None
            ]
            loss = tf.add_n(terms)
        return tape.gradient(loss, tensors)

    alone = [1.0 if i == only else None for i in range(3)]
    beside_zeros = [1.0 if i == only else 0.0 for i in range(3)]
    for a, b in zip(run(alone), run(beside_zeros), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.abs(a).max() > 0


def test_raw_gradient_takes_empty_for_zero(inputs):
    module = _library.load()
    wx, recurrent_kernel, h0, c0 = inputs()
    nothing, no_seed = tf.zeros([0], tf.bool), tf.zeros([0], tf.int64)
    attrs = {"reverse": [False, True], "zoneout": [0.0, 0.0]}
    y, h, c, *reserve = module.haste_lstm(
        wx, recurrent_kernel, h0, c0, nothing, no_seed, save=True, **attrs
    )
    empty = tf.zeros([0], tf.float64)
    full = [tf.zeros_like(v) for v in (y, h, c)]
    for used in range(3):
        some = [empty] * 3
        some[used] = tf.ones_like(full[used])
        padded = list(full)
        padded[used] = some[used]
        before = [r.numpy() for r in reserve]
        found = [
            module.haste_lstm_grad(recurrent_kernel, nothing, no_seed, *reserve, *given, **attrs)
            for given in (some, padded)
        ]
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(before, reserve, strict=True):
            np.testing.assert_array_equal(a, b)  # dwx did not take memory that is in use


def test_masked_values_never_matter(inputs, rng):
    wx, recurrent_kernel, h0, c0 = inputs()
    mask = rng.random([3, 5]) < 0.5
    spoiled = tf.where(mask[:, :, None, None, None], wx, float("nan"))
    weights = tf.constant(rng.normal(size=[3, 5, 2, 4]))

    def run(x, **options):
        with tf.GradientTape() as tape:
            tape.watch([x, recurrent_kernel, h0, c0])
            y, (h, c) = ops.lstm(
                x, recurrent_kernel, [h0, c0], mask=mask, reverse=[False, True], **options
            )
            loss = tf.reduce_sum(y * weights) + tf.reduce_sum(h * c)
        return [y, h, c, *tape.gradient(loss, [x, recurrent_kernel, h0, c0])]

    for options in ({}, {"zero_output_for_mask": True}, {"zoneout": 0.5, "zoneout_cell": 0.5}):
        clean = run(wx, **options)
        for a, b in zip(clean, run(spoiled, **options), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(clean[3].numpy()[~mask], 0.0)


def test_live_nan_reaches_what_depends_on_it(inputs):
    wx, recurrent_kernel, *states = inputs(lanes=1)
    spoiled = wx.numpy()
    spoiled[1, 2] = np.nan
    y = ops.lstm(tf.constant(spoiled), recurrent_kernel, states)[0].numpy()
    assert np.isnan(y[1, 2:]).all()
    assert np.isfinite(y[[0, 2]]).all()
    assert np.isfinite(y[1, :2]).all()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 2])
def test_dtypes_agree_with_float64(inputs, dtype, lanes):
    exact = [tf.cast(tf.cast(x, dtype), tf.float64) for x in inputs(8, 40, lanes, 12)]

    def loss(wx, recurrent_kernel, h0, c0):
        y, (h, c) = ops.lstm(wx, recurrent_kernel, [h0, c0])
        return tf.reduce_sum(y) + tf.reduce_sum(h) + tf.reduce_sum(c)

    reference = gradients(exact, loss)
    found = gradients([tf.cast(x, dtype) for x in exact], loss)
    tolerance = {tf.float16: 5e-3, tf.bfloat16: 4e-2, tf.float32: 2e-6}[dtype]
    for a, b in zip(found, reference, strict=True):
        assert a.dtype == dtype
        error = np.abs(tf.cast(a, tf.float64) - b).max() / np.abs(b).max()
        assert error < tolerance
