"""The function that stands for a loop: on the loop's own tensors, with a tagged call in it."""

import dataclasses

import tensorflow as tf

from haste_keras import ops
from haste_keras._compat import registered_op
from haste_keras.layers.base.projection import op_projects
from haste_keras.native.raw_ops import Projection
from haste_keras.ops.matmul import matmul
from haste_keras.ops.shapes import sizes
from haste_keras.serving.scope import portable

_FUNCTIONS = {"lstm": ops.lstm, "gru": ops.gru, "gru_reset_before": ops.gru, "elman": ops.elman}


def _lanes(weight, gates):
    """[..., G·H] → [..., 1, G, H]."""
    *rest, width = weight.shape
    return tf.reshape(weight, [*rest, 1, gates, width // gates])


def _walked(tensor, loop, axis):
    """The steps that the loop walks, of a tensor with time at `axis`."""
    if loop.steps is None:
        return tensor
    steps = slice(-loop.steps, None) if loop.reverse else slice(loop.steps)
    return tensor[(slice(None),) * axis + (steps,)]


def _projected(spec, x, kernel, bias):
    """x·W + b as a layer gives it to the op."""
    gates = len(spec.gates)
    if op_projects(spec, kernel.shape[0], x.dtype, training=False):
        return Projection(x, _lanes(kernel, gates), None if bias is None else _lanes(bias, gates))
    rows, time, features = sizes(x)
    wx = matmul(tf.reshape(x, [-1, features]), kernel)
    wx = wx if bias is None else tf.nn.bias_add(wx, bias)
    return tf.reshape(wx, [rows, time, 1, gates, kernel.shape[1] // gates])


def outputs_of(loop, x, weights, states, mask):
    """What the loop computes.

    Args:
      loop: `loops.Loop`.
      x: as of the loop.
      weights: kernel, recurrent_kernel, bias or None, in the loop's dtype.
      states: list of [N, H].
      mask: [N, T] bool, or None.
    Returns:
      y [N, T, H] in the order of the walk, the last of its steps [N, H], list of states [N, H].
    """
    cell = loop.cell
    spec = cell.spec
    kernel, recurrent_kernel, bias = weights
    features, hidden = kernel.shape[0], recurrent_kernel.shape[0]
    if loop.time_major:
        x = tf.transpose(x, [1, 0, 2])
    x = tf.ensure_shape(_walked(x, loop, 1), [None, loop.steps, features])
    rows, time, _ = sizes(x)
    options = {"reverse": [loop.reverse], "activation": cell.activation}
    if spec.name != "elman":
        options["recurrent_activation"] = cell.recurrent_activation
    if spec.name.startswith("gru"):
        options["reset_after"] = spec.name == "gru"
    if spec.extras and bias is not None:
        bias, recurrent_bias = tf.unstack(bias)
        options["recurrent_bias"] = _lanes(recurrent_bias, len(spec.gates))
    if mask is not None:
        # The loop broadcasts a mask, and reads no more of it than it walks.
        mask = mask[:, -time:] if loop.reverse else mask[:, :time]
        options["mask"] = tf.broadcast_to(mask, [rows, time])
        options["zero_output_for_mask"] = loop.zero
    states = [tf.reshape(tf.broadcast_to(each, [rows, hidden]), [-1, 1, hidden]) for each in states]
    y, states = _FUNCTIONS[spec.name](
        _projected(spec, x, kernel, bias),
        tf.reshape(recurrent_kernel, [1, hidden, len(spec.gates), hidden]),
        states,
        **options,
    )
    y = tf.reshape(y, [rows, time, hidden])
    last = y[:, 0] if loop.reverse else y[:, -1]
    y = tf.reverse(y, [1]) if loop.reverse else y
    return y, last, [tf.reshape(each, [-1, hidden]) for each in states]


@dataclasses.dataclass(frozen=True)
class Adapter:
    """A function of stock ops with a tagged call in it, for a graph's library.

    name: of the first of `functions`.
    functions: FunctionDefs; the others are what it calls.
    inputs, outputs: dtypes.
    shapes: TensorShapes of the outputs.
    """

    name: str
    functions: list
    inputs: list
    outputs: list
    shapes: list


def _specs(loop):
    """Of the function's arguments: x, weights, states, mask."""
    cell, dtype = loop.cell, tf.as_dtype(loop.dtype)
    features, hidden = cell.kernel.shape[0], cell.recurrent_kernel.shape[0]
    given = (cell.kernel, cell.recurrent_kernel, cell.bias)
    specs = [tf.TensorSpec([None, None, features], dtype)]
    specs += [tf.TensorSpec(each.shape, dtype) for each in given if each is not None]
    specs += [tf.TensorSpec([None, hidden], dtype) for _ in cell.spec.states]
    return specs + ([tf.TensorSpec([None, None], tf.bool)] if loop.mask is not None else [])


def build(loop, wanted, prefix):
    """The `Adapter` of a loop.

    Args:
      loop: `loops.Loop`.
      wanted: what it returns: "sequence" [N, T, H], "steps" [T, N, H], "last" [N, H], or the number
        of a state. Of a loop that keeps one output, T is 1.
      prefix: as of `make`.
    """
    cell = loop.cell

    def adapter(x, kernel, recurrent_kernel, *rest):
        rest = list(rest)
        bias = rest.pop(0) if cell.bias is not None else None
        mask = rest.pop() if loop.mask is not None else None
        weights = (kernel, recurrent_kernel, bias)
        y, last, states = outputs_of(loop, x, weights, rest, mask)
        y = y if loop.sequences else last[:, tf.newaxis]
        named = {"sequence": lambda: y, "last": lambda: last}
        named["steps"] = lambda: tf.transpose(y, [1, 0, 2])
        return [named[each]() if each in named else states[each] for each in wanted]

    return make(adapter, _specs(loop), prefix)


def make(function, specs, prefix):
    """The `Adapter` of a function of tensors.

    Args:
      function: tensors → list of tensors.
      specs: tf.TensorSpec of each of its arguments.
      prefix: of the names of its functions, which nothing else in the library may have.
    """
    with portable():
        inner = tf.function(function, autograph=False)
        outer = tf.function(lambda *given: inner(*given), autograph=False)
        traced = outer.get_concrete_function(*specs)
    definition = traced.graph.as_graph_def()
    (call,) = (node for node in definition.node if node.op.endswith("PartitionedCall"))
    functions = list(definition.library.function)
    names = {each.signature.name: f"{prefix}_{i}" for i, each in enumerate(functions)}
    for function in functions:
        rename(function, names)
        strip_defaults(function)
    return Adapter(
        names[call.attr["f"].func.name],
        functions,
        [spec.dtype for spec in specs],
        [each.dtype for each in traced.outputs],
        [each.shape for each in traced.outputs],
    )


def called(node):
    """The names of functions, as NameAttrLists, that a NodeDef has among its attributes."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func
        yield from value.list.func


def rename(function, names):
    """Renames a FunctionDef, and in it what it calls, where `names` has them."""
    function.signature.name = names.get(function.signature.name, function.signature.name)
    for node in function.node_def:
        for target in called(node):
            target.name = names.get(target.name, target.name)


def strip_defaults(function):
    """Leaves out attributes with the value of their default, which an older TensorFlow may lack."""
    for node in function.node_def:
        definition = registered_op(node.op)
        for attribute in definition.attr if definition is not None else ():
            name = attribute.name
            has_default = attribute.HasField("default_value") and name in node.attr
            if has_default and node.attr[name] == attribute.default_value:
                del node.attr[name]
