"""`haste_keras.explain`: the plan of each layer, for this CPU and for GPUs of other machines."""

import re

import keras
import pytest
import tensorflow as tf

import haste_keras
from haste_keras import explain
from haste_keras.native import library


def test_what_a_prompt_shows_is_the_text(capsys):
    layer = haste_keras.LSTM(24, name="shared", return_sequences=True)
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, [layer(inputs), layer(inputs[:, ::2])])
    lines = explain(model, (8, 50, 3), device="CPU")
    assert capsys.readouterr().out == ""
    assert len(lines) == 2
    assert repr(lines) == str(lines) == "\n".join([*lines, lines.xla])
    assert repr(lines).startswith("shared: lstm on cpu: ")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((True, ""), "the same kernels"),
        ((False, "why"), "Keras's loop over the cells: why"),
    ],
)
def test_what_xla_runs(monkeypatch, found, said):
    monkeypatch.setattr(library, "xla_here", lambda: found)
    lines = explain(haste_keras.LSTM(24), (8, 50, 3), device="CPU")
    assert str(lines).splitlines()[-1] == f"under XLA (jit_compile=True): {said}"


def test_a_layer_that_runs_step_by_step(row):
    layer = row.layer(24, activation="gelu", name="mine")
    (line,) = explain(layer, (8, 50, 12), device="H200")
    assert re.match("mine: step by step, by Keras's loop over its cell: .* tanh, sigmoid", line)


def test_every_layer_on_every_device(row):
    layer = row.layer(24, name="mine")
    engine = "scan" if row.recurrence != "dense" else "cpu"
    (line,) = explain(layer, (8, 50, 12), device="CPU")
    assert re.match(rf"mine: \w+ on {engine}: ", line)
    assert "N=8 T=50 K=1 H=24" in line
    for device in ("T4", "A100", "H200"):
        (line,) = explain(layer, (8, 50, 12), device=device, training=True)
        assert line.endswith(f"({device})")
        assert re.match(r"mine: \w+ on (stepwise|blas|tiled|block|cluster|grid|scan)\b", line)


def test_lanes_are_heads_times_directions():
    layer = haste_keras.LSTM(24, heads=3, direction="bidirectional")
    (line,) = explain(layer, (8, 50, 12), device="CPU")
    assert "K=6 H=8" in line


def test_default_device_is_where_tensorflow_puts_the_op():
    here = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    layer = haste_keras.GRU(24)
    assert explain(layer, (8, 50, 12)) == explain(layer, (8, 50, 12), device=here)


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="there is a GPU")
@pytest.mark.parametrize("device", ["GPU", "CUDA"])
def test_without_a_gpu_an_h200_is_asked_about(device):
    layer = haste_keras.GRU(24)
    assert explain(layer, (8, 50, 12), device=device) == explain(layer, (8, 50, 12), device="H200")


def test_the_dtype_asked_about_is_planned_for():
    """In float64 no engine keeps R on the chip; in other dtypes one does."""
    layer = haste_keras.LSTM(250)
    (double,) = explain(layer, (16, 50, 12), device="H200", dtype="float64")
    (half,) = explain(layer, (16, 50, 12), device="H200", dtype="bfloat16")
    assert "on stepwise" in double
    assert "on block" in half


def test_small_layers_stay_in_blocks():
    for units, device, blocks in ((64, "H200", 1), (64, "A100", 1), (256, "H200", 8)):
        (line,) = explain(
            haste_keras.LSTM(units), (16, 50, 12), device=device, dtype="bfloat16", training=True
        )
        assert line.count(f"lstm on block: groups × blocks × rows 4 × {blocks} × 4, ") == 2


def test_large_layers_are_cublas_s():
    # The default initializer is slow to make.
    layer = haste_keras.GRU(2560, reset_after=False, recurrent_initializer="zeros")
    for device in ("H200", "A100"):
        (line,) = explain(layer, (64, 50, 12), device=device, dtype="bfloat16", training=True)
        assert re.search("gru_reset_before on blas: .*; backward: gru_reset_before on blas: ", line)


def test_large_layers_are_tiled_where_wgmma_is(true_float32):
    layer = haste_keras.LSTM(2048, recurrent_initializer="zeros")
    (line,) = explain(layer, (64, 50, 12), device="H200", dtype="float32")
    assert "on tiled" in line
    with pytest.raises(ValueError, match=r'engine: "tiled" cannot run .* capability 8\.0'):
        explain(haste_keras.LSTM(64, engine="tiled"), (64, 50, 12), device="A100")


