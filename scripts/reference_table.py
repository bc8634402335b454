"""Writes the table of all public names into the reference. Their docstrings say what they are for.

python scripts/reference_table.py            # writes docs/reference/index.md; `make fmt` runs it
python scripts/reference_table.py --check    # fails if it would write something else; `make check` runs it
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "index.md"
HEADING = "## Every public name\n"


def modules(text: str) -> list[ModuleType]:
    """The modules that the page names, in its order."""
    return [
        importlib.import_module(name) for name in dict.fromkeys(re.findall(r"\[`(penstock[\w.]*)`\]", text))
    ]


def names(module: ModuleType) -> list[str]:
    """The public names of a module: those of `__all__`, or else its classes."""
    own = (
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    )
    return sorted(getattr(module, "__all__", own), key=str.lower)


def rows(of: list[ModuleType]) -> Iterator[str]:
    """A row for each name, at the first module that has it."""
    seen: list[object] = []
    for module in of:
        yield f"| **`{module.__name__}`** | |"
        for name in names(module):
            value = getattr(module, name)
            if name.startswith("_") or any(value is one for one in seen):
                continue
            seen.append(value)
            purpose = (inspect.getdoc(value) or "").partition("\n")[0].replace("``", "`")
            assert purpose, f"{module.__name__}.{name} has no docstring"
            yield f"| [`{name}`][{module.__name__}.{name}] | {purpose} |"


def page(text: str) -> str:
    """The page with the table of now."""
    before = text.partition(HEADING)[0]
    table = ["| name | what it is for |", "| --- | --- |", *rows(modules(before))]
    return "\n".join([f"{before}{HEADING}", *table, ""])


def main() -> None:
    text = PAGE.read_text()
    if (wanted := page(text)) == text:
        return
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} differs from the docstrings: run `make fmt`")
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
