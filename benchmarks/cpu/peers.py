"""Recurrent layers of PyTorch and ONNX Runtime on the CPU, with the weights of a Keras layer.

Both get their own layout, [T, N, C], and as many threads as there are cores. Neither package is
needed to run haste_keras: requirements-bench.txt has them.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable

import numpy as np

# Order of the gates in the kernels of each, as places among those of Keras.
_TORCH_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2), "Elman": (0,)}
_ONNX_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (0, 1, 2), "Elman": (0,)}
_OPERATORS = {"LSTM": "LSTM", "GRU": "GRU", "Elman": "RNN"}  # of both


@dataclasses.dataclass(frozen=True)
class Peer:
    """What is timed: `infer`, and `train` where there is one; each returns what its `to_keras`
    turns into the arrays of benchmarks.cases.make_functions."""

    infer: Callable
    infer_to_keras: Callable
    train: Callable | None = None
    train_to_keras: Callable | None = None

    def of(self, kind):
        """(function, its to_keras) of "inference" or "training"; (None, None) if there is none."""
        if kind == "inference":
            return self.infer, self.infer_to_keras
        return self.train, self.train_to_keras


def in_keras_layout(function, to_keras):
    """The results of a peer as those of Keras lie."""
    return to_keras(function())


def versions():
    """ "name version" of the peers that are installed."""
    packages = {"torch": "torch", "ort": "onnxruntime"}
    return [f"{packages[who]} {importlib.metadata.version(packages[who])}" for who in installed()]


def installed():
    """{name: function that makes it} of the peers that are installed."""
    packages = {"torch": ("torch",), "ort": ("onnx", "onnxruntime")}
    makers = {"torch": _make_torch, "ort": _make_onnxruntime}
    return {
        name: makers[name]
        for name, needs in packages.items()
        if all(importlib.util.find_spec(package) for package in needs)
    }


def knows(name):
    """Whether they have the layer."""
    return name in _OPERATORS


def _by_gate(kernel, order):
    """[..., G·H] of Keras → [G·H, ...] with the gates in another order."""
    gates = np.split(kernel, len(order), axis=-1)
    return np.ascontiguousarray(np.concatenate([gates[g] for g in order], axis=-1).T)


def _to_keras(kernel, order):
    """The inverse of `_by_gate`."""
    gates = np.split(kernel.T, len(order), axis=-1)
    return np.concatenate([gates[order.index(g)] for g in range(len(order))], axis=-1)


def _biases(bias, order):
    """Of the input and of the state; only Keras's GRU has both."""
    first, second = bias if bias.ndim == 2 else (bias, np.zeros_like(bias))
    return _by_gate(first, order), _by_gate(second, order)


def torch_layer(name, weights):
    """torch.nn's layer; weights: kernel, recurrent kernel, bias of Keras."""
    import torch

    torch.set_num_threads(os.cpu_count())
    order = _TORCH_GATES[name]
    kernel, recurrent_kernel, bias = weights
    features, hidden = kernel.shape[0], recurrent_kernel.shape[0]
    layer = getattr(torch.nn, _OPERATORS[name])(features, hidden)
    values = [_by_gate(kernel, order), _by_gate(recurrent_kernel, order), *_biases(bias, order)]
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return layer


def _make_torch(name, weights, x, target):
    """As `torch_layer`; x [N, T, C], target [N, T, H]."""
    import torch

    layer = torch_layer(name, weights)
    order, bias = _TORCH_GATES[name], weights[2]
    x = torch.from_numpy(np.ascontiguousarray(x.swapaxes(0, 1)))
    target = torch.from_numpy(np.ascontiguousarray(target.swapaxes(0, 1)))
    watched = x.clone().requires_grad_()

    def infer():
        with torch.inference_mode():
            return layer(x)[0]

    def train():
        loss = (layer(watched)[0] * target).sum()
        return torch.autograd.grad(loss, [watched, *layer.parameters()])

    def gradients(results):
        dx, *rest = (result.numpy() for result in results)
        dkernel, drecurrent, dbias, drecurrent_bias = (_to_keras(each, order) for each in rest)
        dbias = np.stack([dbias, drecurrent_bias]) if bias.ndim == 2 else dbias
        return [dx.swapaxes(0, 1), dkernel, drecurrent, dbias]

    return Peer(infer, lambda y: [y.numpy().swapaxes(0, 1)], train, gradients)


def onnx_model(name, weights, x):
    """A model of the one operator; arguments as of `_make_torch`."""
    import onnx

    order = _ONNX_GATES[name]
    kernel, recurrent_kernel, bias = weights
    hidden = recurrent_kernel.shape[0]
    parameters = {
        "W": _by_gate(kernel, order),
        "R": _by_gate(recurrent_kernel, order),
        "B": np.concatenate(_biases(bias, order)),
    }
    # Keras resets after the product: ONNX calls this linear_before_reset.
    attributes = {"linear_before_reset": 1} if name == "GRU" else {}
    node = onnx.helper.make_node(
        _OPERATORS[name], ["X", *parameters], ["Y"], hidden_size=hidden, **attributes
    )
    n, t, c = x.shape

    def tensor(value, shape):
        return onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, shape)

    graph = onnx.helper.make_graph(
        [node],
        name,
        [tensor("X", [t, n, c])],
        [tensor("Y", [t, 1, n, hidden])],
        [onnx.numpy_helper.from_array(value[None], key) for key, value in parameters.items()],
    )
    # Versions that every ONNX Runtime of the last years reads.
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8
    )


def onnx_session(model):
    """What runs an ONNX model, given as bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    # Its threads spin for a while after a run, which would slow down the next measurement.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _make_onnxruntime(name, weights, x, target):
    """Inference only; arguments as of `_make_torch`."""
    del target
    session = onnx_session(onnx_model(name, weights, x).SerializeToString())
    feed = {"X": np.ascontiguousarray(x.swapaxes(0, 1))}
    return Peer(lambda: session.run(None, feed)[0], lambda y: [y[:, 0].swapaxes(0, 1)])
