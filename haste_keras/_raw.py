"""Calls of the op library's wrappers: no checks, all outputs."""

from haste_keras import _library

# Attributes that both ops of a cell have; the forward op has `save` too.
ATTRIBUTES = (
    "reverse",
    "activation",
    "recurrent_activation",
    "zoneout",
    "recurrent_dropout",
    "training",
    "zero_output_for_mask",
    "engine",
)


def attributes(op):
    """`ATTRIBUTES` of an op of a graph or of a tape, as `forward` and `backward` take them."""
    values = {name: op.get_attr(name) for name in ATTRIBUTES}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def forward(spec, inputs, *, save, **attrs):
    """The forward op on [wx, recurrent_kernel, *initial states, mask, seed].

    Returns [y, *final states, gates, *states that enter each step], the last 1 + S of them [0]
    unless `save`.
    """
    op = getattr(_library.load(), spec.python_op)
    y, *rest = op(*inputs, save=save, **attrs)
    # The C API does not let the op's shape function read `save`.
    gates, *states_in = rest[len(spec.states) :]
    gates.set_shape(inputs[0].shape if save else [0])
    for state in states_in:
        state.set_shape(y.shape if save else [0])
    return [y, *rest]


def backward(spec, inputs, **attrs):
    """The backward op on [recurrent_kernel, mask, seed, gates, *states_in, dy, *dstates].

    Returns [dwx, *gradients of the initial states].
    """
    op = getattr(_library.load(), spec.python_op + "_grad")
    dwx, *dstates = op(*inputs, **attrs)
    return [dwx, *dstates]
