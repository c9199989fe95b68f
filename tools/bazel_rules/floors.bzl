"""The order of the folders of lib/: each may use those before it, and none after it."""

# Folders on one line do not use each other.
_FLOORS = [
    ["lib/include"],
    ["lib/base"],
    ["lib/cells"],
    ["lib/plan/costs"],
    ["lib/plan/engines", "lib/plan/gemm"],
    ["lib/plan"],
    ["lib/engine"],
    ["lib/cpu/simd", "lib/cpu/threads"],
    ["lib/cpu/narrow"],
    ["lib/cpu/product"],
    ["lib/cpu/engines"],
    ["lib/cpu", "lib/cuda/host"],
    ["lib/cuda/ptx"],
    ["lib/cuda/gemm", "lib/cuda/ops"],
    ["lib/cuda/cell"],
    [
        "lib/cuda/blas",
        "lib/cuda/block",
        "lib/cuda/persistent",
        "lib/cuda/scan",
        "lib/cuda/stepwise",
        "lib/cuda/tiled",
    ],
    ["lib/cuda/layer_norm"],
    ["lib/cuda/registry"],
    ["lib/cuda/overlap"],
    ["lib/cuda"],
    ["lib/api"],
    ["lib"],
]

# These may use all folders of lib/, and none of lib/ may use them.
_BESIDE = ["//benchmarks:__subpackages__", "//tests:__subpackages__"]

def above(folder):
    """The visibility of what `folder` holds: every folder above it, tests and benchmarks."""
    visible = None
    for floor in _FLOORS:
        if visible != None:
            visible += ["//%s:__pkg__" % each for each in floor]
        if folder in floor:
            visible = []
    if visible == None:
        fail("floors.bzl does not name " + folder)
    return visible + _BESIDE
