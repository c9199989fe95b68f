"""The CUDA engine through the C ABI, against a float64 reference: needs torch and a GPU.

Outputs and workspaces start as NaN, so that an element that is not written, or memory that is
read before it is written, shows. Errors are ‖ours − reference‖ / ‖reference‖.
"""

import pytest
from needs import need, need_module

torch = need_module("torch")
need(torch.cuda.is_available(), "GPU that torch sees")

import lib_ctypes  # noqa: E402
import lstm_reference  # noqa: E402

need(lib_ctypes.library_path(), "libhaste.so: build it first")

LIB = lib_ctypes.Library(lib_ctypes.library_path())
need(LIB.has_cuda(), "CUDA in libhaste.so")

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
DTYPES = list(TOLERANCE)
NAN = float("nan")
SEED = (-81985529216486896, 1311768467463790320)


class Problem:
    """One recurrence with random inputs, run by ours and by the reference on first use."""

    def __init__(self, n, t, k, h, dtype=torch.float32, mask=None, initial=True, **options):
        generator = torch.Generator().manual_seed(n * 1000003 + t * 1009 + k * 101 + h)

        def random(*shape, scale=1.0):
            values = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
            return values.to(dtype)

        self.dtype, self.options, self.mask = dtype, options, mask
        self.wx = random(n, t, k, 4, h)
        self.kernel = random(k, h, 4, h, scale=h**-0.5)
        self.s0 = [random(n, k, h), random(n, k, h)] if initial else [None, None]
        self.dy = random(n, t, k, h)
        self.ds = [random(n, k, h), random(n, k, h)]

    def reference(self):
        """Outputs, final states, and gradients of wx, kernel and initial states."""
        wide = [x.double().requires_grad_() for x in (self.wx, self.kernel)]
        zero = torch.zeros_like(self.ds[0])
        wide += [(zero if s is None else s).double().requires_grad_() for s in self.s0]
        y, h, c = lstm_reference.lstm(*wide, mask=self.mask, seed=SEED, **self.options)
        loss = sum(
            (a * b.double()).sum() for a, b in zip((y, h, c), (self.dy, *self.ds), strict=True)
        )
        dwx, dkernel, dh0, dc0 = torch.autograd.grad(loss, wide)
        names = ("y", "h", "c", "dwx", "dR", "dh0", "dc0")
        return dict(
            zip(names, (y.detach(), h.detach(), c.detach(), dwx, dkernel, dh0, dc0), strict=True)
        )

    def run(self, alias=False, poison_masked=True):
        """The same by libhaste; with `alias`, gates take wx's memory and dwx the gates'."""
        masked = None if self.mask is None else ~self.mask
        wx = self.wx.cuda()
        if masked is not None and poison_masked:
            wx[masked.cuda()] = NAN
        kernel = self.kernel.cuda()
        s0 = [None if s is None else s.cuda() for s in self.s0]
        mask = None if self.mask is None else self.mask.to(torch.uint8).cuda()
        seed = torch.tensor(SEED, dtype=torch.int64, device="cuda")
        config = LIB.config(wx, **self.options)
        y = torch.full_like(self.dy, NAN, device="cuda")
        states = [torch.full_like(y, NAN) for _ in range(2)]
        final = [torch.full_like(d, NAN, device="cuda") for d in self.ds]
        gates = wx if alias else torch.full_like(wx, NAN)
        scratch = LIB.workspace(config, backward=False)
        LIB.forward(
            config,
            wx,
            kernel,
            s0=s0,
            mask=mask,
            seed=seed,
            y=y,
            sT=final,
            gates=gates,
            states=states,
            workspace=scratch,
        )
        entering = states[0].clone()
        if masked is not None and poison_masked:
            for reserve in (gates, *states):
                reserve[masked.cuda()] = NAN
        dwx = gates if alias else torch.full_like(wx, NAN)
        ds0 = [torch.full_like(d, NAN, device="cuda") for d in self.ds]
        LIB.backward(
            config,
            kernel,
            mask=mask,
            seed=seed,
            gates=gates,
            states=states,
            dy=self.dy.cuda(),
            dsT=[d.cuda() for d in self.ds],
            dwx=dwx,
            ds0=ds0,
            workspace=LIB.workspace(config, backward=True),
        )
        torch.cuda.synchronize()
        dkernel = torch.einsum("ntki,ntkgj->kigj", entering.double(), dwx.double())
        if masked is not None:
            assert (dwx[masked.cuda()] == 0).all(), "dwx at masked steps"
        names = ("y", "h", "c", "dwx", "dR", "dh0", "dc0")
        return dict(zip(names, (y, *final, dwx, dkernel, *ds0), strict=True))

    def check(self, **how):
        ours, reference = self.run(**how), self.reference()
        for name, expected in reference.items():
            assert_near(ours[name], expected, self.dtype, name)


def assert_near(ours, expected, dtype, name):
    error = (ours.double().cpu() - expected).norm() / expected.norm().clamp_min(1e-30)
    assert error <= TOLERANCE[dtype], f"{name}: error {error:.2e} in {dtype}"


