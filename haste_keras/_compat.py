"""Every private name of Keras and TensorFlow that the package uses: nothing else imports one.

A name that moves in a later version is adapted here alone. "Seen in" are the versions whose
sources or tests showed it: the oldest and the newest, with none between known to differ.
"""

import importlib.machinery
import importlib.util

import tensorflow as tf
from keras.src import backend as _backend  # seen in Keras 3.6.0 and 3.15.1
from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell  # seen in Keras 3.6.0 and 3.15.1
from keras.src.utils.naming import to_snake_case  # seen in Keras 3.6.0 and 3.15.1
from tensorflow.core.framework import op_def_pb2  # seen in TensorFlow 2.16.2 and 2.21.0
from tensorflow.core.protobuf import saved_model_pb2  # seen in TensorFlow 2.16.2 and 2.21.0
from tensorflow.python.client import pywrap_tf_session  # seen in TensorFlow 2.16.2 and 2.21.0
from tensorflow.python.eager import forwardprop_util  # seen in TensorFlow 2.16.2 and 2.21.0
from tensorflow.python.framework import (  # seen in TensorFlow 2.16.2, 2.21.0
    _pywrap_python_op_gen,
    op_def_registry,
)

# Seen in TensorFlow 2.16.2 and 2.21.0.
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.ops import control_flow_util  # seen in TensorFlow 2.16.2 and 2.21.0

# The converters of tf.vectorized_map; seen in TensorFlow 2.16.2 and 2.21.0. A version without them
# loops over the ops instead, which is slower and right.
try:
    from tensorflow.python.ops.parallel_for.pfor import (
        ConversionNotImplementedError,
        RegisterPFor,
        wrap,
    )
except ImportError:
    ConversionNotImplementedError = RegisterPFor = wrap = None

__all__ = [
    "ConversionNotImplementedError",
    "DropoutRNNCell",
    "RegisterPFor",
    "convert_variables_to_constants_v2",
    "flattened_layers",
    "has_tangents",
    "inputs_struct",
    "keras_loop",
    "op_wrappers",
    "registered_op",
    "saved_model_pb2",
    "skipped_inputs",
    "to_snake_case",
    "wrap",
    "xla_compiles_here",
]


def keras_loop(step, inputs, states, **options):
    """The time loop of `keras.layers.RNN`: last output, outputs, states."""
    return _backend.rnn(step, inputs, states, **options)


def flattened_layers(layer):
    """`layer` and all layers inside it (Keras 3.6.0 and 3.15.1)."""
    return list(layer._flatten_layers())


def inputs_struct(model):
    """Structure of the KerasTensors of a Sequential or functional model's inputs; else None.

    Seen in Keras 3.6.0 and 3.15.1.
    """
    functional = getattr(model, "_functional", None) or model
    return getattr(functional, "_inputs_struct", None)


def has_tangents(tensors):
    """Whether a tf.autodiff.ForwardAccumulator is differentiating through one of `tensors`."""
    return bool(forwardprop_util.pack_tangents(list(tensors)).tangents)


def op_wrappers(prefix):
    """A module of wrappers of the registered ops whose names begin with `prefix`.

    It is what `tf.load_op_library` returns, for a library that something else has loaded before.
    """
    buffer = pywrap_tf_session.TF_GetAllOpList()
    every = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(buffer))
    pywrap_tf_session.TF_DeleteBuffer(buffer)
    ours = op_def_pb2.OpList(op=[op for op in every.op if op.name.startswith(prefix)])
    spec = importlib.machinery.ModuleSpec(f"{prefix.lower()}_op_wrappers", None)
    module = importlib.util.module_from_spec(spec)
    source = _pywrap_python_op_gen.GetPythonWrappers(ours.SerializeToString())
    exec(source, module.__dict__)
    module._IS_TENSORFLOW_PLUGIN = True  # to AutoGraph, as tf.load_op_library says it
    return module


def registered_op(name):
    """The OpDef of a registered op; None if there is none of that name."""
    return op_def_registry.get(name)


def skipped_inputs(op):
    """Indices of the inputs that a tape wants no gradient of; an op of a graph has no such field.

    Seen in TensorFlow 2.16.2 and 2.21.0.
    """
    return getattr(op, "skip_input_indices", None) or ()


def xla_compiles_here():
    """Whether the function that is being traced is one that XLA compiles."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
