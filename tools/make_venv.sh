#!/usr/bin/env bash
# Makes a virtual environment from pinned requirements: .venv, the project's own, unless told else.
#   make_venv.sh PYTHON FOLDER [REQUIREMENTS]
set -euo pipefail
python=$1 folder=$2 requirements=${3:-requirements-dev.txt}
cd "$(dirname "$0")/.."

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
  3.11 | 3.12 | 3.13) ;;
  *)
    echo "$python is Python $version; the pinned TensorFlow and NumPy need 3.11, 3.12 or 3.13." >&2
    echo "Name one: make PYTHON=python3.12 …" >&2
    exit 1
    ;;
esac
echo "==> virtual environment $folder (Python $version)"
if ! [ -x "$folder/bin/python" ]; then
  if ! "$python" -m venv "$folder"; then
    rm -rf "$folder"
    echo "$python cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)." >&2
    exit 1
  fi
fi
"$folder/bin/python" -m pip install --disable-pip-version-check -r "$requirements"
case $requirements in
  requirements-dev*)
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-deps \
      -r requirements-no-deps.txt
    ;;
esac
