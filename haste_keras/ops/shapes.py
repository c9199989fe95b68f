"""Sizes of tensors: static where they are known."""

import tensorflow as tf


def size(x, axis):
    """Size of an axis: an int where it is known, else a scalar tensor."""
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def sizes(x):
    """`size` of every axis."""
    return [size(x, axis) for axis in range(x.shape.rank)]
