"""Finding and loading the op library, TensorFlow's ABI, and messages about what cannot run."""

import importlib
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

from haste_keras import ops
from haste_keras.native import library

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
MINOR = ".".join(tf.__version__.split(".")[:2])


@pytest.fixture
def table(monkeypatch):
    """The program that makes and checks the table, as a module."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("tf_abi")


@pytest.fixture
def run(monkeypatch):
    """run(program, *arguments, abi="") → what it says on stdout and stderr."""

    def run(program, *arguments, abi=""):
        monkeypatch.setenv("HASTE_TF_ABI", abi)
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=library.PACKAGE.parent)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def test_row_is_what_the_headers_say(table):
    include = pathlib.Path(tf.sysconfig.get_include())
    assert table.check({MINOR: include}) == 0


def test_row_that_differs(table, monkeypatch, capsys):
    rows = table.read()
    measured = dict(rows[MINOR], stream_native=99)
    monkeypatch.setattr(table, "measure", lambda include: measured)
    assert table.check({MINOR: pathlib.Path(), "2.99": pathlib.Path()}) == 1
    said = capsys.readouterr().out
    assert f"stream_native is 99, but the row says {rows[MINOR]['stream_native']}\n" in said
    assert "TensorFlow 2.99 has no row" in said


def test_next_version_is_one_more_row(table, monkeypatch, tmp_path):
    rows = table.read()
    (tmp_path / "rows.inc").write_bytes(table.ROWS.read_bytes())
    monkeypatch.setattr(table, "ROWS", tmp_path / "rows.inc")
    monkeypatch.setattr(table.tf_headers, "main", lambda version, folder: None)
    monkeypatch.setattr(table, "measure", lambda include: dict(rows["2.16"], params_device=48))
    assert table.main("add", "2.100.3") == 0
    assert table.read() == rows | {"2.100": dict(rows["2.16"], params_device=48)}
    assert list(table.read())[-1] == "2.100"


@pytest.mark.parametrize(("base", "one"), [((9, 0), 0), ((8, 1), 0)], ids=["x86-64", "aarch64"])
def test_numbers_are_the_same_on_every_target(table, base, one):
    """Slot 1 is how a member pointer to it reads there; so slot 5 and a field at 40 follow."""
    words = [*base, 40, base[0] + 8 * 4, base[1] + one]
    data = b"ELF" + table.BEGIN + np.array(words, "<i8").tobytes()
    columns = [("FIELD", "at"), ("SLOT", "of")]
    assert table.parse(data, columns) == {"at": 40, "of": 5}
    words[3] += 1
    data = b"ELF" + table.BEGIN + np.array(words, "<i8").tobytes()
    with pytest.raises(SystemExit, match="of: not a virtual function"):
        table.parse(data, columns)


def test_running_tensorflow_has_a_row():
    assert library.abi() == (True, MINOR)


def test_asks_tensorflow_for_its_c_api_only():
    symbols = subprocess.run(
        ["nm", "-DC", "--undefined-only", library.LIBRARY],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in ("tensorflow::", "tsl::", "xla::", "stream_executor::", "absl::", "Eigen::"):
        assert name not in symbols
    assert "TF_AllocateOutput" in symbols


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "libhaste_ops.so")
    with pytest.raises(ImportError, match=r"not built: .*libhaste_ops.so is missing; run `make b"):
        library._op_module.__wrapped__()


def test_broken_library(monkeypatch, tmp_path):
    broken = tmp_path / "libhaste_ops.so"
    broken.write_text("not a library")
    monkeypatch.setattr(library, "LIBRARY", broken)
    with pytest.raises(ImportError, match=r"cannot load .*libhaste_ops.so .* `make build`"):
        library._op_module.__wrapped__()


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
        library.check_keras()


COMPUTE = """
import sys
import numpy as np
import tensorflow as tf
from haste_keras import ops
from haste_keras.native import library

