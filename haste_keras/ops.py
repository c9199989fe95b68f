"""Functional form: the recurrences alone, on projected inputs. The layers are made of these.

N batch, T time, K lanes (independent recurrences: heads × directions), H hidden units a lane, G
gates. A function takes wx = x·W + b for all steps at once and walks time; products with W and their
gradients stay outside, where TensorFlow does them best.
"""

import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from haste_keras import _gradients, _raw, _vectorize, _xla  # noqa: F401  (register by import)
from haste_keras._cells import LSTM
from haste_keras._checks import ACTIVATIONS

DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    mask=None,
    seed=None,
    reverse=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    recurrent_dropout=0.0,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
):
    """Long short-term memory over whole sequences.

        q = h[t-1]·R
        i, f, g, o = r(wx_i + q_i), r(wx_f + q_f), a(wx_g + q_g), r(wx_o + q_o)
        c[t] = f ∘ c[t-1] + i ∘ g
        h[t] = o ∘ a(c[t])

    with a = `activation` and r = `recurrent_activation`. Differentiable once in wx,
    recurrent_kernel and initial_state; a gradient of a gradient raises NotImplementedError.

    Args:
      wx: [N, T, K, 4, H], float16, bfloat16, float32 or float64; gates i, f, g, o, which is
        Keras's order.
      recurrent_kernel: [K, H, 4, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h, c), each [N, K, H] of wx's dtype; None: zeros.
      mask: [N, T], cast to bool, in any pattern. A step that is not True carries the states
        through, and nothing there matters, not even NaN. None: all steps are live.
      seed: an int, or two integers (a tensor, say from `keras.random.SeedGenerator.next()`), for
        what is drawn in training. The same seed draws the same.
      reverse: K bools; True: the lane walks from step T - 1 to 0. None: no lane does.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      zoneout_cell: the same for c.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      training: bool.
      zero_output_for_mask: bool; y at a masked step is 0, else what y was one step of the walk
        before (0 before the first live one).
      engine: "auto", or the name of an engine of the device: "cpu", "stepwise".
      save: bool; keep what the gradient needs. Without it a gradient runs the op once more. None:
        as `training`.

    Returns:
      y, (h, c): y [N, T, K, H], h of each step; h, c [N, K, H] after the walk's last step.

    Raises:
      TypeError, ValueError: an argument is not as above; the message names it.
      NotImplementedError: XLA compiles the function that calls this.
      tf.errors.InvalidArgumentError, FailedPreconditionError, InternalError: found by the op.

    Source: Hochreiter & Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997;
    forget gate: Gers, Schmidhuber & Cummins, "Learning to forget", Neural Computation 12(10),
    2000; Zoneout: Krueger et al., ICLR 2017; recurrent dropout as in Gal & Ghahramani, NIPS 2016.
    """
    return _recurrence(
        LSTM,
        wx,
        recurrent_kernel,
        initial_state,
        zoneout={"zoneout": zoneout, "zoneout_cell": zoneout_cell},
        mask=mask,
        seed=seed,
        reverse=reverse,
        activation=activation,
        recurrent_activation=recurrent_activation,
        recurrent_dropout=recurrent_dropout,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
    )


@tf.autograph.experimental.do_not_convert
def _recurrence(
    spec,
    wx,
    recurrent_kernel,
    initial_state,
    *,
    zoneout,
    mask,
    seed,
    reverse,
    training,
    save,
    **options,
):
    """Checks arguments, fills in what was left out and runs the op of `spec`.

    zoneout: {argument: rate}, in the order of spec.states. Returns y, tuple of final states.
    """
    if _xla.compiles_here():
        raise NotImplementedError(
            f"ops.{spec.name}: XLA compiles this function (jit_compile=True) and has no kernel of "
            f"the op; leave jit_compile unset, or use haste_keras.{spec.layer}, which falls back"
        )
    sizes = {"G": len(spec.gates)}
    wx = _tensor(spec, "wx", wx, None, "NTKGH", sizes)
    recurrent_kernel = _tensor(spec, "recurrent_kernel", recurrent_kernel, wx, "KHGH", sizes)
    if sizes.get("K") is None:
        raise ValueError(
            f"ops.{spec.name}: recurrent_kernel must have a known number of lanes K, but has shape "
            f"{recurrent_kernel.shape}"
        )
    states = _initial_state(spec, initial_state, wx, sizes)
    training = _flag(spec, "training", training)
    options["zero_output_for_mask"] = _flag(
        spec, "zero_output_for_mask", options["zero_output_for_mask"]
    )
    rates = [_rate(spec, name, rate, one=True) for name, rate in zoneout.items()]
    dropout = options["recurrent_dropout"]
    options["recurrent_dropout"] = _rate(spec, "recurrent_dropout", dropout, one=False)
    for name in ("activation", "recurrent_activation"):
        if options[name] not in ACTIVATIONS:
            raise ValueError(
                f"ops.{spec.name}: {name} must be one of {', '.join(ACTIVATIONS)}, but is "
                f"{options[name]!r}"
            )
    draws = training and (any(rates) or options["recurrent_dropout"] > 0)
    y, *rest = _raw.forward(
        spec,
        [wx, recurrent_kernel, *states, _mask(spec, mask, sizes), _seed(spec, seed, draws)],
        reverse=_reverse(spec, reverse, sizes["K"]),
        zoneout=rates,
        training=training,
        save=training if save is None else _flag(spec, "save", save),
        **options,
    )
    return y, tuple(rest[: len(spec.states)])


