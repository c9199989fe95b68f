"""Checks of what a layer is given; every error names the argument, what was wanted, what came."""

import numbers

import tensorflow as tf

from haste_keras.native.cell_spec import DTYPES


def check_choice(argument, value, choices):
    """Raises ValueError unless `value` is one of `choices`."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{argument}` must be one of {expected}. Received: {argument}={value!r}")


def is_integer(value):
    """Whether `value` is an integer, of Python or NumPy, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_rate(argument, rate, *, one=False):
    """Returns `rate` as a float.

    Raises ValueError unless it is a number in [0, 1) or, with `one`, in [0, 1].
    """
    if not isinstance(rate, numbers.Real) or not (0 <= rate <= 1 and (one or rate < 1)):
        allowed = "[0, 1]" if one else "[0, 1)"
        raise ValueError(f"`{argument}` must be in {allowed}. Received: {argument}={rate!r}")
    return float(rate)


def check_dtype(layer):
    """Raises ValueError unless `layer` computes in a dtype that the kernels have."""
    if layer.compute_dtype not in DTYPES:
        raise ValueError(
            f"`dtype` of layer {layer.name} must compute in one of {', '.join(DTYPES)}. "
            f"Received: {layer.compute_dtype}"
        )


def check_cell_dtype(layer, cell):
    """Raises ValueError if a DTypePolicyMap has another dtype for the cell than for the layer."""
    if cell.compute_dtype != layer.compute_dtype:
        raise ValueError(
            f"`dtype` of cell {cell.path} must be that of its layer, which computes in "
            f"{layer.compute_dtype}. Received: {cell.compute_dtype}"
        )


def check_dense(argument, layer, value):
    """Raises ValueError if `value` is a tensor of TensorFlow that is ragged or sparse."""
    if isinstance(value, tf.RaggedTensor):
        raise ValueError(
            f"`{argument}` of layer {layer.name} must be a dense tensor. Received: a RaggedTensor; "
            "give `x.to_tensor()`, and `mask=tf.sequence_mask(x.row_lengths())`"
        )
    if isinstance(value, tf.SparseTensor):
        raise ValueError(
            f"`{argument}` of layer {layer.name} must be a dense tensor. Received: a SparseTensor; "
            "give `tf.sparse.to_dense(x)`"
        )


def _check_numbers(argument, layer, tensor):
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise ValueError(
            f"`{argument}` of layer {layer.name} must be numbers. Received: {tensor.dtype.name}"
        )


def cast_real(argument, layer, value):
    """`value` as a tensor of the compute dtype. Raises ValueError if it is not of real numbers."""
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.is_complex:
        raise ValueError(
            f"`{argument}` of layer {layer.name} must be real. Received: {tensor.dtype.name}; its "
            "parts can be features: tf.concat([tf.math.real(x), tf.math.imag(x)], -1)"
        )
    _check_numbers(argument, layer, tensor)
    return tf.cast(tensor, layer.compute_dtype)


def check_seed(seed):
    """Raises ValueError if `seed` is an integer beyond the 64 bits that a generator holds."""
    if is_integer(seed) and not -(2**63) <= seed < 2**63:
        raise ValueError(f"`seed` must be in [-2**63, 2**63). Received: seed={seed}")


def check_use_cudnn(use_cudnn):
    """Returns `use_cudnn`. Raises ValueError, in Keras's words, unless it is one of its values."""
    if use_cudnn not in ("auto", True, False):
        raise ValueError(
            "Invalid valid received for argument `use_cudnn`. "
            "Expected one of {'auto', True, False}. "
            f"Received: use_cudnn={use_cudnn}"
        )
    return use_cudnn


def check_rank(layer, sequences):
    """Raises ValueError if `sequences` is a tensor of a rank that is not known."""
    if tf.is_tensor(sequences) and sequences.shape.rank is None:
        raise ValueError(
            f"`sequences` of layer {layer.name} must be [batch, time, features]. "
            "Received: a tensor of unknown rank; tf.ensure_shape gives it one"
        )


def check_features(layer, shape):
    """Raises ValueError unless `shape` is [N, T, C] with the C that `layer` has or can take."""
    if len(shape) != 3:
        raise ValueError(
            f"`sequences` of layer {layer.name} must be [batch, time, features]. "
            f"Received: shape {tuple(shape)}"
        )
    features = shape[-1]
    if not layer.cell.built:
        if features is None:
            raise ValueError(
                f"`sequences` of layer {layer.name} must have a known number of features (last "
                f"axis), which sizes the kernel. Received: shape {tuple(shape)}"
            )
    elif features is not None and features != layer.cell.kernel.shape[-2]:
        raise ValueError(
            f"`sequences` of layer {layer.name} must have {layer.cell.kernel.shape[-2]} features, "
            f"as when it was built. Received: shape {tuple(shape)}"
        )


