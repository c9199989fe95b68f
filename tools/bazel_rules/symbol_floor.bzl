"""Shared libraries that load on systems older than the one that they are linked on.

$HASTE_MANYLINUX names the oldest glibc as a manylinux tag does, "2_17"; unset: libraries need this
machine's. For @local_floor stubs of the system's libraries are made (tools/symbol_floor.py), for
this machine and for aarch64 where there is a cross compiler. A shared library adds FLOOR_LINKOPTS,
FLOOR_INPUTS and FLOOR_DEPS, which @local_floor//:defs.bzl has; empty where nothing is asked.
"""

_CROSS = "aarch64-linux-gnu-gcc"

_BUILD = """package(default_visibility = ["//visibility:public"])

config_setting(
    name = "for_aarch64",
    constraint_values = ["@platforms//cpu:aarch64"],
)

[filegroup(
    name = folder,
    srcs = glob([folder + "/*"]),
) for folder in %r]
"""

_EMPTY = """FLOOR_LINKOPTS = []
FLOOR_INPUTS = []
FLOOR_DEPS = []
"""

# The former parts of libc are named even if ld sees no use of them, because their symbols are in the
# stub of libc.
_DEFS = """_COMMON = [
    "-Wl,-z,defs",
    # Drops unused parts of libstdc++.a, and with them their use of glibc.
    "-Wl,--gc-sections",
    "-Wl,--push-state,--no-as-needed",
    "-lpthread",
    "-ldl",
    "-lrt",
    "-Wl,--pop-state",
]
FLOOR_LINKOPTS = select({linkopts}) + _COMMON
FLOOR_INPUTS = select({inputs})
FLOOR_DEPS = ["@haste_keras//lib/floor:compat"]
"""

def _impl(ctx):
    tag = ctx.os.environ.get("HASTE_MANYLINUX", "")
    if not tag:
        ctx.file("BUILD", "")
        ctx.file("defs.bzl", _EMPTY)
        return
    compilers = {"host": ctx.os.environ.get("CC", "gcc")}
    conditions = {"host": "//conditions:default"}
    if ctx.which(_CROSS):
        compilers["aarch64"] = _CROSS
        conditions["aarch64"] = "@local_floor//:for_aarch64"
    for folder, compiler in compilers.items():
        command = ["python3", ctx.path(Label("//tools:symbol_floor.py")), "stubs", tag, folder]
        made = ctx.execute(command + ["--cc", compiler])
        if made.return_code != 0:
            fail("HASTE_MANYLINUX=%s: %s%s" % (tag, made.stdout, made.stderr))
    linkopts = {c: ["-Lexternal/%s/%s" % (ctx.name, f)] for f, c in conditions.items()}
    inputs = {c: ["@local_floor//:" + f] for f, c in conditions.items()}
    folders = conditions.keys()
    ctx.file("BUILD", _BUILD % folders)
    ctx.file("defs.bzl", _DEFS.format(
        inputs = repr(inputs),
        linkopts = repr(linkopts),
    ))

floor_configure = repository_rule(
    implementation = _impl,
    environ = ["CC", "HASTE_MANYLINUX"],
    local = True,
    configure = True,
)
