"""The version and the tag, which both of the project's wheels share."""

import os
import pathlib
import re

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

# Next to this file in the staging folder of tools/build_wheel.sh, else in the source tree.
HEADER = "lib/include/haste/c_api.h"
_HERE = pathlib.Path(__file__).resolve().parent
ROOT = _HERE if (_HERE / HEADER).exists() else _HERE.parents[1]
VERSION = re.search(r'define HASTE_VERSION "(.+?)"', (ROOT / HEADER).read_text())[1]


class PlatformDistribution(Distribution):
    """One with libraries in it, though setuptools compiled none of them."""

    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """py3-none-<platform>: the libraries use neither CPython's ABI nor one TensorFlow's.

    $HASTE_WHEEL_PLATFORM names the platform that the libraries were built for, such as
    manylinux_2_27_x86_64; unset: this machine's.
    """

    def get_tag(self):
        return "py3", "none", os.environ.get("HASTE_WHEEL_PLATFORM") or super().get_tag()[2]
