"""The code in README.md and docs/: for the tests that run it, and for those of tests/serving.

A block of Python is fenced and runs, unless a comment before it says why not, or where it does:

    <!-- not run: needs a GPU -->
    <!-- run by tests/serving/test_servers.py -->

A page with `<!-- own process -->` changes what a process cannot change back.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
LANGUAGES = ("python", "console", "text", "c++", "bibtex")
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<comment>(?:not run: |run by ).+?) -->\s*\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: `line` is that of its first line, `comment` what stands before it."""

    page: str
    line: int
    language: str
    text: str
    comment: str | None

    @property
    def runs_here(self):
        return self.language == "python" and self.comment is None


def pages():
    """Paths of README.md and of all pages of docs/, from the root."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return ["README.md", *(str(path.relative_to(ROOT)) for path in found)]


def fenced(page):
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            match["comment"],
        )
        for match in _FENCE.finditer(text)
    ]


def indented(page):
    """Text of the blocks of a page that are set in by four spaces, without it."""
    text = _FENCE.sub("", (ROOT / page).read_text())
    found, lines, after_blank = [], [], True
    for line in [*text.splitlines(), "end"]:
        if line.startswith("    ") and (lines or after_blank):
            lines.append(line[4:])
        elif line.strip() or not lines:
            if lines:
                found.append("\n".join(lines))
            lines = []
        after_blank = not line.strip()
    return found


def commands(page):
    """Lines of a page that are typed into a shell; a line that ends with \\ with the next."""
    texts = indented(page) + [
        re.sub(r"^\$ ", "", block.text, flags=re.MULTILINE)
        for block in fenced(page)
        if block.language == "console"
    ]
    return [line for text in texts for line in text.replace("\\\n", " ").splitlines()]


def run(block, names):
    """Runs a block in the names that earlier ones of its page left; errors have the page's line."""
    code = compile("\n" * (block.line - 1) + block.text, str(ROOT / block.page), "exec")
    exec(code, names)
