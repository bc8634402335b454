"""Chooses the pixel format of a video, and finds what it cannot hold of the frames."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock._common.messages import argument
from penstock._ffmpeg.command.arguments import FILTER_OPTIONS
from penstock._ffmpeg.command.colors import jpeg_pixel_format
from penstock._ffmpeg.command.settings import Colors
from penstock._ffmpeg.program import capabilities
from penstock._formats import encoders
from penstock._formats.pixel_formats import (
    PIXEL_FORMATS,
    PLAYABLE,
    PLAYABLE_WITH_ALPHA,
    PixelFormat,
    has_palette,
    in_native_order,
    is_float,
    is_gray,
    is_rgb,
    pixel_format_of,
    with_unused_alpha,
)
from penstock.errors import EncoderError

AUTO = "auto"
#: The value of `output_pixel_format` with which FFmpeg chooses the format.
ANY = "ffmpeg"


# What to take for images instead of a format that has less.
_PNG_KEEPS = "A name that ends in .png keeps alpha and 16 bits"


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The pixel format of a video.

    Attributes:
        name: FFmpeg's name; None leaves the choice to FFmpeg.
        warnings: what the video cannot hold of the frames, each with a fix.
    """

    name: str | None
    warnings: tuple[str, ...] = ()


def output_format(
    program: str,
    codec: str,
    options: Mapping[str, object],
    frames: str,
    asked: str | None,
    *,
    is_lossless: bool = False,
    are_images: bool = False,
) -> OutputFormat:
    """The pixel format of the video that `codec` makes of frames in the pixel format `frames`.

    Args:
        is_lossless: the samples of the frames are to be kept, if the codec has a format for them.
        are_images: each frame becomes a file. No player needs yuv420p there, so that the samples are to be kept, too.
        asked: a pixel format; "auto", which keeps the frames' samples for a lossless codec, keeps alpha where the codec
            has it, and otherwise is yuv420p; or None, which leaves the choice to FFmpeg.

    Raises:
        ValueError: the codec lacks the format `asked`.
        EncoderError: there is no such codec, or the program did not tell what the choice depends on.
    """
    source, is_lossless = pixel_format_of(frames), is_lossless or are_images
    # For 8-bit frames without alpha, FFmpeg need not be asked.
    if (
        not is_lossless
        and encoders.known(codec).is_playable
        and source
        and not source.has_alpha
        and source.depth <= 8
    ):
        if asked is None or asked in (AUTO, PLAYABLE.name):
            return OutputFormat(asked and PLAYABLE.name)
    elif codec == "copy" or encoders.codec_of(codec).is_raw:
        return OutputFormat(frames if asked == AUTO else asked)
    if asked not in (AUTO, None):
        names: tuple[str, ...] = ()
        with suppress(EncoderError):  # the user has chosen: the list only serves to check the name
            names = capabilities.encoder_pixel_formats(program, codec)
        return OutputFormat(_check_name(codec, asked, names))
    is_filtered = any(name in options for name in FILTER_OPTIONS)
    if (palette := encoders.known(codec).palette) and asked == AUTO and not is_filtered:
        return OutputFormat(palette, tuple(_gif_losses(source)))
    names = capabilities.encoder_pixel_formats(program, codec)
    kinds = {"is_lossless": is_lossless, "are_images": are_images}
    return _choose(program, codec, options, frames, asked, names, **kinds)


def _option(options: Mapping[str, object], name: str) -> str | None:
    """The value of an option, whose name may be followed by a stream: ``profile:v``."""
    return next((str(value) for given, value in options.items() if given.partition(":")[0] == name), None)


def requested_format(asked: str) -> str | None:
    """The pixel format that is asked for by ``output_pixel_format=asked``: `AUTO` if it is ours to choose, and None if
    it is FFmpeg's.

    Raises:
        TypeError: `asked` is no name.
    """
    if not isinstance(asked, str):
        raise TypeError(f"output_pixel_format must be a name, {AUTO!r} or {ANY!r}, not {asked!r}")
    return None if asked == ANY else asked


def _check_name(codec: str, asked: str, names: tuple[str, ...]) -> str:
    """The codec's name for the format `asked`; `asked` itself if FFmpeg does not list the codec's formats."""
    # FFmpeg lists none, or only device memory, to which the user's filters have to upload the frames.
    if not any(pixel_format_of(name) for name in names):
        return asked
    byte_orders = ("le", "be") if sys.byteorder == "little" else ("be", "le")
    known = (asked, *(asked + order for order in byte_orders), jpeg_pixel_format(codec, asked))
    for name in known:
        if name in names:
            return name
    near = capabilities.did_you_mean(asked, names)
    raise ValueError(
        f"{codec} has no pixel format {asked!r}.{near} It has {', '.join(names)}. 'auto' chooses one of them"
    )


