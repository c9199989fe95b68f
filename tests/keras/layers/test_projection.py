"""Which layers leave x·W + b to the op.

On a CPU in inference, in 32 bits or more, and of cells with a matrix in bfloat16 and int8; in
training of cells with a matrix in 32 bits or more, where the op's products are faster. On a machine
with a GPU always, unless x·W is transformed.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from rows import ROWS

from haste_keras.native import library


def normalizes(row):
    """Whether the layer makes more of x·W than to add a bias."""
    return row.name.startswith("LayerNorm") or row.options.get("normalization") is not None


# The convolution of a QRNN of more than one step is not the op's.
ONE_STEP = [row for row in ROWS if row.options.get("window", 1) == 1]
PLAIN = [row for row in ONE_STEP if not normalizes(row)]
NORMALIZED = {row.name: row.layer for row in ONE_STEP if normalizes(row)}


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """Wherever this runs, if a test does not say otherwise."""
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    monkeypatch.setattr(library, "multiplies_in_training", lambda: False)


def ops_of(layer, training=False, features=3):
    """Types of the fused ops in a call's graph, and whether there is a MatMul."""
    call = tf.function(lambda x: layer(x, training=training), autograph=False)
    graph = call.get_concrete_function(tf.TensorSpec([None, None, features])).graph
    types = {op.type for op in graph.get_operations()}
    return {name for name in types if name.startswith("Haste")}, "MatMul" in types


@pytest.fixture(params=PLAIN, ids=lambda row: row.name)
def row(request):
    """Each layer that can."""
    return request.param


@pytest.fixture
def make(row):
    """Its constructor."""
    return row.layer


@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}, {"use_bias": False}])
def test_in_inference(make, options):
    (op,), multiplies = ops_of(make(4, **options))
    assert op.endswith("Layer")
    assert not multiplies


def test_not_in_training(make):
    (op,), multiplies = ops_of(make(4), training=True)
    assert not op.endswith("Layer")
    assert multiplies


@pytest.fixture
def on_a_cpu_that_multiplies(monkeypatch):
    monkeypatch.setattr(library, "multiplies_in_training", lambda: True)


def projects_in_training(row, dtype, features=3):
    return row.recurrence == "dense" and dtype in ("float32", "float64") and features <= 512


@pytest.mark.spread(4)
@pytest.mark.usefixtures("on_a_cpu_that_multiplies")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("features", [3, 513])
def test_in_training_where_the_op_multiplies_faster(row, make, dtype, features):
    (op,), multiplies = ops_of(make(4, dtype=dtype), True, features)
    projects = projects_in_training(row, dtype, features)
    assert op.endswith("Layer") == projects
    assert multiplies != projects


@pytest.mark.spread(4)
@pytest.mark.usefixtures("on_a_cpu_that_multiplies")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("options", [{}, {"direction": "bidirectional"}])
def test_gradients_where_the_op_multiplies_faster(row, make, dtype, options):
    """One op has all of them."""
    layer = make(4, dtype=dtype, **options)
    layer.build((None, None, 3))

    @tf.function(autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(layer(x, training=True))
        return tape.gradient(y, [x, *layer.trainable_variables])

    graph = gradients.get_concrete_function(tf.TensorSpec([None, None, 3])).graph
    types = {op.type for op in graph.get_operations()}
    projects = projects_in_training(row, dtype)
    assert any(name.endswith("LayerGrad") for name in types) == projects
    assert ("MatMul" in types) != projects


def test_not_of_many_features(make):
    (op,), multiplies = ops_of(make(4), features=513)
    assert not op.endswith("Layer")
    assert multiplies


def test_not_in_float16(make):
    (op,), multiplies = ops_of(make(4, dtype="float16"))
    assert not op.endswith("Layer")
    assert multiplies


@pytest.mark.parametrize("features", [3, 513])
def test_with_a_matrix_in_bfloat16(row, make, features):
    layer = make(4, dtype="mixed_bfloat16")
    (op,), multiplies = ops_of(layer, features=features)
    assert op.endswith("Layer") == (layer.cell.spec.recurrence == "dense")
    assert multiplies != op.endswith("Layer")


def test_with_a_matrix_in_int8(make):
    layer = make(4)
    layer.build((None, None, 3))
    layer.quantize("int8")
    found, multiplies = ops_of(layer)
    matrix = layer.cell.spec.recurrence == "dense"
    assert any(op.endswith("LayerInt8") for op in found) == matrix
    assert ("HasteMatMulInt8" in found) != matrix
    assert not multiplies


@pytest.fixture
def beside_a_gpu(monkeypatch):
    monkeypatch.setattr(library, "gpu_kernels", lambda: (True, ""))
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [f"/device:{kind}:0"])


