"""A recurrence over whole sequences in TensorFlow's own ops: one loop over a cell's `step`."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Options:
    """How a lane walks.

    reverse: from the last step to the first.
    zero: the output of a masked step is 0, and not that of the step before it.
    share: how much of each state Zoneout keeps, a scalar or None; one for each state.
    own_zoneout: states whose share the step applies itself.
    loop: (step, x, states, mask, options) → y, states, as of `walk`: one of this file, or a
      format's own.
    """

    reverse: bool
    zero: bool
    share: list
    own_zoneout: tuple
    loop: Callable


class _List:
    """Outputs of the steps as a list of tensors."""

    mask_dtype = tf.bool

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

    mask_dtype = tf.int32  # LiteRT takes no slices of booleans

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
    return options.loop(step, x, states, mask, options)


def holds(mask, options):
    """Whether a step needs the output of the one before it."""
    return mask is not None and not options.zero


def advance(step, x, old, last, live, options):
    """One step with Zoneout and the mask.

    Args:
      step, options: as of `walk`.
      x: list of tensors [N, ...].
      old: list of states [N, K, H].
      last: the output of the step before, if `holds`.
      live: [N] bool, or None: all rows.
    Returns:
      output [N, K, H], list of new states.
    """
    output, new = step(x, old)
    for k, (share, before) in enumerate(zip(options.share, old, strict=True)):
        if share is not None and k not in options.own_zoneout:
            new[k] = share * before + (1 - share) * new[k]
    output = new[0] if output is None else output
    if live is not None:
        live = live[:, tf.newaxis, tf.newaxis]
        new = [tf.where(live, a, b) for a, b in zip(new, old, strict=True)]
        output = tf.where(live, output, tf.zeros([], output.dtype) if options.zero else last)
    return output, new


def _loop(outputs_class, step, x, states, mask, options):
    time, like = tf.shape(x[0])[1], states[0]
    count = len(states)
    outputs = outputs_class(like, time)
    if mask is not None:
        mask = tf.cast(mask, outputs.mask_dtype)

    def body(t, y, *carried):
        at = time - 1 - t if options.reverse else t
        live = None if mask is None else tf.gather(mask, at, axis=1)
        if live is not None and live.dtype != tf.bool:
            live = live > 0
        last = carried[-1] if holds(mask, options) else None
        x_t = [tf.gather(each, at, axis=1) for each in x]
        output, new = advance(step, x_t, list(carried[:count]), last, live, options)
        return t + 1, outputs.write(y, at, output), *new, *([] if last is None else [output])

    carried = [*states, *([tf.zeros_like(like)] if holds(mask, options) else [])]
    start = (tf.constant(0), outputs.start, *carried)
    _, y, *carried = tf.while_loop(lambda t, *_: t < time, body, start)
    y = tf.transpose(outputs.stack(y), [1, 0, 2, 3])
    return tf.ensure_shape(y, [like.shape[0], x[0].shape[1], *like.shape[1:]]), carried[:count]


def list_loop(*arguments):
    """A loop of TensorFlow that gathers outputs in a list of tensors."""
    return _loop(_List, *arguments)


def tensor_loop(*arguments):
    """A loop that writes outputs into one tensor: slower, but formats without lists can hold it."""
    return _loop(_Tensor, *arguments)


def walk_cell(cell, wx, states, weights, mask, options):
    """A recurrence of a cell with a matrix: wx [N, T, K, G, H] → y, states."""
    weights = cell.hoisted(weights, loop=True)
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
