"""Layer-normalised cells, run by libhaste with random inputs, as in kernel_problem.py."""

import copy

import torch
from kernel_problem import LIB, NAN, ON, SEED


def random(*shape, scale=1):
    return torch.randn(*shape, dtype=torch.float64) * scale


class Normalised:
    """A forward and a backward pass of a cell that normalises h·R."""

    def __init__(self, cell, size, dtype, mask, **options):
        n, t, k, h = size
        self.info = LIB.cell(cell)
        gates, extras = self.info.gates, self.info.extras
        dims = [self.info.extra_dims[i].decode() for i in range(extras)]
        sizes = {"K": k, "G": gates, "H": h}
        torch.manual_seed(5)
        self.dtype, self.mask, self.options = dtype, mask, options
        self.wx = random(n, t, k, gates, h).to(ON, dtype)
        self.kernel = random(k, h, gates, h, scale=h**-0.5).to(ON, dtype)
        self.extra = [0.3 + random(*(sizes[d] for d in dim)).to(ON, dtype) / 8 for dim in dims]
        self.states = [random(n, k, h).to(ON, dtype) for _ in range(self.info.states)]
        self.dy = random(n, t, k, h).to(ON, dtype)

    def exact(self):
        """The same problem, of the same numbers, in float64."""
        other = copy.copy(self)
        other.dtype = torch.float64
        for name in ("wx", "kernel", "dy"):
            setattr(other, name, getattr(self, name).double())
        other.extra, other.states = ([x.double() for x in e] for e in (self.extra, self.states))
        return other

    def config(self, engine, library=LIB):
        cell, options = self.info.name.decode(), {"training": 1, "epsilon": 1e-3, **self.options}
        return library.config(cell, self.wx.to(library.device), engine=engine, **options)

    def run(self, engine, times=1, library=LIB, alias=False, place=None, initial_gradients=True):
        """The results of the last of `times` passes, which all write the same memory.

        alias: gates take wx's memory, dwx the gates', and dq that of the products. place: called
        with each tensor that has a time, returns one like it.
        """
        on = library.device
        place = place or (lambda tensor: tensor)

        def unset(like):
            return torch.full_like(like, NAN, device=on)

        kernel = self.kernel.to(on)
        dy = place(self.dy.to(on))
        extra, states = ([x.to(on) for x in each] for each in (self.extra, self.states))
        config = self.config(engine, library)
        assert f"on {engine}" in library.plan(config)
        mask = None if self.mask is None else self.mask.to(torch.uint8).to(on)
        seed = torch.tensor(SEED, dtype=torch.int64, device=on)
        wx = place(self.wx.to(on, copy=True))
        gates, products = wx if alias else place(unset(wx)), place(unset(wx))
        given = {"extra": extra, "mask": mask, "seed": seed, "gates": gates}
        given |= {
            "products": products,
            "saved": [place(unset(dy)) for _ in range(library.saved(config))],
        }
        outputs = {"y": place(unset(dy)), "sT": [unset(s) for s in states]}
        gradients = {"dwx": gates, "dq": products}
        if not alias:
            gradients = {name: place(unset(wx)) for name in gradients}
        gradients |= {"dextra": [unset(e) for e in extra]}
        gradients |= {"ds0": [unset(s) if initial_gradients else None for s in states]}
        scratch = [library.workspace(config, backward) for backward in (False, True)]
        results = {}
        for name, value in {**outputs, **gradients}.items():
            tensors = value if isinstance(value, list) else [value]
            results |= {f"{name}{i}": t for i, t in enumerate(tensors) if t is not None}
        for _ in range(times):
            for tensor in results.values():
                tensor.fill_(NAN)
            if alias:
                wx.copy_(self.wx)
            first = {"s0": states, **outputs, **given}
            library.forward(config, wx, kernel, workspace=scratch[0], **first)
            last = {"dy": dy, "dsT": states, **gradients, **given}
            library.backward(config, kernel, workspace=scratch[1], **last)
        torch.cuda.synchronize()
        return results
