#!/usr/bin/env bash
# Prints the compiler flag that leaves out the SIMD targets of lib/cpu that this machine does not
# choose: its best one is compiled, and the baseline, which runs everywhere.
set -euo pipefail
has() {
  local feature
  for feature in "$@"; do
    if ! grep -m1 '^flags' /proc/cpuinfo | grep -qw "$feature"; then return 1; fi
  done
}
target=HWY_SCALAR
if has avx2 fma bmi1 bmi2 f16c; then
  target=HWY_AVX2
  if has avx512f avx512cd avx512dq avx512bw avx512vl; then target=HWY_AVX3; fi
fi
echo "-DHASTE_NATIVE_TARGET=$target"
