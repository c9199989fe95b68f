"""Layer-normalised cells, run by libhaste with random inputs, as in kernel_problem.py."""

import torch
from kernel_problem import LIB, NAN, ON, SEED, unset


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

    def run(self, engine, times=1):
        """The results of the last of `times` passes, which all write the same memory."""
        cell, info = self.info.name.decode(), self.info
        options = {"engine": engine, "training": 1, "epsilon": 1e-3, **self.options}
        config = LIB.config(cell, self.wx, **options)
        assert f"on {engine}" in LIB.plan(config)
        mask = None if self.mask is None else self.mask.to(torch.uint8).to(ON)
        seed = torch.tensor(SEED, dtype=torch.int64, device=ON)
        gates, products = unset(self.wx), unset(self.wx)
        given = {"extra": self.extra, "mask": mask, "seed": seed, "gates": gates}
        given |= {"products": products, "saved": [unset(self.dy) for _ in range(info.saved)]}
        outputs = {"y": unset(self.dy), "sT": [unset(s) for s in self.states]}
        gradients = {"dwx": unset(self.wx), "dq": unset(self.wx)}
        gradients |= {"dextra": [unset(e) for e in self.extra]}
        gradients |= {"ds0": [unset(s) for s in self.states]}
        scratch = [LIB.workspace(config, backward) for backward in (False, True)]
        results = {}
        for name, value in {**outputs, **gradients}.items():
            tensors = value if isinstance(value, list) else [value]
            results |= {f"{name}{i}": tensor for i, tensor in enumerate(tensors)}
        for _ in range(times):
            for tensor in results.values():
                tensor.fill_(NAN)
            first = {"s0": self.states, **outputs, **given}
            LIB.forward(config, self.wx, self.kernel, workspace=scratch[0], **first)
            last = {"dy": self.dy, "dsT": self.states, **gradients, **given}
            LIB.backward(config, self.kernel, workspace=scratch[1], **last)
        torch.cuda.synchronize()
        return results
