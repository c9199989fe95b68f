#!/usr/bin/env bash
# Cross-compiles the libraries' CPU half for aarch64 and runs its C++ tests under qemu.
#   test_aarch64.sh [BAZEL ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

export CUDA_ARCHS=none CPU_TARGETS=all
tools/install_deps.sh aarch64
exec tools/run_bazel.sh test --config=aarch64 "$@" \
  //lib:libhaste.so //frameworks/tf:libhaste_ops.so //tests/lib/...
