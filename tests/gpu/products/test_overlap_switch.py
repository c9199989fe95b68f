"""HASTE_OVERLAP in the environment: whether products overlap the walk. It is read once a process,
so the tests run programs."""

import os
import pathlib
import subprocess
import sys

import pytest
from needs import need, need_module

torch = need_module("torch")
need(torch.cuda.is_available(), "GPU")
need(torch.cuda.get_device_capability() == (9, 0), "a GPU of compute capability 9.0")
SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
PROGRAM = """
from layer_problem import SIZES, TOLERANCE, Layer, check
layer = Layer(SIZES[0], "{precision}")
layer.assert_beside(forward={beside}, backward={beside})
check(layer, TOLERANCE["{precision}"])
"""


def run(setting, program):
    environment = os.environ | {"HASTE_OVERLAP": setting}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=SUPPORT, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("setting", "beside"), [("0", False), ("1", True), ("", True)])
def test_switch(setting, beside, precision):
    done = run(setting, PROGRAM.format(precision=precision, beside=beside))
    assert done.returncode == 0, done.stderr


def test_other_values_are_errors():
    done = run("no", PROGRAM.format(precision="bfloat16", beside=True))
    assert done.returncode != 0
    assert "HASTE_OVERLAP: expected 0 or 1 in the environment, got no" in done.stderr