def _check_shape(spec, name, tensor, dims, sizes):
    """Checks the static shape of `tensor` against `dims`, a letter a dimension; `sizes` learns."""
    shape = tensor.shape
    if shape.rank is None:
        return
    fits = shape.rank == len(dims)
    learnt = dict(sizes)
    for letter, size in zip(dims, shape, strict=False):
        known = learnt.get(letter)
        if known is None:
            learnt[letter] = size
        fits &= known is None or size is None or known == size
    if not fits:
        expected = ", ".join(
            letter
            if sizes.get(letter) is None or letter.isdigit()
            else f"{letter} = {sizes[letter]}"
            for letter in dims
        )
        raise ValueError(
            f"ops.{spec.name}: {name} must have shape [{expected}], but has shape {shape}"
        )
    sizes.update(learnt)


def _tensor(spec, name, value, like, dims, sizes):
    """`value` as a tensor of the dtype of `like`, or of any that the ops know."""
    tensor = tf.convert_to_tensor(value)
    if like is None and tensor.dtype not in DTYPES:
        known = ", ".join(dtype.name for dtype in DTYPES)
        raise TypeError(
            f"ops.{spec.name}: {name} must be one of {known}, but is {tensor.dtype.name}"
        )
    if like is not None and tensor.dtype != like.dtype:
        raise TypeError(
            f"ops.{spec.name}: {name} must have the dtype of wx, {like.dtype.name}, but is "
            f"{tensor.dtype.name}"
        )
    _check_shape(spec, name, tensor, dims, sizes)
    return tensor


def _initial_state(spec, initial_state, wx, sizes):
    """The initial states as a list of tensors [N, K, H]."""
    if initial_state is None:
        batch = tf.shape(wx)[0] if sizes.get("N") is None else sizes["N"]
        hidden = tf.shape(wx)[4] if sizes.get("H") is None else sizes["H"]
        return [tf.zeros([batch, sizes["K"], hidden], wx.dtype)] * len(spec.states)
    names = ", ".join(spec.states)
    if not isinstance(initial_state, list | tuple) or len(initial_state) != len(spec.states):
        came = (
            f"{len(initial_state)} elements"
            if isinstance(initial_state, list | tuple)
            else type(initial_state).__name__
        )
        raise ValueError(
            f"ops.{spec.name}: initial_state must be a list or tuple of {len(spec.states)} tensors "
            f"({names}), but is {came}"
        )
    return [
        _tensor(spec, f"initial_state {name}", state, wx, "NKH", sizes)
        for name, state in zip(spec.states, initial_state, strict=True)
    ]


def _mask(spec, mask, sizes):
    if mask is None:
        return tf.zeros([0], tf.bool)
    mask = tf.cast(mask, tf.bool)
    _check_shape(spec, "mask", mask, "NT", sizes)
    return mask


def _seed(spec, seed, draws):
    if seed is None:
        if draws:
            raise ValueError(
                f"ops.{spec.name}: seed must be given, since zoneout or recurrent_dropout draws "
                "random numbers in training, but is None"
            )
        return tf.zeros([0], tf.int64)
    if isinstance(seed, numbers.Integral):
        seed = (int(seed), 0)
    if isinstance(seed, list | tuple):
        for word in seed:
            if isinstance(word, numbers.Integral) and not -(2**63) <= word < 2**63:
                raise ValueError(f"ops.{spec.name}: seed must be in [-2**63, 2**63), but is {word}")
    seed = tf.convert_to_tensor(seed)
    if not seed.dtype.is_integer:
        raise TypeError(f"ops.{spec.name}: seed must be of integers, but is {seed.dtype.name}")
    _check_shape(spec, "seed", seed, "2", {"2": 2})
    return tf.cast(seed, tf.int64)


def _reverse(spec, reverse, lanes):
    if reverse is None:
        return [False] * lanes
    if not isinstance(reverse, Sequence | np.ndarray) or isinstance(reverse, str):
        raise TypeError(
            f"ops.{spec.name}: reverse must be a list of K = {lanes} bools, but is {reverse!r}"
        )
    reverse = [bool(flag) for flag in reverse]
    if len(reverse) != lanes:
        raise ValueError(
            f"ops.{spec.name}: reverse must have a flag for each of the K = {lanes} lanes, but has "
            f"{len(reverse)}"
        )
    return reverse


def _rate(spec, name, value, *, one):
    if not isinstance(value, numbers.Real) or not (0 <= value <= 1 and (one or value < 1)):
        raise ValueError(
            f"ops.{spec.name}: {name} must be in [0, 1{']' if one else ')'}, but is {value!r}"
        )
    return float(value)


def _flag(spec, name, value):
    if tf.is_tensor(value):
        raise TypeError(
            f"ops.{spec.name}: {name} must be True or False when the op is built, but is a tensor"
        )
    return bool(value)
