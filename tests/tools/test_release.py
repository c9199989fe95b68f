"""The parts of `make release` that build nothing: sizes, missing files, the bill, checksums."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import check_wheels
import pytest
import release
import sbom
import tf_matrix
import wheel_limits
from wheels import make

CPU = "haste_keras-1.2-py3-none-manylinux_2_27_x86_64.whl"
ARM = "haste_keras-1.2-py3-none-manylinux_2_27_aarch64.whl"
CUDA = "haste_keras_cuda-1.2-py3-none-manylinux_2_27_x86_64.whl"
INSIDE = {
    "highway": "1.0.3",
    "tensorflow-c-api": "2.21.0",
    "cudart-static": "12.4",
    "libstdc++": "12.2.0",
}


@pytest.fixture
def wheels(tmp_path):
    return [make(tmp_path / name) for name in (CPU, ARM, CUDA)]


def test_size_limits():
    sizes = {
        pathlib.Path(CPU): 20_000_000,
        pathlib.Path(ARM): 20_100_001,
        pathlib.Path(CUDA): 95_000_000,
        pathlib.Path("other-1.2-py3-none-any.whl"): 1,
    }
    too_large, unknown = wheel_limits.problems(sizes)
    assert too_large == f"{ARM} has 20.1 MB; at most 20 are allowed"
    assert unknown == "other-1.2-py3-none-any.whl: expected one of haste_keras, haste_keras_cuda"


def test_limits_program(wheels, capsys, monkeypatch):
    assert wheel_limits.main(*map(str, wheels)) == 0
    assert f"{CPU}: 0.0 MB of 20" in capsys.readouterr().out
    monkeypatch.setitem(wheel_limits.LIMITS, "haste_keras_cuda", 0)
    assert wheel_limits.main(*map(str, wheels)) == 1
    assert CUDA in capsys.readouterr().err
    assert wheel_limits.main() == 1


def test_a_name_that_no_wheel_has():
    with pytest.raises(ValueError, match=r"NAME-VERSION-PYTHON-ABI-PLATFORM.whl. Received: a.whl"):
        wheel_limits.parts(pathlib.Path("a.whl"))


def test_missing_and_surplus_wheels(wheels):
    assert release.missing(wheels, "1.2") == []
    assert release.missing(wheels[:2], "1.2") == ["no wheel of haste_keras_cuda for x86_64"]
    assert release.missing(wheels, "1.3") == [f"{w.name} is not of version 1.3" for w in wheels]
    tag = pathlib.Path("haste_keras-1.2-py3-none-win_amd64.whl")
    assert release.missing([*wheels, tag], "1.2") == [f"{tag} is not of a release"]


def test_only_a_clean_tree(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    release.check_clean(tmp_path)
    (tmp_path / "new.txt").touch()
    with pytest.raises(SystemExit, match=r"not committed(.|\n)*new.txt"):
        release.check_clean(tmp_path)


def test_differences(tmp_path):
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    first = [make(tmp_path / "1" / name) for name in (CPU, ARM)]
    second = [make(tmp_path / "2" / name) for name in (CPU, ARM)]
    assert release.differences(first, second) == []
    second[0].write_bytes(b"other")
    found = release.differences(first, [*second, make(tmp_path / "2" / CUDA)])
    assert found == [f"{CPU} differs", f"{CUDA} was built only once"]


MAKEFILE = f"""wheel-aarch64:

wheel:
\tmkdir dist
\tcd dist && PYTHONPATH={pathlib.Path(__file__).parent} {sys.executable} ../make_wheel.py {CPU}
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository whose `make wheel` makes a wheel with the current date and CONTENT in it."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "Makefile").write_text(MAKEFILE)
    (root / ".gitignore").write_text("dist\n")
    (root / "make_wheel.py").write_text(
        "import os, pathlib, sys, time, wheels\n"
        "wheels.FILES['haste_keras/__init__.py'] = CONTENT\n"
        "wheels.make(sys.argv[1], seconds=time.time())\n"
    )
    monkeypatch.setattr(release, "ROOT", root)
    monkeypatch.setattr(release, "SOURCE", tmp_path / "source")
    monkeypatch.setenv("BAZEL", "true")
    monkeypatch.setenv("CUDA_ARCHS", "none")
    return root


