"""The sides of `benchmarks.gpu`: a layer around libhaste's recurrence, and cuDNN's by torch.

Shapes are those of lib/include/haste/c_api.h; weights of both are in our order of gates and lanes:
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
        """dx and the gradients of kernel, recurrent kernel, bias and, if separate, h·R's bias."""
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
    """A layer by haste_layer_*, as TensorFlow's layers do; without an input the recurrence alone.

    For a recurrence alone, torch computes dR and the bias's gradient.
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
        if x is None:
            self.inference_scratch = library.workspace(self.inference, False)
            return
        self.layer_scratch = [self._layer_scratch(self.config, b) for b in (False, True)]
        self.inference_scratch = self._layer_scratch(self.inference, False)
        like = {"dx": x, "dW": self.kernel, "dR": self.recurrent, "db": self.bias}
        self.gradients = {name: torch.empty_like(of) for name, of in like.items()}

    def _layer_scratch(self, config, backward):
        wx = None if backward else self.wx
        return self.library.layer_workspace(config, self.x.shape[-1], wx, backward=backward)

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
        """libhaste's description of the engine that runs this."""
        return self.library.plan(self.config)

    def _forward(self, config, recurrence_scratch, layer_scratch, **reserve):
        given = {"y": self.y, **self.given, **reserve}
        if layer_scratch is None:
            self.library.forward(
                config, self.wx, self.recurrent, workspace=recurrence_scratch, **given
            )
        else:
            operands = (self.x, self.kernel, self.bias, self.recurrent)
            self.library.layer_forward(
                config, *operands, wx=self.wx, workspace=layer_scratch, **given
            )

    def _reserve(self):
        return {"gates": self.gates, "saved": self.saved}

    def recur(self):
        self._forward(self.config, self.scratch[0], None, **self._reserve())

    def infer(self):
        layer = None if self.x is None else self.inference_scratch
        self._forward(self.inference, self.inference_scratch, layer)

    def forward(self):
        if self.x is None:
            return self.recur()
        return self._forward(self.config, None, self.layer_scratch[0], **self._reserve())

    def _gradients(self, dy):
        made = {"dy": dy, "dwx": self.dwx, "dq": self.dq, "dextra": self.dextra}
        return {**self._reserve(), **made, **self.given}

    def recur_back(self, dy):
        self.library.backward(
            self.config, self.recurrent, workspace=self.scratch[1], **self._gradients(dy)
        )

    def gradient_of_r(self, rows=slice(None)):
        """dR [K, H, G, H] by torch, of all or some rows of the batch."""
        lanes, hidden, gates, _ = self.recurrent.shape
        dq = (self.dwx if self.dq is None else self.dq)[rows].flatten(0, 1)
        split = self.info.reset_gates or gates
        parts = [(self.saved[0], dq[:, :, :split])]
        if split < gates:
            parts.append((self.saved[1], dq[:, :, split:]))
        products = [
            torch.matmul(
                operand[rows].flatten(0, 1).permute(1, 2, 0), part.flatten(2).transpose(0, 1)
            ).view(lanes, hidden, -1, hidden)
            for operand, part in parts
        ]
        return products[0] if len(products) == 1 else torch.cat(products, 2)

    def step(self, dy):
        """Forward, backward, and all gradients, in the order of Cudnn.gradients."""
        self.forward()
        if self.x is None:
            self.recur_back(dy)
            bias = self.dwx.flatten(2).flatten(0, 1).sum(0)
            return [self.gradient_of_r(), bias, *self.dextra]
        self.library.layer_backward(
            self.config,
            self.x,
            self.kernel,
            self.recurrent,
            gradients=self.gradients,
            workspace=self.layer_scratch[1],
            **self._gradients(dy),
        )
        return [*self.gradients.values(), *self.dextra]


def random_weights(info, case, device, dtype):
    """Like Cudnn.weights, for cells that cuDNN does not have."""
    lanes, gates, hidden = case.K, info.gates, case.H
    units = (lanes, gates, hidden)
    kernel = torch.randn(case.C, lanes * gates * hidden, device=device) * hidden**-0.5
    recurrent = torch.randn(lanes, hidden, gates, hidden, device=device) * hidden**-0.5
    bias = torch.randn(lanes * gates * hidden, device=device)
    extra = [torch.randn(units, device=device) for _ in range(info.extras)]
    return [w.to(dtype) for w in (kernel, recurrent, bias, *extra)]
