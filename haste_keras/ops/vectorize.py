"""`tf.vectorized_map` over the ops: the loop's dimension is folded into one of the op's own.

Without this, TensorFlow runs a loop of one op call an element. `keras.layers.TimeDistributed`
comes here too. The loop goes into the batch, whose rows know nothing of each other; in gradients
that are sums over the batch, those of parameters, into the lanes.

A portable export has a call of a tagged function in place of an op: `vectorize_call` gives the call
the op's converter.

TensorFlow's registry of converters is private: where it is absent nothing is registered, and
TensorFlow loops.
"""

import functools

import tensorflow as tf

from haste_keras._compat import ConversionNotImplementedError, RegisterPFor, wrap
from haste_keras.native import raw_ops
from haste_keras.native.cell_spec import CELLS
from haste_keras.ops import gradients, matmul
from haste_keras.ops.shapes import sizes

_CONVERTERS = {}  # by op


class _Call:
    """A call in place of an op, as a converter sees the op: inputs, outputs and attributes."""

    def __init__(self, pfor_input, attributes):
        self._pfor_input, self._attributes = pfor_input, attributes

    def __getattr__(self, name):
        return getattr(self._pfor_input, name)

    def get_attr(self, name):
        return self._attributes[name]


def vectorize_call(call, op, attributes):
    """Makes `tf.vectorized_map` convert the call of a function as it converts an op.

    Without this it converts the function's body, operation by operation, and the function is gone.

    Args:
      call: the tf.Operation that calls the function: inputs and outputs are the op's.
      op: name of the op, "HasteLstm".
      attributes: {name: value}, the op's.
    """
    converter = _CONVERTERS.get(op)
    if converter is not None:
        # PFor prefers it to the converter of the operation's type (TensorFlow 2.16.2 and 2.21.0).
        call.pfor_converter = lambda pfor_input: converter(_Call(pfor_input, attributes))


def _register_converter(op):
    """Decorator of the converter of an op."""

    def register(converter):
        _CONVERTERS[op] = converter
        return RegisterPFor(op)(converter)

    return register


def _fold(tensor, axis):
    """[loop, …, size, …] → […, loop · size, …], `axis` being that of size in the result."""
    if axis > 0:
        tensor = tf.transpose(tensor, [*range(1, axis + 1), 0, *range(axis + 1, tensor.shape.rank)])
    shape = sizes(tensor)
    return tf.reshape(tensor, [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]])


def _unfold(tensor, axis, loop, size):
    """[…, loop · size, …] → [loop, …, size, …]."""
    shape = sizes(tensor)
    tensor = tf.reshape(tensor, [*shape[:axis], loop, size, *shape[axis + 1 :]])
    if axis == 0:
        return tensor
    return tf.transpose(tensor, [axis, *range(axis), *range(axis + 1, tensor.shape.rank)])


def _convert(pfor_input, function, dims_in, dims_out, letter):
    """`function` on inputs with the loop folded into the axis `letter`, and its outputs unfolded.

    dims_in, dims_out: axes of each input and output of the op. Inputs without that axis must not
    differ between iterations: TensorFlow's exception from here makes it loop over the op.
    """
    # An input that is a vector is an optional one that was left out: [0] stays [0].
    folded = {
        i: dims.index(letter)
        for i, (dims, tensor) in enumerate(zip(dims_in, pfor_input.op.inputs, strict=True))
        if letter in dims and tensor.shape.rank != 1
    }
    for i in range(pfor_input.num_inputs):
        if i not in folded:
            pfor_input.unstacked_input(i)
    pfor_input.stack_inputs(list(folded))
    first, axis = next(iter(folded.items()))
    shape = sizes(pfor_input.stacked_input(first))
    loop, size = shape[0], shape[1 + axis]
    inputs = [
        _fold(pfor_input.stacked_input(i), folded[i])
        if i in folded
        else pfor_input.unstacked_input(i)
        for i in range(pfor_input.num_inputs)
    ]
    return [
        wrap(tensor, False)
        if tensor.shape.rank == 1
        else wrap(_unfold(tensor, dims.index(letter), loop, size), True)
        for tensor, dims in zip(function(inputs), dims_out, strict=True)
    ]


