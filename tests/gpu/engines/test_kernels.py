"""The matrix cells of the CUDA engine through the C ABI, against a float64 reference.

Needs libhaste.so, torch and a GPU, and no TensorFlow. HASTE_TEST_DEVICE=CPU:0 runs the same on the
CPU engine, to try the tests themselves.
"""

import pytest
from needs import need_module

torch = need_module("torch")

import cell_reference  # noqa: E402
import lib_ctypes  # noqa: E402
from kernel_problem import (  # noqa: E402
    CELLS,
    DTYPES,
    LIB,
    NAN,
    ON,
    Problem,
    assert_near,
    assert_same_bits,
    check_absent_tensors_are_zeros,
    check_halves,
    check_nan_stays_in_its_row,
    make_mask,
    there,
    unset,
    zoneouts,
)

each_cell = pytest.mark.parametrize("cell", CELLS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

SIZES = [
    (1, 1, 1, 1),
    (1, 6, 1, 3),
    (2, 5, 2, 16),
    (5, 7, 2, 65),
    (17, 6, 1, 130),
    (16, 4, 3, 64),
    (70, 3, 1, 200),
    (3, 40, 5, 8),
]


def test_device_is_usable():
    if ON == "cuda":
        LIB.cuda_status()


@each_cell
def test_the_library_describes_the_cell(cell):
    info, spec = LIB.cell(cell), cell_reference.CELLS[cell]
    assert info.gates == spec.gates
    assert tuple(info.state_names[s].decode() for s in range(info.states)) == spec.states
    assert info.extras == int(spec.recurrent_bias)


@each_dtype
@pytest.mark.parametrize("size", SIZES, ids=str)
@each_cell
def test_sizes(cell, size, dtype):
    reverse = [lane % 2 for lane in range(size[2])]
    Problem(cell, *size, dtype=dtype, reverse=reverse).check()


@pytest.mark.parametrize("size", [(16, 3, 1, 768), (128, 2, 1, 256), (1, 3, 1, 512)], ids=str)
@each_cell
def test_large_sizes(cell, size):
    Problem(cell, *size).check()


@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "holes", "none live", "all live"])
@pytest.mark.parametrize("size", [(5, 9, 2, 33), (9, 40, 2, 130)], ids=str)
@each_cell
def test_masks(cell, size, pattern, zero_output):
    mask = make_mask(pattern, *size[:2])
    options = {"reverse": [0, 1], "zero_output_for_mask": zero_output}
    Problem(cell, *size, mask=mask, **options).check()


@each_cell
def test_mask_that_hides_nothing_changes_no_bit(cell):
    size = (5, 9, 2, 33)
    with_mask = Problem(cell, *size, mask=make_mask("all live", 5, 9), reverse=[0, 1]).run()
    assert_same_bits(with_mask, Problem(cell, *size, reverse=[0, 1]).run())


@each_dtype
@pytest.mark.parametrize("pattern", [None, "holes"])
@pytest.mark.parametrize("size", [(6, 8, 2, 37), (9, 5, 2, 130)], ids=str)
@each_cell
def test_regularised_training(cell, size, pattern, dtype):
    mask = None if pattern is None else make_mask(pattern, *size[:2])
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    Problem(cell, *size, dtype=dtype, mask=mask, reverse=[1, 0], **options).check()


@pytest.mark.parametrize("training", [0, 1])
@each_cell
def test_zoneout(cell, training):
    rates = zoneouts(cell)
    alone = [[r if i == s else 0.0 for i, r in enumerate(rates)] for s in range(len(rates))]
    for zoneout in (*alone, [1.0] * len(rates)):
        Problem(cell, 4, 7, 1, 24, zoneout=zoneout, training=training).check()


@each_cell
def test_inference_does_not_drop(cell):
    dropped = Problem(cell, 4, 7, 1, 24, recurrent_dropout=0.5, training=0).run()
    assert_same_bits(dropped, Problem(cell, 4, 7, 1, 24).run())


