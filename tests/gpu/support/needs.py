"""The requirements of this folder's tests on a machine.

A module is skipped if one is missing. With HASTE_REQUIRE_GPU=1, which `make test-gpu` sets, that is
an error, so that no run without a GPU looks like one that passed. HASTE_TEST_DEVICE=CPU:0 runs
the tests of the ops and layers on the CPU, to try the tests themselves.
"""

import importlib
import os

import pytest

DEVICE = os.environ.get("HASTE_TEST_DEVICE", "GPU:0")


def need(condition, what):
    """Skips the calling module because `what` is missing, unless `condition`."""
    if condition:
        return
    if os.environ.get("HASTE_REQUIRE_GPU") == "1":
        raise RuntimeError(f"HASTE_REQUIRE_GPU=1, but there is no {what}")
    pytest.skip(f"no {what}", allow_module_level=True)


def need_module(name):
    """The module `name`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        need(False, f"{name} for this Python")


def need_tensorflow():
    """TensorFlow, with a GPU unless DEVICE is another."""
    # It would take all of the GPU's memory, which tests in processes of their own need too.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    tf = need_module("tensorflow")
    if DEVICE.startswith("GPU"):
        need(tf.config.list_physical_devices("GPU"), "GPU that TensorFlow sees")
    else:
        need(os.environ.get("HASTE_REQUIRE_GPU") != "1", f"GPU in HASTE_TEST_DEVICE={DEVICE}")
    return tf


on_gpu_only = pytest.mark.skipif(
    not DEVICE.startswith("GPU"), reason=f"what it measures is a GPU's, not of {DEVICE}"
)
