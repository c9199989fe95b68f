#!/usr/bin/env bash
# Runs Bazel, whichever is there, with the flags that its version and the settings below ask for.
#   run_bazel.sh COMMAND [ARGUMENT...]
# BAZEL       the Bazel to run; unset: bazel, bazelisk or Debian's bazel-4, the first that is there
# CUDA_ARCHS  compute capabilities to compile for, such as "90" or "80 90"; unset: see cuda.bzl
set -euo pipefail
cd "$(dirname "$0")/.."

bazel=${BAZEL:-}
for candidate in bazel bazelisk bazel-4; do
  if [ -z "$bazel" ]; then bazel=$(command -v "$candidate" || true); fi
done
if [ -z "$bazel" ]; then
  echo "No Bazel found: run 'make deps', or set BAZEL." >&2
  exit 1
fi

command=$1
shift
flags=()
major=$("$bazel" --version | sed -n 's/^bazel \([0-9]*\)\..*/\1/p')
if [ "${major:-0}" -ge 7 ]; then flags+=(--noenable_bzlmod); fi
if [ "${major:-0}" -ge 8 ]; then flags+=(--enable_workspace); fi
if [ -n "${CUDA_ARCHS:-}" ]; then flags+=("--repo_env=HASTE_CUDA_ARCHS=${CUDA_ARCHS// /,}"); fi
if [ -n "${HASTE_PYTHON:-}" ]; then flags+=("--repo_env=HASTE_PYTHON=$HASTE_PYTHON"); fi
exec "$bazel" "$command" "${flags[@]}" "$@"
