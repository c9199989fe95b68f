#!/usr/bin/env bash
# Puts the CUDA toolkit that wheels are built with into a folder: nvcc 12.4, whose code runs on every
# driver that CUDA 12 runs on (525 and newer), headers, the static runtime, and the assembler of
# 12.9, which has kernels spill less, and in newer/ assembles for GPUs that nvcc 12.4 does not know.
# Nothing is installed on the system.
#   fetch_toolkit.sh FOLDER          then: export CUDA_HOME=FOLDER
#
# The compiler comes from Debian's nvidia-cuda-toolkit 12.4, by apt-get; the rest from the Python
# package index. On a system without apt-get name a CUDA 12 toolkit of your own in CUDA_HOME.
set -euo pipefail
target=$(realpath -m "$1")
python=${PYTHON:-python3}
if [ -x "$target/bin/nvcc" ] && [ -x "$target/newer/ptxas" ]; then exit 0; fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "Wheels are built with CUDA 12.4, which is fetched with apt-get; set CUDA_HOME to a CUDA 12 toolkit." >&2
  exit 1
fi
if [ "$(uname -m)" != x86_64 ]; then
  echo "The CUDA half is built on x86-64 only; set CUDA_ARCHS=none for the CPU half." >&2
  exit 1
fi
echo "==> fetching the CUDA 12.4 toolkit (300 MB, about a minute)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,cache/archives}/partial "$work"/{debs,unpacked}

# Debian 13 has it, on the mirror that this machine uses.
mirror=${DEBIAN_MIRROR:-$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  grep -v '^#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || true)}
if [ -z "$mirror" ]; then
  echo "No Debian mirror in /etc/apt: set DEBIAN_MIRROR to one, or CUDA_HOME to a CUDA 12 toolkit." >&2
  exit 1
fi
keyring=$(ls /usr/share/keyrings/debian-archive-keyring.* 2>/dev/null | head -n 1 || true)
echo "deb ${keyring:+[signed-by=$keyring] }$mirror trixie main contrib non-free" >"$work/trixie.list"
apt=(-q -o "Dir::Etc::SourceList=$work/trixie.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
(cd "$work/debs" && apt-get "${apt[@]}" download nvidia-cuda-toolkit)
for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/unpacked"; done

# fetch FOLDER PACKAGE==VERSION... unpacks wheels.
fetch() {
  local folder=$work/$1
  shift
  mkdir -p "$folder/wheels"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux2014_x86_64 --python-version 3.11 -d "$folder/wheels" "$@"
  local wheel
  for wheel in "$folder"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$folder"; done
}
fetch headers nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-cccl-cu12==12.9.27
fetch runtime nvidia-cuda-runtime-cu12==12.9.79 # 12.4's wheel does not have the static library
fetch ptxas nvidia-cuda-nvcc-cu12==12.9.86
fetch fatbinary nvidia-cuda-nvcc==13.0.88

rm -rf "$target" "$target.partial"
mkdir -p "$target.partial"/{bin,newer,nvvm/bin,nvvm/libdevice,include,lib64}
cd "$target.partial"
own=$work/unpacked/usr/lib/nvidia-cuda-toolkit
cp "$own/bin/nvcc" "$work"/unpacked/usr/bin/{cudafe++,fatbinary,nvlink,bin2c,cuobjdump} bin
cp "$work/ptxas/nvidia/cuda_nvcc/bin/ptxas" bin/ptxas-12.9
# nvcc says that its PTX is of 8.4. Instructions of 8.6 in it, fence.release, need a later version.
cat >bin/ptxas <<'P'
#!/usr/bin/env bash
for argument; do
  case $argument in *.ptx) sed -i '0,/^\.version 8\.4$/s//.version 8.8/' "$argument" ;; esac
done
exec "$(dirname "$(realpath "$0")")/ptxas-12.9" "$@"
P
cp "$own/bin/cicc" nvvm/bin
cp "$own"/libdevice/* nvvm/libdevice
for part in cccl nvcc runtime; do cp -r "$work/headers/nvidia/cuda_$part/include/." include; done
cp "$work"/runtime/nvidia/cuda_runtime/lib/libcudart_static.a lib64
cp "$work/fatbinary/nvidia/cu13/bin/fatbinary" newer
chmod +x bin/ptxas bin/ptxas-12.9 newer/fatbinary
ln -s ../bin/ptxas newer/ptxas
cat >bin/nvcc.profile <<'P'
TOP                = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
CICC_PATH          = $(TOP)/nvvm/bin
PATH              += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES          +=  "-I$(TOP)/include" $(_SPACE_)
LIBRARIES         =+ $(_SPACE_) "-L$(TOP)/lib64"
P
# A whole toolkit or none.
mv "$target.partial" "$target"
"$target/bin/nvcc" --version | tail -n 2