@pytest.mark.spread(4)
@pytest.mark.usefixtures("beside_a_gpu")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("features", [3, 513])
def test_always_beside_a_gpu(make, training, dtype, features):
    (op,), multiplies = ops_of(make(4, dtype=dtype), training, features)
    assert op.endswith("Layer")
    assert not multiplies


@pytest.mark.usefixtures("beside_a_gpu")
def test_not_without_gpu_kernels(make, monkeypatch):
    """The op is then where it is on a machine without a GPU."""
    monkeypatch.setattr(library, "gpu_kernels", lambda: (False, "none"))
    (op,), multiplies = ops_of(make(4), training=True)
    assert not op.endswith("Layer")
    assert multiplies


@pytest.mark.usefixtures("beside_a_gpu")
@pytest.mark.parametrize("exact", [False, True], ids=["tf32", "exact"])
@pytest.mark.parametrize("make_normalized", NORMALIZED.values(), ids=NORMALIZED)
def test_what_is_normalised_beside_a_gpu(make_normalized, exact, monkeypatch):
    """There TensorFlow multiplies, or where float32 is to be exact our own op."""
    monkeypatch.setattr(
        tf.config.experimental, "tensor_float_32_execution_enabled", lambda: not exact
    )
    found, multiplies = ops_of(make_normalized(4))
    assert not any(op.endswith("Layer") for op in found)
    assert ("HasteMatMul" in found) == exact
    assert multiplies != exact


@pytest.mark.parametrize("make_normalized", NORMALIZED.values(), ids=NORMALIZED)
def test_not_what_is_normalised(make_normalized):
    found, multiplies = ops_of(make_normalized(4))
    assert not [op for op in found if op.endswith("Layer")]
    assert multiplies


def test_same_in_inference_and_training(make):
    """Without dropout a call's `training` decides on the way, and on no more than rounding."""
    layer = make(9, return_sequences=True, direction="bidirectional")
    x = tf.random.stateless_normal([5, 30, 3], [1, 2])
    mask = tf.random.stateless_uniform([5, 30], [3, 4]) < 0.7

    def run(training):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, mask=mask, training=training)
            loss = tf.reduce_sum(y**2)
        return [y, *tape.gradient(loss, [x, *layer.trainable_weights])]

    for a, b in zip(run(False), run(True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


OPTIONS = {
    "plain": {},
    "bidirectional": {"direction": "bidirectional", "dropout": 0.2},
    "backward": {"direction": "backward", "use_bias": False, "zoneout": 0.1},
}


@pytest.fixture(params=["may_use_gpu", "multiplies_in_training"])
def where(request):
    """What decides whether ops project and multiply in training."""
    return request.param


@pytest.fixture(params=OPTIONS)
def both_ways(request, make, where, monkeypatch):
    """run(use): [use(model, x)] where ops multiply and not, of a masked model of two layers."""
    x = np.random.default_rng(5).normal(size=[12, 7, 3])
    x[::2, 4:] = 0.0  # masked
    options = {"dtype": "float64", **OPTIONS[request.param]}

    def run(use):
        found = []
        for multiplies in (True, False):
            monkeypatch.setattr(library, where, lambda multiplies=multiplies: multiplies)
            keras.utils.set_random_seed(3)
            masking = keras.layers.Masking(dtype="float64")
            layers = [make(6, return_sequences=True, **options), make(5, **options)]
            found.append(use(keras.Sequential([masking, *layers]), x))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)

    return run


def test_gradients_are_the_same(both_ways):
    """The op that projects, and its gradient, on the CPU that is here."""

    def gradients(model, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(model(x, training=True)))
        return tape.gradient(loss, model.trainable_variables)

    both_ways(gradients)


@pytest.mark.spread(3)
def test_trains_the_same(both_ways):
    def trained(model, x):
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(x, np.ones([12, model.layers[-1].output_size]), 4, 2, verbose=0)
        return model.get_weights()

    both_ways(trained)
