"""Damage in a file by what FFmpeg has said while it read the file."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable

from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.messages import damage_reports, is_of_demuxer
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock.errors import DecoderError

# Guessed: FFmpeg opens a file within this time.
_PATIENCE_S = 10.0


def told_damage(
    process: FFmpegProcess,
    source: str,
    container: str,
    other_codecs: Iterable[str] = (),
    sandbox: Sandbox | None = None,
) -> Counter[str]:
    """How often FFmpeg, which has ended, has told of damage, by its lines.

    What the demuxer says when it only opens the file is left out: it concerns tags and the like, and no frame.
    """
    told = damage_reports(process.log.reports, other_codecs)
    if any(is_of_demuxer(line, container) for line in told) and endpoints.identity(source) is not None:
        opening = FFmpegProcess(
            process.command[0],
            [
                *endpoints.confining_arguments(source, (container,)),
                # It reads no more than the first packet: without the container's name, it needed more to find it.
                *(
                    "-f",
                    container.partition(",")[0],
                    "-probesize",
                    "32",
                    "-analyzeduration",
                    "0",
                    "-i",
                    source,
                ),
            ],
            is_strict=False,
            stdout=subprocess.DEVNULL,
            sandbox=sandbox,
            error=DecoderError,
        )
        try:
            opening.start()
            opening.wait(_PATIENCE_S)
        finally:
            opening.end()
        told -= Counter(
            {line: count for line, count in opening.log.reports.items() if is_of_demuxer(line, container)}
        )
    return told
