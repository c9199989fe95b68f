"""The first call of a process, while a stream is captured into a graph: the library queries the GPU
and loads its kernels without invalidating the capture."""

import pathlib
import subprocess
import sys

import pytest
from needs import need, need_module

need(need_module("torch").cuda.is_available(), "GPU")
SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
PROGRAM = """
import torch
from kernel_problem import LIB, Problem, Call, assert_same_bits
problem = Problem("lstm", {n}, 20, 1, {h}, dtype=torch.bfloat16)
LIB.workspace = lambda *of: None  # which asks the library
call = Call(problem)
del LIB.workspace
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode="{mode}"):
    call.scratch = [LIB.workspace(call.config, backward) for backward in (False, True)]
    call.forward()
    call.backward()
graph.replay()
captured = call.results()
assert_same_bits(captured, problem.run())
"""


@pytest.mark.parametrize("mode", ["global", "thread_local"])
@pytest.mark.parametrize(("n", "h"), [(4, 64), (16, 512), (200, 1024)])
def test_within_a_capture(n, h, mode):
    program = PROGRAM.format(n=n, h=h, mode=mode)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, cwd=SUPPORT)
