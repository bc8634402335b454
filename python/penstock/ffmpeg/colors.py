"""Colours on FFmpeg's command line: matrices, ranges, and the filters that convert between them."""

from __future__ import annotations

from penstock.ffmpeg.pixel_formats import is_gray, is_rgb, subsampling

# Matrix, primaries and transfer characteristics, by FFmpeg's names of the code points in ITU-T H.273 (tables 4, 2
# and 3): 6, 6, 6 for BT.601 with 525 lines; 1, 1, 1; and 9, 9, 14, whose curve is that of 1, 6 and 15 as well.
_CODE_POINTS = {
    "bt601": ("smpte170m", "smpte170m", "smpte170m"),
    "bt709": ("bt709", "bt709", "bt709"),
    "bt2020": ("bt2020nc", "bt2020", "bt2020-10"),
}
MATRICES = tuple(_CODE_POINTS)
#: Our names of the matrices that FFmpeg prints. bt470bg is BT.601 with 625 lines.
MATRIX_NAMES = {space: name for name, (space, _, _) in _CODE_POINTS.items()} | {"bt470bg": "bt601"}
#: FFmpeg's names of the ranges.
RANGES = {"limited": "tv", "full": "pc"}
RANGE_NAMES = {tag: name for name, tag in RANGES.items()}
# Weights of red, green and blue in luma (ITU-R BT.601, BT.709, BT.2020).
_WEIGHTS = {"bt601": "0.299:0.587:0.114", "bt709": "0.2126:0.7152:0.0722", "bt2020": "0.2627:0.678:0.0593"}
_CENTRED = ("-chroma_sample_location", "center")
# Pictures with at least as many lines are HD, whose default is BT.709.
_HD_LINES = 720


def color_matrix(matrix: str, height: int) -> str:
    """The matrix that `matrix` stands for: ``"auto"`` is bt709 from 720 lines on, and bt601 below."""
    if matrix == "auto":
        return "bt709" if height >= _HD_LINES else "bt601"
    return matrix


def colors_for(codec: str, matrix: str, color_range: str, height: int) -> tuple[str, str]:
    """The matrix and the range of `codec`'s video: the given ones, or for JPEG always BT.601 and full (JFIF 1.02)."""
    if not _is_jpeg(codec):
        return color_matrix(matrix, height), color_range
    if matrix not in ("auto", "bt601"):
        raise ValueError(f"{codec} video is JPEG, whose players know no matrix but 'bt601'; got {matrix!r}")
    return "bt601", "full"


def jpeg_pixel_format(codec: str, pixel_format: str) -> str:
    """The name of `pixel_format` for `codec`: JPEG encoders call yuv420p ``yuvj420p``.

    FFmpeg 5.1 converts frames that come with the other name.
    """
    is_yuv = pixel_format in ("yuv420p", "yuv422p", "yuv444p")
    return pixel_format.replace("yuv", "yuvj") if _is_jpeg(codec) and is_yuv else pixel_format


def color_arguments(matrix: str, color_range: str) -> list[str]:
    """FFmpeg's arguments for the colours of a YUV input or output.

    Both need them: FFmpeg converts nothing if input and output have the same, and it writes those of the output to the
    file.
    """
    space, primaries, transfer = _CODE_POINTS[matrix]
    return [
        *("-color_range", RANGES[color_range]),
        *("-colorspace", space),
        *("-color_primaries", primaries),
        *("-color_trc", transfer),
    ]


def input_color_arguments(
    pixel_format: str, matrix: str, color_range: str, *, centred: bool = False
) -> list[str]:
    """`color_arguments` for input frames of `pixel_format`. RGB and gray have the full range.

    Args:
        centred: as for `output_color_arguments`. FFmpeg 7.1 takes the chroma location from the frames, and 9 from the
            output's arguments if it converts: both get it.
    """
    centre = _CENTRED if centred else ()
    if is_rgb(pixel_format) or is_gray(pixel_format):
        return ["-color_range", RANGES["full"], *centre]
    return [*color_arguments(matrix, color_range), *centre]


def output_color_arguments(
    pixel_format: str | None, matrix: str, color_range: str, *, centred: bool = False
) -> list[str]:
    """`color_arguments` for output video of `pixel_format`; none for RGB, which has no matrix, and for None.

    Gray has the full range: FFmpeg 7 and later write and read no other.

    Args:
        centred: whether a chroma sample lies in the middle of its pixels, and not in their left column (see
            `is_centred`).
    """
    if pixel_format is None or is_rgb(pixel_format):
        return []
    color_range = "full" if is_gray(pixel_format) else color_range
    return [*color_arguments(matrix, color_range), *(_CENTRED if centred else ())]


def is_centred(frames: str, output_pixel_format: str | None) -> bool:
    """Whether a chroma sample lies in the middle of its pixels in a video of `output_pixel_format`.

    The native conversion and `conversion_filters` put it there for RGB and gray `frames`. For the caller's own YUV the
    location is not known.
    """
    return (is_rgb(frames) or is_gray(frames)) and subsampling(output_pixel_format or "") != (1, 1)


def conversion_filter(frames: str, output_pixel_format: str, matrix: str, color_range: str) -> str:
    if not is_gray(output_pixel_format):
        return _scale_filter(matrix, color_range, output_pixel_format)
    return _full_gray(output_pixel_format) if is_gray(frames) else _gray_filter(output_pixel_format, matrix)


def _scale_filter(matrix: str, color_range: str, pixel_format: str) -> str:
    """FFmpeg's filters that convert to `pixel_format` with this matrix and range, and tag the frames with them.

    By default, FFmpeg 5.1 uses BT.601 for every size, whatever tags the file gets. ``area`` makes a chroma sample the
    mean of its pixels. Without ``format``, FFmpeg 9 may convert in a filter of its own, with other flags.
    """
    space, primaries, transfer = _CODE_POINTS[matrix]
    color_range = RANGES[color_range]
    return (
        f"scale=out_color_matrix={matrix}:out_range={color_range}:flags=accurate_rnd+full_chroma_inp+area,"
        f"format={pixel_format},"
        f"setparams=range={color_range}:colorspace={space}:color_primaries={primaries}:color_trc={transfer}"
    )


def _gray_filter(pixel_format: str, matrix: str) -> str:
    """FFmpeg's filters that convert colours to gray `pixel_format` of the full range, with this matrix.

    By default, FFmpeg 7 and 9 use BT.601 whatever matrix they get. The mixer makes red, green and blue equal, which
    every matrix converts to the same gray. It works on 16 bits because it rounds each product.
    """
    weights = _WEIGHTS[matrix]
    mixer = f"format=rgba64,colorchannelmixer={weights}:0:{weights}:0:{weights}"
    return f"{mixer},{_full_gray(pixel_format)}"


def _full_gray(pixel_format: str) -> str:
    return f"scale=out_range=full:flags=accurate_rnd,format={pixel_format}"


def _is_jpeg(codec: str) -> bool:
    return codec.startswith(("mjpeg", "ljpeg"))
