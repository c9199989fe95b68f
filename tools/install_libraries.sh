#!/usr/bin/env bash
# Copies what Bazel built for the Python package from bazel-bin into haste_keras/, which makes
# the source tree importable. Unchanged files keep their time.
set -euo pipefail
cd "$(dirname "$0")/.."

built=bazel-bin/haste_keras
mkdir -p haste_keras/shims
install -C -m 755 "$built/libhaste.so" "$built/libhaste_ops.so" haste_keras
# The shim of the TensorFlow that was built for, and no older one.
for shim in haste_keras/shims/*.so; do
  if ! [ -e "$built/shims/${shim##*/}" ]; then rm -f "$shim"; fi
done
install -C -m 755 "$built"/shims/*.so haste_keras/shims
