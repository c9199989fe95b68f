"""Recurrences for the tests of the C ABI: random inputs, run by libhaste and by the reference.

Outputs and workspaces start as NaN, so that an element that is not written, or memory that is read
before it is written, shows. Errors are ‖ours − reference‖ / ‖reference‖.
"""

from needs import DEVICE, need, need_module

torch = need_module("torch")
ON = "cuda" if DEVICE.startswith("GPU") else "cpu"
need(ON == "cpu" or torch.cuda.is_available(), "GPU that torch sees")

import cell_reference  # noqa: E402
import lib_ctypes  # noqa: E402

need(lib_ctypes.library_path(), "libhaste.so: build it first")

LIB = lib_ctypes.Library(lib_ctypes.library_path(), ON)
need(ON == "cpu" or LIB.has_cuda(), "CUDA in libhaste.so")

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
# The eleven bits that TF32 has. Engines without tensor cores are as exact as without it.
TF32_TOLERANCE = 3e-3
DTYPES = list(TOLERANCE)
CELLS = list(cell_reference.CELLS)
NAN = float("nan")
SEED = (-81985529216486896, 1311768467463790320)


def unset(like):
    """NaN in the shape and dtype of a tensor, where the library runs."""
    return torch.full_like(like, NAN, device=ON)


def there(tensors):
    """Copies where the library runs; None stays."""
    return [None if t is None else t.to(ON, copy=True) for t in tensors]


class Problem:
    """One recurrence with random inputs, run by ours and by the reference.

    engine, allow_tf32: of the library alone; options: of HasteRnnConfig, for both.
    """

    def __init__(
        self,
        cell,
        n,
        t,
        k,
        h,
        dtype=torch.float32,
        mask=None,
        initial=True,
        initial_gradients=True,
        engine="auto",
        allow_tf32=0,
        **options,
    ):
        generator = torch.Generator().manual_seed(n * 1000003 + t * 1009 + k * 101 + h)

        def random(*shape, scale=1.0):
            values = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
            return values.to(dtype)

        self.cell, self.spec, self.info = cell, cell_reference.CELLS[cell], LIB.cell(cell)
        self.dtype, self.options, self.mask = dtype, options, mask
        self.ours = {"engine": engine, "allow_tf32": allow_tf32}
        self.tolerance = TOLERANCE[dtype]
        if allow_tf32 and engine not in ("stepwise", "cpu"):
            self.tolerance = TF32_TOLERANCE
        gates, names = self.spec.gates, self.spec.states
        self.wx = random(n, t, k, gates, h)
        self.kernel = random(k, h, gates, h, scale=h**-0.5)
        self.extra = [random(k, gates, h)] if self.spec.recurrent_bias else []
        self.s0 = [random(n, k, h) for _ in names]
        if "n" in names:  # a normaliser is 0 (nothing yet) or at least 1
            at = names.index("n")
            self.s0[at] = torch.where(self.s0[at] > 0, 1 + self.s0[at], 0.0)
        if not initial:
            self.s0 = [None for _ in names]
        self.dy = random(n, t, k, h)
        self.ds = [random(n, k, h) for _ in names]
        self.parameters = ["recurrent_bias"][: len(self.extra)]
        self.names = ("y", *names, "dwx", "dR", *(f"d{p}" for p in self.parameters))
        self.all_names = self.names + tuple(f"d{name}0" for name in names)
        if initial_gradients:
            self.names = self.all_names

    def config(self):
        return LIB.config(self.cell, self.wx, **self.ours, **self.options)

    def plan(self):
        """The library's plan of a training step; RuntimeError if the engine cannot run it."""
        config = self.config()
        config.training = 1
        return LIB.plan(config)

    def reserve(self):
        """Unset tensors of the reserve: gates, saved."""
        return unset(self.wx), [unset(self.dy) for _ in range(LIB.saved(self.config()))]

    def gradients(self, gates=None):
        """Unset tensors of the gradients: dwx (or `gates`), dq, dextra."""
        dq = unset(self.wx) if self.info.splits_gradient else None
        dwx = unset(self.wx) if gates is None else gates
        return {"dwx": dwx, "dq": dq, "dextra": [unset(x) for x in self.extra]}

    def reference(self):
        """Outputs, final states, and gradients of wx, kernel, bias and initial states."""
        zero = torch.zeros_like(self.ds[0])
        s0 = [zero if s is None else s for s in self.s0]
        wide = [x.double().requires_grad_() for x in (self.wx, self.kernel, *self.extra, *s0)]
        bias = wide[2] if self.extra else None
        s0 = wide[2 + len(self.extra) :]
        options = {"mask": self.mask, "seed": SEED, **self.options}
        y, states = cell_reference.run(self.cell, wide[0], wide[1], s0, bias, **options)
        out = (y, *states)
        loss = sum((a * b.double()).sum() for a, b in zip(out, (self.dy, *self.ds), strict=True))
        gradients = torch.autograd.grad(loss, wide, materialize_grads=True)
        return self.named(*(x.detach() for x in out), *gradients)

    def named(self, *tensors):
        """Those of all_names, by name, which are asked for."""
        named = dict(zip(self.all_names, tensors, strict=True))
        return {name: named[name] for name in self.names}

    def run(self, alias=False, poison_masked=True):
        """The same by libhaste; with `alias`, gates take wx's memory and dwx the gates'."""
        call = Call(self, alias, poison_masked)
        call.forward()
        call.backward()
        return call.results()

    def check(self, **how):
        ours, reference = self.run(**how), self.reference()
        for name, expected in reference.items():
            assert_near(ours[name], expected, self.dtype, name, self.tolerance)


