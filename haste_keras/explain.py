"""Which engine runs a layer, how it is cut, and why: `explain`, from what the library plans."""

import contextlib
import ctypes

import keras
import tensorflow as tf

from haste_keras._compat import flattened_layers
from haste_keras.layers.base.layer import RecurrentLayer
from haste_keras.layers.base.step_loop import ACTIVATION
from haste_keras.layers.base.validation import check_choice
from haste_keras.layers.forget_mult import ForgetMult
from haste_keras.native import binding, cell_spec, library, raw_ops

_SPECS = {spec.op: spec for spec in cell_spec.CELLS}
_SPECS |= {spec.op + "Layer": spec for spec in cell_spec.CELLS if spec.has_layer_op}
_SPECS |= {spec.op + "Int8": spec for spec in cell_spec.CELLS if spec.has_int8_op}
_SPECS |= {
    spec.op + "LayerInt8": spec
    for spec in cell_spec.CELLS
    if spec.has_int8_op and spec.has_layer_op
}
_ALIASES = {"CUDA": "GPU"}


def clusters(parts):
    """Clusters of 0 … 16 blocks that fit, in parts of a GPU of so many multiprocessors each."""
    sizes = range(2, binding.MAX_CLUSTER + 1)
    counts = (0, 0, *(sum(n // size for n in parts) for size in sizes))
    return (ctypes.c_int32 * len(counts))(*counts)


# GPUs that may be asked about where they are not. The parts of the H200 explain the clusters of 2,
# 4, 8 and 16 blocks that one was measured to hold at once: 66, 30, 15 and 7.
GPUS = {
    "T4": binding.DeviceProperties(7, 5, 40, 64 << 10, 4 << 20),
    "A100": binding.DeviceProperties(8, 0, 108, 163 << 10, 40 << 20),
    "H200": binding.DeviceProperties(9, 0, 132, 227 << 10, 60 << 20, clusters([18] * 6 + [16, 8])),
}
_ABSENT_GPU = "H200"  # what "GPU" means where there is none


class Explanation(tuple):
    """Lines of text; what a prompt or `print` shows is these, and below them `xla`.

    xla: what runs in a function that XLA compiles here.
    """

    @property
    def xla(self):
        compiles, why = library.xla_here()
        what = "the same kernels" if compiles else f"Keras's loop over the cells: {why}"
        return f"under XLA (jit_compile=True): {what}"

    def __str__(self):
        return "\n".join([*self, self.xla])

    __repr__ = __str__


def explain(layer, input_shape, dtype=None, device=None, training=False):
    """Says for each fused layer which engine would run it, how it is cut, and why.

    Nothing is computed: `layer` is traced for inputs of this shape, and the library is asked what
    it would do. Layers that are not built yet are built.

        >>> haste_keras.explain(haste_keras.LSTM(128), (32, 100, 64), device="CPU")
        lstm: lstm on cpu: 2 threads over rows, N=32 T=100 K=1 H=128: rows for every thread: …
        under XLA (jit_compile=True): the same kernels

    Args:
      layer: a layer of haste_keras, or a model, wrapper or layer with such layers in it.
      input_shape: of its input, all sizes known: (batch, time, features) for a layer; a list of
        shapes where it takes several.
      dtype: "float32", "float64", "float16" or "bfloat16", to ask about in place of the dtype
        that each layer computes in.
      device: "CPU"; "GPU" or "CUDA": the first one that TensorFlow sees, or where it sees none, an
        H200; "T4", "A100" or "H200": that GPU, with cuBLAS, whatever is here. None: where
        TensorFlow would put the op.
      training: ask about a training step (forward with what its gradient reads).
    Returns:
      Explanation: a tuple of lines, one for each size that a fused layer is called with. Shown or
      printed it is the text, with a line on XLA. A layer that runs step by step, for an activation
      that the kernels do not have, has a line that says so.

    Raises:
      ValueError: an argument is not as above, there is no fused layer in `layer`, or its `engine`
        cannot run it there; the message says which.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`layer` must be a layer or a model of Keras. Received: {layer!r}")
    if dtype is not None:
        check_choice("dtype", dtype, cell_spec.DTYPES)
    ask = _planner(device)
    lines = []
    for name, op in _trace(layer, input_shape, training):
        if op is None:
            lines.append(f"{name}: step by step, by Keras's loop over its cell: {ACTIVATION}")
            continue
        config = _config(op, dtype)
        try:
            said = ask(config)
            weights = ", int8 weights" if config.weights_dtype else ""
            lines.append(f"{name}: {said}{weights}")
        except binding.Error as error:
            raise ValueError(f"layer {name}: {error.message}") from None
    if not lines:
        raise ValueError(f"`layer` must be a fused layer, or hold one. Received: {layer!r}")
    return Explanation(dict.fromkeys(lines))


def _trace(layer, input_shape, training):
    """(name of the fused layer, op of its recurrence, or None without) for each call, in order."""
    fused = [
        each for each in flattened_layers(layer) if isinstance(each, (RecurrentLayer, ForgetMult))
    ]
    specs = _input_specs(layer, input_shape)
    found = []

    @tf.function
    def call(inputs):
        found.clear()  # a trace that makes variables is followed by another
        return layer(inputs, training=training)

    with contextlib.ExitStack() as stack:
        for each in fused:
            stack.enter_context(_recorded(each, found))
        call.get_concrete_function(specs)
    return found


@contextlib.contextmanager
def _recorded(layer, found):
    """While this lasts, (layer.name, op) of each recurrence that `layer` calls goes to `found`."""
    call = layer.call

    @tf.autograph.experimental.do_not_convert
    def recorded(*args, **kwargs):
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        outputs = call(*args, **kwargs)
        ops = [op for op in graph.get_operations()[before:] if op.type in _SPECS]
        stepwise = isinstance(layer, RecurrentLayer) and layer.cell.unfused
        found.extend((layer.name, op) for op in ([None] if stepwise else ops))
        return outputs

    vars(layer)["call"] = recorded
    try:
        yield
    finally:
        del vars(layer)["call"]


def _input_specs(layer, input_shape):
    """tf.TensorSpec, or a list of them, of what `layer` is called with."""
    several = isinstance(input_shape, (list, tuple)) and any(
        isinstance(each, (list, tuple)) for each in input_shape
    )
    shapes = [tuple(each) for each in input_shape] if several else [tuple(input_shape)]
    for shape in shapes:
        if not all(isinstance(size, int) for size in shape):
            raise ValueError(f"`input_shape` must have all sizes known. Received: {input_shape}")
    known = tf.nest.flatten(getattr(layer, "inputs", None) or [])
    dtypes = [each.dtype for each in known] or [keras.config.floatx()] * len(shapes)
    specs = [tf.TensorSpec(*each) for each in zip(shapes, dtypes, strict=True)]
    return specs if several else specs[0]


def _config(op, dtype):
    """The HasteRnnConfig that the op of a graph would hand to the library."""
    spec = _SPECS[op.type]
    int8 = op.type.endswith("Int8")
    given = raw_ops.attributes(spec, op, (each.name for each in op.op_def.attr))
    config = binding.RnnConfig(cell=spec.name.encode(), engine=given["engine"].encode())
    config.dtype = binding.DTYPES[dtype or op.get_attr("T").name]
    if int8:
        config.weights_dtype = binding.DTYPES["int8"]
    shape = op.outputs[0].shape
    if not shape.is_fully_defined():
        raise ValueError(
            f"`input_shape` must settle the sizes of every fused layer; {op.name} has {shape}"
        )
    config.batch, config.time, config.lanes, config.hidden = shape
    reverse = bytes(given["reverse"])
    config.reverse = (ctypes.c_uint8 * len(reverse))(*reverse)
    config.activation = binding.ACTIVATIONS[given["activation"]]
    config.recurrent_activation = binding.ACTIVATIONS[given["recurrent_activation"]]
    config.training = given.get("training", False)
    config.zero_output_for_mask = given["zero_output_for_mask"]
    config.zoneout[: len(given["zoneout"])] = given["zoneout"]
    config.recurrent_dropout = given.get("recurrent_dropout", 0.0)
    config.epsilon = given.get("epsilon", 0.0)
    config.allow_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    return config


def _planner(device):
    """A function config → line that asks the library about `device`; ValueError if it is none."""
    here = library.gpu_kernels()[0] and bool(tf.config.list_physical_devices("GPU"))
    if device is None:
        device = "GPU" if here else "CPU"
    check_choice("device", device, ("CPU", "GPU", "CUDA", *GPUS))
    device = _ALIASES.get(device, device)
    api = library.c_api()
    if device == "CPU" or (device == "GPU" and here):
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        executor = binding.Executor(threads=threads)  # 0: one a core, as TensorFlow

        def ask(config):
            config.device = binding.DEVICES["cuda" if device == "GPU" else "cpu"]
            if device == "GPU":
                config.weights_dtype = 0  # the layer makes floats of them
            return api.plan(config, executor)

        return ask

    name = device if device in GPUS else _ABSENT_GPU

    def ask_for(config):
        config.device, config.weights_dtype = binding.DEVICES["cuda"], 0
        return f"{api.plan_for(config, GPUS[name])} ({name})"

    return ask_for
