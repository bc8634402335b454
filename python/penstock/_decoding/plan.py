"""Plans a decode: who converts the pixels, and FFmpeg's arguments."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import get_args

from av.codec import codecs_available
from av.video.format import VideoFormat
from av.video.format import names as video_formats  # type: ignore[attr-defined]

from penstock._common.messages import argument
from penstock._decoding.framing import Delivery, Framing, chroma_steps
from penstock._decoding.options import DecodeOptions
from penstock._decoding.planes import blank_rows
from penstock._decoding.program_arguments import (
    first_picture,
    reading_arguments,
    sample_picture,
    uncropped_arguments,
)
from penstock._decoding.program_frames import writing_arguments
from penstock._decoding.session import OTHER_SIZE
from penstock._facts.info import MediaInfo, Track
from penstock._facts.part import Part
from penstock._facts.seeking import may_seek
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.colors import MATRICES, RANGES, UNTAGGED, VideoColors
from penstock._ffmpeg.command.pixel_formats import (
    DEFAULT_FORMAT,
    SOURCE,
    DefaultFormat,
    FrameLayout,
    frame_layout,
)
from penstock._ffmpeg.command.settings import (
    CopiedMatrix,
    native_conversion,
)
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._formats import codecs
from penstock._formats.pixel_formats import (
    FULL_CHROMA,
    PIXEL_FORMATS,
    canonical,
    divides_evenly,
    has_alpha,
    has_palette,
    in_native_order,
    is_float,
    is_gray,
    is_rgb,
    of_channels,
    pixel_format_of,
    with_alpha_beside,
    without_range,
)
from penstock._native import _Conversion
from penstock.errors import DecoderError

# The most frames that a codec reorders.
_FEW_FRAMES = 16
# The matrix of FFmpeg's scaler for untagged video of any size (SWS_CS_DEFAULT in libswscale/swscale.h).
_UNTAGGED = "bt601"
# How FFmpeg's names of full-range YUV begin.
_FULL_RANGE = "yuvj"
_CODEC_OPTIONS = ("c", "c:v", "codec", "codec:v", "vcodec")
# The transfer characteristics of HDR, and FFmpeg's filters that make SDR of it.
_HDR = {"smpte2084": "PQ", "arib-std-b67": "HLG"}
_TONE_MAPPING = re.compile(r"tonemap|zscale|libplacebo|lut[13]d|out_transfer")
# White is 203 cd/m² in HDR (ITU-R BT.2408). Brighter light is compressed, from 0.3 of that on. The default of desat
# differs between versions of FFmpeg.
_TO_SDR = "zscale=t=linear:npl=203:p=bt709,format=gbrpf32le,tonemap=mobius:desat=0,zscale=t=bt709,format=gbrp"


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How frames are made, and by whom.

    Attributes:
        layout: layout of the frames in the pixel format of the caller.
        ffmpeg_format: the pixel format that FFmpeg writes.
        conversion: the native conversion of a frame; None if FFmpeg makes the caller's format.
        converted_by: "penstock", "ffmpeg", or None if the pixels stay as in the file.
        rotation_filters: FFmpeg's filters that turn the stored picture for display.
        filters: the filters after those.
        track: the stream, with the pixel format that its decoder gives.
        decoder: name of FFmpeg's decoder; None leaves the choice to FFmpeg.
        keyframe_s: as for `seek_arguments`.
        rate: `FileChecks.even_rate`.
        filtered_rate: the rate that FFmpeg tells of frames that the caller's filters make; None if it wasn't asked.
        uncropped: FFmpeg's arguments for pictures as their codec has them, where the container crops them.
        colors: of frames that are YUV; None for others, and if an argument of the caller may change them.
        is_reframed: whether `filters` crop the picture, or scale it to another shape.
        delivery: makes the delivered arrays of these frames; None if they are those.
    """

    layout: FrameLayout
    ffmpeg_format: str
    conversion: _Conversion | None
    converted_by: str | None
    rotation_filters: tuple[str, ...]
    filters: tuple[str, ...]
    options: DecodeOptions
    track: Track
    decoder: str | None = None
    keyframe_s: float | None = None
    rate: Fraction | None = None
    filtered_rate: Fraction | None = None
    uncropped: tuple[str, ...] = ()
    colors: VideoColors | None = None
    is_reframed: bool = False
    delivery: Delivery | None = None

    @property
    def delivered(self) -> FrameLayout:
        """Layout of the delivered arrays."""
        return self.layout if self.delivery is None else self.delivery.layout

    @property
    def title(self) -> str:
        """The ``repr`` of the decoder."""
        size = f"{self.delivered.width}x{self.delivered.height}"
        return f"<Decoder {self.track.media.path!r} {size} {self.layout.pixel_format}>"

    @property
    def part(self) -> Part:
        """The part of the video that is wanted."""
        return Part.of(self.options.start, self.options.end, self.track.media, self.track.video)

    def arguments(self) -> list[str]:
        """FFmpeg's arguments."""
        reading, trim = self._reading()
        count, time_base = self.options.count, self.track.video.time_base
        # FFmpeg's `scale` takes other sizes and formats as they come, and needs not begin again for them.
        is_scaled = not (self.rotation_filters or self.options.filters) and self.filters[0].startswith(
            "scale="
        )
        return [
            *(("-reinit_filter", "0") if is_scaled else ()),
            *reading,
            *("-filter:v", ",".join([*trim, *self.rotation_filters, *self.filters, f"settb={time_base}"])),
            *("-pix_fmt", self.ffmpeg_format),
            *(() if count is None else ("-frames:v", str(count))),
            # No frame is dropped and none repeated, whatever their times.
            *("-fps_mode", "passthrough", "-enc_time_base", f"{time_base.numerator}/{time_base.denominator}"),
            *writing_arguments(time_base.numerator, "-c:v", "rawvideo"),
        ]

    def beginning_arguments(self, *, before_start: bool) -> list[str]:
        """FFmpeg's arguments to decode the first frames, or only those before ``start``, and drop them."""
        reading, trim = self._reading()
        filters = ",".join(trim)
        if before_start:
            filters = filters.replace("trim=start_pts=", "trim=end_pts=")
        few = () if before_start else ("-frames:v", str(_FEW_FRAMES))
        filtered = ("-filter:v", filters) if filters else ()
        return [*reading, *filtered, *few, "-fps_mode", "passthrough", "-f", "null", "-"]

    def _reading(self) -> tuple[list[str], list[str]]:
        return reading_arguments(
            self.track, self.options, self.decoder, self.uncropped, self.keyframe_s, self.rate
        )


