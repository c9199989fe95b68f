"""Small batches in inference, as a server or a stream sees them: `benchmarks.cpu --small`.

A call of a few microseconds is mostly what calls it. So two more times are in the table: `call`, a
tf.function that returns its input, which is the least that a layer in a tf.function can take; and
`engine`, our library through its C API, with no TensorFlow, as PyTorch and ONNX Runtime run here.
"""

import ctypes
import functools

import numpy as np
import tensorflow as tf

from benchmarks import cases, measure
from benchmarks.cpu import peers
from haste_keras.native import binding, library

CELLS = {"LSTM": b"lstm", "GRU": b"gru"}
HEADER = "layer        N    T    C    H |  ours µs    call  engine   torch     ort | ours  engine"


class Engine:
    """A layer through the C API on the CPU, on threads of the library's own.

    Args:
      name: of `CELLS`.
      weights: kernel, recurrent kernel and bias of a Keras layer, float32.
      x: [N, T, C], float32.
    """

    def __init__(self, name, weights, x):
        kernel, recurrent_kernel, bias = (np.ascontiguousarray(weight) for weight in weights)
        n, t, c = x.shape
        hidden = recurrent_kernel.shape[0]
        self._library = library.c_api()
        self._reverse = (ctypes.c_uint8 * 1)(0)
        self._config = binding.RnnConfig(
            cell=CELLS[name],
            engine=b"auto",
            batch=n,
            time=t,
            lanes=1,
            hidden=hidden,
            reverse=self._reverse,
            recurrent_activation=binding.ACTIVATIONS["sigmoid"],
        )
        self.y = np.empty((n, t, hidden), np.float32)
        self._kept = [x, kernel, recurrent_kernel, bias]  # the structures hold only addresses
        self._layer = binding.LayerForwardArgs(features=c, x=x.ctypes.data, W=kernel.ctypes.data)
        self._rnn = binding.RnnForwardArgs(R=recurrent_kernel.ctypes.data, y=self.y.ctypes.data)
        biases = bias.reshape(-1, bias.shape[-1])  # a GRU's: of the input and of the state
        self._layer.b = biases[0].ctypes.data
        if len(biases) > 1:
            self._rnn.extra[0] = biases[1].ctypes.data
        executor = binding.Executor()
        size = ctypes.c_size_t()
        arguments = [ctypes.byref(each) for each in (self._config, self._layer, executor, size)]
        self._library.call("haste_layer_forward_workspace_bytes", *arguments)
        self._workspace = np.empty(size.value + 64, np.uint8)
        start = -self._workspace.ctypes.data % 64
        self._kept.append(executor)
        self._arguments = (
            ctypes.byref(self._config),
            ctypes.byref(self._layer),
            ctypes.byref(self._rnn),
            ctypes.c_void_p(self._workspace.ctypes.data + start),
            ctypes.byref(executor),
        )

    def __call__(self):
        """Runs it; returns y [N, T, H], the same array each time."""
        self._library.call("haste_layer_forward", *self._arguments)
        return self.y


def run_row(name, shape, seconds):
    """Times a layer at a shape, prints the line, returns {column: seconds}.

    Results are compared first; SystemExit if they differ.
    """
    x, target, layers = cases.make_layers(name, *shape)
    ours, keras_layer = (cases.make_functions(layer, x, target)[0] for layer in layers)
    weights, array = layers[1].get_weights(), x.numpy()
    engine = Engine(name, weights, array)
    cases.check(ours, keras_layer, f"{name} {shape}: ours and Keras's")
    cases.check(engine, keras_layer, f"{name} {shape}: the engine's and Keras's")
    functions = {"ours": ours, "call": tf.function(lambda: x), "engine": engine}
    for who, make in peers.installed().items():
        peer = make(name, weights, array, target.numpy())
        check = functools.partial(peers.in_keras_layout, peer.infer, peer.infer_to_keras)
        cases.check(check, keras_layer, f"{name} {shape}: {who}'s and Keras's")
        functions[who] = peer.infer
    for function in functions.values():
        function()
    # On a CPU a tf.function returns when its results are there.
    times = measure.interleaved_medians(functions, seconds, rest=0.01, burst=0.02)
    best = min((times[who] for who in peers.installed()), default=float("nan"))
    print(
        f"{name:10}"
        + "".join(f"{size:5}" for size in shape)
        + " | "
        + "".join(f"{1e6 * times.get(who, float('nan')):8.0f}" for who in ("ours", "call"))
        + "".join(f"{1e6 * times.get(w, float('nan')):8.1f}" for w in ("engine", "torch", "ort"))
        + f" |{best / times['ours']:5.2f}{best / times['engine']:8.2f}",
        flush=True,
    )
    return times


def run(names, small_shapes, seconds):
    """Prints the table of the layers that the C API and the peers have.

    Returns a row for each, {column: value}.
    """
    print("small batches, inference; medians, µs; the last columns: the better peer's time over it")
    print(HEADER)
    rows = []
    for name in names:
        if name not in CELLS:
            continue
        for shape in small_shapes:
            times = run_row(name, shape, seconds)
            rows.append({"layer": name, "shape": shape, **{k: 1e6 * v for k, v in times.items()}})
    return rows
