"""Damage in a file by what FFmpeg has said while it read the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.messages import damage_reports, is_of_demuxer
from penstock._ffmpeg.program.process import FFmpegProcess, reports_of
from penstock._ffmpeg.program.sandbox import Sandbox

# Guessed: FFmpeg opens a file within this time.
_PATIENCE_S = 10.0


def reported_damage(
    process: FFmpegProcess,
    source: str,
    container: str,
    other_codecs: Iterable[str] = (),
    sandbox: Sandbox | None = None,
) -> Counter[str]:
    """How often FFmpeg, which has ended, has told of damage, by its lines.

    What the demuxer says when it only opens the file is left out: it concerns tags and the like, and no frame.
    """
    damage = damage_reports(process.log.reports, other_codecs)
    if any(is_of_demuxer(line, container) for line in damage) and endpoints.identity(source) is not None:
        # It reads no more than the first packet: without the container's name, it needed more to find it.
        name, little = container.partition(",")[0], ("-probesize", "32", "-analyzeduration", "0")
        arguments = [*endpoints.confining_arguments(source, (container,)), "-f", name, *little, "-i", source]
        opening = reports_of(process.command[0], arguments, _PATIENCE_S, sandbox)
        damage -= Counter({line: count for line, count in opening.items() if is_of_demuxer(line, container)})
    return damage
