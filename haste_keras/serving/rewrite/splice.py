"""Calls in the place of loops, within a FunctionDef."""

import tensorflow as tf

from haste_keras.serving.rewrite.functions import PURE, constant_of, data_inputs
from haste_keras.serving.rewrite.loops import RefusedError, weight_source

_OUTPUTS = 3  # of a loop: the list of its outputs


def prune(function):
    """Removes from a FunctionDef operations without a state whose results nothing reads."""
    nodes = {node.name: node for node in function.node_def}

    def is_read(name):
        """A read of a variable that is ordered after nothing: what waits for it need not."""
        node = nodes.get(name)
        return node is not None and node.op == "ReadVariableOp" and len(node.input) == 1

    stack = [edge.split(":")[0] for edge in function.ret.values()]
    stack += function.control_ret.values()
    stack += [n.name for n in nodes.values() if n.op not in PURE and not is_read(n.name)]
    live = set()
    while stack:
        name = stack.pop()
        if name in live or name not in nodes:
            continue
        live.add(name)
        for edge in nodes[name].input:
            if not (edge.startswith("^") and is_read(edge[1:])):
                stack.append(edge.lstrip("^").split(":")[0])
    kept = [node for node in function.node_def if node.name in live]
    gone = {f"^{name}" for name in nodes.keys() - live}
    for node in kept:
        if gone.intersection(node.input):
            node.input[:] = [edge for edge in node.input if edge not in gone]
    replace_nodes(function, kept)


def replace_nodes(function, nodes):
    """Makes `nodes` those of a FunctionDef."""
    copies = []
    for node in nodes:
        copies.append(tf.compat.v1.NodeDef())
        copies[-1].CopyFrom(node)
    del function.node_def[:]
    function.node_def.extend(copies)


class Splice:
    """What reads the outputs of one loop, and what they become.

    wanted: what a call in the loop's place returns, as of `adapter.build`.
    Raises RefusedError: something reads what a call does not have.
    """

    def __init__(self, function, node, loop):
        self.function, self.node, self.loop = function, node, loop
        self.wanted, self.edges = [], {}
        own = range(loop.carried, loop.carried + len(loop.cell.spec.states))
        for number in sorted(self._read_outputs()):
            if number in own:
                self._replace(f"{node.name}:output:{number}", number - loop.carried)
            elif number == _OUTPUTS:
                self._replace_outputs()
            else:
                raise RefusedError("something reads its counters")
        if not self.wanted:
            raise RefusedError("nothing reads what it computes")

    def _users(self, edge):
        """Nodes that read an edge; None among them for the function's own result."""
        users = [node for node in self.function.node_def if edge in node.input]
        return users + [None for each in self.function.ret.values() if each == edge]

    def _read_outputs(self):
        prefix = f"{self.node.name}:"
        edges = [edge for node in self.function.node_def for edge in node.input]
        edges += self.function.ret.values()
        return {int(edge.rsplit(":", 1)[1]) for edge in edges if edge.startswith(prefix)}

    def _replace(self, edge, what):
        if what not in self.wanted:
            self.wanted.append(what)
        self.edges[edge] = what

    def _replace_outputs(self):
        for stack in self._users(f"{self.node.name}:output:{_OUTPUTS}"):
            if stack is None or stack.op != "TensorListStack":
                raise RefusedError("something reads its outputs as a list")
            edge = f"{stack.name}:tensor:0"
            for user in self._users(edge):
                if self._is_transpose(user):
                    self._replace(f"{user.name}:y:0", "sequence")
                elif self._is_last(user):
                    self._replace(f"{user.name}:output:0", "last")
                else:
                    self._replace(edge, "steps")

    def _constants(self, node):
        nodes = {each.name: each for each in self.function.node_def}
        found = [nodes.get(edge.split(":")[0]) for edge in data_inputs(node)[1:]]
        known = all(each is not None and each.op == "Const" for each in found)
        return [constant_of(each).tolist() for each in found] if known else None

    def _is_transpose(self, node):
        if node is None or node.op != "Transpose":
            return False
        return self._constants(node) == [[1, 0, 2]]

    def _is_last(self, node):
        """[-1] of the first axis."""
        if node is None or node.op != "StridedSlice":
            return False
        masks = {key: value.i for key, value in node.attr.items() if key.endswith("_mask")}
        if {key: value for key, value in masks.items() if value} != {"shrink_axis_mask": 1}:
            return False
        constants = self._constants(node)
        return constants is not None and constants[0] == [-1] and constants[2] == [1]

    def apply(self, adapter):
        """Puts a call of `adapter` in the place of the loop."""
        call = self._node(f"{self.node.name}/haste_keras", "PartitionedCall")
        before = [edge for edge in self.node.input if edge.startswith("^")]
        call.input.extend([*self._inputs(before), *before])
        call.attr["Tin"].list.type.extend(each.as_datatype_enum for each in adapter.inputs)
        call.attr["Tout"].list.type.extend(each.as_datatype_enum for each in adapter.outputs)
        call.attr["f"].func.name = adapter.name
        shapes = [shape.as_proto() for shape in adapter.shapes]
        call.attr["_output_shapes"].list.shape.extend(shapes)
        edges = {
            edge: f"{call.name}:output:{self.wanted.index(what)}"
            for edge, what in self.edges.items()
        }
        control = {f"^{self.node.name}": f"^{call.name}"}
        for node in self.function.node_def:
            node.input[:] = [edges.get(e, control.get(e, e)) for e in node.input]
        for results in (self.function.ret, self.function.control_ret):
            for name, edge in list(results.items()):
                results[name] = edges.get(edge, edge)
        for name, target in list(self.function.control_ret.items()):
            if target == self.node.name:
                self.function.control_ret[name] = call.name
        rest = [node for node in self.function.node_def if node.name != self.node.name]
        replace_nodes(self.function, rest)

    def _node(self, name, op):
        """A new node of an unused name, where the loop is."""
        names = {node.name for node in self.function.node_def}
        while name in names:
            name += "_"
        return self.function.node_def.add(name=name, op=op, device=self.node.device)

    def _inputs(self, before):
        """Edges of the adapter's arguments."""
        given, cell = data_inputs(self.node), self.loop.cell
        edges = [self.loop.x]
        for weight in (cell.kernel, cell.recurrent_kernel, cell.bias):
            if weight is not None:
                edges.append(self._weight(weight, given, before))
        first = self.loop.carried
        edges += given[first : first + len(cell.spec.states)]
        return edges + ([self.loop.mask] if self.loop.mask is not None else [])

    def _weight(self, term, given, before):
        number, variable, casts = weight_source(term)
        edge, dtype = given[number], variable
        if variable is None:
            dtype = tf.as_dtype(self.node.attr["T"].list.type[number]).name
        else:
            read = self._node(f"{self.node.name}/ReadVariableOp", "ReadVariableOp")
            read.input.extend([edge, *before])
            read.attr["dtype"].type = tf.as_dtype(variable).as_datatype_enum
            edge = f"{read.name}:value:0"
        for target in casts:
            cast = self._node(f"{self.node.name}/Cast", "Cast")
            cast.input.append(edge)
            cast.attr["SrcT"].type = tf.as_dtype(dtype).as_datatype_enum
            cast.attr["DstT"].type = tf.as_dtype(target).as_datatype_enum
            edge, dtype = f"{cast.name}:y:0", target
        return edge
