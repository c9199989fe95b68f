#!/usr/bin/env bash
# Runs tests/gpu/test_small.py under every tool of compute-sanitizer; fails where one finds anything.
#   sanitize.sh PYTHON [arguments of pytest]
# PYTHON has torch, and nvidia-cuda-sanitizer-api unless COMPUTE_SANITIZER names the program: that
# of CUDA 13.5 or later, as racecheck of earlier ones takes named barriers and clusters for races.
# TOOLS: those to run, if not all.
set -euo pipefail
python=$1
shift
cd "$(dirname "$0")/.."

sanitizer=${COMPUTE_SANITIZER:-}
if [ -z "$sanitizer" ]; then
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  sanitizer=$packages/nvidia/cu13/compute-sanitizer/compute-sanitizer
fi
if ! [ -e "$sanitizer" ]; then
  echo "No $sanitizer: pip install nvidia-cuda-sanitizer-api, or set COMPUTE_SANITIZER." >&2
  exit 1
fi
[ -x "$sanitizer" ] || chmod -R u+x "$(dirname "$sanitizer")"  # which the package forgets
version=$("$sanitizer" --version | sed -n 's/^Version \([0-9]*\.[0-9]*\).*/\1/p')
if [ "$(printf '%s\n' 2026.4 "$version" | sort -V | head -n 1)" != 2026.4 ]; then
  echo "$sanitizer is version $version; racecheck needs 2026.4 (CUDA 13.5) or later." >&2
  exit 1
fi

for tool in ${TOOLS:-memcheck initcheck synccheck racecheck}; do
  echo "==> $tool"
  HASTE_REQUIRE_GPU=1 "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    --kernel-name kernel_substring=haste "$python" -m pytest -q tests/gpu/test_small.py "$@"
done
