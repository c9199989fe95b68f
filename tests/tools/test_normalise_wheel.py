"""The same files give the same wheel, and pip accepts it."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile

import normalise_wheel
import pytest
from wheels import FILES, make

DATE = 1_700_000_000


def normalised(path):
    normalise_wheel.normalise(path, DATE)
    return path.read_bytes()


def test_same_bytes_whatever_made_the_archive(tmp_path):
    one = make(tmp_path / "one.whl")
    other = make(
        tmp_path / "other.whl",
        names=sorted(FILES, reverse=True),
        seconds=1_500_000_000,
        mode=0o600,
        compression=zipfile.ZIP_STORED,
    )
    assert one.read_bytes() != other.read_bytes()
    assert normalised(one) == normalised(other)
    assert normalised(one) == other.read_bytes()  # and once more changes nothing


def test_other_content_other_bytes(tmp_path, monkeypatch):
    one = normalised(make(tmp_path / "one.whl"))
    monkeypatch.setitem(FILES, "haste_keras/__init__.py", b"x = 2\n")
    assert normalised(make(tmp_path / "one.whl")) != one


def test_order_times_and_modes(tmp_path):
    normalised(make(tmp_path / "one.whl"))
    with zipfile.ZipFile(tmp_path / "one.whl") as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    info = "haste_keras-1.2.dist-info/"
    assert names == [
        "haste_keras/__init__.py",
        "haste_keras/libhaste.so",
        *(info + name for name in ("METADATA", "WHEEL", "RECORD")),
    ]
    assert {entry.date_time for entry in entries} == {(2023, 11, 14, 22, 13, 20)}
    modes = {entry.filename: entry.external_attr >> 16 for entry in entries}
    assert modes.pop("haste_keras/libhaste.so") == 0o100755
    assert set(modes.values()) == {0o100644}


def test_record_names_every_file(tmp_path):
    normalised(make(tmp_path / "one.whl"))
    record = "haste_keras-1.2.dist-info/RECORD"
    with zipfile.ZipFile(tmp_path / "one.whl") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(contents[record].decode()))}
    assert rows.pop(record) == ["", ""]
    assert rows.keys() == contents.keys() - {record}
    for name, (digest, size) in rows.items():
        want = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest())
        assert digest == "sha256=" + want.decode().rstrip("=")
        assert int(size) == len(contents[name])


def test_the_date_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    assert normalise_wheel.source_date() == 1700000001
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")  # before archives have times
    assert normalise_wheel.source_date() == 315532800


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["haste_keras/__init__.py"], r"expected one \*.dist-info/RECORD .* Found: \[\]"),
        ([*FILES, "haste_keras/__init__.py"], "holds a name twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_no_wheel(tmp_path, names, message):
    path = make(tmp_path / "bad.whl", names=names)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        normalised(path)
    assert path.read_bytes() == before


def test_program(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DATE))
    one, other = make(tmp_path / "one.whl"), make(tmp_path / "other.whl", seconds=10**9 + 99)
    command = [sys.executable, normalise_wheel.__file__, one, other]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert printed[0] == printed[2] == hashlib.sha256(one.read_bytes()).hexdigest()
    assert subprocess.run([sys.executable, normalise_wheel.__file__]).returncode == 2