class Call:
    """A forward and a backward pass of a Problem by libhaste, on torch's current stream."""

    def __init__(self, problem, alias=False, poison_masked=True):
        self.problem = problem
        self.masked = None
        if problem.mask is not None and poison_masked:
            self.masked = ~problem.mask.to(ON)
        self.wx, self.kernel, *extra = there([problem.wx, problem.kernel, *problem.extra])
        self._poison(self.wx)
        self.config = problem.config()
        mask = None if problem.mask is None else problem.mask.to(torch.uint8).to(ON)
        seed = torch.tensor(SEED, dtype=torch.int64, device=ON)
        self.given = {"extra": extra, "mask": mask, "seed": seed}
        gates, self.saved = problem.reserve()
        self.given |= {"gates": self.wx if alias else gates, "saved": self.saved}
        self.gradients = problem.gradients(self.given["gates"] if alias else None)
        self.s0, self.ds = there(problem.s0), there(problem.ds)
        self.y, self.dy = unset(problem.dy), problem.dy.to(ON)
        self.final, self.ds0 = ([unset(d) for d in problem.ds] for _ in range(2))
        if problem.names != problem.all_names:
            self.ds0 = [None for _ in self.ds0]
        self.scratch = [LIB.workspace(self.config, backward) for backward in (False, True)]

    def _poison(self, *tensors):
        if self.masked is not None:
            for tensor in tensors:
                tensor[self.masked] = NAN

    def forward(self):
        outputs = {"y": self.y, "sT": self.final, "s0": self.s0}
        scratch = self.scratch[0]
        LIB.forward(self.config, self.wx, self.kernel, workspace=scratch, **outputs, **self.given)
        self.entering = [s.clone() for s in self.saved[:2]]
        self._poison(self.given["gates"], *self.saved)

    def backward(self):
        given = {"dy": self.dy, "dsT": self.ds, "ds0": self.ds0, **self.gradients}
        LIB.backward(self.config, self.kernel, workspace=self.scratch[1], **given, **self.given)

    def results(self):
        """Like Problem.reference."""
        if ON == "cuda":
            torch.cuda.synchronize()
        problem, entering = self.problem, self.entering
        dwx, dextra = self.gradients["dwx"], self.gradients["dextra"]
        dq = self.gradients["dq"] if problem.info.splits_gradient else dwx
        if self.masked is not None:
            assert (dwx[self.masked] == 0).all(), "dwx at masked steps"
            assert (dq[self.masked] == 0).all(), "dq at masked steps"
        split = problem.info.reset_gates or problem.spec.gates
        parts = ((entering[0], dq[..., :split, :]), (entering[-1], dq[..., split:, :]))
        dkernel = [self._outer(*part) for part in parts]
        ours = (self.y, *self.final, dwx, torch.cat(dkernel, 2), *dextra, *self.ds0)
        return problem.named(*ours)

    @staticmethod
    def _outer(entering, dq):
        """Sum of h ⊗ dq in float64, some steps at a time: their copies take most of the memory."""
        steps = [slice(t, t + 64) for t in range(0, max(dq.shape[1], 1), 64)]
        parts = ((entering[:, at].double(), dq[:, at].double()) for at in steps)
        return sum(torch.einsum("ntki,ntkgj->kigj", h, d) for h, d in parts)


