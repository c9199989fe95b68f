"""Which loop of a function is that of a layer of Keras."""

import dataclasses

import tensorflow as tf

from haste_keras.serving.rewrite import cells
from haste_keras.serving.rewrite.functions import PURE, Function, data_inputs

LOOPS = ("While", "StatelessWhile")
_MOST_NODES = 300  # of the body of a layer's loop; Keras's have some 40
_IN_BODY = PURE | {"ReadVariableOp", "NoOp"}
_DTYPES = ("float16", "bfloat16", "float32", "float64")
# What a loop carries before the layer's own: two counters, their limit, the outputs.
_COUNTER, _LIMIT, _TIME, _OUTPUTS, _OWN = range(5)


class RefusedError(Exception):
    """Why a loop stays as it is."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop that walks a cell over a sequence.

    cell: `cells.Cell`; its weights are terms of the body.
    dtype: name of the dtype that it computes in.
    x: edge of [N, T, C], or with `time_major` [T, N, C].
    steps: how many steps it walks; None: as many as there are.
    reverse: it walks from the end.
    sequences: it keeps the outputs of all steps, else of the last one alone.
    mask: edge of [N, T], or None.
    zero: outputs of masked steps are 0.
    carried: index of its first state among the loop's inputs and outputs.
    """

    cell: cells.Cell
    dtype: str
    x: str
    time_major: bool
    steps: int | None
    reverse: bool
    sequences: bool
    mask: str | None
    zero: bool
    carried: int


def require(condition, reason):
    """Raises RefusedError unless `condition`."""
    if not condition:
        raise RefusedError(reason)


def weight_source(term):
    """Number of the loop's input, the dtype of a variable or None, dtypes that it is cast to."""
    casts, variable = [], None
    while term.kind == "cast":
        casts.append(term.arguments[1])
        term = term.arguments[0]
    if term.kind == "read":
        term, variable = term.arguments
    return term.arguments[0], variable, tuple(casts[::-1])


