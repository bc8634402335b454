"""FFmpeg's command line, from an encoder's arguments; what is wrong with them is said here, at the call."""

from __future__ import annotations

import math
import operator
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from fractions import Fraction
from numbers import Rational
from pathlib import Path

from penstock.ffmpeg.pixels import FrameLayout, canonical, divides_evenly, is_gray, is_rgb, subsampling

_FILE = "file:"
#: What FFmpeg may open by itself where it reads a local path: no network. FFmpeg's own default, said all the same.
_LOCAL_PROTOCOLS = "file,crypto,data"
#: FFmpeg's demuxers of files that lead to other files, or are programs to be run.
LEADING_CONTAINERS = frozenset(
    (
        *("applehttp", "avisynth", "concat", "dash", "dvdvideo", "hls", "imf", "rtp", "rtsp", "sap", "sdp"),
        *("vapoursynth", "vobsub", "webm_dash_manifest"),
    )
)
_STDOUT = "pipe:1"
# A scheme, and perhaps others before it, as in "zmq:tcp://127.0.0.1:5555".
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*:)+//", re.IGNORECASE)
# What goes through each, where no container is named: FFmpeg guesses from the end of a file's name, which a stream
# has not. RTMP carries nothing but FLV (Adobe's specification, 6.1).
_LIVE_CONTAINERS = {
    **dict.fromkeys(("rtmp", "rtmps", "rtmpt", "rtmpts", "rtmpe", "rtmpte"), "flv"),
    **dict.fromkeys(("udp", "tcp", "srt", "rist"), "mpegts"),
    "rtsp": "rtsp",
}

# FFmpeg warns that these may be for sound, too.
_VIDEO_OPTIONS = {"b": "b:v", "profile": "profile:v"}
#: All of them are one option to FFmpeg, of which the last prevails.
FILTER_OPTIONS = ("vf", "filter:v", "filter", "filter:v:0", "filter:0")
_RESIZING_OPTIONS = (*FILTER_OPTIONS, "s")

# Matrix, primaries and transfer characteristics, by FFmpeg's names of the code points in ITU-T H.273 (tables 4, 2
# and 3): 6, 6, 6 for BT.601 with 525 lines; 1, 1, 1; and 9, 9, 14, whose curve is that of 1, 6 and 15 as well.
_COLORS = {
    "bt601": ("smpte170m", "smpte170m", "smpte170m"),
    "bt709": ("bt709", "bt709", "bt709"),
    "bt2020": ("bt2020nc", "bt2020", "bt2020-10"),
}
_RANGES = {"limited": "tv", "full": "pc"}
# Shares of red, green and blue in brightness (ITU-R BT.601, BT.709, BT.2020).
_WEIGHTS = {"bt601": "0.299:0.587:0.114", "bt709": "0.2126:0.7152:0.0722", "bt2020": "0.2627:0.678:0.0593"}
_CENTRED = ("-chroma_sample_location", "center")
# In these FFmpeg finds a time by guessing positions, and may begin later than it was asked to. The rest have an index,
# or are read from the beginning.
_WITHOUT_INDEX = ("mpegts", "mpeg")
# Guessed: between two keyframes there is less than this as a rule; broadcasts have 0.5 to 2 s.
_SEEK_MARGIN_S = 10.0
#: Lines from which a picture is HD, which has BT.709 where nobody says otherwise.
_HD_LINES = 720
_PAD = "pad=ceil(iw/2)*2:ceil(ih/2)*2"


def checked_size(size: tuple[int, int]) -> tuple[int, int]:
    """`size` as two ints.

    Raises:
        ValueError: it is not two numbers above 0.
        TypeError: they are not integers.
    """
    try:
        lengths = [operator.index(length) for length in size]
    except TypeError:
        raise TypeError(f"size is width and height in pixels, two integers; got {size!r}") from None
    if len(lengths) != 2:
        raise ValueError(f"size is width and height in pixels, of an array frame.shape[1::-1]; got {size!r}")
    width, height = lengths
    if width <= 0 or height <= 0:
        raise ValueError(f"size is width and height in pixels, both more than 0; got {size!r}")
    return width, height