def pairs(cell):
    """Activations of the candidate and of the gates that a cell may have."""
    names = [name for name in lib_ctypes.ACTIVATIONS if name != "exponential"]
    gates = ["exponential", "sigmoid"] if LIB.cell(cell).exponential else names
    return [(candidate, gate) for candidate in names for gate in gates]


@pytest.mark.parametrize(
    ("cell", "activation", "recurrent"), [(c, *p) for c in CELLS for p in pairs(c)]
)
def test_activations(cell, activation, recurrent):
    options = {"activation": activation, "recurrent_activation": recurrent}
    Problem(cell, 4, 3, 1, 12, dtype=torch.float64, **options).check()


@each_dtype
@pytest.mark.parametrize("size", [(16, 6, 2, 96), (5, 9, 1, 33)], ids=str)
@each_cell
def test_aliases_change_no_bit(cell, size, dtype):
    problem = Problem(cell, *size, dtype=dtype, reverse=[0, 1][: size[2]])
    assert_same_bits(problem.run(alias=True), problem.run())


@pytest.mark.parametrize("size", [(5, 9, 2, 33), (9, 6, 2, 200)], ids=str)
@each_cell
def test_aliases_with_masks(cell, size):
    mask = make_mask("holes", *size[:2])
    Problem(cell, *size, mask=mask, reverse=[0, 1]).check(alias=True)


@pytest.mark.parametrize("size", [(16, 20, 1, 384), (128, 9, 2, 64)], ids=str)
@each_cell
def test_same_bits_every_time(cell, size):
    problem = Problem(cell, *size, zoneout=zoneouts(cell), training=1)
    first = problem.run()
    for _ in range(5):
        assert_same_bits(problem.run(), first)


@each_cell
def test_absent_tensors_are_zeros(cell):
    check_absent_tensors_are_zeros(Problem(cell, 5, 6, 1, 40, initial=False))


@each_cell
def test_nan_stays_in_its_row(cell):
    check_nan_stays_in_its_row(Problem(cell, 5, 6, 1, 40))


@each_dtype
@pytest.mark.parametrize("forget", ["exponential", "sigmoid"])
def test_exponential_gates_of_any_size(dtype, forget):
    """sLSTM with pre-activations of some hundreds: finite, and right."""
    problem = Problem("slstm", 5, 12, 2, 40, dtype=dtype, recurrent_activation=forget)
    problem.wx *= 100
    ours, reference = problem.run(), problem.reference()
    for name in ("y", "h", "c", "n", "m"):
        assert_near(ours[name], reference[name], dtype, name)
    for name in problem.names:
        assert ours[name].isfinite().all(), name


@each_cell
def test_three_million_steps(cell):
    """One unit over 3 million steps ends where two walks of half the length end, bit for bit."""
    t = 3_000_000
    spec, generator = cell_reference.CELLS[cell], torch.Generator().manual_seed(0)
    wx = torch.randn(1, t, 1, spec.gates, 1, generator=generator).to(ON)
    kernel = torch.randn(1, 1, spec.gates, 1, generator=generator).to(ON)
    extra = [torch.randn(1, spec.gates, 1, generator=generator).to(ON)]
    extra = extra[: LIB.cell(cell).extras]
    check_halves(cell, wx, kernel, extra)


