"""Layer normalisation, and the recurrences that have it inside."""

import tensorflow as tf

from haste_keras._compat import has_tangents
from haste_keras.native import cell_spec, raw_ops
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.call import call_cell, public, refuse_xla


@public
def layer_norm(x, gamma, beta=None, epsilon=1e-5):
    """Layer normalisation of each lane over its features.

        y = (x - mean(x)) / sqrt(variance(x) + epsilon) ∘ gamma + beta

    Differentiable once in x, gamma and beta.

    Args:
      x: [..., K, F], float16, bfloat16, float32 or float64.
      gamma: [K, F] of x's dtype.
      beta: the same; None: zeros.
      epsilon: a positive number.

    Returns:
      y, like x.

    Raises:
      {raises}

    Source: Ba, Kiros & Hinton, "Layer normalization", arXiv 1607.06450.
    """
    arguments = Arguments("layer_norm", None)
    refuse_xla(arguments, "keras.layers.LayerNormalization")
    x = arguments.convert("x", x)
    if x.shape.rank is None or x.shape.rank < 2:
        raise arguments.error(ValueError, f"x must have shape [..., K, F], but has shape {x.shape}")
    leading = "ABCDEIJLMNOPQRSTUVWXYZ"[: x.shape.rank - 2]
    x = arguments.tensor("x", x, leading + "KF")
    gamma = arguments.tensor("gamma", gamma, "KF")
    beta = tf.zeros([0], x.dtype) if beta is None else arguments.tensor("beta", beta, "KF")
    lanes, features = (
        tf.shape(gamma)[i] if gamma.shape[i] is None else gamma.shape[i] for i in (0, 1)
    )
    if has_tangents([x, gamma, beta]):
        raise arguments.error(
            NotImplementedError,
            "tf.autodiff.ForwardAccumulator has no derivative of the op; use a tf.GradientTape, or "
            "keras.layers.LayerNormalization",
        )
    y = raw_ops.layer_norm(
        x if x.shape.rank == 3 else tf.reshape(x, [-1, lanes, features]),
        gamma,
        beta,
        epsilon=arguments.epsilon(epsilon),
    )
    if x.shape.rank == 3:
        return y
    return tf.ensure_shape(tf.reshape(y, tf.shape(x)), x.shape)


@public
def layer_norm_lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_gamma,
    state_gamma,
    state_beta,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    recurrent_dropout=0.0,
    epsilon=1e-5,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """The layer-normalised LSTM over whole sequences; wx comes normalised, by `layer_norm` say.

        q = recurrent_gamma ∘ LN(h[t-1]·R)
        i, f, g, o = r(wx_i + q_i), r(wx_f + q_f), a(wx_g + q_g), r(wx_o + q_o)
        c[t] = f ∘ c[t-1] + i ∘ g
        h[t] = o ∘ a(state_gamma ∘ LN(c[t]) + state_beta)
        LN(v) = (v - mean(v)) / sqrt(variance(v) + epsilon)

    over all gates and units of a lane, or over the units of c; a = `activation` and r =
    `recurrent_activation`. Differentiable once in wx, recurrent_kernel, initial_state and the
    gammas and beta.

    Args:
      wx: [N, T, K, 4, H], float16, bfloat16, float32 or float64; gates i, f, g, o.
      recurrent_kernel: [K, H, 4, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h, c), each [N, K, H] of wx's dtype; None: zeros.
      recurrent_gamma: [K, 4, H] of wx's dtype.
      state_gamma: [K, H] of wx's dtype.
      state_beta: [K, H] of wx's dtype.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      zoneout_cell: the same for c.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      epsilon: a positive number.
      {options}
      {int8}

    Returns:
      y, (h, c): y [N, T, K, H], h of each step; h, c [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Ba, Kiros & Hinton, "Layer normalization", arXiv 1607.06450, equations 20 to 22.
    """
    return call_cell(
        "layer_norm_lstm",
        cell_spec.LAYER_NORM_LSTM,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        extras={
            "recurrent_gamma": recurrent_gamma,
            "state_gamma": state_gamma,
            "state_beta": state_beta,
        },
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout, "zoneout_cell": zoneout_cell},
        recurrent_dropout=recurrent_dropout,
        epsilon=epsilon,
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
        recurrent_scale=recurrent_scale,
    )


@public
def layer_norm_gru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_gamma,
    recurrent_bias=None,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    recurrent_dropout=0.0,
    epsilon=1e-5,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """The layer-normalised GRU over whole sequences; wx comes normalised, by `layer_norm` say.

        q = recurrent_gamma ∘ LN(h[t-1]·R) + recurrent_bias
        z, r = s(wx_z + q_z), s(wx_r + q_r)
        g = a(wx_g + r ∘ q_g)
        h[t] = z ∘ h[t-1] + (1 - z) ∘ g
        LN(v) = (v - mean(v)) / sqrt(variance(v) + epsilon)

    over all gates and units of a lane; a = `activation` and s = `recurrent_activation`.
    Differentiable once in wx, recurrent_kernel, initial_state, gamma and bias.

    Args:
      wx: [N, T, K, 3, H], float16, bfloat16, float32 or float64; gates z, r, g.
      recurrent_kernel: [K, H, 3, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      recurrent_gamma: [K, 3, H] of wx's dtype.
      recurrent_bias: [K, 3, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      epsilon: a positive number.
      {options}
      {int8}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Ba, Kiros & Hinton, "Layer normalization", arXiv 1607.06450, of the GRU that resets
    after the product.
    """
    return call_cell(
        "layer_norm_gru",
        cell_spec.LAYER_NORM_GRU,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        extras={"recurrent_gamma": recurrent_gamma, "recurrent_bias": recurrent_bias},
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout},
        recurrent_dropout=recurrent_dropout,
        epsilon=epsilon,
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
        recurrent_scale=recurrent_scale,
    )
