"""The LSTM's recurrence in JAX: the kernels of haste_keras as a function with its gradient.

from haste_keras.jax import lstm

y, (h, c) = lstm(wx, R)            # in jax.jit, jax.grad, jax.value_and_grad, lax.scan
"""

import ctypes
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

_LIBRARY = pathlib.Path(__file__).with_name("libhaste_xla.so")
_TARGET = "haste_op"
_ACTIVATIONS = ("tanh", "sigmoid", "relu", "hard_sigmoid", "linear")


@functools.cache
def _register():
    """Registers the handlers with JAX, once."""
    library = ctypes.CDLL(str(_LIBRARY))
    for platform, handler in (("cpu", library.haste_xla_cpu), ("CUDA", library.haste_xla_cuda)):
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform=platform)


def _call(op, results, operands, **attributes):
    _register()
    attributes = {k: np.int32(v) if isinstance(v, int) else v for k, v in attributes.items()}
    return jax.ffi.ffi_call(_TARGET, results)(*operands, op=op, **attributes)


def _like(x, *shape):
    return jax.ShapeDtypeStruct(shape, x.dtype)


def _left_out(dtype):
    return jnp.zeros([0], dtype)


def _forward(options, keep, wx, R, h0, c0, mask):
    n, t, k, g, h = wx.shape
    reserve = [(n, t, k, g, h), (n, t, k, h), (n, t, k, h)] if keep else [(0,)] * 3
    results = [(n, t, k, h), (n, k, h), (n, k, h), *reserve]
    return _call(
        "HasteLstm",
        [_like(wx, *shape) for shape in results],
        [wx, R, h0, c0, mask, _left_out(jnp.int32)],
        save=int(keep),
        **dict(options),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lstm(options, wx, R, h0, c0, mask):
    return tuple(_forward(options, False, wx, R, h0, c0, mask)[:3])


def _lstm_forward(options, wx, R, h0, c0, mask):
    y, h, c, *reserve = _forward(options, True, wx, R, h0, c0, mask)
    return (y, h, c), (R, mask, *reserve)


def _lstm_backward(options, kept, gradients):
    R, mask, gates, h_in, c_in = kept
    n, t, k, g, h = gates.shape
    dwx, dh0, dc0 = _call(
        "HasteLstmGrad",
        [_like(R, n, t, k, g, h), _like(R, n, k, h), _like(R, n, k, h)],
        [R, mask, _left_out(jnp.int32), gates, h_in, c_in, *gradients],
        **dict(options),
    )
    dR = jnp.einsum("ntkh,ntkgj->khgj", h_in, dwx, preferred_element_type=_wide(R.dtype))
    no_gradient = np.zeros(mask.shape, jax.dtypes.float0)
    return dwx, dR.astype(R.dtype), dh0, dc0, no_gradient


_lstm.defvjp(_lstm_forward, _lstm_backward)


def _wide(dtype):
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _check(name, array, shape, dtype):
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"lstm: {name} must have shape {list(shape)} and dtype {dtype}, but has "
            f"{list(array.shape)} and {array.dtype}"
        )
    return array


def lstm(
    wx,
    R,
    initial_state=None,
    *,
    activation="tanh",
    recurrent_activation="sigmoid",
    mask=None,
    reverse=None,
    zero_output_for_mask=False,
    engine="auto",
):
    """The LSTM over whole sequences, as `haste_keras.ops.lstm` has it, without what is drawn.

        i, f, g, o = r(wx_i + h·R_i), r(wx_f + h·R_f), a(wx_g + h·R_g), r(wx_o + h·R_o)
        c[t] = f ∘ c[t-1] + i ∘ g      h[t] = o ∘ a(c[t])

    with a = `activation` and r = `recurrent_activation`. Differentiable once, in reverse mode, in
    wx, R and initial_state. `jax.vmap` over it is an error: the batch is an axis of its own.

    Args:
      wx: [N, T, K, 4, H], float16, bfloat16, float32 or float64; the projected input, bias added.
      R: [K, H, 4, H] of wx's dtype.
      initial_state: (h, c), each [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      mask: [N, T] of bool; a step that is not True carries the states through. None: all are live.
      reverse: K bools; True: the lane walks from step T - 1 to 0. None: no lane does.
      zero_output_for_mask: y at a masked step is 0, else what y was one step of the walk before.
      engine: "auto", or the name of an engine of the device.

    Returns:
      y, (h, c): y [N, T, K, H], h of each step; h, c [N, K, H] after the walk's last step.

    Raises:
      ValueError: an argument is not as above; the message names it.
    """
    wx, R = jnp.asarray(wx), jnp.asarray(R)
    if wx.ndim != 5 or wx.shape[3] != 4:
        raise ValueError(f"lstm: wx must have shape [N, T, K, 4, H], but has {list(wx.shape)}")
    n, t, k, _, h = wx.shape
    if wx.dtype not in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
        raise ValueError(
            f"lstm: wx must be of float16, bfloat16, float32 or float64, but is of {wx.dtype}"
        )
    _check("R", R, (k, h, 4, h), wx.dtype)
    states = [jnp.zeros([n, k, h], wx.dtype)] * 2 if initial_state is None else initial_state
    states = [
        _check(f"initial_state {name}", jnp.asarray(state), (n, k, h), wx.dtype)
        for name, state in zip("hc", states, strict=True)
    ]
    for name, value in {
        "activation": activation,
        "recurrent_activation": recurrent_activation,
    }.items():
        if value not in _ACTIVATIONS:
            raise ValueError(
                f"lstm: {name} must be one of {', '.join(_ACTIVATIONS)}, but is {value!r}"
            )
    reverse = [False] * k if reverse is None else [bool(flag) for flag in reverse]
    if len(reverse) != k:
        raise ValueError(
            f"lstm: reverse must have a flag for each of the K = {k} lanes, but has {len(reverse)}"
        )
    if mask is None:
        mask = _left_out(jnp.bool_)
    else:
        mask = _check("mask", jnp.asarray(mask, jnp.bool_), (n, t), jnp.bool_)
    options = {
        "reverse": "".join("1" if flag else "0" for flag in reverse),
        "activation": _ACTIVATIONS.index(activation),
        "recurrent_activation": _ACTIVATIONS.index(recurrent_activation),
        "zero_output_for_mask": int(bool(zero_output_for_mask)),
        "engine": engine,
        "training": 1,
    }
    y, h, c = _lstm(tuple(options.items()), wx, R, *states, mask)
    return y, (h, c)
