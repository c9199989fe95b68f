"""cuDNN's op of Keras's LSTM and GRU, as an export on a machine with a GPU has it.

Keras arranges the weights for cuDNN within the graph, from its own variables: they are the call's.
"""

import dataclasses

import tensorflow as tf

from haste_keras.native import cell_spec
from haste_keras.serving.rewrite.adapter import make, outputs_of
from haste_keras.serving.rewrite.cells import Cell
from haste_keras.serving.rewrite.functions import data_inputs
from haste_keras.serving.rewrite.loops import Loop, RefusedError, require
from haste_keras.serving.rewrite.splice import Splice

OP = "CudnnRNNV3"
OLDER = ("CudnnRNN", "CudnnRNNV2")
OUTPUTS = ("output", "output_h", "output_c")
# By rnn_mode: the cell, and which of Keras's gates cuDNN's first, second, … is.
_CELLS = {
    "lstm": (cell_spec.LSTM, (0, 1, 2, 3)),
    "gru": (cell_spec.GRU, (1, 0, 2)),  # Keras's z, r, h
}
_AS_KERAS_HAS = {
    "input_mode": "linear_input",
    "direction": "unidirectional",
    "dropout": 0.0,
    "num_proj": 0,
    "time_major": False,
}
_DEFAULTS = {**_AS_KERAS_HAS, "time_major": True, "rnn_mode": "lstm"}
_DATA = ("Identity", "StopGradient", "PreventGradient")


@dataclasses.dataclass(frozen=True)
class Cudnn:
    """An op of cuDNN.

    loop: a `Loop` that computes the same, from weights as Keras has them.
    inputs: edges of the adapter's arguments: x, the weights, the states and `lengths`.
    """

    loop: Loop
    inputs: list


class _Reader:
    """Reads one op; its methods raise `RefusedError`."""

    def __init__(self, node, outer):
        self.node, self.outer = node, outer

    def read(self):
        node, inputs = self.node, data_inputs(self.node)
        for name, value in _AS_KERAS_HAS.items():
            given = self._attribute(name)
            require(given == value, f"cuDNN's op has {name}={given}")
        mode = self._attribute("rnn_mode")
        require(mode in _CELLS, f"cuDNN's op has rnn_mode={mode}")
        spec, order = _CELLS[mode]
        x, h, c, parameters, lengths = inputs
        weights = self._weights(parameters, order, has_two_biases=mode == "gru")
        terms = [self.outer.term(each) for each in weights]
        self._check_shapes(spec, *(term.shape for term in terms))
        lengths = None if self._are_full(lengths, x) else lengths
        dtype = tf.as_dtype(node.attr["T"].type if "T" in node.attr else tf.float32).name
        loop = Loop(
            cell=Cell(spec, "tanh", "sigmoid", *terms),
            dtype=dtype,
            x=x,
            time_major=False,
            steps=None,
            reverse=False,
            sequences=True,
            mask=lengths,
            zero=True,
            carried=0,
        )
        states = [h, c][: len(spec.states)]
        return Cudnn(loop, [x, *weights, *states, *([] if lengths is None else [lengths])])

    def _attribute(self, name):
        """An attribute's value; it is left out where it is the op's default."""
        default = _DEFAULTS[name]
        if name not in self.node.attr:
            return default
        value = self.node.attr[name]
        if isinstance(default, bool):
            return value.b
        if isinstance(default, str):
            return value.s.decode()
        return value.f if isinstance(default, float) else value.i

    def _source(self, edge):
        """(node or None, number of its output) that an edge comes from, without copies."""
        while True:
            name, *output = edge.split(":")
            node = self.outer.nodes.get(name)
            if node is None or node.op not in _DATA:
                return node, int(output[1]) if output else 0
            edge = data_inputs(node)[0]

    def _concatenated(self, edge):
        """The edges that a vector is put together of; None: it is not."""
        node, _ = self._source(edge)
        if node is None or node.op != "ConcatV2":
            return None
        *parts, axis = data_inputs(node)
        axis = self.outer.constant(axis)
        return parts if axis is not None and axis in (0, -1) else None

    def _flattened(self, edge):
        """The edge that is reshaped to a vector; the same edge if none is."""
        node, _ = self._source(edge)
        if node is None or node.op != "Reshape":
            return edge
        tensor, shape = data_inputs(node)
        shape = self.outer.constant(shape)
        return tensor if shape is not None and shape.tolist() == [-1] else edge

    def _part(self, edge, axis):
        """(edge, number of parts, which part) of an edge that is split off another at `axis`."""
        node, number = self._source(edge)
        if node is None or node.op != "Split":
            return None
        at, whole = data_inputs(node)
        at = self.outer.constant(at)
        if at is None or int(at) != axis:
            return None
        return whole, node.attr["num_split"].i, number

    def _transposed(self, edge):
        """The edge that is transposed; None: none is."""
        node, _ = self._source(edge)
        if node is None or node.op != "Transpose":
            return None
        tensor, order = data_inputs(node)
        order = self.outer.constant(order)
        return tensor if order is not None and order.tolist() == [1, 0] else None

    def _weights(self, edge, order, has_two_biases):
        """Edges of kernel, recurrent_kernel and bias, which the vector `edge` is made of."""
        reason = "the weights of cuDNN's op are not arranged as Keras does it for CUDA"
        count, pieces = len(order), self._concatenated(edge)
        require(pieces is not None and len(pieces) == 4 * count, reason)
        pieces = [self._flattened(each) for each in pieces]
        matrices = []
        for start in (0, count):
            parts = []
            for piece in pieces[start : start + count]:
                matrix = self._transposed(piece)
                parts.append(None if matrix is None else self._part(matrix, 1))
            matrices.append(self._whole(parts, order, reason))
        parts = [self._part(each, 0) for each in pieces[2 * count :]]
        vector = self._whole(parts, (*order, *(count + each for each in order)), reason)
        if has_two_biases:
            bias = self._flattened(vector)
            require(bias != vector, reason)
        else:
            halves = self._concatenated(vector)
            require(halves is not None and len(halves) == 2, reason)
            require(self._is_zero(halves[0]), reason)
            bias = halves[1]
        return [*matrices, bias]

    @staticmethod
    def _whole(parts, order, reason):
        """The edge that all `parts` are of, in this order."""
        require(all(part is not None for part in parts), reason)
        wholes = {whole for whole, _, _ in parts}
        require(len(wholes) == 1, reason)
        require(all(count == len(order) for _, count, _ in parts), reason)
        require(tuple(number for _, _, number in parts) == tuple(order), reason)
        return wholes.pop()

    def _is_zero(self, edge):
        array = self.outer.constant(edge)
        return self.outer.term(edge).kind == "zeros" or (array is not None and not array.any())

    @staticmethod
    def _check_shapes(spec, kernel, recurrent_kernel, bias):
        gates = len(spec.gates)
        known = recurrent_kernel is not None and len(recurrent_kernel) == 2
        require(known and recurrent_kernel[0], "the shapes of the weights are not known")
        hidden = recurrent_kernel[0]
        bias_shape = (2, gates * hidden) if spec is cell_spec.GRU else (gates * hidden,)
        require(
            recurrent_kernel == (hidden, gates * hidden)
            and kernel is not None
            and len(kernel) == 2
            and kernel[0]
            and kernel[1] == gates * hidden
            and bias == bias_shape,
            "the shapes of the weights are not those of a layer of Keras",
        )

    def _are_full(self, lengths, x):
        """Whether every row is as long as there are steps, as Keras has it without a mask."""
        node, _ = self._source(lengths)
        if node is None or node.op != "Fill":
            return False
        source, _ = self._source(x)
        if source is not None and source.op == "ReverseSequence":  # go_backwards
            x = data_inputs(source)[0]
        steps = self.outer.term(data_inputs(node)[1])
        if steps.kind != "size":
            return False
        return steps is self.outer.terms.size(self.outer.term(x), 1)


