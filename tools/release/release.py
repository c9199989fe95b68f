"""Makes a release in dist/ out of a clean tree, and checks it: `make release`.

Usage: release.py [--dirty] [--built] [--twice] [--no-check] [--tensorflow V...] [--python 3.X...]

Builds every wheel by `make wheel-aarch64 wheel`, from nothing and always in the same folder;
rewrites it so that the same files give the same bytes; holds its size; writes SHA256SUMS and a bill
of materials (CycloneDX); and runs haste_keras.check with it in fresh virtual environments
(`check_wheels.py`).

    --dirty     also with changes that are not committed
    --built     takes the wheels that are in dist/
    --twice     builds in two clean clones, and compares the wheels; nothing else
    --no-check  leaves out the virtual environments
"""

import argparse
import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import check_wheels
import normalise_wheel
import sbom
import wheel_limits

ROOT = normalise_wheel.ROOT
DIST = ROOT / "dist"
# What is built, where Bazel builds it, and where the CUDA toolkit is fetched to unless CUDA_HOME
# names one: nvcc puts a hash of these paths into the names of what is local to a file, so the same
# places every time.
SOURCE = pathlib.Path("/var/tmp/haste_release_source")
OUTPUT_BASE = pathlib.Path("/var/tmp/haste_release")
TOOLKIT = pathlib.Path("/var/tmp/haste_release_cuda")
# Headers that give versions, in the folder of a Bazel repository.
_HEADERS = {
    "highway": ("local_highway", "hwy/highway.h", "hwy/base.h"),
    "cudart-static": ("local_cuda", "include/cuda_runtime_api.h"),
}


def _git(*arguments, root=ROOT):
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_clean(root: pathlib.Path) -> None:
    """Exits unless all of the tree is committed."""
    changes = _git("status", "--porcelain", root=root)
    if changes:
        raise SystemExit(
            f"The tree has changes that are not committed (--dirty: also then):\n{changes}"
        )


def version() -> str:
    """Of the source tree: HASTE_VERSION."""
    header = (ROOT / "lib/include/haste/c_api.h").read_text()
    return re.search(r'define HASTE_VERSION "(.+?)"', header)[1]


def missing(wheels: list[pathlib.Path], release: str) -> list[str]:
    """A sentence for each wheel that a release has and `wheels` do not, and for one too many."""
    found = {(wheel_limits.parts(w)[0], wheel_limits.machine(w)): w for w in wheels}
    sentences = [
        f"no wheel of {distribution} for {machine}"
        for distribution, machine in wheel_limits.RELEASED
        if (distribution, machine) not in found
    ]
    for key, wheel in found.items():
        if key not in wheel_limits.RELEASED:
            sentences.append(f"{wheel.name} is not of a release")
        elif wheel_limits.parts(wheel)[1] != release:
            sentences.append(f"{wheel.name} is not of version {release}")
    return sentences


def isolated_bazel(root: pathlib.Path) -> pathlib.Path:
    """A program that runs Bazel in OUTPUT_BASE, and with no cache that the user's settings name."""
    candidates = (os.environ.get("BAZEL"), "bazel", "bazelisk", "bazel-4")
    bazel = next(filter(None, map(shutil.which, filter(None, candidates))), None)
    if bazel is None:
        raise SystemExit("No Bazel found: run `make deps`, or set BAZEL.")
    program = root / "build/isolated_bazel"
    program.parent.mkdir(exist_ok=True)
    options = f'--nohome_rc --output_base="{OUTPUT_BASE}"'
    program.write_text(f'#!/bin/sh\nexec "{bazel}" {options} "$@"\n')
    program.chmod(0o755)
    return program


def copy_source(root: pathlib.Path, target: pathlib.Path) -> None:
    """Makes `target` a copy of the files of the tree `root` that git does not ignore."""
    shutil.rmtree(target, ignore_errors=True)
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", root=root)
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def build(tree: pathlib.Path, seconds: int) -> list[pathlib.Path]:
    """Makes every wheel of `tree`, from nothing, in its dist/; the wheels, normalised."""
    root = SOURCE
    copy_source(tree, root)
    bazel = isolated_bazel(root)
    subprocess.run([bazel, "clean", "--expunge"], cwd=root, check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds), "BAZEL": str(bazel)}
    if os.environ.get("CUDA_ARCHS") != "none" and not os.environ.get("CUDA_HOME"):
        fetch = root / "tools/cuda/fetch_toolkit.sh"
        subprocess.run([fetch, TOOLKIT], cwd=root, check=True)
        environment["CUDA_HOME"] = str(TOOLKIT)
    # The one with CUDA last: `versions_inside` asks for the version of its toolkit.
    subprocess.run(["make", "wheel-aarch64", "wheel"], cwd=root, env=environment, check=True)
    subprocess.run([bazel, "shutdown"], cwd=root, check=True)
    shutil.rmtree(tree / "dist", ignore_errors=True)
    shutil.copytree(root / "dist", tree / "dist")
    return normalised(tree, seconds)