class _Reader:
    """Reads one loop; its methods raise `RefusedError`."""

    def __init__(self, node, outer, library):
        self.node, self.outer, self.terms = node, outer, outer.terms
        self.inputs = data_inputs(node)
        body, condition = (library.get(node.attr[key].func.name) for key in ("body", "cond"))
        require(body is not None and condition is not None, "its functions are missing")
        ops = {each.op for each in body.node_def}
        require(len(body.node_def) <= _MOST_NODES, "its step has too many operations")
        odd = sorted(ops - _IN_BODY)
        require(not odd, f"its step has the operation {', '.join(odd[:3])}")
        # The arguments of the two are the same.
        scope = (outer.name, node.name)
        self.body = Function(body, self.terms, scope, arithmetic=True)
        self.condition = Function(condition, self.terms, scope, arithmetic=True)
        self.results = self.body.outputs()
        self.of = [self.body.term(name) for name in self.body.arguments]
        require(len(self.results) == len(self.of) == len(self.inputs) > _OWN, "it is no such loop")
        self.own = [i for i in range(_OWN, len(self.of)) if self.results[i] is not self.of[i]]
        require(self.own == list(range(_OWN, _OWN + len(self.own))), "it is no such loop")

    def read(self):
        self._check_counters()
        outputs = self.results[_OUTPUTS]
        require(
            outputs.kind == "set" and outputs.arguments[0] is self.of[_OUTPUTS],
            "it does not write an output in each step",
        )
        _, index, item = outputs.arguments
        sequences = index is self.of[_TIME]
        zero = self.terms.constant(tf.constant(0).numpy())
        require(sequences or index is zero, "it does not write an output in each step")
        x = self._x()
        masked = item.kind == "select"
        output, states, new_states, carried, zeroes, mask = item, self.own, None, _OWN, False, None
        if masked:
            output, zeroes, mask, states, new_states = self._masked(item)
            carried = states[0]
        else:
            new_states = [self.results[i] for i in states]
        dtype = self._dtype(states)
        step = cells.Step(x, [self.of[i] for i in states], output, new_states, dtype)
        cell = cells.match(self.terms, step)
        require(
            cell is not None,
            "its step is not that of an LSTM, GRU or SimpleRNN with activations that the kernels "
            "have",
        )
        self._check_weights(cell)
        for i in states:
            shape = self.of[i].shape
            require(
                shape is not None
                and len(shape) == 2
                and shape[1] == cell.recurrent_kernel.shape[0],
                "the size of its states is not known",
            )
        edge, time_major, reverse, steps = self._source(x, sequences)
        if mask is not None:
            mask = self._mask_source(mask, reverse)
        return Loop(cell, dtype, edge, time_major, steps, reverse, sequences, mask, zeroes, carried)

    def _outer(self, number):
        """The term of an input outside of the loop."""
        return self.outer.term(self.inputs[number])

    def _check_counters(self):
        one = self.terms.constant(tf.constant(1).numpy())
        zero = self.terms.constant(tf.constant(0).numpy())
        for i in (_COUNTER, _TIME):
            require(self.results[i] is self.terms.add(self.of[i], one), "it does not count steps")
            require(self._outer(i) is zero, "it does not begin at step 0")
        require(self.results[_LIMIT] is self.of[_LIMIT], "it does not count steps")
        # time < T and counter < limit, where T and the limit are the same.
        result, limit = self.condition.outputs()[0], None
        for term in result.arguments if result.kind == "and" else ():
            a, b = term.arguments if term.kind == "less" else (None, None)
            if a is self.of[_TIME]:
                limit = b
        counted = self.terms.make("less", self.of[_COUNTER], self.of[_LIMIT])
        both = sorted(
            (counted, self.terms.make("less", self.of[_TIME], limit)), key=lambda each: each.number
        )
        require(
            limit is not None and result is self.terms.make("and", *both), "its end is not known"
        )
        if limit.kind == "argument":
            number = limit.arguments[0]
            require(self.results[number] is self.of[number], "its end is not known")
            limit = self._outer(number)
        require(limit is self._outer(_LIMIT), "its end is not known")
        self.limit = limit

    def _x(self):
        """The term of the step's input."""
        found = {
            term.arguments[0]
            for term in cells.reachable(self.results)
            if term.kind == "matmul" and term.arguments[0].kind == "item"
        }
        require(len(found) == 1, "it does not read one sequence")
        x = found.pop()
        self._list_of(x)
        return x

    def _list_of(self, item):
        """The number of the input whose list `item` is read from, at this step."""
        source, index = item.arguments
        require(
            index is self.of[_TIME]
            and source.kind == "argument"
            and source.arguments[0] not in range(_OWN + len(self.own)),
            "it does not read a step of a sequence",
        )
        return source.arguments[0]

    def _masked(self, item):
        """A step that a mask may skip: output, zeroes, item of the mask, states, new states."""
        reason = "its mask is not used as a mask of Keras is"
        condition = item.arguments[0]
        tiled = condition.kind == "tile"
        live = condition.arguments[0] if tiled else condition
        # [N, 1], broadcast or tiled to [N, H].
        require(live.kind == "item" and live.shape is not None, reason)
        require(len(live.shape) == 2 and live.shape[1] == 1, reason)
        previous, *states = self.own
        require(self.results[previous] is item and states, reason)
        _, output, other = item.arguments
        zeroes = other is not self.of[previous]
        if zeroes:
            require(other.kind == "argument", reason)
            require(self._is_zero(other.arguments[0]), reason)
        require(self._is_zero(previous), reason)
        new_states = []
        for i in states:
            new = self.results[i]
            require(new.kind == "select" and new.arguments[0] is condition, reason)
            require(new.arguments[2] is self.of[i], reason)
            new_states.append(new.arguments[1])
        shape = self.of[previous].shape
        require(shape is not None and (not tiled or condition.arguments[1] == shape[-1]), reason)
        return output, zeroes, live, states, new_states

    def _is_zero(self, number):
        """Whether an input of the loop is zeros."""
        term, array = self._outer(number), self.outer.constant(self.inputs[number])
        return term.kind == "zeros" or (array is not None and not array.any())

    def _dtype(self, states):
        dtypes = {tf.as_dtype(self.node.attr["T"].list.type[i]).name for i in states}
        require(len(dtypes) == 1 and dtypes <= set(_DTYPES), "its states are no floats")
        return dtypes.pop()

    def _check_weights(self, cell):
        first = _OWN + len(self.own)
        for weight in (cell.kernel, cell.recurrent_kernel, cell.bias):
            if weight is not None:
                number, variable, _ = weight_source(weight)
                resource = self.node.attr["T"].list.type[number] == tf.resource.as_datatype_enum
                require(
                    number >= first and (variable is not None) == resource, "its weights change"
                )

    def _listed(self, item):
        """The term of the tensor, time first, that `item` is a step of; whether it is reversed."""
        term = self._outer(self._list_of(item))
        require(term.kind == "list", "its sequence is not known")
        term, reverse = term.arguments[0], False
        if term.kind == "reverse" and term.arguments[1] == 0:
            term, reverse = term.arguments[0], True
        return term, reverse

    def _source(self, x, sequences):
        """Edge of the sequence, whether time is its first axis, reverse, number of steps."""
        term, reverse = self._listed(x)
        steps = self.limit
        if steps.kind == "constant":
            count = int(tf.io.decode_raw(steps.arguments[2], tf.int32)[0])
        else:
            count = None
            require(steps is self.terms.size(term, 0), "its number of steps is not known")
        outputs = self._outer(_OUTPUTS)
        expected = steps if sequences else self.terms.constant(tf.constant(1).numpy())
        require(
            outputs.kind == "reserved" and outputs.arguments[0] is expected,
            "it does not keep the outputs of its steps",
        )
        if term.kind == "transpose" and term.arguments[1] == (1, 0, 2):
            return self.outer.edge(term.arguments[0]), False, reverse, count
        return self.outer.edge(term), True, reverse, count

    def _mask_source(self, item, reverse):
        reason = "the source of its mask is not known"
        term, reversed_mask = self._listed(item)
        require(reversed_mask == reverse, reason)
        require(term.kind == "transpose" and term.arguments[1] == (1, 0, 2), reason)
        term = term.arguments[0]
        require(term.kind == "expand" and term.arguments[1] in (-1, 2), reason)
        mask = term.arguments[0]
        require(mask.shape is not None and len(mask.shape) == 2, reason)
        return self.outer.edge(mask)


def read(node, outer, library):
    """The `Loop` that a node of `outer` is.

    Args:
      node: a NodeDef, one of `LOOPS`.
      outer: the `Function` that it is in, without arithmetic.
      library: {name: FunctionDef}.
    Raises:
      RefusedError: it is none that is known; the message says why.
    """
    return _Reader(node, outer, library).read()
