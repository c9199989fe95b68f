"""Runs notebooks without Jupyter, and checks that they are stored without output.

    tools/notebooks.py check docs/tutorials/*.ipynb
    tools/notebooks.py strip docs/tutorials/*.ipynb
    tools/notebooks.py run [--small] docs/tutorials/forecasting.ipynb

`run` executes the code cells in order in this process; plots are drawn and thrown away. `--small`
takes the values that the metadata of the cell tagged "parameters" has under "small", in place of
those that the cell assigns: the same notebook, for a test that has seconds.
"""

import argparse
import ast
import json
import linecache
import os
import pathlib
import re
import sys
import time

MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


def read(path):
    """Returns the notebook at `path` as the dictionary that its JSON holds."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(path, notebook):
    """Writes `notebook` as Jupyter does, byte for byte: one space, sorted keys, a last newline."""
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    pathlib.Path(path).write_text(text + "\n", encoding="utf-8")


def code_cells(notebook):
    """Returns the cells of code, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored_output(notebook):
    """Returns what a run left in `notebook`: a list of messages, empty if there is nothing."""
    left = []
    for number, cell in enumerate(notebook["cells"]):
        if cell.get("outputs"):
            left.append(f"cell {number} has output")
        if cell.get("execution_count") is not None:
            left.append(f"cell {number} has an execution count")
    return left


def strip(notebook):
    """Removes from `notebook` what a run left in it."""
    for cell in code_cells(notebook):
        cell["outputs"] = []
        cell["execution_count"] = None


def parameters_of(notebook):
    """Returns (the index of the cell tagged "parameters" among `code_cells`, its small values).

    Raises:
      ValueError: there is not one such cell, or "small" names what the cell does not assign.
    """
    cells = code_cells(notebook)
    tagged = [i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise ValueError(f'expected one cell tagged "parameters". Found: {len(tagged)}')
    cell = cells[tagged[0]]
    small = cell["metadata"].get("small", {})
    assigned = {
        target.id
        for node in ast.parse("".join(cell["source"])).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    unknown = sorted(set(small) - assigned)
    if unknown:
        raise ValueError(f"small values of names that the cell of parameters lacks: {unknown}")
    return tagged[0], small


def run(notebook, name, small=False):
    """Executes the code of `notebook` in one namespace, which it returns.

    Args:
      notebook: as of `read`.
      name: what tracebacks call it.
      small: whether the small values take the place of the parameters.
    """
    where, values = parameters_of(notebook) if small else (None, {})
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook)):
        # Magics install what is missing, and here nothing may be.
        source = MAGIC.sub(r"\1pass", "".join(cell["source"]))
        title = f"<{name}, code cell {number}>"
        # Tracebacks show lines of cells, and `inspect` finds functions that a tf.function traces.
        linecache.cache[title] = (len(source), None, source.splitlines(True), title)
        exec(compile(source, title, "exec"), namespace)
        if number == where:
            namespace.update(values)
    return namespace


def main():
    """What the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["check", "strip", "run"])
    parser.add_argument("--small", action="store_true", help="of run: the small values")
    parser.add_argument("notebooks", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    failed = False
    if options.command == "run":
        os.environ.setdefault("MPLBACKEND", "Agg")
    for path in options.notebooks:
        notebook = read(path)
        if options.command == "run":
            start = time.monotonic()
            run(notebook, path.name, options.small)
            print(f"{path}: {time.monotonic() - start:.0f} s")
            continue
        left = stored_output(notebook)
        if left and options.command == "strip":
            strip(notebook)
            write(path, notebook)
        for message in left if options.command == "check" else []:
            print(f"{path}: {message}; `tools/notebooks.py strip {path}` removes it")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
