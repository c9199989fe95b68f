"""The tag of a function: which op its call stands for. README.md states the format.

    _implements = {name: "HasteLstm", attr: {the op's attributes, _arguments, _version}}

TensorFlow keeps the attribute in every format and acts on it nowhere.
"""

import dataclasses

import numpy as np
import tensorflow as tf

VERSION = 1
ATTRIBUTE = "_implements"
_CONSTANT = "_input_"
_MOST_BYTES = 1 << 16  # of a constant in a tag


@dataclasses.dataclass(frozen=True)
class Tag:
    """What a tagged function stands for.

    op: name of the op, "HasteLstm".
    attributes: {name: value} of the op; its T is a tf.DType.
    arguments: number of the op's inputs.
    constants: {index: array} of inputs that are constants where the op is called.
    """

    op: str
    attributes: dict
    arguments: int
    constants: dict = dataclasses.field(default_factory=dict)


def constants_of(inputs):
    """{index: array} of those of `inputs` that are constants and not too large for a tag."""
    known = {i: tf.get_static_value(tensor) for i, tensor in enumerate(inputs)}
    return {
        i: value
        for i, value in known.items()
        if value is not None and (_is_uniform(value) or value.nbytes <= _MOST_BYTES)
    }


def kept_inputs(inputs, constants):
    """`inputs`, of which none but `constants` becomes a constant of a function that is called.

    Grappler moves a "Const" into the function, where a reader of the tag does not see it. It moves
    no default of a placeholder, which might be fed.
    """
    known = {i for i, each in enumerate(inputs) if tf.get_static_value(each) is not None}
    return [
        tf.raw_ops.PlaceholderWithDefault(input=each, shape=each.shape)
        if i in known and i not in constants
        else each
        for i, each in enumerate(inputs)
    ]


def _is_uniform(value):
    """Whether all elements have the bits of the first."""
    return value.size > 0 and value.tobytes() == np.full_like(value, value.flat[0]).tobytes()


def _tensor(value):
    """`value` as a TensorProto, in which equal elements take the room of one."""
    of = value.flat[0] if _is_uniform(value) else value
    return tf.make_tensor_proto(of, dtype=tf.as_dtype(value.dtype), shape=value.shape)


def _fill(target, value):
    """Writes a value of Python into an AttrValue."""
    if isinstance(value, (list, tuple)):
        target.list.SetInParent()
        kind = "b" if any(isinstance(each, bool) for each in value) else "f"
        getattr(target.list, kind).extend(value)
    elif isinstance(value, bool):
        target.b = value
    elif isinstance(value, tf.DType):
        target.type = value.as_datatype_enum
    elif isinstance(value, int):
        target.i = value
    elif isinstance(value, float):
        target.f = value
    else:
        target.s = value.encode()


def _read(value):
    """The value of Python that an AttrValue holds."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return [*value.list.b, *value.list.f]
    if kind == "type":
        return tf.as_dtype(value.type)
    return value.s.decode() if kind == "s" else getattr(value, kind)


def function_attributes(tag):
    """Attributes of the function that `tag` is for, as `tf.function` takes them.

    `_noinline` keeps the call in the graph until an optimizer has seen it.
    """
    implements = tf.compat.v1.AttrValue()
    implements.func.name = tag.op
    own = {**tag.attributes, "_arguments": tag.arguments, "_version": VERSION}
    for name, value in own.items():
        _fill(implements.func.attr[name], value)
    for index, value in tag.constants.items():
        implements.func.attr[f"{_CONSTANT}{index}"].tensor.CopyFrom(_tensor(value))
    return {ATTRIBUTE: implements, "_noinline": True}


def read(function):
    """The `Tag` of a FunctionDef; None if it has none of ours.

    Raises:
      ValueError: the tag is of a version that this package does not know.
    """
    if ATTRIBUTE not in function.attr:
        return None
    implements = function.attr[ATTRIBUTE].func
    if not implements.name.startswith("Haste"):
        return None
    attributes = {name: _read(value) for name, value in implements.attr.items()}
    version = attributes.pop("_version", 0)
    if version != VERSION:
        raise ValueError(
            f"function {function.signature.name} has a tag of {implements.name} of version "
            f"{version}, but this haste_keras reads version {VERSION}: use a haste_keras as new as "
            "the one that exported the model"
        )
    _check_names(function)
    constants = {
        int(name.removeprefix(_CONSTANT)): tf.make_ndarray(attributes.pop(name))
        for name in list(attributes)
        if name.startswith(_CONSTANT)
    }
    return Tag(implements.name, attributes, attributes.pop("_arguments"), constants)


def _check_names(function):
    """Names tell a reader which inputs and outputs are left, where Grappler removed some."""
    inputs = [argument.name for argument in function.signature.input_arg]
    outputs = [argument.name for argument in function.signature.output_arg]
    for base, names in (("inputs", inputs), ("identity", outputs)):
        for i, name in enumerate(names):
            if name not in ((base, f"{base}_0") if i == 0 else (f"{base}_{i}",)):
                raise ValueError(
                    f"function {function.signature.name}: input or output {i} must be named "
                    f"{base}_{i}, but is {name}"
                )
