"""Stand-ins for the archives that Bazel 4 to 6 would download before their first action.

They load @rules_cc for their own C++ toolchain, @rules_java for their Java toolchain, and
@remote_coverage_tools for any test. Their C++ rules are built in, so a C++ build needs the names
alone. Bazel 7 and newer take the real @rules_cc: MODULE.bazel.
"""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_alias",
    "cc_toolchain_suite",
    "fdo_prefetch_hints",
    "fdo_profile",
    "objc_import",
    "objc_library",
]

_CC_SYMBOLS = ["CcInfo", "CcToolchainConfigInfo", "cc_common"]

# Other files of @rules_cc: {file: (Bazel's own file, {name there: name in @rules_cc})}.
_CC_FILES = {
    "action_names": ("@bazel_tools//tools/build_defs/cc:action_names.bzl", {"ACTION_NAMES": "ACTION_NAMES"}),
    "cc_toolchain_config_lib": (
        "@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl",
        {n: n for n in ["feature", "flag_group", "flag_set", "tool_path", "with_feature_set"]},
    ),
    "find_cc_toolchain": (
        "@bazel_tools//tools/cpp:toolchain_utils.bzl",
        {"find_cpp_toolchain": "find_cc_toolchain"},
    ),
}

_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_lite_proto_library",
    "java_package_configuration",
    "java_plugin",
    "java_proto_library",
    "java_runtime",
    "java_test",
    "java_toolchain",
]

def _forwards(rules):
    return "\n".join(["def %s(**kwargs):\n    native.%s(**kwargs)\n" % (r, r) for r in rules])

def _reexport(ctx, file, source, names, more = ""):
    """Writes cc/`file`.bzl, which loads `source` and renames its symbols by `names`."""
    loads = ", ".join(["_%s = %r" % (new, old) for old, new in names.items()])
    text = "load(%r, %s)\n" % (source, loads)
    ctx.file("cc/%s.bzl" % file, text + "".join(["%s = _%s\n" % (n, n) for n in names.values()]) + more)

def _rules_cc_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file("cc/BUILD", """package(default_visibility = ["//visibility:public"])
alias(name = "toolchain_type", actual = "@bazel_tools//tools/cpp:toolchain_type")
alias(name = "current_cc_toolchain", actual = "@bazel_tools//tools/cpp:current_cc_toolchain")
""")

    # A file of its own, because no file can bind a name that it also reads from Bazel.
    ctx.file("cc/native.bzl", "\n".join(["native_%s = %s" % (s, s) for s in _CC_SYMBOLS]))
    _reexport(ctx, "defs", "//cc:native.bzl", {"native_" + s: s for s in _CC_SYMBOLS}, _forwards(_CC_RULES))
    for file, (source, names) in _CC_FILES.items():
        _reexport(ctx, file, source, names)

def _rules_java_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file("java/BUILD", "exports_files([\"defs.bzl\"])\n")
    ctx.file("java/defs.bzl", _forwards(_JAVA_RULES))

def _coverage_impl(ctx):
    ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
filegroup(name = "coverage_report_generator")
filegroup(name = "lcov_merger")
""")

_rules_cc_stub = repository_rule(implementation = _rules_cc_impl, local = True)
_rules_java_stub = repository_rule(implementation = _rules_java_impl, local = True)
_coverage_stub = repository_rule(implementation = _coverage_impl, local = True)

def offline_stubs():
    """Defines the stubs where Bazel has the C++ rules built in."""
    if int(native.bazel_version.split(".")[0] or "0") > 6:
        return
    _rules_cc_stub(name = "rules_cc")
    _rules_java_stub(name = "rules_java")
    _coverage_stub(name = "remote_coverage_tools")
