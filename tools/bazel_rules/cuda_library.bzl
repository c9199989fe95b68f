"""cuda_library: CUDA C++ compiled by nvcc, linked like any cc_library."""

load("@local_cuda//:defs.bzl", _ARCHITECTURES = "ARCHITECTURES", _HAVE_CUDA = "HAVE_CUDA", "ARCH_FLAGS", "ASSEMBLED", "NEWER", "NVCC", "NVCC_FLAGS")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common", "cc_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain")

HAVE_CUDA = _HAVE_CUDA

# The architectures that the CUDA half is compiled for, as text.
ARCHITECTURES = _ARCHITECTURES

# Defined for programs that link the CUDA half.
CUDA_DEFINES = ["HASTE_HAVE_CUDA=1"] if HAVE_CUDA else []

_FLAGS = [
    "-x",
    "cu",
    "-c",
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "-cudart=static",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-O3",
    # LZ4, which every driver that runs this can read. It is unpacked when a kernel is first used.
    "-Xfatbin=-compress-all",
]

def _arch_flags(capability):
    """Flags for the GPUs that run the code. If none does, for all GPUs, so that programs link."""
    flags = [
        flag
        for arch, flag in ARCH_FLAGS
        if arch == capability or (capability.isdigit() and int(arch.rstrip("af")) >= int(capability))
    ]
    return flags or [flag for _, flag in ARCH_FLAGS]

def _is_for_newer(capability):
    """Whether the code is also for the GPUs that only the newer assembler knows."""
    return bool(ASSEMBLED) and (not capability or capability.isdigit())

def _cuda_library_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps])
    context = deps.compilation_context
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, source.basename))
        # A header that a unit does not include does not cause a rebuild.
        unused = ctx.actions.declare_file("_nvcc/%s/%s.unused" % (ctx.label.name, source.basename))
        headers = ctx.actions.args()
        headers.add_all(context.headers)
        headers.set_param_file_format("multiline")
        headers.use_param_file("--headers=%s", use_always = True)
        args = ctx.actions.args()
        args.add("--unused", unused)
        if _is_for_newer(ctx.attr.capability):
            args.add("--newer", NEWER)
            args.add("--add", ",".join(ASSEMBLED))
        args.add("--")
        args.add(NVCC)
        args.add_all(_FLAGS)
        args.add_all(_arch_flags(ctx.attr.capability))
        args.add_all(NVCC_FLAGS)
        args.add("-ccbin", toolchain.compiler_executable)
        args.add_all(ctx.attr.copts)
        args.add_all(context.defines, format_each = "-D%s")
        args.add_all(context.quote_includes, before_each = "-I")
        args.add_all(context.includes, before_each = "-I")
        args.add_all(context.system_includes, before_each = "-isystem")
        args.add(source)
        args.add("-o", object)
        ctx.actions.run(
            executable = ctx.executable._compile,
            arguments = [headers, args],
            inputs = depset([source], transitive = [context.headers, toolchain.all_files]),
            outputs = [object, unused],
            unused_inputs_list = unused,
            mnemonic = "Nvcc",
            progress_message = "Compiling %s with nvcc (%s)" % (source.short_path, ctx.label.name),
            use_default_shell_env = True,
        )
        objects.append(object)
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [deps.linking_context],
        alwayslink = True,
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = context, linking_context = linking),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cu.cc"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "capability": attr.string(),
        "_compile": attr.label(
            default = "//tools/cuda:nvcc.py",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
        "_cc_toolchain": attr.label(default = "@rules_cc//cc:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs, deps = [], copts = [], capability = "", **kwargs):
    """A library of .cu.cc files; an empty one where no CUDA toolkit is configured.

    capability: compiled for GPUs of this compute capability and newer, or, "90a", for these alone.
    """
    if HAVE_CUDA and srcs:
        _cuda_library(
            name = name,
            srcs = srcs,
            deps = deps + ["@local_cuda//:cudart"],
            copts = copts,
            capability = capability,
            **kwargs
        )
    else:
        cc_library(name = name, **kwargs)
