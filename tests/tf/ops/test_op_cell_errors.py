"""Errors of every op: the message names the argument and says what it must be."""

import re

import pytest
import tensorflow as tf
from op_rows import ROWS, SEED

from haste_keras import ops
from haste_keras.native import library

SIDES = pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])


def wrong_shapes(row, backward):
    """[(argument, shape)]: each argument with an axis too many, one too few, and one too long."""
    wrong = []
    for name, tensor in row.arguments(backward).items():
        shape = tensor.shape.as_list()
        wrong += [(name, [*shape, 1]), (name, shape[:-1])]
        for axis in range(len(shape)):
            longer = list(shape)
            longer[axis] += 1
            wrong.append((name, longer))
    return wrong


def complaint(name):
    """The message about argument `name`. If two arguments disagree, it names the second."""
    return rf"\b({name} must be \[.*|\w+ must be \[.* comes from {name}\b)"


@SIDES
def test_shapes(row, backward):
    """The kernel finds them in eager code, and the shape function when a graph is built."""
    for name, shape in wrong_shapes(row, backward):
        values = list(row.arguments(backward, **{name: shape}).values())
        with pytest.raises(tf.errors.InvalidArgumentError, match=complaint(name)) as error:
            row.raw(values, backward)
        assert row.spec.op in str(error.value)
        function = tf.function(lambda *a: row.raw(a, backward)[0])
        with pytest.raises(ValueError, match=complaint(name)):
            function.get_concrete_function(*values)


@SIDES
def test_shapes_unknown_until_run(row, backward):
    for name, shape in wrong_shapes(row, backward)[::3]:
        values = list(row.arguments(backward, **{name: shape}).values())
        spec = [tf.TensorSpec(None, value.dtype) for value in values]
        function = tf.function(lambda *a: row.raw(a, backward)[0], input_signature=spec)
        with pytest.raises(tf.errors.InvalidArgumentError, match=complaint(name)):
            function(*values)


@SIDES
def test_attributes(row, backward):
    values = list(row.arguments(backward).values())
    states = ", ".join(row.spec.states)
    last = row.spec.states[-1]
    rates = [0.0] * (len(row.spec.states) - 1)
    wrong = {
        "reverse": ([True], "reverse must have one flag for each of the K = 2 lanes, but has 1"),
        "zoneout": ([], rf"zoneout must have one rate for each state \({states}\), but has 0"),
        "recurrent_dropout": (1.0, r"recurrent_dropout must be in \[0, 1\), but is 1.0"),
        "activation": ("gelu", "activation must be one of .*, but is 'gelu'"),
        "recurrent_activation": ("", "recurrent_activation must be one of .* but is ''"),
        "engine": ("warp", 'engine: expected one of "auto", .* got "warp"'),
    }
    if row.spec.normalizes:
        wrong["epsilon"] = (0.0, "epsilon must be a positive number, but is 0.0")
    wrong = [(name, value, message) for name, (value, message) in wrong.items()]
    for rate, text in ((1.5, "1.5"), (-0.5, "-0.5"), (float("nan"), "nan")):
        message = rf"zoneout of state {last} must be in \[0, 1\], but is {text}"
        wrong.append(("zoneout", [*rates, rate], message))
    op = row.spec.op + ("Grad" if backward else "")
    for name, value, message in wrong:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{op}: {message}"):
            row.raw(values, backward, **{name: value})


@SIDES
def test_exponential_only_where_the_cell_has_it(row, backward):
    values = list(row.arguments(backward).values())
    if row.spec.exponential:
        row.raw(values, backward, recurrent_activation="exponential")
        with pytest.raises(tf.errors.InvalidArgumentError, match="recurrent_activation: expected"):
            row.raw(values, backward, recurrent_activation="tanh")
    else:
        message = "recurrent_activation must be one of .* but is 'exponential'"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            row.raw(values, backward, recurrent_activation="exponential")
    with pytest.raises(tf.errors.InvalidArgumentError, match="activation must be one of"):
        row.raw(values, backward, activation="exponential")


@SIDES
def test_seed_must_be_given(row, backward):
    values = row.arguments(backward)
    values["seed"] = tf.zeros([0], tf.int64)
    noise = [{"zoneout": [0.5] + [0.0] * (len(row.spec.states) - 1)}]
    if row.spec.kernel_dims:
        noise.append({"recurrent_dropout": 0.5})
    for attrs in noise:
        row.raw(values.values(), backward, **attrs)  # nothing is drawn
        with pytest.raises(tf.errors.InvalidArgumentError, match="seed must be given, two int64"):
            row.raw(values.values(), backward, training=True, **attrs)


