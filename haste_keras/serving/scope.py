"""The scope in which graphs are built of TensorFlow's own ops alone."""

import contextlib

import keras
import tensorflow as tf

from haste_keras.native.emit import emitted_by
from haste_keras.ops.vectorize import vectorize_call
from haste_keras.serving import tag as tags
from haste_keras.serving.stock import STOCK
from haste_keras.serving.walk import list_loop, tensor_loop

TAGGED = "tf_saved_model"  # the format that carries tags
FORMATS = (TAGGED, "onnx", "litert")
# Of every op of a cell; a call leaves out those that its cell does not have.
_DEFAULTS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def where():
    """The layer that is being traced, for errors."""
    scope = tf.get_current_name_scope()
    return f"layer {scope}" if scope else "this function"


def check_draws(op, attributes):
    """Raises NotImplementedError if a call of `op` draws random numbers."""
    draws = any(attributes.get("zoneout", ())) or attributes.get("recurrent_dropout")
    if attributes.get("training") and draws:
        raise NotImplementedError(
            f"{where()} draws Zoneout or recurrent dropout in training (training=True), which "
            f"{op} does inside its kernel and stock ops cannot repeat: export it with "
            "training=False, or with portable=False"
        )


class _Emitter:
    """Emits what stands for an op; `tagged`: as the call of a function that says for which."""

    def __init__(self, tagged):
        self.tagged = tagged
        self.generator = keras.random.SeedGenerator(0, name="portable")

    def __call__(self, name, inputs, attributes):
        if name not in STOCK:
            raise NotImplementedError(
                f"{where()} needs the op {name}, of a gradient, which has no portable form: leave "
                "the gradient out of the exported function, or export with portable=False"
            )
        stock = STOCK[name]
        check_draws(stock.op, attributes)
        if "reverse" in attributes:
            # Which engine runs is for the machine that serves to choose.
            attributes = {**_DEFAULTS, **attributes, "engine": "auto"}
            if "save" in attributes:
                attributes["save"] = False

        loop = list_loop if self.tagged else tensor_loop

        def body(*inputs):
            return stock.body(list(inputs), attributes, loop=loop, generator=self.generator)

        if not self.tagged:
            return body(*inputs)
        attributes = {"T": inputs[0].dtype, **attributes}
        tag = tags.Tag(stock.op, attributes, len(inputs), tags.constants_of(inputs))
        inputs = tags.kept_inputs(inputs, tag.constants)
        body.__name__ = name
        function = tf.function(
            body, autograph=False, experimental_attributes=tags.function_attributes(tag)
        )
        outputs = function(*inputs)
        vectorize_call(outputs[0].op, stock.op, attributes)
        return outputs


@contextlib.contextmanager
def portable(format="tf_saved_model"):
    """A scope: graphs that are built within it name no op of haste_keras.

        with haste_keras.portable():
            model.export("folder")

    Each op is emitted as stock ops that give the same outputs. For "tf_saved_model" they are the
    body of a function that is tagged with the op: where haste_keras is present, its graph optimizer
    turns the call back into the op. What runs eagerly within the scope runs the ops, and what was
    traced before it keeps them.

    Args:
      format: "tf_saved_model"; "onnx" or "litert", whose graphs have no functions and so no tags.

    Raises:
      ValueError: `format` is none of these.
      NotImplementedError: from the call of a layer: it draws random numbers inside the op, in
        training; or an op of a gradient is asked for.
    """
    if format not in FORMATS:
        expected = ", ".join(repr(each) for each in FORMATS)
        raise ValueError(f"`format` must be one of {expected}. Received: format={format!r}")
    with emitted_by(_Emitter(tagged=format == TAGGED)):
        yield
