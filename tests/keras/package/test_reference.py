"""The oracle itself: known answers of Philox, stock layers in float64, loops written by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import assert_close, make_mask, values_and_gradients

from haste_keras import reference

BATCH, TIME, FEATURES, UNITS = 3, 6, 4, 5


def test_philox_known_answers():
    """Vectors that come with the authors' Random123 library."""
    ones = 0xFFFFFFFF
    answers = {
        ((0, 0), (0, 0, 0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((ones, ones), (ones,) * 4): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)): (
            0xD16CFE09,
            0x94FDCCEB,
            0x5001E420,
            0x24126EA1,
        ),
    }
    for (key, counter), expected in answers.items():
        assert tuple(int(word) for word in reference.philox(key, counter)) == expected


def test_key_uses_both_numbers():
    keys = {reference.philox_key(seed) for seed in [(1, 0), (0, 1), (1, 1), (2**40, 0), (-1, 0)]}
    assert len(keys) == 5
    assert reference.philox_key(7) == reference.philox_key((7, 0))


def test_draw_has_its_rate():
    word = reference.philox((1, 2), (0, np.arange(20000), 0, 0))[0]
    assert abs(reference.draw(word, 0.3).mean() - 0.3) < 0.01
    assert not reference.draw(word, 0.0).any()
    assert reference.draw(word, 1.0).all()


STOCK = {  # stock layer, oracle, gates, options of each
    "lstm": (keras.layers.LSTM, reference.lstm, 4, {}, {}),
    "gru": (keras.layers.GRU, reference.gru, 3, {}, {}),
    "gru, reset before": (
        keras.layers.GRU,
        reference.gru,
        3,
        {"reset_after": False, "recurrent_activation": "hard_sigmoid"},
        {"reset_after": False, "recurrent_activation": "hard_sigmoid"},
    ),
    "elman": (keras.layers.SimpleRNN, reference.elman, 1, {}, {}),
    "elman, relu": (
        keras.layers.SimpleRNN,
        reference.elman,
        1,
        {"activation": "relu"},
        {"activation": "relu"},
    ),
}


@pytest.mark.parametrize("mask_kind", [None, "left", "holes", "all"])
@pytest.mark.parametrize("name", STOCK)
def test_is_the_stock_layer(name, mask_kind, rng, seed):
    stock, oracle, gates, stock_options, options = STOCK[name]
    if stock is not keras.layers.SimpleRNN:
        stock_options = {"use_cudnn": False, **stock_options}
    layer = stock(UNITS, dtype="float64", return_sequences=True, return_state=True, **stock_options)
    layer.build((BATCH, TIME, FEATURES))
    layer.set_weights([rng.normal(scale=0.5, size=w.shape) for w in layer.weights])
    x = tf.constant(rng.normal(size=(BATCH, TIME, FEATURES)))
    count = len(tf.nest.flatten([layer.state_size]))
    states = [tf.constant(rng.normal(size=(BATCH, UNITS))) for _ in range(count)]
    mask = make_mask(mask_kind, BATCH, TIME, rng) if mask_kind else None
    kernel, recurrent, bias = (variable.value for variable in layer.weights)

    def ours():
        extras = dict(options)
        input_bias = bias
        if bias.shape.rank == 2:
            input_bias = bias[0]
            extras["recurrent_bias"] = tf.reshape(bias[1], [1, gates, UNITS])
        wx = tf.reshape(tf.matmul(x, kernel) + input_bias, [BATCH, TIME, 1, gates, UNITS])
        y, final = oracle(
            wx,
            tf.reshape(recurrent, [1, UNITS, gates, UNITS]),
            [state[:, None] for state in states],
            mask=mask,
            **extras,
        )
        return [y[:, :, 0], *(state[:, 0] for state in final)]

    sources = [x, *states, kernel, recurrent, bias]
    want = values_and_gradients(lambda: layer(x, initial_state=states, mask=mask), sources, seed)
    assert_close(values_and_gradients(ours, sources, seed), want, 1e-13)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _norm(v):
    return (v - v.mean()) / np.sqrt(v.var() + np.float32(1e-5))


def _kernel(rng, gates, lanes=2):
    return rng.normal(scale=0.5, size=(lanes, UNITS, gates, UNITS))


def _wx(rng, gates, lanes=2):
    return rng.normal(size=(BATCH, TIME, lanes, gates, UNITS))


def _rows(wx, first):
    """Runs the generator function `first(n, k)` for every row and lane: one value a step → y."""
    batch, time, lanes, _, hidden = wx.shape
    y = np.zeros((batch, time, lanes, hidden))
    for n, k in np.ndindex(batch, lanes):
        for t, value in enumerate(first(n, k)):
            y[n, t, k] = value
    return y


def test_layer_norm_is_that_of_keras(rng):
    x, gamma, beta = rng.normal(size=(7, 9)), rng.normal(size=9), rng.normal(size=9)
    layer = keras.layers.LayerNormalization(epsilon=float(np.float32(1e-5)), dtype="float64")
    layer.build(x.shape)
    layer.set_weights([gamma, beta])
    y = reference.layer_norm(x[:, None], gamma[None], beta[None])
    np.testing.assert_allclose(y[:, 0], layer(x), atol=1e-14)
    y = reference.layer_norm(x[:, None], gamma[None])
    np.testing.assert_allclose(y[:, 0], layer(x) - beta, atol=1e-14)


