#!/usr/bin/env bash
# Installs what the build needs from the system and does not find: a C++ compiler, Bazel, Google
# Highway's headers. By apt-get, as root or through sudo; elsewhere it says what is missing.
set -euo pipefail

packages=()
if ! command -v "${CXX:-g++}" >/dev/null; then packages+=(build-essential); fi
if [ -z "${HIGHWAY_ROOT:-}" ] && ! [ -e /usr/include/hwy/highway.h ] &&
  ! [ -e /usr/local/include/hwy/highway.h ]; then
  packages+=(libhwy-dev)
fi
if ! command -v "${BAZEL:-bazel}" >/dev/null && ! command -v bazelisk >/dev/null; then
  packages+=(bazel-bootstrap)
fi
if [ ${#packages[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
  apt-get install -y --no-install-recommends "${packages[@]}")
if ! command -v apt-get >/dev/null; then
  echo "Missing, and there is no apt-get to install them with: ${packages[*]} (Debian's names)." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ] && ! { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }; then
  echo "Missing: ${packages[*]}. As root, run: apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "==> installing ${packages[*]}"
"${as_root[@]}" apt-get update
"${install[@]}"
