"""A FunctionDef read as terms."""

import numpy as np
import tensorflow as tf

from haste_keras._compat import registered_op

# Operations without a state: what nothing reads may go.
PURE = frozenset(
    {
        *(
            "Add",
            "AddV2",
            "BiasAdd",
            "Cast",
            "ConcatV2",
            "Const",
            "ExpandDims",
            "Fill",
            "Identity",
            "Less",
        ),
        *("LogicalAnd", "MatMul", "Max", "Mul", "Pack", "RealDiv", "Relu", "Relu6", "Reshape"),
        *("ReverseV2", "SelectV2", "Shape", "Sigmoid", "Split", "Squeeze", "StridedSlice", "Sub"),
        *("Tanh", "TensorListFromTensor", "TensorListGetItem", "TensorListReserve"),
        *("TensorListSetItem", "TensorListStack", "Tile", "Transpose", "ZerosLike"),
    }
)
_UNARY = {"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu", "Relu6": "relu6"}
_DATA = ("Identity", "StopGradient", "PreventGradient")


def shape_of(proto):
    """A TensorShapeProto as `Term.shape`."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def data_inputs(node):
    """The inputs of a NodeDef that are no control edges."""
    return [edge for edge in node.input if not edge.startswith("^")]


def constant_of(node):
    """The array of a node "Const"."""
    return tf.make_ndarray(node.attr["value"].tensor)


class Function:
    """A FunctionDef, and terms of its edges.

    scope: whose arguments they are: those of one scope are the same.
    arithmetic: whether to look into arithmetic. Else an edge of it is a term of its own.
    """

    def __init__(self, definition, terms, scope, arithmetic):
        self.definition, self.terms = definition, terms
        self.scope, self.arithmetic = scope, arithmetic
        self.nodes = {node.name: node for node in definition.node_def}
        self.arguments = [each.name for each in definition.signature.input_arg]
        self._term_of, self._edge_of = {}, {}

    @property
    def name(self):
        return self.definition.signature.name

    def outputs(self):
        """Terms of what the function returns."""
        names = [each.name for each in self.definition.signature.output_arg]
        return [self.term(self.definition.ret[name]) for name in names]

    def edge(self, term):
        """An edge that is `term`."""
        return self._edge_of[term]

    def term(self, edge):
        """The term of an edge: "node:output:0", or an argument's name."""
        if edge not in self._term_of:
            term = self._read(edge)
            self._term_of[edge] = term
            self._edge_of.setdefault(term, edge)
        return self._term_of[edge]

    def constant(self, edge):
        """The array of an edge; None if it is no constant."""
        node = self.nodes.get(edge.split(":")[0])
        return constant_of(node) if node is not None and node.op == "Const" else None

    def _argument(self, name):
        index = self.arguments.index(name)
        shapes = self.definition.arg_attr[index].attr["_output_shapes"].list.shape
        shape = shape_of(shapes[0]) if shapes else None
        return self.terms.make("argument", index, self.scope, shape=shape)

    def _read(self, edge):
        name, *output = edge.split(":")
        if name not in self.nodes:
            return self._argument(name)
        node, number = self.nodes[name], int(output[1]) if len(output) > 1 else 0
        inputs = data_inputs(node)
        if node.op in _DATA:
            return self.term(inputs[0])
        read = getattr(self, f"_{node.op.lower()}", None)
        result = read(node, inputs, number) if read is not None else None
        if result is None and self.arithmetic:
            read = getattr(self, f"_arithmetic_{node.op.lower()}", None)
            if read is not None:
                result = read(node, inputs, number)
            elif node.op in _UNARY:
                result = self.terms.elementwise(_UNARY[node.op], self.term(inputs[0]))
        if result is None:
            result = self.terms.make("edge", self.name, edge, shape=self._shape(node, number))
        return result

    @staticmethod
    def _shape(node, number):
        """Of an output of a node whose op has one, or one list of them."""
        definition = registered_op(node.op)
        if "_output_shapes" not in node.attr or definition is None:
            return None
        shapes = node.attr["_output_shapes"].list.shape
        known = len(definition.output_arg) == 1 and number < len(shapes)
        return shape_of(shapes[number]) if known else None

    # What a node is, by its op; None: a term of its own.

    def _const(self, node, inputs, number):
        return self.terms.constant(constant_of(node))

    def _cast(self, node, inputs, number):
        source, target = (tf.as_dtype(node.attr[key].type).name for key in ("SrcT", "DstT"))
        term = self.term(inputs[0])
        return term if source == target else self.terms.cast(term, target)

    def _transpose(self, node, inputs, number):
        order = self.constant(inputs[1])
        if order is None:
            return None
        shape = self._shape(node, number)
        order = tuple(map(int, order))
        return self.terms.make("transpose", self.term(inputs[0]), order, shape=shape)

    def _reversev2(self, node, inputs, number):
        axes = self.constant(inputs[1])
        if axes is None or axes.size != 1:
            return None
        term = self.term(inputs[0])
        return self.terms.make("reverse", term, int(axes.flat[0]), shape=term.shape)

    def _expanddims(self, node, inputs, number):
        axis = self.constant(inputs[1])
        if axis is None:
            return None
        shape = self._shape(node, number)
        return self.terms.make("expand", self.term(inputs[0]), int(axis.flat[0]), shape=shape)

    def _zeroslike(self, node, inputs, number):
        return self.terms.make("zeros", self.name, node.name, shape=self._shape(node, number))

    def _fill(self, node, inputs, number):
        value = self.constant(inputs[1])
        return (
            self._zeroslike(node, inputs, number) if value is not None and not value.any() else None
        )

    def _max(self, node, inputs, number):
        """Of one number it is that number: Keras takes the maximum of a length."""
        value = self.constant(inputs[0])
        return self.terms.constant(value) if value is not None and value.size == 1 else None

    def _tensorlistfromtensor(self, node, inputs, number):
        return self.terms.make("list", self.term(inputs[0]))

    def _tensorlistreserve(self, node, inputs, number):
        return self.terms.make("reserved", self.term(inputs[1]))

    def _stridedslice(self, node, inputs, number):
        indices = [self.constant(edge) for edge in inputs[1:]]
        if any(each is None for each in indices):
            return None
        source = self.nodes.get(inputs[0].split(":")[0])
        if source is not None and source.op == "Shape":
            return self._size(node, data_inputs(source)[0], *indices)
        return self._columns(node, inputs[0], *indices) if self.arithmetic else None

    def _size(self, node, edge, begin, end, strides):
        masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
        if any(node.attr[mask].i for mask in masks if mask in node.attr):
            return None
        if "shrink_axis_mask" not in node.attr or node.attr["shrink_axis_mask"].i != 1:
            return None
        term = self.term(edge)
        if begin.size != 1 or not 0 <= begin[0] < 3 or term.shape is None or len(term.shape) != 3:
            return None
        return self.terms.size(term, int(begin[0]))

    def _columns(self, node, edge, begin, end, strides):
        """Of a matrix [:, a:b], of a vector [a:b]."""
        term = self.term(edge)
        masks = {
            mask: node.attr[mask].i if mask in node.attr else 0
            for mask in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
        }
        shrinks = node.attr["shrink_axis_mask"].i if "shrink_axis_mask" in node.attr else 0
        rank = begin.size
        if masks["ellipsis_mask"] or masks["new_axis_mask"] or shrinks or (strides != 1).any():
            return None
        if term.shape is None or len(term.shape) != rank or rank > 2 or term.shape[-1] is None:
            return None
        if rank == 2 and not (masks["begin_mask"] & 1 and masks["end_mask"] & 1):
            return None
        last, width = 1 << (rank - 1), term.shape[-1]
        start = 0 if masks["begin_mask"] & last else int(begin[-1])
        stop = width if masks["end_mask"] & last else int(end[-1])
        start, stop = (each + width if each < 0 else each for each in (start, stop))
        return self.terms.slice(term, -1, start, min(stop, width))

    def _arithmetic_readvariableop(self, node, inputs, number):
        shape = self._shape(node, number)
        dtype = tf.as_dtype(node.attr["dtype"].type).name
        return self.terms.make("read", self.term(inputs[0]), dtype, shape=shape)

    def _arithmetic_tensorlistgetitem(self, node, inputs, number):
        items = [self.term(edge) for edge in inputs[:2]]
        return self.terms.make("item", *items, shape=self._shape(node, number))

    def _arithmetic_tensorlistsetitem(self, node, inputs, number):
        resizes = node.attr.get("resize_if_index_out_of_bounds")
        if resizes is not None and resizes.b:
            return None
        return self.terms.make("set", *(self.term(edge) for edge in inputs))

    def _arithmetic_matmul(self, node, inputs, number):
        flags = [key for key in node.attr if key.startswith(("transpose_", "grad_"))]
        if any(node.attr[key].b for key in flags):
            return None
        return self.terms.matmul(*(self.term(edge) for edge in inputs))

    def _arithmetic_addv2(self, node, inputs, number):
        return self.terms.add(*(self.term(edge) for edge in inputs))

    _arithmetic_add = _arithmetic_addv2

    def _arithmetic_biasadd(self, node, inputs, number):
        if "data_format" in node.attr and node.attr["data_format"].s != b"NHWC":
            return None
        return self.terms.add(*(self.term(edge) for edge in inputs))

    def _arithmetic_mul(self, node, inputs, number):
        return self.terms.multiply(*(self.term(edge) for edge in inputs))

    def _arithmetic_sub(self, node, inputs, number):
        return self.terms.elementwise("subtract", *(self.term(edge) for edge in inputs))

    def _arithmetic_realdiv(self, node, inputs, number):
        return self.terms.elementwise("divide", *(self.term(edge) for edge in inputs))

    def _arithmetic_less(self, node, inputs, number):
        return self.terms.make("less", *(self.term(edge) for edge in inputs))

    def _arithmetic_logicaland(self, node, inputs, number):
        terms = sorted((self.term(edge) for edge in inputs), key=lambda each: each.number)
        return self.terms.make("and", *terms)

    def _arithmetic_selectv2(self, node, inputs, number):
        return self.terms.make("select", *(self.term(edge) for edge in inputs))

    def _arithmetic_tile(self, node, inputs, number):
        """[N, 1] to [N, H], or as it is."""
        term, multiples = self.term(inputs[0]), self.constant(inputs[1])
        if multiples is None or multiples.size != 2 or multiples[0] != 1:
            return None
        if term.shape is None or len(term.shape) != 2 or term.shape[1] != 1:
            return None
        return term if multiples[1] == 1 else self.terms.make("tile", term, int(multiples[1]))

    def _arithmetic_split(self, node, inputs, number):
        axis, term = self.constant(inputs[0]), self.term(inputs[1])
        if axis is None or term.shape is None:
            return None
        rank, parts = len(term.shape), node.attr["num_split"].i
        axis = int(axis) - rank if axis >= 0 else int(axis)
        if rank not in (1, 2) or not -rank <= axis < 0:
            return None
        width = term.shape[axis]
        if width is None or width % parts:
            return None
        part = width // parts
        return self.terms.slice(term, axis, number * part, (number + 1) * part)

    def _arithmetic_squeeze(self, node, inputs, number):
        """A row that was split off a matrix."""
        term = self.term(inputs[0])
        if list(node.attr["squeeze_dims"].list.i) != [0] or term.shape is None:
            return None
        if len(term.shape) != 2 or term.shape[0] != 1:
            return None
        casts = []
        while term.kind == "cast":
            casts.append(term.arguments[1])
            term = term.arguments[0]
        if term.kind != "slice" or term.arguments[1] != -2:
            return None
        result = self.terms.row(term.arguments[0], term.arguments[2])
        for dtype in reversed(casts):
            result = self.terms.cast(result, dtype)
        return result


def numpy_dtype(name):
    """The NumPy dtype of a TensorFlow dtype's name."""
    return np.dtype(tf.as_dtype(name).as_numpy_dtype)
