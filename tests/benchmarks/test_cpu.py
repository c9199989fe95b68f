"""The peers of `make bench`: weights in the peers' layouts, results back in Keras's."""

import types

import numpy as np
import pytest

from benchmarks import cases, measure
from benchmarks.cpu import __main__ as cpu
from benchmarks.cpu import peers

SHAPE = (2, 3, 5, 4)  # N, T, C, H


@pytest.mark.parametrize("order", [(0,), (1, 0, 2), (0, 3, 1, 2)])
def test_kernels_come_back(order):
    kernel = np.random.default_rng(0).normal(size=(5, 4 * len(order)))
    there = peers._by_gate(kernel, order)
    assert there.shape == (4 * len(order), 5)
    np.testing.assert_array_equal(there[:4], kernel[:, 4 * order[0] : 4 * order[0] + 4].T)
    np.testing.assert_array_equal(peers._to_keras(there, order), kernel)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "Elman"])
@pytest.mark.parametrize("who", ["torch", "ort"])
def test_peer_computes_what_keras_does(who, name):
    if who not in peers.installed():
        pytest.skip(f"{who} is not installed: see requirements-bench.txt")
    x, target, layers = cases.make_layers(name, *SHAPE)
    steps = cases.make_functions(layers[1], x, target)
    weights = layers[1].get_weights()
    peer = peers.installed()[who](name, weights, x.numpy(), target.numpy())
    for kind, keras in zip(("inference", "training"), steps, strict=True):
        function, to_keras = peer.of(kind)
        if function is not None:
            cases.check(lambda f=function, k=to_keras: peers.in_keras_layout(f, k), keras, kind)


def test_case_is_timed_with_all_peers_there_are():
    medians = cpu.run_case("GRU", SHAPE, seconds=0.1)
    inference, training = medians["inference"], medians["training"]
    assert {"ours", "keras", "matmul"} <= set(training) - {"rest"} <= set(inference)
    assert "rest" in training
    assert set(peers.installed()) <= set(inference)
    assert all(seconds > 0 for seconds in (*inference.values(), *training.values()))


def test_bounds_of_a_training_step():
    """A large matmul at 2 multiply-adds a nanosecond."""
    times = {"ours": 4e-3, "keras": 12e-3, "matmul": cpu.MATMUL_SIZE**3 / 2e9, "rest": 2e-3}
    numbers = cpu.describe(times, work=6e6, of_recurrence=2e6)
    assert numbers["ratio"] == pytest.approx(3)
    assert numbers["bound"] == pytest.approx(4)
    assert numbers["reach"] == pytest.approx(4)
    del times["rest"]
    assert "reach" not in cpu.describe(times, work=6e6, of_recurrence=2e6)


@pytest.mark.parametrize("name", ["LSTM", "Elman"])
def test_surroundings_are_the_products_of_a_step(name):
    n, t, c, h = SHAPE
    width = cases.gates_of(name) * h
    shapes = [tuple(v.shape) for v in cases.make_surroundings(name, *SHAPE)()]
    assert shapes == [(n * t, c), (c, width), (h, width), (width,)]


def test_check_refuses_another_result():
    with pytest.raises(SystemExit, match="somewhere: differs by"):
        cases.check(lambda: [1.0, 2.0], lambda: [1.0, 2.1], "somewhere")


def test_first_half_of_a_turn_is_not_timed(monkeypatch):
    now, slept, calls = [0.0], [], []
    clock = types.SimpleNamespace(perf_counter=lambda: now[0], sleep=slept.append)
    monkeypatch.setattr(measure, "time", clock)

    def function():
        # Slow until it has run for a second.
        calls.append(0.5 if len(calls) % 10 < 2 else 0.125)
        now[0] += calls[-1]

    medians = measure.interleaved_medians({"f": function}, seconds=0, least=9, rest=2.0, burst=1.0)
    assert medians == {"f": 0.125}
    assert slept == [2.0, 2.0]
    assert len(calls) == 20
