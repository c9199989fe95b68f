#!/usr/bin/env bash
# Packs the libraries of a source tree that `make build` has filled into wheels in dist/:
# haste_keras, and haste_keras_cuda where there is a libhaste_cuda.so.
#   build_wheel.sh PYTHON [PLATFORM]
# PLATFORM  the tag, such as manylinux_2_27_x86_64, which the libraries must be fit for; without it,
#           this machine's
# LIBRARIES the folder with the libraries, if not haste_keras
set -euo pipefail
python=$(realpath -s "$1")
export HASTE_WHEEL_PLATFORM=${2:-}
cd "$(dirname "$0")/.."
libraries=$(realpath "${LIBRARIES:-haste_keras}")
# manylinux_2_17_x86_64 promises that nothing newer than glibc 2.17 is needed.
if [[ $HASTE_WHEEL_PLATFORM =~ ^manylinux_([0-9]+_[0-9]+)_ ]]; then
  "$python" tools/symbol_floor.py check "${BASH_REMATCH[1]}" "$libraries"/*.so
fi
# The time of the entries of wheels is that of the source, not of the packing.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}

# stage NAME: a new folder with the files that both wheels share.
stage() {
  local folder=build/wheel/$1
  rm -rf "$folder"
  mkdir -p "$folder/lib/include"
  cp -r lib/include/haste "$folder/lib/include"
  cp LICENSE tools/wheel/platform_wheel.py "$folder"
  echo "$folder"
}

# pack FOLDER NAME: dist/NAME-*.whl of a staged folder, the same bytes each time.
pack() {
  local scratch wheel
  find "$1" -name __pycache__ -prune -exec rm -r {} +
  scratch=$(mktemp -d)
  "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$scratch" "./$1"
  wheel=$(ls "$scratch"/*.whl)
  "$python" tools/release/normalise_wheel.py "$wheel"
  rm -f "dist/$2"-*-"${wheel##*-}" # of other versions
  mv "$wheel" dist
  rm -r "$scratch"
}

mkdir -p dist
folder=$(stage haste_keras)
cp -r setup.py pyproject.toml README.md haste_keras "$folder"
rm -f "$folder"/haste_keras/*.so
cp "$libraries"/libhaste.so "$libraries"/libhaste_ops.so "$libraries"/libhaste_xla.so "$folder/haste_keras"
pack "$folder" haste_keras

if [ -e "$libraries/libhaste_cuda.so" ]; then
  folder=$(stage cuda)
  cp -r tools/wheel/cuda/. "$folder"
  cp "$libraries/libhaste_cuda.so" "$folder/haste_keras_cuda"
  pack "$folder" haste_keras_cuda
fi
ls -l dist/*.whl
