"""Recurrences without a matrix: IndRNN, QRNN's pooling, MinGRU, MinLSTM, ForgetMult."""

import tensorflow as tf

from haste_keras.native import cell_spec
from haste_keras.ops.arguments import Arguments
from haste_keras.ops.call import call_cell, public

_POOLINGS = {"f": cell_spec.QRNN_F, "fo": cell_spec.QRNN_FO, "ifo": cell_spec.QRNN_IFO}


@public
def indrnn(
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
):
    """The independently recurrent network over whole sequences.

        h[t] = a(wx + u ∘ h[t-1])

    with a = `activation` and u = `recurrent_kernel`. Differentiable once in wx, recurrent_kernel
    and initial_state.

    Args:
      wx: [N, T, K, 1, H], float16, bfloat16, float32 or float64.
      recurrent_kernel: [K, 1, H] or [K, H], of wx's dtype; K known when a function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      recurrent_dropout: rate in [0, 1) of dropout on h where it enters u ∘ h, one mask for all
        steps; nothing without `training`.
      {options}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Li et al., "Independently recurrent neural network", CVPR 2018 (arXiv 1803.04831).
    """
    recurrent_kernel = Arguments("indrnn", None).convert("recurrent_kernel", recurrent_kernel)
    if recurrent_kernel.shape.rank == 2:
        recurrent_kernel = recurrent_kernel[:, tf.newaxis]
    return call_cell(
        "indrnn",
        cell_spec.INDRNN,
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
    )


@public
def qrnn(
    wx,
    initial_state=None,
    *,
    pooling="fo",
    activation="tanh",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
):
    """The pooling of quasi-recurrent networks over whole sequences; wx is their convolution.

        z, f, o, i = a(wx_z), r(wx_f), r(wx_o), r(wx_i)      F = p + (1 - p) ∘ f
        h[t] = F ∘ h[t-1] + (1 - F) ∘ z                      pooling "f"
        c[t] = F ∘ c[t-1] + (1 - F) ∘ z,  h[t] = o ∘ c[t]    "fo"
        c[t] = F ∘ c[t-1] + i ∘ z,        h[t] = o ∘ c[t]    "ifo"

    with a = `activation`, r = `recurrent_activation` and p, 0 or 1 in training, Zoneout's draw.
    Differentiable once in wx and initial_state.

    Args:
      wx: [N, T, K, G, H], float16, bfloat16, float32 or float64; gates z, f; with "fo" z, f, o;
        with "ifo" z, f, o, i. K known when a function is traced.
      initial_state: (h,) with "f", else (c,): [N, K, H] of wx's dtype; None: zeros.
      pooling: "f", "fo" or "ifo".
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit's forget gate is 1 in a step; without `training` the
        expectation of that.
      {options}

    Returns:
      y, (h,) or (c,): y [N, T, K, H], h of each step; the state [N, K, H] after the walk's last.

    Raises:
      {raises}

    Source: Bradbury et al., "Quasi-recurrent neural networks", ICLR 2017 (arXiv 1611.01576),
    equations 3 to 5 and 7.
    """
    spec = _POOLINGS[Arguments("qrnn", None).choice("pooling", pooling, tuple(_POOLINGS))]
    return call_cell(
        "qrnn",
        spec,
        {"wx": wx},
        initial_state,
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout},
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
    )


@public
def mingru(
    wx,
    initial_state=None,
    *,
    activation="linear",
    recurrent_activation="sigmoid",
    zoneout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
):
    """The minimal GRU over whole sequences: its gates see the input alone.

        z, g = r(wx_z), a(wx_g)      Z = (1 - p) ∘ z
        h[t] = (1 - Z) ∘ h[t-1] + Z ∘ g

    with a = `activation`, r = `recurrent_activation` and p, 0 or 1 in training, Zoneout's draw.
    Differentiable once in wx and initial_state.

    Args:
      wx: [N, T, K, 2, H], float16, bfloat16, float32 or float64; gates z, g. K known when a
        function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      recurrent_activation: one of these.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      {options}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, section 3.1.
    """
    return call_cell(
        "mingru",
        cell_spec.MINGRU,
        {"wx": wx},
        initial_state,
        activations={"activation": activation, "recurrent_activation": recurrent_activation},
        zoneout={"zoneout": zoneout},
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
    )