def test_layer_norm_lstm_by_hand(rng):
    wx, kernel = _wx(rng, 4), _kernel(rng, 4)
    gamma = rng.normal(size=(2, 4, UNITS))
    state_gamma, state_beta = rng.normal(size=(2, 2, UNITS))

    def walk(n, k):
        h, c = np.zeros(UNITS), np.zeros(UNITS)
        for t in range(TIME):
            product = h @ kernel[k].reshape(UNITS, -1)
            z = wx[n, t, k] + gamma[k] * _norm(product).reshape(4, UNITS)
            c = _sigmoid(z[1]) * c + _sigmoid(z[0]) * np.tanh(z[2])
            h = _sigmoid(z[3]) * np.tanh(state_gamma[k] * _norm(c) + state_beta[k])
            yield h

    y, _ = reference.layer_norm_lstm(
        wx, kernel, recurrent_gamma=gamma, state_gamma=state_gamma, state_beta=state_beta
    )
    np.testing.assert_allclose(y, _rows(wx, walk), atol=1e-13)


def test_layer_norm_gru_by_hand(rng):
    wx, kernel = _wx(rng, 3), _kernel(rng, 3)
    gamma, bias = rng.normal(size=(2, 2, 3, UNITS))

    def walk(n, k):
        h = np.zeros(UNITS)
        for t in range(TIME):
            product = h @ kernel[k].reshape(UNITS, -1)
            q = gamma[k] * _norm(product).reshape(3, UNITS) + bias[k]
            z, r = _sigmoid(wx[n, t, k, 0] + q[0]), _sigmoid(wx[n, t, k, 1] + q[1])
            h = z * h + (1 - z) * np.tanh(wx[n, t, k, 2] + r * q[2])
            yield h

    y, (last,) = reference.layer_norm_gru(wx, kernel, recurrent_gamma=gamma, recurrent_bias=bias)
    expected = _rows(wx, walk)
    np.testing.assert_allclose(y, expected, atol=1e-13)
    np.testing.assert_allclose(last, expected[:, -1], atol=1e-13)


@pytest.mark.parametrize("zoneout", [None, "drawn", "expected", "whole"])
@pytest.mark.parametrize("forget", ["exponential", "sigmoid"])
def test_slstm_is_the_recurrence_without_a_stabilizer(forget, zoneout, rng, seed):
    """Equations 8 to 14 of the paper, which have no m; gradients too. Zoneout on c is on n too."""
    wx, kernel = tf.constant(_wx(rng, 4)), tf.constant(_kernel(rng, 4))
    state = [tf.constant(rng.normal(size=(BATCH, 2, UNITS))) for _ in range(2)]
    state.append(tf.constant(rng.uniform(0.5, 2, size=(BATCH, 2, UNITS))))
    m = tf.constant(rng.normal(size=(BATCH, 2, UNITS)))
    rate = {None: 0.0, "drawn": 0.5, "expected": 0.25, "whole": 1.0}[zoneout]
    options = {"zoneout_cell": rate, "training": zoneout == "drawn", "seed": (3, 4)}

    def plain():
        h, c, n = state[0], state[1] * tf.exp(m), state[2] * tf.exp(m)
        outputs = []
        for t in range(TIME):
            z = wx[:, t] + tf.einsum("nkh,khgj->nkgj", h, kernel)
            i = tf.exp(z[:, :, 0])
            f = (tf.exp if forget == "exponential" else tf.sigmoid)(z[:, :, 1])
            new_c, new_n = f * c + i * tf.tanh(z[:, :, 2]), f * n + i
            h = tf.sigmoid(z[:, :, 3]) * new_c / new_n
            kept = rate
            if zoneout == "drawn":
                words = reference.zoneout_draws((3, 4), t, (BATCH, 2, UNITS))[1]
                kept = reference.draw(words, rate).astype(np.float64)
            c, n = kept * c + (1 - kept) * new_c, kept * n + (1 - kept) * new_n
            outputs.append(h)
        return [tf.stack(outputs, axis=1), h, c, n]

    def ours():
        y, (h, c, n, last) = reference.slstm(
            wx, kernel, [*state, m], forget_activation=forget, **options
        )
        return [y, h, c * tf.exp(last), n * tf.exp(last)]

    sources = [wx, kernel, *state]
    assert_close(
        values_and_gradients(ours, sources, seed), values_and_gradients(plain, sources, seed), 1e-12
    )


