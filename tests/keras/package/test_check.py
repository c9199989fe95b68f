"""`python -m haste_keras.check`: passes here, and fails when a number is wrong."""

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import haste_keras
from haste_keras import _installation, check, ops
from haste_keras._installation import Driver, Facts, Gpu, Half, TensorFlow
from haste_keras.explain import GPUS
from haste_keras.native import binding, library


@pytest.fixture(autouse=True)
def few_cases(monkeypatch):
    """One op of each kind: other tests check the numbers, this one checks the program."""
    kinds = ("lstm", "qrnn", "layer_norm_gru", "forget_mult", "layer_norm")
    cases = {case.name: case for case in check.CASES if case.name in kinds}
    assert len(cases) == len(kinds)
    monkeypatch.setattr(check, "CASES", list(cases.values()))


def test_all_right(capsys):
    assert check.main() == 0
    report = capsys.readouterr().out
    assert report.rstrip().endswith("all right")
    for text in ("float16", "bfloat16", "float32", "float64", "CPU:0"):
        assert text in report
    first = report.split("CPU:0")[0]
    for text in (tf.__version__, haste_keras.__version__, keras.__version__, " threads"):
        assert text in first


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


H200 = Gpu("NVIDIA H200", (9, 0), 132, ("block", "grid", "stepwise"))
P100 = Gpu("Tesla P100", (6, 0), 56)
WHOLE = Facts(
    haste="0.1.0",
    package=pathlib.Path("/site/haste_keras"),
    tensorflow=TensorFlow("2.21.0", "12.5.1"),
    keras="3.15.1",
    numpy="2.4.6",
    python="3.12.4",
    cpu_target="AVX-512",
    threads=8,
    half=Half("/site/haste_keras_cuda/libhaste_cuda.so", 12040, "75 80 90a compute_90"),
    no_half="",
    installed_half="0.1.0",
    driver=Driver("580.95.05", 13000),
    gpus=(H200,),
    visible_gpus=1,
    gpu_kernels=(True, ""),
    graph_plugin=(True, ""),
    xla=(True, ""),
)
HALF_IS_MISSING = {"half": None, "no_half": "it is not installed", "installed_half": None}


def told(**changes):
    """(lines of the report, sentences and fixes of the problems) where WHOLE is changed so."""
    facts = dataclasses.replace(WHOLE, **changes)
    return list(_installation.report(facts)), list(_installation.problems(facts))


def test_report_of_a_whole_installation():
    lines, problems = told()
    assert problems == []
    assert lines == [
        "haste_keras  0.1.0, /site/haste_keras",
        "TensorFlow   2.21.0, built with CUDA 12.5.1, its ABI is known",
        "Keras        3.15.1, NumPy 2.4.6, Python 3.12.4",
        "CPU          AVX-512, 8 threads",
        "CUDA half    /site/haste_keras_cuda/libhaste_cuda.so, built with CUDA 12.4 for 7.5, 8.0, "
        "9.0a, PTX of 9.0",
        "driver       580.95.05, runs CUDA up to 13.0",
        "GPU 0        NVIDIA H200, compute capability 9.0, 132 multiprocessors: engines block, "
        "grid, stepwise",
        "GPU kernels  run",
        "plug-in      active, portable models run these ops",
        "XLA          runs the kernels",
    ]


def test_a_machine_without_a_gpu_has_no_problem():
    lines, problems = told(
        tensorflow=TensorFlow("2.16.2"),
        driver=None,
        gpus=(),
        visible_gpus=0,
        gpu_kernels=(False, "there is no CUDA half"),
        graph_plugin=(False, "HASTE_GRAPH_PLUGIN is 0"),
        xla=(False, "it is too old"),
        **HALF_IS_MISSING,
    )
    assert problems == []
    assert "TensorFlow   2.16.2, CPU build, its ABI is known" in lines
    assert lines[-5:] == [
        "CUDA half    none: it is not installed",
        "driver       no NVIDIA driver",
        "GPU kernels  do not run: there is no CUDA half",
        "plug-in      not active: HASTE_GRAPH_PLUGIN is 0",
        "XLA          does not run them: it is too old",
    ]


