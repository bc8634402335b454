"""Reports where the Rust crates name an operating system outside the rooms that are for that; ``make check`` runs it.

A crate's ``sys`` is such a room. All other files speak to the system by what ``sys`` of ``penstock-core`` has: no
library of one system, no type of ``std`` for one, no ``cfg`` on one. Only ``lib.rs`` may have attributes that leave a
whole module out. Tests do not count.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.check_imports import without_tests

ROOT = Path(__file__).resolve().parent.parent
ROOM = re.compile(r"[^/]+/src/sys(?:/|\.rs$)")
NAMES = re.compile(
    r"\b(?:rustix|libc|landlock|windows_sys)(?=::|;| as )"
    r"|\bstd::os\b|\btarget_(?:os|family)\b|\bcfg!?\((?:not\()?(?:unix|windows)\b"
)
ATTRIBUTE = re.compile(r"#\[cfg\(.*\)\]")


def named_in(source: str, *, is_root: bool = False) -> Iterator[str]:
    """The names of systems in Rust source, perhaps of a crate's ``lib.rs``."""
    code = without_tests(source)
    for found in NAMES.finditer(ATTRIBUTE.sub("", code) if is_root else code):
        yield found[0]


def main() -> int:
    faults = []
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        place = path.relative_to(ROOT / "crates").as_posix()
        if not ROOM.match(place):
            names = named_in(path.read_text(), is_root=path.name == "lib.rs")
            faults += [f"crates/{place} names a system: {name}" for name in names]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