def make_mask(pattern, n, t):
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(0, t + 1, (n, 1), generator=generator)
    times = torch.arange(t)
    mask = {
        "right": times < lengths,
        "left": times >= lengths,
        "holes": torch.rand(n, t, generator=generator) < 0.6,
        "none live": torch.zeros(n, t, dtype=torch.bool),
        "all live": torch.ones(n, t, dtype=torch.bool),
    }[pattern]
    if pattern == "holes" and n > 2:
        mask[1] = False  # a row that is all masked
        mask[2] = True
    return mask


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
    LIB.cuda_status()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size, dtype):
    reverse = [lane % 2 for lane in range(size[2])]
    Problem(*size, dtype=dtype, reverse=reverse).check()


@pytest.mark.parametrize("size", [(16, 3, 1, 768), (128, 2, 1, 256), (1, 3, 1, 512)], ids=str)
def test_large_sizes(size):
    Problem(*size).check()


@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "holes", "none live", "all live"])
@pytest.mark.parametrize("size", [(5, 9, 2, 33), (9, 40, 2, 130)], ids=str)
def test_masks(size, pattern, zero_output):
    mask = make_mask(pattern, *size[:2])
    options = {"reverse": [0, 1], "zero_output_for_mask": zero_output}
    Problem(*size, mask=mask, **options).check()


def test_mask_that_hides_nothing_changes_no_bit():
    size = (5, 9, 2, 33)
    with_mask = Problem(*size, mask=make_mask("all live", 5, 9), reverse=[0, 1]).run()
    without = Problem(*size, reverse=[0, 1]).run()
    for name, expected in without.items():
        assert torch.equal(with_mask[name], expected), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", [None, "holes"])
def test_regularised_training(dtype, pattern):
    size = (6, 8, 2, 37)
    mask = None if pattern is None else make_mask(pattern, 6, 8)
    options = {"zoneout": (0.3, 0.5), "recurrent_dropout": 0.25, "training": 1, "reverse": [1, 0]}
    Problem(*size, dtype=dtype, mask=mask, **options).check()


@pytest.mark.parametrize("zoneout", [(0.3, 0.0), (0.0, 0.6), (1.0, 1.0)], ids=str)
@pytest.mark.parametrize("training", [0, 1])
def test_zoneout(zoneout, training):
    Problem(4, 7, 1, 24, zoneout=zoneout, training=training).check()


def test_inference_does_not_drop():
    dropped = Problem(4, 7, 1, 24, recurrent_dropout=0.5, training=0).run()
    plain = Problem(4, 7, 1, 24).run()
    assert torch.equal(dropped["y"], plain["y"])


@pytest.mark.parametrize("activation", list(lib_ctypes.ACTIVATIONS))
@pytest.mark.parametrize("recurrent_activation", list(lib_ctypes.ACTIVATIONS))
def test_activations(activation, recurrent_activation):
    options = {"activation": activation, "recurrent_activation": recurrent_activation}
    Problem(4, 3, 1, 12, dtype=torch.float64, **options).check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(16, 6, 2, 96), (5, 9, 1, 33)], ids=str)
def test_aliases_change_no_bit(size, dtype):
    problem = Problem(*size, dtype=dtype, reverse=[0, 1][: size[2]])
    apart, shared = problem.run(), problem.run(alias=True)
    for name, expected in apart.items():
        assert torch.equal(shared[name], expected), name


def test_aliases_with_masks():
    Problem(5, 9, 2, 33, mask=make_mask("holes", 5, 9), reverse=[0, 1]).check(alias=True)


@pytest.mark.parametrize("size", [(16, 20, 1, 384), (128, 9, 2, 64)], ids=str)
def test_same_bits_every_time(size):
    problem = Problem(*size, zoneout=(0.1, 0.1), training=1)
    first = problem.run()
    for _ in range(5):
        again = problem.run()
        for name, expected in first.items():
            assert torch.equal(again[name], expected), name


def test_absent_tensors_are_zeros():
    """No initial states, no reserve, no final states; backward from dy alone, from ds alone."""
    problem = Problem(5, 6, 1, 40, initial=False)
    reference = problem.reference()
    wx, kernel = problem.wx.cuda(), problem.kernel.cuda()
    config = LIB.config(wx)
    y = torch.full_like(problem.dy, NAN, device="cuda")
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, y=y, workspace=scratch)
    assert_near(y, reference["y"], torch.float32, "y")

    gates, states = torch.empty_like(wx), [torch.empty_like(y) for _ in range(2)]
    LIB.forward(config, wx, kernel, y=y, gates=gates, states=states, workspace=scratch)
    parts = []
    for given in ({"dy": problem.dy.cuda()}, {"dsT": [d.cuda() for d in problem.ds]}):
        dwx = torch.full_like(wx, NAN)
        scratch = LIB.workspace(config, backward=True)
        saved = {"gates": gates, "states": states}
        LIB.backward(config, kernel, dwx=dwx, **saved, **given, workspace=scratch)
        parts.append(dwx)
    assert_near(parts[0] + parts[1], reference["dwx"], torch.float32, "dwx")