def frame_rate(fps: int | float | Fraction) -> Fraction:
    """`fps` as the fraction that FFmpeg wants.

    Raises:
        ValueError: it is not a finite number above 0.
    """
    try:
        # Of NumPy's float32 a Fraction cannot be made. The limit finds 30000/1001 in its float again, and keeps both
        # numbers small enough for FFmpeg.
        rate = Fraction(fps if isinstance(fps, Rational | str) else float(fps)).limit_denominator(1_000_000)
    except (ValueError, OverflowError):  # nan, inf
        rate = Fraction(0)
    except TypeError:
        raise TypeError(
            f"fps is frames per second, a number such as 30, 29.97 or Fraction(30000, 1001); got {fps!r}"
        ) from None
    if rate <= 0:
        raise ValueError(f"fps is frames per second, more than 0; got {fps!r}")
    return rate


def check_even(layout: FrameLayout, output_pixel_format: str | None, options: Mapping[str, object]) -> None:
    """Checks that frames of `layout` can become video in `output_pixel_format`.

    Raises:
        ValueError: they would have to be padded, and no option tells FFmpeg to.
    """
    if output_pixel_format is None or divides_evenly(output_pixel_format, layout.width, layout.height):
        return
    if any(name in options for name in _RESIZING_OPTIONS):
        return
    raise ValueError(
        f"{output_pixel_format} video has one colour sample for several pixels, and {layout.width}x"
        f"{layout.height} pixels cannot be shared out evenly: render an even size, or let FFmpeg pad it with "
        f"options={{'vf': {_PAD!r}}}, or give output_pixel_format='yuv444p', which fewer players know"
    )


def target(output: str | os.PathLike[str], container_format: str | None = None) -> str:
    """What FFmpeg is told to write to: a URL as it is, a path behind the protocol that takes it literally.

    A `str` is a URL if it begins with a scheme and ``//``, and FFmpeg's standard output if it is ``-``, ``pipe:`` or
    ``pipe:1``. All else is a path, whatever its characters. With the container ``tee`` the output is its list of
    outputs, and stays as it is.

    Raises:
        FileNotFoundError: the path's folder does not exist.
        NotADirectoryError: it is no folder.
        IsADirectoryError: the path itself is a folder.
        PermissionError: the file, or the folder of a new one, may not be written to.
        ValueError: a pipe that FFmpeg does not have.
    """
    if isinstance(output, str):
        if output == "-" or re.fullmatch(r"pipe:\d*", output):
            return _pipe(output)
        if _URL.match(output) or (container_format == "tee" and not output.startswith("-")):
            return output
    path = Path(output).absolute()
    # A Path has no slash at its end any more.
    _check_writable(path, named_as_folder=os.fspath(output).endswith("/"))
    return f"{_FILE}{path}"


def source(path_or_url: str | os.PathLike[str]) -> str:
    """What FFmpeg is told to read from: a URL as it is, a path behind the protocol that takes it literally.

    A `str` is a URL if it begins with a scheme and ``//``. All else is a path, whatever its characters: ``-`` is a
    file of that name.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it is a folder.
        PermissionError: it may not be read.
        OSError: the system does not lead to it for another reason, such as a loop of symbolic links.
    """
    if isinstance(path_or_url, str) and _URL.match(path_or_url):
        return path_or_url
    path = os.fspath(path_or_url)
    # As it was given: Path("clip.mp4/") is the file clip.mp4, which the system says is no folder.
    if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    _check_access(Path(path), os.R_OK, os.strerror(EACCES))
    return f"{_FILE}{Path(path).absolute()}"


