"""Scans for the tests of the C ABI: random inputs, run by libhaste and by the reference.

It shares the helpers of kernel_problem.py. Memory that is not written yet is NaN.
"""

import scan_reference
import torch
from kernel_problem import LIB, NAN, ON, SEED, assert_near, there, unset

CELLS = list(scan_reference.CELLS)


class ScanProblem:
    """One scan with random inputs, run by ours and by the reference."""

    def __init__(self, cell, n, t, k, h, dtype=torch.float32, mask=None, initial=True, **options):
        generator = torch.Generator().manual_seed(n * 1000003 + t * 1009 + k * 101 + h)

        def random(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.cell, self.spec, self.info = cell, scan_reference.CELLS[cell], LIB.cell(cell)
        self.dtype, self.options, self.mask = dtype, options, mask
        wx = random(n, t, k, self.spec.gates, h)
        if self.spec.separate_gates:
            wx[..., 0, :] = torch.sigmoid(wx[..., 0, :])  # a share
        self.wx = wx.to(dtype)
        self.u = random(k, self.spec.gates, h).mul(0.5).to(dtype) if self.spec.diagonal else None
        self.s0 = random(n, k, h).to(dtype) if initial else None
        self.dy, self.ds = random(n, t, k, h).to(dtype), random(n, k, h).to(dtype)
        self.names = ("y", "s", "dwx", "ds0", "du")[: 5 if self.spec.diagonal else 4]

    def reference(self):
        """Outputs, final state, and gradients of wx, the initial state and u."""
        s0 = torch.zeros_like(self.ds) if self.s0 is None else self.s0
        inputs = (self.wx, s0) if self.u is None else (self.wx, s0, self.u)
        wide = [x.double().requires_grad_() for x in inputs]
        options = {"mask": self.mask, "seed": SEED, **self.options}
        y, s = scan_reference.run(self.cell, *wide, **options)
        loss = (y * self.dy.double()).sum() + (s * self.ds.double()).sum()
        gradients = torch.autograd.grad(loss, wide, materialize_grads=True)
        return dict(zip(self.names, (y.detach(), s.detach(), *gradients), strict=True))

    def run(self, alias=False, offset=0):
        """The same by libhaste.

        Args:
            alias: gates take wx's memory and dwx the gates'; of separate gates, dx that of x.
            offset: elements by which every tensor lies off the alignment of its allocation.
        """

        def placed(tensor):
            memory = torch.full((tensor.numel() + offset,), NAN, dtype=tensor.dtype, device=ON)
            moved = memory[offset:].view(tensor.shape)
            return moved.copy_(tensor)

        def fresh(like):
            return placed(unset(like))

        masked = None if self.mask is None else (~self.mask).to(ON)
        wx = placed(self.wx.to(ON))
        if masked is not None:
            wx[masked] = NAN
        x = [placed(wx[..., g, :]) for g in range(self.spec.gates)]
        mask = None if self.mask is None else self.mask.to(torch.uint8).to(ON)
        given = {"mask": mask, "seed": torch.tensor(SEED, dtype=torch.int64, device=ON)}
        config = LIB.config(self.cell, self.wx, **self.options)
        u, s0, dst = there([self.u, self.s0, self.ds])
        y, final, saved, ds0 = fresh(self.dy), unset(self.ds), fresh(self.dy), unset(self.ds)
        gates = wx if alias else fresh(wx)  # any tensor asks for the reserve
        apart = {"x": x} if self.spec.separate_gates else {}
        scratch = LIB.workspace(config, backward=False)
        kept = {"gates": gates, "saved": [saved]}
        LIB.forward(
            config, wx, u, y=y, s0=[s0], sT=[final], workspace=scratch, **given, **kept, **apart
        )
        if masked is not None:
            saved[masked] = NAN
            if not self.spec.separate_gates:
                gates[masked] = NAN
        dwx = gates if alias else fresh(wx)
        if self.spec.separate_gates:
            apart["dx"] = x if alias else [fresh(each) for each in x]
        du = None if u is None else unset(self.u)
        scratch = LIB.workspace(config, backward=True)
        given |= {**kept, **apart, "dy": placed(self.dy.to(ON)), "dsT": [dst], "ds0": [ds0]}
        LIB.backward(config, u, dwx=dwx, dR=du, workspace=scratch, **given)
        if ON == "cuda":
            torch.cuda.synchronize()
        if self.spec.separate_gates:
            dwx = torch.stack(apart["dx"], 3)
        if masked is not None:
            assert (dwx[masked] == 0).all(), "dwx at masked steps"
        ours = (y, final, dwx, ds0, du)
        return dict(zip(self.names, ours[: len(self.names)], strict=True))

    def check(self, **how):
        ours, reference = self.run(**how), self.reference()
        for name, expected in reference.items():
            assert_near(ours[name], expected, self.dtype, name)
