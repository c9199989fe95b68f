"""Products of matrices, and where layers use them."""

import pytest
import tensorflow as tf

import haste_keras
from haste_keras.native import library
from haste_keras.ops import matmul

# a, b and their product, of sizes by letter; how tf.matmul says it.
FORMS = {
    "plain": ("RC", "CW", {}),
    "transpose_a": ("RC", "RW", {"transpose_a": True}),
    "transpose_b": ("RW", "CW", {"transpose_b": True}),
}
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


@pytest.fixture(params=FORMS)
def form(request):
    """The op, the letters of its inputs, and the arguments of tf.matmul."""
    a, b, transpose = FORMS[request.param]
    key = (transpose.get("transpose_a", False), transpose.get("transpose_b", False))
    return matmul.OPS[key], (a, b), transpose


def matrices(rng, letters, sizes, dtype="float32"):
    shapes = [[sizes[letter] for letter in each] for each in letters]
    return [tf.constant(rng.standard_normal(shape), dtype) for shape in shapes]


def largest(difference):
    return float(tf.reduce_max(tf.abs(difference)))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 3), (70, 33, 130)], ids=str)
def test_product_and_gradients(rng, form, sizes, dtype):
    product, letters, transpose = form
    sizes = dict(zip("RCW", sizes, strict=True))
    inputs = matrices(rng, letters, sizes, dtype)
    wide = [tf.cast(v, tf.float64) for v in inputs]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([inputs, wide])
        got, want = product(*inputs), tf.matmul(*wide, **transpose)
    scale = max(sizes.values()) ** 0.5
    assert got.dtype == dtype
    assert largest(tf.cast(got, tf.float64) - want) <= TOLERANCES[dtype] * scale * 4
    d = tf.constant(rng.standard_normal(want.shape))
    ours = tape.gradient(got, inputs, tf.cast(d, dtype))
    for g, w in zip(ours, tape.gradient(want, wide, d), strict=True):
        assert largest(tf.cast(g, tf.float64) - w) <= TOLERANCES[dtype] * scale * 4


def test_second_order(rng, form):
    product, letters, transpose = form
    a, b = matrices(rng, letters, {"R": 3, "C": 4, "W": 5}, "float64")

    def gradients(multiply):
        with tf.GradientTape() as outer:
            outer.watch([a, b])
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                loss = tf.reduce_sum(multiply(a, b) ** 3)
            first = tape.gradient(loss, [a, b])
            total = sum(tf.reduce_sum(tf.sin(g)) for g in first)
        return first + outer.gradient(total, [a, b])

    ours = gradients(product)
    theirs = gradients(lambda a, b: tf.matmul(a, b, **transpose))
    for got, want in zip(ours, theirs, strict=True):
        tf.debugging.assert_near(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("empty", "RCW")
def test_empty(rng, form, empty):
    product, letters, transpose = form
    inputs = matrices(rng, letters, {"R": 3, "C": 4, "W": 5} | {empty: 0})
    got, want = product(*inputs), tf.matmul(*inputs, **transpose)
    assert got.shape == want.shape
    assert not tf.size(want) or largest(got - want) == 0


def test_shapes_that_do_not_fit(form):
    product, letters, _ = form
    shapes = [[{"R": 2, "C": 3, "W": 4}[letter] for letter in each] for each in letters]
    shapes[1] = [size + 1 for size in shapes[1]]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="b"):
        product(*[tf.zeros(shape) for shape in shapes])


@pytest.mark.parametrize("stacked", [(True, True), (True, False), (False, True)])
def test_vectorized(rng, form, stacked):
    product, letters, _ = form
    inputs = matrices(rng, letters, {"R": 3, "C": 4, "W": 5}, "float64")
    many = [
        tf.stack([v, 2 * v, -v]) if loops else v for v, loops in zip(inputs, stacked, strict=True)
    ]
    loops = [v for v, loop in zip(many, stacked, strict=True) if loop]

    def one(each):
        each = iter(each)
        return product(*[next(each) if loop else v for v, loop in zip(many, stacked, strict=True)])

    got = tf.vectorized_map(one, loops, fallback_to_while_loop=False)
    for i, row in enumerate(got):
        tf.debugging.assert_near(row, one([v[i] for v in loops]))