def test_slstm_begins_empty_and_bears_large_inputs(rng):
    wx, kernel = 300 * _wx(rng, 4), _kernel(rng, 4)
    wx[:, 0] = -1e4
    source = tf.constant(wx)
    with tf.GradientTape() as tape:
        tape.watch(source)
        y, (_, _, n, _) = reference.slstm(source, kernel)
    assert np.all(np.abs(y) <= 1)
    assert np.all(n.numpy() >= 1)
    assert np.all(np.isfinite(tape.gradient(y, source)))
    # The first step, after an empty state, has h = σ(o) tanh(z), however small its input gate.
    z = _wx(rng, 4)
    z[:, :, :, 0] = -1e4
    y, _ = reference.slstm(z[:, :1], kernel)
    np.testing.assert_allclose(
        y, (_sigmoid(z[..., 3, :]) * np.tanh(z[..., 2, :]))[:, :1], atol=1e-14
    )


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
@pytest.mark.parametrize("zoneout", [0.0, 0.3])
@pytest.mark.parametrize("training", [False, True])
def test_qrnn_by_hand(pooling, zoneout, training, rng):
    wx = _wx(rng, 1 + len(pooling))
    c0 = rng.normal(size=(BATCH, 2, UNITS))
    seed = (3, 4)

    def walk(n, k):
        c = c0[n, k]
        for t in range(TIME):
            z, f = np.tanh(wx[n, t, k, 0]), _sigmoid(wx[n, t, k, 1])
            share = np.float64(np.float32(zoneout))
            if training:
                word = reference.zoneout_draws(seed, t, (BATCH, 2, UNITS))[0][n, k]
                share = reference.draw(word, zoneout).astype(float)
            f = share + (1 - share) * f
            i = _sigmoid(wx[n, t, k, 3]) if pooling == "ifo" else 1 - f
            c = f * c + i * z
            yield c if pooling == "f" else _sigmoid(wx[n, t, k, 2]) * c

    y, states = reference.qrnn(
        wx, [c0], pooling=pooling, zoneout=zoneout, training=training, seed=seed
    )
    np.testing.assert_allclose(y, _rows(wx, walk), atol=1e-14)
    assert len(states) == 1
    if pooling == "f":
        np.testing.assert_array_equal(states[0], y[:, -1])


@pytest.mark.parametrize("reverse", [False, True])
def test_forget_mult_by_hand(reverse, rng):
    f, x = rng.random((2, BATCH, TIME, UNITS))
    h0 = rng.normal(size=(BATCH, UNITS))
    expected = np.zeros(x.shape)
    h = h0
    for t in reversed(range(TIME)) if reverse else range(TIME):
        h = expected[:, t] = f[:, t] * x[:, t] + (1 - f[:, t]) * h
    np.testing.assert_allclose(
        reference.forget_mult(f, x, h0, reverse=reverse), expected, atol=1e-15
    )
    lanes = reference.forget_mult(
        np.stack([f, f], 2), np.stack([x, x], 2), np.stack([h0, h0], 1), reverse=[reverse, False]
    )
    np.testing.assert_allclose(lanes[:, :, 0], expected, atol=1e-15)


@pytest.mark.parametrize("zero_masked", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_walk_by_hand(training, zero_masked, rng):
    """The IndRNN with all options together: directions, mask, Zoneout, dropout."""
    wx, u = _wx(rng, 1), rng.normal(size=(2, 1, UNITS))
    wx[0, 2] = np.nan
    h0 = rng.normal(size=(BATCH, 2, UNITS))
    mask = rng.random((BATCH, TIME)) < 0.7
    mask[0, 2] = False
    seed, shape = (5, 6), (BATCH, 2, UNITS)
    scale = reference.dropout_scale(seed, shape, 0.4) if training else np.ones(shape)
    y, final = np.zeros((BATCH, TIME, 2, UNITS)), np.zeros(shape)
    for n, k, j in np.ndindex(shape):
        h, output = h0[n, k, j], 0.0
        for t in range(TIME) if k == 0 else reversed(range(TIME)):
            if mask[n, t]:
                new = np.tanh(wx[n, t, k, 0, j] + u[k, 0, j] * h * scale[n, k, j])
                share = np.float64(np.float32(0.3))
                if training:
                    word = reference.zoneout_draws(seed, t, shape)[0][n, k, j]
                    share = float(reference.draw(word, 0.3))
                h = share * h + (1 - share) * new
                output = h
            elif zero_masked:
                output = 0.0
            y[n, t, k, j] = output
        final[n, k, j] = h
    got, (state,) = reference.indrnn(
        wx,
        u,
        [h0],
        mask=mask,
        reverse=[False, True],
        zoneout=0.3,
        recurrent_dropout=0.4,
        seed=seed,
        training=training,
        zero_output_for_mask=zero_masked,
    )
    np.testing.assert_allclose(got, y, atol=1e-14)
    np.testing.assert_allclose(state, final, atol=1e-14)


def test_no_steps_and_no_rows():
    y, (h,) = reference.elman(np.zeros((2, 0, 1, 1, 3)), np.zeros((1, 3, 1, 3)))
    assert (y.shape, h.shape) == ((2, 0, 1, 3), (2, 1, 3))
    y, (h,) = reference.elman(np.zeros((0, 4, 1, 1, 3)), np.zeros((1, 3, 1, 3)))
    assert (y.shape, h.shape) == ((0, 4, 1, 3), (0, 1, 3))
