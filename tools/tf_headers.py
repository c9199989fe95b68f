"""Downloads the C++ headers of one TensorFlow version, for tools/tf_abi.py.

Usage: tf_headers.py VERSION DIRECTORY
"""

import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

# Wheels of a version share their headers; every version from 2.16 on has one for this Python.
PYTHON = "311"
GLIBC = range(17, 32)  # manylinux_2_17 … manylinux_2_31


def download(version: str, folder: pathlib.Path) -> pathlib.Path:
    """Puts the tensorflow-cpu wheel of `version` into `folder` and returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", PYTHON, "--dest", str(folder)]
    for minor in GLIBC:
        command += ["--platform", f"manylinux_2_{minor}_{platform.machine()}"]
    subprocess.run([*command, f"tensorflow-cpu=={version}"], check=True)
    return next(folder.glob("*.whl"))


def main(version: str, target: str) -> None:
    """Unpacks tensorflow/include of that wheel as `target`."""
    target = pathlib.Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        scratch = pathlib.Path(scratch)
        with zipfile.ZipFile(download(version, scratch)) as wheel:
            names = [n for n in wheel.namelist() if n.startswith("tensorflow/include/")]
            wheel.extractall(scratch, names)
        # Only a whole folder gets the name.
        shutil.move(scratch / "tensorflow/include", target)


if __name__ == "__main__":
    main(*sys.argv[1:])
