"""What the functions of `haste_keras.ops` share: their options, and the call of a cell's op."""

import functools
import inspect

import tensorflow as tf

from haste_keras._compat import has_tangents, xla_compiles_here
from haste_keras.native import library, raw_ops
from haste_keras.native.cell_spec import ACTIVATIONS
from haste_keras.ops.arguments import Arguments

_OPTIONAL = {"recurrent_bias"}  # parameters that may be None, which is zeros

OPTIONS = """\
mask: [N, T], cast to bool, in any pattern. A step that is not True carries the states
        through, and nothing there matters, not even NaN. None: all steps are live.
      seed: an int, or two integers (a tensor, say from `keras.random.SeedGenerator.next()`), for
        what is drawn in training. The same seed draws the same.
      reverse: K bools; True: the lane walks from step T - 1 to 0. None: no lane does.
      training: bool.
      zero_output_for_mask: bool; y at a masked step is 0, else what y was one step of the walk
        before (0 before the first live one).
      engine: "auto", or the name of an engine of the device: "cpu" or "scan", on a GPU "stepwise",
        "blas", "tiled", "block", "cluster", "grid" or "scan"; "scan" is that of cells without a
        dense recurrent kernel. `haste_keras.explain` says which one runs and why.
      save: bool; keep what the gradient needs. Without it a gradient runs the op once more. None:
        as `training`."""

INT8 = """\
recurrent_scale: [K, G, H] float32, or None. If given, recurrent_kernel is int8 and stands for
        recurrent_kernel · recurrent_scale. Each row of what it multiplies is quantised in each
        step, q = round(row · 127 / max |row|), sums are exact, and all else is in float32. On a
        CPU, for float16, bfloat16 and float32, without `training` and without gradients."""

RAISES = """\
TypeError, ValueError: an argument is not as above; the message names it.
      NotImplementedError: a gradient of a gradient or a derivative in forward mode
        (tf.autodiff.ForwardAccumulator) is asked for, or XLA compiles the function that calls this
        and cannot run the kernels here (`python -m haste_keras.check` says why).
      tf.errors.InvalidArgumentError, FailedPreconditionError, InternalError: found by the op."""


def public(function):
    """Makes `function` one of `haste_keras.ops`.

    `{options}` and `{raises}` in its docstring become the shared text, and an unknown argument is
    an error that lists those there are.
    """
    parameters = list(inspect.signature(function).parameters)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def op(*args, **kwargs):
        for name in kwargs:
            if name not in parameters:
                raise TypeError(
                    f"ops.{function.__name__}: no argument is named {name!r}; by keyword it takes "
                    f"{', '.join(parameters)}"
                )
        return function(*args, **kwargs)

    for name, text in (("options", OPTIONS), ("int8", INT8), ("raises", RAISES)):
        op.__doc__ = op.__doc__.replace("{" + name + "}", text)
    return op


def refuse_xla(arguments, instead, int8=False):
    """Raises NotImplementedError if XLA compiles the function and has no kernel of our ops."""
    if not xla_compiles_here():
        return
    if int8:
        raise arguments.error(
            NotImplementedError,
            "XLA compiles this function (jit_compile=True) and has no kernel with int8 weights; "
            "leave jit_compile unset, or multiply the weights by their scales first",
        )
    compiles, why = library.xla_here()
    if not compiles:
        raise arguments.error(
            NotImplementedError,
            f"XLA compiles this function (jit_compile=True) and cannot run the op: {why}; leave "
            f"jit_compile unset, or use {instead}",
        )


