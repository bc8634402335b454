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
    """The modules that the page names, in its order. Those without `__all__` have no names of their own."""
    names = dict.fromkeys(re.findall(r"\[`(penstock[\w.]*)`\]", text))
    return [module for module in map(importlib.import_module, names) if hasattr(module, "__all__")]


def rows(of: list[ModuleType]) -> Iterator[str]:
    """A row for each public name, below that of its module."""
    for module in of:
        yield f"| **`{module.__name__}`** | |"
        for name in sorted(module.__all__, key=str.lower):
            if name == "__version__":
                continue
            purpose = (inspect.getdoc(getattr(module, name)) or "").partition("\n")[0].replace("``", "`")
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
