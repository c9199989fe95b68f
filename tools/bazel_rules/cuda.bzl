"""@local_cuda: the CUDA toolkit of this machine, or an empty one if there is none.

Looked for in $CUDA_HOME, else /usr/local/cuda, else where nvcc on the PATH lies.
$HASTE_NEED_CUDA: "1" no toolkit is an error, "0" the CPU half only, unset: whatever is there.
$HASTE_CUDA_ARCHS: the compute capabilities to compile for, "80,90" or "90a"; unset: all of
_ARCHS that this toolkit makes code for.

A toolkit may have a folder newer/ with ptxas and fatbinary of a later release (tools/cuda/
fetch_toolkit.sh makes such a one). Architectures that its nvcc does not know are then assembled
from PTX of 9.0.
"""

_OLDEST = (12, 2)

# One of each generation: what is compiled for 8.0 runs on 8.6 and 8.9 too, for 10.0 on 10.3, and
# for 12.0 on 12.1. GPUs that come after them compile PTX of 9.0.
_ARCHS = ["75", "80", "90", "100", "120"]

def _find_root(ctx):
    named = ctx.os.environ.get("CUDA_HOME", "")
    if named:
        if not ctx.path(named + "/bin/nvcc").exists:
            fail("CUDA_HOME=%s has no bin/nvcc." % named)
        return named
    if ctx.path("/usr/local/cuda/bin/nvcc").exists:
        return "/usr/local/cuda"
    nvcc = ctx.which("nvcc")
    root = nvcc.realpath.dirname.dirname if nvcc else None
    return str(root) if root and root.get_child("bin").get_child("nvcc").exists else None

def _check_version(ctx, nvcc):
    report = ctx.execute([nvcc, "--version"])
    parts = report.stdout.split(", release ")
    if report.return_code != 0 or len(parts) != 2:
        fail("%s --version: %s%s" % (nvcc, report.stdout, report.stderr))
    major, minor = parts[1].split(",")[0].split(".")
    if (int(major), int(minor)) < _OLDEST:
        fail(("CUDA %s.%s in %s is too old: %d.%d or newer is needed. Set CUDA_HOME to one, or " +
              "HASTE_NEED_CUDA=0 to build the CPU half only.") % ((major, minor, nvcc) + _OLDEST))

    # With the build numbers, so that a toolkit replaced in place counts as another one.
    assembler = ctx.execute([str(ctx.path(nvcc).dirname) + "/ptxas", "--version"]).stdout
    return "_".join([text.split(", V")[1].split("\n")[0] for text in [report.stdout, assembler] if ", V" in text])

def _list(ctx, command):
    """Capabilities that a program of the toolkit knows: ["75", "80", …]."""
    text = ctx.execute(command).stdout
    for separator in [",", "'", "\n"]:
        text = text.replace(separator, " ")
    return [word[len("sm_"):] for word in text.split(" ") if word.startswith("sm_")]

def _architectures(ctx, root):
    """What to compile for: (of nvcc, of the newer assembler)."""
    known = _list(ctx, [root + "/bin/nvcc", "--list-gpu-code"])
    newer = root + "/newer/ptxas"
    assembled = _list(ctx, [newer, "--help"]) if ctx.path(newer).exists else []
    assembled = [a for a in assembled if a.isdigit() and a not in known]
    named = [a for a in ctx.os.environ.get("HASTE_CUDA_ARCHS", "").replace(" ", ",").split(",") if a]
    archs = named or [a for a in _ARCHS if a in known + assembled]

    # nvcc does not list the variants 90a, 100f, … of what it lists.
    unknown = [a for a in archs if a.rstrip("af") not in known + assembled]
    if unknown:
        fail("HASTE_CUDA_ARCHS: the toolkit in %s does not know sm_%s; it knows %s." %
             (root, unknown[0], ", ".join(known + assembled)))
    if not archs:
        fail("The CUDA toolkit in %s makes code for none of %s." % (root, ", ".join(_ARCHS)))
    return [a for a in archs if a.rstrip("af") in known], [a for a in archs if a in assembled]