@SIDES
def test_no_dropout_without_a_kernel(row, backward):
    if row.spec.kernel_dims:
        return
    values = row.arguments(backward).values()
    with pytest.raises(tf.errors.InvalidArgumentError, match="recurrent_dropout: expected 0 for"):
        row.raw(values, backward, recurrent_dropout=0.5)
    with pytest.raises(TypeError, match="no argument is named 'recurrent_dropout'"):
        row.call(dict.fromkeys(row.spec.forward_inputs), recurrent_dropout=0.5)


def test_second_order(row, rng):
    tensors = row.inputs(rng)
    source = next(iter(tensors.values()))
    with tf.GradientTape() as outer:
        outer.watch(source)
        with tf.GradientTape() as inner:
            inner.watch(source)
            y = row.call(tensors)[0]
            loss = tf.reduce_sum(y * y)
        gradient = inner.gradient(loss, source)
    with pytest.raises(NotImplementedError, match=f"{row.spec.op} has no second-order gradient"):
        outer.gradient(gradient, source)


def test_argument_of_no_such_name(row):
    message = f"ops.{row.function}: no argument is named 'unroll'; by keyword it takes .*mask"
    with pytest.raises(TypeError, match=message):
        row.call(dict.fromkeys(row.spec.forward_inputs), unroll=True)


def test_wrong_argument_of_the_function(row, rng):
    """Every tensor, of another dtype and with an axis too many, is blamed by its name."""
    tensors = row.inputs(rng)
    for name, tensor in list(tensors.items())[1:]:
        called = name
        if name.removesuffix("0") in row.spec.states and not row.spec.separate_gates:
            called = f"initial_state {name[:-1]}"
        with pytest.raises(TypeError, match=rf"{called} must have the dtype of \w+, float64"):
            row.call({**tensors, name: tf.cast(tensor, tf.float32)})
        with pytest.raises(ValueError, match=rf"{called} must have shape \["):
            row.call({**tensors, name: tensor[..., tf.newaxis]})


def test_what_is_no_tensor(row, rng):
    tensors = row.inputs(rng)
    for name in tensors:
        if name[:-1] in row.spec.states or name == "recurrent_bias":
            continue  # may be None
        with pytest.raises(
            ValueError, match=rf"ops\.{row.function}: {name} must be a tensor .*None"
        ):
            row.call({**tensors, name: None})


def test_unknown_lanes(row):
    """Of two inputs one may tell; where none does, the error says which should have."""
    first = next(iter(row.spec.forward_inputs))
    sizes = {"N": 2, "T": 3, "K": None, "H": 4}
    spec = {
        name: tf.TensorSpec(row.shape(dims, sizes))
        for name, dims in row.spec.forward_inputs.items()
        if name not in ("mask", "seed")
    }
    function = tf.function(lambda tensors: row.call(tensors), input_signature=[spec])
    blamed = "recurrent_kernel" if row.spec.kernel_dims else first
    with pytest.raises(ValueError, match=f"{blamed} must have a known number of lanes K, but has"):
        function.get_concrete_function()


def test_wrong_number_of_states(row, rng):
    if row.spec.separate_gates:
        return
    tensors = row.inputs(rng)
    count = len(row.spec.states)
    message = re.escape(f"initial_state must be a list or tuple of {count} tensor")
    arguments = [tensors[n] for n in ("wx", "recurrent_kernel") if n in tensors]
    extras = {n: tensors[n] for n in row.spec.extras}
    for given in (tensors[f"{row.spec.states[0]}0"], [tensors[f"{row.spec.states[0]}0"]] * 5):
        with pytest.raises(ValueError, match=message):
            getattr(ops, row.function)(*arguments, given, **extras, **row.options)


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        ("gru", {"reset_after": False, "recurrent_bias": 0.0}, ValueError, "must be None with"),
        ("slstm", {"forget_activation": "tanh"}, ValueError, "one of exponential, sigmoid, but"),
        ("qrnn", {"pooling": "if"}, ValueError, "pooling must be one of f, fo, ifo, but is 'if'"),
        ("layer_norm_gru", {"epsilon": 0.0}, ValueError, "epsilon must be a positive number"),
        ("layer_norm_gru", {"epsilon": "a"}, ValueError, "epsilon must be a positive number"),
        ("elman", {"recurrent_activation": "tanh"}, TypeError, "no argument is named 'recurrent_"),
        ("forget_mult", {"reverse": "yes"}, TypeError, "reverse must be a list of K = 2 bools"),
    ],
)
def test_own_arguments(rng, function, options, error, message):
    row = next(row for row in ROWS if row.function == function)
    tensors = row.inputs(rng)
    if "recurrent_bias" in options:
        tensors.pop("recurrent_bias")
    with pytest.raises(error, match=f"ops.{function}: .*{message}"):
        row.call(tensors, **options)