def plan_decode(
    program: str | None,
    track: Track,
    options: DecodeOptions,
    sandbox: Sandbox | None = None,
    keyframe_s: float | None = None,
    rate: Fraction | None = None,
) -> DecodePlan:
    """Plans a decode by the FFmpeg `program`, or by libav in this process if that is None.

    `keyframe_s` is as for `seek_arguments`, and `rate` is `FileChecks.even_rate`. Runs FFmpeg for one frame if the size
    depends on `filters`, in the sandbox if there is one.
    """
    source, video = track.source, track.video
    name = _delivered_format(video, options)
    decoder = alpha_decoder(program, source, video, options)
    if decoder is not None:
        # The file's pixel format says nothing of alpha beside the frames, which this decoder adds.
        video = replace(video, pixel_format=own_pixel_format(video))
        track = replace(track, video=video)
    uncropped = () if program is None else uncropped_arguments(program)
    if not may_seek(video.codec, video.pixel_format):
        # After a seek, the decoder would make other pictures.
        keyframe_s = None
    own_size, turns = (video.width, video.height), _rotation_filters(video, options)
    filtered_rate = None
    if options.keeps_stored_orientation:
        own_size = video.stored_width, video.stored_height
    if options.size is not None and (not isinstance(options.size, tuple | list) or len(options.size) != 2):
        raise TypeError(
            f"size must be (width, height) in pixels, either of which may be None, not {options.size!r}"
        )
    if (
        program
        and options.filters
        and (
            options.size is None
            or (None in options.size and options.size != (None, None))
            or options.needs_own_size
        )
    ):
        reading, trim = reading_arguments(track, options, decoder, uncropped, keyframe_s, rate)
        if endpoints.is_sequential(source):
            reading, trim = sample_picture(video), []
        filtered = ("-v", "error", *reading, "-filter:v", ",".join([*trim, *turns, options.filters]))
        # If the filters fail, FFmpeg says why when it runs for all frames.
        if (picture := first_picture((program, *filtered), sandbox)) is not None:
            own_size, filtered_rate = picture
    framing = Framing.of(own_size, options)
    width, height = framing.scaled
    layout = _layout(program, name, *framing.made)
    own, stored = video.pixel_format or "", canonical(without_range(video.pixel_format or ""))
    _check_framing(framing, own, layout)
    is_scaled = framing.is_scaled or framing.is_between_chroma(own)
    conversion_input = _conversion_input(stored, layout, options, is_scaled=is_scaled)
    given = [options.filters] if options.filters else []
    is_repeated = conversion_input != stored and layout.sample_bytes == 1
    scaled = [*given, *framing.scale_filters(own, repeats_chroma=is_repeated)]
    # With the name in the file, full range or not, FFmpeg has nothing to convert, but the order of bytes at most.
    is_own = in_native_order(layout.pixel_format) == in_native_order(own)
    delivered = layout.pixel_format if is_own else own if conversion_input == stored else conversion_input
    conversion, converted_by = None, None
    if not is_own:
        conversion, converted_by = _native(conversion_input, layout, video, options), "penstock"
        if conversion is None:
            delivered, converted_by = layout.pixel_format, "ffmpeg"
            # From a palette itself, FFmpeg makes 36 of 256 grays one too dark or bright.
            scaled[-1:] = [*["format=bgra"] * has_palette(own), scaled[-1]]
            scaled[-1] += _colors(options, own, layout, video)
            scaled += _to_floats(own, delivered)
        else:
            scaled[-1] += _same_colors(conversion_input, layout, video, options)
    elif has_palette(own) and (width, height) == own_size:
        # FFmpeg's `scale` may replace the palette. Another size is an error here.
        scaled[-1] = f"crop=if(eq(iw\\,{width})*eq(ih\\,{height})\\,{width}\\,{OTHER_SIZE}):{height}"
    filters = (
        *scaled,
        f"format={delivered}",
        *framing.cut_filters(layout.pixel_format if is_gray(layout.pixel_format) else delivered),
    )
    is_recolored = options.filters or not options.color_matrix == options.color_range == "auto"
    return DecodePlan(
        *(layout, delivered, conversion, converted_by, turns, filters, options, track, decoder),
        keyframe_s=keyframe_s,
        rate=rate,
        filtered_rate=filtered_rate,
        uncropped=uncropped,
        colors=None if is_recolored else yuv_colors(video, layout.pixel_format),
        is_reframed=not framing.is_plain,
        delivery=Delivery.of(layout, framing, options),
    )


