"""MODULE.bazel (Bazel 7 and newer) and WORKSPACE (Bazel 4 to 6) give the same build."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RULES = ROOT / "tools/bazel_rules"

# Bazel 9 has none of them built in: a file that uses one loads it from @rules_cc.
LOADED = (
    *("cc_binary", "cc_common", "cc_import", "cc_library", "cc_test", "cc_toolchain"),
    *("CcInfo", "CcToolchainConfigInfo"),
)


def _bazel_files():
    listed = subprocess.check_output(["git", "ls-files", "*BUILD", "*.bzl"], cwd=ROOT, text=True)
    return [ROOT / line for line in listed.split()]


def _code(path):
    """The file without comments, docstrings and the files that it writes."""
    text = re.sub(r'""".*?"""', '""', path.read_text(), flags=re.DOTALL)
    return re.sub(r"#.*", "", text)


def _loaded(code, file):
    """Names that `code` loads from a file of @rules_cc."""
    loads = re.findall(rf'load\(\s*"@rules_cc//cc:{re.escape(file)}",([^)]*)\)', code)
    return set(re.findall(r'"(\w+)"', " ".join(loads)))


def test_module_and_workspace_name_the_same_repositories():
    made = re.findall(r'_configure\(name = "(\w+)"\)', (RULES / "repositories.bzl").read_text())
    module = (ROOT / "MODULE.bazel").read_text()
    used = re.search(r"use_repo\(\s*local_repositories,([^)]*)\)", module).group(1)
    assert made
    assert sorted(made) == sorted(re.findall(r'"(\w+)"', used))
    assert "haste_keras_repositories()" in (ROOT / "WORKSPACE").read_text()
    assert "haste_keras_repositories()" in (RULES / "extensions.bzl").read_text()


def test_module_and_workspace_have_the_same_name():
    name = r'\(\s*name = "(\w+)"'
    module = re.search("module" + name, (ROOT / "MODULE.bazel").read_text()).group(1)
    assert module == re.search("workspace" + name, (ROOT / "WORKSPACE").read_text()).group(1)


@pytest.mark.parametrize("path", _bazel_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_rules_are_loaded_from_rules_cc(path):
    code = _code(path)
    if path.name == "offline_stubs.bzl":  # stands for @rules_cc where the rules are built in
        return
    assert not re.search(r"\bnative\.cc_", code)
    used = {name for name in LOADED if re.search(rf'(?<![\w"]){name}[(.\]]', code)}
    assert used <= _loaded(code, "defs.bzl")


def test_the_stub_of_rules_cc_has_what_is_loaded():
    stub = (RULES / "offline_stubs.bzl").read_text()
    for path in _bazel_files():
        text = path.read_text()  # with the BUILD files that repository rules write
        for file in re.findall(r'"@rules_cc//cc:(\w+)\.bzl"', text):
            assert file == "defs" or f'"{file}": (' in stub, (path, file)
            for name in _loaded(text, f"{file}.bzl"):
                assert f'"{name}"' in stub, (path, name)