def confining_arguments(source: str, containers: Iterable[str]) -> list[str]:
    """FFmpeg's arguments that keep it from opening anything but `source`, if that is a path.

    Args:
        containers: those that it may be; none for any.
    """
    if not is_path(source):
        return []
    allowed = ",".join(containers)
    whitelist = ["-format_whitelist", allowed] if allowed else []
    return ["-protocol_whitelist", _LOCAL_PROTOCOLS, *whitelist]


def leads_elsewhere(container: str) -> bool:
    """Whether a file of this container, by ffprobe's names, leads to other files."""
    return not LEADING_CONTAINERS.isdisjoint(container.split(","))


def uses_stdout(target: str) -> bool:
    """Whether FFmpeg writes `target` to its standard output, which then has to be ours."""
    return target == _STDOUT


def container_for(target: str, container_format: str | None) -> str | None:
    """The container for `target`: `container_format`, or what its protocol carries; None leaves it to its name.

    Raises:
        ValueError: nothing tells the container of what goes through a pipe.
    """
    if container_format is not None:
        return container_format
    if uses_stdout(target):
        raise ValueError(
            "a pipe has no name to tell its container: give container_format, such as 'matroska', 'mpegts', 'nut' "
            "or 'rawvideo'"
        )
    return _LIVE_CONTAINERS.get(target.partition("://")[0].lower())


def without_protocol(target: str) -> str:
    """The path of a local `target`, or its URL."""
    return target.removeprefix(_FILE)


def is_path(target: str) -> bool:
    """Whether `target` is a local path, and no URL or pipe."""
    return target.startswith(_FILE)


def file_bytes(target: str) -> int | None:
    """The size of the file at `target`; None if it is not a regular file."""
    path = Path(without_protocol(target))
    return path.stat().st_size if path.is_file() else None


def color_matrix(matrix: str, height: int) -> str:
    """The matrix that `matrix` stands for: ``"auto"`` is bt709 for a picture of 720 lines or more, and bt601 below.

    Raises:
        ValueError: it is none of auto, bt601, bt709 and bt2020.
    """
    if matrix == "auto":
        return "bt709" if height >= _HD_LINES else "bt601"
    if matrix not in _COLORS:
        raise ValueError(f"color_matrix is 'auto', {', '.join(map(repr, _COLORS))}; got {matrix!r}")
    return matrix


def colors_for(codec: str, matrix: str, color_range: str, height: int) -> tuple[str, str]:
    """The matrix and the range of `codec`'s video: those asked for, but JPEG's are BT.601 and full (JFIF 1.02).

    Raises:
        ValueError: there is no such matrix or range, or JPEG cannot have the matrix.
    """
    _range(color_range)
    if not _is_jpeg(codec):
        return color_matrix(matrix, height), color_range
    if matrix not in ("auto", "bt601"):
        raise ValueError(
            f"{codec} video is JPEG, whose players know no color_matrix but 'bt601'; got {matrix!r}"
        )
    return "bt601", "full"


def jpeg_pixel_format(codec: str, pixel_format: str) -> str:
    """`pixel_format` by the name that JPEG has for it: ``yuvj420p`` for yuv420p with `codec` mjpeg.

    FFmpeg 5.1 puts a conversion before the encoder if frames that it gets have the other name.
    """
    is_yuv = pixel_format in ("yuv420p", "yuv422p", "yuv444p")
    return pixel_format.replace("yuv", "yuvj") if _is_jpeg(codec) and is_yuv else pixel_format


def color_arguments(matrix: str, color_range: str) -> list[str]:
    """FFmpeg's arguments that say which colours YUV is made of, for an input or for an output.

    Both need them: of an input FFmpeg believes them, and then converts nothing on the way to an output that has the
    same; on an output they are written to the file.

    Args:
        matrix: bt601, bt709 or bt2020.
        color_range: limited or full.

    Raises:
        ValueError: there is no such matrix or range.
    """
    space, primaries, transfer = _COLORS[color_matrix(matrix, _HD_LINES)]
    return [
        *("-color_range", _range(color_range)),
        *("-colorspace", space),
        *("-color_primaries", primaries),
        *("-color_trc", transfer),
    ]


