"""Weights of other libraries: their equations in NumPy and float64, and PyTorch where it is."""

import numpy as np
import pytest

import haste_keras
from haste_keras import loaders

BATCH, TIME, FEATURES, UNITS = 2, 5, 3, 4
TORCH_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def torch_state(kind, rng, layers=2, bidirectional=True, bias=True):
    """A state_dict() as PyTorch's documentation has it."""
    state, columns = {}, TORCH_GATES[kind] * UNITS
    directions = ["", "_reverse"] if bidirectional else [""]
    for layer in range(layers):
        features = FEATURES if layer == 0 else UNITS * len(directions)
        for direction in directions:
            shapes = {"weight_ih": (columns, features), "weight_hh": (columns, UNITS)}
            if bias:
                shapes.update(bias_ih=(columns,), bias_hh=(columns,))
            for name, shape in shapes.items():
                state[f"{name}_l{layer}{direction}"] = rng.normal(size=shape)
    return state


def torch_walk(kind, state, suffix, x, nonlinearity):
    """Outputs [N, T, H] of one direction of one layer, by the equations of its documentation."""
    given = {name.removesuffix(suffix): v for name, v in state.items() if name.endswith(suffix)}
    b_ih, b_hh = (given.get(f"bias_{part}_", 0) for part in ("ih", "hh"))
    h = c = np.zeros((len(x), UNITS))
    outputs = []
    for step in range(x.shape[1]):
        a = x[:, step] @ given["weight_ih_"].T + b_ih
        q = h @ given["weight_hh_"].T + b_hh
        if kind == "LSTM":
            i, f, g, o = np.split(a + q, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif kind == "GRU":
            (a_r, a_z, a_n), (q_r, q_z, q_n) = np.split(a, 3, axis=1), np.split(q, 3, axis=1)
            z = sigmoid(a_z + q_z)
            n = np.tanh(a_n + sigmoid(a_r + q_r) * q_n)
            h = (1 - z) * n + z * h
        else:
            h = np.tanh(a + q) if nonlinearity == "tanh" else np.maximum(a + q, 0)
        outputs.append(h)
    return np.stack(outputs, axis=1)


def torch_oracle(kind, state, x, nonlinearity, layers, bidirectional):
    for layer in range(layers):
        parts = [torch_walk(kind, state, f"l{layer}", x, nonlinearity)]
        if bidirectional:
            suffix = f"l{layer}_reverse"
            parts.append(torch_walk(kind, state, suffix, x[:, ::-1], nonlinearity)[:, ::-1])
        x = np.concatenate(parts, axis=2)
    return x


def ours(kind, weights, x, nonlinearity, bidirectional, bias):
    make = {"LSTM": haste_keras.LSTM, "GRU": haste_keras.GRU, "RNN": haste_keras.Elman}[kind]
    options = {"activation": nonlinearity} if kind == "RNN" else {}
    for each in weights:
        layer = make(
            UNITS,
            use_bias=bias,
            return_sequences=True,
            direction="bidirectional" if bidirectional else "forward",
            dtype="float64",
            **options,
        )
        layer.build(x.shape)
        layer.set_weights(each)
        x = layer(x)
    return x.numpy()


TORCH_CASES = [
    ("LSTM", "tanh", 2, True, True),
    ("LSTM", "tanh", 1, False, False),
    ("GRU", "tanh", 2, True, True),
    ("GRU", "tanh", 1, True, False),
    ("RNN", "tanh", 1, True, True),
    ("RNN", "relu", 2, False, True),
]
TORCH_NAMES = ("kind", "nonlinearity", "layers", "bidirectional", "bias")


@pytest.mark.parametrize(TORCH_NAMES, TORCH_CASES)
def test_torch(kind, nonlinearity, layers, bidirectional, bias, rng):
    state = torch_state(kind, rng, layers, bidirectional, bias)
    x = rng.normal(size=(BATCH, TIME, FEATURES))
    weights = loaders.torch(kind, state)
    assert len(weights) == layers
    got = ours(kind, weights, x, nonlinearity, bidirectional, bias)
    want = torch_oracle(kind, state, x, nonlinearity, layers, bidirectional)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(TORCH_NAMES, TORCH_CASES)
def test_torch_itself(kind, nonlinearity, layers, bidirectional, bias, rng):
    torch = pytest.importorskip("torch")
    options = {"nonlinearity": nonlinearity} if kind == "RNN" else {}
    module = getattr(torch.nn, kind)(
        FEATURES,
        UNITS,
        num_layers=layers,
        bias=bias,
        batch_first=True,
        bidirectional=bidirectional,
        dtype=torch.float64,
        **options,
    )
    state = torch_state(kind, rng, layers, bidirectional, bias)
    module.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    x = rng.normal(size=(BATCH, TIME, FEATURES))
    larger = torch.nn.ModuleDict({"encoder": module, "other": torch.nn.Linear(2, 2)})
    weights = loaders.torch(kind, larger.state_dict(), prefix="encoder.")
    got = ours(kind, weights, x, nonlinearity, bidirectional, bias)
    want = module(torch.tensor(x))[0].detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    half = loaders.torch(kind, module.to(torch.bfloat16).state_dict())
    np.testing.assert_allclose(half[0][0], weights[0][0], rtol=2**-8)


def test_torch_names_what_it_cannot_load(rng):
    state = torch_state("LSTM", rng, layers=2)
    with pytest.raises(ValueError, match=r"`layer` must be one of LSTM, GRU, RNN.*'QRNN'"):
        loaders.torch("QRNN", state)
    with pytest.raises(ValueError, match=r"`weight_hr_l0`.*proj_size"):
        loaders.torch("LSTM", {**state, "weight_hr_l0": np.zeros((2, UNITS))})
    with pytest.raises(ValueError, match=r"`encoder.weight_ih_l0` is not .*prefix="):
        loaders.torch("LSTM", {"encoder.weight_ih_l0": 0})
    with pytest.raises(ValueError, match=r"`weight_ih_l0` is missing among no variables"):
        loaders.torch("LSTM", state, prefix="decoder.")
    missing = {name: value for name, value in state.items() if name != "bias_hh_l1_reverse"}
    with pytest.raises(ValueError, match="`bias_hh_l1_reverse` is missing"):
        loaders.torch("LSTM", missing)
    with pytest.raises(ValueError, match=r"`weight_hh_l0` must be of shape \(16, 4\)"):
        loaders.torch("LSTM", {**state, "weight_hh_l0": np.zeros((16, 5))})
    with pytest.raises(ValueError, match=r"`weight_ih_l0` must be \[3·H, C\].*\(16, 3\)"):
        loaders.torch("GRU", state)
    with pytest.raises(ValueError, match=r"`weight_ih_l1` must be of shape \(16, 8\)"):
        loaders.torch("LSTM", {**state, "weight_ih_l1": np.zeros((16, 4))})


def flash_walk(function, x, recurrent, bias):
    """FlashRNN's recurrence: Wx [N, T, G, heads, D], R [G, heads, D, D], b: outputs."""
    h = np.zeros((x.shape[0], *x.shape[3:]))
    c, n, m, outputs = h, h, h, []
    for step in range(x.shape[1]):
        q = np.einsum("gnij,bnj->gbni", recurrent, h)  # g = R·h
        a = np.moveaxis(x[:, step], 1, 0)
        if function == "gru":
            (a_r, a_z, a_n), (q_g, q_r, q_z) = a, q
            b_g, b_r, b_z, b_n = bias
            z = sigmoid(a_z + q_z + b_z)
            new = np.tanh(a_n + b_n + sigmoid(a_r + q_r + b_r) * (q_g + b_g))
            h = z * h + (1 - z) * new
        elif function == "elman":
            h = np.tanh(a[0] + q[0] + bias[0])
        else:
            i, f, z, o = a + q + bias[:, np.newaxis]
            if function == "lstm":
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
                h = sigmoid(o) * np.tanh(c)
            else:
                new_m = i if step == 0 else np.maximum(f + m, i)
                keep = 0 if step == 0 else np.exp(f + m - new_m)
                c = keep * c + np.exp(i - new_m) * np.tanh(z)
                n, m = keep * n + np.exp(i - new_m), new_m
                h = sigmoid(o) * c / n
        outputs.append(h)
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("function", ["lstm", "slstm", "gru", "elman"])
def test_flashrnn(function, heads, rng):
    gates = {"lstm": 4, "slstm": 4, "gru": 3, "elman": 1}[function]
    hidden = UNITS // heads
    recurrent = rng.normal(size=(gates, heads, hidden, hidden))
    bias = rng.normal(size=(gates + (function == "gru"), heads, hidden))
    kernel = rng.normal(size=(FEATURES, gates, heads, hidden))
    x = rng.normal(size=(BATCH, TIME, FEATURES))
    want = flash_walk(function, np.einsum("btc,cgnd->btgnd", x, kernel), recurrent, bias)
    names = {"lstm": "LSTM", "slstm": "SLSTM", "gru": "GRU", "elman": "Elman"}
    layer = getattr(haste_keras, names[function])(
        UNITS, heads=heads, return_sequences=True, dtype="float64"
    )
    layer.build(x.shape)
    weights = loaders.flashrnn(function, recurrent, bias, kernel=kernel)
    layer.set_weights(weights)
    want = want.reshape(BATCH, TIME, UNITS)
    np.testing.assert_allclose(layer(x), want, rtol=1e-12, atol=1e-12)
    for got, of_kernel in zip(
        loaders.flashrnn(function, recurrent, bias), weights[1:], strict=True
    ):
        np.testing.assert_array_equal(got, of_kernel)
    swapped = loaders.flashrnn(
        function, np.swapaxes(recurrent, 2, 3), bias, kernel=kernel, output_axis=-1
    )
    np.testing.assert_array_equal(swapped[1], weights[1])
    if gates == 4:
        order = [3, 1, 0, 2]  # o, f, i, z
        own = [recurrent[order], bias[order]]
        moved = loaders.flashrnn(function, *own, kernel=kernel[:, order], gates="ofiz")
        for got, of_default in zip(moved, weights, strict=True):
            np.testing.assert_array_equal(got, of_default)


def test_flashrnn_names_what_it_cannot_load():
    recurrent, bias = np.zeros((3, 2, 4, 4)), np.zeros((4, 2, 4))
    loaders.flashrnn("gru", recurrent, bias)
    with pytest.raises(ValueError, match=r"`function` must be one of lstm, slstm, gru, elman"):
        loaders.flashrnn("rnn", recurrent, bias)
    with pytest.raises(ValueError, match="`gates` of gru must be None"):
        loaders.flashrnn("gru", recurrent, bias, gates="zrn")
    with pytest.raises(ValueError, match="`gates` of lstm must hold each of i, f, z, o once"):
        loaders.flashrnn("lstm", recurrent, bias, gates="ifgo")
    with pytest.raises(ValueError, match=r"`bias` must be of shape \(4, 2, 4\)"):
        loaders.flashrnn("gru", recurrent, bias[:3])
    with pytest.raises(ValueError, match=r"`output_axis` must be -1 or -2"):
        loaders.flashrnn("gru", recurrent, bias, output_axis=0)
