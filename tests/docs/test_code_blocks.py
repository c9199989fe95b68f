"""Every block of Python of README.md and docs/ runs; every command names what there is."""

import os
import pathlib
import re
import subprocess
import sys

import code_blocks
import keras
import pytest
import tensorflow as tf
from code_blocks import ROOT

PAGES = code_blocks.pages()
CODE = {page: [b for b in code_blocks.fenced(page) if b.runs_here] for page in PAGES}
OWN_PROCESS = {page for page in PAGES if "<!-- own process -->" in (ROOT / page).read_text()}
RUN_ALL = "import code_blocks, sys\nfor b in code_blocks.fenced(sys.argv[1]): b.runs_here and "
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture
def as_new():
    """Gives back what a page may change for the whole process."""
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")
    tf.config.experimental.enable_tensor_float_32_execution(tf32)


@pytest.mark.parametrize("page", [page for page in PAGES if CODE[page] and page not in OWN_PROCESS])
def test_python_runs(page, as_new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in CODE[page]:
        code_blocks.run(block, names)


@pytest.mark.parametrize("page", sorted(OWN_PROCESS))
def test_python_runs_by_itself(page, tmp_path):
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    subprocess.run(
        [sys.executable, "-c", f"{RUN_ALL}code_blocks.run(b, globals())", page],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
    )


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_known(page):
    """Each has a language; what does not run says why, or names the test that runs it."""
    for block in code_blocks.fenced(page):
        where = f"{page}:{block.line}"
        assert block.language in code_blocks.LANGUAGES, where
        if block.comment and block.comment.startswith("run by "):
            test = ROOT / block.comment.removeprefix("run by ")
            assert pathlib.Path(page).name in test.read_text(), where
    for text in code_blocks.indented(page):
        assert not re.search(
            r"^(import|from) \w|^(?!.*python -c).*haste_keras\.[\w.]+\(|^with ", text, re.MULTILINE
        ), f"{page}: Python that no test runs, since it has no fence:\n{text}"


def _options_of(path):
    """Of a program; of a package those of all its files."""
    files = path.parent.glob("*.py") if path.name == "__main__.py" else [path]
    return {name for file in files for name in re.findall(r"\"(--[\w-]+)\"", file.read_text())}


def _python(words, where):
    """What `python …` runs is there, and has the options."""
    if words[:1] == ["-m"]:
        module, rest = words[1], words[2:]
        path = ROOT / module.replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        if module.partition(".")[0] not in ("haste_keras", "benchmarks", "tests"):
            return
    elif words and words[0].endswith(".py"):
        path, rest = ROOT / words[0], words[1:]
    else:
        return
    assert path.exists(), where
    used = {word for word in rest if word.startswith("--")}
    assert used <= _options_of(path), where


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_what_there_is(page):
    extras = set(
        re.findall(r"^        \"(\w+)\": \[", (ROOT / "setup.py").read_text(), re.MULTILINE)
    )
    for line in code_blocks.commands(page):
        where = f"{page}: {line}"
        command = re.sub(r"\[--[^]]*\]|(^|\s)#.*", "", line).strip()
        words = command.split()
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if not words:
            continue
        if words[0] == "make":
            plain = re.sub(r"[A-Z_]+=(\"[^\"]*\"|\S*)", "", " ".join(words[1:]))
            for target in re.findall(r"[a-z][\w-]*", plain.partition("…")[0]):
                assert target in TARGETS, where
        elif words[0] in ("python", "python3"):
            _python(words[1:], where)
        elif words[0].startswith("tools/"):
            assert (ROOT / words[0]).exists(), where
        for named in re.findall(r"haste-keras\[([\w,]+)\]", command):
            assert set(named.split(",")) <= extras, where