def normalised(root: pathlib.Path, seconds: int) -> list[pathlib.Path]:
    """The wheels in dist/ of `root`, sorted, after normalise_wheel."""
    wheels = sorted((root / "dist").glob("*.whl"))
    for wheel in wheels:
        normalise_wheel.normalise(wheel, seconds)
    return wheels


def versions_inside(wheels: list[pathlib.Path], built: bool) -> dict[str, str]:
    """{part of sbom.INSIDE: its version}, of what the last build took from this machine.

    built: whether that was `make wheel` by itself, and not `build`.
    """
    base = OUTPUT_BASE
    if built:
        command = [ROOT / "tools/run_bazel.sh", "info", "output_base"]
        base = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    compiler = [os.environ.get("CXX", "g++"), "-dumpfullversion"]
    gcc = subprocess.run(compiler, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    tensorflow = importlib.metadata.version("tensorflow-cpu")
    inside = {"libstdc++": gcc, "tensorflow-c-api": tensorflow}
    for part, (repository, *headers) in _HEADERS.items():
        paths = [pathlib.Path(base, "external", repository, header) for header in headers]
        text = "\n".join(p.read_text() for p in paths if p.exists())
        held = {wheel_limits.parts(w)[0] for w in wheels} & set(sbom.INSIDE[part]["in"])
        if held:
            inside[part] = sbom.version_in_headers(part, text)
    return inside


def write_sums(files: list[pathlib.Path], target: pathlib.Path) -> None:
    """What `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in sorted(files)]
    target.write_text("".join(lines))


def differences(first: list[pathlib.Path], second: list[pathlib.Path]) -> list[str]:
    """A sentence for each wheel that two builds do not both have, byte for byte."""
    one, other = ({wheel.name: wheel.read_bytes() for wheel in each} for each in (first, second))
    return [
        f"{name} differs" if name in one and name in other else f"{name} was built only once"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]


def build_twice(seconds: int) -> int:
    """Builds in two clean clones and compares; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="haste_twice_") as scratch:
        builds = []
        for name in ("first", "second"):
            print(f"==> {name} build, in a clean clone", flush=True)
            clone = pathlib.Path(scratch, name)
            _git("clone", "--quiet", "--no-local", str(ROOT), str(clone), root=scratch)
            builds.append(build(clone, seconds))
        found = differences(*builds)
        for sentence in found:
            print(sentence, file=sys.stderr)
        if not found:
            print("the same bytes twice:", *(wheel.name for wheel in builds[0]))
        return int(bool(found) or not builds[0])


def _say(what, start):
    print(f"==> {what} ({time.monotonic() - start:.0f} s since the start)", flush=True)


def main(options) -> int:
    """Returns the exit code."""
    start = time.monotonic()
    if not options.dirty:
        check_clean(ROOT)
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    seconds = normalise_wheel.source_date()
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    if options.twice:
        return build_twice(seconds)

    _say(f"wheels of haste_keras {version()}", start)
    wheels = normalised(ROOT, seconds) if options.built else build(ROOT, seconds)
    problems = missing(wheels, version())
    problems += wheel_limits.problems({wheel: wheel.stat().st_size for wheel in wheels})
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1

    _say("bill of materials and checksums", start)
    bill = DIST / f"haste_keras-{version()}.cdx.json"
    sbom.write(sbom.sbom(version(), seconds, wheels, versions_inside(wheels, options.built)), bill)
    write_sums([*wheels, bill], DIST / "SHA256SUMS")
    print((DIST / "SHA256SUMS").read_text())

    if options.no_check:
        return 0
    _say("every wheel in fresh virtual environments", start)
    code = check_wheels.main(wheels, options.tensorflow, options.python)
    _say("failed" if code else "released in dist/", start)
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag, what in {
        "--dirty": "also with changes that are not committed",
        "--built": "take the wheels that are in dist/",
        "--twice": "build in two clean clones and compare the wheels; nothing else",
        "--no-check": "leave out the virtual environments",
    }.items():
        parser.add_argument(flag, action="store_true", help=what)
    parser.add_argument("--tensorflow", nargs="+", default=check_wheels.TENSORFLOWS)
    parser.add_argument("--python", nargs="+", default=check_wheels.PYTHONS)
    raise SystemExit(main(parser.parse_args()))
