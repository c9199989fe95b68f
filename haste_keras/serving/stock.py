"""What stands for each op: the same outputs of the same inputs, in TensorFlow's own ops."""

import itertools

import numpy as np
import tensorflow as tf

from haste_keras import layers
from haste_keras.layers.base import pooling_cell
from haste_keras.layers.base.normalized import normalized
from haste_keras.native.cell_spec import CELLS
from haste_keras.ops import int8
from haste_keras.ops.shapes import size, sizes
from haste_keras.serving.walk import Options, walk_cell, walk_pooling


def _wide(tensor):
    """As the kernels compute: 16 bits in float32."""
    return tf.cast(tensor, tf.float32) if tensor.dtype.size == 2 else tensor


def _float32(number):
    """An attribute as the op holds it."""
    return float(np.float32(number))


def make_cell(spec, hidden, attributes, generator):
    """The cell whose `step` has the equations of `spec`; None of ForgetMult, which has no cell.

    generator: a keras.random.SeedGenerator, which is not used: a cell makes one, which is a
      variable, and within a graph it cannot.
    """
    make = getattr(layers, spec.layer + "Cell", None)
    if make is None:
        return None
    names = make.argument_names()
    arguments = {"activation": attributes["activation"]}
    for name in ("recurrent_activation", "forget_activation"):
        if name in names:
            arguments[name] = attributes["recurrent_activation"]
    if "reset_after" in names:
        arguments["reset_after"] = not spec.reset_gates
    if "pooling" in names:
        arguments["pooling"] = spec.name.split("_")[1]
    if spec.normalizes:
        arguments["epsilon"] = _float32(attributes["epsilon"])
    return make(hidden, seed=generator, name="step", dtype="float32", **arguments)


class Recurrence:
    """The op of a cell; of those `layer` forms x·W + b itself, `int8` has int8 weights."""

    def __init__(self, spec, layer=False, int8=False):
        self.spec, self.layer, self.int8 = spec, layer, int8
        self.op = spec.op + ("Layer" if layer else "") + ("Int8" if int8 else "")
        if int8:
            self.dims = spec.layer_int8_inputs if layer else spec.int8_inputs
        else:
            self.dims = spec.layer_inputs if layer else spec.forward_inputs

    def body(self, inputs, attributes, *, loop, generator):
        """Outputs of the op, as `CellSpec.forward_outputs` lists them, without a reserve.

        inputs: list of tensors, as `CellSpec` lists them in `forward_inputs` or its like.
        attributes: the op's.
        loop: as of `walk.Options`.
        generator: as of `make_cell`.
        """
        named = dict(zip(self.dims, inputs, strict=True))
        dtype = inputs[0].dtype
        given = {k: _wide(v) for k, v in named.items() if k not in ("mask", "seed")}
        hidden = next(v for k, v in given.items() if self.dims[k].endswith("H")).shape[-1]
        mask = self._agree(given, named["mask"], len(attributes["reverse"]), hidden)
        cell = make_cell(self.spec, hidden, attributes, generator)
        parts, start = [], 0
        # Each direction is a loop of its own: TensorFlow runs the two at once.
        for reverse, run in itertools.groupby(attributes["reverse"]):
            end = start + len(list(run))
            lanes = {name: self._lanes(name, each, start, end) for name, each in given.items()}
            parts.append(self._walk(cell, lanes, mask, attributes, reverse, loop))
            start = end
        outputs = [
            tf.concat(each, 2 if i == 0 else 1) for i, each in enumerate(zip(*parts, strict=True))
        ]
        outputs = [tf.cast(each, dtype) for each in outputs]
        return outputs + [tf.zeros([0], dtype) for _ in ([] if self.int8 else self.spec.reserve)]

    def _agree(self, given, mask, lanes, hidden):
        """Gives all tensors one batch, known if one of them knows it; returns the mask, or None.

        Initial states that were left out become zeros.

        The op refuses tensors that differ. Here a batch of 1 would be broadcast instead, which
        `tf.reshape` refuses.
        """
        batched = [
            name
            for name, tensor in given.items()
            if self.dims[name].startswith("N") and tensor.shape.rank != 1
        ]
        known = [n for n in (given[name].shape[0] for name in batched) if n is not None]
        first = given[batched[0]]
        rows, time = known[0] if known else tf.shape(first)[0], size(first, 1)
        for name in batched:
            if given[name] is not first or given[name].shape[0] is None:
                given[name] = tf.reshape(given[name], [rows, *sizes(given[name])[1:]])
        for name in (f"{state}0" for state in self.spec.states):
            if given[name].shape.rank == 1:
                given[name] = tf.zeros([rows, lanes, hidden], given[name].dtype)
        return tf.reshape(mask, [rows, time]) if mask.shape.rank != 1 else None

    def _lanes(self, name, tensor, start, end):
        """Lanes start to end of an input."""
        dims = self.dims[name]
        if "K" not in dims or tensor.shape.rank == 1:  # an absent bias is [0]
            return tensor
        axis = dims.index("K")
        if tensor.shape[axis] == end - start:
            return tensor
        return tensor[(slice(None),) * axis + (slice(start, end),)]

    def _walk(self, cell, given, mask, attributes, reverse, loop):
        """[y, *states] of lanes that walk one way."""
        spec = self.spec
        rates = [_float32(rate) for rate in attributes["zoneout"]]
        dtype = given[f"{spec.states[0]}0"].dtype
        options = Options(
            reverse=reverse,
            zero=attributes["zero_output_for_mask"],
            share=[tf.constant(rate, dtype) if rate else None for rate in rates],
            own_zoneout=() if cell is None else cell.own_zoneout,
            loop=loop,
        )
        states = [given[f"{state}0"] for state in spec.states]
        if spec.recurrence == "none":
            share = options.share[0]
            if cell is None:
                coefficients = pooling_cell.forget_mult(given["f"], given["x"], share)
            else:
                coefficients = cell.coefficients(self._projected(given), share)
            options = Options(**{**vars(options), "own_zoneout": (0,)})
            y, states = walk_pooling(coefficients, states, mask, options)
        else:
            names = [*spec.parameters, *(["recurrent_scale"] if self.int8 else [])]
            weights = {name: given[name] for name in names}
            y, states = walk_cell(cell, self._projected(given), states, weights, mask, options)
        return [y, *states]

    def _projected(self, given):
        """wx [N, T, K, G, H]."""
        if not self.layer:
            return given["wx"]
        x, kernel, bias = given["x"], given["kernel"], given["bias"]
        features, *gates = sizes(kernel)
        rows, matrix = tf.reshape(x, [-1, features]), tf.reshape(kernel, [features, -1])
        if self.int8:
            wx = int8.product(rows, matrix, tf.reshape(given["kernel_scale"], [-1]))
        else:
            wx = tf.matmul(rows, matrix)
        if bias.shape.rank != 1:
            wx = tf.nn.bias_add(wx, tf.reshape(bias, [-1]))
        return tf.reshape(wx, [*sizes(x)[:2], *gates])