def _register(spec):
    sums = any("N" not in dims for dims in spec.backward_outputs.values())

    def options_of(pfor_input):
        options = raw_ops.attributes(spec, pfor_input)
        draws = any(options["zoneout"]) or options["recurrent_dropout"]
        if sums and options["training"] and draws:
            # What is drawn depends on the number of the row and of the lane, so that the op and
            # its gradient must be folded alike.
            raise ConversionNotImplementedError(f"{spec.op} draws random numbers")
        return options

    def convert_forward(pfor_input, layer):
        options = {"save": pfor_input.get_attr("save"), "layer": layer, **options_of(pfor_input)}
        function = functools.partial(raw_ops.forward, spec, **options)
        inputs = spec.layer_inputs if layer else spec.forward_inputs
        return _convert(pfor_input, function, inputs.values(), spec.forward_outputs.values(), "N")

    _register_converter(spec.op)(functools.partial(convert_forward, layer=False))

    @_register_converter(spec.op + "Grad")
    def convert_backward(pfor_input):
        options = options_of(pfor_input)
        # A reserve that is one for all iterations is not copied for each: TensorFlow loops.
        pfor_input.stacked_input(list(spec.backward_inputs).index(spec.saved[0]))
        if sums:
            loop = tf.get_static_value(pfor_input.pfor.loop_len_vector)
            if loop is None:
                raise ConversionNotImplementedError(f"{spec.op}Grad needs the length of the loop")
            options["reverse"] = options["reverse"] * int(loop[0])
        function = functools.partial(raw_ops.backward, spec, **options)
        dims = spec.backward_inputs.values(), spec.backward_outputs.values()
        return _convert(pfor_input, function, *dims, "K" if sums else "N")

    def convert_int8(pfor_input, layer):
        options = raw_ops.attributes(spec, pfor_input, raw_ops.INT8_ATTRIBUTES)
        function = functools.partial(raw_ops.forward_int8, spec, layer=layer, **options)
        dims = ["NTKH", *["NKH" for _ in spec.states]]
        inputs = spec.layer_int8_inputs if layer else spec.int8_inputs
        return _convert(pfor_input, function, inputs.values(), dims, "N")

    if spec.has_int8_op:
        _register_converter(spec.op + "Int8")(functools.partial(convert_int8, layer=False))
        if spec.has_layer_op:
            _register_converter(spec.op + "LayerInt8")(functools.partial(convert_int8, layer=True))

    if spec.has_layer_op:
        _register_converter(spec.op + "Layer")(functools.partial(convert_forward, layer=True))
        _register_converter(spec.op + "LayerGrad")(functools.partial(_convert_layer_backward, spec))


def _convert_layer_backward(spec, pfor_input):
    """By the gradient's op of the recurrence and products, which are converted one by one.

    The op that has them all has no axis to fold into: x is of all lanes, dkernel of all rows.
    """
    options = raw_ops.attributes(spec, pfor_input)
    flags = zip(spec.layer_gradients, pfor_input.get_attr("wanted"), strict=True)
    wanted = {name.removeprefix("d") for name, flag in flags if flag}
    given = [pfor_input.input(i) for i in range(pfor_input.num_inputs)]
    named = dict(zip(spec.layer_backward_inputs, given, strict=True))
    shared = {name: each.t for name, each in named.items() if not each.is_stacked}
    dtype = named["x"].t.dtype

    def function(own):
        found = gradients.composed(spec, {**shared, **own}, wanted, options, layer=True)
        return [
            found[name] if name in found else tf.zeros([0], dtype)
            for name in spec.layer_backward_outputs
        ]

    own = {name: each.t for name, each in named.items() if each.is_stacked}
    return [wrap(each, True) for each in tf.vectorized_map(function, own)]


def _register_layer_norm():
    rows, sums = "RKF", "KF"

    @_register_converter("HasteLayerNorm")
    def convert_forward(pfor_input):
        epsilon = pfor_input.get_attr("epsilon")
        return _convert(
            pfor_input,
            lambda inputs: [raw_ops.layer_norm(*inputs, epsilon=epsilon)],
            [rows, sums, sums],
            [rows],
            "R",
        )

    @_register_converter("HasteLayerNormGrad")
    def convert_backward(pfor_input):
        epsilon = pfor_input.get_attr("epsilon")
        return _convert(
            pfor_input,
            lambda inputs: raw_ops.layer_norm_backward(*inputs, epsilon=epsilon),
            [rows, sums, rows],
            [rows, sums, sums],
            "K",
        )


def _register_matmul(name, dims_in, dims_out, transpose_a=False, transpose_b=False):
    @_register_converter(name)
    def convert(pfor_input):
        inputs = [pfor_input.input(i) for i in range(2)]
        if all(each.is_stacked for each in inputs):
            a, b = (each.t for each in inputs)
            return wrap(tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b), True)
        differs = dims_in[0 if inputs[0].is_stacked else 1]
        letter = next(each for each in differs if each in dims_out)
        product = matmul.OPS[transpose_a, transpose_b]
        return _convert(pfor_input, lambda inputs: [product(*inputs)], dims_in, [dims_out], letter)


def _register_matmul_int8():
    @_register_converter("HasteMatMulInt8")
    def convert(pfor_input):
        def product(inputs):
            return [raw_ops.matmul_int8(*inputs)]

        return _convert(pfor_input, product, ["RC", "CW", "W"], ["RW"], "R")


if RegisterPFor is not None:
    for _spec in CELLS:
        _register(_spec)
    _register_layer_norm()
    _register_matmul_int8()
    _register_matmul("HasteMatMul", ["RC", "CW"], "RW")
    _register_matmul("HasteMatMulTransposeA", ["RC", "RW"], "CW", transpose_a=True)
    _register_matmul("HasteMatMulTransposeB", ["RW", "CW"], "RC", transpose_b=True)