def call_cell(
    function,
    spec,
    inputs,
    initial_state,
    kernel=None,
    extras=None,
    activations=None,
    attributes=None,
    zoneout=None,
    recurrent_dropout=0.0,
    epsilon=None,
    state_label="initial_state {}",
    *,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """Checks arguments, fills in what was left out and runs the op of `spec`.

    Args:
      function: name of the public function, for errors.
      inputs: {name: value} of wx, which may be a `raw_ops.Projection`, or of the separate gates.
      initial_state: list or tuple of the cell's states, or None.
      kernel: recurrent_kernel; None for a cell that has none.
      recurrent_scale: of an int8 kernel, else None.
      extras: {name: value}, as of spec.extras; None, for those that may be: zeros.
      activations: {attribute: name}, to be checked.
      attributes: {attribute: value} that need no check.
      zoneout: {argument: rate}, of the first of spec.states; the others have none.
      recurrent_dropout: rate.
      epsilon: of cells that normalise.
      state_label: what a state, whose name goes into it, is called in errors.
      Others: as `OPTIONS` says.
    Returns:
      y, tuple of final states.
    """
    arguments = Arguments(function, len(spec.gates))
    stepwise = f"haste_keras.{spec.layer}, which then runs step by step"
    int8 = recurrent_scale is not None
    refuse_xla(arguments, stepwise, int8)
    dims = spec.forward_inputs
    projection = next(iter(inputs.values()))
    layer = isinstance(projection, raw_ops.Projection)
    if layer:
        tensors = _projection(arguments, projection, int8)
    else:
        tensors = [arguments.tensor(name, value, dims[name]) for name, value in inputs.items()]
    if int8:
        _check_int8(arguments, training, save)
        tensors += arguments.int8(
            "recurrent_kernel", kernel, "KHGH", "recurrent_scale", recurrent_scale, "KGH"
        )
        lanes = arguments.lanes("recurrent_kernel", tensors[-2])
    elif spec.kernel_dims:
        tensors.append(arguments.tensor("recurrent_kernel", kernel, spec.kernel_dims))
        lanes = arguments.lanes("recurrent_kernel", tensors[-1])
    else:
        lanes = arguments.lanes(next(iter(inputs)), tensors[0])
    for name, dims in spec.extras.items():
        left_out = extras[name] is None and name in _OPTIONAL
        tensors.append(
            arguments.zeros(dims) if left_out else arguments.tensor(name, extras[name], dims)
        )
    tensors += arguments.initial_state(spec.states, initial_state, state_label)
    if has_tangents(tensors):
        raise arguments.error(
            NotImplementedError,
            "tf.autodiff.ForwardAccumulator has no derivative of the op; use a tf.GradientTape, or "
            f"{stepwise}",
        )
    training = arguments.flag("training", training)
    rates = [arguments.rate(name, rate, one=True) for name, rate in zoneout.items()]
    rates += [0.0] * (len(spec.states) - len(rates))
    recurrent_dropout = arguments.rate("recurrent_dropout", recurrent_dropout, one=False)
    attributes = dict(attributes or {})
    for name, value in (activations or {}).items():
        attributes[name] = arguments.choice(name, value, ACTIVATIONS)
    if spec.normalizes:
        attributes["epsilon"] = arguments.epsilon(epsilon)
    if int8:
        y, *states = raw_ops.forward_int8(
            spec,
            [*tensors, arguments.mask(mask)],
            reverse=arguments.reverse(reverse, lanes),
            zoneout=rates,
            zero_output_for_mask=arguments.flag("zero_output_for_mask", zero_output_for_mask),
            engine=engine,
            layer=layer,
            **attributes,
        )
        return y, tuple(states)
    draws = training and (any(rates) or recurrent_dropout > 0)
    y, *rest = raw_ops.forward(
        spec,
        [*tensors, arguments.mask(mask), arguments.seed(seed, draws)],
        reverse=arguments.reverse(reverse, lanes),
        zoneout=rates,
        recurrent_dropout=recurrent_dropout,
        training=training,
        zero_output_for_mask=arguments.flag("zero_output_for_mask", zero_output_for_mask),
        engine=engine,
        allow_tf32=tf.config.experimental.tensor_float_32_execution_enabled(),
        save=training if save is None else arguments.flag("save", save),
        layer=layer,
        **attributes,
    )
    return y, tuple(rest[: len(spec.states)])


def _projection(arguments, projection, int8):
    """The tensors of a `raw_ops.Projection`; without a bias [0] in its place."""
    tensors = [arguments.tensor("x", projection.x, "NTC")]
    if int8 != (projection.kernel_scale is not None):
        raise arguments.error(
            TypeError, "kernel_scale and recurrent_scale must both be given or both be None"
        )
    if int8:
        tensors += arguments.int8(
            "kernel", projection.kernel, "CKGH", "kernel_scale", projection.kernel_scale, "KGH"
        )
    else:
        tensors.append(arguments.tensor("kernel", projection.kernel, "CKGH"))
    bias = projection.bias
    tensors.append(
        tf.zeros([0], tensors[0].dtype) if bias is None else arguments.tensor("bias", bias, "KGH")
    )
    return tensors


def _check_int8(arguments, training, save):
    for name, value in (("training", training), ("save", save)):
        if value is not None and arguments.flag(name, value):
            raise arguments.error(
                ValueError,
                f"{name} must be False with recurrent_scale, since int8 weights have no gradient, "
                "but is True",
            )
