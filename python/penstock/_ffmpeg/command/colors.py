"""Colors: matrices, ranges, and the filters that convert between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock._common.messages import argument
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import Colors
from penstock._ffmpeg.program import capabilities
from penstock._formats import encoders
from penstock._formats.pixel_formats import as_jpeg, is_gray, is_rgb, subsampling

# Matrix, primaries and transfer characteristics, by FFmpeg's names of the code points in ITU-T H.273 (tables 4, 2
# and 3): 6, 6, 6 for BT.601 with 525 lines; 1, 1, 1; and 9, 9, 14, whose curve is that of 1, 6 and 15 as well.
_CODE_POINTS = {
    "bt601": ("smpte170m", "smpte170m", "smpte170m"),
    "bt709": ("bt709", "bt709", "bt709"),
    "bt2020": ("bt2020nc", "bt2020", "bt2020-10"),
}
MATRICES = tuple(_CODE_POINTS)
_UNKNOWN = ("unknown", "unknown")
#: Our names of the matrices that FFmpeg prints. bt470bg is BT.601 with 625 lines.
MATRIX_NAMES = {space: name for name, (space, _, _) in _CODE_POINTS.items()} | {"bt470bg": "bt601"}
# FFmpeg's options with colors, and those of x264 and x265 among their own, by the attribute of `Colors`.
_OPTIONS = {
    "colorspace": "matrix",
    "color_range": "range",
    "color_primaries": "primaries",
    "color_trc": "transfer",
}
# A value of each, for messages.
_EXAMPLES = {"matrix": "bt709", "range": "full", "primaries": "bt2020", "transfer": "smpte2084"}
_CODEC_WORDS = {
    "colormatrix": "matrix",
    "range": "range",
    "fullrange": "range",
    "colorprim": "primaries",
    "transfer": "transfer",
}


#: FFmpeg's names of the ranges.
RANGES = {"limited": "tv", "full": "pc"}
# Weights of red, green and blue in luma (ITU-R BT.601, BT.709, BT.2020).
_WEIGHTS = {"bt601": "0.299:0.587:0.114", "bt709": "0.2126:0.7152:0.0722", "bt2020": "0.2627:0.678:0.0593"}
_CENTERED = ("-chroma_sample_location", "center")
# Pictures with at least as many lines are HD, whose default is BT.709.
_HD_LINES = 720


@dataclass(frozen=True, slots=True)
class VideoColors:
    """The colors of a YUV video, with each "auto" resolved.

    Attributes:
        matrix: "bt601", "bt709", "bt2020", or one that frames have and nothing converts to: see `Colors`.
        range: "limited" or "full".
        primaries, transfer: by FFmpeg's names; None for those that are usual with the matrix.
    """

    matrix: str
    range: str
    primaries: str | None = None
    transfer: str | None = None

    @property
    def arguments(self) -> list[str]:
        """FFmpeg's arguments for the colors of a YUV input or output.

        Both need them: FFmpeg converts nothing if input and output have the same, and it writes those of the output to
        the file.
        """
        space, primaries, transfer = self._names
        return [
            *("-color_range", RANGES[self.range]),
            *("-colorspace", space),
            *("-color_primaries", primaries),
            *("-color_trc", _GAMMAS.get(transfer, transfer)),
        ]

    @property
    def asked_arguments(self) -> list[str]:
        """FFmpeg's arguments for the primaries and the transfer characteristics that are not the usual ones."""
        asked = {
            "-color_primaries": self.primaries,
            "-color_trc": self.transfer and _GAMMAS.get(self.transfer, self.transfer),
        }
        return [word for name, value in asked.items() if value is not None for word in (name, value)]

    @property
    def filter(self) -> str:
        """FFmpeg's filter that tags frames."""
        space, primaries, transfer = self._names
        tags = f"colorspace={space}:color_primaries={primaries}:color_trc={transfer}"
        return f"setparams=range={RANGES[self.range]}:{tags}"

    @property
    def converted(self) -> str:
        """The matrix of a conversion, in which a matrix that frames keep has no part."""
        return self.matrix if self.matrix in MATRICES else "bt601"

    @property
    def _names(self) -> tuple[str, str, str]:
        space = "unknown" if self.matrix == "untagged" else self.matrix
        space, primaries, transfer = _CODE_POINTS.get(self.matrix, (space, *_UNKNOWN))
        return space, self.primaries or primaries, self.transfer or transfer


#: The colors that readers, also FFmpeg and our `Decoder`, assume for a video without tags.
UNTAGGED = VideoColors("bt601", "limited")
# The names of these transfers in FFmpeg's options, by those in its filters.
_GAMMAS = {"bt470m": "gamma22", "bt470bg": "gamma28"}


