"""Layer-normalised cells, run by libhaste with random inputs, as in kernel_problem.py."""

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

    def run(self, engine, times=1, library=LIB):
        """The results of the last of `times` passes, which all write the same memory."""
        on, cell = library.device, self.info.name.decode()

        def unset(like):
            return torch.full_like(like, NAN, device=on)

        wx, kernel, dy = (tensor.to(on) for tensor in (self.wx, self.kernel, self.dy))
        extra, states = ([x.to(on) for x in each] for each in (self.extra, self.states))
        options = {"engine": engine, "training": 1, "epsilon": 1e-3, **self.options}
        config = library.config(cell, wx, **options)
        assert f"on {engine}" in library.plan(config)
        mask = None if self.mask is None else self.mask.to(torch.uint8).to(on)
        seed = torch.tensor(SEED, dtype=torch.int64, device=on)
        gates, products = unset(wx), unset(wx)
        given = {"extra": extra, "mask": mask, "seed": seed, "gates": gates}
        given |= {"products": products, "saved": [unset(dy) for _ in range(library.saved(config))]}
        outputs = {"y": unset(dy), "sT": [unset(s) for s in states]}
        gradients = {"dwx": unset(wx), "dq": unset(wx)}
        gradients |= {"dextra": [unset(e) for e in extra]}
        gradients |= {"ds0": [unset(s) for s in states]}
        scratch = [library.workspace(config, backward) for backward in (False, True)]
        results = {}
        for name, value in {**outputs, **gradients}.items():
            tensors = value if isinstance(value, list) else [value]
            results |= {f"{name}{i}": tensor for i, tensor in enumerate(tensors)}
        for _ in range(times):
            for tensor in results.values():
                tensor.fill_(NAN)
            first = {"s0": states, **outputs, **given}
            library.forward(config, wx, kernel, workspace=scratch[0], **first)
            last = {"dy": dy, "dsT": states, **gradients, **given}
            library.backward(config, kernel, workspace=scratch[1], **last)
        torch.cuda.synchronize()
        return results
