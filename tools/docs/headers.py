"""The C and the C++ reference: pages made of the public headers and their comments."""

import re

_SKIPPED = re.compile(
    r"#(?:if|ifdef|ifndef|else|elif|endif|include|undef)\b|#define HASTE_LIB_"
    r"|namespace \w+ \{|extern \"C\" \{|\}  // "
)
_NAME = re.compile(
    r"^\} (\w+);|^typedef enum \{.*\} (\w+);|^#define (\w+)"
    r"|^(?:struct|class) (\w+)|^(?:HASTE_API|inline) .*?\b(\w+)\(",
    re.MULTILINE,
)


def _without_internals(text):
    """`text` without what no user calls: helpers, include guards, bodies of functions."""
    text = re.sub(r"^namespace internal \{.*?^\}.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^#define HASTE_\w*SETTER.*?[^\\]$\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(
        r"^(inline [^{}]*?(?:= \{\}[^{}]*?)*) \{$.*?^\}$",
        r"\1;",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def _groups(text):
    """Runs of lines between blank lines, as (comment above, declarations)."""
    depth, comment, body = 0, [], []
    for line in [*text.splitlines(), ""]:
        if not body and line.startswith("//"):
            comment.append(line[3:])
        elif line.strip() or depth:
            body.append(line)
            depth += line.count("{") - line.count("}")
        elif body or comment:
            yield comment, body
            comment, body = [], []


def _escaped(match):
    return match[1] or f"\\{match[2]}"


def _prose(comment):
    """Markdown of a comment; lines that are set in are shown as they are."""
    parts = []
    for line in comment:
        literal = line.startswith("  ")
        text = line if literal else re.sub(r"(`[^`]*`)|([*_<>\[\]])", _escaped, line)
        if parts and parts[-1][0] == literal and line:
            parts[-1][1].append(text)
        else:
            parts.append((literal, [text]))
    fence = "```"
    return "\n\n".join(
        f"{fence}text\n" + "\n".join(lines) + f"\n{fence}" if literal else "\n".join(lines)
        for literal, lines in parts
        if any(lines)
    )


def page(title, headers):
    """Markdown of a page.

    Args:
      title: its heading.
      headers: {path as programs include it: text of the header}.
    """
    parts = [f"# {title}"]
    for include, text in headers.items():
        parts.append(f"## `{include}`")
        lines = [line for line in _without_internals(text).splitlines() if not _SKIPPED.match(line)]
        for comment, body in _groups("\n".join(lines)):
            code = "\n".join(body)
            names = [next(filter(None, found)) for found in _NAME.findall(code)]
            if names:
                parts.append("### " + ", ".join(f"`{name}`" for name in dict.fromkeys(names)))
            parts.append(_prose(comment))
            if body:
                parts.append(f"```c++\n{code}\n```")
    return "\n\n".join(filter(None, parts)) + "\n"
