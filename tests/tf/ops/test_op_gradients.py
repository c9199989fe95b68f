"""Gradients: against finite differences of the op itself, and that nothing else changes them."""

import numpy as np
import pytest
import tensorflow as tf
from op_rows import CASES, LSTM, gradients, make_case, row_cases

from haste_keras import ops
from haste_keras.native import library

# The oracle's test has them all; these are the ones that take different paths.
FEW = ["plain", "mask", "zoneout_expected", "everything"]


@pytest.fixture(params=FEW)
def case(request, row, rng):
    """(row, tensors, loss, options); options that the row does not take are left out."""
    options = {k: v for k, v in CASES[request.param].items() if row.takes(k)}
    tensors, options = make_case(row, options, rng)
    return row, tensors, row.loss(rng, row.call(tensors, **options)), options


@pytest.mark.parametrize(("row", "options"), **row_cases(FEW))
def test_finite_differences(row, options, rng):
    tensors, options = make_case(row, options, rng)
    outputs = row.call(tensors, **options)
    if row.function == "slstm":
        outputs = outputs[:2]  # m, which scales c and n, counts as constant: only h is exact
    weigh = row.loss(rng, outputs)
    found = gradients(row, tensors, weigh, **options)
    step = 1e-6
    for name, tensor in tensors.items():
        if name == "m0":
            continue
        flat = tensor.numpy().ravel()
        for element in rng.choice(flat.size, min(flat.size, 8), replace=False):
            ends = []
            for sign in (1, -1):
                moved = flat.copy()
                moved[element] += sign * step
                moved = {**tensors, name: tf.constant(moved.reshape(tensor.shape))}
                ends.append(weigh(row.call(moved, **options)).numpy())
            expected = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(
                found[name].numpy().ravel()[element], expected, atol=5e-8, rtol=1e-6, err_msg=name
            )


def test_save_makes_no_difference(case):
    row, tensors, loss, options = case
    kept = gradients(row, tensors, loss, save=True, **options)
    again = gradients(row, tensors, loss, save=False, **options)
    for name, value in kept.items():
        np.testing.assert_array_equal(value, again[name], err_msg=name)


