"""LSTM, GRU and RNN of ONNX for our LSTM, GRU and Elman network: weights, directions, masks.

A node has one lane in each of at most two directions, so that heads become several nodes. ONNX is
time-major, has its lanes first, and multiplies W·x where we have x·W:

    X [T, N, C]   W [D, G·H, C]   R [D, G·H, H]   B [D, 2·G·H]   h0, c0 [D, N, H]
    Y [T, D, N, H]   Y_h, Y_c [D, N, H]
"""

import tensorflow as tf

from haste_keras.formats.stand_in import StandIn
from haste_keras.ops.shapes import size

# Of each cell: the operator, our gates in its order, its own attributes.
_OPERATORS = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c
    "gru": ("GRU", (0, 1, 2), {"linear_before_reset": 1}),  # z, r, h
    "gru_reset_before": ("GRU", (0, 1, 2), {"linear_before_reset": 0}),
    "elman": ("RNN", (0,), {}),
}
# Name, alpha, beta.
_ACTIVATIONS = {
    "tanh": ("Tanh",),
    "sigmoid": ("Sigmoid",),
    "relu": ("Relu",),
    "hard_sigmoid": ("HardSigmoid", 1 / 6, 0.5),
    "linear": ("Affine", 1.0, 0.0),
}
_SEES_THROUGH = ("Cast", "Reshape", "Identity", "EnsureShape", "ExpandDims", "Pack", "ConcatV2")


def has_node(recurrence, inputs, attributes):
    """Whether ONNX has an operator for a call of the op `recurrence` without a mask.

    Zoneout's expectation, int8 weights and 64 bits, which onnxruntime does not run, are not among
    them.
    """
    return (
        recurrence.spec.name in _OPERATORS
        and recurrence.layer
        and not recurrence.int8
        and inputs[0].dtype != tf.float64
        and not any(attributes["zoneout"])
    )


def is_right_padded(mask):
    """Whether the graph shows that `mask` is `steps < lengths`, as tf.sequence_mask makes it."""
    op = mask.op
    while op.type in ("Identity", "EnsureShape"):
        op = op.inputs[0].op
    if op.type not in ("Less", "Greater"):
        return False
    steps, lengths = op.inputs if op.type == "Less" else reversed(op.inputs)
    if lengths.shape.rank != 2 or lengths.shape[1] != 1:
        return False
    if steps.shape.rank != 1 and steps.shape.as_list()[:-1] != [1]:
        return False
    op = steps.op
    while op.type in ("Identity", "Cast", "Reshape", "ExpandDims", "EnsureShape"):
        op = op.inputs[0].op
    if op.type != "Range":
        return False
    return all(_is(op.inputs[i], value) for i, value in ((0, 0), (2, 1)))


def emit_nodes(stand_ins, recurrence, inputs, attributes, where):
    """Emits the operators for a call of the op `recurrence`.

    Args:
      stand_ins: `StandIns`.
      recurrence: `stock.Recurrence`; `has_node` holds. A mask is padding on the right.
      inputs: list of tensors, as `CellSpec.layer_inputs` lists them.
      attributes: the op's.
      where: the layer, for errors.
    Returns:
      list of the op's outputs, without a reserve.
    """
    spec = recurrence.spec
    operator, order, own = _OPERATORS[spec.name]
    dtype = inputs[0].dtype
    given = dict(zip(recurrence.dims, inputs, strict=True))
    mask = given["mask"] if given["mask"].shape.rank == 2 else None
    wide = {
        name: tf.cast(each, tf.float32) if each.dtype.is_floating else each
        for name, each in given.items()
    }
    reverse, hidden = attributes["reverse"], given["kernel"].shape[3]
    for name in (f"{state}0" for state in spec.states):
        if wide[name].shape.rank == 1:  # left out
            wide[name] = tf.zeros([size(given["x"], 0), len(reverse), hidden])
    arguments = _arguments(spec, wide, order)
    lengths = None if mask is None else tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    lanes, parts = [], []
    for group in _groups(reverse):
        lanes += group
        chosen = {
            name: None if each is None else tf.gather(each, group)
            for name, each in arguments.items()
        }
        chosen["x"] = tf.transpose(wide["x"], [1, 0, 2])
        if lengths is not None:
            # A row without a live step counts as one of length 1, whose results are not used.
            chosen["lengths"] = tf.maximum(lengths, 1)
        stand_in, tensors = _stand_in(operator, own, chosen, hidden, reverse, group, attributes)
        batch, time = given["x"].shape[0], given["x"].shape[1]
        states = [(tf.float32, [len(group), batch, hidden])] * len(spec.states)
        outputs = [(tf.float32, [time, len(group), batch, hidden]), *states]
        stand_in = StandIn(operator, stand_in[0], stand_in[1], where=where)
        parts.append(stand_ins.emit(stand_in, tensors, outputs))
    y, *states = (_in_order(each, lanes, axis) for axis, each in _by_output(parts))
    y = tf.transpose(y, [2, 0, 1, 3])
    states = [tf.transpose(state, [1, 0, 2]) for state in states]
    if mask is not None:
        held = _held(states[0], lengths, reverse, attributes["zero_output_for_mask"])
        y = tf.where(mask[:, :, tf.newaxis, tf.newaxis], y, held[:, tf.newaxis])
        some = (lengths > 0)[:, tf.newaxis, tf.newaxis]
        initial = [wide[f"{state}0"] for state in spec.states]
        states = [tf.where(some, new, old) for new, old in zip(states, initial, strict=True)]
    return [tf.cast(each, dtype) for each in (y, *states)]


