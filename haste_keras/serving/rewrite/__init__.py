"""Loops of Keras's layers in the functions of a SavedModel, and our ops in their place."""

from haste_keras.serving.rewrite.library import rewrite

__all__ = ["rewrite"]
