"""The tests of a folder under tests/lib."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//tools/bazel_rules:haste.bzl", "COPTS")

def tests(deps):
    """One test a file *_test.cc; each is a main() that returns non-zero when something is wrong."""
    for source in native.glob(["*_test.cc"]):
        cc_test(
            name = source[:-len(".cc")],
            size = "small",
            srcs = [source] + native.glob(
                ["*.h"],
                allow_empty = True,
            ),
            copts = COPTS,
            linkstatic = True,
            deps = deps,
        )