def test_forget_mult_shapes(rng):
    x = tf.zeros([2, 3, 4])
    with pytest.raises(ValueError, match=r"f must have shape \[N, T, H\] or \[N, T, K, H\]"):
        ops.forget_mult(x[0], x[0])
    with pytest.raises(ValueError, match=r"x must have shape \[N, T, H\], as f has no lanes"):
        ops.forget_mult(x, x[:, :, tf.newaxis])
    with pytest.raises(ValueError, match=r"h0 must have shape \[N, H\], as f has no lanes"):
        ops.forget_mult(x, x, x[:, :2])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (([4], [2, 6], [2, 6]), r"x must have shape \[..., K, F\], but has shape \(4,\)"),
        (([4, 2, 6], [2, 5], [2, 6]), r"gamma must have shape \[K = 2, F = 6\], but has shape \(2"),
        (([4, 2, 6], [2, 6], [6]), r"beta must have shape \[K = 2, F = 6\], but has shape \(6,\)"),
    ],
)
def test_layer_norm_shapes(shapes, message):
    with pytest.raises(ValueError, match="ops.layer_norm: " + message):
        ops.layer_norm(*[tf.zeros(shape) for shape in shapes])


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        ("", ([4, 6], [2, 6], [2, 6]), r"x must be \[R, K, F\].*, but has shape \[4, 6\]"),
        ("", ([4, 2, 6], [2, 5], [2, 6]), r"gamma must be \[K, F\] = \[2, 6\].*F = 6 comes from x"),
        ("", ([4, 2, 6], [2, 6], [3, 6]), r"beta must be \[K, F\] = \[2, 6\] or empty, but"),
        ("", ([4, 2, 0], [2, 0], [0]), r"x must be .* F must be at least 1"),
        ("_grad", ([4, 2, 6], [2, 6], [5, 2, 6]), r"dy must be .*R = 4 comes from x"),
    ],
)
def test_layer_norm_op_shapes(op, shapes, message):
    function = getattr(library.load(), "haste_layer_norm" + op)
    values = [tf.zeros(shape) for shape in shapes]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        function(*values)
    with pytest.raises(ValueError, match=message):
        tf.function(lambda *a: function(*a)[0]).get_concrete_function(*values)


def test_layer_norm_second_order_and_epsilon(rng):
    x, gamma = tf.constant(rng.normal(size=[3, 2, 4])), tf.ones([2, 4], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(ops.layer_norm(x, gamma) ** 2)
        gradient = inner.gradient(loss, x)
    with pytest.raises(NotImplementedError, match="HasteLayerNorm has no second-order gradient"):
        outer.gradient(gradient, x)
    with pytest.raises(ValueError, match=r"ops\.layer_norm: epsilon must be a positive number"):
        ops.layer_norm(x, gamma, epsilon=-1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="epsilon must be a positive number"):
        library.load().haste_layer_norm(x, gamma, gamma, epsilon=0.0)


def test_seed_is_taken_from_a_tensor(row, rng):
    tensors = row.inputs(rng)
    options = {"training": True, "zoneout": 0.5}
    a, b = row.call(tensors, seed=SEED, **options), row.call(tensors, seed=(11, 12), **options)
    assert (a[0].numpy() == b[0].numpy()).all()


@pytest.mark.parametrize("backward", [False, True])
def test_rate_of_a_state_that_goes_with_another(backward):
    """Zoneout's rate of c is also that of n and m: another rate for them would contradict it."""
    row = next(row for row in ROWS if row.name == "slstm")
    message = "zoneout of state n must be 0, since that of state c is its own, but is 0.3"
    values = list(row.arguments(backward).values())
    attrs = {"zoneout": [0.1, 0.2, 0.3, 0.0], "recurrent_activation": "exponential"}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        row.raw(values, backward, **attrs)
