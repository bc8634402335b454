"""Counts what a reader of the package must know by heart: special cases, states, arrows that point up, and lines.

Run it as ``python -m scripts.count_special_cases``, or with the folder of another checkout. It prints one row a
measure, and judges none of them. Empty lines do not count.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

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
    if not literal or len(literal) > 200 or re.search(r"\s", literal):
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


def measures(root: Path) -> dict[str, int]:
    package = root / "python" / "penstock"
    modules = sorted(package.rglob("*.py"))
    trees = [ast.parse(path.read_text()) for path in modules]
    folders = ("tests", "benchmarks/tests", "scripts/tests")
    tests = [*root.glob("conftest.py"), *(path for name in folders for path in (root / name).rglob("*.py"))]
    return {
        "literals that name a container, codec or pixel format": sum(map(len, map(format_literals, trees))),
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


if __name__ == "__main__":
    main()