def _choose(
    program: str,
    codec: str,
    options: Mapping[str, object],
    frames: str,
    asked: str | None,
    names: tuple[str, ...],
    *,
    is_lossless: bool,
    are_images: bool,
) -> OutputFormat:
    source, known = pixel_format_of(frames), _usable(codec, options, frames, names)
    if source is None or (asked is None and not known):
        return OutputFormat(asked and PLAYABLE.name)
    known = known or [PLAYABLE]
    if any(map(has_palette, names)) and any(name in options for name in FILTER_OPTIONS):
        return OutputFormat(None)  # a filter of the user's makes a palette, which another format would undo
    keeps_samples = (
        asked is None
        or is_lossless
        or all(one.kind != "yuv" for one in known)
        or (not encoders.known(codec).is_playable and capabilities.is_lossless(program, codec))
    )
    ideal = source if keeps_samples else PLAYABLE_WITH_ALPHA if source.has_alpha else PLAYABLE
    fitting = _for_options(known, codec, options)
    chosen = closest(ideal, fitting)
    # FFmpeg makes each that is known here. To ask it takes a start of the program.
    if chosen.name != frames and in_native_order(chosen.name) not in PIXEL_FORMATS:
        made = capabilities.made_pixel_formats(program)
        fitting = [one for one in fitting if one.name in made] or fitting
        chosen = closest(ideal, fitting)
    losses = _losses(codec, source, chosen, fitting, are_images=are_images)
    return OutputFormat(asked and chosen.name, tuple(losses))


def _usable(
    codec: str, options: Mapping[str, object], frames: str, names: Iterable[str]
) -> list[PixelFormat]:
    """The usable formats among `names`. FFmpeg alone does not make a good palette for a picture."""
    found = [
        one for name in names if (not has_palette(name) or name == frames) and (one := pixel_format_of(name))
    ]
    found = [one for one in found if not _may_be_refused(codec, one)]
    known = encoders.known(codec)
    if not known.drops_alpha or _option(options, "format") in known.alpha_values:
        return found
    without = [one for one in found if not (one.has_alpha and is_rgb(one.name))]
    return without or [replace(one, has_alpha=False) for one in found]


def _may_be_refused(codec: str, one: PixelFormat) -> bool:
    """Whether FFmpeg may list the format, but call it experimental or find that its library lacks it."""
    known = encoders.known(codec)
    is_experimental = known.most_depth is not None and (
        one.depth > known.most_depth or one.name.startswith("bayer")
    )
    has_sure_alpha = known.alpha_formats is None or one.name in known.alpha_formats
    return is_experimental or (one.has_alpha and not has_sure_alpha)


def _for_options(known: list[PixelFormat], codec: str, options: Mapping[str, object]) -> list[PixelFormat]:
    """The formats that fit the profile and the bits of alpha, if a ProRes codec has them."""
    full_chroma = encoders.codec_of(codec).full_chroma_profiles
    if full_chroma and _option(options, "alpha_bits") == "0":
        known = [one for one in known if not one.has_alpha] or known
    profile = _option(options, "profile")
    if not full_chroma or profile is None:
        return known
    is_full = profile in full_chroma
    return [one for one in known if (one.subsampling == (1, 1)) == is_full] or known


def closest(ideal: PixelFormat, known: Iterable[PixelFormat]) -> PixelFormat:
    """The format that loses the least of `ideal`; among those that lose nothing, the most similar one."""

    def distance(one: PixelFormat) -> tuple[object, ...]:
        columns, rows = one.subsampling
        ideal_columns, ideal_rows = ideal.subsampling
        # Half floats keep 11 bits of an integer (IEEE 754).
        is_half = one.depth == 16 and is_float(one.name) and not is_float(ideal.name)
        has_chroma = not is_gray(ideal.name)
        return (
            ideal.has_alpha and not one.has_alpha,
            has_chroma and is_gray(one.name),
            max(0, ideal.depth - (11 if is_half else one.depth)),
            has_chroma and (columns > ideal_columns or rows > ideal_rows),
            # Gray is the same as red, green and blue, and loses levels as YUV of the limited range.
            ideal.kind != "yuv" and one.kind == "yuv",
            one.kind != ideal.kind,
            one.has_alpha and not ideal.has_alpha,
            one.depth,
            -(columns * rows),
            one.name != ideal.name,
            # From packed to planar, FFmpeg may round alpha from 128 on up by one.
            one.name.startswith("gbr") != ideal.name.startswith("gbr"),
        )

    return min(known, key=distance)