wx, recurrent_kernel = (tf.constant(v) for v in np.load(sys.argv[1]).values())
np.save(sys.argv[2], ops.lstm(wx, recurrent_kernel)[0])
print(*library.abi())
"""


def test_unknown_tensorflow(run, inputs, tmp_path):
    """CPU ops compute on threads of their own, and that is said once."""
    wx, recurrent_kernel, *_ = inputs(16, 20, 2, 64)
    np.savez(tmp_path / "in.npz", wx, recurrent_kernel)
    out, err = run(COMPUTE, tmp_path / "in.npz", tmp_path / "y.npy", abi="9.9")
    assert out.startswith("False HASTE_TF_ABI must be")
    assert err.count("Until then CPU ops run on threads of haste_keras's own.") == 1
    assert "RuntimeWarning: HASTE_TF_ABI must be a TensorFlow version that haste_keras kn" in err
    y = ops.lstm(wx, recurrent_kernel)[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), y, rtol=1e-12, atol=1e-14)


def test_row_of_another_layout(run, inputs, tmp_path, table):
    """It is detected before anything that does not exist is read or called."""
    row = table.read()[MINOR]
    others = [
        v for v, each in table.read().items() if each["context_params"] != row["context_params"]
    ]
    wx, recurrent_kernel, *_ = inputs(16, 20, 2, 64)
    np.savez(tmp_path / "in.npz", wx, recurrent_kernel)
    out, err = run(COMPUTE, tmp_path / "in.npz", tmp_path / "y.npy", abi=others[0])
    assert out.split() == ["True", others[0]]
    assert err.count(f"are not laid out as haste_keras's row for {others[0]} says;") == 1
    y = ops.lstm(wx, recurrent_kernel)[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), y, rtol=1e-12, atol=1e-14)


WITHOUT_PYTHON = """
import ctypes, sys
import tensorflow as tf

lstm = tf.load_op_library(sys.argv[1]).haste_lstm
attrs = {"reverse": [False], "zoneout": [0.0, 0.0]}
h0 = tf.zeros([1, 1, 2])
none = tf.zeros([0], tf.bool), tf.zeros([0], tf.int64)
for _ in range(2):
    lstm(tf.zeros([1, 1, 1, 4, 2]), tf.zeros([1, 2, 4, 2]), h0, h0, *none, **attrs)
text = ctypes.create_string_buffer(1024)
print(ctypes.CDLL(sys.argv[1]).haste_tf_abi(text, ctypes.c_size_t(len(text))), text.value.decode())
"""


@pytest.mark.parametrize(("abi", "row"), [("", MINOR), (MINOR, MINOR), (f"{MINOR}.3", MINOR)])
def test_library_finds_its_row_without_python(run, abi, row):
    out, err = run(WITHOUT_PYTHON, library.LIBRARY, abi=abi)
    assert out.split() == ["1", row]
    assert "haste_keras" not in err


def test_library_says_what_it_does_not_know_without_python(run):
    out, err = run(WITHOUT_PYTHON, library.LIBRARY, abi="9.9")
    assert out.startswith("0 HASTE_TF_ABI must be")
    assert err.count("Until then CPU ops run on threads of haste_keras's own.") == 1


THREADS = """
import os, sys
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
tf.config.threading.set_inter_op_parallelism_threads(1)
from haste_keras import ops

def busy():  # nanoseconds of each thread
    tasks = "/proc/self/task"
    return {t: int(open(f"{tasks}/{t}/schedstat").read().split()[0]) for t in os.listdir(tasks)}

wx, recurrent_kernel = tf.ones([32, 50, 1, 4, 128]), tf.zeros([1, 128, 4, 128])
wx @ tf.ones([128, 128])  # TensorFlow has started its threads
before = busy()
for _ in range(20):
    ops.lstm(wx, recurrent_kernel)
after = busy()
print(len(after.keys() - before.keys()), sum(after[t] - before.get(t, 0) > 1e5 for t in after))
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_cpu_ops_run_on_tensorflows_threads(run, threads):
    started, busy = map(int, run(THREADS, threads)[0].split())
    assert started == 0
    assert busy == 1 if threads == 1 else 1 < busy <= threads + 1  # the caller's own is one more