def _check_framing(framing: Framing, own: str, layout: FrameLayout) -> None:
    """Checks that the frames can be cropped as asked."""
    if framing.is_plain or not own:
        return
    name, crop = layout.pixel_format, argument("crop", framing.crop)
    if own == name and has_palette(own):
        raise ValueError(
            f"frames with a palette can't be cropped. Pass {argument('pixel_format', DEFAULT_FORMAT)}"
        )
    if framing.is_between_chroma(own) and not (is_rgb(name) or is_gray(name)):
        raise ValueError(
            f"{crop} divides pixels of {own} that share a chroma sample. Pass multiples of "
            f"{max(chroma_steps(own))}, or {argument('pixel_format', DEFAULT_FORMAT)}"
        )


def as_stored(program: str, track: Track, plan: DecodePlan) -> DecodePlan:
    """What FFmpeg has to write for `plan` if its filters run in this process: the pictures as they are stored."""
    own = plan.track.video.pixel_format or SOURCE
    options = replace(plan.options.as_stored, pixel_format=own)
    return plan_decode(program, track, options, keyframe_s=plan.keyframe_s, rate=plan.rate)


def lost_bits(video: MediaInfo.Video, pixel_format: str) -> str | None:
    """What to warn of if samples become 8 bits in a format that nobody asked for; else None.

    YUV of 10 and 12 bits is left out: cameras and films have it, and screens show 8 bits of it.
    """
    own, bits = video.pixel_format or "", video.bit_depth or 0
    is_usual = bits <= (8 if is_rgb(own) or is_gray(own) else 12)
    if is_usual or not isinstance(pixel_format, DefaultFormat):
        return None
    samples, sample_bytes = ("floats", None) if is_float(own) else (f"{bits}-bit samples", 2)
    return (
        f"the video has {samples} ({own}), which become 8 bits. Pass "
        f"{argument('pixel_format', of_channels(1 if is_gray(own) else 3, sample_bytes))} to keep them, or "
        f"{argument('pixel_format', str(pixel_format))} if 8 bits are enough"
    )


