"""Stand-ins for the archives that Bazel itself would download before its first action.

Bazel up to 6 loads @rules_cc for its own C++ toolchain, @rules_java beside it, and
@remote_coverage_tools for any test. A C++ build needs only the names, which the rules built
into Bazel answer. From Bazel 7 on those rules are no longer built in, and the real archives
are left to Bazel.
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

def _rules_cc_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file("cc/BUILD", """package(default_visibility = ["//visibility:public"])
exports_files(["defs.bzl"])
alias(name = "toolchain_type", actual = "@bazel_tools//tools/cpp:toolchain_type")
alias(name = "current_cc_toolchain", actual = "@bazel_tools//tools/cpp:current_cc_toolchain")
""")
    ctx.file("cc/defs.bzl", _forwards(_CC_RULES))

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
    """Defines the stubs where this Bazel can do with them."""
    if int(native.bazel_version.split(".")[0] or "0") > 6:
        return
    _rules_cc_stub(name = "rules_cc")
    _rules_java_stub(name = "rules_java")
    _coverage_stub(name = "remote_coverage_tools")