class LayerNorm:
    """HasteLayerNorm."""

    op = "HasteLayerNorm"

    def body(self, inputs, attributes, *, loop, generator):
        x, gamma, beta = (_wide(each) for each in inputs)
        has_beta, shape, axis = beta.shape.rank != 1, sizes(x), 2
        if gamma.shape[0] == 1:  # one lane: matrices and vectors, whose operations are faster
            x, gamma, axis = tf.reshape(x, [-1, shape[2]]), gamma[0], 1
        y = normalized(x, gamma, _float32(attributes["epsilon"]), [axis])
        if has_beta:
            y = tf.nn.bias_add(y, beta[0]) if axis == 1 else y + beta
        return [tf.cast(tf.reshape(y, shape), inputs[0].dtype)]


class MatMul:
    """HasteMatMul and its transposed forms."""

    def __init__(self, transposed=None):
        self.op = "HasteMatMul" + (f"Transpose{transposed}" if transposed else "")
        self.transposed = transposed

    def body(self, inputs, attributes, *, loop, generator):
        transpose_a, transpose_b = self.transposed == "A", self.transposed == "B"
        return [tf.matmul(*inputs, transpose_a=transpose_a, transpose_b=transpose_b)]


class MatMulInt8:
    """HasteMatMulInt8."""

    op = "HasteMatMulInt8"

    def body(self, inputs, attributes, *, loop, generator):
        a, b, b_scale = inputs
        return [tf.cast(int8.product(tf.cast(a, tf.float32), b, b_scale), a.dtype)]


# By the names of the ops' wrappers.
STOCK = {
    "haste_layer_norm": LayerNorm(),
    "haste_mat_mul": MatMul(),
    "haste_mat_mul_transpose_a": MatMul("A"),
    "haste_mat_mul_transpose_b": MatMul("B"),
    "haste_mat_mul_int8": MatMulInt8(),
}
for _spec in CELLS:
    STOCK[_spec.python_op] = Recurrence(_spec)
    if _spec.has_int8_op:
        STOCK[_spec.python_op + "_int8"] = Recurrence(_spec, int8=True)
        if _spec.has_layer_op:
            STOCK[_spec.python_op + "_layer_int8"] = Recurrence(_spec, layer=True, int8=True)
    if _spec.has_layer_op:
        STOCK[_spec.python_op + "_layer"] = Recurrence(_spec, layer=True)
