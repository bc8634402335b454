"""Reports where the Rust crates name an operating system outside the rooms that are for that; ``make check`` runs it.

A crate's ``src/sys`` is such a room, and so are the files of ``OF_ONE_SYSTEM``, which other systems will do without.
All other files speak to the system by what ``sys`` of ``penstock-core`` has: no library of one system, no type of
``std`` for one, no ``cfg`` on one. Tests do not count.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.check_imports import without_tests

ROOT = Path(__file__).resolve().parent.parent
CRATES = ("penstock-core", "penstock-pipeline", "penstock-pixels", "penstock-frames", "penstock-python")
# The sandbox of Linux.
OF_ONE_SYSTEM = ("penstock-python/src/sandbox.rs",)
NAMES = re.compile(
    r"\b(?:rustix|libc|landlock|windows_sys)(?=::|;| as )"
    r"|\bstd::os\b|\btarget_(?:os|family)\b|\bcfg!?\((?:not\()?(?:unix|windows)\b"
)
# Says for which systems a crate is built at all.
REFUSAL = re.compile(r"#\[cfg\(not\(target_os = \"\w+\"\)\)\]\s*compile_error!")


def named_in(source: str) -> Iterator[str]:
    """The names of systems in Rust source."""
    for found in NAMES.finditer(REFUSAL.sub("", without_tests(source))):
        yield found[0]


def main() -> int:
    faults = []
    for crate in CRATES:
        for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs")):
            place = path.relative_to(ROOT / "crates").as_posix()
            if f"{crate}/src/sys/" not in place and place not in OF_ONE_SYSTEM:
                faults += [f"crates/{place} names a system: {name}" for name in named_in(path.read_text())]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
