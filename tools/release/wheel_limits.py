"""Which wheels a release has and how large each may be; says whether those given keep to it.

Usage: wheel_limits.py WHEEL...

A package index takes 100 MB a file unless it is asked for more.
"""

import pathlib
import sys

MB = 1_000_000
# Distribution, as in the name of a file: the largest wheel, in MB.
LIMITS = {"haste_keras": 20, "haste_keras_cuda": 95}
# (distribution, machine) of each wheel of a release.
RELEASED = [
    ("haste_keras", "x86_64"),
    ("haste_keras", "aarch64"),
    ("haste_keras_cuda", "x86_64"),
]


def parts(wheel: pathlib.Path) -> tuple[str, str, str]:
    """(distribution, version, platform) of a wheel's name."""
    fields = wheel.name.removesuffix(".whl").split("-")
    if len(fields) != 5 or wheel.suffix != ".whl":
        raise ValueError(
            f"a wheel's name must be NAME-VERSION-PYTHON-ABI-PLATFORM.whl. Received: {wheel.name}"
        )
    return fields[0], fields[1], fields[4]


def machine(wheel: pathlib.Path) -> str:
    """The processor that a wheel is for: x86_64 of manylinux_2_27_x86_64."""
    platform = parts(wheel)[2].split(".")[0]
    return next((m for _, m in RELEASED if platform.endswith("_" + m)), platform)


def problems(sizes: dict[pathlib.Path, int]) -> list[str]:
    """A sentence for each of the wheels (with its bytes) that is too large or not known."""
    found = []
    for wheel, size in sizes.items():
        limit = LIMITS.get(parts(wheel)[0])
        if limit is None:
            found.append(f"{wheel.name}: expected one of {', '.join(LIMITS)}")
        elif size > limit * MB:
            found.append(f"{wheel.name} has {size / MB:.1f} MB; at most {limit} are allowed")
    return found


def main(*wheels: str) -> int:
    """Prints the table of sizes and what is wrong; returns the exit code."""
    sizes = {pathlib.Path(w): pathlib.Path(w).stat().st_size for w in wheels}
    for wheel, size in sizes.items():
        limit = LIMITS.get(parts(wheel)[0], 0)
        print(f"{wheel.name}: {size / MB:.1f} MB of {limit}")
    found = problems(sizes)
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found) or not sizes)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
