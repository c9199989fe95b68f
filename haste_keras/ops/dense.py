"""Recurrences with a matrix: LSTM, GRU, Light GRU, Elman's network, sLSTM."""

from haste_keras.native import cell_spec
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.call import call_cell, public


@public
def lstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    zoneout_cell=0.0,
    recurrent_dropout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """Long short-term memory over whole sequences.

        q = h[t-1]·R
        i, f, g, o = r(wx_i + q_i), r(wx_f + q_f), a(wx_g + q_g), r(wx_o + q_o)
        c[t] = f ∘ c[t-1] + i ∘ g
        h[t] = o ∘ a(c[t])

    with a = `activation` and r = `recurrent_activation`. Differentiable once in wx,
    recurrent_kernel and initial_state.

    Args:
      wx: [N, T, K, 4, H], float16, bfloat16, float32 or float64; gates i, f, g, o, which is
        Keras's order.
      recurrent_kernel: [K, H, 4, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h, c), each [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      zoneout_cell: the same for c.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      {options}
      {int8}

    Returns:
      y, (h, c): y [N, T, K, H], h of each step; h, c [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Hochreiter & Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997;
    forget gate: Gers, Schmidhuber & Cummins, "Learning to forget", Neural Computation 12(10),
    2000; Zoneout: Krueger et al., ICLR 2017; recurrent dropout as in Gal & Ghahramani, NIPS 2016.
    """
    return call_cell(
        "lstm",
        cell_spec.LSTM,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout, "zoneout_cell": zoneout_cell},
        recurrent_dropout=recurrent_dropout,
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
def gru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    recurrent_bias=None,
    reset_after=True,
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    recurrent_dropout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """Gated recurrent units over whole sequences.

        q = h[t-1]·R + recurrent_bias
        z, r = s(wx_z + q_z), s(wx_r + q_r)
        g = a(wx_g + r ∘ q_g)                       reset_after
        g = a(wx_g + (r ∘ h[t-1])·R_g)              not reset_after
        h[t] = z ∘ h[t-1] + (1 - z) ∘ g

    with a = `activation` and s = `recurrent_activation`. Differentiable once in wx,
    recurrent_kernel, recurrent_bias and initial_state.

    Args:
      wx: [N, T, K, 3, H], float16, bfloat16, float32 or float64; gates z, r, g, which is Keras's
        order.
      recurrent_kernel: [K, H, 3, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      recurrent_bias: [K, 3, H] of wx's dtype; None: zeros. Only with reset_after: without it wx
        may hold all of the bias.
      reset_after: bool; the reset gate acts on the product, as in cuDNN and Keras by default, or
        on h before it.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      {options}
      {int8}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014:
    arXiv 1406.1078v1 resets after the product, v3 before it.
    """
    if not reset_after and recurrent_bias is not None:
        raise ValueError(
            "ops.gru: recurrent_bias must be None with reset_after=False, whose bias is all in wx, "
            f"but is {type(recurrent_bias).__name__}"
        )
    return call_cell(
        "gru",
        cell_spec.GRU if reset_after else cell_spec.GRU_RESET_BEFORE,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        extras={"recurrent_bias": recurrent_bias},
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout},
        recurrent_dropout=recurrent_dropout,
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
def ligru(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="relu",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    recurrent_dropout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """Light gated recurrent units over whole sequences.

        q = h[t-1]·R
        z, g = r(wx_z + q_z), a(wx_g + q_g)
        h[t] = z ∘ h[t-1] + (1 - z) ∘ g

    with a = `activation` and r = `recurrent_activation`. Differentiable once in wx,
    recurrent_kernel and initial_state.

    Args:
      wx: [N, T, K, 2, H], float16, bfloat16, float32 or float64; gates z, g. The paper normalises
        x·W before it is given here.
      recurrent_kernel: [K, H, 2, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      {options}
      {int8}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Ravanelli, Brakel, Omologo & Bengio, "Light gated recurrent units for speech
    recognition", IEEE TETCI 2(2), 2018 (arXiv 1803.10225).
    """
    return call_cell(
        "ligru",
        cell_spec.LIGRU,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout},
        recurrent_dropout=recurrent_dropout,
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
def elman(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="tanh",
    zoneout=0.0,
    recurrent_dropout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """Elman's simple recurrent network over whole sequences.

        h[t] = a(wx + h[t-1]·R)

    with a = `activation`. Differentiable once in wx, recurrent_kernel and initial_state.

    Args:
      wx: [N, T, K, 1, H], float16, bfloat16, float32 or float64.
      recurrent_kernel: [K, H, 1, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      {options}
      {int8}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Elman, "Finding structure in time", Cognitive Science 14(2), 1990.
    """
    return call_cell(
        "elman",
        cell_spec.ELMAN,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        activations={"activation": activation},
        zoneout={"zoneout": zoneout},
        recurrent_dropout=recurrent_dropout,
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
def slstm(
    wx,
    recurrent_kernel,
    initial_state=None,
    *,
    activation="tanh",
    forget_activation="exponential",
    zoneout=0.0,
    zoneout_cell=0.0,
    recurrent_dropout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
    recurrent_scale=None,
):
    """The sLSTM of xLSTM, with exponential gates, over whole sequences.

        q = h[t-1]·R
        ĩ, f̃ = wx_i + q_i, wx_f + q_f
        z, o = a(wx_z + q_z), σ(wx_o + q_o)
        l = f̃                                       forget_activation "exponential"
        l = log σ(f̃)                                "sigmoid"
        m[t] = max(l + m[t-1], ĩ)
        i, f = exp(ĩ - m[t]), exp(l + m[t-1] - m[t])
        c[t] = f ∘ c[t-1] + i ∘ z
        n[t] = f ∘ n[t-1] + i
        h[t] = o ∘ c[t] / n[t]

    with a = `activation`. m is a choice of scale that h does not depend on, and has no gradient;
    where n[t-1] = 0, as at the start, nothing is carried over: m[t] = ĩ and f = 0. Differentiable
    once in wx, recurrent_kernel and h, c, n of initial_state.

    Args:
      wx: [N, T, K, 4, H], float16, bfloat16, float32 or float64; gates i, f, z, o.
      recurrent_kernel: [K, H, 4, H], of wx's dtype; K and H known when a function is traced.
      initial_state: (h, c, n, m), each [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      forget_activation: "exponential" or "sigmoid".
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      zoneout_cell: the same for c, with n and m: they are kept together, and in expectation it is
        c e^m and n e^m that are mixed.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters h·R, one mask for all
        steps; nothing without `training`.
      {options}
      {int8}

    Returns:
      y, (h, c, n, m): y [N, T, K, H], h of each step; the states [N, K, H] after the walk's last.

    Raises:
      {raises}

    Source: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024 (arXiv 2405.04517),
    equations 8 to 18.
    """
    arguments = Arguments("slstm", len(cell_spec.SLSTM.gates))
    arguments.choice("forget_activation", forget_activation, ("exponential", "sigmoid"))
    return call_cell(
        "slstm",
        cell_spec.SLSTM,
        {"wx": wx},
        initial_state,
        recurrent_kernel,
        activations={"activation": activation},
        attributes={"recurrent_activation": forget_activation},
        zoneout={"zoneout": zoneout, "zoneout_cell": zoneout_cell},
        recurrent_dropout=recurrent_dropout,
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
        recurrent_scale=recurrent_scale,
    )
