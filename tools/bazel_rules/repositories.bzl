"""The external repositories, each made from folders of this machine: nothing is downloaded."""

load("//tools/bazel_rules:cuda.bzl", "cuda_configure")
load("//tools/bazel_rules:highway.bzl", "highway_configure")
load("//tools/bazel_rules:symbol_floor.bzl", "floor_configure")
load("//tools/bazel_rules:tensorflow.bzl", "tensorflow_configure")

def haste_keras_repositories():
    """Defines all that the targets of this repository need, here or in another workspace."""
    cuda_configure(name = "local_cuda")
    floor_configure(name = "local_floor")
    highway_configure(name = "local_highway")
    tensorflow_configure(name = "local_tensorflow")
