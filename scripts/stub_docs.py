"""Copies the docstrings of the native module into its stub, where editors read them. The Rust docs are their source.

python scripts/stub_docs.py            # writes python/penstock/_native/; `make fmt` runs it
python scripts/stub_docs.py --check    # fails if the two differ; `make check` runs it
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STUB = Path(__file__).parents[1] / "python" / "penstock" / "_native"

Documented = ast.ClassDef | ast.FunctionDef


def documented(body: list[ast.stmt], owner: Any) -> Iterator[tuple[Documented, str]]:
    """Each class, function, method and property of the stub, with its docstring in the native module."""
    for node in body:
        if isinstance(node, Documented) and not node.name.startswith("__"):
            target = getattr(owner, node.name)
            yield node, inspect.cleandoc(target.__doc__ or "")
            if isinstance(node, ast.ClassDef):
                yield from documented(node.body, target)


def differences() -> list[str]:
    """The names whose docstring in the stub is not the one of the native module."""
    from penstock import _native

    bodies = (ast.parse(path.read_text()).body for path in sorted(STUB.glob("*.pyi")))
    nodes = (item for body in bodies for item in documented(body, _native))
    return [node.name for node, doc in nodes if (ast.get_docstring(node) or "") != doc]


def write(path: Path) -> None:
    """Write all docstrings into a file of the stub."""
    from penstock import _native

    source = path.read_text()
    lines = source.splitlines()
    # From the end, so that the line numbers of what comes before stay right.
    for node, doc in sorted(documented(ast.parse(source).body, _native), key=lambda item: -item[0].lineno):
        first = node.body[0]
        is_doc = ast.get_docstring(node) is not None
        if is_doc:
            del lines[first.lineno - 1 : first.end_lineno]
        elif isinstance(node, ast.FunctionDef):
            lines[first.lineno - 1] = lines[first.lineno - 1].removesuffix("...").rstrip()
        at = first.lineno - 1 if is_doc or isinstance(node, ast.ClassDef) else first.lineno
        if isinstance(node, ast.ClassDef) and not is_doc:
            at -= len(getattr(first, "decorator_list", ()))
        lines[at:at] = quoted(doc, " " * (node.col_offset + 4)) or [" " * (node.col_offset + 4) + "..."]
    path.write_text("\n".join(lines) + "\n")


def quoted(doc: str, indent: str) -> list[str]:
    """The lines of a docstring; none for an empty one."""
    if not doc:
        return []
    first, *rest = doc.split("\n")
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *((indent + line).rstrip() for line in rest), f'{indent}"""']


if __name__ == "__main__":
    if "--check" not in sys.argv:
        for path in STUB.glob("*.pyi"):
            write(path)
        subprocess.run(["ruff", "format", "--quiet", STUB], check=True)
    if names := differences():
        sys.exit(f"The stub has other docstrings than the native module: {', '.join(names)}; run make fmt")
