"""The table of TensorFlow ABIs, frameworks/tf/abi/rows.inc: a row for each minor version.

Usage:
  tf_abi.py add VERSION...             downloads the headers of each, adds or updates its row
  tf_abi.py make VERSION=INCLUDE...    the same from tensorflow/include folders that are there
  tf_abi.py check VERSION=INCLUDE...   compares rows with those; exits with 1 if one differs

The headers do not say their version from 2.20 on, so that it has to be named. $CXX is the C++17
compiler, g++ unless set. It may be one for another target: nothing is run.
"""

import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

import tf_headers

ABI = pathlib.Path(__file__).resolve().parent.parent / "frameworks/tf/abi"
PROBE = ABI / "probe.cc"
ROWS = ABI / "rows.inc"
BEGIN = b"haste_tf_abi:\n\1\2"
ALIGNMENT = 64  # TensorFlow's own wheels are built with this EIGEN_MAX_ALIGN_BYTES
# What XLA's headers include by names of their own.
EXTERNAL = ("highwayhash", "farmhash_archive/src")
HEAD = """\
// TensorFlow's C++ ABI as numbers: bytes for fields, indices into a vtable for functions, -1 for
// what a version does not have; absl_lts is the name of a namespace. Generated from TensorFlow's
// headers; do not edit. The next row:
//   tools/tf_abi.py add VERSION
"""
_COLUMN = re.compile(r"^  (FIELD|SLOT|FIELD_OR_NONE)\((\w+),", re.MULTILINE)
_ROW = re.compile(r'^HASTE_TF_ABI_ROW\("([\d.]+)", (.*)\)$', re.MULTILINE)

Row = dict[str, int]
Headers = dict[str, pathlib.Path]  # tensorflow/include of each minor version


def minor(version: str) -> str:
    """The version that a row is for: "2.21" of "2.21.0"."""
    return ".".join(version.split(".")[:2])


def compile_probe(include: pathlib.Path) -> bytes:
    """The object that the probe compiles to against the headers in `include`."""
    with tempfile.TemporaryDirectory() as scratch:
        target = pathlib.Path(scratch, "probe.o")
        command = shlex.split(os.environ.get("CXX", "g++"))
        command += ["-std=c++17", "-O0", "-DNDEBUG", f"-DEIGEN_MAX_ALIGN_BYTES={ALIGNMENT}", "-w"]
        command += ["-fno-access-control", "-isystem", str(include)]
        for name in EXTERNAL:
            command += ["-isystem", str(include / "external" / name)]
        command += ["-c", str(PROBE)]
        done = subprocess.run([*command, "-o", str(target)], capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
            raise SystemExit(
                f"{PROBE.name} does not compile against {include}: these headers have other "
                "classes than it names, or another alignment than their wheel was built with."
            )
        return target.read_bytes()


def parse(data: bytes, columns: list[tuple[str, str]]) -> Row:
    """Numbers of the probe's object, in its columns.

    A member pointer is two words. On x86-64 they are 1 + the function's offset in the vtable and
    an adjustment of `this`; on AArch64 the offset, and 1 + twice the adjustment. The first one
    is of slot 1, so differences from it are independent of that.
    """
    start = data.find(BEGIN)
    if start < 0 or data.find(BEGIN, start + 1) >= 0:
        raise SystemExit(f"{PROBE.name}: its object does not have the numbers once.")
    words = iter(struct.iter_unpack("<q", data[start + len(BEGIN) :][: 16 + 16 * len(columns)]))
    take = lambda: next(words)[0]  # noqa: E731
    known, known_adjustment = take(), take()
    row = {}
    for kind, name in columns:
        row[name] = take()
        if kind != "SLOT":
            continue
        slot, rest = divmod(row[name] - known, 8)
        if rest or slot < -1 or take() != known_adjustment:
            raise SystemExit(f"{name}: not a virtual function of a class's first base any more.")
        row[name] = slot + 1
    return row


def measure(include: pathlib.Path) -> Row:
    """Row of the headers in `include`."""
    columns = _COLUMN.findall(PROBE.read_text())
    return parse(compile_probe(include), columns)


def read() -> dict[str, Row]:
    """All rows of the table by version."""
    text = ROWS.read_text() if ROWS.exists() else ""
    columns = re.findall(r"^HASTE_TF_ABI_COLUMN\((\w+)\)$", text, re.MULTILINE)
    return {
        version: dict(zip(columns, map(int, numbers.split(", ")), strict=True))
        for version, numbers in _ROW.findall(text)
    }


def write(rows: dict[str, Row]) -> None:
    """Writes the table; rows that lack one of the probe's columns are an error."""
    columns = [name for _, name in _COLUMN.findall(PROBE.read_text())]
    lines = ["#ifdef HASTE_TF_ABI_COLUMN"]
    lines += [f"HASTE_TF_ABI_COLUMN({name})" for name in columns]
    lines += ["#endif", "#ifdef HASTE_TF_ABI_ROW"]
    for version in sorted(rows, key=lambda v: [int(part) for part in v.split(".")]):
        if list(rows[version]) != columns:
            raise SystemExit(
                f"{PROBE.name} has other columns than the row of {version}; make that anew, too."
            )
        numbers = ", ".join(str(number) for number in rows[version].values())
        lines.append(f'HASTE_TF_ABI_ROW("{version}", {numbers})')
    ROWS.write_text(HEAD + "\n".join([*lines, "#endif"]) + "\n")


def make(headers: Headers) -> None:
    """Adds or updates the rows of `headers`."""
    made = {version: measure(include) for version, include in headers.items()}
    write({version: row for version, row in read().items() if version not in made} | made)
    print(f"{ROWS}: {', '.join(made)}")


def add(versions: list[str]) -> None:
    """Adds or updates the rows of TensorFlow `versions`, such as 2.21.0."""
    with tempfile.TemporaryDirectory() as scratch:
        headers = {minor(version): pathlib.Path(scratch, version) for version in versions}
        for version in versions:
            tf_headers.main(version, headers[minor(version)])
        make(headers)


def differences(version: str, include: pathlib.Path) -> list[str]:
    """The differences between the table and the headers in `include`; empty if there are none."""
    row = read().get(version)
    if row is None:
        return [f"TensorFlow {version} has no row; tools/tf_abi.py add adds it"]
    measured = measure(include)
    return [
        f"TensorFlow {version}: {name} is {measured.get(name)}, but the row says {row.get(name)}"
        for name in measured | row
        if measured.get(name) != row.get(name)
    ]


def check(headers: Headers) -> int:
    """Prints what is wrong with the rows of `headers`; returns the exit code."""
    wrong = 0
    for version, include in headers.items():
        found = differences(version, include)
        wrong += len(found)
        print("\n".join(found or [f"TensorFlow {version}: the row is right"]))
    return 1 if wrong else 0


def main(*arguments: str) -> int:
    """Runs one command line."""
    command, rest = arguments[:1], list(arguments[1:])
    if command == ("add",) and rest:
        add(rest)
        return 0
    if command not in (("make",), ("check",)) or not all("=" in each for each in rest or ["-"]):
        print(__doc__, file=sys.stderr)
        return 2
    pairs = [each.split("=", 1) for each in rest]
    headers = {minor(version): pathlib.Path(include) for version, include in pairs}
    if command == ("check",):
        return check(headers)
    make(headers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
