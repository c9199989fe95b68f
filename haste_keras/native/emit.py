"""How a call of an op is emitted: as the op, or as what stands for it in this context."""

import contextlib
import contextvars

import tensorflow as tf

from haste_keras.native import library

_EMITTER = contextvars.ContextVar("haste_keras_emitter", default=None)


def _emitter():
    # Eager calls run at once and leave no graph: they keep the op.
    return None if tf.executing_eagerly() else _EMITTER.get()


def emit(name, inputs, **attributes):
    """Emits one op.

    Args:
      name: of the op's wrapper, "haste_lstm".
      inputs: sequence of tensors, in the op's order.
      attributes: the op's.
    Returns:
      list of tensors, the op's outputs.
    """
    emitter = _emitter()
    if emitter is not None:
        return list(emitter(name, list(inputs), attributes))
    outputs = getattr(library.load(), name)(*inputs, **attributes)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def has_reserve():
    """Whether an op that is emitted here can keep a reserve for its gradient."""
    return _emitter() is None


_OF_VARIABLES = contextvars.ContextVar("haste_keras_of_variables", default=False)


def keeps_packed():
    """Whether ops that are emitted here may keep their weights packed between calls."""
    return _OF_VARIABLES.get()


@contextlib.contextmanager
def weights_of_variables(are=True):
    """Within it, the weights of ops are those of variables, if `are`.

    On a CPU an op then keeps them packed between calls of inference. It knows them by their
    buffers, which variables give up when they change.
    """
    token = _OF_VARIABLES.set(are)
    try:
        yield
    finally:
        _OF_VARIABLES.reset(token)


def prefers_projection():
    """Whether what emits here wants the op that forms x·W + b wherever there is one."""
    return getattr(_emitter(), "prefers_projection", False)


@contextlib.contextmanager
def emitted_by(emitter):
    """Within it, calls in graphs go to `emitter(name, inputs, attributes)` → outputs of the op.

    An emitter whose `prefers_projection` is True is given x, W and b, and not x·W + b.
    """
    token = _EMITTER.set(emitter)
    try:
        yield
    finally:
        _EMITTER.reset(token)
