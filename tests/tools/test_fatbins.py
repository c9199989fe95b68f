"""tools/cuda/fatbins.py on fat binaries made here: the listing, and the copy with PTX alone."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("fatbins", ROOT / "tools/cuda/fatbins.py")
fatbins = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fatbins)

PTX, ELF = 1, 2


def entry(kind, architecture, content, flags=0, unpacked=0):
    head = fatbins.ENTRY.size
    fields = (kind, 1, head, len(content), 0, 0, 0, 0, architecture, 0, 0, flags, 0, unpacked)
    return fatbins.ENTRY.pack(*fields) + content


def fatbin(*entries):
    body = b"".join(entries)
    return fatbins.MAGIC + fatbins.HEADER.pack(1, 16, len(body)) + body


LIBRARY = (
    b"before"
    + fatbin(
        entry(ELF, 90, b"a" * 24, fatbins.VARIANT | fatbins.LZ4, 100),
        entry(PTX, 90, b"ptx of 9.0", fatbins.ZSTD, 70),
    )
    + b"\x50\xed\x55\xba and no fat binary"
    + fatbin(entry(ELF, 80, b"b" * 8))
)


def test_images():
    assert fatbins.images(LIBRARY) == [
        ("elf", "90a", "lz4", 24, 100),
        ("ptx", "90", "zstd", 10, 70),
        ("elf", "80", "none", 8, 8),
    ]


def test_only_ptx():
    copy = fatbins.only_ptx(LIBRARY)
    assert len(copy) == len(LIBRARY)
    assert [image[:2] for image in fatbins.images(copy)] == [
        ("elf", "20a"),
        ("ptx", "90"),
        ("elf", "20"),
    ]
    assert b"ptx of 9.0" in copy
    assert b"a" * 24 not in copy
    assert b"b" * 8 not in copy
    assert copy.startswith(b"before")
    assert b" and no fat binary" in copy


def test_command(tmp_path, capsys):
    library, copy = tmp_path / "library", tmp_path / "copy"
    library.write_bytes(LIBRARY)
    fatbins.main(["--only-ptx", str(copy), str(library)])
    assert copy.read_bytes() == fatbins.only_ptx(LIBRARY)
    fatbins.main([str(copy)])
    said = capsys.readouterr().out
    assert "3 images" in said
