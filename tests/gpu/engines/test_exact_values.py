"""Values that blocks of `grid` exchange backward (lib/cuda/ptx/tagged.h) arrive as they were sent,
also 0 and infinity, in every use of a place: a gradient of 0 arrives as 0."""

import pytest
from engine_problem import ON_CHIP, each_precision, make
from kernel_problem import NAN, Call
from needs import need, need_module

torch = need_module("torch")
need("grid" in ON_CHIP, "a GPU of compute capability 8.0 or newer")

# One tile of rows and two, blocks alone and in clusters.
SIZES = [(4, 12, 1, 300), (16, 12, 1, 512), (33, 12, 2, 520)]


def run(problem):
    call = Call(problem)
    call.forward()
    call.backward()
    torch.cuda.synchronize()
    return call


def exactly_zero(tensor):
    return tensor.count_nonzero().item() == 0


@each_precision
@pytest.mark.parametrize("cell", ["lstm", "elman"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rows_without_gradient(cell, size, precision):
    """Rows that the loss does not read, and a last step that it reads."""
    problem = make(cell, "grid", precision, size)
    blind, seen = slice(0, None, 2), slice(1, None, 2)
    last = 3  # the last step that the loss reads
    problem.dy[blind] = 0
    problem.dy[:, last + 1 :] = 0
    for gradient in problem.ds:
        gradient.zero_()
    call = run(problem)
    dwx = call.gradients["dwx"]
    assert exactly_zero(dwx[blind])
    assert all(exactly_zero(gradient[blind]) for gradient in call.ds0)
    assert exactly_zero(dwx[:, last + 1 :])
    assert dwx[seen, : last + 1].count_nonzero() > 0


@each_precision
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_masked_rows(size, precision):
    """A row that is masked from some step on has no gradient there; one that always is, nowhere."""
    n, t = size[:2]
    mask = torch.ones(n, t, dtype=torch.bool)
    mask[0] = False
    mask[1, 5:] = False
    problem = make("lstm", "grid", precision, size, mask=mask)
    problem.dy[:2] = 0
    for gradient in problem.ds:
        gradient[:2] = 0
    call = run(problem)
    assert exactly_zero(call.gradients["dwx"][:2])
    assert all(exactly_zero(gradient[:2]) for gradient in call.ds0)


@each_precision
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_units_that_nothing_reads(size, precision):
    """A unit whose row of R is 0 gets the gradient of its own output only, here 0. ReLU units that
    are off get 0 too."""
    problem = make("elman", "grid", precision, size, activation="relu")
    unread = slice(5, None, 7)
    problem.kernel[:, unread] = 0
    problem.dy[..., unread] = 0
    for gradient in problem.ds:
        gradient[..., unread] = 0
    problem.wx[..., 3] = -1e4  # the unit is off for every h·R
    call = run(problem)
    dwx = call.gradients["dwx"]
    assert exactly_zero(dwx[..., unread])
    assert exactly_zero(dwx[..., 3])
    assert exactly_zero(call.ds0[0][..., unread])
    assert dwx.count_nonzero() > 0


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_infinity(size, step):
    """An infinite gradient reaches all units of the previous step, with R's signs; both
    slots and both tags of a place."""
    problem = make("elman", "grid", "bfloat16", size, activation="linear")
    at = problem.dy.shape[1] - 1 - step
    problem.kernel[problem.kernel == 0] = 1
    problem.dy[0, at, 0, 7] = float("inf")
    call = run(problem)
    before = call.gradients["dwx"][0, at - 1, 0, 0].float().cpu()
    expected = problem.kernel[0, :, 0, 7].float().sign() * float("inf")
    assert torch.equal(before, expected)
    others = call.gradients["dwx"][1:]
    assert others.isfinite().all()


@each_precision
@pytest.mark.parametrize("value", [float("inf"), NAN])
def test_what_is_not_finite_stays_so(value, precision):
    problem = make("lstm", "grid", precision, SIZES[1])
    problem.dy[0, -1, 0, 7] = value
    call = run(problem)
    dwx = call.gradients["dwx"]
    assert not dwx[0, -2].isfinite().any()
    assert not call.ds0[0][0].isfinite().any()
    assert dwx[1:].isfinite().all()
