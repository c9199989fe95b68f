"""A recurrence over whole sequences in TensorFlow's own ops: one loop over a cell's `step`."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Options:
    """How a lane walks.

    reverse: from the last step to the first.
    zero: the output of a masked step is 0, and not that of the step before it.
    share: how much of each state Zoneout keeps, a scalar or None; one for each state.
    own_zoneout: states whose share the step applies itself.
    lists: outputs are gathered in a list of tensors; else they are written into one tensor, which
      formats without such lists can hold, and which is slower.
    """

    reverse: bool
    zero: bool
    share: list
    own_zoneout: tuple
    lists: bool


class _List:
    """Outputs of the steps as a list of tensors."""

    def __init__(self, like, time):
        # Raw: a TensorArray cannot be stacked if there was no step and the batch is not known.
        self.shape, self.like = tf.shape(like), like
        self.start = tf.raw_ops.TensorListReserve(
            element_shape=self.shape, num_elements=time, element_dtype=like.dtype
        )

    def write(self, outputs, t, output):
        return tf.raw_ops.TensorListSetItem(input_handle=outputs, index=t, item=output)

    def stack(self, outputs):
        y = tf.raw_ops.TensorListStack(
            input_handle=outputs, element_shape=self.shape, element_dtype=self.like.dtype
        )
        return tf.ensure_shape(y, [None, *self.like.shape])


class _Tensor:
    """Outputs of the steps as one tensor."""

    def __init__(self, like, time):
        shape = tf.concat([[time], tf.shape(like)], axis=0)
        self.start = tf.zeros(shape, like.dtype)
        self.shape = [None, *like.shape]

    def write(self, outputs, t, output):
        outputs = tf.tensor_scatter_nd_update(outputs, [[t]], output[tf.newaxis])
        return tf.ensure_shape(outputs, self.shape)

    def stack(self, outputs):
        return outputs


def walk(step, x, states, mask, options):
    """Runs `step` over axis 1 of `x`.

    Args:
      step: (list of tensors [N, ...] of one step, states) → output or None, new states.
      x: list of tensors [N, T, ...].
      states: list of [N, K, H].
      mask: [N, T] bool, or None.
      options: `Options`.
    Returns:
      y [N, T, K, H], list of states.
    """
    time, like = tf.shape(x[0])[1], states[0]
    count = len(states)
    outputs = (_List if options.lists else _Tensor)(like, time)
    holds = mask is not None and not options.zero
    if mask is not None and not options.lists:
        mask = tf.cast(mask, tf.int32)  # LiteRT takes no slices of booleans

    def body(t, y, *carried):
        at = time - 1 - t if options.reverse else t
        old, last = list(carried[:count]), carried[count:]
        output, new = step([tf.gather(each, at, axis=1) for each in x], old)
        for k, (share, before) in enumerate(zip(options.share, old, strict=True)):
            if share is not None and k not in options.own_zoneout:
                new[k] = share * before + (1 - share) * new[k]
        output = new[0] if output is None else output
        if mask is not None:
            live = tf.gather(mask, at, axis=1)[:, tf.newaxis, tf.newaxis]
            live = live if live.dtype == tf.bool else live > 0
            new = [tf.where(live, a, b) for a, b in zip(new, old, strict=True)]
            output = tf.where(live, output, last[0] if holds else tf.zeros([], output.dtype))
        return t + 1, outputs.write(y, at, output), *new, *([output] if holds else [])

    carried = [*states, *([tf.zeros_like(like)] if holds else [])]
    start = (tf.constant(0), outputs.start, *carried)
    _, y, *carried = tf.while_loop(lambda t, *_: t < time, body, start)
    y = tf.transpose(outputs.stack(y), [1, 0, 2, 3])
    return tf.ensure_shape(y, [like.shape[0], x[0].shape[1], *like.shape[1:]]), carried[:count]


def walk_cell(cell, wx, states, weights, mask, options):
    """A recurrence of a cell with a matrix: wx [N, T, K, G, H] → y, states."""
    weights = cell.hoisted(weights)
    return walk(
        lambda x, old: cell.step(x[0], old, weights, options.share), [wx], states, mask, options
    )


def walk_pooling(coefficients, states, mask, options):
    """A recurrence of a cell without: keep, new, out [N, T, K, H] → y, states.

    All but a product and a sum is done for all steps at once.
    """
    keep, new, out = coefficients

    def step(x, old):
        state = x[0] * old[0] + x[1]
        return (None if out is None else x[2] * state), [state]

    x = [keep, new] if out is None else [keep, new, out]
    return walk(step, x, states, mask, options)
