"""Packs libhaste_cuda.so into a wheel; run by tools/build_wheel.sh (`make wheel`)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from platform_wheel import VERSION, PlatformDistribution, PlatformWheel
from setuptools import setup

setup(
    version=VERSION,
    install_requires=[f"haste-keras=={VERSION}"],
    packages=["haste_keras_cuda"],
    package_data={"haste_keras_cuda": ["*.so"]},
    distclass=PlatformDistribution,
    cmdclass={"bdist_wheel": PlatformWheel},
    zip_safe=False,
)
