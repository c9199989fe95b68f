"""Packs haste_keras with its libraries into a wheel; run by tools/build_wheel.sh (`make wheel`)."""

import pathlib
import shutil
import sys

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

sys.path[:0] = [
    str(pathlib.Path(__file__).parent),
    str(pathlib.Path(__file__).parent / "tools/wheel"),
]
from platform_wheel import ROOT, VERSION, PlatformDistribution, PlatformWheel  # noqa: E402

LIBRARIES = ["libhaste.so", "libhaste_ops.so", "libhaste_xla.so"]


class BuildWithLibraries(build_py):
    """Adds the public C and C++ headers, as haste_keras/include/haste."""

    def run(self):
        for library in LIBRARIES:
            if not (ROOT / "haste_keras" / library).exists():
                raise SystemExit(f"haste_keras/{library} is not built: run `make wheel`.")
        super().run()
        include = pathlib.Path(self.build_lib, "haste_keras/include/haste")
        include.mkdir(parents=True, exist_ok=True)
        for header in (ROOT / "lib/include/haste").glob("*.h"):
            shutil.copyfile(header, include / header.name)


setup(
    version=VERSION,
    extras_require={
        "cpu": ["tensorflow-cpu>=2.16; platform_machine == 'x86_64'"],
        "cuda": [f"haste-keras-cuda=={VERSION}", "tensorflow[and-cuda]>=2.16"],
        "onnx": ["onnx>=1.16", "tf2onnx>=1.17"],
    },
    packages=find_packages(include=["haste_keras*"]),
    package_data={"haste_keras": LIBRARIES},
    distclass=PlatformDistribution,
    cmdclass={"bdist_wheel": PlatformWheel, "build_py": BuildWithLibraries},
    zip_safe=False,
)
