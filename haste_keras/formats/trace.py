"""A model as one TensorFlow function of tensors, as the converters of both formats take it."""

import keras
import tensorflow as tf

from haste_keras._compat import flattened_layers, inputs_struct


def check_model(function, model):
    """Raises if `model` is not a built Keras model, or keeps states in variables."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"{function}: `model` must be a keras.Model. Received: {model!r}")
    if not model.built:
        raise ValueError(
            f"{function}: model {model.name} is not built: call it once, or give it an Input"
        )
    stateful = [
        layer.name for layer in flattened_layers(model) if getattr(layer, "stateful", False) is True
    ]
    if stateful:
        raise ValueError(
            f"{function}: layer {', '.join(stateful)} is stateful, and the format has no variables "
            "to keep a state in: pass initial_state, with return_state=True, and make the states "
            "inputs and outputs of the model"
        )


def _specs(model, function, signature, batch):
    """Structure of tf.TensorSpec that the model is called with."""
    if signature is None:
        signature = inputs_struct(model)
        if signature is None:
            raise ValueError(
                f"{function}: `input_signature` must be given of model {model.name}, which is not "
                "Sequential or functional: a tf.TensorSpec for each input"
            )

    def spec(given):
        if not hasattr(given, "shape") or not hasattr(given, "dtype"):
            raise ValueError(
                f"{function}: `input_signature` must have a tf.TensorSpec, or what has a shape and "
                f"a dtype, for each input. Received: {given!r}"
            )
        shape = list(given.shape)
        if batch is not None and shape and shape[0] is None:
            shape[0] = batch
        return tf.TensorSpec(shape, given.dtype, getattr(given, "name", None))

    return keras.tree.map_structure(spec, signature)


def _unique(names):
    """`names` without characters that files do not take, and without a name twice."""
    unique = []
    for name in names:
        name = name.split(":")[0].replace("/", "_")
        while name in unique:
            name += "_"
        unique.append(name)
    return unique


def trace(model, function, signature, batch=None):
    """The model as a concrete function of one tensor for each input, for inference.

    Args:
      model: a Keras model that `check_model` has passed.
      function: name of the public function, for errors.
      signature: as of `to_onnx`.
      batch: in place of an unknown batch size, or None.
    Returns:
      tf.types.experimental.ConcreteFunction, whose outputs are a list; names of its inputs and then
      of its outputs.
    """
    struct = _specs(model, function, signature, batch)
    flat = keras.tree.flatten(struct)
    named = []

    @tf.function(autograph=False)
    def inference(*tensors):
        outputs = model(keras.tree.pack_sequence_as(struct, list(tensors)), training=False)
        if isinstance(outputs, dict):
            own = list(outputs)
            outputs = [outputs[name] for name in own]
        else:
            own = getattr(model, "output_names", None) or []
        outputs = keras.tree.flatten(outputs)
        named[:] = own if len(own) == len(outputs) else map("output_{}".format, range(len(outputs)))
        return [tf.identity(each) for each in outputs]

    traced = inference.get_concrete_function(
        *(tf.TensorSpec(spec.shape, spec.dtype) for spec in flat)
    )
    inputs = [spec.name or f"input_{i}" for i, spec in enumerate(flat)]
    return traced, _unique([*inputs, *named])


def _nodes(function):
    """(where, node) of the graph of a concrete function and of the functions that it calls."""
    graph_def = function.graph.as_graph_def()
    yield from (("the model", node) for node in graph_def.node)
    for each in graph_def.library.function:
        yield from ((f"function {each.signature.name}", node) for node in each.node_def)


def check_no_ops(name, function):
    """Raises ValueError if the graph of a concrete function has an op of this package."""
    for where, node in _nodes(function):
        if node.op.startswith("Haste"):
            raise ValueError(
                f"{name}: {node.name} in {where} is an op of haste_keras, {node.op}, of a function "
                "that was traced before: convert a model whose functions are not traced yet "
                "(leave out tf.function: the conversion traces)"
            )