def test_float32_follows_tensorflows_switch(true_float32):
    """With TensorFloat-32 allowed R takes half the room: 1536 units fit the chip."""
    layer = haste_keras.LSTM(1536, recurrent_initializer="zeros")
    (exact,) = explain(layer, (16, 50, 12), device="H200", dtype="float32")
    tf.config.experimental.enable_tensor_float_32_execution(True)  # until true_float32 sets it back
    (relaxed,) = explain(layer, (16, 50, 12), device="H200", dtype="float32")
    assert "on tiled" in exact
    assert "on grid" in relaxed


def test_a_model_with_layers_in_layers():
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(10, 4)(inputs)
    inner = [keras.Input((None, 4)), haste_keras.GRU(8, return_sequences=True, name="inner")]
    x = keras.Sequential(inner)(x)
    x = haste_keras.QRNN(6, return_sequences=True, name="pooled")(x)
    pair = keras.layers.Bidirectional(haste_keras.Elman(5, name="pair"))
    model = keras.Model(inputs, pair(x))
    lines = explain(model, (4, 20), device="CPU")
    names = [line.split(":")[0] for line in lines]
    assert names == ["inner", "pooled", "forward_pair", "backward_pair"]
    assert all("N=4 T=20 K=1" in line for line in lines)


def test_a_model_that_is_not_built_and_takes_no_training():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.elman = haste_keras.Elman(9, name="its")

        def call(self, x):
            return self.elman(x)

    (line,) = explain(Model(), (2, 3, 4), device="CPU", training=True)
    assert line.startswith("its: elman on cpu")


def test_one_line_for_each_size():
    layer = haste_keras.LSTM(4, name="shared", return_sequences=True)
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, [layer(inputs), layer(inputs), layer(inputs[:, ::2])])
    lines = explain(model, (2, 10, 3), device="CPU")
    assert sorted(re.search(r"T=\d+", line)[0] for line in lines) == ["T=10", "T=5"]


def test_layers_of_several_inputs():
    (line,) = explain(haste_keras.ForgetMult(name="its"), [(2, 3, 4), (2, 3, 4)], device="CPU")
    assert line.startswith("its: forget_mult on scan")
    assert "N=2 T=3 K=1 H=4" in line


def test_the_layer_stays_as_it_was():
    x = keras.random.normal((2, 3, 4))
    layer, twin = (
        haste_keras.LSTM(8, stateful=True, recurrent_dropout=0.1, seed=3) for _ in range(2)
    )
    layer.build(x.shape)
    twin.build(x.shape)
    twin.set_weights(layer.get_weights())
    explain(layer, (2, 3, 4), training=True)
    assert "call" not in vars(layer)
    for training in (True, False):
        tf.debugging.assert_equal(layer(x, training=training), twin(x, training=training))


@pytest.mark.parametrize(
    ("layer", "shape", "options", "match"),
    [
        (lambda: haste_keras.LSTM(8), (2, None, 4), {}, "`input_shape` .* known"),
        (lambda: haste_keras.LSTM(8), (2, 3, 4), {"device": "abacus"}, "`device` .*='abacus'"),
        (lambda: haste_keras.LSTM(8), (2, 3, 4), {"dtype": "int8"}, "`dtype` .*='int8'"),
        (lambda: keras.layers.Dense(2), (2, 3), {}, "`layer` must be a fused layer"),
        (lambda: "lstm", (2, 3, 4), {}, "`layer` must be a layer or a model"),
        (
            lambda: haste_keras.LSTM(8, engine="stepwise", name="mine"),
            (2, 3, 4),
            {"device": "CPU"},
            'layer mine: engine: .* got "stepwise"',
        ),
        (
            lambda: haste_keras.LSTM(8, engine="cpu", name="mine"),
            (2, 3, 4),
            {"device": "H200"},
            'layer mine: engine: .* got "cpu"',
        ),
    ],
)
def test_errors(layer, shape, options, match):
    with pytest.raises(ValueError, match=match):
        explain(layer(), shape, **options)


def test_a_size_that_only_the_run_knows():
    inputs = keras.Input((None, 3))
    kept = keras.layers.Lambda(lambda x: x[:, : tf.random.uniform([], 1, 5, tf.int32)])(inputs)
    model = keras.Model(inputs, haste_keras.LSTM(4)(kept))
    with pytest.raises(ValueError, match="settle the sizes"):
        explain(model, (2, 10, 3))
