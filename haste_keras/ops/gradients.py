"""Gradients of the ops: the reserve through the gradient's op, and a dense R's by products.

They are registered by op name, so that they serve eager code, graphs and loaded SavedModels. Of the
op that forms x·W + b there is a gradient's op with all the products too. A GPU overlaps them with
the recurrence. On a CPU it serves floats, where its products are the faster ones.
"""

import numpy as np
import tensorflow as tf

from haste_keras._compat import skipped_inputs
from haste_keras.native import library, raw_ops
from haste_keras.native.cell_spec import CELLS
from haste_keras.ops.bias import bias_gradient
from haste_keras.ops.matmul import matmul
from haste_keras.ops.shapes import sizes


def _is_zeros(tensor):
    """Whether a tensor of a graph is what TensorFlow gives for an output that nothing uses."""
    if tf.executing_eagerly():
        return False
    op = tensor.op
    if op.type == "Fill":
        op = op.inputs[1].op
    return op.type == "ZerosLike" or (
        op.type == "Const" and not np.any(tf.get_static_value(op.outputs[0]))
    )


def _or_empty(gradient, dtype):
    """A gradient as the op takes it: a tensor, of shape [0] where it is none or zeros.

    So no zeros are written and read: of the outputs' size in a layer that returns its last step.
    """
    if gradient is None:
        return tf.zeros([0], dtype)
    gradient = tf.convert_to_tensor(gradient)
    return tf.zeros([0], dtype) if _is_zeros(gradient) else gradient


def _kernel_gradient(operand, dq, lanes):
    """Σ over n and t of operand ⊗ dq, a lane at a time.

    operand [N, T, K, H], dq [N, T, K, G, H] -> [K, H, G, H]. One lane needs no copy of either.
    """
    hidden = operand.shape[3] or tf.shape(operand)[3]
    columns = dq.shape[3:].num_elements() or tf.shape(dq)[3] * hidden

    def product(h, d):
        rows = tf.reshape(h, [-1, hidden])
        return matmul(rows, tf.reshape(d, [-1, columns]), transpose_a=True)

    if lanes == 1:
        products = product(operand, dq)
    else:
        products = tf.stack([product(operand[:, :, k], dq[:, :, k]) for k in range(lanes)])
    return tf.reshape(products, [lanes, hidden, dq.shape[3] or tf.shape(dq)[3], hidden])


def _recurrent_kernel_gradient(spec, reserve, gradients, lanes):
    """Gradient of a dense recurrent_kernel [K, H, G, H] from {name: tensor} of what is there."""
    operands = [reserve[name] for name in spec.saved[:2]]
    dq = gradients["dq" if spec.splits_gradient else "dwx"]
    if not spec.reset_gates:
        return _kernel_gradient(operands[0], dq, lanes)
    parts = (dq[:, :, :, : spec.reset_gates], dq[:, :, :, spec.reset_gates :])
    return tf.concat(
        [_kernel_gradient(h, d, lanes) for h, d in zip(operands, parts, strict=True)], axis=2
    )


def _projection_gradients(inputs, dwx, wanted):
    """Gradients of x·W + b by {name: tensor} of x, kernel and bias: {"d" and the name: tensor}.

    wanted: names of the inputs that a gradient is wanted of.
    """
    x, kernel = inputs["x"], inputs["kernel"]
    features, *lanes = sizes(kernel)
    columns = kernel.shape[1:].num_elements()
    rows = tf.reshape(x, [-1, features])
    weights = tf.reshape(kernel, [features, columns])
    d = tf.reshape(dwx, [-1, columns])
    found = {}
    if "x" in wanted:
        found["dx"] = tf.reshape(matmul(d, weights, transpose_b=True), tf.shape(x))
    if "kernel" in wanted:
        found["dkernel"] = tf.reshape(matmul(rows, d, transpose_a=True), [features, *lanes])
    if "bias" in wanted:
        found["dbias"] = tf.reshape(bias_gradient(d), lanes)
    return found


def composed(spec, tensors, wanted, options, layer):
    """Gradients by the gradient's op of the recurrence, and products: {"d" and the name: tensor}.

    Args:
      tensors: {name: tensor} of `spec.backward_inputs`, with `layer` of x and kernel too.
      wanted: names of the inputs that a gradient is wanted of.
      options: `raw_ops.ATTRIBUTES`.
      layer: of x·W + b too.
    """
    found = raw_ops.backward(spec, [tensors[name] for name in spec.backward_inputs], **options)
    found = dict(zip(spec.backward_outputs, found, strict=True))
    if layer:
        found |= _projection_gradients(tensors, found["dwx"], wanted)
    if spec.recurrence == "dense" and "recurrent_kernel" in wanted:
        found["drecurrent_kernel"] = _recurrent_kernel_gradient(
            spec, tensors, found, lanes=len(options["reverse"])
        )
    return found