def input_color_arguments(
    pixel_format: str, matrix: str, color_range: str, *, centred: bool = False
) -> list[str]:
    """`color_arguments` for frames of `pixel_format` that FFmpeg is given: RGB and gray have the full range.

    Args:
        centred: as for `output_color_arguments`. FFmpeg 7.1 takes the place of chroma from the frames, and 9 from the
            output's arguments where it has converted: both get it.
    """
    centre = _CENTRED if centred else ()
    if is_rgb(pixel_format) or is_gray(pixel_format):
        return ["-color_range", _range("full"), *centre]
    return [*color_arguments(matrix, color_range), *centre]


def output_color_arguments(
    pixel_format: str | None, matrix: str, color_range: str, *, centred: bool = False
) -> list[str]:
    """`color_arguments` for video of `pixel_format`. RGB has no matrix, and of None nobody knows whether it is RGB.

    Gray has the full range: FFmpeg 7 and later make and read no other.

    Args:
        centred: a chroma sample lies in the middle of its pixels, not in their left column (see `is_centred`).
    """
    if pixel_format is None or is_rgb(pixel_format):
        return []
    color_range = "full" if is_gray(pixel_format) else color_range
    return [*color_arguments(matrix, color_range), *(_CENTRED if centred else ())]


def is_centred(frames: str, output_pixel_format: str | None) -> bool:
    """Whether chroma lies in the middle of its pixels in a video of `output_pixel_format`, for that is to be said.

    So the native conversion and `conversion_filters` make it of RGB and gray `frames`. Where that of a caller's own YUV
    lies is not known.
    """
    return (is_rgb(frames) or is_gray(frames)) and subsampling(output_pixel_format or "") != (1, 1)


def scale_filter(matrix: str, color_range: str, pixel_format: str) -> str:
    """FFmpeg's filters that convert to `pixel_format` with this matrix and range, and say so of the frames.

    Left alone, FFmpeg 5.1 takes BT.601 for every size, whatever the file is told. ``area`` makes a chroma sample the
    mean of its pixels. Without ``format`` the conversion may be left to a filter that FFmpeg 9 adds, with other flags.
    """
    space, primaries, transfer = _COLORS[color_matrix(matrix, _HD_LINES)]
    color_range = _range(color_range)
    return (
        f"scale=out_color_matrix={matrix}:out_range={color_range}:flags=accurate_rnd+full_chroma_inp+area,"
        f"format={pixel_format},"
        f"setparams=range={color_range}:colorspace={space}:color_primaries={primaries}:color_trc={transfer}"
    )


def gray_filter(pixel_format: str, matrix: str) -> str:
    """FFmpeg's filters that convert colours to gray `pixel_format` of the full range, by this matrix.

    Left alone, FFmpeg 7 and 9 take BT.601 whatever they are told. Red, green and blue that are equal are the same gray
    by every matrix. They are made of 16 bits, because the mixer rounds each share.
    """
    weights = _WEIGHTS[color_matrix(matrix, _HD_LINES)]
    mixer = f"format=rgba64,colorchannelmixer={weights}:0:{weights}:0:{weights}"
    return f"{mixer},{_full_gray(pixel_format)}"


def _full_gray(pixel_format: str) -> str:
    return f"scale=out_range=full:flags=accurate_rnd,format={pixel_format}"


