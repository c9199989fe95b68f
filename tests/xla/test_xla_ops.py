"""Each op in a function that XLA compiles: the bits of the same op outside of it."""

import numpy as np
import pytest
import tensorflow as tf
from xla_cases import DTYPES, ROWS, calls, compiled, other_calls, same_bits

from haste_keras import ops
from haste_keras.native import cell_spec, raw_ops

LSTM = ROWS[0]


def test_every_op_and_dtype_has_the_same_bits(row, rng):
    made = {
        f"{op} {dtype.name}": call
        for dtype in DTYPES
        for op, call in calls(row, dtype, rng).items()
    }
    without, within = compiled(made)
    assert [op for op in made if not same_bits(without[op], within[op])] == []


def test_ops_without_a_cell_have_the_same_bits(rng):
    made = {
        f"{op} {dtype.name}": call
        for dtype in DTYPES
        for op, call in other_calls(dtype, rng).items()
    }
    without, within = compiled(made)
    assert [op for op in made if not same_bits(without[op], within[op])] == []


def _loss(function, inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(function(*inputs))
        loss = tf.add_n([tf.reduce_sum(tf.cast(o, tf.float64) ** 2) for o in outputs])
    return outputs + tape.gradient(loss, inputs, unconnected_gradients="zero")


def _assert_close(got, want, tolerance=1e-6):
    for one, other in zip(got, want, strict=True):
        scale = max(1.0, float(np.max(np.abs(other), initial=0.0)))
        np.testing.assert_allclose(one, other, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "LAYER_NORM_LSTM", "INDRNN", "FORGET_MULT"])
def test_gradients_of_sizes_that_only_the_run_knows(name, rng):
    spec = getattr(cell_spec, name)
    row = next(each for each in ROWS if each.spec is spec)
    first = row.inputs(rng, dtype=tf.float32)
    signature = [
        tf.TensorSpec([None if d in "NT" else size for d, size in zip(dims, t.shape, strict=True)])
        for dims, t in zip(spec.forward_inputs.values(), first.values(), strict=False)
    ]

    def function(*inputs):
        return row.call(dict(zip(first, inputs, strict=True)), training=True)

    run = tf.function(
        lambda *inputs: _loss(function, list(inputs)), input_signature=signature, jit_compile=True
    )
    for batch, time in ((3, 5), (2, 7), (1, 0)):
        tensors = list(row.inputs(rng, batch, time, dtype=tf.float32).values())
        _assert_close(run(*tensors), _loss(function, tensors))
    assert run.experimental_get_tracing_count() == 1


class _Module(tf.Module):
    """An inner function with variables, to be traced, saved and loaded."""

    def __init__(self, rng):
        super().__init__()
        self.kernel = tf.Variable(LSTM.inputs(rng, dtype=tf.float32)["recurrent_kernel"])

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2, 4, 4])])
    def forward(self, wx):
        # wx is read after the op, whose gates may lie in its memory.
        return [*ops.lstm(wx, self.kernel, training=True)[:1], tf.sin(wx)]


def test_an_inner_function_and_a_saved_model(rng, tmp_path):
    module = _Module(rng)
    wx = LSTM.inputs(rng, dtype=tf.float32)["wx"]
    before = wx.numpy()
    want = _loss(module.forward, [wx])  # traced without XLA
    tf.saved_model.save(module, str(tmp_path))
    for each in (module, tf.saved_model.load(str(tmp_path))):
        got = tf.function(lambda wx, each=each: _loss(each.forward, [wx]), jit_compile=True)(wx)
        _assert_close(got, want)
    np.testing.assert_array_equal(wx, before)


def test_loops(rng):
    row = LSTM.inputs(rng, dtype=tf.float32)
    wx = tf.stack([row.pop("wx")] * 3)

    def one(each):
        return LSTM.call({"wx": each, **row})[0]

    def all_of(wx):
        mapped = tf.map_fn(one, wx)
        vectorized = tf.vectorized_map(one, wx)
        _, last = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, one(wx[i] + tf.reduce_sum(y))),
            (0, tf.zeros_like(mapped[0])),
            maximum_iterations=3,
        )
        return mapped, vectorized, last

    _assert_close(tf.function(all_of, jit_compile=True)(wx), all_of(wx))


def test_errors_are_our_sentences(rng):
    tensors = list(LSTM.inputs(rng, dtype=tf.float32).values())
    tensors += [tf.zeros([0], tf.bool), tf.zeros([0], tf.int64)]
    attrs = {"reverse": [False, False], "zoneout": [0.0, 0.0], "save": False}

    def run(inputs=tensors, **changes):
        function = tf.function(
            lambda inputs: raw_ops.forward(cell_spec.LSTM, inputs, **{**attrs, **changes}),
            jit_compile=True,
        )
        return function(inputs)

    # XLA of TensorFlow 2.17 makes every error of a call an internal one.
    of_a_call = tf.errors.InvalidArgumentError, tf.errors.InternalError
    with pytest.raises(of_a_call, match=r"HasteLstm: .*engine"):
        run(engine="nonsense")
    with pytest.raises(of_a_call, match="HasteLstm: reverse must have one"):
        run(reverse=[True])
    with pytest.raises(of_a_call, match="HasteLstm: seed must be given"):
        run(training=True, zoneout=[0.5, 0.0])
    unknown = tf.function(
        lambda wx: raw_ops.forward(cell_spec.LSTM, [wx, *tensors[1:]], **attrs),
        input_signature=[tf.TensorSpec([None] * 5)],
        jit_compile=True,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="HasteLstm: recurrent_kernel must be"):
        unknown(tf.zeros([3, 5, 2, 4, 9]))


def test_gradient_lies_over_the_gates(rng):
    """So that a training step needs no second buffer of that size."""
    spec = cell_spec.LSTM
    function, inputs = calls(LSTM, tf.float32, rng)["gradient"]
    jitted = tf.function(function, jit_compile=True)
    text = jitted.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
    gates = list(spec.backward_inputs).index("gates")
    assert f"output_to_operand_aliasing={{{{0}}: ({gates}, {{}})" in text
