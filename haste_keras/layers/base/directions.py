"""Directions and lanes: how the states and outputs of one or two walks become one tensor."""

import keras
import tensorflow as tf

from haste_keras.ops.shapes import size

DIRECTIONS = ("forward", "backward", "bidirectional")
MERGE_MODES = ("concat", "sum", "mul", "ave", None)


def clone_initializer(initializer):
    """A copy that draws other values: the second direction must not start like the first."""
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def of_each(states, count):
    """The states of a layer of `count` directions, a list for each direction."""
    size_of_one = len(states) // count
    return [states[i * size_of_one : (i + 1) * size_of_one] for i in range(count)]


def join(weights, axis):
    """[{name: tensor}] of the cells → {name: tensors of all cells, end to end}."""
    if len(weights) == 1:
        return dict(weights[0])
    return {name: tf.concat([each[name] for each in weights], axis) for name in weights[0]}


def to_lanes(states, heads):
    """States [N, units] direction by direction → a tensor [N, K, H] for each state of the cell."""
    lanes = []
    for directions in zip(*states, strict=True):
        units = directions[0].shape[-1]
        stacked = directions[0] if len(directions) == 1 else tf.stack(directions, axis=1)
        lanes.append(tf.reshape(stacked, [-1, len(directions) * heads, units // heads]))
    return lanes


def from_lanes(states, count):
    """[N, K, H] for each state of the cell → states [N, units], direction by direction."""
    split = []
    for state in states:
        units = state.shape[1] * state.shape[2] // count
        if count == 1:
            split.append([tf.reshape(state, [-1, units])])
        else:
            split.append(tf.unstack(tf.reshape(state, [-1, count, units]), axis=1))
    return [list(direction) for direction in zip(*split, strict=True)]


def merge(directions, mode):
    """What a layer returns of its directions: by `mode` one tensor, or with None both."""
    if len(directions) == 1:
        return directions[0]
    forward, backward = directions
    if mode == "concat":
        return tf.concat([forward, backward], axis=-1)
    if mode == "sum":
        return forward + backward
    if mode == "ave":
        return (forward + backward) / 2
    if mode == "mul":
        return forward * backward
    return forward, backward


def merge_sequences(y, count, mode, training):
    """y [N, T, K, H] of `count` directions, merged: [N, T, units] each."""
    if y.shape[2] == 1:
        # A graph needs no sizes for either. LiteRT squeezes no unknown shape, and the gradient of a
        # slice copies dy into zeros.
        return tf.squeeze(y, axis=2) if training else y[:, :, 0]
    batch, time, units = size(y, 0), size(y, 1), y.shape[2] * y.shape[3] // count
    if count == 1 or mode == "concat":
        return tf.reshape(y, [batch, time, count * units])
    return merge(tf.unstack(tf.reshape(y, [batch, time, count, units]), axis=2), mode)


def last_of_states(h, sequences, mask, reverse, zero_masked, at_zero):
    """Last outputs [N, units]: h of each direction after its walk, unless they are 0 by the rules.

    at_zero: h was 0 before the walk. Where no step is live it still is, and a graph needs nothing.
    """
    if at_zero and (mask is None or not zero_masked):
        return h
    return [
        _last_of_state(each, sequences, mask, backwards, zero_masked)
        for each, backwards in zip(h, reverse, strict=True)
    ]


def _last_of_state(h, sequences, mask, backwards, zero_masked):
    if mask is None:
        time = size(sequences, 1)
        if isinstance(time, int):
            return h if time else tf.zeros_like(h)
        return tf.where(time > 0, h, tf.zeros_like(h))
    if zero_masked:
        mask = tf.cast(mask, tf.int32)  # LiteRT slices no booleans
        mask = (mask[:, :1] if backwards else mask[:, -1:]) > 0
    live = tf.reduce_any(mask, axis=1, keepdims=True)
    return tf.where(live, h, tf.zeros_like(h))


def last_of_outputs(y, backwards):
    """Output [N, units] of the walk's last step, of y [N, T, K, H]; 0 if there was no step."""
    last = tf.reduce_sum(y[:, :1] if backwards else y[:, -1:], axis=1)
    return tf.reshape(last, [-1, y.shape[2] * y.shape[3]])