def assert_near(ours, expected, dtype, name, tolerance=None):
    error = (ours.double().cpu() - expected).norm() / expected.norm().clamp_min(1e-30)
    assert error <= (tolerance or TOLERANCE[dtype]), f"{name}: error {error:.2e} in {dtype}"


def assert_same_bits(ours, expected):
    for name, tensor in expected.items():
        assert torch.equal(ours[name], tensor), name


def check_nan_stays_in_its_row(problem):
    """A NaN in row 2 at step 3 changes no other row and no step before it, to the bit."""
    clean = problem.run()
    problem.wx[2, 3] = NAN
    spoiled = problem.run()
    rows = [row for row in range(len(problem.wx)) if row != 2]
    for name in ("y", "dwx"):
        assert torch.equal(spoiled[name][rows], clean[name][rows]), name
    assert spoiled["y"][2, 3:].isnan().all()
    assert torch.equal(spoiled["y"][2, :3], clean["y"][2, :3])


def check_absent_tensors_are_zeros(problem):
    """No initial states, no reserve, no final states; backward from dy alone, from ds alone.

    problem: without initial states.
    """
    reference = problem.reference()

    def check(ours, name):
        assert_near(ours, reference[name], problem.dtype, name, problem.tolerance)

    wx, kernel, *extra = there([problem.wx, problem.kernel, *problem.extra])
    config, y = problem.config(), unset(problem.dy)
    scratch = LIB.workspace(config, backward=False)
    LIB.forward(config, wx, kernel, extra=extra, y=y, workspace=scratch)
    check(y, "y")

    gates, saved = problem.reserve()
    kept = {"gates": gates, "saved": saved, "extra": extra}
    y = unset(problem.dy)
    LIB.forward(config, wx, kernel, y=y, workspace=scratch, **kept)
    check(y, "y")
    parts = []
    for given in ({"dy": problem.dy.to(ON)}, {"dsT": there(problem.ds)}):
        gradients = problem.gradients()
        scratch = LIB.workspace(config, backward=True)
        LIB.backward(config, kernel, workspace=scratch, **gradients, **kept, **given)
        parts.append(gradients)
    check(parts[0]["dwx"] + parts[1]["dwx"], "dwx")
    for i, name in enumerate(problem.parameters):
        check(parts[0]["dextra"][i] + parts[1]["dextra"][i], f"d{name}")


def check_halves(cell, wx, kernel, extra, **options):
    """The second half of the steps, from where the first ended, gives the bits of the whole."""
    n, t, k, _, h = wx.shape

    def walk(part, s0):
        config = LIB.config(cell, part, **options)
        y = torch.full((n, part.shape[1], k, h), NAN, device=ON)
        final = [torch.full((n, k, h), NAN, device=ON) for _ in s0]
        scratch = LIB.workspace(config, backward=False)
        given = {"s0": s0, "extra": extra, "sT": final}
        LIB.forward(config, part, kernel, y=y, workspace=scratch, **given)
        return y, final

    nothing = [None] * LIB.cell(cell).states
    y, final = walk(wx, nothing)
    _, middle = walk(wx[:, : t // 2].contiguous(), nothing)
    tail, last = walk(wx[:, t // 2 :].contiguous(), middle)
    assert y.isfinite().all()
    assert torch.equal(y[:, t // 2 :], tail)
    assert all(torch.equal(a, b) for a, b in zip(final, last, strict=True))


def zoneouts(cell):
    """A rate for each state that has one, all different."""
    spec = cell_reference.CELLS[cell]
    return (0.3, 0.5)[: 2 if spec.expect else len(spec.states)]


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
