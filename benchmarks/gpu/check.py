"""Whether a case computes the right numbers, before `benchmarks.gpu` times it.

Outputs and all gradients are compared with cuDNN's. Where cuDNN has no such layer, or differs, two
rows of the batch are compared with the float64 reference of the tests. Errors are in the norm.
"""

import torch

from tests.gpu.support import cell_reference

# For T dependent steps, each rounded to the dtype. Against cuDNN both sides have errors.
TOLERANCE = {
    "float32": 1e-4,
    "tf32": 2e-2,
    "float64": 1e-10,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}
ROWS = slice(0, 2)


class WrongResultError(Exception):
    """A result that differs from the reference's: nothing to time."""


def error_of(ours, theirs):
    """The largest ‖a − b‖ / ‖b‖ of the pairs; inf where one is not a number."""
    pairs = zip(ours, theirs, strict=True)
    errors = torch.stack(
        [(a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30) for a, b in pairs]
    )
    return errors.nan_to_num(nan=torch.inf).max().item()


def against_cudnn(haste, cudnn, dy):
    split_bias = haste.info.extras > 0
    gradients = haste.step(dy)
    cudnn.step(dy.flatten(2))
    theirs = [cudnn.forward().detach().reshape(haste.y.shape), *cudnn.gradients(split_bias)]
    return error_of([haste.y, *gradients], theirs)


def against_reference(haste, dy):
    """The errors of y, dwx and dR, at `ROWS` of the first and the last lane.

    In 16 bits x·W is rounded where it is stored, and some engines round h where it enters the
    product. Exponents add up these errors (to 0.1 of the norm in 1024 steps), so an exponential
    cell is compared with the nearer of two references, one of which rounds both.
    """
    haste.step(dy)
    dtype = haste.y.dtype
    rounds = haste.info.exponential and dtype.itemsize == 2
    choices = [None, dtype] if rounds else [None]
    return min(_error_of_lanes(haste, dy, rounded) for rounded in choices)


def _error_of_lanes(haste, dy, rounded):
    """After haste.step. rounded: the dtype to which the reference rounds x·W and h, or None."""
    case = haste.case
    if haste.x is None:
        wx = haste.wx[ROWS].double()
    else:
        flat = haste.x[ROWS].double() @ haste.kernel.double() + haste.bias.double()
        wx = flat.to(rounded).double() if rounded else flat
        wx = wx.view(-1, *haste.wx.shape[1:])
    recurrent = haste.gradient_of_r(ROWS)
    options = {k: v for k, v in case.options.items() if k not in ("allow_tf32", "reverse")}
    options["product_dtype"] = rounded
    if "seed" in haste.given:  # draws count lanes: of cases with one lane only
        options["seed"] = haste.given["seed"].tolist()
        options["mask"] = haste.given["mask"][ROWS].bool()
    errors = []
    for lane in sorted({0, case.K - 1}):
        one = slice(lane, lane + 1)
        inputs = [wx[:, :, one], haste.recurrent[one].double()]
        inputs = [v.clone().requires_grad_() for v in inputs]
        extra = [e[one].double() for e in haste.extra]
        reverse = case.options.get("reverse", [0] * case.K)[one]
        with torch.device(wx.device):
            zeros = torch.zeros(wx.shape[0], 1, case.H, dtype=torch.float64)
            s0 = [zeros for _ in cell_reference.CELLS[case.cell].states]
            y, _ = cell_reference.run(case.cell, *inputs, s0, *extra, reverse=reverse, **options)
        loss = (y * dy[ROWS, :, one].double()).sum()
        theirs = [y.detach(), *torch.autograd.grad(loss, inputs)]
        ours = [haste.y[ROWS, :, one], haste.dwx[ROWS, :, one], recurrent[one]]
        errors.append(error_of(ours, theirs))
    return max(errors)


def check(haste, cudnn, dy):
    """Returns (error, name of the reference); raises WrongResultError."""
    tolerance = TOLERANCE[haste.case.dtype]
    note = ""
    if cudnn is not None:
        error = against_cudnn(haste, cudnn, dy)
        if error <= tolerance:
            return error, "cuDNN"
        note = f" (cuDNN differs by {error:.1e})"
    error = against_reference(haste, dy)
    if error <= tolerance:
        return error, "float64" + note
    raise WrongResultError(f"error {error:.1e} against float64{note}, {tolerance:.0e} allowed")
