"""Every tutorial runs, in a process of its own, with the small values of its parameters.

`make tutorials` runs them with the values that a reader sees. What a tutorial expects of its result
is asserted in the tutorial.
"""

import os
import pathlib
import subprocess
import sys

import pytest

from tools import notebooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "tools/notebooks.py", "run", "--small", str(path)],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_stored_as_it_should_be(path):
    notebook = notebooks.read(path)
    assert notebooks.stored_output(notebook) == []
    cells = notebooks.code_cells(notebook)
    assert "google.colab" in "".join(cells[0]["source"])
    assert any("assert" in "".join(cell["source"]) for cell in cells)
    _, small = notebooks.parameters_of(notebook)
    assert small
    assert f"({path.name})" in (path.parent / "README.md").read_text()
