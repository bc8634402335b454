"""A URL whose protocol libav lacks, such as srt and rist: an FFmpeg program fetches its bytes."""

from __future__ import annotations

import subprocess

from penstock._facts.single_pass import SinglePassSource
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._ffmpeg.program.messages import summarize
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._platform import descriptors
from penstock.errors import DecoderError

# Guessed: a program that has closed its output exits within this time.
_END_GRACE_S = 5.0


class FetchedSource(SinglePassSource):
    """What an FFmpeg program fetches from a URL. It can be read only once.

    Raises:
        DecoderError: there is no FFmpeg, or it can't be started.
    """

    def __init__(self, url: str) -> None:
        # FFmpeg's demuxer and muxer `data` leave the bytes as they are.
        # FFmpeg 9 takes the end of an answer in chunks for an error, unless it keeps the connection.
        kept = ("-multiple_requests", "1") if url.startswith(("http:", "https:")) else ()
        arguments = (*kept, "-f", "data", "-i", url, "-map", "0", "-c", "copy", "-f", "data", "pipe:1")
        self._program = FFmpegProcess(
            find_decoding_ffmpeg(), arguments, is_strict=False, stdout=subprocess.PIPE, error=DecoderError
        )
        self._fetched = url
        try:
            self._program.start()
            super().__init__(descriptors.duplicate(self._program.stdout.fileno()))
        except BaseException:
            self._program.end()
            raise
        self._program.stdout.close()

    def close(self) -> None:
        """Closes it for us, and ends the program. May be called again."""
        super().close()
        self._program.kill()

    def _end(self) -> None:
        program = self._program
        has_ended = program.wait(_END_GRACE_S)
        # FFmpeg 5.1 says why, and exits with 0 all the same.
        if not has_ended or not program.has_succeeded or program.log.text:
            self.failure = OSError(
                0, summarize(program.log.text, self._fetched) or f"FFmpeg {program.ending}"
            )
