"""The project's own compile flags, its shared libraries, and its engines: translation units of a
cell and some dtypes."""

load("@local_floor//:defs.bzl", "FLOOR_DEPS", "FLOOR_INPUTS", "FLOOR_LINKOPTS")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("//tools/bazel_rules:cuda_library.bzl", "cuda_library")

# No -march: lib/cpu chooses its SIMD target at run time. No -ffast-math: NaN and infinity are kept.
# No contraction of a * b + c into one instruction: it would differ between copies of a template, and
# the last bit would depend on the number of threads. MulAdd is used where it is wanted.
COPTS = ["-O3", "-fvisibility=hidden", "-ffp-contract=off", "-Wall"]

def shared_library(name, deps, linkopts = [], additional_linker_inputs = []):
    """A library that exports the C ABI (lib/api/exports.lds) and nothing else.

    It stays in memory after dlclose, because threads run its code: its own, and those of a pool
    that still have a task of it in their queue.
    """
    cc_binary(
        name = name,
        additional_linker_inputs = ["//lib/api:exports.lds"] + additional_linker_inputs + FLOOR_INPUTS,
        linkopts = [
            "-Wl,-soname," + name,
            "-Wl,-Bsymbolic-functions",
            "-Wl,-z,nodelete",
            "-Wl,--version-script=$(location //lib/api:exports.lds)",
        ] + linkopts + FLOOR_LINKOPTS,
        linkshared = True,
        deps = deps + FLOOR_DEPS,
    )

# Name in symbols and storage type, as HASTE_DTYPES of lib/base/dtypes.h has them.
_DTYPES = [("f32", "float"), ("f16", "Half"), ("bf16", "Bfloat16"), ("f64", "double")]

def cpu_engine(name, src, cells, deps = []):
    """Compiles `src` once for each cell and dtype."""
    instances = [
        (
            "%s_%s_%s" % (name, cell.lower(), dtype),
            ["-DHASTE_CELL=" + cell, "-DHASTE_DTYPE_NAME=" + dtype, "-DHASTE_T=" + type],
        )
        for cell in cells
        for dtype, type in _DTYPES
    ]
    for instance, flags in instances:
        cc_library(
            name = instance,
            srcs = [src],
            # foreach_target.h includes the source itself again, once a SIMD target.
            textual_hdrs = [src],
            copts = COPTS + flags,
            alwayslink = True,
            deps = deps,
        )
    cc_library(name = name, deps = [":" + i for i, _ in instances])

def cuda_engine(name, src, cells, units, deps = [], capability = ""):
    """Compiles `src` with nvcc once for each cell and unit; empty without a CUDA toolkit.

    units: groups of dtypes, as lib/cuda/cell/engine_table.h names them: "16" for HASTE_UNIT_16.
    capability: as cuda_library has it.
    """
    instances = [(cell, unit, "%s_%s_%s" % (name, cell.lower(), unit.lower())) for cell in cells for unit in units]
    for cell, unit, instance in instances:
        cuda_library(
            name = instance,
            srcs = [src],
            copts = ["-DHASTE_CELL=" + cell, "-DHASTE_UNIT=HASTE_UNIT_" + unit],
            capability = capability,
            deps = deps,
        )
    cc_library(name = name, deps = [":" + instance for _, _, instance in instances])
