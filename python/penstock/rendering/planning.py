"""What a render is to do, as data: which frames make which chunk, and how they are encoded."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from penstock._common.messages import argument, plural
from penstock._common.plain import fields_of, from_plain, to_json
from penstock._encoding.labels import NO_LABELS, Labels
from penstock._encoding.listed import by_quickest
from penstock._encoding.plan import EncodePlan
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import TICK_S, checked_size
from penstock._ffmpeg.program.capabilities import find_ffmpeg, muxer_options, quickest_ffmpeg, version
from penstock._formats import containers, encoders
from penstock._formats.pixel_formats import has_alpha, is_gray, is_rgb
from penstock._native import _count
from penstock.errors import EncoderError
from penstock.rendering.code import Code
from penstock.rendering.options import ChunkOptions
from penstock.rendering.source import SourceVideo

#: The version of the JSON that `Plan.to_json` writes.
VERSION = 2
# Chosen: at 240 frames a chunk, the keyframes that it adds cost little, and a lost one is soon rendered again.
MOST_CHUNK_FRAMES = 240
# x264 and x265 do not reorder a chunk of one or two frames. Its decoding times would be two frames later than those of
# reordered chunks, and the file would report a variable frame rate.
LEAST_CHUNK_FRAMES = 3
# Guessed: more would fill the driver's memory with their reports, some 500 bytes each.
MOST_CHUNKS = 1_000_000
# Chosen: with fewer chunks a worker than this, a slow one would leave the others idle for long.
CHUNKS_PER_WORKER = 3
# The last chunks are this much shorter at most. A shorter one costs more to start than it saves: 0.08 s of a CPU for
# Debian's FFmpeg 5.1, 0.01 s for a static 7.0.2 (measured, 2-core EPYC VM, 2026-11-27).
SHORTEST_SHARE = 8
# Chosen: a worker's chunks grow by this factor from the shortest, so that an early interruption keeps some.
GROWTH = 8

# What a plan gives to the Encoder itself.
OWN_ARGUMENTS = ("output", "fps", "size", "progress", "audio", "subtitles")
# Rate control that looks at the whole video, or that has a buffer which each chunk would start full.
_WHOLE_VIDEO_OPTIONS = ("pass", "passlogfile", "maxrate", "minrate", "bufsize", "rc_init_occupancy")
_WHOLE_VIDEO_PARAMETERS = re.compile(r"(?:^|:)(pass|stats|vbv-\w+|nal-hrd|hrd|mbr|buf-\w+)(?:=|:|$)")
# FFmpeg's own options for a file as a whole; the other ones are its container's.
_FILE_OPTIONS = ("metadata", "disposition", "map_metadata", "tag", "vtag", "f")
# FFmpeg's movflags that write a file in fragments, whose header counts the frames of the first one; "-" takes one away.
_FRAGMENTING = re.compile(r"(?<![-\w])(?:frag_(?:keyframe|custom|every_frame)|empty_moov|dash|cmaf|isml)\b")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a render. `plan` makes it; `render_chunk` and `assemble` carry it out, on any machine.

    Attributes:
        request: the arguments of an `Encoder` of the whole video. Those of its chunks are the same, but for the output.
        frames: indices of its frames.
        lengths: number of frames of each chunk.
        file_options: FFmpeg's options for the video's file, such as ``movflags``.
        labels: the video's metadata, time code and chapters.
        color_arguments: FFmpeg's arguments for the color tags of the video's file.
        code: the scene, or the function of `map_video`; None for a transcode.
        source: the video that `map_video` reads; None for a scene.
        audio: path of the audio file; None if there is no audio.
        storage: folder of the chunks: a path, or a URL for fsspec.
        ffmpeg: version of FFmpeg, which is the same on all machines.
        lost: what the video doesn't keep of the source, in sentences.
        hash: SHA-256 of everything on which the chunks depend, in hexadecimal. It's computed.
    """

    @dataclass(frozen=True, slots=True)
    class Chunk:
        """A run of frames that one worker renders.

        Attributes:
            number: the chunk's number in the plan, from 0.
            first: position of its first frame in the video, from 0.
            frames: indices of its frames, as the scene gets them.
        """

        number: int
        first: int
        frames: range

        def __str__(self) -> str:
            return f"chunk {self.number} (frames {self.frames[0]} to {self.frames[-1]})"

    request: Request
    frames: range
    lengths: tuple[int, ...]
    file_options: Mapping[str, object]
    code: Code | None
    source: SourceVideo | None
    audio: str | None
    storage: str
    ffmpeg: str
    labels: Labels = NO_LABELS
    color_arguments: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    hash: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", self._digest())  # the attribute

    @property
    def chunks(self) -> list[Plan.Chunk]:
        """The chunks, in order."""
        firsts = itertools.accumulate(self.lengths, initial=0)
        return [
            Plan.Chunk(number, first, self.frames[first : first + length])
            for number, (first, length) in enumerate(zip(firsts, self.lengths, strict=False))
        ]

    @property
    def output(self) -> str:
        """Absolute path of the video."""
        return str(self.request.output)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        assert self.request.size is not None
        return self.request.size

    @property
    def fps(self) -> Fraction | None:
        """Frames per second; None for the source's variable frame rate."""
        return None if self.request.fps is None else Fraction(self.request.fps)

    @property
    def codec(self) -> str:
        """FFmpeg's name of the video encoder."""
        return self.request.codec

    @property
    def program(self) -> str:
        """Path of the FFmpeg on this machine that has the plan's version.

        Raises:
            EncoderError: if there is none, or it doesn't report its version.
            ValueError: if its version isn't the plan's.
        """
        named = self.request.settings.ffmpeg
        quickest = None if named is not None else quickest_ffmpeg()
        if quickest is not None and version(quickest) == self.ffmpeg != "":
            return quickest
        program = find_ffmpeg(named)
        found = version(program)
        if self.ffmpeg and not found:
            raise EncoderError(
                f"the plan needs FFmpeg {self.ffmpeg}, and the version of {program} is unknown"
            )
        if found != self.ffmpeg:
            raise ValueError(
                f"the plan needs FFmpeg {self.ffmpeg}, and {program} is FFmpeg {found}. Install the same FFmpeg on all "
                "machines, or set PENSTOCK_FFMPEG=ffmpeg on all of them"
            )
        return program

    def time_s(self, position: int) -> Fraction:
        """Returns the exact time of the frame at a position in the video, from 0.

        After the last frame, it's the end of the video.
        """
        if self.fps is not None:
            return position / self.fps
        assert self.source is not None and self.source.ticks is not None
        return self.source.ticks[position] * TICK_S

    def with_chunks_of(self, other: Plan) -> Plan:
        """Returns this plan with the chunks of `other`, if `other` makes the same frames; otherwise this plan."""
        source = self.source and other.source and replace(self.source, starts_s=other.source.starts_s)
        same = replace(self, lengths=other.lengths, source=source)
        return same if same.hash == other.hash else self

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return to_json({"version": VERSION, "hash": self.hash, **fields_of(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the plan that `to_json` wrote.

        Raises:
            ValueError: if the text isn't a plan, has another version of the format, or was changed.
        """
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the text is not a plan: {error}") from None
        try:
            found = given.pop("version")
            if found != VERSION:
                raise ValueError(f"the plan must have version {VERSION}, not {found!r}. Make it again")
            digest = given.pop("hash")
            plan: Self = from_plain(cls, given)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"the text is not a plan: {error!r}") from None
        if plan.hash != digest:
            raise ValueError("the plan was changed after it was made: its hash is wrong. Make it again")
        return plan

    def _digest(self) -> str:
        """SHA-256 of everything on which the chunks depend."""
        content = fields_of(self) | {
            "version": VERSION,
            # The same video under another name has the same chunks.
            "request": replace(self.request, output=""),
            "code": self.code and self.code.digest,
        }
        # These belong to the join: whoever changes them keeps the chunks.
        for name in ("file_options", "labels", "audio", "storage", "lost"):
            content.pop(name, None)
        return hashlib.sha256(to_json(content).encode()).hexdigest()


def lengths_of(count: int, chunk_frames: int | None, workers: int) -> tuple[int, ...]:
    """The lengths of the chunks of `count` frames: `chunk_frames` each, and shorter ones at the end.

    The last ones are half of an equal share of what is left (guided self-scheduling: Polychronopoulos and Kuck, 1987),
    so that the workers end at about the same time. If `chunk_frames` is None, the first ones are short, too.
    """
    limit = LEAST_CHUNK_FRAMES
    if chunk_frames is None:
        chunk_frames = min(MOST_CHUNK_FRAMES, -(-count // (CHUNKS_PER_WORKER * workers)))
    else:
        limit = max(_count("chunk_frames", chunk_frames), LEAST_CHUNK_FRAMES)
    chunk_frames = max(chunk_frames, LEAST_CHUNK_FRAMES)
    if count > MOST_CHUNKS * chunk_frames:
        raise ValueError(
            f"{count} frames in chunks of {chunk_frames} are more than {MOST_CHUNKS:,} chunks. Pass "
            f"chunk_frames={-(-count // MOST_CHUNKS)} or more"
        )
    shortest = max(-(-chunk_frames // SHORTEST_SHARE), LEAST_CHUNK_FRAMES)
    lengths, left = [], count
    while left:
        length = min(limit, max(shortest, -(-left // (2 * workers))))
        if left - length < shortest:
            # What is left would be shorter than a chunk may be.
            length = left
        lengths.append(length)
        left -= length
        if len(lengths) % workers == 0:
            limit = min(limit * GROWTH, chunk_frames)
    return tuple(lengths)


def make_plan(
    output: str,
    given: ChunkOptions,
    *,
    frames: int | range,
    size: tuple[int, int],
    fps: int | float | Fraction | None,
    workers: int,
    encoder_options: Mapping[str, Any] | None,
    code: Code | None,
    source: SourceVideo | None = None,
    audio: str | None,
    lost: tuple[str, ...] = (),
) -> Plan:
    """Checks everything that can be checked before a frame is there."""
    frames = frames if isinstance(frames, range) else range(_count("frames", frames))
    try:
        len(frames)
    except OverflowError:
        raise ValueError("frames must be fewer than 2**63") from None
    if not frames or min(frames[0], frames[-1]) < 0:
        raise ValueError(
            f"frames must be a number of frames, or a range of indices from 0 on, not {frames!r}"
        )
    target = endpoints.target(output)
    path = Path(endpoints.without_protocol(target))
    if not endpoints.is_path(target) or (path.exists() and not path.is_file()):
        raise ValueError(
            f"the output must be a file, not {output!r}, because it gets its name when it is complete"
        )
    if encoder_options is not None and not isinstance(encoder_options, Mapping):
        raise TypeError(f'encoder_options must be a dict, such as {{"crf": 20}}, not {encoder_options!r}')
    if code is None or source is None:
        _check_plain_frames(
            encoder_options or {},
            "a scene draws into memory" if source is None else "no function makes floats",
        )
    request = _request(path, fps, encoder_options or {})
    if request.crash_safe:
        raise ValueError(
            "a render can't have crash_safe=True, because it joins its video at the end. Leave it out: the same call "
            "continues the render after a crash"
        )
    container = _joined_container(path, request.options or {})
    if fps is None and source is None:
        raise TypeError("fps must be frames per second, such as 30, 29.97 or Fraction(30000, 1001), not None")
    chosen, _ = by_quickest(replace(request, audio=audio))
    made = working_plan(replace(chosen, audio=None), checked_size(size))
    codec = encoders.codec_of(made.codec)
    is_beside = codec.alpha_decoder is not None and has_alpha(made.output_pixel_format or "")
    if not codec.is_chunked or is_beside:
        raise ValueError(
            f"{made.codec}{' with alpha' * is_beside} can't be encoded in chunks, because none of its containers can "
            "be joined. Use another codec"
        )
    file_options, options = _split_options(made, container)
    place = default_storage(str(path)) if given.storage is None else os.fspath(given.storage)
    planned = Plan(
        request=replace(
            made.request,
            output=str(path),
            settings=request.settings,  # other machines have the program at another path
            size=(made.frames.width, made.frames.height),
            fps=made.rate,
            codec=made.codec,  # all chunks have the encoder that works here
            options=options,
            # What the file says of itself is not the chunks'.
            metadata=None,
            timecode=None,
            chapters=None,
        ),
        frames=frames,
        lengths=lengths_of(len(frames), given.chunk_frames, workers),
        file_options=file_options,
        code=code,
        source=source,
        audio=None if audio is None else str(Path(audio).absolute()),
        storage=place if "://" in place else str(Path(place).absolute()),
        ffmpeg=version(made.program),
        labels=made.labels,
        color_arguments=_color_arguments(made),
        lost=lost,
    )
    return Plan.from_json(planned.to_json())  # as on other machines


def _check_plain_frames(arguments: Mapping[str, Any], why: str) -> None:
    """Checks that frames are what the pixel format says, where nobody hands in others."""
    for name in ("value_range", "channels_first"):
        if arguments.get(name):
            given = f"encoder_options={{{name!r}: {arguments[name]!r}}}"
            raise ValueError(
                f"{given} is for frames that a function of map_video returns. Leave it out: {why}"
            )


def default_storage(output: str) -> str:
    """The folder of the chunks of `output`, if the caller names none."""
    return f"{output}.chunks"


def _request(output: Path, fps: float | Fraction | None, given: Mapping[str, Any]) -> Request:
    """The request for an encoder of the whole video."""
    if own := [name for name in OWN_ARGUMENTS if name in given]:
        raise ValueError(
            f"encoder_options must not have {', '.join(own)}. Leave it out, or pass it to the call itself"
        )
    return Request.of(output, {"fps": fps, **given})


def _joined_container(output: Path, options: Mapping[str, object]) -> str:
    """The container into which chunks are joined. Checks that chunks which are encoded so can be joined."""
    container = options.get("f") or endpoints.Output(f"file:{output}").container
    # The others begin at another time than 0 (MPEG-TS), have no colors (AVI), or are no single file (HLS).
    if not containers.known(str(container)).holds_length:
        raise ValueError(
            f"the container must be mp4, mov, matroska (.mkv) or webm, not {container!r}. Convert the result to "
            "another one with: ffmpeg -i IN -c copy OUT"
        )
    for name in options:
        if name.partition(":")[0] in _WHOLE_VIDEO_OPTIONS:
            raise ValueError(
                f"{argument(f'options.{name}', options[name])} needs the whole video in one piece, and a render "
                f"encodes chunks. Use {argument('crf', 20)}, or a bit rate alone"
            )
    for name in encoders.PARAMETERS:
        if found := _WHOLE_VIDEO_PARAMETERS.search(str(options.get(name, ""))):
            raise ValueError(
                f"{argument(f'options.{name}', options[name])} needs the whole video in one piece, because of "
                f"{found[1]}. Use {argument('crf', 20)}"
            )
    return str(container)


def _split_options(made: EncodePlan, container: str) -> tuple[dict[str, object], dict[str, object]]:
    """The options of the video's file, and those of the chunks."""
    of_file, of_chunk = dict[str, object](), dict[str, object]()
    if not made.request.options:
        return of_file, of_chunk
    of_container = muxer_options(made.program, container)
    for name, value in made.request.options.items():
        is_of_file = name in of_container or name.partition(":")[0] in _FILE_OPTIONS
        (of_file if is_of_file else of_chunk)[name] = value
    for name, value in of_file.items():
        if name in ("frag_duration", "frag_size") or (name == "movflags" and _FRAGMENTING.search(str(value))):
            raise ValueError(
                f"{argument(f'options.{name}', value)} writes fragments, whose frames a render can't verify. Write "
                f"them afterwards with: ffmpeg -i IN -c copy -{name} {value} OUT"
            )
    return of_file, of_chunk


def _color_arguments(made: EncodePlan) -> tuple[str, ...]:
    """FFmpeg's arguments for the colors of the joined video: QuickTime can't hold the range, nor RGB's."""
    pixel_format = made.output_pixel_format or ""
    if is_rgb(pixel_format):
        return "-color_range", "pc", "-colorspace", "rgb"
    # FFmpeg may refuse gray with more than the range.
    return made.color_arguments[:2] if is_gray(pixel_format) else made.color_arguments


def chunk_of_number(plan: Plan, number: int) -> Plan.Chunk:
    if not 0 <= number < len(plan.lengths):
        has = plural(len(plan.lengths), "chunk")
        raise ValueError(f"chunk number {number} is out of range: the plan has {has}, numbered from 0")
    first = sum(plan.lengths[:number])
    return Plan.Chunk(number, first, plan.frames[first : first + plan.lengths[number]])


def stored_plans(texts: Iterator[str]) -> Iterator[Plan]:
    """The plans among `texts`; those of other versions are left out."""
    for text in texts:
        try:
            yield Plan.from_json(text)
        except ValueError:
            continue