@public
def minlstm(
    wx,
    initial_state=None,
    *,
    activation="linear",
    zoneout=0.0,
    mask=None,
    seed=None,
    reverse=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
):
    """The minimal LSTM over whole sequences: its gates see the input alone.

        f, i, g = σ(wx_f), σ(wx_i), a(wx_g)      z = i / (f + i)      Z = (1 - p) ∘ z
        h[t] = (1 - Z) ∘ h[t-1] + Z ∘ g

    with a = `activation`, σ the sigmoid and p, 0 or 1 in training, Zoneout's draw. z is exact also
    where both gates are too small to be told from 0. Differentiable once in wx and initial_state.

    Args:
      wx: [N, T, K, 3, H], float16, bfloat16, float32 or float64; gates f, i, g. K known when a
        function is traced.
      initial_state: (h,), [N, K, H] of wx's dtype; None: zeros.
      activation: "tanh", "sigmoid", "relu", "hard_sigmoid" or "linear".
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      {options}

    Returns:
      y, (h,): y [N, T, K, H], h of each step; h [N, K, H] after the walk's last step.

    Raises:
      {raises}

    Source: Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, section 3.2, in the form that
    does not depend on the length of the sequence.
    """
    return call_cell(
        "minlstm",
        cell_spec.MINLSTM,
        {"wx": wx},
        initial_state,
        activations={"activation": activation},
        zoneout={"zoneout": zoneout},
        mask=mask,
        seed=seed,
        reverse=reverse,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
    )


@public
def forget_mult(
    f,
    x,
    h0=None,
    *,
    reverse=False,
    zoneout=0.0,
    mask=None,
    seed=None,
    training=False,
    zero_output_for_mask=False,
    engine="auto",
    save=None,
):
    """pytorch-qrnn's ForgetMult: a moving average whose rate the data says.

        h[t] = f[t] ∘ x[t] + (1 - f[t]) ∘ h[t-1]

    Differentiable once in f, x and h0.

    Args:
      f: [N, T, H] or [N, T, K, H], float16, bfloat16, float32 or float64: the share of the new.
      x: like f.
      h0: [N, H] or [N, K, H], of f's dtype; None: zeros.
      reverse: one bool for all lanes, or as below.
      zoneout: chance in [0, 1] that a unit of h keeps its value in a step; without `training` the
        expectation of that.
      {options}

    Returns:
      y, like f: h of each step.

    Raises:
      {raises}

    Source: Bradbury et al., "Quasi-recurrent neural networks", ICLR 2017 (arXiv 1611.01576), whose
    1 - f is this f.
    """
    arguments = Arguments("forget_mult", None)
    f, x = arguments.convert("f", f), arguments.convert("x", x)
    h0 = None if h0 is None else arguments.convert("h0", h0)
    if f.shape.rank not in (3, 4):
        raise arguments.error(
            ValueError, f"f must have shape [N, T, H] or [N, T, K, H], but has shape {f.shape}"
        )
    one_lane = f.shape.rank == 3
    if one_lane:
        for name, tensor, dims in (("x", x, "N, T, H"), ("h0", h0, "N, H")):
            if tensor is not None and tensor.shape.rank != dims.count(",") + 1:
                raise arguments.error(
                    ValueError,
                    f"{name} must have shape [{dims}], as f has no lanes, but has shape "
                    f"{tensor.shape}",
                )
        f, x = tf.expand_dims(f, 2), tf.expand_dims(x, 2)  # the gradient of a slice is a copy
        h0 = None if h0 is None else tf.expand_dims(h0, 1)
    counts = [t.shape[2] for t in (f, x) if t.shape.rank == 4 and t.shape[2]]
    lanes = counts[0] if counts else 0  # call_cell refuses what it cannot count
    y, _ = call_cell(
        "forget_mult",
        cell_spec.FORGET_MULT,
        {"f": f, "x": x},
        None if h0 is None else (h0,),
        state_label="{}0",
        zoneout={"zoneout": zoneout},
        reverse=[reverse] * lanes if isinstance(reverse, bool) else reverse,
        mask=mask,
        seed=seed,
        training=training,
        zero_output_for_mask=zero_output_for_mask,
        engine=engine,
        save=save,
    )
    return tf.squeeze(y, 2) if one_lane else y
