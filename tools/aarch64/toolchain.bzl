"""GCC for aarch64 as Debian has it (g++-aarch64-linux-gnu), with the flags of Bazel's own GCC."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
    "with_feature_set",
)
load("@rules_cc//cc:defs.bzl", "CcToolchainConfigInfo", "cc_common")

_TARGET = "aarch64-linux-gnu"

_COMPILE = [
    ACTION_NAMES.assemble,
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
    ACTION_NAMES.preprocess_assemble,
]

_LINK = [
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _flags(actions, flags, mode = None):
    return flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode])] if mode else [],
    )

def _impl(ctx):
    tools = {
        "ar": "ar",
        "cpp": "cpp",
        "dwp": "dwp",
        "gcc": "gcc",  # compiles C and C++, by the file's name
        "gcov": "gcov",
        "ld": "ld",
        "nm": "nm",
        "objcopy": "objcopy",
        "objdump": "objdump",
        "strip": "strip",
    }
    optimised = ["-O2", "-g0", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"]
    same_bytes = [
        "-no-canonical-prefixes",
        "-fno-canonical-system-headers",
        "-Wno-builtin-macro-redefined",
        "-D__DATE__=\"redacted\"",
        "-D__TIMESTAMP__=\"redacted\"",
        "-D__TIME__=\"redacted\"",
    ]
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "glibc",
        abi_version = "gcc",
        compiler = "gcc",
        cxx_builtin_include_directories = [
            "/usr/lib/gcc-cross/" + _TARGET,
            "/usr/%s/include" % _TARGET,
        ],
        features = [
            feature(name = "opt"),
            feature(name = "dbg"),
            feature(name = "fastbuild"),
            feature(name = "supports_pic", enabled = True),
            feature(name = "supports_dynamic_linker", enabled = True),
            feature(
                name = "default_flags",
                enabled = True,
                flag_sets = [
                    _flags(_COMPILE, ["-fstack-protector", "-fno-omit-frame-pointer"] + same_bytes),
                    _flags(_COMPILE, optimised, "opt"),
                    _flags(_COMPILE, ["-g"], "dbg"),
                    _flags(_LINK, ["-pthread", "-Wl,-z,relro,-z,now"]),
                    # They come before what needs them.
                    _flags(_LINK, ["-Wl,--no-as-needed", "-lstdc++", "-lm"]),
                    _flags(_LINK, ["-Wl,--gc-sections"], "opt"),
                ],
            ),
        ],
        host_system_name = "local",
        target_cpu = "aarch64",
        target_libc = "glibc",
        target_system_name = _TARGET,
        tool_paths = [
            tool_path(name = name, path = "/usr/bin/%s-%s" % (_TARGET, tool))
            for name, tool in tools.items()
        ],
        toolchain_identifier = _TARGET,
    )

cross_toolchain_config = rule(implementation = _impl, provides = [CcToolchainConfigInfo])
