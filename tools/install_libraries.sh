#!/usr/bin/env bash
# Copies what Bazel built for the Python package from bazel-bin into haste_keras/, which makes
# the source tree importable. Unchanged files keep their time; libraries that were not built are removed.
set -euo pipefail
cd "$(dirname "$0")/.."

built=bazel-bin/haste_keras
mapfile -t libraries <"$built/libraries.txt"
for there in haste_keras/*.so; do
  if [ -e "$there" ] && ! printf '%s\n' "${libraries[@]}" | grep -qx "${there##*/}"; then rm "$there"; fi
done
install -C -m 755 "${libraries[@]/#/$built/}" haste_keras
