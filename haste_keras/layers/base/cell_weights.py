"""The weights of a cell: their shapes, how they begin, and how a call is given them."""

import copy

import keras
import tensorflow as tf

from haste_keras.layers.base.transform import check_transformed


def _matrices(weight):
    """The matrix [H, G·H] of each head, of a weight [heads, H, G, H]."""
    heads, hidden, gates, _ = weight.shape
    matrices = keras.ops.reshape(weight, (heads, hidden, gates * hidden))
    return [matrices[head] for head in range(heads)]


class ConstraintOfHeads(keras.constraints.Constraint):
    """A constraint that sees each head as that of a layer of its own."""

    def __init__(self, constraint):
        self.constraint = constraint

    def __call__(self, w):
        matrices = [self.constraint(matrix) for matrix in _matrices(w)]
        return keras.ops.reshape(keras.ops.stack(matrices), w.shape)


class RegularizerOfHeads(keras.regularizers.Regularizer):
    """The same of a regularizer: the sum over heads."""

    def __init__(self, regularizer):
        self.regularizer = regularizer

    def __call__(self, x):
        return sum(self.regularizer(matrix) for matrix in _matrices(x))


class CellWeights(keras.layers.Layer):
    """The part of `RecurrentCell` that holds its weights."""

    # A cell with others adds them in `_build_more`, and hands them out in `prepared`.

    def build(self, input_shape):
        features = input_shape[-1]
        self.recurrent_kernel = self.bias = None
        if self.quantization_mode is not None:
            self.quantized_build(input_shape, self.quantization_mode)
        else:
            self.kernel = self._add("kernel", "kernel", self._kernel_shape(features))
        if self.recurrent_kernel is None and self.spec.recurrence != "none":
            self.recurrent_kernel = self._add(
                "recurrent_kernel", "recurrent", self._recurrent_shape(), self._initialize_recurrent
            )
        if self.use_bias:
            self.bias = self._add("bias", "bias", self._bias_shape(), self._initialize_bias)
        self._build_more(features)
        for transform, weight in (
            (self.kernel_transform, self.kernel),
            (self.recurrent_transform, self.recurrent_kernel),
            (self.bias_transform, self.bias),
        ):
            if isinstance(transform, keras.layers.Layer) and weight is not None:
                transform.build(weight.shape)
        super().build(input_shape)

    def _add(self, name, role, shape, initializer=None):
        regularizer = getattr(self, f"{role}_regularizer")
        constraint = getattr(self, f"{role}_constraint")
        if len(shape) == 4:  # heads
            regularizer = regularizer and RegularizerOfHeads(regularizer)
            constraint = constraint and ConstraintOfHeads(constraint)
        # autocast=False: a transform sees the variable in its own dtype.
        return self.add_weight(
            shape=shape,
            name=name,
            initializer=initializer or getattr(self, f"{role}_initializer"),
            regularizer=regularizer,
            constraint=constraint,
            autocast=False,
        )

    def _build_more(self, features):
        """Adds the weights that only this cell has."""

    def _kernel_shape(self, features):
        return (features, len(self.spec.gates) * self.units)

    def _recurrent_shape(self):
        hidden = self.units // self.heads
        if self.heads == 1:
            return (hidden, len(self.spec.gates) * hidden)
        return (self.heads, hidden, len(self.spec.gates), hidden)

    def _bias_shape(self):
        return (len(self.spec.gates) * self.units,)

    def _initialize_recurrent(self, shape, dtype=None):
        """Each head as a layer of its own would be: an initializer sees [H, G·H]."""
        if self.heads == 1:
            return self.recurrent_initializer(shape, dtype=dtype)
        _, hidden, gates, _ = shape
        parts = []
        for head in range(self.heads):
            initializer = copy.copy(self.recurrent_initializer)
            if isinstance(getattr(initializer, "seed", None), int):
                initializer.seed += head  # else every head would begin the same
            parts.append(initializer((hidden, gates * hidden), dtype=dtype))
        return keras.ops.reshape(keras.ops.stack(parts), shape)

    def _initialize_bias(self, shape, dtype=None):
        return self.bias_initializer(shape, dtype=dtype)

    def _bias_with(self, value, gate, dtype):
        """A bias as `bias_initializer` makes it, but `value` for all units of one gate."""
        hidden = self.units // self.heads
        after = len(self.spec.gates) - gate - 1
        head = [self.bias_initializer((gate * hidden,), dtype=dtype)] if gate else []
        head.append(keras.ops.full((hidden,), value, dtype=dtype))
        if after:
            head.append(self.bias_initializer((after * hidden,), dtype=dtype))
        return keras.ops.concatenate(head * self.heads)

    def _transformed(self, name, int8):
        """The weight `name` of floats, through its transform if it has one."""
        variable = getattr(self, name)
        argument = f"{name.removesuffix('_kernel')}_transform"
        transform = getattr(self, argument, None)
        value = tf.convert_to_tensor(variable.value)
        if transform is not None:
            value = tf.convert_to_tensor(transform(value))
            check_transformed(argument, value, variable)
        return tf.cast(value, tf.float32 if int8 else self.compute_dtype)

    def _matrix(self, name, int8):
        """The weight `name`; with `int8` integers, if they are quantised, and beside them a scale.

        Returns:
          (value, None) or, of integers, (value, scale): float32, one for each output; the weight is
          value · scale.
        """
        if not self.is_quantized(name):
            return self._transformed(name, int8), None
        value = tf.convert_to_tensor(getattr(self, name).value)
        scale = 1 / tf.convert_to_tensor(getattr(self, f"{name}_scale").value)
        if int8:
            return value, scale
        scale = scale[:, tf.newaxis] if value.shape.rank == 4 else scale
        return tf.cast(tf.cast(value, tf.float32) * scale, self.compute_dtype), None

    def prepared(self, int8=False):
        """The weights as a call uses them: transformed, in the compute dtype.

        Args:
          int8: for a call in int8: quantised weights as they are, with their scales; all others in
            float32.
        Returns:
          those of the projection: "kernel" [C, G·units] and, with a bias, "bias" [G·units];
          those of the recurrence, by the names that the op has for them, each [heads, ...]:
          "recurrent_kernel" [heads, H, G, H];
          beside int8 ones "kernel_scale" [G·units] and "recurrent_scale" [heads, G, H].
        """
        kernel, scale = self._matrix("kernel", int8)
        projection, recurrence = {"kernel": kernel}, {}
        if scale is not None:
            projection["kernel_scale"] = scale
        if self.bias is not None:
            projection["bias"] = self._transformed("bias", int8)
        if self.recurrent_kernel is not None:
            kernel, scale = self._matrix("recurrent_kernel", int8)
            recurrence["recurrent_kernel"] = tf.reshape(kernel, self._lane_shape())
            if scale is not None:
                recurrence["recurrent_scale"] = tf.reshape(scale, self.gate_shape)
        return projection, recurrence

    def _lane_shape(self):
        heads, gates, hidden = self.gate_shape
        return [heads, hidden, gates, hidden]
