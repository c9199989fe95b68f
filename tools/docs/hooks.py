"""What `make docs` adds to the pages of docs/: hooks of MkDocs.

- README.md is the home page; every other Markdown file of the repository is a page in tree/.
- Links lead where they lead in the source tree. A source file that a page links to is copied into
  the site, as text.
- The C and the C++ reference are made of the headers. Each notebook of docs/tutorials is a page.
"""

import json
import pathlib
import posixpath
import re
import subprocess
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import headers  # noqa: E402

_INCLUDE = "lib/include/haste"
_REFERENCES = {
    "reference/c_api.md": ("C API", ["c_api", "c_api_types", "c_api_ops"]),
    "reference/cpp_api.md": ("C++ API", ["rnn", "args", "scratch", "status"]),
}
# Code, which may hold what looks like a link, and links.
_LINK = re.compile(
    r"(?P<code>^(?P<fence> *(?:```|~~~)).*?^(?P=fence)|`[^`\n]*`)|\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
_pages = {}  # path in the repository → path among the pages


def _repository_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "LICENSE"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return sorted(path for path in listed.stdout.splitlines() if (ROOT / path).exists())


def _notebook(text):
    """Markdown of a notebook, which is stored without outputs."""
    cells = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cells.append(source)
        elif cell["cell_type"] == "code":
            cells.append(f"```python\n{source}\n```")
    return "\n\n".join(cells) + "\n"


def _title(notebook):
    return re.search(r"^# (.+)$", _notebook(notebook.read_text()), re.MULTILINE)[1]


def on_config(config):
    """Gives the navigation the notebooks, where an entry names their folder."""
    nav = []
    for entry in config.nav:
        ((name, target),) = entry.items()
        if isinstance(target, str) and target.endswith("/"):
            folder = ROOT / "docs" / target
            pages = [{"Overview": f"{target}README.md"}] if (folder / "README.md").exists() else []
            pages += [
                {_title(path): f"{target}{path.stem}.md"} for path in sorted(folder.glob("*.ipynb"))
            ]
            entry = {name: pages}
            if not pages:
                continue
        nav.append(entry)
    config.nav = nav
    return config


def on_files(files, config):
    """Adds the pages that are not in docs/."""
    _pages.clear()
    for file in files.documentation_pages():
        _pages[f"docs/{file.src_uri}"] = file.src_uri

    def add(source, uri, content):
        _pages[source] = uri
        files.append(File.generated(config, uri, content=content))

    for path in _repository_files():
        text = (ROOT / path).read_text()
        if path == "README.md":
            add(path, "index.md", text)
        elif path == "LICENSE":
            add(path, "tree/LICENSE.md", f"# Licence\n\n```text\n{text}```\n")
        elif not path.startswith(("docs/", ".github/")):
            add(path, f"tree/{path}", text)
    for notebook in sorted((ROOT / "docs/tutorials").glob("*.ipynb")):
        source = str(notebook.relative_to(ROOT))
        heading, _, rest = _notebook(notebook.read_text()).partition("\n")
        download = f'<a href="{notebook.name}" download>Download the notebook</a>'
        add(source, f"tutorials/{notebook.stem}.md", f"{heading}\n\n{download}\n{rest}")
    for uri, (title, names) in _REFERENCES.items():
        texts = {f"haste/{name}.h": (ROOT / _INCLUDE / f"{name}.h").read_text() for name in names}
        add(f"docs/{uri}", uri, headers.page(title, texts))
    return files


def _four_spaces(markdown):
    """`markdown` with what belongs to items of lists set in by four spaces a level.

    Pages set it in by the width of the marker, as GitHub has it; Python-Markdown wants four. It
    also wants an empty line before an item that follows one of several paragraphs.
    """
    columns, result, fence, loose = [], [], None, False
    for line in markdown.splitlines():
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text:
            result.append("")
            loose = loose or bool(columns)
            continue
        if fence is None:
            while columns and indent < columns[-1]:
                columns.pop()
        inside = indent - (columns[-1] if columns else 0)
        marker = re.match(r"(?:[-*]|\d+\.) +(?=\S)", text) if fence is None and inside < 4 else None
        loose = loose and bool(marker or columns)
        if marker and loose and result[-1]:
            result.append("")
        result.append(" " * (4 * len(columns) + max(inside, 0)) + text)
        if text.startswith("```"):
            fence = None if fence else text
        elif marker:
            columns.append(indent + marker.end())
    return "\n".join(result) + "\n"


def _page_of(path):
    """The page of a path in the repository, or None; of a folder, its README."""
    return _pages.get(path) or _pages.get(f"{path}/README.md")


def _source_of(page):
    return next(source for source, uri in _pages.items() if uri == page.file.src_uri)


def _copy(path, files, config):
    """The path in the site of a source file, or of the names of the files in a folder."""
    source = ROOT / path
    uri = f"tree/{path}.txt"
    if files.get_file_from_path(uri) is not None:
        return uri
    if source.is_dir():
        names = "".join(f"{path}/{child.name}\n" for child in sorted(source.iterdir()))
        files.append(File.generated(config, uri, content=names))
    else:
        files.append(File.generated(config, uri, abs_src_path=str(source)))
    return uri


def on_page_markdown(markdown, page, config, files):
    """Points links at pages, and at copies of the source files that they name."""
    folder = posixpath.dirname(_source_of(page))
    here = posixpath.dirname(page.file.src_uri)

    def link(match):
        if match["code"] or re.match(r"\w+:|#", match["target"]):
            return match[0]
        target, _, anchor = match["target"].partition("#")
        path = posixpath.normpath(posixpath.join(folder, target))
        uri = _page_of(path)
        if uri is None and path.startswith("docs/"):
            uri = path.removeprefix("docs/")
        elif uri is None and (ROOT / path).exists():
            uri = _copy(path, files, config)
        if uri is None:
            return match[0]  # MkDocs says that it leads nowhere
        relative = posixpath.relpath(uri, here or ".")
        return f"]({relative}#{anchor})" if anchor else f"]({relative})"

    return _LINK.sub(link, _four_spaces(markdown))
