"""Counts what a reader of the package must know by heart: special cases, states, arrows that point up, and lines.

Run it as ``python -m scripts.count_special_cases``, or with the folder of another checkout. It prints one row a
measure, and judges none of them. Empty lines do not count. Then it lists the names of containers, codecs and pixel
formats that are not in the room for them, and why: the line, or the comment above it, says so.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.arguments import PLACES
from scripts.check_imports import everywhere, package_graph, upward

CONTAINERS = """
3g2 3gp aac adts aiff apng asf avi avif caf crc data dash ffmetadata flac flv framecrc framehash framemd5 f4v
gif gxf h261 h263 hash heic hevc hls image2 image2pipe ico ismv ivf jpeg jpg lavfi m2ts m2v m4a m4v matroska
md5 mjpg mk3d mka mkv mov mp2 mp3 mp4 mpeg mpegts mpegtsraw mpg mts mxf mxf_d10 mxf_opatom null nut oga ogg
ogv opus png psp rawvideo rm rtp rtsp segment smjpeg ssegment stream_segment streamhash swf tee tif tiff ts
tta vob w64 wav webm webp webm_chunk wmv wv y4m yuv4mpegpipe
"""
CODECS = """
aac ac3 alac amv apng asv1 asv2 av1 bmp cavs cfhd cinepak cljr dirac dnxhd dnxhr dpx dvvideo eac3 exr ffv1
ffvhuff flac flashsv flashsv2 flv flv1 gif h261 h263 h263p h264 hap hevc huffyuv jpeg2000 jpegls jpegxl libaom
libaom-av1 libdav1d libfdk_aac libjxl libkvazaar libmp3lame libopenh264 libopenjpeg libopus librav1e libsvtav1
libtheora libtwolame libvorbis libvpx libvpx-vp9 libvpx_vp9 libwebp libwebp_anim libx262 libx264 libx264rgb
libx265 libxavs libxavs2 libxvid ljpeg magicyuv mjpeg mov_text mp2 mp2fixed mp3 mpeg1video mpeg2video mpeg4
msmpeg4 msmpeg4v2 msmpeg4v3 msvideo1 opus pam pbm pcm_f32le pcm_f64le pcm_s16be pcm_s16le pcm_s24le pcm_s32le
pcm_u8 pcx pgm png ppm prores prores_aw prores_ks qtrle r10k r210 rawvideo roqvideo rv10 rv20 sgi snow speedhq
subrip sunrast svq1 targa theora tiff truehd tta utvideo v210 v308 v408 v410 vc1 vc2 vorbis vp8 vp9 vvc
wavpack webp webvtt wmav2 wmv1 wmv2 wrapped_avframe xbm xvid y41p yuv4 zlib zmbv amf cuda mediacodec nvenc omx
qsv rkmpp v4l2m2m vaapi videotoolbox vulkan
"""
PIXEL_FORMAT = re.compile(
    r"(yuva?j?4\d\dp|gbra?p|gray|ya|rgba?|bgra?|argb|abgr|0rgb|0bgr|rgb0|bgr0|xyz|bayer_\w+|x2rgb|x2bgr|vuyx?|ayuv|y2)"
    r"\d*f?(le|be)?|p[024]1?[0246](le|be)?|nv\d\d|uyvy\w*|yuyv422|yvyu422|xv\d\d(le|be)?|mono(w|b|white|black)|pal8"
)
NAMES = set((CONTAINERS + CODECS).split())
HARDWARE = re.compile(r"\w+_(amf|mediacodec|nvenc|omx|qsv|rkmpp|v4l2m2m|vaapi|videotoolbox|vulkan)")
# What a regular expression has around names: "(libx26[45]|h264_.*)$". The first of a set stands for all.
REGEX_SET = re.compile(r"\[(\w)[^]]*\]")
REGEX_DECORATION = re.compile(r"\\.|[.*+?^$(){}:]")
SENTENCE = re.compile(r"""match=.*"[^"]*\s[^"]*"|"[^"]*\s[^"]*" (not )?in str\(""")
VERSION = re.compile(r"\b(FFmpeg|PyAV|libav\w*)('s)?( before| from| up to| since)? \d")


def names_a_format(literal: str) -> bool:
    """Whether a literal is a name of a container, codec or pixel format, its ending, or alternatives that all are."""
    if not literal or len(literal) > 200 or re.search(r"\s|^\(\w+\)$", literal):  # "(null)" is what C prints
        return False
    words = [REGEX_DECORATION.sub("", REGEX_SET.sub(r"\1", word)) for word in literal.split("|")]
    return all(
        word in NAMES or PIXEL_FORMAT.fullmatch(word) or HARDWARE.fullmatch(word) for word in words if word
    ) and any(words)


def docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """The literals that are statements of their own: of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def format_literals(tree: ast.Module) -> set[str]:
    """The names of containers, codecs and pixel formats that a module has: each counts once."""
    skipped = set(docstrings(tree))
    literals = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in skipped)
    return {node.value for node in literals if isinstance(node.value, str) and names_a_format(node.value)}


def constants(trees: Iterable[ast.Module]) -> set[str]:
    """The constants of modules that only rename a format: each is as good as the literal."""
    assigned = (node for tree in trees for node in tree.body if isinstance(node, ast.Assign))
    return {
        target.id
        for node in assigned
        if isinstance(node.value, ast.Constant) and names_a_format(str(node.value.value))
        for target in node.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    }


class Place(NamedTuple):
    """Where a format is named outside its room.

    Attributes:
        reason: why; empty if nothing says so.
    """

    module: str
    line: int
    name: str
    reason: str


def places(module: str, source: str, renamed: set[str]) -> Iterator[Place]:
    """Where a module names formats: by a literal, or a constant of another module that only renames one."""
    tree, lines = ast.parse(source), source.splitlines()
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    skipped, seen, own = set(docstrings(tree)), set(), constants([tree])
    for node in sorted(parents, key=lambda node: getattr(node, "lineno", 0)):
        name = ""
        if isinstance(node, ast.Constant) and node not in skipped and isinstance(node.value, str):
            name = node.value if names_a_format(node.value) else ""
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            word = node.id if isinstance(node, ast.Name) else node.attr
            name = word if word in renamed - own else ""
        if name and name not in seen and not is_written(module, node, parents):
            seen.add(name)
            yield Place(module, node.lineno, name, kind(node, parents) or comment(node, parents, lines))


def is_written(module: str, node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a literal is a default in a signature that `scripts.arguments` writes."""
    arguments = parents[node]
    function = getattr(parents.get(arguments), "name", "")
    signatures = ((place.file, place.function.rpartition(".")[2]) for place in PLACES)
    return isinstance(arguments, ast.arguments) and (module, function) in signatures


def kind(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    """What the syntax says about a literal: it is a default, advice in a message, or a word for FFmpeg."""
    parent = parents[node]
    if isinstance(parent, ast.arguments) or (
        isinstance(parent, ast.AnnAssign) and isinstance(parents[parent], ast.ClassDef)
    ):
        return "a default"
    if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "argument":
        return "advice in a message"
    siblings = {ast.Tuple: "elts", ast.List: "elts", ast.Call: "args"}.get(type(parent), "")
    words = getattr(parent, siblings, [])
    if node in words[1:]:
        before = words[words.index(node) - 1]
        if isinstance(before, ast.Constant) and str(before.value).startswith("-"):
            return f"FFmpeg's {before.value}"
    return ""


def comment(node: ast.AST, parents: Mapping[ast.AST, ast.AST], lines: Sequence[str]) -> str:
    """The comment at the end of the line, or above it, or above the statement."""
    last = node.lineno - 1
    while not isinstance(node, ast.stmt):
        node = parents[node]
    for at in (last, node.lineno - 1):
        if found := re.search(r"  # (.*)", lines[at]):
            return found[1]
        if above := re.match(r"\s*#:? (.*)", lines[at - 1]):
            return above[1]
    return ""


def attributes(tree: ast.Module, class_name: str) -> set[str]:
    """What a class assigns: at its level, and to `self` in its methods."""
    found = set()
    for body in (
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == class_name
    ):
        for node in ast.walk(body):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if ast.unparse(node.value) == "self" else set()
        for statement in body.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def tests_for_none(tree: ast.Module, attribute: str) -> int:
    """How often `self.attribute` is compared with None."""
    compared = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    return sum(
        re.fullmatch(rf"self\.{attribute} is (not )?None", ast.unparse(node)) is not None for node in compared
    )


def lines(paths: Iterable[Path]) -> list[str]:
    return [line for path in paths for line in path.read_text().splitlines() if line.strip()]


def outside(root: Path) -> list[Place]:
    """Where the package names formats outside the room `_formats`."""
    package = root / "python" / "penstock"
    sources = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    renamed = constants(map(ast.parse, sources.values()))
    others = {module: source for module, source in sources.items() if not module.startswith("_formats/")}
    return [place for module, source in others.items() for place in places(module, source, renamed)]


def tables(root: Path) -> list[str]:
    """The dicts, lists, sets and tuples outside the room `_formats` that name three formats or more."""
    found, package = [], root / "python" / "penstock"
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            items = getattr(node, "elts", None) or getattr(node, "keys", None) or []
            names = {one.value for one in items if isinstance(one, ast.Constant)}
            if path.parent.name != "_formats" and sum(names_a_format(str(name)) for name in names) >= 3:
                found.append(f"{path.relative_to(package)}:{node.lineno}")
    return found


def measures(root: Path) -> dict[str, int]:
    package = root / "python" / "penstock"
    modules = sorted(package.rglob("*.py"))
    trees = [ast.parse(path.read_text()) for path in modules]
    folders = ("tests", "benchmarks/tests", "scripts/tests")
    tests = [*root.glob("conftest.py"), *(path for name in folders for path in (root / name).rglob("*.py"))]
    return {
        "literals that name a container, codec or pixel format": sum(map(len, map(format_literals, trees))),
        "of them outside _formats, with constants that rename them": len(outside(root)),
        "tables of formats outside _formats": len(tables(root)),
        "lines that name a version of FFmpeg or PyAV": sum(map(bool, map(VERSION.search, lines(modules)))),
        "attributes of EncodeSession": sum(len(attributes(tree, "EncodeSession")) for tree in trees),
        "tests for None of its feed": sum(tests_for_none(tree, "_feed") for tree in trees),
        "imports that point up": len(list(upward(package_graph(package, everywhere)))),
        "lines of the package, without stubs": len(lines(modules)),
        "lines of tests": len(lines(tests)),
        "assertions on an error's words": sum("match=" in line or "in str(" in line for line in lines(tests)),
        "assertions on more than one word": sum(map(bool, map(SENTENCE.search, lines(tests)))),
    }


def main() -> None:
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parent.parent
    for name, count in measures(root).items():
        print(f"{count:6}  {name}")
    for place in outside(root):
        print(f"{place.module}:{place.line}: {place.name}: {place.reason or 'nothing says why'}")


if __name__ == "__main__":
    main()
