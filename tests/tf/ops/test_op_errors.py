"""Every error names the argument, what was expected and what was given."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import ops
from haste_keras.native import library

N, T, K, H = 2, 3, 2, 4


def arguments(**changes):
    """Valid arguments of ops.lstm, except for `changes`."""
    return {
        "wx": tf.zeros([N, T, K, 4, H]),
        "recurrent_kernel": tf.zeros([K, H, 4, H]),
        "initial_state": [tf.zeros([N, K, H])] * 2,
        **changes,
    }


OF_PYTHON = [
    (
        {"wx": tf.zeros([N, T, 4 * H])},
        ValueError,
        r"wx must have shape \[N, T, K, G = 4, H\], but has shape \(2, 3, 16\)",
    ),
    (
        {"wx": tf.zeros([N, T, K, 3, H])},
        ValueError,
        r"wx must have shape \[N, T, K, G = 4, H\], but has shape \(2, 3, 2, 3, 4\)",
    ),
    (
        {"wx": tf.zeros([N, T, K, 4, H], tf.int32)},
        TypeError,
        "wx must be one of float16, bfloat16, float32, float64, but is int32",
    ),
    (
        {"recurrent_kernel": tf.zeros([K, H, 4, H], tf.float64)},
        TypeError,
        "recurrent_kernel must have the dtype of wx, float32, but is float64",
    ),
    (
        {"recurrent_kernel": tf.zeros([K, H, 4 * H])},
        ValueError,
        r"recurrent_kernel must have shape \[K = 2, H = 4, G = 4, H = 4\], but .* \(2, 4, 16\)",
    ),
    (
        {"recurrent_kernel": tf.zeros([K, H, 4, 5])},
        ValueError,
        r"recurrent_kernel must .* \(2, 4, 4, 5\)",
    ),
    (
        {"initial_state": tf.zeros([N, K, H])},
        ValueError,
        r"initial_state must be a list or tuple of 2 tensors \(h, c\), but is EagerTensor",
    ),
    (
        {"initial_state": [tf.zeros([N, K, H])]},
        ValueError,
        r"initial_state must be a list or tuple of 2 tensors \(h, c\), but is 1 elements",
    ),
    (
        {"initial_state": [tf.zeros([N, K, H]), tf.zeros([N, H])]},
        ValueError,
        r"initial_state c must have shape \[N = 2, K = 2, H = 4\], but has shape \(2, 4\)",
    ),
    (
        {"initial_state": [tf.zeros([N, K, H], tf.float16)] * 2},
        TypeError,
        "initial_state h must have the dtype of wx, float32, but is float16",
    ),
    (
        {"mask": tf.ones([N, T + 1], tf.bool)},
        ValueError,
        r"mask must have shape \[N = 2, T = 3\], but has shape \(2, 4\)",
    ),
    (
        {"mask": tf.ones([N, T, 1], tf.bool)},
        ValueError,
        r"mask must have shape \[N = 2, T = 3\], but has shape \(2, 3, 1\)",
    ),
    ({"seed": [1, 2, 3]}, ValueError, r"seed must have shape \[2\], but has shape \(3,\)"),
    ({"seed": [1.0, 2.0]}, TypeError, "seed must be of integers, but is float32"),
    (
        {"training": True, "zoneout": 0.5},
        ValueError,
        "seed must be given, since zoneout or recurrent_dropout draws",
    ),
    ({"training": True, "recurrent_dropout": 0.5}, ValueError, "seed must be given"),
    (
        {"reverse": [True]},
        ValueError,
        "reverse must have a flag for each of the K = 2 lanes, but has 1",
    ),
    ({"reverse": True}, TypeError, "reverse must be a list of K = 2 bools, but is True"),
    ({"seed": 2**63}, ValueError, r"seed must be in \[-2\*\*63, 2\*\*63\), but is 92233"),
    ({"seed": [0, -(2**63) - 1]}, ValueError, "seed must be in .* but is -9223372036854775809"),
    ({"zoneout": "a"}, ValueError, r"zoneout must be in \[0, 1\], but is 'a'"),
    (
        {"recurrent_dropout": None},
        ValueError,
        r"recurrent_dropout must be in \[0, 1\), but is None",
    ),
    ({"zoneout": 1.5}, ValueError, r"zoneout must be in \[0, 1\], but is 1.5"),
    ({"zoneout_cell": -0.1}, ValueError, r"zoneout_cell must be in \[0, 1\], but is -0.1"),
    ({"zoneout": float("nan")}, ValueError, r"zoneout must be in \[0, 1\], but is nan"),
    ({"recurrent_dropout": 1.0}, ValueError, r"recurrent_dropout must be in \[0, 1\), but is 1.0"),
    (
        {"activation": "gelu"},
        ValueError,
        "activation must be one of tanh, sigmoid, relu, hard_sigmoid, linear, but is 'gelu'",
    ),
    (
        {"recurrent_activation": "softmax"},
        ValueError,
        "recurrent_activation must be one of .* but is 'softmax'",
    ),
    (
        {"training": tf.constant(True)},
        TypeError,
        "training must be True or False when the op is built, but is a tensor",
    ),
    (
        {"engine": "warp"},
        tf.errors.InvalidArgumentError,
        'engine: expected one of "auto", .* got "warp"',
    ),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    OF_PYTHON,
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)
def test_functional_form(changes, error, message):
    with pytest.raises(error, match=message):
        ops.lstm(**arguments(**changes))


def test_unknown_lanes():
    @tf.function(
        input_signature=[tf.TensorSpec([N, T, None, 4, H]), tf.TensorSpec([None, H, 4, H])]
    )
    def function(wx, recurrent_kernel):
        return ops.lstm(wx, recurrent_kernel)[0]

    with pytest.raises(ValueError, match="recurrent_kernel must have a known number of lanes K"):
        function.get_concrete_function()


FORWARD = {
    "wx": [N, T, K, 4, H],
    "recurrent_kernel": [K, H, 4, H],
    "h0": [N, K, H],
    "c0": [N, K, H],
    "mask": [N, T],
    "seed": [2],
}
BACKWARD = {
    "recurrent_kernel": [K, H, 4, H],
    "mask": [N, T],
    "seed": [2],
    "gates": [N, T, K, 4, H],
    "h_in": [N, T, K, H],
    "c_in": [N, T, K, H],
    "dy": [N, T, K, H],
    "dh": [N, K, H],
    "dc": [N, K, H],
}
OF_SHAPES = [
    (
        FORWARD,
        "wx",
        [N, T, 16],
        r"wx must be \[N, T, K, G, H\] = \[\?, \?, \?, 4, \?\], but has shape \[2, 3, 16\]",
    ),
    (
        FORWARD,
        "wx",
        [N, T, K, 3, H],
        r"wx must be .* but has shape \[2, 3, 2, 3, 4\]; G = 4 comes from the gates of lstm",
    ),
    (
        FORWARD,
        "wx",
        [N, T, 0, 4, H],
        r"wx must be .* but has shape \[2, 3, 0, 4, 4\]; K must be at least 1",
    ),
    (
        FORWARD,
        "recurrent_kernel",
        [K, H, 4, 5],
        r"recurrent_kernel must be \[K, H, G, H\] = \[2, 4, 4, 4\], "
        r"but has shape \[2, 4, 4, 5\]; H = 4 comes from wx",
    ),
    (
        FORWARD,
        "recurrent_kernel",
        [3, H, 4, H],
        r"but has shape \[3, 4, 4, 4\]; K = 2 comes from wx",
    ),
    (
        FORWARD,
        "h0",
        [N, H],
        r"h0 must be \[N, K, H\] = \[2, 2, 4\] or empty, but has shape \[2, 4\]",
    ),
    (FORWARD, "h0", [3, K, H], r"h0 must be .* but has shape \[3, 2, 4\]; N = 2 comes from wx"),
    (FORWARD, "c0", [N, K, 5], r"c0 must be .* but has shape \[2, 2, 5\]; H = 4 comes from wx"),
    (FORWARD, "mask", [N], r"mask must be \[N, T\] = \[2, 3\] or empty, but has shape \[2\]"),
    (FORWARD, "mask", [N, 4], r"mask must be .* but has shape \[2, 4\]; T = 3 comes from wx"),
    (FORWARD, "seed", [3], r"seed must be \[2\] or empty, but has shape \[3\]"),
    (
        BACKWARD,
        "recurrent_kernel",
        [K, H, 4, 5],
        r"recurrent_kernel must be .* but has shape \[2, 4, 4, 5\]",
    ),
    (
        BACKWARD,
        "gates",
        [N, T, K, 4, 5],
        r"gates must be \[N, T, K, G, H\] = .* but has shape \[2, 3, 2, 4, 5\]; "
        r"H = 4 comes from recurrent_kernel",
    ),
    (BACKWARD, "mask", [3, T], r"mask must be .* but has shape \[3, 3\]; N = 2 comes from gates"),
    (BACKWARD, "seed", [1], r"seed must be \[2\] or empty, but has shape \[1\]"),
    (
        BACKWARD,
        "h_in",
        [N, K, H],
        r"h_in must be \[N, T, K, H\] = \[2, 3, 2, 4\], but has shape \[2, 2, 4\]",
    ),
    (
        BACKWARD,
        "c_in",
        [N, 4, K, H],
        r"c_in must be .* but has shape \[2, 4, 2, 4\]; T = 3 comes from gates",
    ),
    (
        BACKWARD,
        "dy",
        [N, 4, K, H],
        r"dy must be \[N, T, K, H\] = \[2, 3, 2, 4\] or empty, but has shape \[2, 4, 2, 4\]",
    ),
    (
        BACKWARD,
        "dh",
        [N, K, 5],
        r"dh must be \[N, K, H\] = \[2, 2, 4\] or empty, but has shape \[2, 2, 5\]",
    ),
    (BACKWARD, "dc", [5, K, H], r"dc must be .* but has shape \[5, 2, 4\]; N = 2 comes from gates"),
]
TYPES = {"mask": tf.bool, "seed": tf.int64}


def call(arguments, shapes, **attrs):
    module = library.load()
    op = module.haste_lstm if shapes is FORWARD else module.haste_lstm_grad
    return op(*arguments, **{"reverse": [False] * K, "zoneout": [0.0, 0.0], **attrs})


@pytest.mark.parametrize(("shapes", "name", "shape", "message"), OF_SHAPES)
def test_op_shapes(shapes, name, shape, message):
    """The kernel finds it in eager code, and the shape function when a graph is built."""
    shapes_then = {**shapes, name: shape}
    values = [tf.zeros(s, TYPES.get(n, tf.float32)) for n, s in shapes_then.items()]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(values, shapes)
    with pytest.raises(ValueError, match=message):
        tf.function(lambda *a: call(a, shapes)[0]).get_concrete_function(*values)


@pytest.mark.parametrize(("shapes", "name", "shape", "message"), OF_SHAPES)
def test_op_shapes_unknown_until_run(shapes, name, shape, message):
    shapes_then = {**shapes, name: shape}
    values = [tf.zeros(s, TYPES.get(n, tf.float32)) for n, s in shapes_then.items()]
    spec = [tf.TensorSpec(None, value.dtype) for value in values]
    function = tf.function(lambda *a: call(a, shapes)[0], input_signature=spec)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        function(*values)


OF_ATTRIBUTES = [
    ({"reverse": [False]}, "reverse must have one flag for each of the K = 2 lanes, but has 1"),
    ({"zoneout": [0.0]}, r"zoneout must have one rate for each state \(h, c\), but has 1"),
    ({"zoneout": [0.0, 1.5]}, r"zoneout of state c must be in \[0, 1\], but is 1.5"),
    ({"zoneout": [float("nan"), 0.0]}, r"zoneout of state h must be in \[0, 1\], but is nan"),
    ({"recurrent_dropout": 1.0}, r"recurrent_dropout must be in \[0, 1\), but is 1.0"),
    (
        {"activation": "gelu"},
        "activation must be one of tanh, sigmoid, relu, hard_sigmoid, linear, but is 'gelu'",
    ),
    ({"recurrent_activation": ""}, "recurrent_activation must be one of .* but is ''"),
    ({"engine": "warp"}, 'engine: expected one of "auto", .* got "warp"'),
]


@pytest.mark.parametrize(("attrs", "message"), OF_ATTRIBUTES)
@pytest.mark.parametrize("shapes", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_op_attributes(shapes, attrs, message):
    values = [tf.zeros(s, TYPES.get(n, tf.float32)) for n, s in shapes.items()]
    op = "HasteLstm: " if shapes is FORWARD else "HasteLstmGrad: "
    with pytest.raises(tf.errors.InvalidArgumentError, match=op + message):
        call(values, shapes, **attrs)


@pytest.mark.parametrize("shapes", [FORWARD, BACKWARD], ids=["forward", "backward"])
@pytest.mark.parametrize("attrs", [{"zoneout": [0.5, 0.0]}, {"recurrent_dropout": 0.5}])
def test_op_needs_a_seed(shapes, attrs):
    values = {n: tf.zeros(s, TYPES.get(n, tf.float32)) for n, s in shapes.items()}
    values["seed"] = tf.zeros([0], tf.int64)
    call(values.values(), shapes, **attrs)  # nothing is drawn
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed must be given, two int64"):
        call(values.values(), shapes, training=True, **attrs)


def test_second_order(inputs):
    wx, recurrent_kernel, *states = inputs()
    with tf.GradientTape() as outer:
        outer.watch(wx)
        with tf.GradientTape() as inner:
            inner.watch(wx)
            y, _ = ops.lstm(wx, recurrent_kernel, states)
            loss = tf.reduce_sum(y * y)
        gradient = inner.gradient(loss, wx)
    with pytest.raises(NotImplementedError, match="HasteLstm has no second-order gradient"):
        outer.gradient(gradient, wx)


def test_numpy_input_is_taken_as_it_is():
    wx = np.zeros([N, T, K, 4, H])
    with pytest.raises(TypeError, match=r"recurrent_kernel .* float64, but is float32"):
        ops.lstm(wx, np.zeros([K, H, 4, H], np.float32))
