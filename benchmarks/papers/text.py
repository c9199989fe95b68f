"""English text that comes with every Python: its language reference, and its docstrings."""

import ast
import collections
import pathlib
import pydoc_data.topics
import re
import sysconfig
import warnings

import numpy as np

WORD = re.compile(r"[a-z_]+|\d+|\n|[^\sa-z_\d]")


def reference():
    """The topics of Python's language reference, some 470,000 characters."""
    topics = pydoc_data.topics.topics
    return "\n".join(topics[name] for name in sorted(topics))


def docstrings():
    """The docstrings of the standard library, module after module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(library.rglob("*.py")):
        if {"site-packages", "test", "tests", "pydoc_data"} & set(path.parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
        texts.extend(text for text in found if text)
    return "\n".join(texts)


def words(large=False, at_least=3, limit=None):
    """Train, validation and test as codes of words, and the number of different words.

    Words are lower-case, a number is one word, and words that the training part has fewer than
    `at_least` times are one word. The parts are 80, 10 and 10 % of the text, in blocks of 1,000
    words that take turns, so that all three have the same topics.
    """
    text = reference() + ("\n" + docstrings() if large else "")
    tokens = ["<number>" if t.isdigit() else t for t in WORD.findall(text.lower())][:limit]
    blocks = [tokens[i : i + 1000] for i in range(0, len(tokens), 1000)]
    parts = {"train": [], "validation": [], "test": []}
    for i, block in enumerate(blocks):
        which = {8: "validation", 9: "test"}.get(i % 10, "train")
        parts[which].extend(block)
    counts = collections.Counter(parts["train"])
    known = sorted(word for word, count in counts.items() if count >= at_least)
    codes = {word: i + 1 for i, word in enumerate(known)}
    coded = [np.array([codes.get(t, 0) for t in part], np.int32) for part in parts.values()]
    return coded, len(known) + 1


def characters(limit=None):
    """Train and validation as codes of characters, 90 and 10 %, and how many there are."""
    text = np.frombuffer(reference().encode("ascii", "ignore"), np.uint8)[:limit]
    alphabet, codes = np.unique(text, return_inverse=True)
    codes = codes.astype(np.int32)
    cut = len(codes) * 9 // 10
    return (codes[:cut], codes[cut:]), len(alphabet)


def streams(codes, batch, length):
    """(inputs, targets) [steps, batch, length]: each row goes on where it was one step before."""
    steps = (len(codes) - 1) // (batch * length)
    if steps == 0:
        raise ValueError(f"{len(codes)} codes are too few for {batch} × {length}")

    def cut(begin):
        rows = codes[begin : begin + steps * batch * length].reshape(batch, steps, length)
        return np.ascontiguousarray(rows.swapaxes(0, 1))

    return cut(0), cut(1)