def check_mask(layer, mask, sequences):
    """`mask` as a bool tensor [N, T], or None. Raises ValueError if it is of another shape."""
    if isinstance(mask, (list, tuple)) and mask and (mask[0] is None or hasattr(mask[0], "shape")):
        mask = mask[0]
    if mask is None:
        return None
    check_dense("mask", layer, mask)
    mask = tf.convert_to_tensor(mask)
    _check_numbers("mask", layer, mask)
    mask = tf.cast(mask, tf.bool)
    if mask.shape.rank == 3 and mask.shape[-1] == 1:
        mask = tf.squeeze(mask, axis=-1)
    expected = sequences.shape[:2]
    if not mask.shape.is_compatible_with(expected):
        raise ValueError(
            f"`mask` of layer {layer.name} must be [batch, time] = {tuple(expected)}. "
            f"Received: shape {tuple(mask.shape)}"
        )
    if mask.shape.is_fully_defined() and expected.is_fully_defined():
        return mask
    # Sizes that only the run knows: tf.where would broadcast a mask of one step.
    message = f"`mask` of layer {layer.name} must be [batch, time] of `sequences`"
    equal = tf.debugging.assert_equal(tf.shape(mask), tf.shape(sequences)[:2], message=message)
    with tf.control_dependencies([equal] if equal is not None else []):
        return tf.identity(mask)


def check_call(layer, sequences, initial_state):
    """Raises ValueError for what Keras would fail on before it comes to the layer's `call`."""
    check_dense("sequences", layer, sequences)
    check_rank(layer, sequences)
    states = initial_state if isinstance(initial_state, (list, tuple)) else []
    for i, state in enumerate(states):
        if state is None:
            raise ValueError(
                f"`initial_state` of layer {layer.name} must hold tensors. Received: None as state "
                f"{i}"
            )


def check_states(layer, states, sequences):
    """`states` as a list of tensors [N, units] in the compute dtype; ValueError if they are not."""
    batch = sequences.shape[0]
    expected = layer.states[0].shape[0] if layer.stateful and layer.states else None
    if None not in (batch, expected) and batch != expected:
        raise ValueError(
            "If an RNN is stateful, the batch size of the input sequences must be the same as the "
            f"batch size of the initial state. \n- Expected batch size: {expected}\n"
            f"- Received batch size: {batch}"
        )
    if not isinstance(states, (list, tuple)):
        check_dense("initial_state", layer, states)
        states = [states]
    if len(states) != len(layer.state_size):
        raise ValueError(
            f"`initial_state` of layer {layer.name} must hold {len(layer.state_size)} states. "
            f"Received: {len(states)}"
        )
    checked = []
    for state, units in zip(states, layer.state_size, strict=True):
        check_dense("initial_state", layer, state)
        state = cast_real("initial_state", layer, state)
        if not state.shape.is_compatible_with([batch, units]):
            raise ValueError(
                f"`initial_state` of layer {layer.name} must hold tensors of shape "
                f"{(batch, units)}. Received: shape {tuple(state.shape)}"
            )
        checked.append(_with_size(state, units))
    return checked


def _with_size(tensor, size):
    """A tensor [N, size], of which graph tracing may not know that it is one; the run checks it."""
    unknown = tensor.shape.rank is None or tensor.shape[-1] is None
    return tf.ensure_shape(tensor, [None, size]) if unknown else tensor


def check_step(cell, inputs, states):
    """Inputs [N, C] and states [N, size] of a step; ValueError if they are of other shapes."""
    features = cell.kernel.shape[-2]
    if not inputs.shape.is_compatible_with([None, features]):
        raise ValueError(
            f"`inputs` of cell {cell.name} must be [batch, features] = {(None, features)}. "
            f"Received: shape {tuple(inputs.shape)}"
        )
    sizes = cell.state_size if isinstance(cell.state_size, (list, tuple)) else [cell.state_size]
    if len(states) != len(sizes):
        raise ValueError(
            f"`states` of cell {cell.name} must hold {len(sizes)} states. Received: {len(states)}"
        )
    inputs = _with_size(inputs, features)
    for state, size in zip(states, sizes, strict=True):
        if not state.shape.is_compatible_with([inputs.shape[0], size]):
            raise ValueError(
                f"`states` of cell {cell.name} must hold tensors of shape "
                f"{(inputs.shape[0], size)}. Received: shape {tuple(state.shape)}"
            )
    return inputs, [_with_size(*pair) for pair in zip(states, sizes, strict=True)]


def check_sizes(units, heads):
    """Checks what a cell is given: `heads` divides `units`."""
    if not is_integer(units) or units <= 0:
        raise ValueError(
            "Received an invalid value for argument `units`, "
            f"expected a positive integer, got {units!r}."
        )
    if not is_integer(heads) or heads < 1 or units % heads:
        raise ValueError(
            f"`heads` must be a positive divisor of units={units}. Received: heads={heads!r}"
        )
