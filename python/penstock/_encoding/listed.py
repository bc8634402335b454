"""The pairs of container and encoder whose result is known to be right: the tests prove it with each FFmpeg.

``docs/formats.md`` shows the table, which `penstock._formats.containers` has. Any other combination is rehearsed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from penstock._encoding.encoders import LOSSLESS, hardware_encoders
from penstock._encoding.plan import Beside, EncodePlan, plan
from penstock._encoding.request import Request
from penstock._encoding.sound import AudioFile, Sound
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.settings import with_ffmpeg
from penstock._ffmpeg.program.capabilities import quickest_ffmpeg
from penstock._formats import codecs, encoders
from penstock._formats.containers import Container
from penstock.errors import EncoderError

_FASTSTART = (("movflags", "faststart"), ("movflags", "+faststart"))
#: Options that change nothing of what is promised.
OPTIONS = frozenset(("b", "crf", "g", "preset", "threads", "tune"))
# Options that read or write files of their own: a rehearsal would write them, too.
_FILES = re.compile(r"pass|stats|log|attach|sdp|/")


def is_read(output: Output) -> bool:
    """Whether libav reads a container. It does not read checksums, and raw video has no header."""
    video = None if output.known is None else output.known.video
    return output.facts.is_read and not (video and codecs.known(video).is_raw)


def can_be_rehearsed(made: EncodePlan) -> bool:
    """Whether an encode can be rehearsed: into one file that libav reads, by options that name no files."""
    output = made.output
    return (
        (endpoints.is_path(output.target) or endpoints.uses_stdout(output.target))
        and not (output.is_several_files or output.are_images)
        and is_read(output)
        and not any(_FILES.search(f"{name}={value}") for name, value in (made.request.options or {}).items())
    )


def is_listed(made: EncodePlan) -> bool:
    """Whether an encode is known to be right: by a listed pair, with options that change nothing of that."""
    request, container = made.request, made.output.facts
    is_tagged = encoders.known(made.codec).has_range or request.colors.range == "auto"
    return (
        made.codec in container.listed
        and _asks_for_what_is_listed(request)
        and made.labels.timecode is None
        and is_tagged
        and all(is_listed_sound(sound, container) for sound in made.sounds)
    )


def _asks_for_what_is_listed(request: Request) -> bool:
    return (
        request.quality != LOSSLESS
        and not request.crash_safe
        and all(_is_harmless(name, value) for name, value in (request.options or {}).items())
    )


def by_quickest(request: Request) -> tuple[Request, Beside | None]:
    """The request, which names the program that starts in the least time, and what was found to come with the picture.

    The request stays, and nothing is found, unless every FFmpeg is known to do the same: builds have other filters,
    drivers and protocols.
    """
    request.check_types()
    if request.settings.ffmpeg is not None or hardware_encoders(request.codec):
        return request, None
    if not _asks_for_what_is_listed(request) or (program := quickest_ffmpeg()) is None:
        return request, None
    with suppress(EncoderError, ValueError):  # the other program may have what this one lacks
        made = plan(replace(request, settings=with_ffmpeg(request.settings, program)), None)
        if is_listed(made) and _is_local(made):
            return made.request, made.beside
    return request, None


def _is_local(made: EncodePlan) -> bool:
    """Whether FFmpeg reads and writes no URL."""
    target = made.output.target
    is_written = endpoints.is_path(target) or endpoints.uses_stdout(target)
    files = (one.audio for one in made.sounds)
    return is_written and not any("://" in str(one.path) for one in files if isinstance(one, AudioFile))


def is_listed_sound(sound: Sound, container: Container) -> bool:
    """Whether a container is known to hold a sound: of a listed codec, or of FFmpeg's default."""
    codec = sound.codec if sound.is_copied else sound.encoder
    return codec is None or encoders.known(codec).codec in container.listed_audio


def _is_harmless(name: str, value: object) -> bool:
    return name.partition(":")[0] in OPTIONS or (name, value) in _FASTSTART
