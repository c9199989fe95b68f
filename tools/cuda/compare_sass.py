"""Compares the machine code of two libraries, kernel by kernel, without the names of source files.

Usage: compare_sass.py LIBRARY OTHER [--architecture sm_90a] [--any-name]

After a change that only moves files, every kernel is the same: exits with 0. Else it lists the
kernels that only one library has and those whose code differs, and exits with 1. A kernel is its
mangled name without the file that is in the name of an unnamed namespace; its code, the bytes of
its section in the cubin. Needs cuobjdump, of a CUDA toolkit, and pyelftools.

    --any-name  after a change that renames types or functions: only the code counts
"""

import argparse
import collections
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from elftools.elf.elffile import ELFFile

_TEXT = ".text."
# The name of an unnamed namespace holds a hash and the file: _GLOBAL__N__<hash>_<n>_<file>_<hash>.
_UNNAMED = re.compile(r"\d+_GLOBAL__N__\w+?_cu_cc_[0-9a-f]{8}(?:_\d+)?")
_STATIC = re.compile(r"_(?:INTERNAL|GLOBAL__N_)_?[0-9a-f]{8}_\d+_\w+?_cu_cc_[0-9a-f]{8}(?:_\d+)?")


def cuobjdump() -> str:
    """The program: of $CUDA_HOME, of the PATH, or of the toolkit that the wheels are built with."""
    root = pathlib.Path(__file__).resolve().parents[2]
    places = [os.environ.get("CUDA_HOME"), root / ".toolchain/cuda", "/usr/local/cuda"]
    for place in filter(None, places):
        program = pathlib.Path(place, "bin/cuobjdump")
        if program.exists():
            return str(program)
    found = shutil.which("cuobjdump")
    if found is None:
        raise SystemExit("No cuobjdump found: set CUDA_HOME to a CUDA toolkit.")
    return found


def plain(name: str) -> str:
    """A mangled name without the parts that depend on its source file."""
    return _STATIC.sub("static", _UNNAMED.sub("unnamed", name))


def kernels(library: pathlib.Path, architecture: str) -> collections.Counter:
    """{(name, hash of its code): number of copies}."""
    found = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [cuobjdump(), "--extract-elf", "all", "--gpu-architecture", architecture]
        subprocess.run(
            [*command, str(library.resolve())], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        for cubin in pathlib.Path(folder).glob("*.cubin"):
            with cubin.open("rb") as file:
                for section in ELFFile(file).iter_sections():
                    if section.name.startswith(_TEXT):
                        code = hashlib.sha256(section.data()).hexdigest()
                        found[plain(section.name.removeprefix(_TEXT)), code] += 1
    if not found:
        raise SystemExit(f"{library}: no machine code for {architecture}")
    return found


def differences(one: collections.Counter, other: collections.Counter) -> list[str]:
    """A line for each kernel that is not the same in both."""
    names = {name for name, _ in (one - other) + (other - one)}
    lines = []
    for name in sorted(names):
        here = any(name == each for each, _ in one)
        there = any(name == each for each, _ in other)
        what = (
            "differs" if here and there else "only in the first" if here else "only in the second"
        )
        lines.append(f"{what}: {name}")
    return lines


def main(arguments) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--any-name", action="store_true")
    options = parser.parse_args(arguments)
    one, other = (kernels(each, options.architecture) for each in (options.library, options.other))
    found = differences(one, other)
    if options.any_name:
        codes, others = ({code for _, code in each} for each in (one, other))
        found = [f"code of one library alone: {name}" for name, code in one if code not in others]
        found += [f"code of the other alone: {name}" for name, code in other if code not in codes]
    print("\n".join(found), end="\n" if found else "")
    print(f"{sum(one.values())} and {sum(other.values())} kernels, {len(found)} not the same")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