def commit(root, content):
    script = root / "make_wheel.py"
    script.write_text(script.read_text().replace("CONTENT", content))
    git = ["git", "-C", root, "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "m"]):
        subprocess.run([*git, *command], check=True)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("b'x'", 0),
        ("os.getcwd().encode()", 0),  # both are built in one folder
        ("os.environ['SOURCE_DATE_EPOCH'].encode()", 0),
        ("str(time.time_ns()).encode()", 1),
    ],
    ids=["same", "path", "date", "time"],
)
def test_twice(tree, capfd, content, code):
    commit(tree, content)
    assert release.build_twice(1_700_000_000) == code
    printed = capfd.readouterr()
    if code:
        assert f"{CPU} differs" in printed.err
    else:
        assert f"the same bytes twice: {CPU}" in printed.out


def test_builds_run_in_one_folder_and_without_the_users_settings(tmp_path, monkeypatch):
    arguments = tmp_path / "bazel"
    arguments.write_text('#!/bin/sh\necho "$@"\n')
    arguments.chmod(0o755)
    monkeypatch.setenv("BAZEL", str(arguments))
    command = [release.isolated_bazel(tmp_path), "build", "a b"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == f"--nohome_rc --output_base={release.OUTPUT_BASE} build a b\n"
    monkeypatch.setenv("BAZEL", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="No Bazel found"):
        release.isolated_bazel(tmp_path)


def test_release_of_what_is_built(tmp_path, monkeypatch, capsys):
    dist = tmp_path / "dist"
    dist.mkdir()
    for name in (CPU, ARM, CUDA):
        make(dist / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "DIST", dist)
    monkeypatch.setattr(release, "version", lambda: "1.2")
    monkeypatch.setattr(release, "versions_inside", lambda wheels, built: INSIDE)
    monkeypatch.setattr(release.os, "environ", dict(release.os.environ))
    options = argparse.Namespace(dirty=True, built=True, twice=False, no_check=True)
    assert release.main(options) == 0
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == 4
    assert json.loads((dist / "haste_keras-1.2.cdx.json").read_text())["specVersion"] == "1.5"
    (dist / ARM).unlink()
    assert release.main(options) == 1
    assert capsys.readouterr().err == "no wheel of haste_keras for aarch64\n"


def test_sums_are_what_sha256sum_reads(wheels, tmp_path):
    release.write_sums(wheels, tmp_path / "SHA256SUMS")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(check, cwd=tmp_path, check=True)
    wheels[1].write_bytes(b"other")
    assert subprocess.run(check, cwd=tmp_path).returncode != 0


def refs(component):
    yield component["bom-ref"]
    for inner in component.get("components", []):
        yield from refs(inner)


def test_bill_of_materials(wheels, tmp_path):
    bill = sbom.sbom("1.2", 1_700_000_000, wheels, INSIDE)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    components = {each["bom-ref"]: each for each in bill["components"]}
    assert components.keys() == {CPU, ARM, CUDA, *INSIDE}
    for each in components.values():
        assert each["name"], each
        assert each["version"], each
        [licence] = each["licenses"]
        assert "expression" in licence or licence["license"].keys() & {"id", "name"}, each
    for name in (CPU, ARM, CUDA):
        [library] = components[name]["components"]
        assert library["name"] == "haste_keras/libhaste.so"
        for hashed in (components[name], library):
            [digest] = hashed["hashes"]
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch("[0-9a-f]{64}", digest["content"])
    every = [
        ref for each in [bill["metadata"]["component"], *components.values()] for ref in refs(each)
    ]
    assert len(every) == len(set(every))
    edges = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert edges.keys() <= set(every)
    assert {to for each in edges.values() for to in each} <= set(every)
    assert edges[CUDA] == ["cudart-static", "libstdc++"]
    assert edges[CPU] == ["highway", "libstdc++", "tensorflow-c-api"]
    assert "NVIDIA" in components["cudart-static"]["licenses"][0]["license"]["name"]


def test_bill_is_deterministic(wheels, tmp_path):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    sbom.write(sbom.sbom("1.2", 1_700_000_000, wheels, INSIDE), one)
    sbom.write(sbom.sbom("1.2", 1_700_000_000, wheels[::-1], dict(reversed(INSIDE.items()))), other)
    assert one.read_bytes() == other.read_bytes()
    changed = sbom.sbom("1.2", 1_700_000_000, wheels, INSIDE | {"highway": "1.2.0"})
    assert changed["serialNumber"] != json.loads(one.read_text())["serialNumber"]


def test_versions_in_headers():
    highway = "#define HWY_MAJOR 1\n#define HWY_MINOR 0\n  #  define HWY_PATCH 3\n"
    assert sbom.version_in_headers("highway", highway) == "1.0.3"
    assert sbom.version_in_headers("cudart-static", "#define CUDART_VERSION  12040\n") == "12.4"
    with pytest.raises(ValueError, match="cudart-static: expected `#define CUDART_VERSION NUMBER`"):
        sbom.version_in_headers("cudart-static", highway)


def test_which_tensorflow_has_which_python():
    assert tf_matrix.has_wheel("2.19.1", "3.12")
    assert not tf_matrix.has_wheel("2.19.1", "3.13")
    assert tf_matrix.has_wheel("2.20.0", "3.13")


def test_wheels_of_this_machine(wheels, monkeypatch):
    monkeypatch.setattr(check_wheels.platform, "machine", lambda: "x86_64")
    assert check_wheels.here(wheels) == {"haste_keras": wheels[0], "haste_keras_cuda": wheels[2]}
    monkeypatch.setattr(check_wheels.platform, "machine", lambda: "aarch64")
    assert check_wheels.here(wheels) == {"haste_keras": wheels[1]}


def test_a_python_is_found_by_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert check_wheels.find_python("3.99") is None
    programs = [tmp_path / "bin/python3.99", tmp_path / "pyenv/versions/3.99.1/bin/python3.99"]
    for program, said in zip(programs, ("3.98", "3.99"), strict=True):
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {said}\n")
        program.chmod(0o755)
    assert check_wheels.find_python("3.99") == str(programs[1])


def test_table_of_checks(monkeypatch, wheels):
    ran = []

    def run(python, program, tensorflow, wheels):
        ran.append((python, program, tensorflow))
        row = dict.fromkeys((*check_wheels.COLUMNS, check_wheels.CPU, check_wheels.CUDA), "")
        return row | {"Python": python, "TensorFlow": tensorflow, check_wheels.CPU: "ok, 9 s"}

    monkeypatch.setattr(check_wheels, "run", run)
    monkeypatch.setattr(check_wheels, "find_python", {"3.12": "p12", "3.13": "p13"}.get)
    pythons, tensorflows = ("3.10", "3.12", "3.13"), ("2.19.1", "2.21.0")
    found = list(check_wheels.rows(pythons, tensorflows, {"haste_keras": wheels[0]}))
    assert ran == [("3.12", "p12", "2.19.1"), ("3.12", "p12", "2.21.0"), ("3.13", "p13", "2.21.0")]
    assert [row["check"] for row in found] == [
        *("not here", "not here", "ok, 9 s", "ok, 9 s"),
        *("no TensorFlow for it", "ok, 9 s"),
    ]
    lines = check_wheels.table(found).splitlines()
    assert lines[0] == "| Python | TensorFlow | check |"
    assert lines[3] == "| 3.10 | 2.21.0 | not here |"
    assert check_wheels.passed(found)
    assert not check_wheels.passed(found[:2])
    assert not check_wheels.passed([*found, found[3] | {"check": "FAILED, 3 s"}])
