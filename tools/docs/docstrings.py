"""An extension of Griffe: docstrings as `help` shows them, with every argument.

- `{options}` and `{raises}` of the functions of haste_keras.ops become the text that the decorator
  `public` puts there.
- A line "zoneout, zoneout_cell: ..." is one for each argument.
- Arguments of a class that its docstring leaves out have the text of docs/reference/arguments.md.
"""

import ast
import pathlib
import re

import griffe

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CALL = ast.parse((ROOT / "haste_keras/ops/call.py").read_text())
_SHARED = {
    node.targets[0].id.lower(): node.value.value
    for node in _CALL.body
    if isinstance(node, ast.Assign) and node.targets[0].id in ("OPTIONS", "RAISES")
}
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)
_COMMON = {"kwargs": "of `keras.layers.Layer`: name, dtype, trainable."}


def _table():
    """{argument: [(layers, text)]} of docs/reference/arguments.md."""
    found = {}
    page = (ROOT / "docs/reference/arguments.md").read_text()
    for name, _, layers, text in _ROW.findall(page):
        found.setdefault(name, []).append((layers, text))
    return found


TABLE = _table()


def _said_of(name, layer):
    if name in _COMMON:
        return _COMMON[name]
    rows = TABLE.get(name, [])
    for layers, text in rows:
        listed = layers.removeprefix("all but ").split(", ")
        if layers == "all" or (layer in listed) != layers.startswith("all but"):
            return text
    raise ValueError(f"docs/reference/arguments.md has no row for {name} of {layer}")


def _split_names(lines):
    """Each line "a, b: text" of a section as one line for each name."""
    for line in lines:
        match = re.match(r"( +)(\w+(?:, \w+)+): (.*)", line)
        if match:
            for name in match[2].split(", "):
                yield f"{match[1]}{name}: {match[3]}"
        else:
            yield line


def _with_arguments(text, names, layer):
    """`text` with a line for each of `names` that its section Args does not have."""
    lines = list(_split_names(text.splitlines()))
    documented = {match[1] for line in lines if (match := re.match(r" +\*{0,2}(\w+): ", line))}
    missing = [f"  {name}: {_said_of(name, layer)}" for name in names if name not in documented]
    if "Args:" in lines:
        at = lines.index("Args:") + 1
    else:
        at = lines.index("Raises:") if "Raises:" in lines else len(lines)
        missing = ["", "Args:", *missing, ""] if missing else []
    lines[at:at] = missing
    return "\n".join(lines)


class CompleteDocstrings(griffe.Extension):
    """See the top of this file."""

    def on_function(self, *, func, **kwargs):
        if func.docstring is not None:
            text = func.docstring.value
            for name, shared in _SHARED.items():
                lines = [line.removeprefix("    ") for line in shared.splitlines()]
                text = text.replace(f"{{{name}}}", "\n".join(lines))
            func.docstring.value = "\n".join(_split_names(text.splitlines()))

    def on_class_members(self, *, cls, **kwargs):
        init = cls.members.get("__init__")
        if cls.docstring is None or init is None or not cls.path.startswith("haste_keras.layers"):
            return
        names = [parameter.name for parameter in init.parameters if parameter.name != "self"]
        if "units" not in names:
            return  # a base class, or no recurrence
        layer = cls.name.removesuffix("Cell")
        cls.docstring.value = _with_arguments(cls.docstring.value, names, layer)
