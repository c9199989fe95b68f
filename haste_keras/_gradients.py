"""Gradients of the ops: the reserve through the backward op, and R's gradient by one product.

They are registered by op name, so that they serve eager code, graphs and loaded SavedModels.
"""

import tensorflow as tf

from haste_keras import _raw
from haste_keras._cells import CELLS


def _or_empty(gradient, dtype):
    """A gradient as the backward op takes it: a tensor, of shape [0] where there is none."""
    return tf.zeros([0], dtype) if gradient is None else tf.convert_to_tensor(gradient)


def _recurrent_kernel_gradient(h_in, dwx, recurrent_kernel, lanes):
    """Σ over n and t of h_in ⊗ dwx, a lane at a time.

    h_in [N, T, K, H], dwx [N, T, K, G, H] -> [K, H, G, H]. One lane needs no copy of either.
    """
    shape = tf.shape(recurrent_kernel)
    hidden = recurrent_kernel.shape[1] or shape[1]
    columns = recurrent_kernel.shape[2:].num_elements() or shape[2] * shape[3]

    def product(h, d):
        rows = tf.reshape(h, [-1, hidden])
        return tf.matmul(rows, tf.reshape(d, [-1, columns]), transpose_a=True)

    if lanes == 1:
        return tf.reshape(product(h_in, dwx), shape)
    return tf.reshape(tf.stack([product(h_in[:, :, k], dwx[:, :, k]) for k in range(lanes)]), shape)


def _register(spec):
    count = len(spec.states)

    @tf.RegisterGradient(spec.op)
    def gradient(op, dy, *gradients):
        recurrent_kernel = op.inputs[1]
        mask, seed = op.inputs[2 + count :]
        options = _raw.attributes(op)
        if op.get_attr("save"):
            reserve = op.outputs[1 + count :]
        else:
            reserve = _raw.forward(spec, op.inputs, save=True, **options)[1 + count :]
        dtype = recurrent_kernel.dtype
        gradients = [_or_empty(g, dtype) for g in (dy, *gradients[:count])]
        dwx, *dstates = _raw.backward(
            spec, [recurrent_kernel, mask, seed, *reserve, *gradients], **options
        )
        dkernel = None
        # The tape says which inputs it wants no gradient of.
        if 1 not in (getattr(op, "skip_input_indices", None) or ()):
            dkernel = _recurrent_kernel_gradient(
                reserve[1], dwx, recurrent_kernel, lanes=len(options["reverse"])
            )
        return [dwx, dkernel, *dstates, None, None]

    @tf.RegisterGradient(spec.op + "Grad")
    def second_gradient(op, *gradients):
        raise NotImplementedError(
            f"{spec.op} has no second-order gradient; where a gradient of a gradient is needed, "
            f"run the cell step by step: keras.layers.RNN(haste_keras.{spec.layer}Cell(...))."
        )


for _spec in CELLS:
    _register(_spec)
