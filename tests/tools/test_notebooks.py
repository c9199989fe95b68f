"""tools/notebooks.py: cells run in order, small values replace parameters, output is found."""

import subprocess
import sys

import notebooks
import pytest


def code(*cells):
    """A notebook of these cells: (source, metadata)."""
    return {
        "cells": [
            {"cell_type": "code", "source": source.splitlines(True), "metadata": metadata}
            for source, metadata in cells
        ]
    }


def test_small_values_take_the_place_of_the_parameters():
    notebook = code(
        ("import sys\nif 'google.colab' in sys.modules:\n    %pip install no-such-package", {}),
        ("SIZE = 100\nNAME = 'large'", {"tags": ["parameters"], "small": {"SIZE": 3}}),
        ("squares = [i * i for i in range(SIZE)]", {}),
    )
    assert notebooks.run(notebook, "n", small=True)["squares"] == [0, 1, 4]
    assert len(notebooks.run(notebook, "n")["squares"]) == 100


def test_an_expectation_that_fails_names_its_cell():
    notebook = code(("x = 1", {}), ("assert x == 2", {}))
    with pytest.raises(AssertionError) as caught:
        notebooks.run(notebook, "some.ipynb")
    assert caught.traceback[-1].frame.code.raw.co_filename == "<some.ipynb, code cell 1>"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([("SIZE = 1", {})], "Found: 0"),
        ([("SIZE = 1", {"tags": ["parameters"], "small": {"SIEZ": 3}})], "SIEZ"),
    ],
)
def test_parameters_that_are_not_there(cells, message):
    with pytest.raises(ValueError, match=message):
        notebooks.parameters_of(code(*cells))


def test_check_finds_output_and_strip_removes_it(tmp_path):
    notebook = code(("1 + 1", {}))
    notebook["cells"][0].update(outputs=[{"output_type": "execute_result"}], execution_count=7)
    path = tmp_path / "with_output.ipynb"
    notebooks.write(path, notebook)

    def tool(command):
        return subprocess.run(
            [sys.executable, notebooks.__file__, command, str(path)],
            capture_output=True,
            text=True,
        )

    checked = tool("check")
    assert checked.returncode == 1
    assert "cell 0 has output" in checked.stdout
    assert tool("strip").returncode == 0
    assert tool("check").returncode == 0
