"""Products that overlap the walk on a GPU (lib/plan/overlap.h): haste_layer_* at large
sizes, against the recurrence alone and products in float64."""

import threading

import pytest
from needs import need, need_module

torch = need_module("torch")

from kernel_problem import LIB, ON  # noqa: E402
from layer_problem import SIZES, TOLERANCE, Layer, assert_close, check  # noqa: E402

need(ON == "cuda", "GPU")
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("what runs beside a walk was planned for compute capability 9.0",
                allow_module_level=True)  # fmt: skip

# N, T, K, H, C: nothing a multiple of tiles, nor the batch a divisor.
ODD = (13, 777, 1, 688, 1000)
# Of a cell: enough to be worth it.
SIZE_OF = {
    "gru": (16, 1000, 1, 768, 1024),
    "elman": (16, 800, 1, 768, 2048),
    "slstm": (16, 600, 1, 768, 1024),
}


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
    # Of floats two parts of x take more than there is room, and the products alone as much.
    layer.assert_beside(*((True, True) if precision == "tf32" else (False, None)))
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
        ((16, 521, 2, 640, 512), [1, 0]),
        ((16, 1501, 3, 512, 512), [0, 1, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_both_directions(precision, size, reverse):
    """Of which dx is the sum: in float32 of parts, else of a time once both have left it."""
    layer = Layer(size, precision, reverse=reverse, engine="grid")
    # Of floats the products one after the other take as much memory as beside the walk, or more.
    layer.assert_beside(backward=None if precision == "float32" else True)
    check(layer, TOLERANCE[precision])


def test_directions_by_turns():
    """Then x·W comes before the walk."""
    layer = Layer((16, 777, 3, 512, 512), "bfloat16", reverse=[0, 1, 0], engine="grid")
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