def _multiplies(spec, dtype):
    """Whether the op of a layer's gradient computes its products too."""
    floats = spec.recurrence == "dense" and dtype.size > 2
    return library.may_use_gpu() or (floats and library.multiplies_in_training())


def _in_one(spec, tensors, wanted, options):
    """What `composed` gives of a layer, by one op."""
    left_out = {name for name in spec.layer_gradients if name.removeprefix("d") not in wanted}
    found = raw_ops.layer_backward(
        spec,
        [tensors[name] for name in spec.layer_backward_inputs],
        wanted=[name not in left_out for name in spec.layer_gradients],
        **options,
    )
    found = dict(zip(spec.layer_backward_outputs, found, strict=True))
    return {name: tensor for name, tensor in found.items() if name not in left_out}


def _register(spec, layer=False):
    """Of the op of `spec`, or with `layer` of the one that forms x·W + b."""
    name = spec.op + ("Layer" if layer else "")
    names = spec.layer_inputs if layer else spec.forward_inputs

    @tf.RegisterGradient(name)
    def gradient(op, *output_gradients):
        inputs = dict(zip(names, op.inputs, strict=True))
        options = raw_ops.attributes(spec, op)
        outputs = op.outputs
        if not op.get_attr("save"):
            outputs = raw_ops.forward(spec, op.inputs, save=True, layer=layer, **options)
        reserve = dict(zip(spec.forward_outputs, outputs, strict=True))
        dtype = op.inputs[0].dtype
        received = {
            f"d{name}": _or_empty(gradient, dtype)
            for name, gradient in zip(spec.forward_outputs, output_gradients, strict=True)
            if name not in spec.reserve
        }
        available = {**reserve, **received, **inputs}
        # The tape says which inputs it wants no gradient of.
        skipped = skipped_inputs(op)
        wanted = {name for i, name in enumerate(inputs) if i not in skipped}
        if layer and inputs["bias"].shape.rank == 1:
            wanted -= {"bias"}
        if layer and _multiplies(spec, dtype):
            found = _in_one(spec, available, wanted, options)
        else:
            found = composed(spec, available, wanted, options, layer)
        # A vector is an input that was left out, and has no gradient.
        return [
            None if tensor.shape.rank == 1 else found.get(f"d{name}")
            for name, tensor in inputs.items()
        ]


def _register_refusal(spec):
    instead = "write the recurrence in TensorFlow's own operations"
    if not spec.separate_gates:
        instead = f"run the cell step by step: keras.layers.RNN(haste_keras.{spec.layer}Cell(...))"
    _refuse_second_order(spec.op, instead)
    if spec.has_layer_op:
        _refuse_second_order(spec.op + "Layer", instead)


def _refuse_second_order(name, instead):
    @tf.RegisterGradient(name + "Grad")
    def second_gradient(op, *gradients):
        raise NotImplementedError(
            f"{name} has no second-order gradient, and within a tf.function none in forward mode "
            "(tf.autodiff.ForwardAccumulator); where a gradient of a gradient is needed, "
            f"{instead}."
        )


def _refuse_int8(name):
    @tf.RegisterGradient(name)
    def no_gradient(op, *gradients):
        raise NotImplementedError(
            f"{name} has no gradient: int8 weights are for inference; train with floats, and "
            "quantise after that."
        )


for _spec in CELLS:
    _register(_spec)
    if _spec.has_int8_op:
        _refuse_int8(_spec.op + "Int8")
        if _spec.has_layer_op:
            _refuse_int8(_spec.op + "LayerInt8")
    if _spec.has_layer_op:
        _register(_spec, layer=True)
    _register_refusal(_spec)


@tf.RegisterGradient("HasteLayerNorm")
def _layer_norm_gradient(op, dy):
    x, gamma, beta = op.inputs
    epsilon = op.get_attr("epsilon")
    dx, dgamma, dbeta = raw_ops.layer_norm_backward(x, gamma, dy, epsilon=epsilon)
    return dx, dgamma, None if beta.shape.rank == 1 else dbeta


_refuse_second_order("HasteLayerNorm", "use keras.layers.LayerNormalization")
_refuse_int8("HasteMatMulInt8")
