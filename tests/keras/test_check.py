"""`python -m haste_keras.check`: passes here, and fails when a number is wrong."""

import numpy as np
import pytest
import tensorflow as tf

import haste_keras
from haste_keras import check, ops


@pytest.fixture(autouse=True)
def few_cases(monkeypatch):
    """An op of each kind: what they compute is for other tests, this is of the program."""
    kinds = ("lstm", "qrnn", "layer_norm_gru", "forget_mult", "layer_norm")
    cases = {case.name: case for case in check.CASES if case.name in kinds}
    assert len(cases) == len(kinds)
    monkeypatch.setattr(check, "CASES", list(cases.values()))


def test_all_right(capsys):
    assert check.main() == 0
    report = capsys.readouterr().out
    assert report.rstrip().endswith("all right")
    for text in (tf.__version__, "TF's ABI", "float16", "bfloat16", "float32", "float64", "CPU:0"):
        assert text in report


@pytest.mark.parametrize("which", [0, 1])
def test_a_wrong_number_fails(which, capsys, monkeypatch):
    real = ops.lstm

    def wrong(*args, **kwargs):
        y, states = real(*args, **kwargs)
        scale = [1.2, 1.0] if which == 0 else [1.0, np.nan]
        return y * scale[0], tuple(state * scale[1] for state in states)

    monkeypatch.setattr(ops, "lstm", wrong)
    assert check.main() == 1
    assert "WRONG" in capsys.readouterr().out


def test_library_path_is_what_tensorflow_loads():
    assert hasattr(tf.load_op_library(haste_keras.library_path()), "haste_lstm")


def test_an_error_fails(capsys, monkeypatch):
    def broken(*args, **kwargs):
        raise tf.errors.InternalError(None, None, "no such kernel")

    monkeypatch.setattr(ops, "lstm", broken)
    assert check.main() == 1
    assert "FAILED: no such kernel" in capsys.readouterr().out
