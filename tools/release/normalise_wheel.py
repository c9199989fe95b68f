"""Rewrites wheels so that the same files give the same bytes with any archiver and at any time.

Usage: normalise_wheel.py WHEEL...

Entries are sorted, the dist-info folder last; times are SOURCE_DATE_EPOCH or else the last
commit's; modes are 755 or 644; RECORD is written anew. The compressed bytes are zlib's: another
zlib may give others.
"""

import base64
import hashlib
import os
import pathlib
import stat
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDEST = 315532800  # 1980-01-01, before which an archive has no times
NOT_RECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")


def source_date() -> int:
    """Seconds that everything built is dated: SOURCE_DATE_EPOCH, else the last commit's."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named:
        return max(OLDEST, int(named))
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    last = subprocess.run(command, capture_output=True, text=True)
    return max(OLDEST, int(last.stdout)) if last.returncode == 0 else OLDEST


def _record_path(names):
    records = [n for n in names if n.count("/") == 1 and n.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        raise ValueError(f"expected one *.dist-info/RECORD in a wheel. Found: {records}")
    return records[0]


def _record(files, path):
    """The text of RECORD: name, hash and size of every file but itself."""
    folder = path.rpartition("/")[0]
    lines = []
    for name, (_, data) in files.items():
        if name in [f"{folder}/{other}" for other in NOT_RECORDED]:
            continue
        if any(c in name for c in ',"\n'):
            raise ValueError(f"the name of a file in a wheel must be plain. Found: {name!r}")
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{path},,\n"]).encode()


def _read(wheel):
    """{name: (mode, data)} in the order in which they are written; folders are left out."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        names = [entry.filename for entry in entries]
        if len(set(names)) != len(names):
            raise ValueError(f"{wheel} holds a name twice")
        record = _record_path(names)
        folder = record.rpartition("/")[0] + "/"
        entries.sort(key=lambda e: (e.filename.startswith(folder), e.filename))
        files = {}
        for entry in entries:
            executable = entry.external_attr >> 16 & stat.S_IXUSR
            files[entry.filename] = (0o755 if executable else 0o644, archive.read(entry))
    files[record] = (0o644, _record({k: v for k, v in files.items() if k != record}, record))
    files[record] = files.pop(record)  # last, as pip writes it
    return files


def normalise(wheel: pathlib.Path, seconds: int) -> None:
    """Rewrites `wheel` in place, dated `seconds` since 1970."""
    files = _read(wheel)
    date = time.gmtime(seconds)[:6]
    scratch = wheel.with_name(wheel.name + ".part")
    with zipfile.ZipFile(scratch, "w") as archive:
        for name, (mode, data) in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3  # Unix, so that modes are read
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    os.replace(scratch, wheel)


def main(*wheels: str) -> int:
    """Normalises every wheel and says its hash."""
    if not wheels:
        print(__doc__, file=sys.stderr)
        return 2
    for wheel in map(pathlib.Path, wheels):
        normalise(wheel, source_date())
        print(hashlib.sha256(wheel.read_bytes()).hexdigest(), "", wheel)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
