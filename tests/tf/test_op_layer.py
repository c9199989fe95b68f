"""The ops that are given x, W and b in place of wx: what the others compute of x·W + b."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS, SEED

from haste_keras import _library, _raw

N, T, C, K, H = 3, 7, 5, 2, 6
OPTIONS = {
    "plain": {},
    "mask": {"mask": True, "reverse": [False, True]},
    "noise": {"training": True, "zoneout": 0.3, "seed": SEED, "reverse": [True, False]},
    "no bias": {"bias": False},
}


@pytest.fixture(params=[row for row in ROWS if row.spec.has_layer_op], ids=lambda row: row.name)
def row(request):
    return request.param


def problem(row, rng, dtype=tf.float64):
    """x, kernel, bias and the op's other tensors by name."""
    x, kernel, bias = (
        tf.constant(rng.normal(size=size) * 0.5, dtype)
        for size in ([N, T, C], [C, K, len(row.spec.gates), H], [K, len(row.spec.gates), H])
    )
    others = row.inputs(rng, N, T, K, H, dtype)
    del others["wx"]
    return {"x": x, "kernel": kernel, "bias": bias, **others}


def call(row, tensors, in_op, mask=False, bias=True, **options):
    """[y, *states] from x, kernel and bias: by the op, or from wx that TensorFlow makes."""
    x, kernel, others = tensors["x"], tensors["kernel"], dict(tensors)
    wx = _raw.Projection(x, kernel, tensors["bias"] if bias else None)
    if not in_op:
        wx = tf.einsum("ntc,ckgh->ntkgh", x, kernel)
        wx = wx + tensors["bias"] if bias else wx
    if mask:
        options["mask"] = tf.range(N * T) % 3 != 1
        options["mask"] = tf.reshape(options["mask"], [N, T])
    return row.call({**others, "wx": wx}, **options)


def gradients(row, tensors, weigh, save, in_op, **options):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = weigh(call(row, tensors, in_op, save=save, **options))
    return tape.gradient(loss, tensors)


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_same_as_from_wx(row, rng, options, save):
    tensors = problem(row, rng)
    found, expected = (call(row, tensors, in_op, **options) for in_op in (True, False))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    weigh = row.loss(rng, expected)
    found, expected = (
        gradients(row, tensors, weigh, save, in_op, **options) for in_op in (True, False)
    )
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None, name
        else:
            np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32], ids=lambda d: d.name)
def test_other_dtypes(row, rng, dtype):
    rounded = problem(row, rng, dtype)
    exact = {name: tf.cast(tensor, tf.float64) for name, tensor in rounded.items()}
    weigh = row.loss(rng, call(row, exact, False))
    found = gradients(row, rounded, weigh, True, True)
    expected = gradients(row, exact, weigh, True, False)
    tolerance = {tf.float16: 0.01, tf.bfloat16: 0.08, tf.float32: 1e-5}[dtype]
    for name in ("x", "kernel", "bias"):
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(
            tf.cast(found[name], tf.float64), expected[name], atol=tolerance * scale, rtol=0
        )


def test_only_what_is_wanted(row, rng):
    """A tape that watches one input gets that gradient."""
    tensors = problem(row, rng)
    weigh = row.loss(rng, call(row, tensors, True))
    expected = gradients(row, tensors, weigh, True, True)
    for name in ("x", "kernel", "bias"):
        with tf.GradientTape() as tape:
            tape.watch(tensors[name])
            loss = weigh(call(row, tensors, True, save=True))
        np.testing.assert_array_equal(tape.gradient(loss, tensors[name]), expected[name])


@pytest.mark.parametrize("sizes", [(0, T), (N, 0)], ids=["no rows", "no steps"])
def test_nothing_to_walk(row, rng, sizes):
    tensors = problem(row, rng)
    tensors["x"] = tensors["x"][: sizes[0], : sizes[1]]
    for state in row.spec.states:
        tensors[f"{state}0"] = tensors[f"{state}0"][: sizes[0]]
    outputs = call(row, tensors, True)
    assert outputs[0].shape == [*sizes, K, H]
    for state, last in zip(row.spec.states, outputs[1:], strict=False):
        np.testing.assert_array_equal(last, tensors[f"{state}0"])
    found = gradients(row, tensors, row.loss(rng, outputs), True, True)
    np.testing.assert_array_equal(found["kernel"], tf.zeros_like(tensors["kernel"]))
    np.testing.assert_array_equal(found["bias"], tf.zeros_like(tensors["bias"]))


def test_shapes_unknown_until_run(row, rng):
    tensors = problem(row, rng)
    expected = call(row, tensors, True)[0]

    @tf.function(input_signature=[tf.TensorSpec([None, None, C], tf.float64)])
    def function(x):
        y = call(row, {**tensors, "x": x}, True, save=True)[0]
        assert y.shape.as_list()[2:] == [K, H]
        return y

    np.testing.assert_array_equal(function(tensors["x"]), expected)


def test_vectorized_map(row, rng):
    tensors = problem(row, rng)
    stack = tf.constant(rng.normal(size=[4, N, T, C]))

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call(row, {**tensors, "x": x}, True, save=True)[0]
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, x)

    found = tf.function(lambda e: tf.vectorized_map(function, e))(stack)
    expected = [tf.stack(values) for values in zip(*map(function, stack), strict=True)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("x", [N, T]),
        ("kernel", [C + 1, K, None, H]),
        ("kernel", [C, K, None]),
        ("bias", [K, None, H + 1]),
    ],
)
def test_errors_name_the_argument(row, rng, name, shape):
    spec = row.spec
    tensors = problem(row, rng)
    tensors |= {"mask": tf.zeros([0], tf.bool), "seed": tf.zeros([0], tf.int64)}
    tensors[name] = tf.zeros(
        [len(spec.gates) if size is None else size for size in shape], "double"
    )
    op = getattr(_library.load(), spec.python_op + "_layer")
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{spec.op}Layer: .*{name} must be"):
        op(
            *(tensors[each] for each in spec.layer_inputs),
            reverse=[False] * K,
            zoneout=[0.0] * len(spec.states),
        )