def read(node, outer):
    """The `Cudnn` that a node of `outer` is.

    Args:
      node: a NodeDef, of `OP`.
      outer: the `Function` that it is in, without arithmetic.
    Raises:
      RefusedError: it is none that is known; the message says why.
    """
    return _Reader(node, outer).read()


class CudnnSplice(Splice):
    """`Splice` of an op of cuDNN."""

    def __init__(self, function, node, op):
        self.function, self.node, self.op = function, node, op
        self.wanted, self.edges = [], {}
        outputs = OUTPUTS[: 1 + len(op.loop.cell.spec.states)]
        for name in sorted(self._read_outputs()):
            if name not in outputs:
                raise RefusedError("something reads what cuDNN's op keeps for its gradient")
            self._replace(f"{node.name}:{name}:0", name)
        if not self.wanted:
            raise RefusedError("nothing reads what it computes")

    def _read_outputs(self):
        prefix = f"{self.node.name}:"
        edges = [edge for node in self.function.node_def for edge in node.input]
        edges += self.function.ret.values()
        return {edge.split(":")[1] for edge in edges if edge.startswith(prefix)}

    def _inputs(self, before):
        return self.op.inputs


def build(op, wanted, prefix):
    """The `Adapter` of an op; `wanted`: names of the op's outputs; `prefix`: as of `make`."""
    loop, cell = op.loop, op.loop.cell

    def adapter(x, kernel, recurrent_kernel, bias, *rest):
        states, mask = list(rest), None
        if loop.mask is not None:
            mask = tf.sequence_mask(states.pop(), tf.shape(x)[1])
        states = [tf.squeeze(each, 1) for each in states]
        weights = (kernel, recurrent_kernel, bias)
        y, _, states = outputs_of(loop, x, weights, states, mask)
        states = [tf.expand_dims(each, 1) for each in states]
        named = dict(zip(OUTPUTS, (y, *states), strict=False))
        return [named[each] for each in wanted]

    dtype = tf.as_dtype(loop.dtype)
    weights = (cell.kernel, cell.recurrent_kernel, cell.bias)
    features, hidden = cell.kernel.shape[0], cell.recurrent_kernel.shape[0]
    specs = [tf.TensorSpec([None, None, features], dtype)]
    specs += [tf.TensorSpec(each.shape, dtype) for each in weights]
    specs += [tf.TensorSpec([None, 1, hidden], dtype) for _ in cell.spec.states]
    specs += [tf.TensorSpec([None], tf.int32)] if loop.mask is not None else []
    return make(adapter, specs, prefix)
