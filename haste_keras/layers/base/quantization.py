"""int8 weights: `quantize` of cells and layers, as `keras.layers.Dense` has it.

    W ≈ q / scale      q int8, one scale for each output: `kernel_scale`, `recurrent_kernel_scale`

What is trained stays: biases, and what belongs to layer normalisation. The equations of a call are
in `haste_keras/ops/int8.py`.
"""

import keras
import tensorflow as tf

from haste_keras._compat import xla_compiles_here
from haste_keras.layers.base.cell_weights import CellWeights
from haste_keras.layers.base.validation import check_dtype
from haste_keras.native import library
from haste_keras.native.emit import has_reserve
from haste_keras.ops.matmul import matmul, matmul_int8

MODE = "int8"


def wide(tensor):
    """As a call in int8 computes what is not an integer."""
    return tf.cast(tensor, tf.float32)


def _check_mode(layer, mode):
    """Raises NotImplementedError, which `model.quantize` makes a warning of, unless it is int8."""
    if mode != MODE:
        raise NotImplementedError(
            f"Invalid quantization mode. {type(layer).__name__} layer {layer.name} has {MODE!r} "
            f"alone. Received: mode={mode!r}"
        )


def _check_class(layer, type_check):
    """Raises NotImplementedError for a class of a user's: what it computes is not known here."""
    registered = keras.saving.get_registered_name(type(layer))
    if type_check and not registered.startswith("haste_keras>"):
        raise NotImplementedError(
            f"Layer {type(layer).__name__} does not have a `quantize` method implemented. "
            "`quantize(mode, type_check=False)` uses that of its base class."
        )


def _weight_quantizer(layer, config):
    """The quantizer of a Keras QuantizationConfig, or Keras's default for Dense."""
    rows = getattr(config, "activation_quantizer", None)
    as_here = isinstance(rows, keras.quantizers.AbsMaxQuantizer) and (
        tuple(rows.value_range) == (-127, 127) and rows.axis in (None, -1, (-1,))
    )
    if config is not None and not as_here:
        raise NotImplementedError(
            f"{type(layer).__name__} layer {layer.name} quantizes each row of its activations by "
            "its largest value. `config` must have keras.quantizers.AbsMaxQuantizer(axis=-1) as "
            f"its activation_quantizer. Received: activation_quantizer={rows!r}"
        )
    return getattr(config, "weight_quantizer", None) or keras.quantizers.AbsMaxQuantizer(axis=0)


class QuantizableWeights(CellWeights):
    """Weights that `quantize` may make integers of."""

    @property
    def _quantized_names(self):
        """Weights that are integers in a quantised cell: those that a product has."""
        dense = self.spec.recurrence == "dense"
        return ("kernel", "recurrent_kernel") if dense else ("kernel",)

    def is_quantized(self, name):
        """Whether the weight `name` is of integers now."""
        return getattr(self, "_is_quantized", False) and name in self._quantized_names

    def quantized_build(self, input_shape, mode, config=None):
        """Makes the integers and their scales, which a file or `quantize` then fills.

        Args:
          input_shape: (N, C).
          mode: "int8".
          config: not used.
        Raises:
          NotImplementedError: another mode.
        """
        _check_mode(self, mode)
        shapes = {"kernel": self._kernel_shape(input_shape[-1])}
        if "recurrent_kernel" in self._quantized_names:
            shapes["recurrent_kernel"] = self._recurrent_shape()
        # As Keras's: neither trained nor regularised nor constrained.
        for name, shape in shapes.items():
            self._add_fixed(name, shape, "zeros", "int8")
        for name, shape in shapes.items():
            scale = (shape[0], *shape[2:]) if len(shape) == 4 else shape[-1:]
            self._add_fixed(f"{name}_scale", scale, "ones", "float32")
        self.kernel_transform = self.recurrent_transform = None  # which the integers have in them
        self._is_quantized = True

    def _add_fixed(self, name, shape, initializer, dtype):
        variable = self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            dtype=dtype,
            trainable=False,
            autocast=False,
        )
        setattr(self, name, variable)

    def quantize(self, mode=None, type_check=True, config=None):
        """Makes the weights of the products int8, for inference; their floats are gone.

        Transforms of these weights are applied once, and gone too.

        Args:
          mode: "int8".
          type_check: whether a subclass that haste_keras does not have is refused.
          config: a keras.quantizers.Int8QuantizationConfig with a quantizer of weights; None: each
            output by its largest weight, as Dense.
        Raises:
          ValueError: the cell is not built, or is quantised, or no mode of Keras is `mode`.
          NotImplementedError: a mode that is not int8, a subclass, or a quantizer of activations
            that is not that of `haste_keras.ops.int8`.
        """
        _check_class(self, type_check)
        _check_mode(self, mode)
        quantizer = _weight_quantizer(self, config)
        values = {name: self._quantized(name, quantizer) for name in self._quantized_names}
        features = self.kernel.shape[-2]
        for name in values:
            delattr(self, name)
        self.quantized_build((None, features), mode)
        for name, (value, scale) in values.items():
            getattr(self, name).assign(value)
            getattr(self, f"{name}_scale").assign(scale)
        if self.dtype_policy.quantization_mode is None:
            self.dtype_policy = keras.dtype_policies.get(f"{mode}_from_{self.dtype_policy.name}")

    def _quantized(self, name, quantizer):
        """int8 integers of the shape of the weight `name`, and the scale of each output."""
        value = self._transformed(name, int8=True)
        shape = value.shape
        # [inputs, outputs]; of heads, whose inputs come second, all outputs side by side.
        value = tf.transpose(value, [1, 0, 2, 3]) if shape.rank == 4 else value
        inputs_first = value.shape
        matrix = tf.reshape(value, [-1, shape[-1]] if shape.rank < 4 else [shape[1], -1])
        integers, scale = quantizer(matrix)
        if integers.dtype != tf.int8 or tf.size(scale) != matrix.shape[1]:
            raise ValueError(
                "`config` must have a weight_quantizer that gives int8, and one scale for each "
                f"column of a matrix. Received: {quantizer!r}"
            )
        integers = tf.reshape(integers, inputs_first)
        if shape.rank == 4:
            integers = tf.transpose(integers, [1, 0, 2, 3])
            return integers, tf.reshape(scale, [shape[0], *shape[2:]])
        return integers, tf.reshape(scale, shape[-1:])

    def _int8_call(self, *args, **kwargs):
        return self.call(*args, **kwargs)  # which looks at each weight

    # Files, in the order that Dense has: matrices, what is trained, scales.

    def _saved_variables(self):
        names = self._quantized_names
        scales = [getattr(self, f"{name}_scale") for name in names]
        return [*(getattr(self, name) for name in names), *self._trainable_variables, *scales]

    def save_own_variables(self, store):
        if not getattr(self, "_is_quantized", False):
            super().save_own_variables(store)
            return
        for i, variable in enumerate(self._saved_variables()):
            store[str(i)] = variable

    def load_own_variables(self, store):
        variables = self._saved_variables() if getattr(self, "_is_quantized", False) else []
        if len(store.keys()) != len(variables):
            super().load_own_variables(store)  # of floats; else Keras's error
            return
        for i, variable in enumerate(variables):
            variable.assign(store[str(i)])


