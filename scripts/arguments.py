"""Writes the sections that repeat a list of arguments: a signature, the ``Args:`` above it, and a TypedDict.

Each argument is declared once, as a field of a dataclass: its type, its default, and below it a sentence. Its options
of the command line are in the type, where `penstock.cli.options` reads them.

python scripts/arguments.py            # writes the sections; `make fmt` runs it
python scripts/arguments.py --check    # fails if it would write something else; `make check` runs it
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "python" / "penstock"
WIDTH = 120
# The file and the class that declare arguments, the ones whose constructor has them, and the TypedDict for functions
# that pass them on.
LISTS = (
    ("_encoding/request.py", "Request", "_encoding/encoder.py", "Encoder", "EncoderOptions"),
    ("_decoding/options.py", "DecodeOptions", "_decoding/decoder.py", "Decoder", "DecoderOptions"),
    ("_decoding/options.py", "AudioDecodeOptions", "_decoding/audio.py", "AudioDecoder", "AudioOptions"),
)


@dataclass(frozen=True)
class Argument:
    """A field of a declaration, in the words of the source."""

    name: str
    type: str
    default: str | None
    sentence: str

    def parameter(self) -> str:
        return f"{self.name}: {self.type}{'' if self.default is None else f' = {self.default}'}"

    def description(self) -> list[str]:
        """Its lines in a docstring's ``Args:``."""
        return textwrap.wrap(
            f"{self.name}: {' '.join(self.sentence.split())}",
            WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )


Section = tuple[int, int, list[str]]  # the lines that it replaces, and those that come there


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def declared(source: str, declaration: str) -> Iterator[Argument]:
    """The arguments that a class of the source declares: its fields that have a sentence."""
    body = class_of(ast.parse(source), declaration).body
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            kind = field.annotation
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated":
                assert isinstance(kind.slice, ast.Tuple)
                kind = kind.slice.elts[0]
            default = None if field.value is None else ast.get_source_segment(source, field.value)
            yield Argument(
                name=ast.unparse(field.target),
                type=ast.get_source_segment(source, kind) or "",
                default=default,
                sentence=ast.literal_eval(below.value),
            )


def constructor(cls: ast.ClassDef, arguments: Sequence[Argument], declaration: str) -> Iterator[Section]:
    """The keyword arguments of a constructor, and those of the declaration that it makes of them."""
    init = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert init.returns is not None
    first = init.args.kwonlyargs[0].lineno
    yield first, init.returns.lineno, [f"        {one.parameter()}," for one in arguments]
    call = next(
        node
        for node in ast.walk(init)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == declaration
    )
    given = call.keywords
    indent = " " * given[0].col_offset
    passed = [f"{indent}{one.name}={one.name}," for one in arguments]
    yield given[0].value.lineno, (given[-1].value.end_lineno or 0) + 1, passed


def described(cls: ast.ClassDef, lines: list[str], arguments: Sequence[Argument]) -> Section:
    """The ``Args:`` of a class, from the first declared one on."""
    first = next(
        number
        for number in range(lines.index("    Args:", cls.lineno), len(lines))
        if any(lines[number].startswith(f"        {one.name}: ") for one in arguments)
    )
    return first + 1, lines.index("", first) + 1, [line for one in arguments for line in one.description()]


def typed(cls: ast.ClassDef, arguments: Sequence[Argument]) -> Section:
    """The fields of a TypedDict: what needs not be given."""
    optional = [f"    {one.name}: {one.type}" for one in arguments if one.default is not None]
    return cls.body[1].lineno, (cls.end_lineno or 0) + 1, optional


def written(source: str, sections: Sequence[Section]) -> str:
    lines = source.splitlines()
    for first, end, replacement in sorted(sections, reverse=True):
        lines[first - 1 : end - 1] = replacement
    return "\n".join([*lines, ""])


def pages(package: Path) -> Iterator[tuple[Path, str]]:
    """Each file with sections, and what it should be."""
    for declaring, declaration, calling, called, options in LISTS:
        path = package / declaring
        arguments = list(declared(source := path.read_text(), declaration))
        yield path, written(source, [typed(class_of(ast.parse(source), options), arguments)])
        path = package / calling
        cls = class_of(ast.parse(source := path.read_text()), called)
        sections = [*constructor(cls, arguments, declaration), described(cls, source.splitlines(), arguments)]
        yield path, written(source, sections)


def main(package: Path, *, check: bool) -> None:
    for path, wanted in pages(package):
        if wanted != path.read_text():
            if check:
                sys.exit(f"{path} differs from the arguments that are declared: run `make fmt`")
            path.write_text(wanted)


if __name__ == "__main__":
    main(PACKAGE, check="--check" in sys.argv)
