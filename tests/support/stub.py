"""The stub of the native module."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock

STUBS = Path(penstock.__file__).parent / "_native"
STUB = [node for path in STUBS.glob("*.pyi") for node in ast.parse(path.read_text()).body]


def stub_functions(body: list[ast.stmt], prefix: str = "") -> dict[str, ast.FunctionDef]:
    """Functions, and methods behind the name of their class."""
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= stub_functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            found[prefix + node.name] = node
    return found


FUNCTIONS = stub_functions(STUB)
