"""The ops with x, W and b in place of wx give the results of the others on x·W + b."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from op_rows import ROWS, SEED

from haste_keras.native import library, raw_ops

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


@pytest.fixture(params=[False, True], ids=["products apart", "all in one"])
def in_one(request, monkeypatch):
    """Whether gradients are those of a machine with a GPU: all of them by one op."""
    monkeypatch.setattr(library, "may_use_gpu", lambda: request.param)
    monkeypatch.setattr(library, "multiplies_in_training", lambda: False)
    return request.param


@pytest.fixture
def beside_a_gpu(monkeypatch):
    monkeypatch.setattr(library, "may_use_gpu", lambda: True)


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
    wx = raw_ops.Projection(x, kernel, tensors["bias"] if bias else None)
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


@pytest.mark.usefixtures("in_one")
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


@pytest.mark.usefixtures("in_one")
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32], ids=lambda d: d.name)
def test_other_dtypes(row, rng, dtype):
    rounded = problem(row, rng, dtype)
    exact = {name: tf.cast(tensor, tf.float64) for name, tensor in rounded.items()}
    weigh = row.loss(rng, call(row, exact, False))
    found = gradients(row, rounded, weigh, True, True)
    expected = gradients(row, exact, weigh, True, False)
    tolerance = {tf.float16: 0.01, tf.bfloat16: 0.08, tf.float32: 1e-5}[dtype]
    for name in {"x", "kernel", "bias", "recurrent_kernel"} & set(found):
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(
            tf.cast(found[name], tf.float64), expected[name], atol=tolerance * scale, rtol=0
        )


@pytest.mark.usefixtures("in_one")
def test_only_what_is_wanted(row, rng):
    """A tape that watches one input gets that gradient."""
    tensors = problem(row, rng)
    weigh = row.loss(rng, call(row, tensors, True))
    expected = gradients(row, tensors, weigh, True, True)
    for name in tensors:
        if name == "m0":  # sLSTM's stabiliser: no part of the loss
            continue
        with tf.GradientTape() as tape:
            tape.watch(tensors[name])
            loss = weigh(call(row, tensors, True, save=True))
        np.testing.assert_array_equal(tape.gradient(loss, tensors[name]), expected[name])


@pytest.mark.usefixtures("in_one")
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
    assert found["x"].shape == tensors["x"].shape
    for name in {"kernel", "bias", "recurrent_kernel", *row.spec.extras} & set(tensors):
        np.testing.assert_array_equal(found[name], tf.zeros_like(tensors[name]))


@pytest.mark.usefixtures("in_one")
def test_no_features(row, rng):
    """Then x·W is 0."""
    tensors = problem(row, rng)
    none = {"x": tensors["x"][:, :, :0], "kernel": tensors["kernel"][:0]}
    zero = {"x": 0.0 * tensors["x"], "kernel": tensors["kernel"]}
    found, expected = ({**tensors, **each} for each in (none, zero))
    outputs = call(row, expected, True)
    for a, b in zip(call(row, found, True), outputs, strict=True):
        np.testing.assert_array_equal(a, b)
    weigh = row.loss(rng, outputs)
    a, b = (gradients(row, each, weigh, True, True) for each in (found, expected))
    np.testing.assert_array_equal(a["bias"], b["bias"])
    for name, tensor in none.items():
        assert a[name].shape == tensor.shape


@pytest.mark.usefixtures("in_one")
@pytest.mark.parametrize("features", [C, None])
def test_shapes_unknown_until_run(row, rng, features):
    tensors = problem(row, rng)
    expected = call(row, tensors, True)[0]
    weigh = row.loss(rng, [expected])
    wanted = {name: each for name, each in tensors.items() if name in ("x", "kernel", "bias")}

    @tf.function(input_signature=[tf.TensorSpec([None, None, features], tf.float64)])
    def function(x):
        sources = {**wanted, "x": x}
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = call(row, {**tensors, **sources}, True, save=True)[0]
            loss = weigh([y])
        assert y.shape.as_list()[2:] == [K, H]
        found = tape.gradient(loss, sources)
        assert found["kernel"].shape == tensors["kernel"].shape
        assert found["bias"].shape == tensors["bias"].shape
        return y, found

    y, found = function(tensors["x"])
    np.testing.assert_array_equal(y, expected)
    with tf.GradientTape() as tape:
        tape.watch(wanted)
        loss = weigh(call(row, {**tensors, **wanted}, False)[:1])
    for name, gradient in tape.gradient(loss, wanted).items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.usefixtures("in_one")
def test_vectorized_map(row, rng):
    """No loop is left; gradients of parameters are of one element each."""
    tensors = problem(row, rng)
    stack = tf.constant(rng.normal(size=[4, N, T, C]))

    def function(x):
        sources = {**tensors, "x": x}
        sources.pop("m0", None)  # sLSTM's stabiliser has no gradient
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = call(row, {**tensors, **sources}, True, save=True)[0]
            loss = tf.reduce_sum(y**2)
        return y, *tape.gradient(loss, sources).values()

    mapped = tf.function(lambda e: tf.vectorized_map(function, e))
    found = mapped(stack)
    assert not {"While", "StatelessWhile"} & ops_of(mapped, stack)
    expected = [tf.stack(values) for values in zip(*map(function, stack), strict=True)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def ops_of(function, *arguments):
    """Types of the ops in a traced function, those in functions that it calls included."""
    graph = function.get_concrete_function(*arguments).graph.as_graph_def()
    bodies = [graph.node, *[f.node_def for f in graph.library.function]]
    return {node.op for body in bodies for node in body}


def test_ops_of_a_gradient(row, rng, in_one):
    tensors = problem(row, rng)
    weigh = row.loss(rng, call(row, tensors, True))
    found = ops_of(tf.function(lambda t: gradients(row, t, weigh, True, True)), tensors)
    assert (f"{row.spec.op}LayerGrad" in found, "MatMul" in found) == (in_one, not in_one)


def test_what_is_not_wanted_is_empty(row, rng):
    """The gradients that are computed have the same bits."""
    spec = row.spec
    tensors = problem(row, rng)
    tensors |= {"mask": tf.zeros([0], tf.bool), "seed": tf.zeros([0], tf.int64)}
    attributes = {"reverse": [False, True], "zoneout": [0.0] * len(spec.states)}
    inputs = [tensors[name] for name in spec.layer_inputs]
    outputs = raw_ops.forward(spec, inputs, save=True, layer=True, **attributes)
    outputs = dict(zip(spec.forward_outputs, outputs, strict=True))
    tensors |= {name: outputs[name] for name in spec.reserve}
    tensors |= {f"d{name}": tf.cos(outputs[name]) for name in ("y", *spec.states)}
    arguments = [tensors[name] for name in spec.layer_backward_inputs]

    def run(wanted):
        found = raw_ops.layer_backward(spec, arguments, wanted=wanted, **attributes)
        return dict(zip(spec.layer_backward_outputs, found, strict=True))

    own = list(spec.layer_gradients)
    everything = run([True] * len(own))
    for wanted in itertools.product([False, True], repeat=len(own)):
        found = run(wanted)
        left_out = {name for name, want in zip(own, wanted, strict=True) if not want}
        for name, expected in everything.items():
            if name in left_out:
                assert found[name].shape == [0], name
            else:
                np.testing.assert_array_equal(found[name], expected, err_msg=name)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"{spec.op}LayerGrad: wanted must have one flag .* the {len(own)} outputs .* has 1",
    ):
        run([True])


@pytest.mark.usefixtures("beside_a_gpu")
def test_no_second_order(row, rng):
    tensors = problem(row, rng)
    with tf.GradientTape() as outer:
        outer.watch(tensors["x"])
        gradient = gradients(row, tensors, lambda o: tf.reduce_sum(o[0] ** 2), True, True)["x"]
    match = f"{row.spec.op}Layer has no second-order gradient"
    with pytest.raises(NotImplementedError, match=match):
        outer.gradient(gradient, tensors["x"])


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
    op = getattr(library.load(), spec.python_op + "_layer")
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{spec.op}Layer: .*{name} must be"):
        op(
            *(tensors[each] for each in spec.layer_inputs),
            reverse=[False] * K,
            zoneout=[0.0] * len(spec.states),
        )
