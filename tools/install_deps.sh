#!/usr/bin/env bash
# Installs what the build needs from the system and does not find: a C++ compiler, Bazel, Google
# Highway's headers. By apt-get, as root or through sudo; elsewhere it says what is missing.
#   install_deps.sh [aarch64] [clang]
# aarch64: a cross compiler for it, and qemu to run what it makes; clang: Clang with libc++
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
for extra in "$@"; do
  case $extra in
    aarch64)
      if ! command -v aarch64-linux-gnu-g++ >/dev/null; then packages+=(g++-aarch64-linux-gnu); fi
      if ! command -v qemu-aarch64-static >/dev/null; then packages+=(qemu-user-static); fi
      ;;
    clang)
      if ! command -v clang >/dev/null; then packages+=(clang); fi
      if ! echo '#include <vector>' | clang++ -x c++ -stdlib=libc++ -fsyntax-only - 2>/dev/null; then
        packages+=(libc++-dev libc++abi-dev)
      fi
      ;;
    *)
      echo "install_deps.sh: expected aarch64 or clang, got $extra" >&2
      exit 2
      ;;
  esac
done
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
