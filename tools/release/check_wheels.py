"""Checks wheels as users get them: each CPython and TensorFlow in a fresh virtual environment.

Usage: check_wheels.py WHEEL... [--tensorflow V...] [--python 3.X...]

Of the wheels, those for this machine are installed: `haste_keras` after tensorflow-cpu, then
`haste_keras_cuda` where it is among them. `python -m haste_keras.check` must exit with 0 each time.
CPythons are searched on the PATH and in the folders of pyenv and uv; the table has "not here" for
those that are not found. Prints a table, writes it to build/release_table.md, and exits
non-zero if a check failed or none could run.
"""

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import tf_matrix
import wheel_limits

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENSORFLOWS = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
COLUMNS = ("Python", "TensorFlow", "Keras", "NumPy", "TensorFlow's install", "wheel's install")
CPU, CUDA = "check", "check with CUDA half"
_VERSIONS = "import keras, numpy; print(keras.__version__, numpy.__version__)"
_PROBE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def _candidates(version):
    """Programs that may be CPython `version`, best first."""
    yield shutil.which(f"python{version}")
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    uv = shutil.which("uv")
    if uv:
        command = [uv, "python", "find", "--no-python-downloads", version]
        yield subprocess.run(command, capture_output=True, text=True).stdout.strip()


def find_python(version: str) -> str | None:
    """A CPython of this version that can make a virtual environment, or None."""
    for program in filter(None, _candidates(version)):
        probe = subprocess.run([program, "-c", _PROBE], capture_output=True, text=True)
        if probe.returncode == 0 and probe.stdout.strip() == version:
            return str(program)
    return None


def here(wheels: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """{distribution: wheel} of those that this machine can install."""
    machine = platform.machine()
    return {wheel_limits.parts(w)[0]: w for w in wheels if wheel_limits.machine(w) == machine}


class _Environment:
    """A virtual environment that is new; commands in it are timed."""

    def __init__(self, program, folder):
        subprocess.run([program, "-m", "venv", folder], check=True)
        self._folder = folder
        self._python = folder / "bin/python"
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.log = ""

    def run(self, *arguments):
        """(exit code, seconds, output) of python with these arguments."""
        start = time.monotonic()
        done = subprocess.run(
            [self._python, *arguments],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log = done.stdout
        return done.returncode, time.monotonic() - start

    def install(self, *what):
        """Seconds that pip took; raises RuntimeError if it failed."""
        code, seconds = self.run(
            "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what
        )
        if code != 0:
            raise RuntimeError(f"pip install {' '.join(map(str, what))}:\n{self.log}")
        return f"{seconds:.0f} s"

    def check(self):
        """The text of a cell of the table: the result of haste_keras.check."""
        code, seconds = self.run("-m", "haste_keras.check")
        if code != 0:
            print(self.log, file=sys.stderr)
        return f"{'ok' if code == 0 else 'FAILED'}, {seconds:.0f} s"


def run(python: str, program: str, tensorflow: str, wheels: dict[str, pathlib.Path]) -> dict:
    """One row: `wheels` under one Python and TensorFlow."""
    row = dict.fromkeys((*COLUMNS, CPU, CUDA), "") | {"Python": python, "TensorFlow": tensorflow}
    with tempfile.TemporaryDirectory(prefix="haste_check_") as folder:
        environment = _Environment(program, pathlib.Path(folder))
        try:
            row[COLUMNS[4]] = environment.install(f"tensorflow-cpu=={tensorflow}")
            row[COLUMNS[5]] = environment.install(wheels["haste_keras"])
            environment.run("-c", _VERSIONS)
            row["Keras"], row["NumPy"] = environment.log.split()[-2:]
            row[CPU] = environment.check()
            if "haste_keras_cuda" in wheels:
                environment.install("--no-deps", wheels["haste_keras_cuda"])
                row[CUDA] = environment.check()
        except RuntimeError as error:
            print(error, file=sys.stderr)
            row[CPU] = "FAILED: pip"
    return row


def rows(pythons, tensorflows, wheels):
    """Rows of the table, one after the other as they are known."""
    for python in pythons:
        program = find_python(python)
        for tensorflow in tensorflows:
            why = "" if program else "not here"
            if not tf_matrix.has_wheel(tensorflow, python):
                why = "no TensorFlow for it"
            if why:
                empty = dict.fromkeys((*COLUMNS, CPU, CUDA), "")
                yield empty | {"Python": python, "TensorFlow": tensorflow, CPU: why}
                continue
            print(f"==> Python {python} ({program}), TensorFlow {tensorflow}", flush=True)
            yield run(python, program, tensorflow, wheels)


def table(found: list[dict]) -> str:
    """The rows as Markdown; a column that is empty throughout is left out."""
    columns = [name for name in found[0] if any(row[name] for row in found)]
    lines = [columns, ["---"] * len(columns), *([row[c] for c in columns] for row in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def passed(found: list[dict]) -> bool:
    """Whether some check ran and none failed."""
    cells = [row[name] for row in found for name in (CPU, CUDA)]
    return any(c.startswith("ok") for c in cells) and not any("FAILED" in c for c in cells)


def main(wheels, tensorflows=TENSORFLOWS, pythons=PYTHONS) -> int:
    """Checks, prints the table, writes it; returns the exit code."""
    wheels = here([pathlib.Path(wheel).resolve() for wheel in wheels])
    if "haste_keras" not in wheels:
        print(f"No haste_keras wheel for {platform.machine()} is among them.", file=sys.stderr)
        return 1
    found = list(rows(pythons, tensorflows, wheels))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/release_table.md").write_text(table(found))
    print("\n" + table(found))
    return int(not passed(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+")
    parser.add_argument("--tensorflow", nargs="+", default=TENSORFLOWS)
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    options = parser.parse_args()
    raise SystemExit(main(options.wheels, options.tensorflow, options.python))
