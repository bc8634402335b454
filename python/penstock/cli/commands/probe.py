"""``penstock probe``"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from fractions import Fraction

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from penstock._names import show_name
from penstock.cli.options import file_names, follow_playlists_option, json_option, parsed, seconds
from penstock.errors import PenstockError
from penstock.media.facts import PATIENCE_S
from penstock.media.facts import probe as probe_media
from penstock.media.info import AudioInfo, MediaInfo, SubtitleInfo, VideoInfo

#: The width of an output that is no terminal. Programs such as grep want whole lines.
UNWRAPPED_COLUMNS = 1000


@click.command(
    epilog="\b\n"
    "Examples:\n"
    "  penstock probe holiday.mp4\n"
    "  penstock probe *.mkv --count-frames\n"
    "  penstock probe clip.mov --json | jq .video[0].frame_rate"
)
@click.argument("files", metavar="FILE...", shell_complete=file_names, nargs=-1, required=True)
@click.option(
    "--count-frames",
    is_flag=True,
    help="Decode everything to count the frames. Without this, the number is what the file says.",
)
@click.option(
    "--timeout",
    "timeout",
    metavar="SECONDS",
    callback=parsed(seconds),
    help=f"How long to wait for each FILE. The default is {PATIENCE_S:g}, and for ever with --count-frames.",
)
@follow_playlists_option
@json_option("Print everything for programs: a list if there are several FILEs.")
def probe(
    files: tuple[str, ...],
    count_frames: bool,
    timeout: float | None,
    follow_playlists: bool,
    as_json: bool,
) -> None:
    """Show what is in files of video or audio.

    That is the container, and the streams with their sizes, rates and colours. A FILE is a path, or a URL that FFmpeg
    knows.

    Exit status: 0 if all FILEs could be read; 1 if one could not, after all others were shown; 2 for wrong usage.
    """
    if timeout is None and not count_frames:
        timeout = PATIENCE_S
    found: list[MediaInfo] = []
    for name in files:
        with _reported_failures():
            info = probe_media(
                name,
                count_frames=count_frames,
                timeout=timeout,
                follow_playlists=follow_playlists,
            )
            found.append(info)
            if not as_json:
                _print(info)
    if as_json and found:
        things = [asdict(info) for info in found]
        click.echo(json.dumps(things if len(files) > 1 else things[0], indent=2, default=_ratio))
    if len(found) < len(files):
        sys.exit(1)


@contextmanager
def _reported_failures() -> Iterator[None]:
    """Report a failure in one line, so that the next file is shown as well."""
    try:
        yield
    except PenstockError as error:
        click.echo(f"Error: {_in_one_line(error)}", err=True)
    except OSError as error:
        if error.filename is None:
            raise  # from standard output
        click.echo(f"Error: {show_name(str(error.filename))}: {error.strerror}", err=True)


def _print(info: MediaInfo) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=UNWRAPPED_COLUMNS)
    console.print(Text(f"{_writable(show_name(info.path))}: {', '.join(_facts_of_file(info))}", style="bold"))
    table = Table.grid(padding=(0, 2, 0, 0))
    streams: list[VideoInfo | AudioInfo | SubtitleInfo] = [*info.video, *info.audio, *info.subtitles]
    for stream in sorted(streams, key=lambda stream: stream.index):
        kind, facts, profile = _facts_of(stream)
        codec = f"{stream.codec} ({profile})" if profile else stream.codec
        table.add_row(f"  #{stream.index}", kind, Text(codec), Text(", ".join(facts)))
    for chapter in info.chapters:
        table.add_row("", "chapter", _clock(chapter.start_s), Text(_writable(show_name(chapter.title or ""))))
    with console.capture() as shown:
        console.print(table if info.video or info.audio else "  no video and no audio")
    # rich pads the last column with blanks.
    click.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


def _facts_of(stream: VideoInfo | AudioInfo | SubtitleInfo) -> tuple[str, Iterable[str], str | None]:
    if isinstance(stream, VideoInfo):
        return "video", _facts_of_video(stream), stream.profile
    if isinstance(stream, AudioInfo):
        return "audio", _facts_of_audio(stream), stream.profile
    return "subtitles", filter(None, (stream.language, stream.title)), None


def _facts_of_file(info: MediaInfo) -> Iterable[str]:
    yield info.container_name
    yield "duration unknown" if info.duration_s is None else _clock(info.duration_s)
    if info.size_bytes is not None:
        yield decimal(info.size_bytes)
    if info.bit_rate is not None:
        yield _bit_rate(info.bit_rate)


def _facts_of_video(stream: VideoInfo) -> Iterable[str]:
    alpha = " and alpha" if stream.has_separate_alpha else ""
    yield f"{stream.pixel_format or 'pixel format unknown'}{alpha}"
    yield f"{stream.width}x{stream.height}"
    if stream.rotation:
        yield f"stored as {stream.stored_width}x{stream.stored_height} and turned {stream.rotation} degrees clockwise"
    if stream.sample_aspect_ratio is not None and stream.sample_aspect_ratio != 1:
        yield f"pixels of {_ratio(stream.sample_aspect_ratio).replace('/', ':')}"
    if stream.is_attached_picture:
        yield "attached picture"
        return
    if stream.frame_rate is not None:
        yield f"{float(stream.frame_rate):.5g} frames/s{' (variable)' if stream.is_variable_frame_rate else ''}"
    yield "frames unknown" if stream.frames is None else f"{stream.frames} frames"
    yield from _times(stream)
    if stream.field_order not in (None, "progressive"):
        yield f"interlaced ({stream.field_order})"
    yield _colors(stream)
    if stream.mastering_display is not None and stream.mastering_display.luminance is not None:
        yield "mastered at {:g} to {:g} cd/m²".format(*stream.mastering_display.luminance)
    if stream.content_light is not None:
        yield f"light of {stream.content_light.max_cll} and {stream.content_light.max_fall} cd/m²"
    yield from _ends(stream)


def _facts_of_audio(stream: AudioInfo) -> Iterable[str]:
    yield f"{stream.sample_rate} Hz"
    yield stream.channel_layout or f"{stream.channels} channels"
    yield stream.sample_format or "sample format unknown"
    yield from _times(stream)
    yield from _ends(stream)


def _times(stream: VideoInfo | AudioInfo) -> Iterable[str]:
    if stream.duration_s is not None:
        yield _clock(stream.duration_s)
    if stream.start_s:
        yield f"from {stream.start_s:g} s"


def _ends(stream: VideoInfo | AudioInfo) -> Iterable[str]:
    if stream.bit_rate is not None:
        yield _bit_rate(stream.bit_rate)
    if stream.is_default:
        yield "default"


def _colors(stream: VideoInfo) -> str:
    others = {stream.color_primaries, stream.color_transfer} - {None, stream.color_matrix}
    if stream.color_matrix is stream.color_range is None and not others:
        return "colours untagged"
    named = f"{stream.color_matrix or 'matrix untagged'}, {stream.color_range or 'range untagged'}"
    return f"{named} ({', '.join(sorted(map(str, others)))})" if others else named


def _clock(time_s: float) -> str:
    """Hours, minutes and seconds to a thousandth: 0:00:10.0"""
    thousandths = round(time_s * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    text = f"{minutes // 60}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"
    return text[:-2] + text[-2:].rstrip("0")  # one decimal stays


def _bit_rate(bits: int) -> str:
    return f"{bits / 1e6:.3g} Mbit/s" if bits >= 1_000_000 else f"{bits / 1e3:.3g} kbit/s"


def _ratio(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _in_one_line(error: object) -> str:
    """Escape what a terminal would obey: names of files and FFmpeg's messages may have any characters."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(error))


def _writable(name: str) -> str:
    """Escape what standard output cannot encode."""
    encoding = sys.stdout.encoding or "ascii"
    return name.encode(encoding, "backslashreplace").decode(encoding)
