"""What the tests of this folder need of a machine.

Where it is missing a module is skipped; with HASTE_REQUIRE_GPU=1, as `make test-gpu` sets it,
that is an error: no run without a GPU may look like one that passed.
"""

import importlib
import os

import pytest


def need(condition, what):
    """Leaves the calling module out, for want of `what`, unless `condition`."""
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
    """TensorFlow, with a GPU."""
    tf = need_module("tensorflow")
    need(tf.config.list_physical_devices("GPU"), "GPU that TensorFlow sees")
    return tf
