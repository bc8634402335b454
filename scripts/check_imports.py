"""Reports circles of imports between the files of each crate's `src`, and between the modules of the Python package.

Folders count as well: two folders import each other in a circle also if no two of their files do. Between the rooms of
the Python package, which are in `ROOMS`, imports must point down. Words of one operating system are for one room only.

An attribute in `OWN` of another object is for its room only. Other rooms have a narrower one.

In Rust, an import is a path that begins with `crate`, `super`, `self` or a child module. `mod x;` alone
is none, and tests (`#[cfg(test)]`) do not count. In Python, circles are those of imports that run when the module is
imported: none in a function or under `TYPE_CHECKING`. Those in functions must point down, too.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]

# The rooms of the Python package, from the top down. Each may import those below it, in functions, too.
ROOMS = (
    "__main__",
    "cli",
    "rendering",
    "video",
    "_whole_videos",
    "_fan_out",
    "gl",
    "_encoding",
    "_decoding",
    "_facts",
    "_ffmpeg",
    "turbopipe",
    "_pipeline",
    "pipeline",
    "fifo",
    "pipes",
    "_streams",
    "cpu",
    "_common",
    "_formats",
    "results",
    "errors",
    "_platform",
    "_native",
)

# Attributes that one room has for itself. Others use an encoder's `_intake` instead.
OWN = {"_session": "_encoding"}

# What only one operating system has. The room `_platform` asks for it, and these modules still do so, too.
OF_ONE_SYSTEM = re.compile(
    r"^import (fcntl|termios)\b|\b(select\.poll|os\.register_at_fork|pass_fds)\b|(/proc/)", re.M
)
ROOM_OF_SYSTEMS = "_platform"
STILL_OF_ONE_SYSTEM = {
    "_encoding/output.py": {"/proc/"},
    "_ffmpeg/command/endpoints.py": {"/proc/"},
    "_ffmpeg/program/sandbox.py": {"/proc/"},
    "cli/machine.py": {"/proc/"},
    "fifo.py": {"select.poll"},
}

TEST_ITEM = re.compile(
    r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(mod|use|fn|impl)\b"
)
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


def circles(graph: Graph) -> Iterator[list[Module]]:
    """The strongly connected components of more than one module, by Tarjan's algorithm."""
    order: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []

    def visit(module: Module) -> Iterator[list[Module]]:
        order[module] = low[module] = len(order)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in order:
                yield from visit(imported)
            if imported in stack:
                low[module] = min(low[module], low[imported])
        if low[module] == order[module]:
            component = [stack.pop()]
            while component[-1] != module:
                component.append(stack.pop())
            if len(component) > 1:
                yield sorted(component)

    for module in graph:
        if module not in order:
            yield from visit(module)


def folders(graph: Graph, depth: int) -> Graph:
    """The graph of what the first `depth` names of the paths stand for: folders, and files above them."""
    merged: Graph = {module[:depth]: set() for module in graph}
    for module, imported in graph.items():
        merged[module[:depth]] |= {other[:depth] for other in imported} - {module[:depth]}
    return merged


def end_of_item(source: str, start: int) -> int:
    """Where an item of Rust ends: behind its closing brace, or its semicolon."""
    opened = 0
    for end in range(start, len(source)):
        opened += {"{": 1, "}": -1}.get(source[end], 0)
        if opened == 0 and source[end] in ";}":
            return end + 1
    return len(source)


def without_tests(source: str) -> str:
    """Rust source without its comments and tests; in modules that it holds itself, `super` is `self`."""
    source = re.sub(r"//[^\n]*", "", source)
    while found := TEST_ITEM.search(source):
        source = source[: found.start()] + source[end_of_item(source, found.end()) :]
    for found in re.finditer(r"\bmod \w+ \{", source):
        end = end_of_item(source, found.start())
        # As long as before, so that what was found stays where it is.
        inner = source[found.start() : end].replace("super::", " self::")
        source = source[: found.start()] + inner + source[end:]
    return source


