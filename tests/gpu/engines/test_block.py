"""Cases special to the engine `block`: every width of a block, rows at any address."""

import pytest
from needs import need_module

torch = need_module("torch")

from engine_problem import (  # noqa: E402
    HOPPER,
    ON_CHIP,
    PRECISIONS,
    check_nothing_is_written_after_the_last_row,
    check_tensors_that_begin_anywhere,
    each_cell,
    each_precision,
    lanes,
    make,
    most_block_units,
)
from kernel_problem import (  # noqa: E402
    LIB,
    Call,
    Problem,
    assert_same_bits,
    make_mask,
    zoneouts,
)

pytestmark = pytest.mark.skipif("block" not in ON_CHIP, reason="needs compute capability 8.0")
# A single block and, on GPUs that have them, a cluster; 4 rows and 8; rows of 16 bytes, of 8, of 4
# and of none of these.
SIZES = [(6, 9, 2, 40), (1050, 3, 1, 24), (6, 9, 2, 37), (1050, 3, 1, 26)]
if HOPPER:
    SIZES += [(6, 9, 2, 136), (140, 4, 1, 168), (6, 9, 2, 139), (140, 4, 1, 156)]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)


# One block; clusters of 3 to 16, the last block with few units; R in shared memory too. Then the
# same with rows that no 16 bytes divide.
WIDTHS = [*range(8, 97, 8), 1, 3, 7, 13, 33, 50, 65, 92]
if HOPPER:
    WIDTHS += [104, 128, 136, 168, 200, 248, 256, 264, 352, 424, 512]
    WIDTHS += [97, 100, 127, 129, 250, 255, 300, 333, 500, 511]


@pytest.mark.parametrize("hidden", WIDTHS)
@each_precision
@each_cell
def test_every_width(cell, precision, hidden):
    """With 4 rows a block and, if that makes too many blocks for the GPU, with 8."""
    is_float = PRECISIONS[precision]["dtype"] == torch.float32
    if hidden > most_block_units(cell, precision):
        problem = Problem(cell, 2, 3, 1, hidden, engine="block", **PRECISIONS[precision])
        with pytest.raises(RuntimeError, match=rf"engine: .*block.* {hidden} hidden"):
            problem.plan()
        return
    options = {"zoneout": zoneouts(cell), "recurrent_dropout": 0.25, "training": 1}
    for n, k in ((5, 2), (1050 if hidden <= (64 if is_float else 96) else 140, 1)):
        mask = make_mask("holes", n, 4)
        problem = Problem(
            cell,
            n,
            4,
            k,
            hidden,
            engine="block",
            mask=mask,
            reverse=lanes((n, 4, k, hidden)),
            **PRECISIONS[precision],
            **options,
        )
        # With floats there may be memory for 4 rows only.
        if n == 5 or not is_float:
            assert problem.plan().count("× 4," if n == 5 else "× 8,") == 2
        problem.check()


@each_size
@each_precision
@each_cell
def test_tensors_that_begin_anywhere(cell, precision, size):
    check_tensors_that_begin_anywhere(make(cell, "block", precision, size, reverse=lanes(size)))


@each_size
@each_cell
def test_no_gradient_of_the_outputs(cell, size):
    """dy NULL is a dy of zeros."""
    problem = make(cell, "block", "bfloat16", size, reverse=lanes(size))
    problem.dy.zero_()
    expected = problem.run()
    call = Call(problem)
    call.forward()
    given = {"dy": None, "dsT": call.ds, "ds0": call.ds0, **call.gradients}
    LIB.backward(call.config, call.kernel, workspace=call.scratch[1], **given, **call.given)
    assert_same_bits(call.results(), expected)


@each_size
@each_cell
def test_as_little_as_can_be_asked_for(cell, size):
    """No initial states, and no gradients of them: the last step sends nothing."""
    options = {"initial": False, "initial_gradients": False, "reverse": lanes(size)}
    make(cell, "block", "bfloat16", size, **options).check()
    make(cell, "block", "bfloat16", (size[0], 1, *size[2:]), **options).check()


@each_size
@pytest.mark.parametrize("zero_output", [0, 1])
@pytest.mark.parametrize("pattern", ["right", "left", "none live"])
@each_cell
def test_masks_and_aliases(cell, pattern, zero_output, size):
    options = {"mask": make_mask(pattern, *size[:2]), "zero_output_for_mask": zero_output}
    make(cell, "block", "bfloat16", size, reverse=lanes(size), **options).check(alias=True)


@each_size
@each_cell
def test_nan_stays_in_its_row(cell, size):
    problem = make(cell, "block", "bfloat16", size)
    clean = problem.run()
    problem.wx[2, 1] = float("nan")
    spoiled = problem.run()
    rows = [row for row in range(size[0]) if row != 2]
    for name in ("y", "dwx"):
        assert torch.equal(spoiled[name][rows], clean[name][rows]), name
    assert spoiled["y"][2, 1:].isnan().all()


@pytest.mark.parametrize("hidden", [24, 20, 18, 17])
@each_cell
def test_nothing_is_written_after_the_last_row(cell, hidden):
    """13 rows are three blocks of 4 and one row."""
    problem = make(cell, "block", "bfloat16", (13, 6, 1, hidden))
    check_nothing_is_written_after_the_last_row(problem)


@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("hidden", [17, 36])
@each_precision
def test_few_steps(precision, hidden, steps):
    """Fewer than are on their way at once, and a few more."""
    make("gru", "block", precision, (9, steps, 1, hidden)).check()
