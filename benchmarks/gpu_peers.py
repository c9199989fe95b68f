"""What `benchmarks.gpu` compares: a layer around libhaste's recurrence, and cuDNN's by torch.

Shapes are those of lib/haste/c_api.h; weights of both are in our order of gates and lanes:
kernel [C, K·G·H], recurrent kernel [K, H, G, H], bias [K·G·H], and of h·R [K, G, H] where a cell
has one.
"""

import torch

# The layer, and where it has each of our gates.
CUDNN = {
    "lstm": (torch.nn.LSTM, (0, 1, 2, 3)),
    "gru": (torch.nn.GRU, (1, 0, 2)),  # torch: r, z, n
    "elman": (torch.nn.RNN, (0,)),
}


def cudnn_has(case):
    """Whether cuDNN computes what `case` asks for."""
    return case.cell in CUDNN and case.C > 0 and case.feature != "regularised"


class Cudnn:
    """A layer of torch's: of cuDNN on a GPU."""

    def __init__(self, case, x):
        kind, self.order = CUDNN[case.cell]
        self.x = x.detach().requires_grad_()
        self.directions = ["", "_reverse"] if case.feature == "bidirectional" else [""]
        self.layer = kind(
            x.shape[-1],
            case.H,
            batch_first=True,
            bidirectional=len(self.directions) == 2,
            device=x.device,
            dtype=x.dtype,
        )
        self.layer.flatten_parameters()

    def _gates(self, of, name):
        """A parameter, or its gradient: a list of [G, H, ...], one for each lane, our order."""
        for direction in self.directions:
            value = of(getattr(self.layer, f"{name}_l0{direction}"))
            yield value.view(len(self.order), self.layer.hidden_size, -1)[list(self.order)]

    def _ordered(self, of):
        kernel = [v.flatten(0, 1).T for v in self._gates(of, "weight_ih")]
        recurrent = [v.permute(2, 0, 1) for v in self._gates(of, "weight_hh")]
        biases = [
            torch.stack([v.squeeze(-1) for v in self._gates(of, name)])
            for name in ("bias_ih", "bias_hh")
        ]
        return [torch.cat(kernel, 1), torch.stack(recurrent), *biases]

    def weights(self, split_bias):
        kernel, recurrent, of_x, of_h = self._ordered(lambda p: p.detach())
        biases = [of_x.flatten(), of_h] if split_bias else [(of_x + of_h).flatten()]
        return [kernel.contiguous(), recurrent.contiguous(), *biases]

    def gradients(self, split_bias):
        """dx, of the kernel, the recurrent kernel, the bias, and of h·R's where it is apart."""
        kernel, recurrent, of_x, of_h = self._ordered(lambda p: p.grad)
        return [self.x.grad, kernel, recurrent, of_x.flatten(), *([of_h] * split_bias)]

    def infer(self):
        self.layer.eval()
        with torch.no_grad():
            return self.layer(self.x)[0]

    def forward(self):
        self.layer.train()
        return self.layer(self.x)[0]

    def step(self, dy):
        self.layer.zero_grad()
        self.x.grad = None
        self.forward().backward(dy)