def leaves(tree: str, prefix: str = "") -> Iterator[str]:
    """The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    depth, start = 0, 0
    parts = []
    for at, char in enumerate(tree):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(tree[start:at])
            start = at + 1
    for part in [*parts, tree[start:]]:
        head, brace, rest = part.strip().partition("{")
        if brace:
            yield from leaves(rest.rpartition("}")[0], prefix + head)
        elif head:
            yield prefix + head.split(" as ")[0].strip()


def crate_graph(src: Path) -> Graph:
    """The files of a crate by module path, and which of them each imports."""
    sources: dict[Module, str] = {}
    tests: set[Module] = set()
    for path in src.rglob("*.rs"):
        module = path.relative_to(src).with_suffix("").parts
        module = () if module == ("lib",) else module[:-1] if module[-1] == "mod" else module
        text = path.read_text()
        tests |= {
            (*module, name) for name in re.findall(r"#\[cfg\((?:test|all\(test\b.*)\)\]\s*mod (\w+);", text)
        }
        sources[module] = without_tests(text)
    modules = sources.keys() - tests

    def target(module: Module, path: str) -> Module | None:
        names = path.split("::")
        if names[0] == "crate":
            base: Module = ()
            names = names[1:]
        elif names[0] in ("self", "super"):
            base = module
            while names and names[0] in ("self", "super"):
                base = base[:-1] if names.pop(0) == "super" else base
        elif (*module, names[0]) in modules:
            base = module
        else:
            return None
        found: Module = (*base, *names)
        while found not in modules:
            found = found[:-1]
        return found

    graph: Graph = {}
    for module in modules:
        paths = {path for use in USE.findall(sources[module]) for path in leaves(use)}
        rest = USE.sub("", sources[module])
        children = (other[-1] for other in modules if other and other[:-1] == module)
        paths |= set(PATH.findall(rest)) | {
            child for child in children if re.search(rf"(?<![\w:]){child}::", rest)
        }
        graph[module] = {found for path in paths if (found := target(module, path)) is not None} - {module}
    return graph


def top_level(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when the module does."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from top_level(statement.orelse)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                yield from top_level(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from top_level(handler.body)


def everywhere(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that may run: all but those for type checkers only."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from everywhere(node.orelse)
        else:
            yield from everywhere(ast.iter_child_nodes(node))


def upward(graph: Graph) -> Iterator[str]:
    """The imports of a package that point up from one of `ROOMS` to another, and the rooms that are not listed."""
    for module, imported in sorted(graph.items()):
        for other in sorted(imported):
            rooms = [path[1] for path in (module, other) if len(path) > 1]
            unknown = [room for room in rooms if room not in ROOMS]
            if unknown or (len(rooms) == 2 and ROOMS.index(rooms[0]) > ROOMS.index(rooms[1])):
                yield f"{'.'.join(module)} -> {'.'.join(other)}"


def borrowed(package: Path) -> Iterator[str]:
    """Where a module uses an attribute in `OWN` of an object of another room."""
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and OWN.get(node.attr, room) != room
                and (used := ast.unparse(node)) != f"self.{node.attr}"
            ):
                yield f"{path.relative_to(package)}:{node.lineno}: {used}"


def package_graph(
    package: Path, imports_of: Callable[[list[ast.stmt]], Iterable[ast.Import | ast.ImportFrom]] = top_level
) -> Graph:
    """The modules of a package, and which of them each imports by the statements that `imports_of` finds."""
    bodies: dict[Module, list[ast.stmt]] = {}
    packages: set[Module] = set()
    for path in package.rglob("*.py"):
        module = path.relative_to(package.parent).with_suffix("").parts
        if module[-1] == "__init__":
            module = module[:-1]
            packages.add(module)
        bodies[module] = ast.parse(path.read_text()).body
    for stub in package.rglob("__init__.pyi"):  # of native modules, which import nothing
        bodies[stub.parent.relative_to(package.parent).parts] = []

    def targets(module: Module, statement: ast.Import | ast.ImportFrom) -> Iterator[Module]:
        if isinstance(statement, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in statement.names)
            return
        here = module if module in packages else module[:-1]
        base = here[: len(here) + 1 - statement.level] if statement.level else ()
        base += tuple((statement.module or "").split(".")) if statement.module else ()
        for alias in statement.names:
            yield (*base, alias.name) if (*base, alias.name) in bodies else base

    return {
        module: {
            found for statement in imports_of(body) for found in targets(module, statement) if found in bodies
        }
        - {module}
        for module, body in bodies.items()
    }


def of_one_system(package: Path) -> Iterator[str]:
    """Words of one operating system in other modules than `STILL_OF_ONE_SYSTEM`, and what it lists for nothing."""
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        module = path.relative_to(package).as_posix()
        if not module.startswith(ROOM_OF_SYSTEMS):
            words = {word for match in OF_ONE_SYSTEM.findall(path.read_text()) for word in match if word}
            found |= {module: words} if words else {}
    for module in sorted(found.keys() | STILL_OF_ONE_SYSTEM.keys()):
        words, listed = found.get(module, set()), STILL_OF_ONE_SYSTEM.get(module, set())
        yield from (f"{module}: {word} belongs into {ROOM_OF_SYSTEMS}" for word in sorted(words - listed))
        yield from (
            f"{module}: {word} is gone; STILL_OF_ONE_SYSTEM lists it" for word in sorted(listed - words)
        )


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    graphs = [(src.parent.name, "::", crate_graph(src)) for src in sorted(root.glob("crates/*/src"))]
    package = root / "python" / "penstock"
    graphs.append(("python", ".", package_graph(package)))
    up = list(upward(package_graph(package, everywhere)))
    for arrow in up:
        print(f"python: an import points up: {arrow}")
    private = list(borrowed(package))
    for use in private:
        print(f"python: only its own room may use that: {use}")
    strangers = list(of_one_system(package))
    for stranger in strangers:
        print(f"python: {stranger}")
    found: list[tuple[str, list[Module]]] = []
    for name, separator, graph in graphs:
        for depth in range(1, max(map(len, graph)) + 1):
            merged = folders(graph, depth)
            for circle in circles(merged):
                if (name, circle) in found:
                    continue
                found.append((name, circle))
                print(f"{name}: these import each other in a circle:")
                for module in circle:
                    imported = sorted(merged[module] & set(circle))
                    names = ", ".join(separator.join(other) or "the root" for other in imported)
                    print(f"  {separator.join(module) or 'the root'} -> {names}")
    return 1 if found or up or private or strangers else 0


if __name__ == "__main__":
    sys.exit(main())
