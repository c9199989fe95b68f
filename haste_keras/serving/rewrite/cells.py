"""The steps of Keras's cells as terms, and which of them a loop's body is."""

import dataclasses
import itertools

from haste_keras.native import cell_spec
from haste_keras.native.cell_spec import ACTIVATIONS, CellSpec
from haste_keras.serving.rewrite.functions import numpy_dtype
from haste_keras.serving.rewrite.terms import Term


@dataclasses.dataclass(frozen=True)
class Cell:
    """A step of a cell of Keras.

    kernel, recurrent_kernel, bias: terms of the weights as Keras has them: [C, G·H], [H, G·H],
      [G·H], of a GRU that resets after the product [2, G·H]; bias None: none.
    """

    spec: CellSpec
    activation: str
    recurrent_activation: str
    kernel: Term
    recurrent_kernel: Term
    bias: Term | None


@dataclasses.dataclass(frozen=True)
class Step:
    """What a loop does: x and the states that enter, and what it makes of them."""

    x: Term
    states: list
    output: Term
    new_states: list
    dtype: str


def _whole(terms, term):
    """What `term` is a part of."""
    if term.kind in ("slice", "row"):
        return _whole(terms, term.arguments[0])
    if term.kind == "cast":
        return terms.cast(_whole(terms, term.arguments[0]), term.arguments[1])
    return term


def reachable(roots):
    """The set of all terms in `roots`."""
    seen, stack = set(), list(roots)
    while stack:
        term = stack.pop()
        if term not in seen:
            seen.add(term)
            stack += [each for each in term.arguments if isinstance(each, Term)]
    return seen


def _weights(terms, step):
    """kernel, recurrent_kernel, bias: the only ones that the step may have; None if unclear."""
    kernels, recurrent, biases = set(), set(), set()
    for term in reachable([step.output, *step.new_states]):
        if term.kind == "matmul":
            a, b = term.arguments
            (kernels if a is step.x else recurrent).add(_whole(terms, b))
        if term.kind == "add":
            addends = [_whole(terms, each) for each in term.arguments]
            biases |= {each for each in addends if is_weight(each)}
    if len(kernels) != 1 or len(recurrent) != 1 or len(biases) > 1:
        return None
    return kernels.pop(), recurrent.pop(), biases.pop() if biases else None


def is_weight(term):
    """Whether a term is a variable or an argument, perhaps cast."""
    while term.kind in ("cast", "read"):
        term = term.arguments[0]
    return term.kind == "argument"


class _Writer:
    """Writes the step of a cell as terms: what Keras's classes compute."""

    def __init__(self, terms, step, kernel, recurrent_kernel, bias):
        self.terms, self.x, self.states = terms, step.x, step.states
        self.kernel, self.recurrent_kernel, self.bias = kernel, recurrent_kernel, bias
        self.hidden = recurrent_kernel.shape[0]
        self.dtype = numpy_dtype(step.dtype)

    def activated(self, name, term):
        if name == "linear":
            return term
        if name != "hard_sigmoid":
            return self.terms.elementwise(name, term)
        shifted = self.terms.add(term, self.terms.number(3, self.dtype))
        capped = self.terms.elementwise("relu6", shifted)
        return self.terms.elementwise("divide", capped, self.terms.number(6, self.dtype))

    def gate(self, number, weight):
        start = number * self.hidden
        return self.terms.slice(weight, -1, start, start + self.hidden)

    def from_x(self, number, bias):
        """Addends of gate `number` from x and the bias."""
        product = self.terms.matmul(self.x, self.gate(number, self.kernel))
        return [product] if bias is None else [product, self.gate(number, bias)]

    def from_h(self, number, h, bias=None):
        product = self.terms.matmul(h, self.gate(number, self.recurrent_kernel))
        return [product] if bias is None else [product, self.gate(number, bias)]

    def lstm(self, activation, recurrent_activation):
        h, c = self.states
        gates = [
            self.activated(
                activation if k == 2 else recurrent_activation,
                self.terms.add(*self.from_x(k, self.bias), *self.from_h(k, h)),
            )
            for k in range(4)
        ]
        multiply = self.terms.multiply
        c = self.terms.add(multiply(gates[1], c), multiply(gates[0], gates[2]))
        h = multiply(gates[3], self.activated(activation, c))
        return h, [h, c]

    def _gru(self, activation, recurrent_activation, bias, candidate, gate_bias=None):
        (h,), multiply = self.states, self.terms.multiply
        z, r = (
            self.activated(
                recurrent_activation,
                self.terms.add(*self.from_x(k, bias), *self.from_h(k, h, gate_bias)),
            )
            for k in range(2)
        )
        g = self.activated(activation, self.terms.add(*self.from_x(2, bias), candidate(r, h)))
        rest = self.terms.elementwise("subtract", self.terms.number(1, self.dtype), z)
        h = self.terms.add(multiply(z, h), multiply(rest, g))
        return h, [h]

    def gru(self, activation, recurrent_activation):
        rows = [None, None]
        if self.bias is not None:
            rows = [self.terms.row(self.bias, i) for i in range(2)]

        def candidate(r, h):
            addends = self.from_h(2, h, rows[1])
            return self.terms.multiply(r, self.terms.add(*addends) if rows[1] else addends[0])

        return self._gru(activation, recurrent_activation, rows[0], candidate, rows[1])

    def gru_reset_before(self, activation, recurrent_activation):
        def candidate(r, h):
            return self.from_h(2, self.terms.multiply(r, h))[0]

        return self._gru(activation, recurrent_activation, self.bias, candidate)

    def elman(self, activation, recurrent_activation):
        (h,) = self.states
        addends = [*self.from_x(0, self.bias), *self.from_h(0, h)]
        h = self.activated(activation, self.terms.add(*addends))
        return h, [h]


# A cell, the shape of its bias as multiples of the hidden units, and how it is written.
_CELLS = (
    (cell_spec.LSTM, (4,), _Writer.lstm),
    (cell_spec.GRU, (2, 3), _Writer.gru),
    (cell_spec.GRU_RESET_BEFORE, (3,), _Writer.gru_reset_before),
    (cell_spec.ELMAN, (1,), _Writer.elman),
)


def match(terms, step):
    """The `Cell` whose step computes exactly what `step` does; None: none of them."""
    weights = _weights(terms, step)
    if weights is None or not all(each is None or is_weight(each) for each in weights):
        return None
    kernel, recurrent_kernel, bias = weights
    if any(each.shape is None or len(each.shape) != 2 for each in (kernel, recurrent_kernel)):
        return None
    hidden = recurrent_kernel.shape[0]
    for spec, of_bias, write in _CELLS:
        gates = len(spec.gates)
        bias_shape = (*of_bias[:-1], of_bias[-1] * (hidden or 0))
        if (
            len(spec.states) != len(step.states)
            or recurrent_kernel.shape != (hidden, gates * (hidden or 0))
            or kernel.shape[0] is None
            or kernel.shape[1:] != (gates * hidden,)
            or (bias is not None and bias.shape != bias_shape)
        ):
            continue
        writer = _Writer(terms, step, *weights)
        recurrent = ACTIVATIONS if spec is not cell_spec.ELMAN else ("sigmoid",)
        for names in itertools.product(ACTIVATIONS, recurrent):
            output, new_states = write(writer, *names)
            if output is step.output and new_states == step.new_states:
                return Cell(spec, *names, *weights)
    return None
