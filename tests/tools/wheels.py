"""Wheels for tests, made as several builds would make them."""

import time
import zipfile

FILES = {
    "haste_keras/__init__.py": b"x = 1\n",
    "haste_keras/libhaste.so": b"\x7fELF" + bytes(500),
    "haste_keras-1.2.dist-info/METADATA": b"Name: haste_keras\n",
    "haste_keras-1.2.dist-info/WHEEL": b"Wheel-Version: 1.0\n",
    "haste_keras-1.2.dist-info/RECORD": b"haste_keras/__init__.py,sha256=wrong,1\n",
}


def make(path, names=None, seconds=1_000_000_000, mode=0o644, compression=zipfile.ZIP_DEFLATED):
    """A wheel of FILES in the order of `names`; `mode` is of all but its library."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(zipfile.ZipInfo("haste_keras/"), b"")
        for name in names or FILES:
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100000 | mode) << 16
            entry.compress_type = compression
            archive.writestr(entry, FILES[name])
    return path