def gemm_operands(shape, dtype, transposed):
    """a [m, k] and b [k, n], each perhaps transposed in memory, and a bias [n]."""
    m, n, k = shape
    a = torch.randn(*((k, m) if transposed[0] else (m, k)), device=ON).to(dtype)
    b = torch.randn(*((n, k) if transposed[1] else (k, n)), device=ON).to(dtype)
    bias = torch.randn(n, device=ON).to(dtype)
    return a.T if transposed[0] else a, b.T if transposed[1] else b, bias


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 65, 17), (130, 200, 33), (1000, 1500, 40), (64, 50, 20000)],  # deep: dR's
    ids=str,
)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_gemm(shape, dtype, transposed):
    m, n, _ = shape
    a, b, bias = gemm_operands(shape, dtype, transposed)
    for plus in (None, bias):
        c = torch.full((m, n), NAN, device=ON, dtype=dtype)
        LIB.gemm(a, b, c, plus)
        expected = a.double() @ b.double() + (0 if plus is None else plus.double())
        assert_near(c, expected.cpu(), dtype, "c")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(1451, 1450, 1450), (1447, 1456, 1451), (1448, 1448, 1501)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_large_gemm_of_sizes_that_are_not_aligned(shape, dtype, transposed):
    """Through padded copies; what lies beside c stays."""
    m, n, _ = shape
    a, b, bias = gemm_operands(shape, dtype, transposed)
    tf32 = dtype == torch.float32
    # Where k counts rows of both operands, it may be anything.
    aligned = transposed == (True, False) and m % 8 == n % 8 == 0
    assert (LIB.gemm_workspace(a, b, allow_tf32=tf32) > 0) != aligned
    for plus in (None, bias):
        c = torch.full((m, n + 3), NAN, device=ON, dtype=dtype)
        LIB.gemm(a, b, c[:, :n], plus, allow_tf32=tf32)
        expected = a.double() @ b.double() + (0 if plus is None else plus.double())
        # Rounded to eleven bits, products of TensorFloat-32 are as exact as those of float16.
        near = torch.float16 if tf32 else dtype
        assert_near(c[:, :n].to(near), expected.cpu(), near, "c")
        assert c[:, n:].isnan().all()


def test_gemm_of_strided_views():
    a = torch.randn(40, 3, 50, device=ON)[:, 1]
    b = torch.randn(50, 2, 70, device=ON)[:, 1]
    c = torch.full((40, 90), NAN, device=ON)
    LIB.gemm(a, b, c[:, :70])
    assert_near(c[:, :70], (a.double() @ b.double()).cpu(), torch.float32, "c")
    assert c[:, 70:].isnan().all()


@each_dtype
@each_cell
def test_layer(cell, dtype):
    """x·W + b, the recurrence, and all gradients, through haste_layer_*."""
    n, t, k, h, features = 6, 7, 2, 20, 13
    problem = Problem(cell, n, t, k, h, dtype=dtype, initial=False, reverse=[0, 1])
    generator = torch.Generator().manual_seed(3)
    shape = (k, problem.spec.gates, h)
    x = torch.randn(n, t, features, generator=generator).to(dtype)
    kernel = (torch.randn(features, *shape, generator=generator) * features**-0.5).to(dtype)
    bias = torch.randn(*shape, generator=generator).to(dtype)
    inputs = (x, kernel, bias, problem.kernel, *problem.extra)
    wide = [v.double().requires_grad_() for v in inputs]
    wx = torch.einsum("ntc,ckgj->ntkgj", wide[0], wide[1]) + wide[2]
    zeros = [torch.zeros(n, k, h, dtype=torch.float64) for _ in problem.spec.states]
    y, _ = cell_reference.run(cell, wx, wide[3], zeros, *wide[4:], reverse=[0, 1])
    expected = torch.autograd.grad((y * problem.dy.double()).sum(), wide)

    x, kernel, bias, recurrent, *extra = there(inputs)
    ours, config = unset(problem.dy), problem.config()
    gates, saved = problem.reserve()
    kept = {"gates": gates, "saved": saved, "extra": extra}
    scratch = LIB.layer_workspace(config, features, wx=gates)
    LIB.layer_forward(
        config, x, kernel, bias, recurrent, wx=gates, y=ours, workspace=scratch, **kept
    )
    assert_near(ours, y.detach(), dtype, "y")
    names = ("dx", "dW", "db", "dR")
    weights = dict(zip(names, map(unset, (x, kernel, bias, recurrent)), strict=True))
    kept |= {"dy": problem.dy.to(ON), **problem.gradients(gates)}
    scratch = LIB.layer_workspace(config, features, backward=True)
    LIB.layer_backward(config, x, kernel, recurrent, gradients=weights, workspace=scratch, **kept)
    names += tuple(f"d{name}" for name in problem.parameters)
    results = (*weights.values(), *kept["dextra"])
    for name, got, want in zip(names, results, expected, strict=True):
        assert_near(got, want, dtype, name)
