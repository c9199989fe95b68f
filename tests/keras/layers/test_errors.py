"""Errors name the argument, what was expected and what was given."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import make_states
from rows import OF_SOME

import haste_keras

ONES = np.ones((2, 4, 3), "float32")


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": 0}, "`units`.*got 0"),
        ({"units": -3}, "`units`.*got -3"),
        ({"units": "4"}, "`units`.*positive integer, got '4'"),
        ({"units": 4.0}, r"`units`.*positive integer, got 4\.0"),
        ({"dropout": None}, r"`dropout` must be in \[0, 1\).*dropout=None"),
        ({"zoneout": "a"}, r"`zoneout` must be in \[0, 1\]\. .*zoneout='a'"),
        ({"heads": 2.0}, r"`heads` must be a positive divisor of units=4.*heads=2\.0"),
        ({"heads": True}, "`heads` must be a positive divisor of units=4.*heads=True"),
        ({"seed": 2**63}, r"`seed` must be in \[-2\*\*63, 2\*\*63\).*seed=9223372036854775808"),
        ({"seed": -(2**63) - 1}, "`seed` must be in .*seed=-9223372036854775809"),
        (
            {"engine": "warp"},
            "`engine` must be one of 'auto', 'cpu', 'stepwise', 'blas', 'tiled', .*'warp'",
        ),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\).*dropout=1.0"),
        ({"recurrent_dropout": -0.1}, r"`recurrent_dropout` must be in \[0, 1\).*-0.1"),
        ({"zoneout": 1.5}, r"`zoneout` must be in \[0, 1\]\. .*1.5"),
        ({"dropconnect": 1}, r"`dropconnect` must be in \[0, 1\).*=1"),
        ({"heads": 3}, "`heads` must be a positive divisor of units=4.*heads=3"),
        ({"heads": 0}, "`heads`.*heads=0"),
        ({"direction": "up"}, "`direction`.*'forward', 'backward', 'bidirectional'.*'up'"),
        ({"merge_mode": "max"}, "`merge_mode`.*'max'"),
        ({"use_cudnn": "yes"}, "`use_cudnn`.*yes"),
        ({"implementation": 7}, "`implementation`.*7"),
        ({"engine": 3}, "`engine`.*3"),
        ({"activation": "no such"}, "activation.*no such"),
        ({"recurrent_activation": "no such"}, "activation.*no such"),
        ({"dtype": "int32"}, "`dtype`.*one of float16, bfloat16, float32, float64.*: int32"),
        ({"recurrent_transform": "nothing"}, "`recurrent_transform`.*'nothing'"),
        ({"kernel_transform": 5}, "`kernel_transform`.*5"),
        ({"no_such_argument": 1}, "no_such_argument"),
    ],
    ids=str,
)
def test_constructor(row, options, message):
    for name in OF_SOME:  # a layer without this argument refuses it too
        if name in options and not row.takes(name):
            message = name
    with pytest.raises(ValueError, match=message):
        row.layer(**{"units": 4, **options})


def test_ragged_and_sparse_inputs(row):
    ragged = tf.RaggedTensor.from_row_lengths(np.ones((5, 3), "float32"), [2, 3])
    message = r"`sequences` of layer .* dense.*RaggedTensor; give `x\.to_tensor\(\)`, and `mask="
    with pytest.raises(ValueError, match=message):
        row.layer(4)(ragged)
    mask = tf.sequence_mask(ragged.row_lengths())  # what the message recommends works
    assert row.layer(4)(ragged.to_tensor(), mask=mask).shape == (2, 4)
    with pytest.raises(ValueError, match=r"SparseTensor; give `tf\.sparse\.to_dense\(x\)`"):
        row.layer(4)(tf.sparse.from_dense(ONES))


def test_complex_inputs(row):
    message = r"`sequences` of layer .* must be real\. Received: complex64"
    with pytest.raises(ValueError, match=message):
        row.layer(4).call(tf.cast(ONES, tf.complex64))
    with pytest.raises(ValueError, match=message):
        row.layer(4)(tf.cast(ONES, tf.complex64))
    layer = row.layer(4)
    layer.build(ONES.shape)
    states = [tf.cast(state, tf.complex64) for state in layer.get_initial_state(2)]
    with pytest.raises(ValueError, match=r"`initial_state` of layer .* must be real"):
        layer(ONES, initial_state=states)


def test_forget_mult_refuses_the_same():
    layer = haste_keras.ForgetMult(name="it")
    ragged = tf.RaggedTensor.from_row_lengths(np.ones((5, 3), "float32"), [2, 3])
    with pytest.raises(ValueError, match=r"`inputs` of layer it .*RaggedTensor"):
        layer((ragged, ragged))
    with pytest.raises(ValueError, match=r"`inputs` of layer it .* real"):
        layer([tf.cast(ONES, tf.complex64)] * 2)
    with pytest.raises(ValueError, match=r"`dtype` of layer .*int32"):
        haste_keras.ForgetMult(dtype="int32")


def test_wrong_rank(row):
    with pytest.raises(ValueError, match=r"expected ndim=3, found ndim=2"):
        row.layer(4)(ONES[0])
    with pytest.raises(ValueError, match=r"`sequences`.*batch, time, features"):
        row.layer(4).call(tf.constant(ONES[0]))


def test_unknown_rank(row):
    layer = row.layer(4)
    run = tf.function(layer, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(ValueError, match=r"`sequences`.*batch, time, features.*unknown rank"):
        run(ONES)


def test_transform_that_changes_the_shape(row):
    for name in filter(row.takes, ("kernel_transform", "recurrent_transform", "bias_transform")):
        layer = row.layer(4, **{name: lambda w: w[..., :2]})
        with pytest.raises(
            ValueError, match=rf"`{name}` must return .* shape \(.*: shape \(.*2,?\)"
        ):
            layer(ONES)


def test_unknown_features(row):
    with pytest.raises(ValueError, match=r"`sequences`.*known number of features"):
        row.layer(4)(keras.Input((None, None)))


def test_changed_features(row):
    layer = row.layer(4)
    layer(ONES)
    with pytest.raises(ValueError, match=r"`sequences`.*must have 3 features.*\(2, 4, 5\)"):
        layer(np.ones((2, 4, 5), "float32"))
    with pytest.raises(ValueError, match=r"`sequences`.*must have 3 features"):
        layer(keras.Input((None, 5)))
    run = tf.function(layer, input_signature=[tf.TensorSpec([None, None, None])])
    np.testing.assert_allclose(run(ONES), layer(ONES), atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(np.ones((2, 6, 5), "float32"))


@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (2, 1), (2,), (2, 4, 2)])
def test_mask_of_the_wrong_shape(row, shape):
    with pytest.raises(ValueError, match="`mask`"):
        row.layer(4)(ONES, mask=np.ones(shape, bool))


def test_empty_mask(row):
    with pytest.raises(ValueError, match=r"`mask`.*\(2, 4\).*shape \(0,\)"):
        row.layer(4).call(tf.constant(ONES), mask=[])


def test_mask_of_the_wrong_length_in_graph(row):
    layer = row.layer(4)
    layer(ONES)
    signature = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, None], tf.bool)]
    run = tf.function(lambda x, mask: layer(x, mask=mask), input_signature=signature)
    run(ONES, np.ones((2, 4), bool))
    for x, length in ((ONES, 5), (ONES, 1), (ONES[:, :1], 4)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="mask"):
            run(x, np.ones((2, length), bool))


def test_initial_state(row, rng):
    layer = row.layer(4)
    layer.build(ONES.shape)
    good = make_states(row, layer, 2, rng)
    count = len(good)
    message = rf"`initial_state`.*hold {count} states.*: {count + 1}"
    with pytest.raises(ValueError, match=message):
        layer(ONES, initial_state=[*good, good[0]])
    for shape in ((2, 5), (3, 4), (4,)):
        bad = [np.ones(shape, "float32"), *good[1:]]
        with pytest.raises(ValueError, match=r"`initial_state`.*\(2, 4\)"):
            layer(ONES, initial_state=bad)


def test_stateful_needs_a_static_batch(row):
    with pytest.raises(ValueError, match="batch size must be static"):
        row.layer(4, stateful=True)(keras.Input((None, 3)))
    layer = row.layer(4, stateful=True)
    layer(ONES)
    with pytest.raises(ValueError, match="Expected batch size: 2"):
        layer(np.ones((3, 4, 3), "float32"))


def test_unroll_needs_a_known_length(row):
    layer = row.layer(4, unroll=True)
    run = tf.function(layer, input_signature=[tf.TensorSpec([2, None, 3])])
    with pytest.raises(ValueError, match="Cannot unroll"):
        run(ONES)


def test_second_derivative_is_refused(row):
    layer = row.layer(4)
    x = tf.constant(ONES)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(layer(x))
        first = inner.gradient(y, x)
        loss = tf.reduce_sum(first * first)
    with pytest.raises(Exception, match=r"[Ss]econd"):
        outer.gradient(loss, x)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(4, 2)], r"`states` of cell .* shape \(2, 4\)\. Received: shape \(4, 2\)"),
        ([(1, 8)], r"`states` of cell .* shape \(2, 4\)\. Received: shape \(1, 8\)"),
        ([(2, 5)], r"`states` of cell .* shape \(2, 4\)\. Received: shape \(2, 5\)"),
        ([(2, 4)] * 9, r"`states` of cell .* must hold \d states?\. Received: 9|hold"),
    ],
    ids=str,
)
def test_states_of_a_cell(row, shapes, message):
    cell = row.cell(4)
    cell.build((2, 3))
    count = len(row.layer(4).cell.state_size) if len(shapes) == 1 else 1
    with pytest.raises(ValueError, match=message):
        cell(tf.ones([2, 3]), [tf.ones(shape) for shape in shapes * count])


@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 5), (3,)], ids=str)
def test_inputs_of_a_cell(row, shape):
    cell = row.cell(4)
    cell.build((2, 3))
    with pytest.raises(ValueError, match=r"`inputs` of cell .* \(None, 3\)\. Received: shape"):
        cell(tf.ones(shape), cell.get_initial_state(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sequences": np.full((2, 4, 3), "a")}, "`sequences` .* must be numbers.*string"),
        ({"mask": np.full((2, 4), "a")}, "`mask` .* must be numbers.*string"),
        ({"mask": np.ones((2, 4), "complex64")}, "`mask` .* must be numbers.*complex64"),
        ({"mask": tf.ragged.constant([[1, 1], [1]])}, "`mask` .* must be a dense.*RaggedTensor"),
        ({"mask": tf.sparse.from_dense(np.ones((2, 4)))}, "`mask` .* must be a dense.*Sparse"),
        ({"initial_state": np.full((2, 4), "a")}, "`initial_state` .* must be numbers.*string"),
        ({"initial_state": tf.ragged.constant([[1.0], []])}, "`initial_state` .*RaggedTensor"),
    ],
    ids=[
        "sequences",
        "mask",
        "complex mask",
        "ragged mask",
        "sparse mask",
        "state",
        "ragged state",
    ],
)
def test_what_is_no_dense_tensor_of_numbers(arguments, message):
    with pytest.raises(ValueError, match=message):
        haste_keras.GRU(4)(**{"sequences": ONES, **arguments})


def test_a_state_that_is_none():
    with pytest.raises(
        ValueError, match=r"`initial_state` .* hold tensors\. Received: None as state 1"
    ):
        haste_keras.LSTM(4)(ONES, initial_state=[tf.ones([2, 4]), None])


def test_a_policy_for_the_cell_alone():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["lstm/lstm_cell"] = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    with pytest.raises(ValueError, match=r"`dtype` of cell lstm/lstm_cell .* float32.*bfloat16"):
        haste_keras.LSTM(4, dtype=policies, name="lstm")(ONES)