def test_nan_stays_in_its_row():
    problem = Problem(5, 6, 1, 40)
    clean = problem.run()
    problem.wx[2, 3] = NAN
    spoiled = problem.run()
    rows = [0, 1, 3, 4]
    for name in ("y", "dwx"):
        assert torch.equal(spoiled[name][rows], clean[name][rows]), name
    assert spoiled["y"][2, 3:].isnan().all()
    assert torch.equal(spoiled["y"][2, :3], clean["y"][2, :3])


def test_three_million_steps():
    """One unit over 3 million steps ends where two walks of half the length end, bit for bit."""
    t = 3_000_000
    generator = torch.Generator().manual_seed(0)
    wx = torch.randn(1, t, 1, 4, 1, generator=generator).cuda()
    kernel = torch.randn(1, 1, 4, 1, generator=generator).cuda()

    def walk(part, s0):
        config = LIB.config(part)
        y = torch.full((1, part.shape[1], 1, 1), NAN, device="cuda")
        final = [torch.full((1, 1, 1), NAN, device="cuda") for _ in range(2)]
        scratch = LIB.workspace(config, backward=False)
        LIB.forward(config, part, kernel, s0=s0, y=y, sT=final, workspace=scratch)
        return y, final

    y, final = walk(wx, [None, None])
    _, middle = walk(wx[:, : t // 2].contiguous(), [None, None])
    tail, last = walk(wx[:, t // 2 :].contiguous(), middle)
    assert y.isfinite().all()
    assert torch.equal(y[:, t // 2 :], tail)
    assert all(torch.equal(a, b) for a, b in zip(final, last, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 65, 17), (130, 200, 33), (1000, 1500, 40)], ids=str
)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_gemm(shape, dtype, transposed):
    m, n, k = shape
    a = torch.randn(*((k, m) if transposed[0] else (m, k)), device="cuda").to(dtype)
    b = torch.randn(*((n, k) if transposed[1] else (k, n)), device="cuda").to(dtype)
    a = a.T if transposed[0] else a
    b = b.T if transposed[1] else b
    bias = torch.randn(n, device="cuda").to(dtype)
    for plus in (None, bias):
        c = torch.full((m, n), NAN, device="cuda", dtype=dtype)
        LIB.gemm(a, b, c, plus)
        expected = a.double() @ b.double() + (0 if plus is None else plus.double())
        assert_near(c, expected.cpu(), dtype, "c")


def test_gemm_of_strided_views():
    a = torch.randn(40, 3, 50, device="cuda")[:, 1]
    b = torch.randn(50, 2, 70, device="cuda")[:, 1]
    c = torch.full((40, 90), NAN, device="cuda")
    LIB.gemm(a, b, c[:, :70])
    assert_near(c[:, :70], (a.double() @ b.double()).cpu(), torch.float32, "c")
    assert c[:, 70:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layer(dtype):
    """x·W + b, the recurrence, and all gradients, through haste_layer_*."""
    n, t, k, h, features = 6, 7, 2, 20, 13
    problem = Problem(n, t, k, h, dtype=dtype, initial=False)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, t, features, generator=generator).to(dtype)
    kernel = (torch.randn(features, k, 4, h, generator=generator) * features**-0.5).to(dtype)
    bias = torch.randn(k, 4, h, generator=generator).to(dtype)
    wide = [v.double().requires_grad_() for v in (x, kernel, bias, problem.kernel)]
    wx = torch.einsum("ntc,ckgj->ntkgj", wide[0], wide[1]) + wide[2]
    zero = torch.zeros(n, k, h, dtype=torch.float64)
    y, _, _ = lstm_reference.lstm(wx, wide[3], zero, zero, reverse=[0, 1])
    expected = torch.autograd.grad((y * problem.dy.double()).sum(), wide)

    x, kernel, bias, recurrent = (v.cuda() for v in (x, kernel, bias, problem.kernel))
    gates = torch.full_like(problem.wx, NAN, device="cuda")
    ours = torch.full_like(problem.dy, NAN, device="cuda")
    states = [torch.full_like(ours, NAN) for _ in range(2)]
    config = LIB.config(gates, reverse=[0, 1])
    LIB.layer_forward(
        config,
        x,
        kernel,
        bias,
        recurrent,
        wx=gates,
        y=ours,
        gates=gates,
        states=states,
        workspace=LIB.workspace(config, backward=False),
    )
    assert_near(ours, y.detach(), dtype, "y")
    gradients = {
        "dx": torch.full_like(x, NAN),
        "dW": torch.full_like(kernel, NAN),
        "db": torch.full_like(bias, NAN),
        "dR": torch.full_like(recurrent, NAN),
    }
    LIB.layer_backward(
        config,
        x,
        kernel,
        recurrent,
        gradients=gradients,
        gates=gates,
        states=states,
        dy=problem.dy.cuda(),
        dwx=gates,
        workspace=LIB.workspace(config, backward=True),
    )
    for (name, got), want in zip(gradients.items(), expected, strict=True):
        assert_near(got, want, dtype, name)