def test_graphs_make_no_difference(case):
    row, tensors, loss, options = case
    in_graph = tf.function(lambda t: gradients(row, t, loss, save=True, **options))
    by_graph = tf.function(
        lambda t: tf.gradients(
            loss(row.call(t, save=False, **options)),
            list(t.values()),
            unconnected_gradients="zero",
        )
    )
    eager = gradients(row, tensors, loss, **options)
    one, other = in_graph(tensors), dict(zip(tensors, by_graph(tensors), strict=True))
    for name, value in eager.items():
        np.testing.assert_allclose(one[name], value, rtol=1e-11, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(other[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


def test_runs_repeat_to_the_bit(case):
    row, tensors, loss, options = case

    def run():
        found = gradients(row, tensors, loss, **options)
        return [*row.call(tensors, **options), *found.values()]

    first = run()
    for _ in range(3):
        for a, b in zip(first, run(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("save", [False, True])
def test_one_output_alone(row, rng, save):
    """Gradients of unused outputs count as zero."""
    tensors = row.inputs(rng)
    names = ["y", *row.spec.states][: len(row.call(tensors))]

    def run(weights):
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            outputs = row.call(tensors, save=save)
            terms = [
                w * tf.reduce_sum(v**2)
                for w, v in zip(weights, outputs, strict=True)
                if w is not None
            ]
            loss = tf.add_n(terms)
        return tape.gradient(loss, tensors, unconnected_gradients="zero")

    for only in names:
        if only == "m":
            continue
        alone = run([1.0 if name == only else None for name in names])
        beside_zeros = run([1.0 if name == only else 0.0 for name in names])
        for name, value in alone.items():
            np.testing.assert_array_equal(value, beside_zeros[name], err_msg=name)
        assert any(np.abs(value).max() > 0 for value in alone.values())


def test_raw_gradient_takes_empty_for_zero(row, rng):
    spec = row.spec
    nothing = {"mask": tf.zeros([0], tf.bool), "seed": tf.zeros([0], tf.int64)}
    tensors = {**row.inputs(rng), **nothing}
    attrs = {"reverse": [False, True]}
    forward = [tensors[name] for name in spec.forward_inputs]
    outputs = dict(zip(spec.forward_outputs, row.raw(forward, save=True, **attrs), strict=True))
    reserve = {name: outputs[name] for name in spec.reserve}
    full = {f"d{name}": tf.zeros_like(outputs[name]) for name in ("y", *spec.states)}
    empty = dict.fromkeys(full, tf.zeros([0], tf.float64))
    for used in full:
        before = [value.numpy() for value in (*reserve.values(), *tensors.values())]
        found = []
        for others in (empty, full):
            given = {**tensors, **reserve, **others, used: tf.ones_like(full[used])}
            arguments = [given[name] for name in spec.backward_inputs]
            found.append(row.raw(arguments, backward=True, **attrs))
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)
        # Nothing took memory that is in use.
        for a, b in zip(before, (*reserve.values(), *tensors.values()), strict=True):
            np.testing.assert_array_equal(a, b)


def test_masked_values_never_matter(row, rng):
    tensors = row.inputs(rng)
    mask = rng.random([3, 5]) < 0.5
    spoiled = {
        name: tf.where(mask.reshape([3, 5] + [1] * (len(dims) - 2)), tensors[name], float("nan"))
        for name, dims in row.spec.forward_inputs.items()
        if dims.startswith("NTK")
    }
    weigh = row.loss(rng, row.call(tensors))

    def run(given, **options):
        options = {"mask": mask, "reverse": [False, True], **options}
        return row.call(given, **options), gradients(row, given, weigh, **options)

    for options in ({}, {"zero_output_for_mask": True}, {"zoneout": 0.5}):
        outputs, found = run(tensors, **options)
        outputs_then, found_then = run({**tensors, **spoiled}, **options)
        for a, b in zip(outputs, outputs_then, strict=True):
            np.testing.assert_array_equal(a, b)
        for name, value in found.items():
            np.testing.assert_array_equal(value, found_then[name], err_msg=name)
        for name in spoiled:
            np.testing.assert_array_equal(found[name].numpy()[~mask], 0.0)


def test_live_nan_reaches_what_depends_on_it(row, rng):
    tensors = row.inputs(rng, lanes=1)
    name = next(iter(row.spec.forward_inputs))
    spoiled = tensors[name].numpy()
    spoiled[1, 2] = np.nan
    y = row.call({**tensors, name: tf.constant(spoiled)})[0].numpy()
    assert np.isnan(y[1, 2:]).all()
    assert np.isfinite(y[[0, 2]]).all()
    assert np.isfinite(y[1, :2]).all()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 2])
def test_dtypes_agree_with_float64(row, rng, dtype, lanes):
    rough = {name: tf.cast(x, dtype) for name, x in row.inputs(rng, 8, 40, lanes, 12).items()}
    exact = {name: tf.cast(x, tf.float64) for name, x in rough.items()}

    def loss(outputs):
        # y and the last h: c and n of sLSTM are as large as they like.
        return tf.add_n([tf.reduce_sum(tf.cast(v, tf.float64)) for v in outputs[:2]])

    # The slope of a ReLU jumps at 0, and rounding h moves sums across it.
    options = {"activation": "tanh"} if row.takes("activation") else {}
    reference = gradients(row, exact, loss, **options)
    found = gradients(row, rough, loss, **options)
    tolerance = {tf.float16: 1e-2, tf.bfloat16: 8e-2, tf.float32: 4e-6}[dtype]
    if row.spec.name == "slstm" and dtype == tf.float32:
        tolerance = 2e-5  # its exponents grow to tens: over 25 seeds 6e-6 at worst, 1e-6 median
    for name, value in found.items():
        assert value.dtype == dtype
        error = np.abs(tf.cast(value, tf.float64) - reference[name]).max()
        assert error <= tolerance * np.abs(reference[name]).max(), name


def test_kernel_gradient_is_not_computed_if_unused(rng):
    """The tape tells which gradients are used. The matrix product is half of a training step."""
    tensors = LSTM.inputs(rng)
    with tf.GradientTape() as tape:
        tape.watch(tensors["wx"])
        y = ops.lstm(tensors["wx"], tensors["recurrent_kernel"], save=True)[0]
    calls = []
    real = tf.matmul
    try:
        tf.matmul = lambda *args, **options: calls.append(args) or real(*args, **options)
        tape.gradient(y, tensors["wx"])
    finally:
        tf.matmul = real
    assert not calls


def test_layer_norm_takes_no_memory_in_use(rng):
    x, gamma, dy = (tf.constant(rng.normal(size=shape)) for shape in ([4, 2, 6], [2, 6], [4, 2, 6]))
    before = x.numpy(), dy.numpy()
    module = library.load()
    module.haste_layer_norm(x, gamma, tf.zeros([0], tf.float64))
    module.haste_layer_norm_grad(x, gamma, dy)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(dy, before[1])
