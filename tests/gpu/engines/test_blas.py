"""Walks that are recorded as CUDA graphs, and cases that only the `blas` engine runs.

test_engines.py and test_engines_repeated.py run `blas` with the other engines.
"""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import CELLS, each_cell, lanes, make  # noqa: E402
from kernel_problem import (  # noqa: E402
    LIB,
    NAN,
    ON,
    Call,
    Problem,
    assert_near,
    assert_same_bits,
    make_mask,
)
from norm_problem import Normalised  # noqa: E402

pytestmark = pytest.mark.skipif(ON != "cuda", reason="needs a GPU")

# Steps that are one graph or several, and some that are left over.
TIMES = [1, 3, 4, 32, 33, 70, 101]
ONE_UNIT = (1, 1, 1, 1)
# Walks of more than one launch.
recording_engine = pytest.mark.parametrize("engine", ["blas", "stepwise"])


def written(call):
    """The tensors that a call writes for its caller."""
    gradients = [tensor for tensor in call.gradients.values() if torch.is_tensor(tensor)]
    return [call.y, *call.final, *call.ds0, *gradients, *call.gradients["dextra"]]


def run(call):
    for tensor in written(call):
        tensor.fill_(NAN)
    call.forward()
    call.backward()
    return {name: tensor.clone() for name, tensor in call.results().items()}


def launches_of_graphs(call):
    """How many CUDA graphs a forward and a backward pass launch."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call.forward()
        call.backward()
        torch.cuda.synchronize()
    return sum(event.name == "cudaGraphLaunch" for event in profile.events())


@pytest.mark.parametrize("time", TIMES)
@each_cell
@recording_engine
def test_replayed_steps_give_the_same_bits(engine, cell, time):
    size = (5, time, 2, 300)
    mask = make_mask("holes", *size[:2])
    call = Call(make(cell, engine, "bfloat16", size, reverse=lanes(size), mask=mask))
    first = run(call)
    for _ in range(3):  # recorded, then replayed twice
        assert_same_bits(run(call), first)


@recording_engine
def test_walks_are_replayed_when_they_come_again(engine):
    call = Call(make("lstm", engine, "float32", (5, 70, 1, 300)))
    assert [launches_of_graphs(call) for _ in range(3)] == [0, 3 + 3, 3 + 3]


@recording_engine
@each_cell
def test_replayed_steps_read_what_is_there_now(engine, cell):
    size = (5, 70, 1, 300)
    call = Call(make(cell, engine, "float32", size))
    for _ in range(3):
        run(call)
    fresh = Call(make(cell, engine, "float32", size))
    for name in ("wx", "kernel", "dy"):
        tensor = getattr(fresh, name)
        tensor.mul_(0.5)
        getattr(call, name).copy_(tensor)
    assert_same_bits(run(call), run(fresh))


@recording_engine
def test_a_call_in_a_graph_of_the_caller(engine):
    call = Call(make("lstm", engine, "float32", (16, 40, 1, 300)))
    expected = run(call)
    assert launches_of_graphs(call) > 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.forward()
        call.backward()
    for tensor in written(call):
        tensor.fill_(NAN)
    graph.replay()
    assert_same_bits(call.results(), expected)


@pytest.mark.parametrize("size", [(1, 1, 1, 1), (5, 7, 2, 65), (70, 3, 1, 200)], ids=str)
@pytest.mark.parametrize("cell", [*CELLS, "gru_reset_before"])
def test_float64(cell, size):
    Problem(cell, *size, dtype=torch.float64, engine="blas", reverse=lanes(size)).check()


@pytest.mark.parametrize(
    "size", [ONE_UNIT, (2, 1, 1, 24), (5, 7, 2, 65), (17, 9, 1, 130), (64, 5, 3, 600)], ids=str
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-10), (torch.float32, 2e-4), (torch.bfloat16, 0.1)],
    ids=str,
)
@pytest.mark.parametrize("cell", ["layer_norm_lstm", "layer_norm_gru"])
@pytest.mark.parametrize("features", [False, True], ids=["plain", "all features"])
def test_normalised_cells_as_stepwise(cell, dtype, tolerance, size, features):
    """Against `stepwise`, which the tests under TensorFlow compare with the oracle."""
    if size == ONE_UNIT and dtype == torch.bfloat16:
        pytest.skip("normalised h·R of one unit changes with h's sign alone: ds0 is rounding")
    options = {"reverse": lanes(size)}
    mask = None
    if features:
        states = LIB.cell(cell).states
        options |= {"zoneout": (0.3, 0.2)[:states], "recurrent_dropout": 0.25}
        mask = make_mask("holes", *size[:2])
    problem = Normalised(cell, size, dtype, mask, **options)
    ours, expected = problem.run("blas", times=3), problem.run("stepwise")
    for name, tensor in expected.items():
        if size == ONE_UNIT and dtype == torch.float32 and name.startswith("ds0"):
            continue  # as above
        assert_near(ours[name], tensor.double().cpu(), dtype, name, tolerance)
    assert_same_bits(problem.run("stepwise", times=3), expected)
