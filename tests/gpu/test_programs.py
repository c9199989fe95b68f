"""The C++ examples on the GPU: each checks its own result and says so by its exit status."""

import pathlib
import subprocess

import pytest
from needs import need, need_module

need(need_module("torch").cuda.is_available(), "GPU")
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bazel-bin" / "examples" / "cpp"
NAMES = ["inference", "train"]
for _name in NAMES:
    need((FOLDER / _name).exists(), f"{FOLDER / _name}: build //examples/cpp/... first")


@pytest.mark.parametrize("name", NAMES)
def test_program(name):
    subprocess.run([FOLDER / name, "--cuda"], check=True, timeout=300)
