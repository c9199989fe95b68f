#!/usr/bin/env bash
# Runs Bazel, whichever is there, with the flags that its version and the settings below ask for.
#   run_bazel.sh COMMAND [ARGUMENT...]
# BAZEL        the Bazel to run; unset: bazel, bazelisk or Debian's bazel-4, the first that is there
# CUDA_ARCHS   what the CUDA half is compiled for: "80 90", "all", or "none" for the CPU half alone;
#              unset: the GPUs of this machine
# CUDA_HOME    the CUDA toolkit; unset: /usr/local/cuda, or nvcc on the PATH, or a fetched one
# CPU_TARGETS  "all": code for every x86-64 processor; unset: for this machine's and the oldest
# MANYLINUX    "2_17": libraries that run on glibc 2.17 and newer; unset: on this machine's
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
if [ "$command" = shutdown ]; then exec "$bazel" shutdown "$@"; fi # it takes none of these flags
flags=()
major=$("$bazel" --version | sed -n 's/^bazel \([0-9]*\)\..*/\1/p')
# Bazel 7 and newer read MODULE.bazel. Bazel 7 would read WORKSPACE too.
if [ "${major:-0}" -ge 7 ]; then flags+=(--lockfile_mode=off); fi
if [ "${major:-0}" -eq 7 ]; then flags+=(--noenable_workspace); fi

archs=${CUDA_ARCHS:-$(tools/cuda/local_archs.sh)}
what="the CPU half (there is no NVIDIA GPU, or CUDA_ARCHS=none): a first time takes 4 to 6 minutes on two cores"
if [ "$archs" = none ]; then
  flags+=(--repo_env=HASTE_NEED_CUDA=0)
else
  what="both halves, CUDA code for $archs: a first time takes some 15 minutes on two cores, 50 for all"
  toolkit=.toolchain/cuda
  if [ -z "${CUDA_HOME:-}" ] && ! [ -x /usr/local/cuda/bin/nvcc ] && ! command -v nvcc >/dev/null; then
    tools/cuda/fetch_toolkit.sh "$toolkit"
    export CUDA_HOME=$PWD/$toolkit
  fi
  flags+=(--repo_env=HASTE_NEED_CUDA=1)
  if [ "$archs" != all ]; then flags+=("--repo_env=HASTE_CUDA_ARCHS=${archs// /,}"); fi
  if [ -n "${CUDA_HOME:-}" ]; then flags+=("--repo_env=CUDA_HOME=$CUDA_HOME"); fi
fi
case ${CPU_TARGETS:-native} in
  all) ;;
  native) if [ "$(uname -m)" = x86_64 ]; then flags+=("--copt=$(tools/native_simd.sh)"); fi ;;
  *)
    echo "CPU_TARGETS: expected native or all, got $CPU_TARGETS." >&2
    exit 1
    ;;
esac
if [ -n "${MANYLINUX:-}" ]; then flags+=("--repo_env=HASTE_MANYLINUX=$MANYLINUX"); fi
if [ -n "${HASTE_PYTHON:-}" ]; then flags+=("--repo_env=HASTE_PYTHON=$HASTE_PYTHON"); fi
if [ "$command" = build ]; then echo "==> building $what"; fi
exec "$bazel" "$command" "${flags[@]}" "$@"
