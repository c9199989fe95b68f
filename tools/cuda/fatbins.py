"""Lists the device code in a library: for which GPUs, how it is compressed, and its size.

Usage: fatbins.py LIBRARY...
       fatbins.py --only-ptx COPY LIBRARY

    --only-ptx  writes a copy whose machine code no GPU accepts, so that the driver compiles its
                PTX. CUDA_FORCE_PTX_JIT=1 would do so for every library of a process
"""

import argparse
import collections
import re
import struct
import sys
import typing

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<HHQ")  # after the magic: version, bytes of the header, bytes after it
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
KINDS = {1: "ptx", 2: "elf"}
ARCHITECTURE_AT = 28  # bytes into an entry
OLDEST = 20
LZ4, ZSTD, VARIANT = 0x2000, 0x8000, 0x100000


class Image(typing.NamedTuple):
    """PTX or machine code of one translation unit for one architecture."""

    kind: str  # "ptx" or "elf"
    architecture: str  # "75", "90a"
    compression: str  # "lz4", "zstd" or "none"
    stored: int  # bytes
    unpacked: int  # bytes


def _entries(data: bytes):
    """(where it begins, its fields) of each entry of all fat binaries in `data`."""
    for match in re.finditer(re.escape(MAGIC), data):
        at = match.start() + len(MAGIC)
        version, header, size = HEADER.unpack_from(data, at)
        start = match.start() + header
        if (version, header) != (1, 16) or start + size > len(data):
            continue  # these four bytes mean something else here
        at = start
        while at < start + size:
            fields = ENTRY.unpack_from(data, at)
            yield at, fields
            at += fields[2] + fields[3]


def images(data: bytes) -> list[Image]:
    """Those of all fat binaries in `data`, a library's bytes."""
    found = []
    for _, entry in _entries(data):
        kind, _, _, padded, packed, _, _, _, arch, _, _, flags, _, full = entry
        compression = "zstd" if flags & ZSTD else "lz4" if flags & LZ4 else "none"
        name = f"{arch}a" if flags & VARIANT else f"{arch}"
        found.append(Image(KINDS[kind], name, compression, packed or padded, full or padded))
    return found


def only_ptx(data: bytes) -> bytes:
    """`data` with all machine code said to be for a GPU that is older than any, and blanked."""
    changed = bytearray(data)
    for at, (kind, _, head, padded, *_) in _entries(data):
        if KINDS[kind] == "elf":
            struct.pack_into("<I", changed, at + ARCHITECTURE_AT, OLDEST)
            changed[at + head : at + head + padded] = bytes(padded)
    return bytes(changed)


def main(arguments):
    """Prints a table for each library, or writes the copy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only-ptx", metavar="COPY")
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY")
    options = parser.parse_args(arguments)
    if options.only_ptx:
        (path,) = options.libraries
        with open(path, "rb") as file, open(options.only_ptx, "wb") as copy:
            copy.write(only_ptx(file.read()))
        return
    for path in options.libraries:
        with open(path, "rb") as file:
            found = images(file.read())
        total = collections.defaultdict(lambda: [0, 0, 0])
        for image in found:
            row = total[image[:3]]
            row[0] += 1
            row[1] += image.stored
            row[2] += image.unpacked
        print(f"{path}: {len(found)} images")
        for (kind, architecture, compression), row in sorted(total.items()):
            print(f"  {kind} {architecture:4} {compression:5} {row[0]:4} images", end="")
            print(f" {row[1] / 1e6:8.2f} MB stored {row[2] / 1e6:8.2f} MB unpacked")


if __name__ == "__main__":
    main(sys.argv[1:])
