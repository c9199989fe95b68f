"""The project's own compile flags, and its engines: one translation unit a cell and dtype, or cell."""

load("//tools/bazel_rules:cuda_library.bzl", "cuda_library")

# No -march: lib/cpu picks its SIMD target at run time. No -ffast-math: NaN and infinity mean
# what they say.
# No contraction: which a * b + c becomes one instruction would differ between copies of a template,
# and with it the last bit between numbers of threads. MulAdd says where it is meant.
COPTS = ["-O3", "-fvisibility=hidden", "-ffp-contract=off", "-Wall"]

# Name in symbols and storage type, as HASTE_DTYPES of lib/engine.h has them.
TENSOR_DTYPES = [("f32", "float"), ("f16", "Half"), ("bf16", "Bfloat16")]
DTYPES = TENSOR_DTYPES + [("f64", "double")]

# float32 where TensorFloat-32 is allowed, for engines that tell it apart.
TENSOR_FLOAT = [("tf32", "TensorFloat")]

def _instances(engine, cells, dtypes):
    """[(target name, flags)] of an engine's translation units."""
    return [
        (
            "%s_%s_%s" % (engine, cell.lower(), dtype),
            ["-DHASTE_CELL=" + cell, "-DHASTE_DTYPE_NAME=" + dtype, "-DHASTE_T=" + type],
        )
        for cell in cells
        for dtype, type in dtypes
    ]

def cpu_engine(name, src, cells, deps = []):
    """Compiles `src` once for each cell and dtype."""
    instances = _instances(name, cells, DTYPES)
    for instance, flags in instances:
        native.cc_library(
            name = instance,
            srcs = [src],
            # foreach_target.h includes the source itself again, once a SIMD target.
            textual_hdrs = [src],
            copts = COPTS + flags,
            alwayslink = True,
            deps = deps,
        )
    native.cc_library(name = name, deps = [":" + i for i, _ in instances])

def cuda_engine(name, src, cells, dtypes, deps = [], capability = ""):
    """Compiles `src` with nvcc once for each cell and dtype; empty without a CUDA toolkit.

    dtypes: None where a cell's dtypes are one translation unit.
    capability: as cuda_library has it.
    """
    if dtypes:
        instances = _instances(name, cells, dtypes)
    else:
        instances = [("%s_%s" % (name, cell.lower()), ["-DHASTE_CELL=" + cell]) for cell in cells]
    for instance, flags in instances:
        cuda_library(
            name = instance,
            srcs = [src],
            copts = flags,
            capability = capability,
            deps = deps,
        )
    native.cc_library(name = name, deps = [":" + i for i, _ in instances])
