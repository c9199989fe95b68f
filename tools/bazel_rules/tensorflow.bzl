"""@local_tensorflow: headers and framework library of the TensorFlow that pip installed.

$HASTE_PYTHON names the Python that has it; else .venv of this checkout, else python3.
"""

# Prints the package's folder, without the seconds of importing it.
_PROBE = """
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("tensorflow")
if spec is None or spec.origin is None:
    sys.exit("not installed for " + sys.executable)
print(pathlib.Path(spec.origin).parent)
"""

def _python(ctx):
    named = ctx.os.environ.get("HASTE_PYTHON", "")
    if named:
        return named
    own = ctx.path(Label("//:BUILD")).dirname.get_child(".venv").get_child("bin").get_child("python")
    return own if own.exists else ctx.which("python3")

def _impl(ctx):
    python = _python(ctx)
    advice = "run 'make venv', or set HASTE_PYTHON to a Python that has TensorFlow 2.16 or newer."
    if not python:
        fail("TensorFlow: no python3 found; " + advice)
    probe = ctx.execute([python, "-c", _PROBE])
    if probe.return_code != 0:
        fail("TensorFlow: %s%s\n%s" % (probe.stdout, probe.stderr, advice))
    root = probe.stdout.strip()
    ctx.symlink(root + "/include", "include")
    for library in ["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"]:
        ctx.symlink(root + "/" + library, library)
    ctx.file("BUILD", """load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

package(default_visibility = ["//visibility:public"])

# The C API alone, and what its headers include.
cc_library(
    name = "c_api",
    hdrs = glob([
        "include/tensorflow/c/**/*.h",
        "include/tensorflow/core/common_runtime/next_pluggable_device/c/*.h",
        "include/tensorflow/core/platform/*.h",
        "include/tsl/platform/*.h",
        "include/xla/c/**/*.h",
        "include/xla/tsl/c/**/*.h",
        "include/xla/tsl/platform/*.h",
    ]),
    includes = ["include"],
)

# The C header of XLA's foreign functions, for a test.
cc_library(
    name = "xla_ffi",
    hdrs = ["include/xla/ffi/api/c_api.h"],
    includes = ["include"],
)

# The C++ headers, for :cc alone.
filegroup(
    name = "cc_headers",
    srcs = glob(["include/**"], exclude = ["include/external/**"]),
)

# TensorFlow as a C++ program links it. Nothing of the op library may depend on this: its ABI
# is that of one TensorFlow version.
cc_library(
    name = "cc",
    hdrs = [":cc_headers"],
    includes = ["include"],
    deps = [":cc_import", ":framework_import"],
)

cc_import(
    name = "cc_import",
    shared_library = "libtensorflow_cc.so.2",
)

cc_import(
    name = "framework_import",
    shared_library = "libtensorflow_framework.so.2",
)

exports_files(["libtensorflow_framework.so.2"])
""")

tensorflow_configure = repository_rule(
    implementation = _impl,
    environ = ["HASTE_PYTHON"],
    local = True,
    configure = True,
)
