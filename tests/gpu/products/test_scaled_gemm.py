"""Large products of exact floats, made of scaled float16 parts (lib/cuda/gemm/split_fp16.cu.cc)."""

import pytest
from needs import need, need_module

torch = need_module("torch")

from kernel_problem import LIB, NAN, ON  # noqa: E402

need(ON == "cuda", "GPU")
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("products of parts are for compute capability 9.0", allow_module_level=True)

# As a share of |a|·|b|: the products of terms that are left out, and what tensor cores cut off in a
# sum of 1,024 products.
BOUND = 2.0**-20

# Odd sizes; chunks of rows, of columns, and of the depth; tiles whose depth is shared
# out; the first case of the benchmarks.
SHAPES = [
    (4001, 2031, 1777),
    (2031, 4001, 1777),
    (40000, 1027, 769),
    (1027, 40000, 769),
    (1029, 2051, 20001),
    (2048, 8192, 5000),
    (16384, 3072, 768),
    (16384, 768, 3072),
    (768, 3072, 16384),
    (515, 6145, 3201),
    (8939, 300, 3883),
    (8904, 767, 4957),
    (21941, 21614, 1903),
    (4096, 2048, 1024),
    (9001, 9000, 5000),
    (5001, 2301, 1027),
]


def operands(m, n, k, transposed, seed):
    print("seed", seed)
    generator = torch.Generator(ON).manual_seed(seed)
    a = torch.randn(*((k, m) if transposed[0] else (m, k)), device=ON, generator=generator)
    b = torch.randn(*((n, k) if transposed[1] else (k, n)), device=ON, generator=generator)
    return (a.T if transposed[0] else a), (b.T if transposed[1] else b)


def check(c, a, b, plus=0.0):
    """Some rows of c against float64, element by element."""
    rows = torch.linspace(0, a.shape[0] - 1, 97, device=ON).long()
    few, wide = a[rows].double(), b.double()
    difference = (c[rows].double() - few @ wide - plus).abs()
    # The bias is part of the sum that is rounded.
    scale = few.abs() @ wide.abs() + abs(plus)
    worst = (difference / scale).max().item()
    assert worst <= BOUND, worst
    return difference.norm().item() / (few @ wide).norm().item()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_product(shape, transposed):
    m, n, k = shape
    a, b = operands(m, n, k, transposed, seed=m + n + k)
    assert LIB.gemm_workspace(a, b) > 0
    c = torch.full((m, n), NAN, device=ON)
    LIB.gemm(a, b, c)
    off = check(c, a, b)
    assert off <= 2e-6, off  # a loop over the depth in float32: some 3e-6
    again = torch.full((m, n), NAN, device=ON)
    LIB.gemm(a, b, again)
    assert torch.equal(c, again)
    bias = torch.full((n,), 3.0, device=ON)
    LIB.gemm(a, b, c, bias)
    check(c, a, b, plus=3.0)


def test_strided_views():
    """Rows with gaps, at any address; nothing is written beyond c's columns."""
    a, b = operands(6000, 2060, 1700, (False, False), seed=5)
    a, b = a[:, 3:1603], b[50:1650, 1:2050]
    assert LIB.gemm_workspace(a, b) > 0
    c = torch.full((6000, 2061), NAN, device=ON)
    LIB.gemm(a, b, c[:, 1:2050])
    check(c[:, 1:2050], a, b)
    assert c[:, 0].isnan().all()
    assert c[:, 2050:].isnan().all()


def test_lines_of_any_size():
    """Each row of a, and each column of b, has a scale of its own."""
    a, b = operands(4096, 4096, 1024, (False, False), seed=10)
    a *= 2.0 ** torch.arange(-50, 50, device=ON).repeat(41)[:4096, None]
    b *= 2.0 ** torch.arange(40, -60, -1, device=ON).repeat(41)[:4096]
    c = torch.full((4096, 4096), NAN, device=ON)
    LIB.gemm(a, b, c)
    check(c, a, b)


def test_size_of_values():
    """From the largest float down to the smallest scale of a line."""
    a, b = operands(4096, 4096, 1024, (False, False), seed=6)
    largest = torch.finfo(torch.float32).max
    signs = torch.ones(1024, device=ON)
    signs[1::2] = -1
    a[0], b[:, 0] = largest * signs, 1.0  # partial sums within range, and 0 in the end
    a[1] *= 1e-25
    a[2], b[:, 2] = 2.0**-100, 2.0**-20
    a[3] *= 2.0**-112
    a[4] = 0
    c = torch.full((4096, 4096), NAN, device=ON)
    LIB.gemm(a, b, c)
    exact = a.double() @ b.double()
    scale = a.double().abs() @ b.double().abs()
    assert ((c[1:].double() - exact[1:]).abs() <= BOUND * scale[1:]).all()
    assert c[0, 0] == 0
    assert c[2, 2] == 1024 * 2.0**-120


