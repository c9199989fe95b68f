"""ForgetMult, the pooling of a QRNN alone, as pytorch-qrnn has it.

    h[t] = f[t] ∘ x[t] + (1 - f[t]) ∘ h[t-1]               f is the share of the new

Bradbury, Merity, Xiong & Socher, "Quasi-recurrent neural networks", arXiv 1611.01576.
"""

import keras
import tensorflow as tf

from haste_keras import ops
from haste_keras._compat import has_tangents
from haste_keras.layers.base import pooling_cell, step_loop
from haste_keras.layers.base.validation import (
    cast_real,
    check_choice,
    check_dense,
    check_dtype,
    check_mask,
)
from haste_keras.native import library
from haste_keras.native.cell_spec import ENGINES
from haste_keras.ops.shapes import size


@keras.saving.register_keras_serializable("haste_keras")
class ForgetMult(keras.layers.Layer):
    """h[t] = f[t] ∘ x[t] + (1 - f[t]) ∘ h[t-1] over whole sequences, fused. No weights.

    Args:
      direction: "forward" or "backward", which walks from the last step to the first; the output
        is in the order of time in both.
      engine: "auto", or the name of an engine of the op.

    Call:
      inputs: (f, x) or (f, x, h0): f and x [N, T, H], of one shape; h0 [N, H], default 0. They
        are cast to the compute dtype: float16, bfloat16, float32 or float64.
      mask: [N, T], true at live steps: the others carry h.
    Returns:
      h of every step, [N, T, H].

    Raises:
      ValueError: an argument is not as above; the message names it.
    """

    def __init__(self, direction="forward", engine="auto", **kwargs):
        check_choice("direction", direction, ("forward", "backward"))
        check_choice("engine", engine, ENGINES)
        super().__init__(**kwargs)
        check_dtype(self)
        self.direction = direction
        self.engine = engine
        self.supports_masking = True
        self.supports_jit = library.xla_here()[0]

    def __call__(self, inputs, *args, **kwargs):
        for each in inputs if isinstance(inputs, (list, tuple)) else [inputs]:
            check_dense("inputs", self, each)
        return super().__call__(inputs, *args, **kwargs)

    def _check_shapes(self, shapes):
        several = isinstance(shapes, (list, tuple)) and not any(
            each is None or isinstance(each, int) for each in shapes
        )
        if not several or len(shapes) not in (2, 3):
            raise ValueError(
                f"`inputs` of layer {self.name} must be (f, x) or (f, x, h0). "
                f"Received: {f'{len(shapes)} tensors' if several else 'one tensor'}"
            )
        f, x = tf.TensorShape(shapes[0]), tf.TensorShape(shapes[1])
        if x.rank != 3 or not x.is_compatible_with(f):
            raise ValueError(
                f"`inputs` of layer {self.name} must be f and x of one shape [batch, time, units]. "
                f"Received: shapes {f} and {x}"
            )
        if len(shapes) == 3 and not tf.TensorShape(shapes[2]).is_compatible_with([x[0], x[2]]):
            raise ValueError(
                f"`inputs` of layer {self.name} must have h0 of shape {(x[0], x[2])}. "
                f"Received: shape {shapes[2]}"
            )

    def build(self, input_shape):
        self._check_shapes(input_shape)

    def compute_output_shape(self, input_shape):
        self._check_shapes(input_shape)
        return tuple(input_shape[1])

    def compute_mask(self, inputs, mask):
        return self._mask(mask)

    def _mask(self, mask):
        """The one mask of a call, of those of its inputs."""
        if isinstance(mask, (list, tuple)):
            return next((each for each in mask if each is not None), None)
        return mask

    def call(self, inputs, mask=None):
        if not isinstance(inputs, (list, tuple)):
            self._check_shapes(inputs.shape)
        inputs = [cast_real("inputs", self, each) for each in inputs]
        self._check_shapes([each.shape for each in inputs])
        f, x, *h0 = inputs
        mask = check_mask(self, self._mask(mask), x)
        backwards = self.direction == "backward"
        reason = step_loop.XLA if step_loop.xla_lacks_ops() else None
        if has_tangents(inputs):
            reason = step_loop.FORWARD_MODE
        if reason:
            step_loop.warn(self, reason)
            return self._loop_of_steps(f, x, h0, mask, backwards)
        return ops.forget_mult(f, x, *h0, mask=mask, reverse=backwards, engine=self.engine)

    def _loop_of_steps(self, f, x, h0, mask, backwards):
        if x.shape[1] == 0:  # Keras's loop reads step 0
            return x
        start = h0[0] if h0 else tf.zeros([size(x, 0), size(x, 2)], x.dtype)

        def step(inputs, states):
            keep, new, _ = pooling_cell.forget_mult(*tf.unstack(inputs, axis=1), None)
            h = keep * states[0] + new
            return h, [h]

        if mask is not None:
            f, x = (tf.where(mask[:, :, tf.newaxis], each, 0) for each in (f, x))
        gates = tf.stack([f, x], axis=2)
        _, y, _ = step_loop.loop(step, gates, [start], go_backwards=backwards, mask=mask)
        return tf.reverse(y, [1]) if backwards else y

    def get_config(self):
        return {**super().get_config(), "direction": self.direction, "engine": self.engine}
