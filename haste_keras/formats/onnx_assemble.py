"""The ONNX model: what tf2onnx makes of the graph, with operators in place of stand-ins."""

import contextlib
import functools
import logging

import numpy as np
import tensorflow as tf

from haste_keras.formats.stand_in import TYPE

DOMAIN = "haste_keras"  # of stand-ins, on their way through tf2onnx


@contextlib.contextmanager
def _quiet():
    """tf2onnx says of each stand-in that it cannot infer its shape, and logs its progress."""
    logger = logging.getLogger("tf2onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def assemble(packages, function, names, stand_ins, opset, name):
    """The onnx.ModelProto of a concrete function.

    Args:
      packages: `Packages`.
      function: a tf.types.experimental.ConcreteFunction.
      names: of its inputs and then of its outputs, in the model.
      stand_ins: `StandIns` of the trace.
      opset: of ONNX.
      name: of the graph.
    """
    inputs = [each for each in function.inputs if each.dtype != tf.resource]
    tensors = [each.name for each in (*inputs, *function.outputs)]
    outputs = [each.name for each in function.outputs]
    with _quiet():
        frozen = packages.loader.from_function(function, tensors[: len(inputs)], outputs)
        convert = functools.partial(_convert, packages, opset)
        renamed = dict(zip(tensors, names, strict=True))
        proto = convert(frozen, tensors[: len(inputs)], outputs, tensors_to_rename=renamed)
        _replace(_Bodies(packages, convert, stand_ins), proto.graph)
    for imported in list(proto.opset_import):
        if imported.domain == DOMAIN:
            proto.opset_import.remove(imported)
    proto.graph.name = name
    _name_dimensions(proto.graph, inputs)
    return proto


class Packages:
    """ONNX and what is used of tf2onnx (1.17), whose functions of one call take fewer options."""

    def __init__(self, onnx, tf2onnx):
        self.onnx = onnx
        self.loader, self.optimizer = tf2onnx.tf_loader, tf2onnx.optimizer
        self.process = tf2onnx.tfonnx.process_tf_graph


def _convert(packages, opset, graph_def, inputs, outputs, **options):
    """The onnx.ModelProto that tf2onnx makes of a GraphDef, with stand-ins in it."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        converted = packages.process(
            graph,
            continue_on_error=True,
            opset=opset,
            custom_op_handlers={name: (each, []) for name, each in _HANDLERS.items()},
            extra_opset=[packages.onnx.helper.make_opsetid(DOMAIN, 1)],
            input_names=inputs,
            output_names=outputs,
            **options,
        )
        # onnxruntime has no GlobalAveragePool of float64, which this one makes of means.
        optimizers = {
            name: each
            for name, each in packages.optimizer._get_optimizers().items()
            if name != "global_pool_optimizer"
        }
        converted = packages.optimizer.optimize_graph(converted, False, optimizers)
        return converted.make_model("model")


# Handlers of tf2onnx: (its graph, its node, the node's name, their own arguments).


def _pass_on(graph, node, name, arguments):
    node.domain = DOMAIN


def _replaced(graph, node, expression):
    """Puts operators in place of `node`: expression(operator, constant) → the result's name."""
    dtype = {1: np.float32, 10: np.float16, 11: np.float64}[graph.get_dtype(node.output[0])]

    def operator(kind, *inputs):
        return graph.make_node(kind, list(inputs)).output[0]

    def constant(value):
        name = f"{node.name}_{value}"
        return graph.make_const(name, np.array(value, dtype)).output[0]

    result = expression(operator, constant)
    graph.remove_node(node.name)
    graph.make_node("Identity", [result], outputs=list(node.output), name=node.name)


def _erfc(graph, node, name, arguments):
    """tf2onnx has no conversion of it: keras.activations.gelu."""
    x = node.input[0]
    _replaced(graph, node, lambda op, constant: op("Sub", constant(1), op("Erf", x)))


def _log1p(graph, node, name, arguments):
    """ONNX has none: an SLSTM's Zoneout, of a rate."""
    x = node.input[0]
    _replaced(graph, node, lambda op, constant: op("Log", op("Add", constant(1), x)))


def _softplus(graph, node, name, arguments):
    """onnxruntime has none of float64."""
    if graph.get_dtype(node.output[0]) != 11:
        return
    x = node.input[0]

    def expression(op, constant):
        small = op("Exp", op("Neg", op("Abs", x)))
        return op("Add", op("Max", x, constant(0)), op("Log", op("Add", constant(1), small)))

    _replaced(graph, node, expression)


def _select(graph, node, name, arguments):
    """tf2onnx multiplies by 0 and 1, which lets a NaN through that is not chosen."""
    node.type = "Where"


_HANDLERS = {
    TYPE: _pass_on,
    "Erfc": _erfc,
    "Log1p": _log1p,
    "Softplus": _softplus,
    "SelectV2": _select,
}


class _Bodies:
    """Makes the operator for each stand-in; the body of a Scan by a conversion of its own."""

    def __init__(self, packages, convert, stand_ins):
        self.packages, self.convert = packages, convert
        self.by_token = stand_ins.by_token
        self.made = 0

    def operator(self, node):
        """The node of ONNX for the stand-in `node`."""
        token = node.attribute[0].s.decode()
        stand_in = self.by_token[token]
        inputs = ["" if slot is None else node.input[slot] for slot in stand_in.slots]
        attributes = dict(stand_in.attributes)
        if stand_in.body is not None:
            captured = list(node.input[len(node.input) - stand_in.captures :])
            attributes["body"] = self._body(stand_in, captured)
        return self.packages.onnx.helper.make_node(
            stand_in.operator, inputs, list(node.output), name=node.name, **attributes
        )

    def _body(self, stand_in, captured):
        """GraphProto of a step, in which names of the graph around it stand for its captures."""
        function = stand_in.body
        own = len(function.inputs) - stand_in.captures
        inputs = [each.name for each in function.inputs]
        outputs = [each.name for each in function.outputs]
        graph_def = function.graph.as_graph_def(add_shapes=True)
        with tf.Graph().as_default():
            tf.import_graph_def(graph_def, name="")
            optimized = self.packages.loader.tf_optimize(inputs, outputs, graph_def)
        proto = self.convert(optimized, inputs, outputs)
        graph = proto.graph
        self.made += 1
        names = {
            each.name: name for each, name in zip(function.inputs[own:], captured, strict=True)
        }
        for each in list(graph.input):
            if each.name in names:
                graph.input.remove(each)
        _rename(graph, names, f"step{self.made}/")
        return graph


def _rename(graph, names, prefix):
    """Renames the tensors of `graph`: by `names`, else with `prefix`, so that none is met twice."""

    def renamed(name):
        return name and names.get(name, prefix + name)

    for each in (*graph.input, *graph.output, *graph.initializer):
        each.name = renamed(each.name)
    for node in graph.node:
        node.name = prefix + node.name
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")  # whose names are those of the whole model
    del graph.value_info[:]


def _subgraphs(node):
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _replace(bodies, graph):
    """Puts operators in place of the stand-ins of `graph` and of the graphs in it."""
    nodes = list(graph.node)
    del graph.node[:]
    del graph.value_info[:]  # tf2onnx does not know the shapes of what a stand-in returns
    for node in nodes:
        if node.domain == DOMAIN and node.op_type == TYPE:
            graph.node.append(bodies.operator(node))
            continue
        for each in _subgraphs(node):
            _replace(bodies, each)
        graph.node.append(node)


def _name_dimensions(graph, inputs):
    """Unknown sizes of inputs: "batch", and the name of the input with the number of the axis."""
    for value, tensor in zip(graph.input, inputs, strict=True):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if tensor.shape[axis] is None:
                dimension.dim_param = f"{value.name}_{axis}" if axis else "batch"
    for value in graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")


def check_operators(onnx, proto):
    """Raises NotImplementedError if the model has an operator that ONNX does not have."""
    versions = {each.domain: each.version for each in proto.opset_import}
    unknown = {}

    def walk(graph):
        for node in graph.node:
            if not onnx.defs.has(node.op_type, versions.get(node.domain, 1), node.domain):
                unknown.setdefault(node.op_type, node.name)
            for each in _subgraphs(node):
                walk(each)

    walk(proto.graph)
    if unknown:
        said = "; ".join(f"{operator} of {name}" for operator, name in unknown.items())
        raise NotImplementedError(f"to_onnx: tf2onnx has no conversion of TensorFlow's {said}")