def _arch_flags(archs, assembled):
    """(compute capability, flag) for each; ptx: the architecture whose PTX newer GPUs compile."""
    if "90" in archs or assembled:
        ptx = "90"  # of plain 9.0: PTX of 9.0a runs on no other GPU
    else:
        plain = [int(a) for a in archs if a.isdigit()]
        ptx = str(max(plain)) if plain else ""
    flags = []
    for arch in archs:
        # All GPUs of compute capability 9.0 have what 9.0a adds: wgmma.
        code = "90a" if arch == "90" else arch
        made = "[sm_%s,compute_%s]" % (code, code) if arch == ptx and arch != "90" else "sm_" + code
        flags.append((code, "-gencode=arch=compute_%s,code=%s" % (code, made)))
    if ptx == "90":
        flags.append(("90", "-gencode=arch=compute_90,code=compute_90"))
    return flags, ptx

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/**"],
        allow_empty = True,
    ),
    includes = ["include"],
)

cc_import(
    name = "cudart_static",
    static_library = "libcudart_static.a",
)

cc_library(
    name = "cudart",
    # Its symbols are hidden, because the process may have another CUDA runtime.
    linkopts = ["-Wl,--exclude-libs,libcudart_static.a", "-ldl", "-lpthread", "-lrt"],
    deps = [":cudart_static", ":headers"],
)
"""

_NO_CUDA_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

cc_library(name = "cudart")
"""

def _impl(ctx):
    need = ctx.os.environ.get("HASTE_NEED_CUDA", "")
    if need not in ["", "0", "1"]:
        fail("HASTE_NEED_CUDA: expected 0, 1 or nothing, got " + need)
    root = None if need == "0" else _find_root(ctx)
    if not root:
        if need == "1":
            fail("HASTE_NEED_CUDA=1, but there is no CUDA toolkit; set CUDA_HOME to one.")
        ctx.file("BUILD", _NO_CUDA_BUILD)
        ctx.file("defs.bzl", "\n".join(["%s = %r" % each for each in [
            ("HAVE_CUDA", False),
            ("NVCC", ""),
            ("NVCC_FLAGS", []),
            ("ARCH_FLAGS", []),
            ("ASSEMBLED", []),
            ("NEWER", ""),
            ("ARCHITECTURES", ""),
        ]]) + "\n")
        return

    nvcc = root + "/bin/nvcc"
    version = _check_version(ctx, nvcc)
    libraries = [root + d for d in ["/lib64", "/lib", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"]]
    libraries = [d for d in libraries if ctx.path(d + "/libcudart_static.a").exists]
    if not libraries:
        fail("The CUDA toolkit in %s has no libcudart_static.a (Debian: libcudart-dev)." % root)
    ctx.symlink(libraries[0] + "/libcudart_static.a", "libcudart_static.a")
    if root != "/usr":  # the compiler finds headers in /usr anyway
        ctx.symlink(root + "/include", "include")
    ctx.file("BUILD", _BUILD)
    archs, assembled = _architectures(ctx, root)
    newer = ["-DHASTE_NEWER_PTXAS"] if ctx.path(root + "/newer/ptxas").exists else []
    flags, ptx = _arch_flags(archs, assembled)
    names = [arch for arch, _ in flags if arch != "90"] + assembled
    ctx.file("defs.bzl", "\n".join(["%s = %r" % each for each in [
        ("HAVE_CUDA", True),
        ("NVCC", nvcc),
        ("NVCC_FLAGS", ["-DHASTE_NVCC_VERSION=" + version] + newer),
        ("ARCH_FLAGS", flags),  # (compute capability, flag)
        ("ASSEMBLED", assembled),
        ("NEWER", root + "/newer"),
        ("ARCHITECTURES", " ".join(names + (["compute_" + ptx] if ptx else []))),
    ]]) + "\n")

cuda_configure = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME", "HASTE_CUDA_ARCHS", "HASTE_NEED_CUDA"],
    local = True,
    configure = True,
)