def unmapped_hdr(video: MediaInfo.Video, layout: FrameLayout, options: DecodeOptions) -> str | None:
    """What to warn of where the samples of HDR become 8-bit RGB or gray as they are; else None."""
    name = layout.pixel_format
    is_short = name in PIXEL_FORMATS and layout.sample_bytes == 1 and (is_rgb(name) or is_gray(name))
    is_handled = options.is_source_format or _TONE_MAPPING.search(options.filters or "")
    if is_handled or not is_short or video.color_transfer not in _HDR:
        return None
    return (
        f"the video is HDR ({_HDR[video.color_transfer]}), which looks dull as {name} without tone mapping. Pass "
        f"{argument('pixel_format', of_channels(3, 2))} to get its samples, or {argument('filters', _TO_SDR)} to "
        "convert it to SDR"
    )


def _layout(program: str | None, pixel_format: str, width: int, height: int) -> FrameLayout:
    """The layout of frames in a pixel format, which FFmpeg or libav tells where it is none of the usual ones."""
    if program is not None or canonical(pixel_format) in PIXEL_FORMATS:
        return _described(frame_layout(pixel_format, width, height, program))
    names = [one for one in (pixel_format, in_native_order(f"{pixel_format}le")) if one in video_formats]
    if not names:
        near = capabilities.did_you_mean(pixel_format, PIXEL_FORMATS)
        raise ValueError(f"{pixel_format!r} is no raw pixel format.{near} `ffmpeg -pix_fmts` lists them")
    frame_bytes = sum(rows * row_bytes for rows, row_bytes in blank_rows(width, height, names[0]))
    return _described(FrameLayout(names[0], width, height, ((frame_bytes,),), 1, frame_bytes))


