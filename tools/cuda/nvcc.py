#!/usr/bin/env python3
"""Runs nvcc, and adds cubins for GPUs that this nvcc does not know, assembled from its PTX.

Usage: nvcc.py [--newer FOLDER --add 100,120] [--headers FILE --unused FILE] -- NVCC ARGUMENT...

An older toolkit makes code that older drivers load, but it does not know the newest GPUs. A newer
ptxas, in FOLDER, assembles its PTX of 9.0 for them. The fatbinary in FOLDER compresses these cubins
with zstd, and also that PTX, which only still newer GPUs compile. Every driver of such GPUs can
read zstd, and it takes half the space of LZ4.

--headers names a file that lists headers, one a line. Those that were not read are written to the
file of --unused. A header of the workspace that was read and is not listed is an error.

Intermediate files have names that follow from the source's alone, so that the same source gives
the same object. NVCC's arguments name one source, and `-o OBJECT`.
"""

import argparse
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
ENTRY = struct.Struct("<H2xIQ")  # kind, bytes of this header, bytes after it
PTX = 1


def body(fatbin: bytes) -> bytes:
    """The entries of a fat binary, without its header.

    Raises:
      ValueError: it is not one fat binary.
    """
    magic, version, header, size = HEADER.unpack_from(fatbin)
    if (magic, version, header) != (MAGIC, 1, HEADER.size):
        raise ValueError(f"expected a fat binary of version 1, got {fatbin[:16].hex()}")
    end = header + size
    if len(fatbin) < end or fatbin[end:].strip(b"\0"):
        raise ValueError(f"expected one fat binary of {end} bytes, got {len(fatbin)} bytes")
    return fatbin[header:end]


def without_ptx(entries: bytes) -> bytes:
    """Those entries of a fat binary's body that are machine code."""
    kept, at = b"", 0
    while at < len(entries):
        kind, head, size = ENTRY.unpack_from(entries, at)
        if kind != PTX:
            kept += entries[at : at + head + size]
        at += head + size
    return kept


def merged(first: bytes, second: bytes) -> bytes:
    """One fat binary with the machine code of the first and all of the second."""
    entries = without_ptx(body(first)) + body(second)
    return HEADER.pack(MAGIC, 1, HEADER.size, len(entries)) + entries


def embedded(ptx, scratch):
    """A copy of `ptx` before the assembler sees it, whose version is the compiler's."""
    copy = scratch / "embedded.ptx"
    copy.write_bytes(ptx.read_bytes())
    return copy


def add_cubins(target, ptx, newer, architectures, scratch):
    """Replaces the PTX of `target` by `ptx`, and adds a cubin for each of `architectures`."""
    images = [f"--image3=kind=ptx,sm=90,file={embedded(ptx, scratch)}"]
    for architecture in architectures:
        cubin = scratch / f"sm_{architecture}.cubin"
        assemble = [newer / "ptxas", "-O3", f"-arch=sm_{architecture}", ptx, "-o", cubin]
        subprocess.run(assemble, check=True)
        images.append(f"--image3=kind=elf,sm={architecture},file={cubin}")
    fatbin, section = scratch / "newer.fatbin", scratch / "section"
    pack = [newer / "fatbinary", "-64", "--compress-all", "--compress-mode=size", *images]
    subprocess.run([*pack, f"--create={fatbin}"], check=True)
    subprocess.run(["objcopy", f"--dump-section={SECTION}={section}", target], check=True)
    section.write_bytes(merged(section.read_bytes(), fatbin.read_bytes()))
    subprocess.run(["objcopy", f"--update-section={SECTION}={section}", target], check=True)


def read_by(rule):
    """The prerequisites in `rule`, a rule of a Makefile."""
    named = rule.replace("\\\n", " ").partition(":")[2].split()
    return {os.path.normpath(path) for path in named}


def unused(headers, used):
    """The lines of `headers` that are not among `used`."""
    return "".join(f"{header}\n" for header in headers.splitlines() if header not in used)


def undeclared(headers, used, source):
    """Files of the workspace among `used` that are neither `source` nor a line of `headers`."""
    known = {os.path.normpath(path) for path in (source, *headers.splitlines())}
    return sorted(path for path in used - known if not path.startswith(("/", "external/")))


def main(arguments):
    """Compiles one source."""
    split = arguments.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--newer", type=pathlib.Path, help="folder of a newer ptxas and fatbinary")
    parser.add_argument("--add", help="architectures to assemble for, such as 100,120")
    parser.add_argument("--headers", type=pathlib.Path)
    parser.add_argument("--unused", type=pathlib.Path)
    options = parser.parse_args(arguments[:split])
    command = arguments[split + 1 :]
    target = command[command.index("-o") + 1]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        rule = scratch / "rule.d"
        subprocess.run([*command, "--keep", "--keep-dir", scratch, "-MD", "-MF", rule], check=True)
        if options.unused:
            headers, used = options.headers.read_text(), read_by(rule.read_text())
            missing = undeclared(headers, used, command[command.index("-o") - 1])
            if missing:
                raise SystemExit(f"{target}: deps do not declare {', '.join(missing)}")
            options.unused.write_text(unused(headers, used))
        if not options.add:
            return
        found = list(scratch.glob("*.compute_90.ptx"))
        if len(found) != 1:
            raise SystemExit(f"{target}: expected PTX of 9.0 for sm_{options.add}, got {found}")
        add_cubins(target, found[0], options.newer, options.add.split(","), scratch)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        raise SystemExit(error.returncode) from error
