"""tools/cuda/nvcc.py reads the headers that were used from the rule that nvcc writes."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("nvcc", ROOT / "tools/cuda/nvcc.py")
nvcc = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nvcc)

RULE = r"""unit.o : lib/unit.cu.cc \
  lib/./a.h /usr/include/math.h external/cuda/cuda.h \
  lib/b.h
"""
SOURCE = "lib/unit.cu.cc"


def test_unused():
    used = nvcc.read_by(RULE)
    assert nvcc.unused("lib/a.h\nlib/b.h\nlib/c.h\n", used) == "lib/c.h\n"


def test_undeclared():
    used = nvcc.read_by(RULE)
    assert nvcc.undeclared("lib/a.h\nlib/b.h\nlib/c.h\n", used, SOURCE) == []
    assert nvcc.undeclared("lib/a.h\n", used, SOURCE) == ["lib/b.h"]
