"""Each result of the papers runs at a size that shows that its program works."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.papers import language_model, layer_norm, parity, qrnn_speed, text, zoneout
from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import cases, run, step


def ms(value):
    """In seconds."""
    return value / 1e3


def rows(printed, names):
    """{first words of a line: its numbers}, of lines that begin with one of `names`."""
    found = {}
    for line, name in itertools.product(printed.splitlines(), names):
        if line.startswith(name + "  "):
            found[name] = [float(word) for word in line[len(name) :].split()]
    return found


def test_streams_go_on_where_they_were():
    inputs, targets = text.streams(np.arange(101), batch=4, length=5)
    assert inputs.shape == (5, 4, 5)
    np.testing.assert_array_equal(inputs[1:, :, 0], inputs[:-1, :, -1] + 1)
    np.testing.assert_array_equal(targets, inputs + 1)
    with pytest.raises(ValueError, match="too few"):
        text.streams(np.arange(20), batch=4, length=5)


def test_parts_of_the_text_do_not_overlap():
    parts, words = text.words(limit=20_000)
    assert [len(part) for part in parts] == [16_000, 2_000, 2_000]
    assert max(map(np.max, parts)) < words


def test_language_model(tmp_path, capsys):
    plot = tmp_path / "plot.png"
    arguments = ["--epochs", "2", "--words", "20000", "--units", "16", "--cells", "SLSTM", "--plot"]
    language_model.main([*arguments, str(plot)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("SLSTM")]
    assert [line[8:12] for line in lines] == ["none", "all "]
    valid = [float(line[38:46]) for line in lines]
    assert all(10 < perplexity < 2000 for perplexity in valid)
    assert plot.stat().st_size > 1000


@pytest.mark.parametrize("result", [zoneout, layer_norm], ids=["zoneout", "layer_norm"])
def test_character_models(result, tmp_path, capsys):
    plot = tmp_path / "plot.png"
    arguments = [
        "--units",
        "8",
        "--batch",
        "8",
        "--length",
        "50",
        "--epochs",
        "1",
        "--characters",
        "20000",
        "--plot",
    ]
    result.main([*arguments, str(plot)])
    found = rows(capsys.readouterr().out, result.VARIANTS)
    assert list(found) == list(result.VARIANTS)
    for _, valid, *_ in found.values():
        assert 1 < valid < math.log2(100)
    assert plot.stat().st_size > 1000


def test_qrnn_speed(tmp_path, capsys):
    plot = tmp_path / "plot.png"
    qrnn_speed.main(["--batches", "8", "--lengths", "32", "--seconds", "0", "--plot", str(plot)])
    printed = capsys.readouterr().out
    (row,) = rows(printed, ["    8"]).values()
    length, qrnn, theirs, ours, over_theirs, over_ours, paper = row
    assert (length, paper) == (32, 5.5)
    assert over_theirs == pytest.approx(theirs / qrnn, abs=0.02)
    assert over_ours == pytest.approx(ours / qrnn, abs=0.02)
    assert plot.stat().st_size > 1000
    table = tmp_path / "table.txt"
    table.write_text(printed)
    results, where = qrnn_speed.read(table)
    assert results == {(8, 32): dict(zip(qrnn_speed.LAYERS, map(ms, row[1:4]), strict=True))}
    assert where.endswith("float32")


def test_parity(tmp_path, capsys):
    arguments = ["--models", "MinGRU", "--seeds", "0", "--steps", "20", "--plot"]
    parity.main([*arguments, str(tmp_path / "plot.png")])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("MinGRU"))
    assert row.endswith("0 of 1")


def test_scaling(capsys):
    """A process's lines, as the parent reads them."""
    import keras

    policy = keras.config.dtype_policy()
    case = cases.Case(batch=4, steps=2, dense=True, compiled=True, parts=True)
    try:
        run.run_case(case, "one", None, cases.SMALL, seconds=0.01)
    finally:
        keras.config.set_dtype_policy(policy)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("@")]
    assert len(lines) == 4
    table = scaling.Table()
    for line in lines:
        table.take(line[1:])
    assert table.one["ours", 4][0] > 0
    table.take('{"kind": "nccl", "case": {"batch": 4}, "error": "none"}')
    assert table.failed == {"nccl"}
    assert "FAILED  ours batch 4: none" in capsys.readouterr().out


def test_dense_gradient_is_that_of_the_slices():
    import keras
    import tensorflow as tf

    layers = [keras.layers.Embedding(9, 3), step.DenseEmbedding(9, 3)]
    words = tf.constant([[1, 2, 2], [8, 1, 2]])
    gradients = []
    for layer in layers:
        layer.build()
        layer.set_weights(layers[0].get_weights())
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(words) ** 2)
        gradients.append(tape.gradient(loss, layer.trainable_variables[0]))
    assert isinstance(gradients[0], tf.IndexedSlices)
    assert isinstance(gradients[1], tf.Tensor)
    np.testing.assert_allclose(gradients[1], tf.convert_to_tensor(gradients[0]), rtol=1e-6)
