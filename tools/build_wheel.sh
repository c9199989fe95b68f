#!/usr/bin/env bash
# Packs dist/haste_keras-*-py3-none-*.whl out of a source tree that `make build` has filled.
#   build_wheel.sh PYTHON [TENSORFLOW_VERSION...]
# With versions ("2.16.2 2.21.0") the wheel carries the shim of each; without, the one of the
# TensorFlow that the tree was built for. The headers of a version are downloaded once.
set -euo pipefail
python=$(realpath -s "$1")
shift
cd "$(dirname "$0")/.."

stage=build/wheel
rm -rf "$stage"
mkdir -p "$stage/lib" dist
cp -r setup.py pyproject.toml LICENSE README.md haste_keras "$stage"
cp -r lib/haste "$stage/lib"
find "$stage" -name __pycache__ -prune -exec rm -r {} +

if [ $# -gt 0 ]; then rm -f "$stage"/haste_keras/shims/*.so; fi
for version in "$@"; do
  headers=.venvs/headers/$version
  if ! [ -d "$headers" ]; then
    echo "==> headers of TensorFlow $version"
    "$python" tools/tf_headers.py "$version" "$headers"
  fi
  minor=${version%.*}
  echo "==> shim for TensorFlow $minor"
  tools/build_shim.sh frameworks/tf/shim.cc "$headers" \
    "$stage/haste_keras/shims/libhaste_shim_${minor/./_}.so"
done

rm -f dist/haste_keras-*.whl
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist "./$stage"
ls -l dist/haste_keras-*.whl
