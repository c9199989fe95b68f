"""Products that overlap the walk on a GPU (lib/plan/overlap.h): haste_layer_* at large
sizes, against the recurrence alone and products in float64."""

import threading

import pytest
from needs import need, need_module

torch = need_module("torch")

from kernel_problem import LIB, NAN, ON, make_mask  # noqa: E402

need(ON == "cuda", "GPU")
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("what runs beside a walk was planned for compute capability 9.0",
                allow_module_level=True)  # fmt: skip

# Of the norm: products of exact floats have 22 bits; the recurrence carries on what they are off.
TOLERANCE = {"float32": 3e-6, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 1.2e-2}
# N, T, K, H, C: the first case; two lanes; nothing a multiple of tiles, nor the batch a divisor.
SIZES = [(16, 600, 1, 768, 768), (16, 520, 2, 768, 512)]
ODD = (20, 523, 1, 496, 1000)
# Of a cell: enough to be worth it.
SIZE_OF = {
    "gru": (16, 600, 1, 768, 1024),
    "elman": (16, 800, 1, 768, 2048),
    "slstm": (16, 600, 1, 768, 1024),
}


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


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_same_as_one_after_the_other(size, reverse, precision):
    layer = Layer(size, precision, reverse=[reverse] * size[2])
    layer.assert_beside()
    check(layer, TOLERANCE[precision])


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("reverse", [0, 1])
def test_odd_sizes(reverse, precision):
    layer = Layer(ODD, precision, reverse=[reverse], engine="grid")
    layer.assert_beside()
    check(layer, TOLERANCE[precision])


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_more_parts_than_are_done_beside(precision):
    """The walk counts those that are left to the last one, too."""
    layer = Layer((16, 3000, 1, 768, 512), precision)
    layer.assert_beside(forward=precision == "tf32")  # two parts of x take more than there is room
    check(layer, TOLERANCE[precision])


@pytest.mark.parametrize("cell", SIZE_OF)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_cells(cell, precision):
    layer = Layer(SIZE_OF[cell], precision, cell)
    short = (cell, precision) == ("elman", "float32")  # the walk, and few gates' products
    layer.assert_beside(*((None, None) if short else (True, True)))
    check(layer, TOLERANCE[precision])


