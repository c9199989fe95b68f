"""Calls of the op library's wrappers: no checks, all outputs."""

import collections

from haste_keras.native.emit import emit, has_reserve, keeps_packed

# What wx is made of, in its place: x [N, T, C], kernel [C, K, G, H], bias [K, G, H] or None. With
# kernel_scale [K, G, H], kernel is int8.
Projection = collections.namedtuple(
    "Projection", ("x", "kernel", "bias", "kernel_scale"), defaults=(None,)
)

# Attributes that all ops of a cell have; those of forward have `save` and `keep_packed` too.
ATTRIBUTES = (
    "reverse",
    "activation",
    "recurrent_activation",
    "zoneout",
    "recurrent_dropout",
    "training",
    "zero_output_for_mask",
    "engine",
    "allow_tf32",
)
# Those of the ops with int8 weights, which are of inference alone.
INT8_ATTRIBUTES = (
    "reverse",
    "activation",
    "recurrent_activation",
    "zoneout",
    "zero_output_for_mask",
    "engine",
    "epsilon",
)


def attributes(spec, op, present=None):
    """`ATTRIBUTES` of an op of a graph or of a tape, as `forward` and `backward` take them.

    op: has the method `get_attr`.
    present: names of the attributes that the op has; None: all of them.
    """
    names = (*ATTRIBUTES, "epsilon") if spec.normalizes else ATTRIBUTES
    if present is not None:
        names = set(names).intersection(present)
    values = {name: op.get_attr(name) for name in names}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def forward(spec, inputs, *, save, layer=False, **attrs):
    """The forward op of `spec`.

    Args:
      inputs: sequence of tensors, as `spec.forward_inputs` lists them.
      save, attrs: the op's attributes.
      layer: the op that forms x·W + b; inputs then as `spec.layer_inputs` lists them.
    Returns:
      list of tensors, as `spec.forward_outputs` lists them; those of `spec.reserve` are of shape
      [0] unless `save`, and where no op is emitted; h_prev also without recurrent dropout.
    """
    save = save and has_reserve()
    own = {"save": save, "keep_packed": keeps_packed()}
    outputs = emit(spec.python_op + ("_layer" if layer else ""), inputs, **own, **attrs)
    # The C API does not let the op's shape function read `save`.
    gates = inputs[0].shape
    if layer:
        gates = gates[:2].concatenate(inputs[1].shape[1:])
    shapes = {"NTKGH": gates, "NTKH": outputs[0].shape}
    kept = set(spec.reserve) if save else set()
    if not (attrs.get("training") and attrs.get("recurrent_dropout")):
        kept -= {"h_prev"}
    reserve = outputs[-len(spec.reserve) :]
    for output, (name, dims) in zip(reserve, spec.reserve.items(), strict=True):
        output.set_shape(shapes[dims] if name in kept else [0])
    return outputs


def forward_int8(spec, inputs, *, layer=False, **attrs):
    """The op of `spec` with an int8 recurrent kernel.

    Args:
      inputs: sequence of tensors, as `spec.int8_inputs` lists them.
      layer: the op that forms x·W + b; inputs then as `spec.layer_int8_inputs` lists them.
      attrs: the op's attributes.
    Returns:
      list of tensors: y and the final states.
    """
    name = spec.python_op + ("_layer_int8" if layer else "_int8")
    return emit(name, inputs, keep_packed=keeps_packed(), **attrs)


def backward(spec, inputs, **attrs):
    """The gradient's op of `spec`.

    Args:
      inputs: sequence of tensors, as `spec.backward_inputs` lists them; dy and the gradients of
        the states may be of shape [0], for zero.
      attrs: the op's attributes.
    Returns:
      list of tensors, as `spec.backward_outputs` lists them.
    """
    return emit(spec.python_op + "_grad", inputs, **attrs)


def layer_backward(spec, inputs, *, wanted, **attrs):
    """The gradient's op of the op of `spec` that forms x·W + b.

    Args:
      inputs: sequence of tensors, as `spec.layer_backward_inputs` lists them; as `backward` says.
      wanted: a bool for each of `spec.layer_gradients`.
      attrs: the op's attributes.
    Returns:
      list of tensors, as `spec.layer_backward_outputs` lists them; of shape [0] if not wanted.
    """
    outputs = emit(spec.python_op + "_layer_grad", inputs, wanted=wanted, **attrs)
    # The C API does not let the op's shape function read `wanted`.
    sizes = {"C": inputs[1].shape[0], **dict(zip("NTKGH", outputs[0].shape, strict=True))}
    own = outputs[-len(wanted) :]
    for output, dims, want in zip(own, spec.layer_gradients.values(), wanted, strict=True):
        output.set_shape([sizes[letter] for letter in dims] if want else [0])
    return outputs


def layer_norm(x, gamma, beta, *, epsilon):
    """x [R, K, F], normalised over F: gamma [K, F], beta the same or [0], for zeros."""
    return emit("haste_layer_norm", [x, gamma, beta], epsilon=epsilon)[0]


def layer_norm_backward(x, gamma, dy, *, epsilon):
    """dx, dgamma and dbeta of `layer_norm`."""
    return emit("haste_layer_norm_grad", [x, gamma, dy], epsilon=epsilon)


def matmul(a, b, transpose_a=False, transpose_b=False):
    """The product of two matrices, of which at most one is transposed."""
    suffix = "_transpose_a" if transpose_a else "_transpose_b" if transpose_b else ""
    return emit("haste_mat_mul" + suffix, [a, b])[0]


def matmul_int8(a, b, b_scale):
    """a [M, C] · (b · b_scale): b [C, U] int8, b_scale [U] float32; rows of a are quantised."""
    return emit("haste_mat_mul_int8", [a, b, b_scale])[0]