def test_cpu_ops_run_on_their_own_threads_otherwise(run):
    started, _ = map(int, run(THREADS, 1, abi="9.9")[0].split())
    assert started > 0


def test_gpu_kernels_are_registered_if_they_can_run():
    registered, why = library.gpu_kernels()
    assert registered == (why == "")
    where = {"GPU": registered}
    for device, name in (("cpu", "XLA_CPU_JIT"), ("cuda", "XLA_GPU_JIT")):
        where[name], why = library.xla(device)
        assert where[name] == (why == "")
    expected = {"CPU", *(name for name, there in where.items() if there)}
    for op in ("HasteLstm", "HasteLstmGrad", "HasteLstmLayer", "HasteMatMul", "HasteLayerNormGrad"):
        devices = {kernel.device_type for kernel in get_registered_kernels_for_op(op).kernel}
        assert devices == expected


NO_GPU = (False, "haste_keras has no CUDA kernels here; `pip install …` adds them")


@pytest.mark.parametrize(
    ("abi", "gpu_kernels", "gpus", "message"),
    [
        ((True, "2.21"), (True, ""), 1, None),
        ((True, "2.21"), NO_GPU, 0, None),
        ((True, "2.21"), NO_GPU, 1, r"no CUDA .* adds them\. Until then the layers run on the CPU"),
        ((False, "unknown"), NO_GPU, 0, r"unknown\. Until then CPU ops run on threads of haste_k"),
        (
            (False, "unknown"),
            (False, "unknown"),
            1,
            r"^unknown\. Until then the layers run on the C",
        ),
    ],
)
def test_import_says_what_cannot_run(monkeypatch, recwarn, abi, gpu_kernels, gpus, message):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    monkeypatch.setattr(library, "abi", lambda: abi)
    monkeypatch.setattr(library, "gpu_kernels", lambda: gpu_kernels)
    library._warn_of_what_cannot_run()
    assert len(recwarn) == (message is not None)
    if message:
        with pytest.warns(RuntimeWarning, match=message):
            library._warn_of_what_cannot_run()


@pytest.mark.parametrize("gpu_kernels", [(True, ""), (False, "…")])
def test_a_gpu_is_used_only_with_kernels_for_it(monkeypatch, gpu_kernels):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    monkeypatch.setattr(library, "gpu_kernels", lambda: gpu_kernels)
    assert library.may_use_gpu() == gpu_kernels[0]


ELSEWHERE = """
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import haste_keras
import keras

for device in ("/GPU:0", "/CPU:1"):
    keras.utils.set_random_seed(1)
    layers = [haste_keras.LSTM(4, return_sequences=True), haste_keras.LayerNormGRU(4)]
    x = np.random.default_rng(1).normal(size=[8, 5, 3]).astype("float32")
    model = keras.Sequential(layers)
    y = model(x)
    with tf.device(device):
        for each in (model(x), tf.function(model)(x)):
            np.testing.assert_allclose(each, y, rtol=1e-6, atol=1e-6)
            assert device == "/GPU:0" or each.device.endswith(device.replace("/", "/device:"))
        model.compile("sgd", "mse")
        model.fit(x, np.ones([8, 4]), verbose=0)
"""


def test_other_devices(run):
    """A device without a kernel of the op, which TensorFlow replaces, and a second CPU."""
    run(ELSEWHERE)


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t: 2\n", "AuthenticAMD"),
        ("vendor_id\t: GenuineIntel\nvendor_id\t: GenuineIntel\n", "GenuineIntel"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
        (None, ""),
    ],
    ids=["AMD", "Intel", "Arm", "no file"],
)
def test_vendor_of_the_processor(tmp_path, text, vendor):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert library._cpu_vendor(path) == vendor


def test_the_library_stays_when_it_is_closed(run):
    """Its threads run its code."""
    program = """
import _ctypes, ctypes, os, sys

handle = ctypes.CDLL(sys.argv[1])._handle
_ctypes.dlclose(handle)
ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOLOAD)  # an OSError if it is not there
"""
    run(program, library.PACKAGE / "libhaste.so")