def unused_colors(
    codec: str, frames: str, output: str | None, colors: Colors, color_range: str
) -> Iterable[str]:
    """What of `colors` has no effect on a video, whose range is `color_range` if it is YUV, in sentences."""
    has_yuv = any(name is not None and not (is_rgb(name) or is_gray(name)) for name in (frames, output))
    becomes_gray = output is not None and is_gray(output) and is_rgb(frames)
    effective = {
        "matrix": colors.matrix if has_yuv or becomes_gray else None,
        "range": color_range if has_yuv else output and "full",
    }
    if not encoders.codec_of(codec).has_color_tags:
        effective |= dict.fromkeys(("primaries", "transfer"))
    for name, value in effective.items():
        if (asked := getattr(colors, name)) not in ("auto", value):
            video = f"{codec} video of {output or 'the pixel format that FFmpeg chooses'}"
            yield f"{argument(f'colors.{name}', asked)} has no effect on {video}. Leave it out"


def _gif_losses(source: PixelFormat | None) -> Iterable[str]:
    if source is None or has_palette(source.name):
        return
    if source.depth > 8:
        keeps = f"{argument('codec', 'ffv1')} (.mkv) keeps 16"
        yield f"the frames' {source.depth} bits per sample become 8, because GIF has no more. {keeps}"
    if source.has_alpha:
        yield "the frames' alpha becomes 1 bit, because GIF has no more. A name like video.apng or video.webp keeps it"


def _losses(
    codec: str,
    source: PixelFormat,
    chosen: PixelFormat,
    known: list[PixelFormat],
    *,
    are_images: bool = False,
) -> Iterable[str]:
    """What a video of `chosen` loses of frames like `source`, in sentences that name the fix."""
    best = closest(replace(chosen, has_alpha=source.has_alpha, depth=source.depth), known)
    kept_by = argument("output_pixel_format", best.name)
    remedy = f"Pass {argument('output_pixel_format', chosen.name)} to accept the loss"
    prores = f"{argument('codec', 'prores_ks')} (.mov)"
    if source.has_alpha and not chosen.has_alpha:
        keeps = _PNG_KEEPS if are_images else f"{prores}, libvpx-vp9 (.webm) or ffv1 (.mkv) keeps it"
        if encoders.codec_of(codec).full_chroma_profiles:
            keeps = f"{argument('options.profile', '4444')} keeps it"
        if best.has_alpha:
            keeps = f"{kept_by} keeps it"
        if (without := with_unused_alpha(source.name)) is not None:
            remedy += f", or {argument('pixel_format', without)} if the frames have no alpha"
        yield f"the frames' alpha is dropped, because {codec} video of {chosen.name} has none. {keeps}. {remedy}"
    if not is_gray(source.name) and is_gray(chosen.name):
        yield f"the frames' colors are dropped, because {codec} video of {chosen.name} has none. {remedy}"
    if source.kind == "xyz" != chosen.kind:  # a kind of samples
        clipped = f"the frames' XYZ samples become {chosen.kind.upper()}, in the gamut of sRGB"
        yield f"{clipped}. {argument('codec', 'rawvideo')} (.nut) keeps them. {remedy}"
    if source.depth > chosen.depth:
        keeps = "ffv1 (.mkv) keeps 16" if chosen.depth >= 10 else f"{prores} keeps 10, and ffv1 (.mkv) 16"
        if are_images:
            keeps = _PNG_KEEPS
        if chosen.depth >= 16:
            keeps = f"{argument('codec', 'exr')} (frames/%05d.exr) keeps floats"
        if palette := encoders.known(codec).palette:
            keeps = f"{argument('output_pixel_format', palette)} has 256 colors that suit the frame"
        if best.depth > chosen.depth:
            keeps = f"{kept_by} keeps {min(best.depth, source.depth)}"
            if best.depth < source.depth:
                keeps += f", and {argument('codec', 'ffv1')} (.mkv) {min(source.depth, 16)}"
        few = f"the frames' {source.depth} bits per sample become {chosen.depth}"
        yield f"{few}, because {codec} video of {chosen.name} has no more. {keeps}. {remedy}"