class QuantizableLayer(keras.layers.RNN):
    """A layer whose cells know how their weights are: `model.quantize` meets the cells alone."""

    @property
    def _is_quantized(self):
        return all(getattr(cell, "_is_quantized", False) for cell in self.cells)

    @property
    def dtype_policy(self):
        cell = getattr(self, "cell", None)
        if cell is not None and cell.quantization_mode is not None:
            return cell.dtype_policy
        return super().dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value):
        policy = keras.dtype_policies.get(value)
        keras.layers.RNN.dtype_policy.fset(self, policy)
        check_dtype(self)
        quantizes = policy.quantization_mode is not None
        for cell in self.cells:
            if not (quantizes and self.built) and cell.quantization_mode is None:
                cell.dtype_policy = policy

    @property
    def quantization_mode(self):
        return self.dtype_policy.quantization_mode

    def quantize(self, mode=None, type_check=True, config=None):
        """Makes the weights of the products int8: `quantize` of the layer's cells.

            layer.quantize("int8")

        The layer then is for inference; `model.quantize("int8")` does it for all layers of a model.

        Args:
          mode: "int8".
          type_check: whether a subclass that haste_keras does not have is refused.
          config: a keras.quantizers.Int8QuantizationConfig with a quantizer of weights, or None.
        Raises:
          ValueError: the layer is not built, or is quantised, or no mode of Keras is `mode`.
          NotImplementedError: a mode that is not int8, a subclass, or a quantizer of activations
            that is not AbsMaxQuantizer(axis=-1).
        """
        _check_class(self, type_check)
        _check_mode(self, mode)
        given = {} if config is None else {"config": config}  # which Keras 3.6 does not take
        for cell in self.cells:
            if not cell.is_quantized("kernel"):
                cell.quantize(mode, type_check=type_check, **given)

    def _int8_call(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    def _runs_int8(self, training):
        """Whether this call multiplies integers; else quantised weights become floats first.

        There are int8 ops for inference on a CPU, and stock ones for portable exports.
        """
        if training or not any(cell.is_quantized("kernel") for cell in self.cells):
            return False
        if not self._is_quantized:
            raise ValueError(
                f"layer {self.name} has a quantized cell and one that is not, which do not run "
                'together: layer.quantize("int8") quantizes the other'
            )
        exports = not has_reserve()
        return exports or not (library.may_use_gpu() or xla_compiles_here())

    def _in_compute_dtype(self, results):
        """Tensors of a call in int8, None among them, as the layer returns them."""
        return tf.nest.map_structure(
            lambda each: None if each is None else tf.cast(each, self.compute_dtype), results
        )

    def multiply(self, rows, weights):
        """x·W of rows [M, C] by the weights of a projection: "kernel" [C, U] → [M, U]."""
        if "kernel_scale" in weights:
            return matmul_int8(rows, weights["kernel"], weights["kernel_scale"])
        return matmul(rows, weights["kernel"])
