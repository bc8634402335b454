"""Writes the sections that repeat a list of arguments: signatures, calls, the ``Args:`` of docstrings, and TypedDicts.

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
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "python" / "penstock"
WIDTH = 120
# The files with declarations, and the TypedDicts for functions that pass arguments on.
ENCODING, DECODING, RENDERING = "_encoding/request.py", "_decoding/options.py", "rendering/options.py"
TYPED = ((ENCODING, "Request", "EncoderOptions"), (DECODING, "DecodeOptions", "DecoderOptions"))


@dataclass(frozen=True)
class Place:
    """A function that has the arguments of declarations: in its signature, in its ``Args:``, and in calls inside of it.

    Attributes:
        file: where it is.
        function: its name, behind that of its class.
        declarations: the classes that declare the arguments, in the file `declared_in`.
        but: the arguments that it has in another way, or not at all.
        is_described: whether its docstring, or that of its class, describes them.
        default: the default of all of them, in place of their own.
    """

    file: str
    function: str
    declarations: tuple[str, ...]
    declared_in: str
    but: tuple[str, ...] = ()
    is_described: bool = False
    default: str | None = None


# What a function calls with all of its arguments, in place of a declaration.
CALLED = ("EncoderOptions", "DecoderOptions", "given")
PLACES = (
    Place("_encoding/encoder.py", "Encoder.__init__", ("Request",), ENCODING, is_described=True),
    Place("_encoding/encoder.py", "Encoder.like", ("Request",), ENCODING, default="OF_SOURCE"),
    Place("_whole_videos.py", "write_video", ("Request",), ENCODING, but=("fps", "progress")),
    Place("_whole_videos.py", "read_video", ("DecodeOptions",), DECODING),
    Place("_decoding/decoder.py", "Decoder.__init__", ("DecodeOptions",), DECODING, is_described=True),
    Place("_decoding/decoder.py", "Decoder.audio", ("AudioDecodeOptions",), DECODING, default="OF_SOURCE"),
    Place("_decoding/prefetching.py", "prefetch", ("DecodeOptions",), DECODING),
    Place(
        "_decoding/audio.py", "AudioDecoder.__init__", ("AudioDecodeOptions",), DECODING, is_described=True
    ),
    Place("rendering/api.py", "plan", ("SceneOptions", "ChunkOptions"), RENDERING),
    Place("rendering/api.py", "plan_video", ("MapOptions", "ChunkOptions"), RENDERING),
    Place(
        "rendering/api.py",
        "render",
        ("SceneOptions", "ChunkOptions", "RunOptions"),
        RENDERING,
        is_described=True,
    ),
    Place(
        "rendering/api.py",
        "map_video",
        ("MapOptions", "ChunkOptions", "RunOptions"),
        RENDERING,
        is_described=True,
    ),
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


def node_of(scope: ast.Module | ast.ClassDef, name: str) -> Any:
    """The class or function of that name."""
    return next(node for node in scope.body if getattr(node, "name", None) == name)


def declared(source: str, declaration: str) -> Iterator[Argument]:
    """The arguments that a class of the source declares: its fields that have a sentence."""
    for field, below in pairwise(node_of(ast.parse(source), declaration).body):
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


def sections(place: Place, source: str, lists: Sequence[list[Argument]]) -> Iterator[Section]:
    """The sections of a place, whose declarations have these arguments."""
    nodes: list[Any] = [ast.parse(source)]
    for name in place.function.split("."):
        nodes.append(node_of(nodes[-1], name))
    function = nodes[-1]
    assert isinstance(function, ast.FunctionDef) and function.returns is not None
    arguments = [one for each in lists for one in each if one.name not in place.but]
    parameters = [replace(one, default=place.default or one.default) for one in arguments]
    names = {one.name for one in arguments}
    first = next(one for one in function.args.kwonlyargs if one.arg in names).lineno
    indent = " " * (function.col_offset + 4)
    yield first, function.returns.lineno, [f"{indent}{one.parameter()}," for one in parameters]
    calls = {**dict(zip(place.declarations, lists, strict=True)), **dict.fromkeys(CALLED, arguments)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in calls:
            passed = [f"{' ' * node.keywords[0].col_offset}{one.name}={one.name}," for one in calls[name]]
            yield node.keywords[0].value.lineno, (node.keywords[-1].value.end_lineno or 0) + 1, passed
    if place.is_described:
        yield described(nodes[1], source.splitlines(), arguments)


def described(
    node: ast.ClassDef | ast.FunctionDef, lines: list[str], arguments: Sequence[Argument]
) -> Section:
    """The ``Args:`` of a docstring, from the first declared one on."""
    first = next(
        number
        for number in range(lines.index("    Args:", node.lineno), len(lines))
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
    files = {name: (package / name).read_text() for name in (ENCODING, DECODING, RENDERING)}
    for name, declaration, options in TYPED:
        cls = node_of(ast.parse(files[name]), options)
        files[name] = written(files[name], [typed(cls, list(declared(files[name], declaration)))])
    for place in PLACES:
        source = files.get(place.file) or (package / place.file).read_text()
        lists = [list(declared(files[place.declared_in], one)) for one in place.declarations]
        files[place.file] = written(source, list(sections(place, source, lists)))
    for name, wanted in files.items():
        yield package / name, wanted


def main(package: Path, *, check: bool) -> None:
    for path, wanted in pages(package):
        if wanted != path.read_text():
            if check:
                sys.exit(f"{path} differs from the arguments that are declared: run `make fmt`")
            path.write_text(wanted)


if __name__ == "__main__":
    main(PACKAGE, check="--check" in sys.argv)
