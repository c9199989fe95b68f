"""The external repositories, each a folder of this machine: nothing here downloads."""

load("//tools/bazel_rules:cuda.bzl", "cuda_configure")
load("//tools/bazel_rules:highway.bzl", "highway_configure")
load("//tools/bazel_rules:symbol_floor.bzl", "floor_configure")
load("//tools/bazel_rules:tensorflow.bzl", "tensorflow_configure")

def haste_keras_repositories():
    """What the targets of this workspace need; for other workspaces that use them too."""
    cuda_configure(name = "local_cuda")
    floor_configure(name = "local_floor")
    highway_configure(name = "local_highway")
    tensorflow_configure(name = "local_tensorflow")