def _arguments(spec, given, order):
    """W, R, B and the states of all lanes, [K, ...] each; None: absent, which is zero."""

    def columns(weight):  # [K, G, H, ...] → [K, G·H, ...], their gates
        lanes, gates, hidden, *rest = weight.shape
        return tf.reshape(tf.gather(weight, order, axis=1), [lanes, gates * hidden, *rest])

    kernel = tf.transpose(given["kernel"], [1, 2, 3, 0])
    recurrent = tf.transpose(given["recurrent_kernel"], [0, 2, 3, 1])
    arguments = {"kernel": columns(kernel), "recurrent": columns(recurrent), "bias": None}
    biases = [given["bias"], given.get("recurrent_bias")]
    biases = [None if _absent(each) else columns(each) for each in biases]
    if any(each is not None for each in biases):
        zeros = tf.zeros(arguments["kernel"].shape[:2])
        biases = [zeros if each is None else each for each in biases]
        arguments["bias"] = tf.concat(biases, axis=1)
    for state in spec.states:
        initial = given[f"{state}0"]
        absent = all(_is_zero(given[f"{each}0"]) for each in spec.states)
        arguments[state] = None if absent else tf.transpose(initial, [1, 0, 2])
    return arguments


def _absent(bias):
    return bias is None or bias.shape.rank != 3 or _is_zero(bias)


def _groups(reverse):
    """Lanes of each node: one that walks forward with one that walks backward, or one alone."""
    forward = [lane for lane, backwards in enumerate(reverse) if not backwards]
    backward = [lane for lane, backwards in enumerate(reverse) if backwards]
    both = min(len(forward), len(backward))
    pairs = [list(pair) for pair in zip(forward, backward, strict=False)]
    return pairs + [[lane] for lane in (*forward[both:], *backward[both:])]


def _stand_in(operator, own, chosen, hidden, reverse, group, attributes):
    """(attributes, slots) of the node, and its inputs."""
    direction = "reverse" if reverse[group[0]] else "forward"
    names = ["activation"]
    if operator != "RNN":
        names.insert(0, "recurrent_activation")
    if operator == "LSTM":
        names.append("activation")
    activations = [_ACTIVATIONS[attributes[name]] for name in names] * len(group)
    scaled = [each for each in activations if len(each) > 1]
    node = {
        **own,
        "hidden_size": hidden,
        "direction": "bidirectional" if len(group) == 2 else direction,
        "activations": [each[0] for each in activations],
    }
    if scaled:
        node["activation_alpha"] = [each[1] for each in scaled]
        node["activation_beta"] = [each[2] for each in scaled]
    tensors, slots = [], []
    for name in ("x", "kernel", "recurrent", "bias", "lengths", "h", "c"):
        tensor = chosen.get(name)
        slots.append(None if tensor is None else len(tensors))
        if tensor is not None:
            tensors.append(tensor)
    while slots[-1] is None:
        slots.pop()
    return (node, slots), tensors


def _by_output(parts):
    """(axis of lanes, that output of every node) for each output."""
    return [(1 if i == 0 else 0, list(each)) for i, each in enumerate(zip(*parts, strict=True))]


def _in_order(parts, lanes, axis):
    """Outputs of nodes whose lanes are `lanes` → one tensor, with lanes in our order."""
    joined = parts[0] if len(parts) == 1 else tf.concat(parts, axis)
    if lanes == sorted(lanes):
        return joined
    return tf.gather(joined, [lanes.index(lane) for lane in range(len(lanes))], axis=axis)


def _held(h, lengths, reverse, zero):
    """[N, K, H]: what the output of a masked step is, which is one on the right."""
    if zero or all(reverse):
        return tf.zeros_like(h)
    # A lane that walks backward has not had a live step there.
    forward = tf.constant([not backwards for backwards in reverse])[:, tf.newaxis]
    some = (lengths > 0)[:, tf.newaxis, tf.newaxis]
    return tf.where(forward & some, h, tf.zeros_like(h))


def _is(tensor, value):
    """Whether `tensor` is a constant scalar of `value`."""
    known = tf.get_static_value(tensor)
    return known is not None and known.ndim == 0 and known == value


def _is_zero(tensor):
    """Whether the graph shows that all of `tensor` is 0."""
    known = tf.get_static_value(tensor)
    if known is not None:
        return not known.any()
    op = tensor.op
    if op.type == "ZerosLike":
        return True
    if op.type == "Fill":
        return _is(op.inputs[1], 0)
    if op.type not in _SEES_THROUGH:
        return False
    data = op.inputs if op.type == "Pack" else op.inputs[:1]
    if op.type == "ConcatV2":
        data = op.inputs[:-1]
    return all(_is_zero(each) for each in data)