def test_no_cuda_half():
    _, [(sentence, fix)] = told(**HALF_IS_MISSING)
    assert sentence == "There is no CUDA half: it is not installed"
    assert fix == 'pip install "haste-keras[cuda]==0.1.0"'


def test_half_of_another_version():
    reason = "/site/libhaste_cuda.so is of haste 0.0.9, but this is haste 0.1.0"
    changes = {"half": None, "no_half": reason, "installed_half": "0.0.9"}
    for gpus in ((), (H200,)):  # the wrong half is wrong without a GPU too
        _, [(sentence, fix)] = told(gpus=gpus, **changes)
        assert reason in sentence
        assert fix == 'pip install "haste-keras[cuda]==0.1.0"'


def test_driver_too_old():
    lines, [(sentence, fix)] = told(driver=Driver("470.256.02", 11040), gpu_kernels=(False, "old"))
    assert "driver       470.256.02, runs CUDA up to 11.4" in lines
    assert "runs CUDA up to 11.4; the CUDA half is built with 12.4 and needs driver 525" in sentence
    assert "update the driver" in fix
    assert told(driver=Driver(None, 12000))[1] == []  # any CUDA 12 does


def test_gpu_below_7_5():
    lines, [(sentence, fix)] = told(gpus=(P100,))
    assert "GPU 0        Tesla P100, compute capability 6.0, 56 multiprocessors: no engine" in lines
    assert "GPU 0 (Tesla P100) has compute capability 6.0; GPU kernels need 7.5" in sentence
    assert fix == 'export CUDA_VISIBLE_DEVICES=""'
    _, [(_, fix)] = told(gpus=(H200, P100, H200), visible_gpus=3)
    assert fix == 'export CUDA_VISIBLE_DEVICES="0,2"'


def test_unknown_tensorflow():
    lines, [(sentence, fix)] = told(tensorflow=TensorFlow("2.30.0", "12.9", abi_known=False))
    assert "TensorFlow   2.30.0, built with CUDA 12.9, its ABI is not known" in lines
    assert "does not know the ABI of TensorFlow 2.30.0: CPU kernels run on threads" in sentence
    assert fix == "pip install --upgrade haste-keras"


def test_tensorflow_for_the_cpu_beside_a_gpu():
    _, [(sentence, fix)] = told(tensorflow=TensorFlow("2.21.0"), visible_gpus=0)
    assert "TensorFlow 2.21.0 is built for the CPU" in sentence
    assert fix.startswith("pip uninstall -y tensorflow-cpu && ")
    assert fix.endswith('"tensorflow[and-cuda]==2.21.0"')


def test_tensorflow_without_its_cuda_libraries():
    _, [(sentence, fix)] = told(visible_gpus=0)
    assert "sees no GPU, though the driver has 1: its CUDA 12.5.1 libraries" in sentence
    assert fix == 'pip install "tensorflow[and-cuda]==2.21.0"'


def test_several_problems_are_told_together():
    _, problems = told(
        tensorflow=TensorFlow("2.30.0", None, abi_known=False), gpus=(P100, H200), **HALF_IS_MISSING
    )
    assert len(problems) == 4


def test_problems_are_printed_and_do_not_fail(capsys, monkeypatch):
    facts = dataclasses.replace(WHOLE, gpu_kernels=(False, "no half"), **HALF_IS_MISSING)
    monkeypatch.setattr(_installation, "collect", lambda: facts)
    assert check.main() == 0
    report = capsys.readouterr().out
    assert '    pip install "haste-keras[cuda]==0.1.0"\n' in report
    assert report.endswith("see the first lines: 1 to be fixed\nall right\n")


