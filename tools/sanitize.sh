#!/usr/bin/env bash
# Runs tests/gpu/engines/test_small.py under compute-sanitizer; fails where one of its tools finds
# anything.
#   sanitize.sh PYTHON [arguments of pytest]
# PYTHON has torch, and nvidia-cuda-sanitizer-api unless COMPUTE_SANITIZER names the program: that
# of CUDA 13.5 or later, as racecheck of earlier ones takes named barriers and clusters for races.
# TOOLS: those to run, if not all. (initcheck would find nothing: the tests fill all memory with NaN.)
set -euo pipefail
python=$(command -v "${1:?usage: sanitize.sh PYTHON [arguments of pytest]}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
shift
cd "$(dirname "$0")/.."

sanitizer=${COMPUTE_SANITIZER:-}
if [ -z "$sanitizer" ]; then
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  sanitizer=$packages/nvidia/cu13/compute-sanitizer/compute-sanitizer
fi
if ! command -v "$sanitizer" > /dev/null; then
  echo "No program $sanitizer: pip install nvidia-cuda-sanitizer-api, or set COMPUTE_SANITIZER." >&2
  exit 1
fi
version=$("$sanitizer" --version | sed -n 's/^Version \([0-9]*\.[0-9]*\).*/\1/p')
if [ "$(printf '%s\n' 2026.4 "$version" | sort -V | head -n 1)" != 2026.4 ]; then
  echo "$sanitizer is version $version; racecheck needs 2026.4 (CUDA 13.5) or later." >&2
  exit 1
fi

export HASTE_REQUIRE_GPU=1
export PYTORCH_NO_CUDA_MEMORY_CACHING=1 # or memcheck sees torch's large blocks, and no tensor's end
status=0
capability=$("$python" -c 'import torch; print(torch.cuda.get_device_capability()[0])')
for tool in ${TOOLS:-memcheck synccheck racecheck}; do
  echo "==> $tool"
  left_out=()
  # Before 9.0, warps of a scan exchange words whose bits show that they have arrived.
  if [ "$tool" = racecheck ] && [ "$capability" -lt 9 ]; then
    left_out=(--deselect tests/gpu/engines/test_small.py::test_scan)
  fi
  "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    --kernel-name kernel_substring=haste "$python" -m pytest -q tests/gpu/engines/test_small.py \
    "${left_out[@]}" "$@" || status=1
done
exit $status
