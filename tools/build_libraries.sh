#!/usr/bin/env bash
# Builds the libraries of wheels, for every machine, into a folder of their own.
#   build_libraries.sh FOLDER [BAZEL ARGUMENT...]
# Settings: those of run_bazel.sh, and STRIP, the program (unset: strip). CUDA code is compiled by the toolkit that fetch_toolkit.sh
# fetches, unless CUDA_HOME names one.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift

if [ "${CUDA_ARCHS:-all}" != none ] && [ -z "${CUDA_HOME:-}" ]; then
  tools/cuda/fetch_toolkit.sh .toolchain/cuda
  export CUDA_HOME=$PWD/.toolchain/cuda
fi
tools/run_bazel.sh build "$@" //haste_keras:libraries
rm -rf "$folder"
mkdir -p "$folder"
mapfile -t libraries <bazel-bin/haste_keras/libraries.txt
install -m 755 "${libraries[@]/#/bazel-bin/haste_keras/}" "$folder"
# Strips the symbols of internal functions, which are most of the symbol table.
"${STRIP:-strip}" --strip-unneeded "$folder"/*.so
