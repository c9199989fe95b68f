"""Finding and loading the op library and the shim, and what is said when that fails."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from haste_keras import _library, ops


def test_shim_belongs_to_this_tensorflow():
    major, minor = tf.__version__.split(".")[:2]
    assert _library.shim().name == f"libhaste_shim_{major}_{minor}.so"


@pytest.mark.parametrize("path", [_library.LIBRARY, _library.shim_path()], ids=["ops", "shim"])
def test_asks_tensorflow_for_its_c_api_only(path):
    symbols = subprocess.run(
        ["nm", "-DC", "--undefined-only", path], check=True, capture_output=True, text=True
    ).stdout
    for name in ("tensorflow::", "tsl::", "xla::", "stream_executor::", "absl::", "Eigen::"):
        assert name not in symbols
    assert ("TF_AllocateOutput" in symbols) == (path == _library.LIBRARY)


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setattr(_library, "LIBRARY", tmp_path / "libhaste_ops.so")
    with pytest.raises(ImportError, match=r"not built: .*libhaste_ops.so is missing; run `make b"):
        _library._op_module.__wrapped__()


def test_broken_library(monkeypatch, tmp_path):
    broken = tmp_path / "libhaste_ops.so"
    broken.write_text("not a library")
    monkeypatch.setattr(_library, "LIBRARY", broken)
    with pytest.raises(ImportError, match=r"cannot load .*libhaste_ops.so .* `make build`"):
        _library._op_module.__wrapped__()


def test_no_shim_on_a_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    (tmp_path / "libhaste_shim_1_15.so").touch()
    monkeypatch.setattr(_library, "shim_path", lambda: tmp_path / "libhaste_shim_9_9.so")
    message = rf"no shim for TensorFlow {tf.__version__} \(it has 1.15\); `make wheel TF_VERSIONS="
    with pytest.warns(RuntimeWarning, match=message):
        assert _library.shim.__wrapped__() is None


def test_no_shim_on_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(_library, "has_cuda", lambda: True)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(_library, "shim_path", lambda: tmp_path / "libhaste_shim_9_9.so")
    with pytest.raises(ImportError, match=r"no shim .* \(it has none at all\); `make wheel"):
        _library.shim.__wrapped__()


def test_broken_shim(monkeypatch, tmp_path):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    shim = tmp_path / "libhaste_shim_2_0.so"
    shim.write_text("not a library")
    monkeypatch.setattr(_library, "shim_path", lambda: shim)
    with pytest.warns(RuntimeWarning, match=r"no shim .*libhaste_shim_2_0.so.*; `make wheel"):
        assert _library.shim.__wrapped__() is None
    shutil.copy(_library.LIBRARY.with_name("libhaste.so"), tmp_path / "libhaste_shim_2_1.so")
    monkeypatch.setattr(_library, "shim_path", lambda: tmp_path / "libhaste_shim_2_1.so")
    with pytest.warns(RuntimeWarning, match="libhaste_shim_2_1.so is not a shim of haste_keras"):
        assert _library.shim.__wrapped__() is None


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TF_USE_LEGACY_KERAS", "1", "TF_USE_LEGACY_KERAS .* `unset TF_USE_LEGACY_KERAS`"),
        ("KERAS_BACKEND", "jax", "backend is 'jax'; .* `export KERAS_BACKEND=tensorflow`"),
    ],
)
def test_other_keras(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ImportError, match=message):
        _library.check_keras()


WITHOUT_SHIM = """
import sys
import numpy as np
import tensorflow as tf
from haste_keras import _library, ops

assert _library.shim() is None
wx, recurrent_kernel = (tf.constant(v) for v in np.load(sys.argv[1]).values())
np.save(sys.argv[2], ops.lstm(wx, recurrent_kernel)[0])
"""


def test_cpu_ops_run_without_a_shim(inputs, tmp_path):
    wx, recurrent_kernel, *_ = inputs(16, 20, 2, 64)
    shutil.copytree(
        _library.PACKAGE,
        tmp_path / "haste_keras",
        ignore=shutil.ignore_patterns("shims", "__pycache__"),
    )
    np.savez(tmp_path / "in.npz", wx, recurrent_kernel)
    command = [sys.executable, "-c", WITHOUT_SHIM, "in.npz", "y.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "RuntimeWarning: haste_keras has no shim for TensorFlow" in done.stderr
    y = ops.lstm(wx, recurrent_kernel)[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), y, rtol=1e-12, atol=1e-14)


FOUND_BY_ITSELF = """
import sys
import tensorflow as tf

lstm = tf.load_op_library(sys.argv[1]).haste_lstm
attrs = {"reverse": [False], "zoneout": [0.0, 0.0]}
h0 = tf.zeros([1, 1, 2])
none = tf.zeros([0], tf.bool), tf.zeros([0], tf.int64)
lstm(tf.zeros([1, 1, 1, 4, 2]), tf.zeros([1, 2, 4, 2]), h0, h0, *none, **attrs)
assert sys.argv[2] in open("/proc/self/maps").read()
"""


@pytest.mark.parametrize("by_variable", [False, True])
def test_library_finds_its_shim_without_python(monkeypatch, tmp_path, by_variable):
    library, shim = tmp_path / "libhaste_ops.so", tmp_path / "shims" / _library.shim_path().name
    shim.parent.mkdir()
    shutil.copy(_library.LIBRARY, library)
    shutil.copy(_library.shim_path(), shim)
    if by_variable:
        shim = shim.rename(tmp_path / "elsewhere.so")
        monkeypatch.setenv("HASTE_TF_SHIM", str(shim))
    command = [sys.executable, "-c", FOUND_BY_ITSELF, str(library), str(shim)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