class Haste:
    """A layer: the recurrence by libhaste, products that see all steps as TensorFlow's layers.

    Those of exact floats that libhaste makes of parts are its own (haste_keras/_matmul.py), others
    torch's: by cuBLAS, as libhaste's are.
    """

    def __init__(self, library, case, x, weights, engine="auto"):
        self.library, self.case, self.x = library, case, x
        self.info = library.cell(case.cell)
        self.kernel, self.recurrent, self.bias, *self.extra = weights
        lanes, hidden, gates, _ = self.recurrent.shape
        n, t = case.N, case.T
        self.gates = self.recurrent.new_empty(n, t, lanes, gates, hidden)
        # Projected in place; without a projection the input of a run is that of the next one.
        self.wx = torch.randn_like(self.gates) if x is None else self.gates
        self.y = self.gates.new_empty(n, t, lanes, hidden)
        self.saved = [torch.empty_like(self.y) for _ in range(self.info.saved)]
        self.dwx = torch.empty_like(self.gates) if x is None else self.gates
        self.dq = torch.empty_like(self.gates) if self.info.splits_gradient else None
        self.dextra = [torch.empty_like(e) for e in self.extra]
        self.given = {"extra": self.extra, **self._drawn()}
        options = {"engine": engine, **case.options}
        self.config = library.config(case.cell, self.gates, **options)
        self.inference = library.config(case.cell, self.gates, **{**options, "training": 0})
        self.scratch = [library.workspace(self.config, backward) for backward in (False, True)]
        self.inference_scratch = library.workspace(self.inference, False)
        self.rooms = {}

    def _drawn(self):
        """mask [N, T] of sequences of T/2 to T steps, and seed, for the case that has them."""
        if self.case.feature != "regularised":
            return {}
        device, t = self.gates.device, self.case.T
        lengths = torch.linspace(t // 2, t, self.case.N, device=device).long()
        mask = torch.arange(t, device=device) < lengths[:, None]
        seed = torch.tensor([20, 26], dtype=torch.int64, device=device)
        return {"mask": mask.to(torch.uint8), "seed": seed}

    def plan(self):
        """What libhaste says of the engine that runs this."""
        return self.library.plan(self.config)

    def _multiply(self, a, b, out, bias=None):
        """out = a·b + bias."""
        room = self._room_for(a, b)
        if room is not None:
            self.library.gemm(a, b, out, bias, workspace=room)
        elif bias is None:
            torch.mm(a, b, out=out)
        else:
            torch.addmm(bias, a, b, out=out)

    def _room_for(self, a, b):
        """What libhaste works in, made once for each product; None: torch multiplies."""
        if self.case.dtype != "float32":
            return None
        key = (a.shape, a.stride(), b.shape, b.stride())
        if key not in self.rooms:
            size = self.library.gemm_workspace(a, b)
            room = torch.empty(size, dtype=torch.uint8, device=a.device) if size else None
            self.rooms[key] = room
        return self.rooms[key]

    def _product(self, a, b):
        out = a.new_empty(a.shape[0], b.shape[1])
        self._multiply(a, b, out)
        return out

    def project(self):
        if self.x is not None:
            rows = self.wx.flatten(2).flatten(0, 1)
            self._multiply(self.x.flatten(0, 1), self.kernel, rows, self.bias)

    def _recur(self, config, workspace, **reserve):
        given = {**self.given, **reserve}
        self.library.forward(
            config, self.wx, self.recurrent, y=self.y, workspace=workspace, **given
        )

    def recur(self):
        self._recur(self.config, self.scratch[0], gates=self.gates, saved=self.saved)

    def infer(self):
        self.project()
        self._recur(self.inference, self.inference_scratch)

    def forward(self):
        self.project()
        self.recur()

    def recur_back(self, dy):
        self.library.backward(
            self.config,
            self.recurrent,
            gates=self.gates,
            saved=self.saved,
            dy=dy,
            dwx=self.dwx,
            dq=self.dq,
            dextra=self.dextra,
            workspace=self.scratch[1],
            **self.given,
        )

    def gradient_of_r(self, rows=slice(None)):
        """dR [K, H, G, H], of all or some rows of the batch."""
        lanes, hidden, gates, _ = self.recurrent.shape
        dq = (self.dwx if self.dq is None else self.dq)[rows].flatten(0, 1)
        split = self.info.reset_gates or gates
        parts = [(self.saved[0], dq[:, :, :split])]
        if split < gates:
            parts.append((self.saved[1], dq[:, :, split:]))
        products = [
            self._lane_products(
                operand[rows].flatten(0, 1).permute(1, 2, 0), part.flatten(2).transpose(0, 1)
            ).view(lanes, hidden, -1, hidden)
            for operand, part in parts
        ]
        return products[0] if len(products) == 1 else torch.cat(products, 2)

    def _lane_products(self, h, d):
        """[K, H, N·T] · [K, N·T, G·H]."""
        if self.case.dtype != "float32":
            return torch.matmul(h, d)
        return torch.stack([self._product(a, b) for a, b in zip(h, d, strict=True)])

    def step(self, dy):
        """Forward, backward, and all gradients, in the order of Cudnn.gradients."""
        self.forward()
        self.recur_back(dy)
        dwx = self.dwx.flatten(2).flatten(0, 1)
        recurrent = self.gradient_of_r()
        if self.x is None:
            return [recurrent, dwx.sum(0), *self.dextra]
        x = self.x.flatten(0, 1)
        dx = self._product(dwx, self.kernel.T).view_as(self.x)
        return [dx, self._product(x.T, dwx), recurrent, dwx.sum(0), *self.dextra]


def random_weights(info, case, device, dtype):
    """As Cudnn.weights, for what cuDNN has not."""
    lanes, gates, hidden = case.K, info.gates, case.H
    units = (lanes, gates, hidden)
    kernel = torch.randn(case.C, lanes * gates * hidden, device=device) * hidden**-0.5
    recurrent = torch.randn(lanes, hidden, gates, hidden, device=device) * hidden**-0.5
    bias = torch.randn(lanes * gates * hidden, device=device)
    extra = [torch.randn(units, device=device) for _ in range(info.extras)]
    return [w.to(dtype) for w in (kernel, recurrent, bias, *extra)]
