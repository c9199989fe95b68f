"""haste_windows on a GPU: the windows of a convolution over time, against a loop in torch."""

import pytest
from needs import need_module

torch = need_module("torch")

from kernel_problem import LIB, ON, make_mask, unset  # noqa: E402

# N, T, C, window
SIZES = [(2, 9, 5, 3), (3, 300, 7, 4), (1, 2, 300, 6), (2, 5, 3, 1), (2, 0, 3, 2)]


def loop(x, before, window, reverse, mask):
    """seen and after. The window of a masked step is 0, and no window holds a masked step."""
    n, t, c = x.shape
    rows, left = [], []
    for row in range(n):
        last, seen = list(before[row]), [x.new_zeros(window, c)] * t
        for step in range(t - 1, -1, -1) if reverse else range(t):
            if mask is None or mask[row, step]:
                last.append(x[row, step])
                seen[step] = torch.stack(last)
                last.pop(0)
        rows.append(torch.stack(seen) if seen else x.new_zeros(0, window, c))
        left.append(torch.stack(last) if last else x.new_zeros(0, c))
    return torch.stack(rows), torch.stack(left)


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("pattern", [None, "holes", "none live", "left"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_windows_and_their_gradient(dtype, size, pattern, reverse):
    n, t, c, window = size
    if pattern is not None and t == 0:
        pytest.skip("no step to mask")
    generator = torch.Generator().manual_seed(11)

    def whole(*shape):  # numbers whose sums are exact in every dtype
        return torch.randint(-4, 5, shape, generator=generator).double()

    x = whole(n, t, c).requires_grad_()
    before = whole(n, window - 1, c).requires_grad_()
    dseen, dafter = whole(n, t, window, c), whole(n, window - 1, c)
    mask = None if pattern is None else make_mask(pattern, n, t)
    seen, after = loop(x, before, window, reverse, mask)
    loss = (seen * dseen).sum() + (after * dafter).sum() + 0 * (x.sum() + before.sum())
    wanted = torch.autograd.grad(loss, (x, before))

    def there(tensor):
        return tensor.detach().to(ON, dtype).contiguous()

    spoilt = x if mask is None else torch.where(mask[..., None] != 0, x, torch.nan)
    live = None if mask is None else mask.to(ON, torch.uint8).contiguous()
    found = {"seen": unset(seen.detach().to(dtype)), "after": unset(after.detach().to(dtype))}
    LIB.windows(window, reverse, live, x=there(spoilt), before=there(before), **found)
    found |= {"dx": unset(x.detach().to(dtype)), "dbefore": unset(before.detach().to(dtype))}
    LIB.windows_grad(
        window,
        reverse,
        live,
        dseen=there(dseen),
        dafter=there(dafter),
        dx=found["dx"],
        dbefore=found["dbefore"],
    )
    expected = {"seen": seen, "after": after}
    expected |= dict(zip(("dx", "dbefore"), wanted, strict=True))
    for name, tensor in expected.items():
        assert torch.equal(found[name].double().cpu(), tensor), name