class FakeDriver:
    """libcuda and libnvidia-ml of a machine with one H200, as ctypes calls them."""

    def __init__(self, init=0):
        self.init = init

    def cuDriverGetVersion(self, version):  # noqa: N802
        version._obj.value = 12020
        return 0

    def cuInit(self, flags):  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 1

    def cuDeviceGet(self, device, ordinal):  # noqa: N802
        device._obj.value = ordinal

    def cuDeviceGetName(self, name, size, device):  # noqa: N802
        name.value = b"NVIDIA H200"

    def cuDeviceGetAttribute(self, value, number, device):  # noqa: N802
        value._obj.value = {75: 9, 76: 0, 16: 132, 38: 60 << 20, 97: 227 << 10}[number]

    def nvmlInit_v2(self):  # noqa: N802
        return self.init

    def nvmlSystemGetDriverVersion(self, version, size):  # noqa: N802
        version.value = b"535.104.05"
        return 0

    def nvmlShutdown(self):  # noqa: N802
        pass


def test_driver_and_gpus_are_asked_for():
    fake = FakeDriver()
    assert _installation.driver(fake, fake) == Driver("535.104.05", 12020)
    [gpu] = _installation.gpus(fake)
    assert (gpu.name, gpu.capability, gpu.multiprocessors) == ("NVIDIA H200", (9, 0), 132)
    assert {"block", "grid", "tiled", "blas", "stepwise", "scan"} <= set(gpu.engines)
    silent = FakeDriver(init=100)  # CUDA_ERROR_NO_DEVICE
    assert _installation.gpus(silent) == ()
    assert _installation.driver(silent, silent) == Driver(None, 12020)


def test_the_first_gpu_is_what_plans_count_on():
    """Clusters are those that the device reports; without any, no engine needs a cluster."""
    no_clusters = binding.DeviceProperties(9, 0, 120, 227 << 10, 60 << 20)
    [estimated], [known] = (
        _installation.gpus(FakeDriver(), first) for first in (None, no_clusters)
    )
    assert (known.name, known.capability, known.multiprocessors) == ("NVIDIA H200", (9, 0), 120)
    assert "cluster" in estimated.engines
    assert "cluster" not in known.engines


@pytest.mark.parametrize(
    ("has_cuda", "device"), [(False, None), (True, None), (True, GPUS["H200"])]
)
def test_current_device(monkeypatch, has_cuda, device):
    class Api:
        def has_cuda(self):
            return has_cuda

        def cuda_device(self):
            assert has_cuda
            if device is None:
                raise binding.Error("haste_cuda_device", "no GPU")
            return device

    monkeypatch.setattr(library, "c_api", Api)
    assert _installation.current_device() is device


@pytest.mark.parametrize(
    ("gpu", "runs", "does_not_run"),
    [
        ("T4", {"stepwise", "blas", "scan"}, {"block", "grid", "cluster", "tiled"}),
        ("A100", {"stepwise", "blas", "scan", "block", "grid"}, {"cluster", "tiled"}),
        ("H200", {"stepwise", "blas", "scan", "block", "grid", "cluster", "tiled"}, set()),
    ],
)
def test_engines_of_a_gpu(gpu, runs, does_not_run):
    properties = GPUS[gpu]
    engines = set(_installation.engines_on(properties))
    assert runs <= engines
    assert not engines & does_not_run


def test_facts_of_this_machine(monkeypatch):
    facts = _installation.collect()
    assert facts.tensorflow == TensorFlow(tf.__version__, facts.tensorflow.cuda)
    assert facts.package == library.PACKAGE
    assert facts.cpu_target in ("AVX-512", "AVX2", "NEON", "baseline")
    assert facts.threads > 0
    assert (facts.half is None) == bool(facts.no_half)
    monkeypatch.setattr(_installation, "_load", lambda name: None)
    assert _installation.driver() is None
    assert _installation.gpus() == ()


def test_kernels_run_where_tensorflow_sees_a_gpu(monkeypatch):
    monkeypatch.setattr(library, "gpu_kernels", lambda: (True, ""))
    monkeypatch.setattr(_installation, "visible_gpus", lambda: 1)
    assert _installation.gpu_kernels() == (True, "")
    monkeypatch.setattr(_installation, "visible_gpus", lambda: 0)
    assert _installation.gpu_kernels() == (False, "TensorFlow sees no GPU")
    monkeypatch.setattr(library, "gpu_kernels", lambda: (False, "no CUDA half"))
    assert _installation.gpu_kernels() == (False, "no CUDA half")