def colors_for(codec: str, colors: Colors, height: int) -> VideoColors:
    """The colors of `codec`'s video: the given ones, or for JPEG always BT.601 and full (JFIF 1.02).

    A matrix "auto" is bt709 from 720 lines on, and bt601 below, and for a codec without tags.

    Raises:
        ValueError: the codec can't store what is given.
    """
    is_assumed = colors.matrix in ("auto", "bt601", "untagged") and colors.range in ("auto", "limited")
    if not encoders.codec_of(codec).has_color_tags and not is_assumed:
        raise ValueError(
            f"{codec} video has no color tags, and players assume {UNTAGGED.matrix!r} and {UNTAGGED.range!r}. Leave "
            "matrix and range out"
        )
    tags = {
        name: None if getattr(colors, name) == "auto" else getattr(colors, name)
        for name in ("primaries", "transfer")
    }
    if not encoders.codec_of(codec).is_jpeg:
        is_hd = height >= _HD_LINES and encoders.codec_of(codec).has_color_tags
        matrix = ("bt709" if is_hd else "bt601") if colors.matrix == "auto" else colors.matrix
        return VideoColors(matrix, "limited" if colors.range == "auto" else colors.range, **tags)
    if colors.matrix not in ("auto", "bt601", "untagged"):
        raise ValueError(
            f"the matrix of {codec} video must be 'bt601', because it is JPEG, not {colors.matrix!r}. Leave "
            f"it out, and use {argument('pixel_format', DEFAULT_FORMAT)}: YUV isn't converted"
        )
    return VideoColors("bt601", "full", **tags)


def check_without_colors(options: Mapping[str, object]) -> None:
    """Checks that no option names a color, by which nothing would be converted.

    Raises:
        ValueError: one does. The message says which attribute of `Colors` to set.
    """
    for name, value in options.items():
        kind = name.partition(":")[0]  # the rest is a stream
        keys = [word.partition("=")[0].strip() for word in str(value).split(":")]
        named = (
            [_CODEC_WORDS[key] for key in keys if key in _CODEC_WORDS] if kind in encoders.PARAMETERS else []
        )
        if kind in _OPTIONS:
            named = [_OPTIONS[kind]]
        if named:
            instead = argument(f"colors.{named[0]}", _EXAMPLES[named[0]])
            raise ValueError(f"{argument(f'options.{name}', value)} sets a color. Pass {instead} instead")


def with_range_of(colors: Colors, *pixel_formats: str | None) -> Colors:
    """`colors` with the full range if that is what a pixel format says: yuvj420p.

    Raises:
        ValueError: `colors` have the limited range.
    """
    full = next((name for name in pixel_formats if name is not None and name.startswith("yuvj")), None)
    if full is None:
        return colors
    if colors.range == "limited":
        also = argument("colors.range", colors.range)
        raise ValueError(f"{also} and {full} exclude each other. Pass only one")
    return replace(colors, range="full")


def holds_hdr_metadata(program: str, codec: str) -> bool:
    """Whether FFmpeg can tag `codec`, or its input, with the mastering display and the light levels."""
    return encoders.known(codec).hdr is not None or "mastering_display" in capabilities.global_options(
        program
    )


def with_hdr_metadata(
    program: str, codec: str, colors: Colors, options: Mapping[str, object]
) -> dict[str, object]:
    """`options` with the encoder's parameters for the mastering display and the light levels of `colors`.

    Raises:
        ValueError: FFmpeg cannot tag `codec` with them, `options` set them, too, or a value is missing or not possible.
    """
    parameters = encoders.known(codec).hdr
    given = _hdr_values(colors, whole=parameters is None or parameters.has_whole_numbers)
    if not given:
        return dict(options)
    if parameters is None:
        if holds_hdr_metadata(program, codec):
            return dict(options)  # these are for `hdr_arguments`
        raise ValueError(
            f"{codec} video of this FFmpeg can't hold {argument(f'colors.{next(iter(given))}')}. Use "
            f"{', '.join(encoders.with_hdr())}, or FFmpeg 9"
        )
    own = str(options.get(parameters.option, ""))
    words = [own] if own else []
    for name, value in given.items():
        key = getattr(parameters, name)
        for option in encoders.known(codec).parameters:
            if not any(
                word.partition("=")[0].strip() == key for word in str(options.get(option, "")).split(":")
            ):
                continue
            also = argument(f"options.{option}", options[option])
            raise ValueError(f"{argument(f'colors.{name}')} and {also} exclude each other. Pass only one")
        words.append(f"{key}={value}")
    return {**options, parameters.option: ":".join(words)}


def hdr_arguments(codec: str, colors: Colors) -> list[str]:
    """FFmpeg's arguments for an input with this display and light, where the encoder has no parameters for them.

    The muxers of MP4, QuickTime, Matroska and WebM write what these options say, where FFmpeg has the options.
    """
    given = {} if encoders.known(codec).hdr is not None else _hdr_values(colors, whole=True)
    return [word for name, value in given.items() for word in (f"-{name}:v", value)]


def _hdr_values(colors: Colors, *, whole: bool) -> dict[str, str]:
    """The display and the light of `colors`, by their attributes, as encoders read them."""
    words, light = {}, colors.content_light
    if colors.mastering_display is not None:
        words["mastering_display"] = _display(colors.mastering_display, whole=whole)
    if light is not None:
        words["content_light"] = f"{_level(light.max_cll)},{_level(light.max_fall)}"
    return words


