#!/usr/bin/env bash
# Prints the compute capabilities of this machine's NVIDIA GPUs, as CUDA_ARCHS has them: "80 90a";
# "none" where there is no GPU.
set -euo pipefail
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  grep -E '^[0-9]+\.[0-9]+$' | tr -d . | sed 's/^90$/90a/' | sort -u | paste -sd ' ' || true)
echo "${archs:-none}"
