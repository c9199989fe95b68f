"""All loops of a graph's functions: which are a layer's, and calls in their place."""

import dataclasses

import tensorflow as tf

from haste_keras._compat import registered_op
from haste_keras.serving import tag as tags
from haste_keras.serving.rewrite import cudnn, loops
from haste_keras.serving.rewrite.adapter import build, called
from haste_keras.serving.rewrite.functions import Function
from haste_keras.serving.rewrite.splice import Splice, prune
from haste_keras.serving.rewrite.terms import Terms

_PREFIX = "haste_keras_loop"
_NAMES = {"lstm": "LSTM", "gru": "GRU", "gru_reset_before": "GRU", "elman": "SimpleRNN"}


@dataclasses.dataclass(frozen=True)
class LoopReport:
    """What became of a loop of a SavedModel, or of an op of cuDNN in its place.

    function: name of the function that it is in.
    name: its own; that of the layer is part of it.
    layer: "LSTM", "GRU" or "SimpleRNN"; None: it stays as it is.
    reason: why it stays; None: it became a call.
    """

    function: str
    name: str
    layer: str | None = None
    reason: str | None = None

    def __str__(self):
        what = f"{self.layer}, rewritten" if self.layer else f"as it is: {self.reason}"
        return f"{self.name} in {self.function}: {what}"


class _Adapters:
    """The adapters of a graph, one for loops that differ in nothing that it depends on."""

    def __init__(self, library):
        self.functions, self._built = [], {}
        self._number = sum(each.startswith(_PREFIX) for each in library)

    def of(self, loop, wanted):
        cell = loop.cell
        weights = (cell.kernel, cell.recurrent_kernel, cell.bias)
        shapes = tuple(None if each is None else each.shape for each in weights)
        key = (
            *(cell.spec.name, cell.activation, cell.recurrent_activation, shapes, loop.dtype),
            *(loop.time_major, loop.steps, loop.reverse, loop.sequences, loop.mask is not None),
            *(loop.zero, tuple(wanted)),
        )
        return self._cached(key, build, loop, wanted)

    def of_cudnn(self, op, wanted):
        loop, cell = op.loop, op.loop.cell
        shapes = cell.kernel.shape, cell.recurrent_kernel.shape
        key = (cudnn.OP, cell.spec.name, *shapes, loop.dtype, loop.mask is not None, *wanted)
        return self._cached(key, cudnn.build, op, wanted)

    def _cached(self, key, build, loop, wanted):
        if key not in self._built:
            adapter = build(loop, wanted, f"{_PREFIX}_{self._number}")
            self._number += 1
            self.functions += adapter.functions
            self._built[key] = adapter
        return self._built[key]


def _is_ours(function):
    """Whether a FunctionDef has a tag, of any version."""
    value = function.attr.get(tags.ATTRIBUTE)
    return value is not None and value.func.name.startswith("Haste")


def _rewrite_function(function, library, adapters):
    """(the rewritten FunctionDef or None, reports)."""
    work = type(function)()
    work.CopyFrom(function)
    prune(work)
    reports = []
    for name, op in [(node.name, node.op) for node in work.node_def]:
        if op not in (*loops.LOOPS, cudnn.OP, *cudnn.OLDER):
            continue
        # Nodes move as others are replaced.
        node = next(each for each in work.node_def if each.name == name)
        outer = Function(work, Terms(), work.signature.name, arithmetic=False)
        try:
            if op in loops.LOOPS:
                loop = loops.read(node, outer, library)
                splice = Splice(work, node, loop)
                adapter = adapters.of(loop, splice.wanted)
            else:
                loops.require(op == cudnn.OP, f"cuDNN's op {op}, of an older Keras")
                found = cudnn.read(node, outer)
                loop, splice = found.loop, cudnn.CudnnSplice(work, node, found)
                adapter = adapters.of_cudnn(found, splice.wanted)
        except loops.RefusedError as error:
            reports.append(LoopReport(work.signature.name, name, reason=str(error)))
            continue
        splice.apply(adapter)
        reports.append(LoopReport(work.signature.name, name, _NAMES[loop.cell.spec.name]))
    prune(work)
    return work if any(each.layer for each in reports) else None, reports


def _all_nodes(graph_def):
    for nodes in (graph_def.node, *(each.node_def for each in graph_def.library.function)):
        yield from nodes


def _drop_unused(graph_def, names):
    """Removes those of the functions `names` that nothing calls any more."""
    used = {target.name for node in _all_nodes(graph_def) for target in called(node)}
    used |= {each.function_name for each in graph_def.library.gradient}
    used |= {each.gradient_func for each in graph_def.library.gradient}
    kept = [
        each
        for each in graph_def.library.function
        if each.signature.name not in names or each.signature.name in used
    ]
    if len(kept) < len(graph_def.library.function):
        copies = tf.compat.v1.GraphDef()
        copies.library.function.extend(kept)
        del graph_def.library.function[:]
        graph_def.library.function.extend(copies.library.function)


def rewrite(meta_graph):
    """Puts tagged calls in the place of the loops of Keras's layers.

    Args:
      meta_graph: a MetaGraphDef, which is changed: in its functions, not in the graph itself.
    Returns:
      list of `LoopReport`, one for each loop.
    """
    graph_def = meta_graph.graph_def
    library = {each.signature.name: each for each in graph_def.library.function}
    adapters, reports, replaced = _Adapters(library), [], set()
    rewritten = {}
    for name, function in library.items():
        if _is_ours(function):
            continue
        work, found = _rewrite_function(function, library, adapters)
        reports += found
        if work is not None:
            rewritten[name] = work
            gone = {each.name for each in found if each.layer}
            for node in function.node_def:
                if node.name in gone:
                    replaced |= {target.name for target in called(node)}
    for name, work in rewritten.items():
        library[name].CopyFrom(work)
    graph_def.library.function.extend(adapters.functions)
    _drop_unused(graph_def, replaced)
    known = {each.name for each in meta_graph.meta_info_def.stripped_op_list.op}
    for name in sorted({node.op for node in _all_nodes(graph_def)} - known):
        if known and registered_op(name) is not None:
            meta_graph.meta_info_def.stripped_op_list.op.append(registered_op(name))
    return reports