@pytest.fixture
def exact_on_a_gpu(monkeypatch, true_float32):
    """As on a machine with a GPU where float32 must be exact."""
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [f"/device:{kind}:0"])
    monkeypatch.setattr(library, "gpu_kernels", lambda: (True, ""))


LAYERS = [
    (haste_keras.LSTM, {}),
    (haste_keras.GRU, {"reset_after": False}),
    (haste_keras.LSTM, {"direction": "bidirectional"}),
    (haste_keras.LayerNormLSTM, {}),
    (haste_keras.QRNN, {"window": 2}),
]


def run(layer, x):
    """Outputs and all gradients, and the types of the ops of the graph."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y + y**2)
        return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]

    types = {op.type for op in step.get_concrete_function(x).graph.get_operations()}
    return step(x), types


@pytest.mark.parametrize(("make", "options"), LAYERS)
def test_layers_use_them(rng, exact_on_a_gpu, make, options):
    """Or the op of the layer, if it computes all products."""
    tf.keras.utils.set_random_seed(3)
    layer = make(9, return_sequences=True, **options)
    x = tf.constant(rng.standard_normal([4, 6, 5]), tf.float32)
    got, types = run(layer, x)
    assert "MatMul" not in types
    products = {"HasteMatMul", "HasteMatMulTransposeA", "HasteMatMulTransposeB"}
    in_one = make in (haste_keras.LSTM, haste_keras.GRU)
    assert any(name.endswith("LayerGrad") for name in types) == in_one
    assert products & types == (set() if in_one else products)
    tf.config.experimental.enable_tensor_float_32_execution(True)
    want, types = run(layer, x)
    assert not any(name.startswith("HasteMatMul") for name in types)
    for a, b in zip(got, want, strict=True):
        tf.debugging.assert_near(a, b, rtol=1e-4, atol=1e-4)


def test_not_where_there_are_no_gpu_kernels(rng, exact_on_a_gpu, monkeypatch):
    monkeypatch.setattr(library, "gpu_kernels", lambda: (False, "none"))
    monkeypatch.setattr(library, "multiplies_in_training", lambda: False)
    _, types = run(haste_keras.LSTM(5), tf.constant(rng.standard_normal([2, 3, 4]), tf.float32))
    assert "MatMul" in types


@pytest.mark.parametrize("wanted", [0, 1])
def test_unused_gradients_are_not_computed(rng, form, wanted, monkeypatch):
    product, letters, _ = form
    inputs = matrices(rng, letters, {"R": 3, "C": 4, "W": 5})
    calls = []
    for name in ("_plain", "_transpose_a", "_transpose_b"):
        function = getattr(matmul, name)
        monkeypatch.setattr(matmul, name, lambda *a, f=function: calls.append(1) or f(*a))
    with tf.GradientTape() as tape:
        tape.watch(inputs[wanted])
        y = product(*inputs)
    assert tape.gradient(y, inputs[wanted]).shape == inputs[wanted].shape
    assert len(calls) == 1


def test_other_dtypes_are_tensorflows(rng, exact_on_a_gpu):
    for dtype in ("mixed_bfloat16", "float64"):
        layer = haste_keras.LayerNormLSTM(5, dtype=dtype)
        _, types = run(layer, tf.constant(rng.standard_normal([2, 3, 4]), tf.float32))
        assert not any(name.startswith("HasteMatMul") for name in types)


def test_saved_model(rng, exact_on_a_gpu, tmp_path):
    """A model exported on a machine with a GPU runs and trains without one."""
    model = tf.keras.Sequential([tf.keras.Input([None, 4]), haste_keras.LayerNormLSTM(5)])
    x = tf.constant(rng.standard_normal([2, 3, 4]), tf.float32)
    module = tf.Module()
    module.weights = [v.value for v in model.trainable_variables]
    module.run = tf.function(model, input_signature=[tf.TensorSpec([None, None, 4])])
    tf.saved_model.save(module, str(tmp_path))
    tf.config.experimental.enable_tensor_float_32_execution(True)
    loaded = tf.saved_model.load(str(tmp_path))
    assert b"HasteMatMul" in (tmp_path / "saved_model.pb").read_bytes()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.run(x)
    tf.debugging.assert_near(y, model(x), atol=1e-5)
    for gradient in tape.gradient(y, [x, *loaded.weights]):
        assert largest(gradient) > 0
