"""`haste_keras.to_litert`: a model as a LiteRT (TensorFlow Lite) file."""

import re

import tensorflow as tf

from haste_keras._compat import convert_variables_to_constants_v2
from haste_keras.formats import files
from haste_keras.formats.trace import check_model, check_no_ops, trace
from haste_keras.layers.base.validation import is_integer
from haste_keras.serving import portable

QUANTIZATIONS = (None, "dynamic")


def to_litert(model, path, *, quantize=None, batch_size=1, input_signature=None):
    """Writes a model as a LiteRT file, for inference, of built-in operators alone (no Flex).

    Every layer becomes a loop over its own step. The file has one signature, whose inputs and
    outputs have the names of the model's. Sizes that the model does not know, the number of steps
    for instance, are set with `Interpreter.resize_tensor_input`, or by what a signature's runner is
    called with.

    Args:
      model: a built `keras.Model`; what it draws in training it does not draw in the file.
      path: str or pathlib.Path of the file.
      quantize: None: float32. "dynamic": dynamic-range quantization, where the products have
        weights of 8 bits and activations are quantized as they come.
      batch_size: of inputs whose batch is unknown: a static batch, which LiteRT needs.
      input_signature: as the model is called: a tf.TensorSpec, or a list or dictionary of them.
        None: of a Sequential or functional model its inputs.
    Raises:
      TypeError, ValueError, NotImplementedError: an argument is not as above, or the model has what
        LiteRT does not have; the message has the converter's own. Nothing is written.
    """
    check_model("to_litert", model)
    path = files.check_path(path, ".tflite")
    if quantize not in QUANTIZATIONS:
        raise ValueError(
            f"to_litert: `quantize` must be None or 'dynamic'. Received: quantize={quantize!r}"
        )
    if not is_integer(batch_size) or batch_size < 1:
        raise ValueError(
            f"to_litert: `batch_size` must be a positive integer. Received: {batch_size!r}"
        )
    if not hasattr(tf, "lite"):
        raise ImportError(
            f"haste_keras.to_litert needs the converter of TensorFlow, tf.lite, which TensorFlow "
            f"{tf.__version__} does not have: use TensorFlow 2.21 or older"
        )
    with portable("litert"):
        function, names = trace(model, "to_litert", input_signature, batch_size)
    check_no_ops("to_litert", function)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [_named(convert_variables_to_constants_v2(function), names)], tf.Module()
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    try:
        data = converter.convert()
    except Exception as error:  # of several kinds, by what the converter fails at
        raise NotImplementedError(
            f"to_litert: LiteRT does not have all of model {model.name}: {_said(error)}"
        ) from error
    files.write_whole(path, data)


def _named(frozen, names):
    """A concrete function of inputs and outputs that have `names`, those of inputs first."""
    inputs = [
        tf.TensorSpec(each.shape, each.dtype, name)
        for each, name in zip(frozen.inputs, names, strict=False)
    ]

    @tf.function(input_signature=inputs, autograph=False)
    def serve(*tensors):
        outputs = frozen(*tensors)
        return dict(zip(names[len(inputs) :], outputs, strict=True))

    return serve.get_concrete_function()


def _said(error):
    """The operators and the layers that the converter's message names, else its first lines."""
    said = str(error)
    missing = re.findall(r"^\s*(?:Flex|Custom) ops?: (.+)$", said, re.M)
    if missing:
        return f"it has no built-in {', '.join(dict.fromkeys(missing))}"
    return " ".join(said.split("\n")[:3])[:500]
