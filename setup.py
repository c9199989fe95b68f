"""Packs haste_keras with its libraries into a wheel; run by tools/build_wheel.sh (`make wheel`)."""

import pathlib
import re
import shutil

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = pathlib.Path(__file__).parent
HEADERS = ROOT / "lib/haste"
VERSION = re.search(r'define HASTE_VERSION "(.+?)"', (HEADERS / "c_api.h").read_text())[1]


class PlatformDistribution(Distribution):
    """One with libraries in it, though setuptools compiled none of them."""

    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """py3-none-<platform>: the libraries use neither CPython's ABI nor one TensorFlow's."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class BuildWithLibraries(build_py):
    """Adds the shims and, as haste_keras/include/haste, the public C++ headers."""

    def run(self):
        package = ROOT / "haste_keras"
        if not (package / "libhaste_ops.so").exists():
            raise SystemExit("haste_keras/libhaste_ops.so is not built: run `make wheel`.")
        super().run()
        target = pathlib.Path(self.build_lib, "haste_keras")
        shutil.copytree(package / "shims", target / "shims", dirs_exist_ok=True)
        include = target / "include/haste"
        include.mkdir(parents=True, exist_ok=True)
        for header in HEADERS.glob("*.h"):
            text = header.read_text().replace('#include "lib/haste/', '#include "haste/')
            (include / header.name).write_text(text)


setup(
    version=VERSION,
    packages=find_packages(include=["haste_keras*"]),
    package_data={"haste_keras": ["*.so"]},
    distclass=PlatformDistribution,
    cmdclass={"bdist_wheel": PlatformWheel, "build_py": BuildWithLibraries},
    zip_safe=False,
)
