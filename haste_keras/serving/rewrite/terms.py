"""What a function computes, as terms in a normal form: equal terms are one object.

Two graphs that compute the same in another way of writing (gates from one product or from a product
each, a sum in another order, `Add` or `BiasAdd`) become the same term. Each rule holds for real
numbers, so equal terms compute the same but for rounding.
"""

import numpy as np


class Term:
    """kind and arguments; `Terms.make` makes one. Equal if it is the same object.

    shape: tuple, None for a size that is not known; None: the rank is not known.
    """

    __slots__ = ("arguments", "kind", "number", "shape")

    def __init__(self, kind, arguments, shape, number):
        self.kind, self.arguments, self.shape, self.number = kind, arguments, shape, number

    def __repr__(self):
        return f"{self.kind}{self.arguments}"


def _width(term, axis):
    """Size of an axis, counted from the last (-1); None: not known."""
    if term.shape is None or len(term.shape) < -axis:
        return None
    return term.shape[axis]


class Terms:
    """Makes terms. Methods take and give terms of one `Terms`."""

    def __init__(self):
        self._made = {}

    def make(self, kind, *arguments, shape=None):
        """The term of these; `shape` counts where it is new."""
        key = (kind, *arguments)
        if key not in self._made:
            self._made[key] = Term(kind, arguments, shape, len(self._made))
        return self._made[key]

    def constant(self, array):
        """A constant."""
        shape = tuple(array.shape)
        return self.make("constant", array.dtype.name, shape, array.tobytes(), shape=shape)

    def number(self, value, dtype):
        """A constant scalar of a NumPy dtype."""
        return self.constant(np.asarray(value, dtype))

    def _commutative(self, kind, terms, shape):
        flat = []
        for term in terms:
            flat += term.arguments if term.kind == kind else [term]
        return self.make(kind, *sorted(flat, key=lambda each: each.number), shape=shape)

    def add(self, *terms):
        """A sum; sums in it are part of it."""
        return self._commutative("add", terms, _broadcast(terms))

    def multiply(self, *terms):
        """A product of elements; products in it are part of it."""
        return self._commutative("multiply", terms, _broadcast(terms))

    def matmul(self, a, b):
        """The product of two matrices."""
        known = a.shape is not None and b.shape is not None
        return self.make("matmul", a, b, shape=(a.shape[0], b.shape[1]) if known else None)

    def elementwise(self, kind, *terms):
        """A function of elements."""
        return self.make(kind, *terms, shape=_broadcast(terms))

    def cast(self, term, dtype):
        return self.make("cast", term, dtype, shape=term.shape)

    def slice(self, term, axis, start, stop):
        """[start, stop) of an axis, counted from the last (-1). Goes into what it is a slice of."""
        width = _width(term, axis)
        if width is None or not 0 <= start < stop <= width:
            return self.make("slice", term, axis, start, stop)
        if (start, stop) == (0, width):
            return term
        if term.kind == "slice" and term.arguments[1] == axis:
            inner, _, first, _ = term.arguments
            return self.slice(inner, axis, first + start, first + stop)
        if term.kind == "cast":
            return self.cast(self.slice(term.arguments[0], axis, start, stop), term.arguments[1])
        if axis == -1 and term.kind == "matmul":
            a, b = term.arguments
            return self.matmul(a, self.slice(b, axis, start, stop))
        # An addend of width 1 is broadcast, and has no such slice.
        whole = term.kind == "add" and all(_width(each, -1) == width for each in term.arguments)
        if axis == -1 and whole:
            return self.add(*(self.slice(each, axis, start, stop) for each in term.arguments))
        shape = list(term.shape)
        shape[axis] = stop - start
        return self.make("slice", term, axis, start, stop, shape=tuple(shape))

    def row(self, term, number):
        """A row of a matrix."""
        if term.kind == "cast":
            return self.cast(self.row(term.arguments[0], number), term.arguments[1])
        return self.make("row", term, number, shape=term.shape[1:])

    def size(self, term, axis):
        """How large an axis of a tensor of rank 3 is, for the axes 0, 1 and 2."""
        while term.kind in ("transpose", "reverse"):
            if term.kind == "transpose":
                axis = term.arguments[1][axis]
            term = term.arguments[0]
        return self.make("size", term, axis, shape=())


def _broadcast(terms):
    """The shape of a function of elements."""
    shapes = [term.shape for term in terms]
    if any(shape is None for shape in shapes):
        return None
    rank = max(map(len, shapes))
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        others = {size for size in sizes if size != 1}
        result.append(1 if not others else others.pop() if len(others) == 1 else None)
    return tuple(result)
