"""Wheels of `make wheel`, unpacked side by side as pip would install them."""

import pathlib
import platform
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/cuda")]


def wheel(distribution):
    """The wheel of `distribution` for this machine in dist/, or None."""
    found = sorted((ROOT / "dist").glob(f"{distribution}-*_{platform.machine()}.whl"))
    return found[-1] if found else None


CUDA = wheel("haste_keras_cuda")


@pytest.fixture(scope="session")
def cpu_wheel():
    found = wheel("haste_keras")
    assert found, "dist/ has no haste_keras wheel for this machine: run `make wheel`"
    return found


def _unpack(folder, *wheels):
    for each in wheels:
        with zipfile.ZipFile(each) as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def cpu_site(cpu_wheel, tmp_path_factory):
    """A folder with the CPU half alone."""
    return _unpack(tmp_path_factory.mktemp("cpu"), cpu_wheel)


@pytest.fixture(scope="session")
def site(cpu_wheel, tmp_path_factory):
    """A folder with both halves."""
    if CUDA is None:
        pytest.skip("dist/ has no haste_keras_cuda wheel")
    return _unpack(tmp_path_factory.mktemp("site"), cpu_wheel, CUDA)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """A folder with a libcuda.so.1 that reports FAKE_CUDA_VERSION."""
    folder = tmp_path_factory.mktemp("driver")
    source = pathlib.Path(__file__).with_name("fake_libcuda.c")
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source]
    subprocess.run([*command, "-o", folder / "libcuda.so.1"], check=True)
    return folder