def _described(layout: FrameLayout) -> FrameLayout:
    """A layout of flat bytes with its planes and samples, if libav's description of the format tells them.

    Only if each sample has whole bytes of its own: it tells of no padding.
    """
    with suppress(ValueError):  # FFmpeg knows more formats than libav
        described = VideoFormat(layout.pixel_format, layout.width, layout.height)
        [bits] = {one.bits for one in described.components}
        planes: list[tuple[int, ...]] = []
        for number in range(1 + max(one.plane for one in described.components)):
            inside = [one for one in described.components if one.plane == number]
            [size] = {(one.height, one.width) for one in inside}
            planes.append((*size, len(inside)) if len(inside) > 1 else size)
        sample_bytes = -(-bits // 8)
        if bits >= 8 and sample_bytes * sum(map(prod, planes)) == layout.frame_bytes:
            return replace(layout, planes=tuple(planes), sample_bytes=sample_bytes)
    return layout


def _rotation_filters(video: MediaInfo.Video, options: DecodeOptions) -> tuple[str, ...]:
    """FFmpeg's filters that turn a picture for display (configure_input_video_filter in fftools/ffmpeg_filter.c)."""
    if options.keeps_stored_orientation:
        return ()
    match video.rotation, video.is_mirrored:
        case 0, is_mirrored:
            return ("vflip",) * is_mirrored
        case 90, is_mirrored:
            return ("transpose=cclock_flip" if is_mirrored else "transpose=clock",)
        case 180, is_mirrored:
            return ("hflip",) if is_mirrored else ("hflip", "vflip")
        case 270, is_mirrored:
            return ("transpose=clock_flip" if is_mirrored else "transpose=cclock",)
    return (f"rotate={video.rotation}*PI/180",)


def _conversion_input(stored: str, layout: FrameLayout, options: DecodeOptions, *, is_scaled: bool) -> str:
    """What a native conversion to RGB gets: the pixels as they are stored, or those with all chroma.

    FFmpeg makes the latter if the picture is scaled, which keeps more of the file's chroma, or if the RGB has 16 bits:
    FFmpeg's own conversion to that is 256/257 as bright as it should be (white is 65283).
    """
    is_short = layout.sample_bytes == 1 and stored in FULL_CHROMA
    is_full = layout.sample_bytes == 2 or (is_scaled and is_short)
    is_ours = options.settings._overrides.convert == "auto" and is_rgb(layout.pixel_format)
    return FULL_CHROMA.get(stored, stored) if is_full and is_ours else stored


def own_pixel_format(video: MediaInfo.Video) -> str:
    """The file's pixel format, including alpha that is stored beside the frames; empty if unknown."""
    own = video.pixel_format or ""
    return with_alpha_beside(own) if video.has_separate_alpha else own


def _delivered_format(video: MediaInfo.Video, options: DecodeOptions) -> str:
    return in_native_order(own_pixel_format(video)) if options.is_source_format else options.pixel_format


def alpha_decoder(
    program: str | None, source: str, video: MediaInfo.Video, options: DecodeOptions
) -> str | None:
    """The decoder for alpha stored beside the frames, if the delivered format has alpha; else None."""
    pixel_format = _delivered_format(video, options)
    is_chosen = any(name in options.given_input for name in (*_CODEC_OPTIONS, f"c:{video.index}"))
    if (
        own_pixel_format(video) == (video.pixel_format or "")
        or not has_alpha(canonical(pixel_format))
        or is_chosen
    ):
        return None
    name = codecs.known(video.codec).alpha_decoder or ""
    known = codecs_available if program is None else capabilities.decoders(program)
    if known and name not in known:
        raise DecoderError(
            f"{endpoints.without_protocol(source)} has alpha, which {program or 'libav'} can't read: it was built "
            f"without the decoder {name}. Pass a format without alpha, such as "
            f"{argument('pixel_format', DEFAULT_FORMAT)}, or install an FFmpeg with that decoder (Debian's has it)"
        )
    return name


def _colors(options: DecodeOptions, own: str, layout: FrameLayout, video: MediaInfo.Video) -> str:
    """Options of FFmpeg's scaler: the matrix and range of its input, and the range of what it makes."""
    matrix = "" if options.color_matrix == "auto" else f":in_color_matrix={options.color_matrix}"
    if is_gray(layout.pixel_format) and not is_rgb(own):
        # Gray is the luma. FFmpeg may make RGB of YUV first, and gray of that by BT.601: the luma again, if that is
        # the matrix on both ways. For BT.709, its values are up to 28 off otherwise.
        matrix = ":in_color_matrix=bt601"
    color_range = "" if options.color_range == "auto" else f":in_range={RANGES[options.color_range]}"
    is_full = own.startswith(_FULL_RANGE) or (
        video.color_range == "full" and not (is_rgb(own) or is_gray(own))
    )
    if is_full and not (is_rgb(layout.pixel_format) or is_gray(layout.pixel_format)):
        color_range += ":out_range=limited"  # otherwise, FFmpeg may not convert it
    return matrix + color_range


def _to_floats(own: str, delivered: str) -> list[str]:
    """Filters by way of 16-bit RGB, where FFmpeg's scaler makes wrong floats."""
    if not is_float(delivered):
        return []
    if is_gray(delivered):
        # FFmpeg's scaler gives only this gray format a limited range: black was 0.06, and white 0.92.
        return ["format=gray16le", "format=gbrap16le", "format=gbrapf32le", "extractplanes=g"]
    # From gray, FFmpeg's scaler may be up to 0.9 off.
    return ["format=gbrap16le"] if is_gray(own) and is_rgb(delivered) else []


def _same_colors(stored: str, layout: FrameLayout, video: MediaInfo.Video, options: DecodeOptions) -> str:
    """Options of FFmpeg's scaler that give all frames the colors of the first, where their tags change in the middle.

    While the tags are the same, it does nothing.
    """
    if is_gray(stored):
        return ""
    is_luma = is_gray(layout.pixel_format)  # which each matrix has its own of
    is_auto = options.color_matrix == "auto" and not is_luma
    matrix = f":out_color_matrix={_matrix(video, options)}" if is_auto else ""
    tag = RANGES[_color_range(stored, video, options)]
    return matrix + (f":out_range={tag}" if options.color_range == "auto" else "")


def _converts_itself(stored: str, layout: FrameLayout) -> bool:
    """Whether the native conversion makes the pixels, if it can.

    A chroma sample is repeated for its pixels: FFmpeg does the same with 8-bit samples and even sizes. Elsewhere its
    scaler smooths chroma over edges, at a multiple of the time: left to it are odd sizes of 8 bits, and nv12.
    """
    if layout.sample_bytes == 2 and is_rgb(layout.pixel_format):
        return stored in FULL_CHROMA.values()
    is_even = divides_evenly(stored, layout.width, layout.height)
    is_plain = (stored in FULL_CHROMA or is_gray(stored)) and stored != layout.pixel_format
    return is_gray(layout.pixel_format) or (is_plain and layout.sample_bytes == 1 and is_even)


def _native(
    stored: str, layout: FrameLayout, video: MediaInfo.Video, options: DecodeOptions
) -> _Conversion | None:
    """The native conversion of a frame; None if there is none, or it is left to FFmpeg."""
    if options.settings._overrides.convert == "auto" and not _converts_itself(stored, layout):
        return None
    matrix = _matrix(video, options)

    def make() -> _Conversion:
        if stored == layout.pixel_format:
            raise ValueError(f"{video.pixel_format} to {stored} is a change of the range")
        if matrix not in MATRICES:
            raise ValueError(f"the color matrix is {matrix}")
        return _Conversion(
            stored,
            layout.pixel_format,
            layout.width,
            layout.height,
            matrix=matrix,
            range=_color_range(stored, video, options),
            vflip=False,
            odd_size="keep",
        )

    return native_conversion(options.settings._overrides.convert, make)


def _matrix(video: MediaInfo.Video, options: DecodeOptions) -> str:
    return video.color_matrix or _UNTAGGED if options.color_matrix == "auto" else options.color_matrix


def yuv_colors(video: MediaInfo.Video, frames: str) -> VideoColors | None:
    """The colors of the frames of `video` in the pixel format `frames`; None for RGB and gray.

    YUV samples that pass through keep their matrix, which a file may leave unsaid.
    """
    if is_rgb(frames) or is_gray(frames):
        return None
    matrix, own = video.color_matrix or "untagged", video.pixel_format or ""
    if is_rgb(own) or is_gray(own):
        matrix = UNTAGGED.matrix  # by which FFmpeg's scaler has made the frames
    elif matrix not in (*MATRICES, *get_args(CopiedMatrix)):
        matrix = "untagged"
    return VideoColors(matrix, "full" if is_full(video, frames) else "limited")


def is_full(video: MediaInfo.Video, frames: str) -> bool:
    """Whether a video of these frames should have full range, given `video` and the frames' pixel format."""
    has = video.pixel_format or ""
    if is_rgb(frames) or is_gray(frames):
        # RGB and gray have no other range. YUV made of them gets the range of any frames, which players expect.
        return video.color_range == "full" and not (is_rgb(has) or is_gray(has))
    if canonical(frames) == canonical(has):
        return video.color_range == "full"
    # FFmpeg makes limited YUV of all others, but for gray of 8 bits, whose samples stay.
    read = pixel_format_of(frames)
    return has == "gray" and read is not None and read.depth == 8  # "gray" is that of 8 bits


def _color_range(stored: str, video: MediaInfo.Video, options: DecodeOptions) -> str:
    # For FFmpeg's scaler gray is full, whatever it says (handle_jpeg in libswscale/utils.c).
    if is_gray(stored):
        return "full"
    if options.color_range != "auto":
        return options.color_range
    return video.color_range or ("full" if (video.pixel_format or "").startswith(_FULL_RANGE) else "limited")