def _level(light: int) -> int:
    if isinstance(light, bool) or not isinstance(light, int) or not 0 <= light < 1 << 16:
        raise ValueError(f"a content light must be a whole number of cd/m² from 0 to 65535, not {light!r}")
    return light


def _display(display: Colors.MasteringDisplay, *, whole: bool) -> str:
    """A mastering display as encoders read it: in units of 0.00002 and of 0.0001 cd/m² if they take whole numbers."""
    if not display.is_complete:
        raise ValueError(
            "a mastering display must have x and y from 0 to 1 for red, green, blue and white, and the luminance in "
            f"cd/m², the least first, not {display!r}"
        )
    lengths, lights = (50_000, 10_000) if whole else (1, 1)
    values = {
        "G": (display.green, lengths),
        "B": (display.blue, lengths),
        "R": (display.red, lengths),
        "WP": (display.white, lengths),
        "L": (display.luminance and display.luminance[::-1], lights),
    }
    return "".join(
        f"{name}({','.join(str(round(one * unit) if whole else one) for one in pair or ())})"
        for name, (pair, unit) in values.items()
    )


def jpeg_pixel_format(codec: str, pixel_format: str) -> str:
    """The name of `pixel_format` for `codec`: JPEG encoders call yuv420p ``yuvj420p``."""
    return as_jpeg(pixel_format) if encoders.codec_of(codec).is_jpeg else pixel_format


def input_color_arguments(pixel_format: str, colors: VideoColors, *, centered: bool = False) -> list[str]:
    """FFmpeg's arguments for input frames of `pixel_format`. RGB and gray have the full range.

    The PNG encoder takes primaries and transfer from the frames only.

    Args:
        centered: as for `output_color_arguments`. FFmpeg takes the chroma location from the frames, or from the
            output's arguments: both get it.
    """
    center = _CENTERED if centered else ()
    if is_rgb(pixel_format) or is_gray(pixel_format):
        return ["-color_range", RANGES["full"], *colors.asked_arguments, *center]
    return [*colors.arguments, *center]


def output_color_arguments(
    pixel_format: str | None, colors: VideoColors, *, centered: bool = False
) -> list[str]:
    """FFmpeg's arguments for output video of `pixel_format`; none for None. RGB has no matrix.

    Gray has the full range: FFmpeg may write and read no other.

    Args:
        centered: whether a chroma sample lies in the middle of its pixels, and not in their left column (see
            `is_centered`).
    """
    if pixel_format is None:
        return []
    if is_rgb(pixel_format):
        return colors.asked_arguments
    if is_gray(pixel_format):
        colors = replace(colors, range="full")
    return [*colors.arguments, *(_CENTERED if centered else ())]


def is_centered(frames: str, output_pixel_format: str | None) -> bool:
    """Whether a chroma sample lies in the middle of its pixels in a video of `output_pixel_format`.

    The native conversion and `conversion_filters` put it there for RGB and gray `frames`. For the caller's own YUV the
    location is not known.
    """
    return (is_rgb(frames) or is_gray(frames)) and subsampling(output_pixel_format or "") != (1, 1)


def conversion_filter(frames: str, output_pixel_format: str, colors: VideoColors) -> str:
    if not is_gray(output_pixel_format):
        return _scale_filter(colors, output_pixel_format)
    return (
        _full_gray(output_pixel_format)
        if is_gray(frames)
        else _gray_filter(output_pixel_format, colors.converted)
    )


def _scale_filter(colors: VideoColors, pixel_format: str) -> str:
    """FFmpeg's filters that convert to `pixel_format` with these colors, and tag the frames with them.

    By default, FFmpeg may use BT.601 for every size, whatever tags the file gets. ``area`` makes a chroma sample the
    mean of its pixels. Without ``format``, FFmpeg may convert in a filter of its own, with other flags.
    """
    matrix = "" if colors.matrix in MATRICES else f"in_color_matrix={colors.converted}:"
    out = f"{matrix}out_color_matrix={colors.converted}:out_range={RANGES[colors.range]}"
    return f"scale={out}:flags=accurate_rnd+full_chroma_inp+area,format={pixel_format},{colors.filter}"


def _gray_filter(pixel_format: str, matrix: str) -> str:
    """FFmpeg's filters that convert colors to gray `pixel_format` of the full range, with this matrix.

    By default, FFmpeg may use BT.601 whatever matrix it gets. The mixer makes red, green and blue equal, which
    every matrix converts to the same gray. It works on 16 bits because it rounds each product.
    """
    weights = _WEIGHTS[matrix]
    mixer = f"format=rgba64,colorchannelmixer={weights}:0:{weights}:0:{weights}"
    return f"{mixer},{_full_gray(pixel_format)}"


def _full_gray(pixel_format: str) -> str:
    return f"scale=out_range=full:flags=accurate_rnd,format={pixel_format}"
