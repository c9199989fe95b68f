"""Installs one wheel under several TensorFlow versions and runs the op and layer tests in each.

Usage: tf_matrix.py WHEEL VERSION[:KERAS]...

KERAS is a version, or `oldest`, which is what pyproject.toml asks for; unset, the pinned one. Each
has a virtual environment of its own under .venvs/, and the tests run from a copy there, so that
nothing but the wheel can answer `import haste_keras`. One of them compares the row of
frameworks/tf/abi with the headers of that TensorFlow. Versions that have no wheel for this Python
are named and left out. Prints a table, writes it to build/tf_matrix.md, and exits non-zero if a
version failed or none could run.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = [
    *("tests/tf", "tests/keras", "tests/xla"),
    # Of tests/serving what needs no program.
    *(
        f"tests/serving/test_{name}.py"
        for name in ("export", "graph_plugin", "stock_parity", "warmup")
    ),
]
# The parts of the source tree that the suites read.
COPIED = [
    *("tests", "docs", "frameworks/tf/abi", "tools/tf_abi.py", "tools/tf_headers.py"),
    *(str(header.relative_to(ROOT)) for header in (ROOT / "lib").rglob("c_api*.h")),
    "pyproject.toml",
]
# The newest Python that a TensorFlow has wheels for; newer TensorFlows are taken to have one.
NEWEST_PYTHON = {
    "2.16": (3, 12),
    "2.17": (3, 12),
    "2.18": (3, 12),
    "2.19": (3, 12),
    "2.20": (3, 13),
    "2.21": (3, 13),
}
PINNED = ["keras", "pytest"]
VERSIONS_PROGRAM = """
import platform, haste_keras, keras, numpy
print(haste_keras.__file__, keras.__version__, numpy.__version__, platform.python_version())
"""


def pins(keras: str) -> list[str]:
    """The pinned requirements that every TensorFlow version shares, but for another `keras`."""
    lines = [
        line
        for name in ("requirements.txt", "requirements-tools.txt")
        for line in (ROOT / name).read_text().splitlines()
    ]
    found = {line.split("==")[0]: line for line in lines}
    if keras == "oldest":
        keras = re.search(r'"keras>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    if keras:
        found["keras"] = f"keras=={keras}"
    return [found[name] for name in PINNED]


def has_wheel(version: str, python: str) -> bool:
    """Whether TensorFlow `version` has a wheel for Python `python`, "3.12"."""
    asked = tuple(map(int, python.split(".")))
    return asked <= NEWEST_PYTHON.get(version.rpartition(".")[0], asked)


def skipped(version: str) -> str:
    """Why `version` cannot run under this Python; empty if it can."""
    version = version.partition(":")[0]
    python = "{}.{}".format(*sys.version_info[:2])
    if has_wheel(version, python):
        return ""
    newest = "{}.{}".format(*NEWEST_PYTHON[version.rpartition(".")[0]])
    return f"TensorFlow {version} has no wheel for Python {python}; its newest is {newest}."


def environment(version: str, wheel: pathlib.Path) -> pathlib.Path:
    """Makes or completes .venvs/tf-<version> with `wheel` in it and returns its folder."""
    folder = ROOT / ".venvs" / f"tf-{version.replace(':', '-keras-')}"
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    tensorflow, _, keras = version.partition(":")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"tensorflow-cpu=={tensorflow}", *pins(keras)], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", wheel], check=True)
    return folder


def copy_sources(work: pathlib.Path) -> None:
    """Recreates `work` with the files that the suites read."""
    shutil.rmtree(work, ignore_errors=True)
    for name in COPIED:
        source, target = ROOT / name, work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)


def run(version: str, wheel: pathlib.Path) -> dict[str, str]:
    """Runs the suites under one version and returns its row of the table."""
    folder = environment(version, wheel)
    work = folder / "work"
    copy_sources(work)
    python = folder / "bin/python"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    row = {"TensorFlow": version.partition(":")[0], "Keras": "", "NumPy": "", "Python": ""}

    found = subprocess.run(
        [python, "-c", VERSIONS_PROGRAM], cwd=work, env=clean, capture_output=True, text=True
    )
    if found.returncode != 0:
        print(found.stderr, file=sys.stderr)
        return row | {"passed": "0", "failed": "import", "skipped": "0"}
    origin, row["Keras"], row["NumPy"], row["Python"] = found.stdout.split()[-4:]
    if not pathlib.Path(origin).is_relative_to(folder / "lib"):
        raise SystemExit(f"{python} imports haste_keras from {origin}, not from the wheel.")

    report = work / "report.xml"
    command = [python, "-m", "pytest", "-q", f"--junitxml={report}", *SUITES]
    code = subprocess.run(command, cwd=work, env=clean).returncode
    counts = dict.fromkeys(("tests", "errors", "failures", "skipped"), 0)
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name))
    failed = counts["errors"] + counts["failures"]
    passed = counts["tests"] - failed - counts["skipped"]
    if code != 0 and not failed:
        failed = f"pytest exit code {code}"
    return row | {"passed": f"{passed}", "failed": f"{failed}", "skipped": f"{counts['skipped']}"}


def main(wheel: str, *versions: str) -> int:
    """Runs every version, prints the table and returns the exit code."""
    for version in versions:
        if skipped(version):
            print(f"==> skipped: {skipped(version)}", flush=True)
    versions = tuple(version for version in versions if not skipped(version))
    if not versions:
        print("No version is left to test.", file=sys.stderr)
        return 1
    rows = []
    for version in versions:
        print(f"==> TensorFlow {version}", flush=True)
        rows.append(run(version, pathlib.Path(wheel).resolve()))
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    lines += ["| " + " | ".join(row.values()) + " |" for row in rows]
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/tf_matrix.md").write_text("\n".join(lines) + "\n")
    print("\n" + "\n".join(lines))
    return int(any(row["failed"] != "0" or row["passed"] == "0" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
