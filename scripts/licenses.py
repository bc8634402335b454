"""Writes the licenses of everything that is linked into the native module to one text file, for the wheel.

    python scripts/licenses.py target/licenses/THIRD-PARTY.txt                             # for this machine
    python scripts/licenses.py target/licenses/THIRD-PARTY.txt aarch64-unknown-linux-gnu   # for another one
    python scripts/licenses.py target/licenses/THIRD-PARTY.txt TARGET FILE…                # built by another Rust

cargo-bundle-licenses knows crates only, and lists those that are not linked, too. This takes the license files of each
crate that Cargo links, and of the C sources inside it (libdeflate, zstd), and Rust's on its standard library: for
another Rust, FILE… say what is linked in besides crates. A license that asks for more than its text beside the binary
is refused.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "penstock-python"
LICENSE_FILE = re.compile(r"(?:LICEN[CS]E|COPYING|COPYRIGHT|NOTICE)\b(?!.*\.rs$)", re.IGNORECASE)
# What a crate may name, alone or with AND, OR and WITH.
PERMISSIVE = {
    "AND",
    "OR",
    "WITH",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "LLVM-exception",
    "MIT",
    "Unlicense",
    "Zlib",
}
# In rustup's toolchains; Debian's rustc does not have it.
STANDARD_LIBRARY = "share/doc/rust/COPYRIGHT-library.html"


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked_crates(target: str | None = None) -> Iterator[tuple[str, str, Path]]:
    """Name and version, license expression and folder of each crate from elsewhere; for this machine, if no target."""
    selection = ["--package", PACKAGE, "--edges", "normal,no-proc-macro"]
    if target is not None:
        selection += ["--target", target]
    linked = set(output("cargo", "tree", *selection, "--prefix", "none", "--format", "{p}").splitlines())
    packages = json.loads(output("cargo", "metadata", "--format-version", "1"))["packages"]
    for package in packages:
        title = f"{package['name']} v{package['version']}"
        if package["source"] is not None and title in linked:
            yield title, package["license"], Path(package["manifest_path"]).parent


def main() -> None:
    parts = []
    for title, expression, folder in sorted(linked_crates(*sys.argv[2:3])):
        if unknown := set(re.findall(r"[\w.-]+", expression)) - PERMISSIVE:
            sys.exit(f"{title} is under {expression}: may a wheel link {', '.join(sorted(unknown))}?")
        files = sorted(path for path in folder.rglob("*") if path.is_file() and LICENSE_FILE.match(path.name))
        if not files:
            sys.exit(f"{title} ({expression}) has no license file in {folder}")
        parts.append(f"{title}: {expression}")
        parts += [f"{title}: {path.relative_to(folder)}\n\n{path.read_text()}" for path in files]
    library = Path(output("rustc", "--print", "sysroot").strip()) / STANDARD_LIBRARY
    if others := [Path(name) for name in sys.argv[3:]]:
        parts += [f"{path.parent.name}\n\n{path.read_text()}" for path in others]
    elif library.is_file():
        parts.append(f"Rust's standard library\n\n{library.read_text()}")
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"\n\n{'=' * 80}\n".join(parts))


if __name__ == "__main__":
    main()
