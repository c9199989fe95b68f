"""A layer with the products around its recurrence, by haste_layer_*: its tensors, and what it is
compared with."""

from needs import need_module

torch = need_module("torch")

from kernel_problem import LIB, NAN, ON, make_mask  # noqa: E402

# Of the norm: products of exact floats have 22 bits; the recurrence carries on what they are off.
TOLERANCE = {"float32": 3e-6, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 1.2e-2}
# N, T, K, H, C: the first case; two lanes. tests/lib/plan/overlap_plan_test.cc checks without a GPU
# that their products overlap the walk.
SIZES = [(16, 600, 1, 768, 768), (16, 600, 2, 640, 768)]


class Layer:
    """A layer's tensors; `options` are of the config."""

    looks = True  # at the end of scratch memory, which nothing may have written
    place = staticmethod(lambda gradient: gradient)  # somewhere else

    def __init__(self, size, precision, cell="lstm", reverse=None, mask=None, **options):
        n, t, k, h, c = size
        dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
        self.cell, self.info = cell, LIB.cell(cell)
        gates, generator = self.info.gates, torch.Generator(ON).manual_seed(sum(size))
        print("seed", sum(size))

        def make(*shape, by=1.0):
            return (torch.randn(*shape, device=ON, generator=generator) * by).to(dtype)

        self.x, self.dy = make(n, t, c), make(n, t, k, h)
        self.kernel = make(c, k, gates, h, by=c**-0.5)
        self.recurrent = make(k, h, gates, h, by=h**-0.5)
        self.bias = make(k, gates, h)
        self.extra = [make(k, gates, h) for _ in range(self.info.extras)]
        shape = make(n, t, k, gates, h)
        self.reverse = reverse or [0] * k
        self.config = LIB.config(
            cell, shape, allow_tf32=int(precision == "tf32"), reverse=self.reverse, **options
        )
        self.given = {"extra": self.extra}
        if mask is not None:
            self.given["mask"] = make_mask(mask, n, t).to(ON)
        if options.get("training"):
            self.given["seed"] = torch.tensor([3, 4], dtype=torch.int64, device=ON)

    def assert_beside(self, forward=True, backward=True):
        """Checks that products overlap the walk, or do not: then the workspace is not for both.

        None: both are allowed, or the products alone may need more.
        """
        n, t, _, _ = self.dy.shape
        flat = torch.empty(n * t, self.bias.numel(), dtype=self.dy.dtype, device="meta")
        x, kernel = self.x.flatten(0, 1).to("meta"), self.kernel.flatten(1).to("meta")
        h = torch.empty(n * t, self.dy.shape[-1], dtype=self.dy.dtype, device="meta")
        products = {
            False: [(x, kernel)],
            True: [(flat, kernel.T), (x.T, flat), (h.T, flat)],
        }
        for of_backward, wanted in ((False, forward), (True, backward)):
            if wanted is None:
                continue
            alone = LIB.workspace(self.config, of_backward).numel()
            tf32 = bool(self.config.allow_tf32)
            sizes = [LIB.gemm_workspace(a, b, tf32) + 64 for a, b in products[of_backward]]
            wx = None if of_backward else self.dy  # given, wherever it is
            layer = LIB.layer_workspace(
                self.config, self.x.shape[-1], wx, backward=of_backward
            ).numel()
            assert (layer > max(alone, *sizes)) == wanted, (layer, alone, sizes)

    def reserve(self):
        gates = torch.full((*self.dy.shape[:3], *self.bias.shape[1:]), NAN, device=ON)
        gates = gates.to(self.dy.dtype)
        return gates, [torch.full_like(self.dy, NAN) for _ in range(self.info.saved)]

    def gradient_tensors(self, gates):
        made = {"dy": self.dy, "dwx": gates}
        made["dextra"] = [torch.full_like(e, NAN) for e in self.extra]
        if self.info.splits_gradient:
            made["dq"] = torch.full_like(gates, NAN)
        return made

    def forward(self, *, given_wx=True, keep=True):
        """By haste_layer_forward: y, gates, saved."""
        gates, saved = self.reserve()
        y = torch.full_like(self.dy, NAN)
        wx = gates if given_wx else None
        scratch = LIB.layer_workspace(self.config, self.x.shape[-1], wx=wx)
        kept = {"gates": gates, "saved": saved} if keep else {}
        LIB.layer_forward(
            self.config, self.x, self.kernel, self.bias, self.recurrent,
            wx=wx, y=y, workspace=scratch, **kept, **self.given,
        )  # fmt: skip
        assert not self.looks or (scratch[-64:] == 0xFF).all()
        return y, gates, saved

    def backward(self, gates, saved, wanted=("dx", "dW", "db", "dR")):
        """By haste_layer_backward, over `gates`: the gradients by name."""
        like = {"dx": self.x, "dW": self.kernel, "db": self.bias, "dR": self.recurrent}
        found = {name: self.place(torch.full_like(like[name], NAN)) for name in wanted}
        made = self.gradient_tensors(gates)
        scratch = LIB.layer_workspace(self.config, self.x.shape[-1], backward=True)
        LIB.layer_backward(
            self.config, self.x, self.kernel, self.recurrent, gradients=found,
            workspace=scratch, gates=gates, saved=saved, **made, **self.given,
        )  # fmt: skip
        assert not self.looks or (scratch[-64:] == 0xFF).all()
        return found

    def alone(self):
        """The same by the recurrence alone and products in float64: y, gates and the gradients."""
        gates, saved = self.reserve()
        y = torch.full_like(self.dy, NAN)
        wide = torch.einsum("ntc,ckgh->ntkgh", self.x.double(), self.kernel.double())
        gates.copy_(wide + self.bias.double())
        LIB.forward(
            self.config, gates, self.recurrent, y=y, gates=gates, saved=saved,
            workspace=LIB.workspace(self.config, False), **self.given,
        )  # fmt: skip
        left = gates.clone()
        made = self.gradient_tensors(gates)
        LIB.backward(
            self.config, self.recurrent, gates=gates, saved=saved,
            workspace=LIB.workspace(self.config, True), **made, **self.given,
        )  # fmt: skip
        dwx, dq = made["dwx"].double(), made.get("dq", made["dwx"]).double()
        return y, left, saved, {
            "dx": torch.einsum("ntkgh,ckgh->ntc", dwx, self.kernel.double()),
            "dW": torch.einsum("ntc,ntkgh->ckgh", self.x.double(), dwx),
            "db": dwx.sum((0, 1)),
            "dR": torch.einsum("ntki,ntkgh->kigh", saved[0].double(), dq),
        }  # fmt: skip


def assert_close(found, expected, tolerance, name):
    off = (found.double() - expected.double()).norm()
    assert off <= tolerance * expected.double().norm(), (name, off)


def check(layer, tolerance):
    y, gates, saved, expected = layer.alone()
    found = layer.forward()
    # Errors of the products grow along the walk.
    assert_close(found[0], y, 10 * tolerance, "y")
    assert_close(found[1], gates, 10 * tolerance, "gates")
    gradients = layer.backward(gates.clone(), saved)
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name], tolerance, name)
