"""bfloat16 and int8 in `benchmarks.cpu --dtype`: what is timed is checked, and is what it says."""

import ml_dtypes
import numpy as np
import pytest

from benchmarks import cases
from benchmarks.cpu import narrow, narrow_peers, peers

SHAPE = (2, 3, 40, 48)  # N, T, C, H


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_case_has_ours_and_all_peers_there_are(name, dtype):
    functions, (wide, small) = narrow.make_functions(name, SHAPE, dtype)
    expected = {"layer f32", "layer", "engine f32", "engine"}
    expected |= {f"{who} f32" for who in peers.installed()}
    if "torch" in peers.installed():
        expected |= {"torch bf16", "autocast"} if dtype == "bfloat16" else {"torch int8"}
    if "ort" in peers.installed() and dtype == "int8" and name == "LSTM":
        expected.add("ort int8")
    assert set(functions) == expected
    # The biases and the scales of int8 are floats.
    assert small / wide == pytest.approx(0.5 if dtype == "bfloat16" else 0.25, abs=0.06)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_engine_computes_what_the_layer_does(name, dtype):
    functions, _ = narrow.make_functions(name, SHAPE, dtype)
    got, want = functions["engine"](), functions["layer"]().numpy()
    assert got.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
    # An h between two bfloat16 may be rounded either way: x·W is formed by other code.
    tolerance = 2**-6 if dtype == "bfloat16" else 1e-3
    np.testing.assert_allclose(
        got.astype(np.float32), want.astype(np.float32), rtol=0, atol=tolerance
    )


def test_wrong_weights_are_not_timed(monkeypatch):
    make = narrow.make_narrow

    def make_wrong(*args):
        layer, x = make(*args)
        layer.cell.recurrent_kernel_scale.assign(layer.cell.recurrent_kernel_scale / 3)
        return layer, x

    monkeypatch.setattr(narrow, "make_narrow", make_wrong)
    with pytest.raises(SystemExit, match="layer and Keras: differs by"):
        narrow.make_functions("LSTM", SHAPE, "int8")


def test_onnxruntime_multiplies_in_int8():
    """A GRU stays in float32, so it is no peer."""
    if "ort" not in peers.installed():
        pytest.skip("ort is not installed: see requirements-bench.txt")
    x, _, layers = cases.make_layers("GRU", *SHAPE)
    assert "ort int8" not in narrow_peers.make("GRU", "int8", layers[1].get_weights(), x.numpy())


def test_rows_name_the_layer_and_the_times():
    (row,) = narrow.run(["GRU"], [SHAPE], "int8", seconds=0.05)
    assert (row["layer"], row["shape"], row["dtype"]) == ("GRU", SHAPE, "int8")
    assert row["f32/layer"] == pytest.approx(row["layer f32 µs"] / row["layer µs"])
    assert row["bytes"] < row["bytes f32"]


def test_ratios():
    times = {"layer f32": 6, "layer": 2, "engine f32": 4, "engine": 1, "torch int8": 9}
    assert narrow.describe(times, "int8") == {
        "f32/layer": 3,
        "peer/layer": 4.5,
        "f32/engine": 4,
        "peer/engine": 9,
    }
    times["ort int8"] = 5
    assert narrow.describe(times, "int8")["peer/layer"] == 2.5
    del times["torch int8"], times["ort int8"]
    assert "peer/layer" not in narrow.describe(times, "int8")
