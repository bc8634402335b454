"""Runs mypy's stubtest on the native module: its stub must have the names and signatures that the module has.

stubtest imports each module of the stub, but the native module has no submodules. This script makes them
first: each has the names that its stub defines.
"""

import ast
import sys
from pathlib import Path
from types import ModuleType

from mypy import stubtest

from penstock import _native

ROOT = Path(__file__).parents[1]


def make_submodule(stub: Path) -> None:
    """Make the submodule of a stub file importable, with the native module's objects."""
    name = f"{_native.__name__}.{stub.stem}"
    module = sys.modules[name] = ModuleType(name)
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and hasattr(_native, node.name):
            setattr(module, node.name, getattr(_native, node.name))


if __name__ == "__main__":
    for stub in (ROOT / "python" / "penstock" / "_native").glob("[!_]*.pyi"):
        make_submodule(stub)
    allowed = ROOT / "scripts" / "stubtest-allowed.txt"
    sys.argv[1:] = [_native.__name__, "--allowlist", str(allowed), *sys.argv[1:]]
    sys.exit(stubtest.main())