# The middle of the walk is a part's, or a step's; the last one's rows are no whole number of tiles.
@pytest.mark.parametrize(
    ("size", "reverse"),
    [
        (SIZES[1], [0, 1]),
        ((16, 521, 2, 768, 512), [1, 0]),
        ((16, 777, 3, 512, 768), [0, 1, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_both_directions(precision, size, reverse):
    """Of which dx is the sum: in float32 of parts, else of a time once both have left it."""
    layer = Layer(size, precision, reverse=reverse, engine="grid")
    # Of floats three lanes' room for the products one after the other is more than beside the walk.
    more_room_alone = size[2] == 3 and precision == "float32"
    layer.assert_beside(backward=None if more_room_alone else True)
    check(layer, TOLERANCE[precision])


def test_directions_by_turns():
    """Then x·W comes before the walk."""
    layer = Layer((16, 520, 3, 512, 768), "bfloat16", reverse=[0, 1, 0], engine="grid")
    layer.assert_beside(forward=False)
    check(layer, TOLERANCE["bfloat16"])


@pytest.mark.parametrize("pattern", ["left", "holes", "none live"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_masks_and_noise(cell, pattern):
    zoneout = (0.1,) * LIB.cell(cell).states
    options = {"zoneout": zoneout, "recurrent_dropout": 0.2, "training": 1}
    layer = Layer(SIZE_OF.get(cell, SIZES[0]), "float32", cell, mask=pattern, **options)
    layer.assert_beside(forward=None)
    check(layer, TOLERANCE["float32"])


@pytest.mark.parametrize(("size", "reverse"), [(SIZES[0], [0]), (SIZES[1], [0, 1])], ids=str)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_the_same_bits_again_however_wx_is_given(precision, size, reverse):
    layer = Layer(size, precision, reverse=reverse)
    y, gates, saved = layer.forward()
    first = layer.backward(gates.clone(), saved)
    for given_wx, keep in ((True, True), (False, True), (False, False)):
        assert torch.equal(layer.forward(given_wx=given_wx, keep=keep)[0], y)
    again = layer.backward(gates.clone(), saved)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(
    "wanted", [("dx",), ("dW",), ("dR",), ("db",), ("dW", "dR"), ("dx", "dW"), ()], ids=str
)
@pytest.mark.parametrize(("size", "reverse"), [(SIZES[0], [0]), (SIZES[1], [0, 1])], ids=str)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_only_what_is_wanted(wanted, precision, size, reverse):
    layer = Layer(size, precision, reverse=reverse)
    _, gates, saved = layer.forward()
    every = layer.backward(gates.clone(), saved)
    some = layer.backward(gates.clone(), saved, wanted)
    # Those of W and R are one product where both are wanted; then few round the other way.
    tolerance = 2e-6 if precision == "float32" else 5e-4
    for name in wanted:
        assert_close(some[name], every[name], tolerance, name)


def moved(tensor):
    """The same, where no multiple of 16 bytes begins."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=ON)
    return room[1:].view(tensor.shape).copy_(tensor)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_operands_that_begin_anywhere(precision):
    layer = Layer(SIZES[0], precision)
    exact = precision == "float32"  # else a product that rounds otherwise may take its place
    y, gates, saved = layer.forward()
    expected = layer.backward(gates.clone(), saved)
    for name in ("x", "kernel", "bias", "recurrent", "dy"):
        setattr(layer, name, moved(getattr(layer, name)))
    layer.place = moved
    assert_close(layer.forward()[0], y, 1e-5 if exact else 10 * TOLERANCE[precision], "y")
    for name, gradient in layer.backward(moved(gates), [moved(s) for s in saved]).items():
        assert_close(gradient, expected[name], 2e-6 if exact else TOLERANCE[precision], name)


def test_rows_that_begin_anywhere(monkeypatch):
    """Then x·W comes before the walk."""
    layer = Layer(SIZES[0], "float32")
    y, gates, _ = layer.forward()
    of_multiples = layer.reserve

    def reserve():
        gates, saved = of_multiples()
        return moved(gates), saved

    monkeypatch.setattr(layer, "reserve", reserve)
    found = layer.forward()
    assert_close(found[0], y, 1e-5, "y")
    assert_close(found[1], gates, 1e-5, "gates")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_in_a_cuda_graph(precision):
    layer = Layer(SIZES[0], precision)
    y, gates, saved = layer.forward()
    expected = layer.backward(gates.clone(), saved)
    graph, left = torch.cuda.CUDAGraph(), gates.clone()
    layer.looks = False  # the check would synchronise
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = layer.forward()[0], layer.backward(left, saved)
    left.copy_(gates)
    graph.replay()
    torch.cuda.synchronize()
    assert_close(captured[0], y, 10 * TOLERANCE[precision], "y")
    for name, gradient in captured[1].items():
        assert_close(gradient, expected[name], TOLERANCE[precision], name)


def test_layers_of_several_threads():
    """All layers at the same time, each on a stream of its own: no deadlock."""
    size = (16, 520, 1, 768, 1024)
    layers = [Layer(size, p) for p in ("float32", "bfloat16", "float32", "tf32")]
    expected = []
    for layer in layers:
        y, gates, saved = layer.forward()
        expected.append((y, gates, saved, layer.backward(gates.clone(), saved)))
    torch.cuda.synchronize()
    wrong = []

    def run(layer, want):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(5):
                y = layer.forward()[0]
                found = layer.backward(want[1].clone(), want[2])
                torch.cuda.current_stream().synchronize()
                if not torch.equal(y, want[0]):
                    wrong.append("y")
                wrong.extend(n for n in found if not torch.equal(found[n], want[3][n]))

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(layers, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
