#!/usr/bin/env bash
# Compiles frameworks/tf/shim.cc against the C++ headers of one TensorFlow version.
#   build_shim.sh SHIM_CC TENSORFLOW_INCLUDE OUTPUT
# Fails if the result asks TensorFlow for a symbol: a shim is inline and virtual calls only.
set -euo pipefail
source=$1 include=$2 output=$3

# TensorFlow's own wheels are built with this alignment; it is part of Eigen's ABI.
"${CXX:-g++}" -std=c++17 -O2 -DNDEBUG -DEIGEN_MAX_ALIGN_BYTES=64 -w \
  -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections \
  -isystem "$include" -shared -Wl,--gc-sections -s \
  "$source" -o "$output"

undefined=$(nm -DC --undefined-only "$output" | grep -E 'tensorflow::|tsl::|xla::|stream_executor::|absl::|Eigen::|\bTF_' || true)
if [ -n "$undefined" ]; then
  echo "$source against $include is not self-contained; it asks TensorFlow for:" >&2
  echo "$undefined" >&2
  rm -f "$output"
  exit 1
fi
