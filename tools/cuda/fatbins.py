"""Lists the device code in a library: for which GPUs, how it is compressed, and what it weighs.

Usage: fatbins.py LIBRARY...
"""

import collections
import re
import struct
import sys
import typing

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<HHQ")  # after the magic: version, bytes of the header, bytes after it
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
KINDS = {1: "ptx", 2: "elf"}
LZ4, ZSTD, VARIANT = 0x2000, 0x8000, 0x100000


class Image(typing.NamedTuple):
    """PTX or machine code of one translation unit for one architecture."""

    kind: str  # "ptx" or "elf"
    architecture: str  # "75", "90a"
    compression: str  # "lz4", "zstd" or "none"
    stored: int  # bytes
    unpacked: int  # bytes


def images(data: bytes) -> list[Image]:
    """Those of all fat binaries in `data`, a library's bytes."""
    found = []
    for match in re.finditer(re.escape(MAGIC), data):
        at = match.start() + len(MAGIC)
        version, header, size = HEADER.unpack_from(data, at)
        start = match.start() + header
        if (version, header) != (1, 16) or start + size > len(data):
            continue  # these four bytes mean something else here
        at = start
        while at < start + size:
            kind, _, head, padded, packed, _, _, _, arch, _, _, flags, _, full = ENTRY.unpack_from(
                data, at
            )
            compression = "zstd" if flags & ZSTD else "lz4" if flags & LZ4 else "none"
            name = f"{arch}a" if flags & VARIANT else f"{arch}"
            found.append(Image(KINDS[kind], name, compression, packed or padded, full or padded))
            at += head + padded
    return found


def main(paths):
    """Prints a table for each library."""
    for path in paths:
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
