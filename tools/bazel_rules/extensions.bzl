"""The external repositories for MODULE.bazel. Bazel 4 cannot load this file: it has no modules."""

load("//tools/bazel_rules:repositories.bzl", "haste_keras_repositories")

def _impl(ctx):
    haste_keras_repositories()

    # The rules look at the machine themselves; nothing about them belongs in a lock file.
    return ctx.extension_metadata(reproducible = True)

local_repositories = module_extension(implementation = _impl)
