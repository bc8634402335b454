"""What a file says beside its pictures and sounds: metadata, chapters and subtitles."""

from __future__ import annotations

import base64
import codecs
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from penstock._common.messages import argument
from penstock._encoding.timecode import TIMECODE
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.endpoints import Output
from penstock._formats import containers
from penstock._native import _seconds
from penstock.errors import DecoderError

Chapters = Sequence[tuple[float, str]]

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A program's argument has at most 128 KiB (MAX_ARG_STRLEN in Linux), and base64 makes 4 bytes of 3.
_MOST_TEXT_BYTES = 96_000
# The unit of chapters' times: FFmpeg's own of Matroska, and finer than that of MP4.
_UNIT_S = 1e-6
# Characters that FFmpeg's metadata format requires to be escaped.
_SPECIAL = re.compile(r"([=;#\\\n])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The metadata, time code, chapters and subtitles that an `Encoder` writes.

    Attributes:
        metadata: names and values.
        timecode: that of the first frame; None for none.
        chapters: in their order, when each begins in seconds, and its title.
        subtitles: FFmpeg's name of the file that has them; None for none.
        subtitle_codec: FFmpeg's encoder for them.
    """

    metadata: tuple[tuple[str, str], ...] = ()
    timecode: str | None = None
    chapters: tuple[tuple[float, str], ...] = ()
    subtitles: str | None = None
    subtitle_codec: str = ""

    @classmethod
    def of(
        cls,
        metadata: Mapping[str, str] | None,
        timecode: str | None,
        chapters: Chapters | None,
        subtitles: str | os.PathLike[str] | None,
        output: Output,
    ) -> Self:
        """The labels that arguments of an `Encoder` mean. They are described there, and so are the errors."""
        tags = checked_metadata(metadata)
        for name in [name for name in tags if name.lower() == TIMECODE]:
            if timecode is not None:
                raise ValueError(
                    f"{argument('timecode', timecode)} and the metadata {name!r} exclude each other. Pass only timecode"
                )
            timecode = tags.pop(name)
        return cls(
            metadata=tuple(tags.items()),
            timecode=timecode,
            chapters=_checked_chapters(chapters or ()),
            subtitles=None if subtitles is None else _checked_subtitles(subtitles, output),
            subtitle_codec="" if subtitles is None else _codec_for(output),
        )

    def input_arguments(self) -> list[str]:
        """FFmpeg's arguments for the inputs with subtitles and chapters, which come after the first input."""
        arguments: list[str] = []
        if self.subtitles is not None:
            arguments += [*endpoints.confining_arguments(self.subtitles, ()), "-i", self.subtitles]
        if self.chapters:
            text = base64.b64encode(_ffmetadata(self.chapters).encode()).decode()
            arguments += ["-f", "ffmetadata", "-i", f"data:text/plain;base64,{text}"]
        return arguments

    def output_arguments(self, options: Mapping[str, object], *, is_mapped: bool) -> list[str]:
        """FFmpeg's arguments for the output, beside `options`. `is_mapped`: other arguments map the first input."""
        arguments: list[str] = []
        # FFmpeg would copy those of a sound's file.
        if not any(name.startswith("map_metadata") for name in options):
            arguments += ["-map_metadata:g", "-1"]
        # Input 0 has the frames; 1 the subtitles, or else the chapters; 2 the chapters behind subtitles.
        if self.subtitles is not None:
            arguments += [] if is_mapped else ["-map", "0"]
            arguments += ["-map", "1:s:0", "-c:s", self.subtitle_codec]
        if self.chapters:
            arguments += ["-map_chapters", "1" if self.subtitles is None else "2"]
        elif "map_chapters" not in options:
            arguments += ["-map_chapters", "-1"]
        for name, value in self.metadata:
            arguments += ["-metadata", f"{name}={value}"]
        if self.timecode is not None:
            arguments += ["-metadata", f"{TIMECODE}={self.timecode}"]
        return arguments


NO_LABELS = Labels()


def checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """`metadata` as a dict, with names and values that FFmpeg can write."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(
            f"metadata must be a dict of names and texts, such as {{'title': 'x'}}, not {metadata!r}"
        )
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"metadata must have a str for each name and text, not {name!r}: {value!r}")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(
                f"metadata must have names without '=' and no zero bytes, not {name!r}: {value!r}"
            )
        if not value:
            raise ValueError(f"metadata {name!r} has an empty text, which FFmpeg doesn't write. Leave it out")
    return dict(metadata)


def _checked_chapters(chapters: Chapters) -> tuple[tuple[float, str], ...]:
    try:
        pairs = [(_seconds("chapters", start_s), title) for start_s, title in chapters]
    except (TypeError, ValueError) as error:
        raise type(error)(
            "chapters must be pairs of a start in seconds and a title, such as [(0.0, 'Intro'), (5, 'End')]: "
            f"{error}"
        ) from None
    found: list[tuple[float, str]] = []
    for start_s, title in pairs:
        if not isinstance(title, str):
            raise TypeError(f"the title of a chapter must be a str, not {title!r}")
        if start_s is None or math.isinf(start_s) or (found and start_s <= found[-1][0]):
            raise ValueError(
                f"each chapter must begin later than the one before it, not {title!r} at {start_s} s"
            )
        found.append((start_s, title))
    if (nbytes := len(_ffmetadata(found).encode()) if found else 0) > _MOST_TEXT_BYTES:
        raise ValueError(
            f"{len(found)} chapters are too many. They take {nbytes} bytes, and the limit is {_MOST_TEXT_BYTES}"
        )
    return tuple(found)


def _checked_subtitles(subtitles: str | os.PathLike[str], output: Output) -> str:
    source = endpoints.source(subtitles)
    if endpoints.is_same_file(source, output.target):
        raise ValueError(f"{output.name} is also the output, which would overwrite it. Write another file")
    from penstock._facts.opening import open_media  # libav, only where a file of subtitles is read

    path = endpoints.without_protocol(source)
    with open_media(source, path=path) as media:
        is_text = containers.known(media.format.name).is_text
        if not media.streams.subtitles:
            raise DecoderError(f"{path} has no subtitles")
    if is_text and endpoints.is_path(source):
        text = Path(path).read_bytes()
        try:
            text.startswith(_UTF_16) or text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason}). Convert it, for example with iconv"
            ) from None
    return source


def _codec_for(output: Output) -> str:
    if (codec := output.facts.subtitle_encoder) is not None:
        return codec
    raise ValueError(
        f"{output.name} can't hold subtitles. Write mp4, mov, mkv or webm, or pass "
        f"{argument('options.vf', 'subtitles=x.srt')} to draw them into the picture"
    )


def _ffmetadata(chapters: Sequence[tuple[float, str]]) -> str:
    """Chapters in FFmpeg's text format. Each ends where the next begins; the end of the last is not known."""
    units = [round(start_s / _UNIT_S) for start_s, _ in chapters]
    lines = [";FFMETADATA1"]
    for (start, end), (_, title) in zip(pairwise([*units, units[-1] + 1000]), chapters, strict=True):
        escaped = _SPECIAL.sub(r"\\\1", title)
        lines += ["[CHAPTER]", "TIMEBASE=1/1000000", f"START={start}", f"END={end}", f"title={escaped}"]
    return "\n".join([*lines, ""])