def test_scales_whose_product_is_out_of_range():
    a, b = torch.zeros(2048, 1024, device=ON), torch.zeros(1024, 2048, device=ON)
    a[6, 0], b[0, 6], b[1, 6] = 2.0**-140, 1.2345678 * 2.0**117, 2.0**127
    a[7, 0], b[0, 7] = 1.2345678 * 2.0**127, 2.0**-149
    c = torch.full((2048, 2048), NAN, device=ON)
    assert LIB.gemm_workspace(a, b) > 0
    LIB.gemm(a, b, c)
    exact = a.double() @ b.double()
    for at in ((6, 6), (7, 7)):
        assert (c[at].double() - exact[at]).abs() <= BOUND * exact[at]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_in_its_line(value):
    a, b = operands(4096, 4096, 1024, (False, False), seed=7)
    clean = torch.full((4096, 4096), NAN, device=ON)
    LIB.gemm(a, b, clean)
    a[5, 7] = b[9, 3] = value
    spoiled = torch.full((4096, 4096), NAN, device=ON)
    LIB.gemm(a, b, spoiled)
    assert not spoiled[5].isfinite().any()
    assert not spoiled[:, 3].isfinite().any()
    rows, columns = torch.arange(4096, device=ON) != 5, torch.arange(4096, device=ON) != 3
    assert torch.equal(spoiled[rows][:, columns], clean[rows][:, columns])


def test_other_products_need_no_memory():
    a, b = operands(4096, 4096, 1024, (False, False), seed=8)
    assert 0 < LIB.gemm_workspace(a, b) <= 33 << 20
    assert LIB.gemm_workspace(a, b, allow_tf32=True) == 0
    assert LIB.gemm_workspace(a[:100], b[:, :100]) == 0
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert LIB.gemm_workspace(a.to(dtype), b.to(dtype)) == 0


def test_layer():
    """haste_layer_*, whose products all are of parts, against float64; wx given, and not."""
    n, t, features, h = 16, 512, 512, 768
    generator = torch.Generator(ON).manual_seed(9)
    make = lambda *shape: torch.randn(*shape, device=ON, generator=generator)  # noqa: E731
    x, dy = make(n, t, features), make(n, t, 1, h)
    kernel, recurrent = make(features, 1, 4, h) * features**-0.5, make(1, h, 4, h) * h**-0.5
    bias = make(1, 4, h)
    gates, y = make(n, t, 1, 4, h) * NAN, torch.full_like(dy, NAN)
    saved = [torch.full_like(dy, NAN) for _ in range(2)]
    config = LIB.config("lstm", gates, training=1)
    weights = {
        name: torch.full_like(of, NAN)
        for name, of in {"dx": x, "dW": kernel, "db": bias, "dR": recurrent}.items()
    }
    kept = {"gates": gates, "saved": saved}
    flat, deep = kernel.reshape(features, -1), gates.reshape(n * t, -1)
    for products in ((x.flatten(0, 1), flat), (deep, flat.T), (x.flatten(0, 1).T, deep)):
        assert LIB.gemm_workspace(*products) > 0
    for wx in (None, gates):
        y.fill_(NAN)
        scratch = LIB.layer_workspace(config, features, wx=wx)
        LIB.layer_forward(config, x, kernel, bias, recurrent, wx=wx, y=y, workspace=scratch, **kept)
        assert (scratch[-64:] == 0xFF).all()
    scratch = LIB.layer_workspace(config, features, backward=True)
    LIB.layer_backward(
        config,
        x,
        kernel,
        recurrent,
        gradients=weights,
        workspace=scratch,
        dy=dy,
        dwx=gates,
        **kept,
    )
    layer = torch.nn.LSTM(features, h, batch_first=True, device=ON, dtype=torch.float64)
    order = lambda w: w.double().reshape(-1, 4 * h).T  # noqa: E731  (gates of both: i, f, g, o)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(order(kernel))
        layer.weight_hh_l0.copy_(order(recurrent))
        layer.bias_ih_l0.copy_(bias.double().flatten())
        layer.bias_hh_l0.zero_()
    wide = x.double().requires_grad_()
    expected, _ = layer(wide)
    expected.backward(dy.double().flatten(2))
    for got, want in (
        (y.flatten(2), expected),
        (weights["dx"], wide.grad),
        (weights["dW"].reshape(-1, 4 * h), layer.weight_ih_l0.grad.T),
        (weights["dR"].reshape(-1, 4 * h), layer.weight_hh_l0.grad.T),
        (weights["db"].flatten(), layer.bias_ih_l0.grad),
    ):
        off = (got.double() - want).norm() / want.norm()
        assert off <= 1e-5, off
