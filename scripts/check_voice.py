"""Refuses the phrases that "Voice" in ``CONTRIBUTING.md`` rules out; ``make check`` runs it.

It reads the pages, the package's docstrings, comments and messages, and the comments of the Rust crates, but no code
on the pages. ``python scripts/check_voice.py --list`` prints what needs a person's judgment instead, and never fails.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
# A class may be a subclass of another: "`StalledError` is a `TimeoutError`" says so.
REFUSED = (
    r"\bOf (?:an?|the)\b",
    r"(?<!Error\s)(?<!Error`\s)\bis an? \[?`*(?:[a-z]\w*\.)*[A-Z]\w*(?:Error|Warning)\b",
    r"(?i:\b(?:anew|as a rule|in silence|is told|has no place)\b)",
)
# With a capital, "Where" begins a sentence.
DOUBTFUL = (r"\b(?:tells?|stands?|behind|gives?)\b", r"\bWhere\b")
# The code of a page, and the section with the phrases themselves.
NOT_READ = re.compile(r"^```.*?^```|^## Voice$.*?(?=^## |\Z)|<!--.*?-->", re.MULTILINE | re.DOTALL)

Text = tuple[int, str]  # its first line's number, and the text


def of_page(source: str) -> Iterator[Text]:
    yield 1, NOT_READ.sub(lambda found: "\n" * found[0].count("\n"), source)


def of_python(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    yield from joined({line: text.lstrip("#:") for line, text in comments.items()})


def of_rust(source: str) -> Iterator[Text]:
    lines = enumerate(source.splitlines(), 1)
    comments = {line: re.search(r"(?:^|\s)//[/!]?(.*)", text) for line, text in lines}
    yield from joined({line: found[1] for line, found in comments.items() if found})


def joined(comments: dict[int, str]) -> Iterator[Text]:
    """Comments on lines that follow each other, as one text: a phrase may begin on one line and end on the next."""
    numbers = count()
    for _, lines in groupby(sorted(comments), lambda line: line - next(numbers)):
        group = list(lines)
        yield group[0], "\n".join(comments[line] for line in group)


def findings(root: Path, phrases: tuple[str, ...]) -> Iterator[str]:
    pattern = re.compile("|".join(phrases).replace(" ", r"\s+"))
    files = [(path, of_page) for glob in PAGES for path in sorted(root.glob(glob))]
    files += [(path, of_python) for path in sorted(root.glob("python/penstock/**/*.py"))]
    files += [(path, of_python) for path in sorted(root.glob("python/penstock/**/*.pyi"))]
    files += [(path, of_rust) for path in sorted(root.glob("crates/*/src/**/*.rs"))]
    for path, texts in files:
        found_here = [
            (first_line + text.count("\n", 0, found.start()), " ".join(found[0].split()))
            for first_line, text in texts(path.read_text())
            for found in pattern.finditer(text)
        ]
        for line, phrase in sorted(found_here):
            yield f"{path.relative_to(root)}:{line}: {phrase}"


def main(root: Path, arguments: list[str]) -> int:
    if arguments == ["--list"]:
        print(*findings(root, DOUBTFUL), sep="\n")
        return 0
    refused = list(findings(root, REFUSED))
    if refused:
        print(*refused, 'Say it in another way: "Voice" in CONTRIBUTING.md has the rules.', sep="\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