def conversion_filters(
    layout: FrameLayout,
    output_pixel_format: str | None,
    matrix: str,
    color_range: str,
    *,
    odd_size: str = "error",
    vflip: bool = False,
) -> list[str]:
    """FFmpeg's filters for what the native conversion does: turn over, make the size even, convert.

    With None for `output_pixel_format` FFmpeg chooses it, and converts in its own way.
    """
    filters = ["vflip"] if vflip else []
    if output_pixel_format is None:
        return filters
    filters += _even_filters(layout, output_pixel_format, odd_size)
    if canonical(output_pixel_format) != layout.pixel_format and not is_rgb(output_pixel_format):
        filters.append(_conversion_filter(layout.pixel_format, output_pixel_format, matrix, color_range))
    return filters


def _conversion_filter(frames: str, output_pixel_format: str, matrix: str, color_range: str) -> str:
    if not is_gray(output_pixel_format):
        return scale_filter(matrix, color_range, output_pixel_format)
    return _full_gray(output_pixel_format) if is_gray(frames) else gray_filter(output_pixel_format, matrix)


def output_size(width: int, height: int, output_pixel_format: str | None, odd_size: str) -> tuple[int, int]:
    """The size of the video that frames of `width` by `height` pixels become.

    Raises:
        ValueError: nothing is left of them, or `odd_size` is none of error, pad and crop.
    """
    if odd_size not in ("error", "pad", "crop"):
        raise ValueError(f"odd_size is 'error', 'pad' or 'crop'; got {odd_size!r}")
    columns, rows = subsampling(output_pixel_format or "")
    if odd_size == "pad":
        return -(-width // columns) * columns, -(-height // rows) * rows
    if odd_size == "crop":
        width, height = width // columns * columns, height // rows * rows
    if not width or not height:
        raise ValueError(f"odd_size='crop' leaves {width}x{height} pixels of {output_pixel_format} video")
    return width, height


def with_filters(options: Mapping[str, object], filters: Sequence[str]) -> dict[str, object]:
    """`options` with `filters` in front of the user's own, which see the picture that these make."""
    if not filters:
        return dict(options)
    own = [str(options[name]) for name in FILTER_OPTIONS if name in options]
    others = {name: value for name, value in options.items() if name not in FILTER_OPTIONS}
    return {"filter:v": ",".join([*filters, *own]), **others}


def input_arguments(layout: FrameLayout, rate: Fraction, colors: Sequence[str] = ()) -> list[str]:
    """FFmpeg's arguments for raw frames on its standard input, from which it then takes no commands."""
    return [
        *("-f", "rawvideo"),
        *("-pixel_format", layout.pixel_format),
        *("-video_size", f"{layout.width}x{layout.height}"),
        *("-framerate", f"{rate.numerator}/{rate.denominator}"),
        *colors,
        *("-i", "pipe:0"),
    ]


def output_arguments(
    target: str,
    codec: str,
    pixel_format: str | None,
    options: Mapping[str, object],
    container_format: str | None,
    colors: Sequence[str] = (),
) -> list[str]:
    """FFmpeg's arguments for one video output, overwritten if it is there. `options` come last, and so prevail."""
    arguments = ["-c:v", codec]
    if pixel_format is not None:
        arguments += ["-pix_fmt", pixel_format]
    arguments += colors
    arguments += option_arguments({_VIDEO_OPTIONS.get(name, name): value for name, value in options.items()})
    if container_format is not None:
        arguments += ["-f", container_format]
    return [*arguments, "-y", target]


def read_arguments(source: str, container: str) -> list[str]:
    """FFmpeg's arguments to read `source`, a file of that `container` by ffprobe's names.

    Of a QuickTime or MP4 file that was cut off, the last packet is left out: else an FFmpeg that is to stop at errors
    stops there before its decoder has given the frames that it holds back. In other containers packets are marked as
    corrupt in the middle, too, and what follows is not to be had as if nothing were missing.
    """
    cut_only_at_the_end = container.startswith("mov,")
    return [
        *(("-fflags", "+discardcorrupt") if cut_only_at_the_end else ()),
        *(literal_arguments(source) if container == "image2" else ()),
        *("-i", source),
    ]


def literal_arguments(source: str) -> list[str]:
    """FFmpeg's arguments to take a picture's path, if `source` is one, for no pattern: ``shot%03d.png``."""
    return ["-pattern_type", "none"] if is_path(source) else []


def seek_arguments(start: float | None, container: str | None, start_s: float) -> tuple[list[str], list[str]]:
    """FFmpeg's options, and its filters, to begin with what is not before `start`, exactly.

    The filters are those of video, want ``-copyts``, and are not always needed.

    A frame of sound is decoded rightly after the one before it only, which FFmpeg left alone would not read: the first
    21 ms of AAC then fade in.

    Args:
        start: seconds from the beginning; None for all of it.
        container: of the file, by ffprobe's names; None for sound, of whatever file.
        start_s: the time of the file's first timestamp.
    """
    if start is None:
        return [], []
    if container is not None and container not in _WITHOUT_INDEX:
        return ["-ss", seconds(start)], []
    sooner_s = start - _SEEK_MARGIN_S
    seek = ["-noaccurate_seek", "-ss", seconds(sooner_s)] if sooner_s > 0 else []
    return seek, [f"trim=start={seconds(start + start_s)}"]


def option_arguments(options: Mapping[str, object]) -> list[str]:
    """FFmpeg's arguments for `options`, whose names have no dash.

    A value of None gives an option without a value, and a list or a tuple gives the option once for each of its values.
    """
    arguments: list[str] = []
    for name, values in options.items():
        for value in values if isinstance(values, list | tuple) else (values,):
            arguments += [f"-{name}"] if value is None else [f"-{name}", str(value)]
    return arguments


def seconds(seconds: float) -> str:
    """A time as FFmpeg reads it, in microseconds: never later, so that a frame at that very time is not left out."""
    return f"{math.floor(seconds * 1_000_000) / 1_000_000:.6f}"


def _even_filters(layout: FrameLayout, output_pixel_format: str, odd_size: str) -> list[str]:
    width, height = output_size(layout.width, layout.height, output_pixel_format, odd_size)
    right, bottom = width - layout.width, height - layout.height
    if right > 0 or bottom > 0:
        # The last column and row again, where `pad` alone would draw a dark line.
        borders = f"fillborders=right={right}:bottom={bottom}:mode=smear"
        return [f"pad={width}:{height}:0:0", borders]
    if right < 0 or bottom < 0:
        return [f"crop={width}:{height}:0:0"]
    return []


def _is_jpeg(codec: str) -> bool:
    return codec.startswith(("mjpeg", "ljpeg"))


def _pipe(output: str) -> str:
    if output in ("-", "pipe:", _STDOUT):
        return _STDOUT
    raise ValueError(
        f"FFmpeg gets none of our descriptors but standard output, pipe:1; got {output!r}. "
        f"A file of that name is Path({output!r})"
    )


def _check_writable(path: Path, *, named_as_folder: bool) -> None:
    """Raises what opening `path` for writing would raise, as far as it can be known without making anything."""
    if path.is_dir() or named_as_folder:
        raise IsADirectoryError(EISDIR, "the output is a folder, and not a file in one", str(path))
    if path.exists():
        _check_access(path, os.W_OK, "the output may not be written to")
        return
    # Of a symbolic link that leads to nothing yet, the folder in which FFmpeg makes the file.
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.exists():
        raise FileNotFoundError(ENOENT, "the output's folder does not exist", str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, "the output's folder is a file", str(folder))
    _check_access(folder, os.W_OK | os.X_OK, "no file may be made in the output's folder")


def _check_access(path: Path, access: int, refusal: str) -> None:
    if not os.access(path, access, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(EACCES, refusal, str(path))


def _range(color_range: str) -> str:
    if color_range not in _RANGES:
        raise ValueError(f"color_range is {' or '.join(map(repr, _RANGES))}; got {color_range!r}")
    return _RANGES[color_range]
