"""Opens a file with the FFmpeg that decodes it: one process, and no ffprobe before it.

The start of a process of FFmpeg takes longer than its first frame: 60 ms for Debian's FFmpeg 5.1, to link some 200
libraries (measured 2026-11-22, 2-core x86-64 VM). FFmpeg opens and describes its inputs before it reads the filters of
its outputs. Here it reads them from a pipe, and waits there until the decode is planned from that description.
"""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import FileIO
from pathlib import Path

from penstock.errors import DecoderError
from penstock.ffmpeg import boxes, endpoints, probe_by_ffmpeg
from penstock.ffmpeg.decode_plan import DecodeOptions, DecodePlan, can_wait, waiting_arguments
from penstock.ffmpeg.media import MediaInfo
from penstock.ffmpeg.probe import media_info
from penstock.ffmpeg.process import FFmpegProcess
from penstock.ffmpeg.settings import Tuning

# Guessed: an FFmpeg that needs longer to open a local file, as on a disk that has to spin up, is not waited for, and
# the file is opened in the other way.
_PATIENCE_S = 5.0
# Guessed: a description with many streams and tags fits.
_MOST_BYTES = 256 << 10
_PAGE_BYTES = 4096
# FFmpeg's options to read filters from a file: the first up to 7.1, the second from 7.0 on.
_FROM_FILE = ("-filter_script:v", "-/filter:v")
_UNKNOWN_OPTION = "Unrecognized option 'filter_script:v'"
# FFmpeg's own way to write what it logs to a file, with a level of its own (32 is AV_LOG_INFO).
_REPORT, _REPORT_LEVEL = "FFREPORT", 32

# Of each program that has been run, which of `_FROM_FILE` it knows.
_known: dict[str, str] = {}


class WaitingFFmpeg(FFmpegProcess):
    """An FFmpeg that has opened a file, and waits for its filters.

    Call `open` in a ``try`` that calls `end`, as `start` of the others. `start` gives it the filters of `follow`.
    """

    _filters: FileIO
    _report: FileIO

    def __init__(
        self,
        program: str,
        arguments: Callable[[Sequence[str]], list[str]],
        tuning: Tuning,
        *,
        is_strict: bool,
    ) -> None:
        super().__init__(
            program,
            self._with_filters,
            tuning.ffmpeg_policy,
            is_strict=is_strict,
            stdout=subprocess.PIPE,
            error=DecoderError,
        )
        self._waiting = arguments
        self._graph = b""

    def open(self, timeout_s: float) -> str | None:
        """Starts FFmpeg, and returns how it describes the file; None if it ended, or needs longer."""
        super().start()
        description = bytearray()
        waiting = select.poll()
        waiting.register(self._filters, select.POLLOUT)
        waiting.register(self._report, select.POLLIN)
        until_s = time.monotonic() + timeout_s
        while (left_s := until_s - time.monotonic()) > 0 and len(description) <= _MOST_BYTES:
            ready = dict(waiting.poll(left_s * 1000))
            if (filters := ready.get(self._filters.fileno())) is None:
                if ready and not (part := self._report.read(_PAGE_BYTES)):
                    return None
                description += part if ready else b""
                continue
            # It reads its filters, or is gone. What it described before is in the pipe by now.
            os.set_blocking(self._report.fileno(), False)
            description += self._report.readall() or b""
            # FFmpeg ignores that nobody reads what it logs later.
            self._report.close()
            return None if filters & select.POLLERR else description.decode(errors="replace")
        return None

    def follow(self, plan: DecodePlan, place: tuple[str, str, float]) -> None:
        """Notes what `start` is to have FFmpeg do. `place` is what the plan's arguments begin with."""
        self._graph = plan.graph(self._told).encode()
        # For messages: a command that can be read, and does the same.
        self.command = (*self._head, *plan.arguments(*place, self._told))

    def start(self) -> None:
        os.set_blocking(self._filters.fileno(), True)
        with suppress(BrokenPipeError):  # it is gone, which the reader will tell
            left = memoryview(self._graph)
            while left:
                left = left[os.write(self._filters.fileno(), left) :]
        self._filters.close()

    def learn(self) -> bool:
        """Whether it ended because it has another option for filters. The next one of the program gets that."""
        if _UNKNOWN_OPTION not in self.log.text:
            return False
        _known[self._program] = _FROM_FILE[1]
        return True

    def spawn(self) -> subprocess.Popen[bytes]:
        with ExitStack() as of_child:
            self._filters, self._script = self.pipe_to()
            of_child.enter_context(self._script)
            self._report, reported = self.pipe_from()
            of_child.enter_context(reported)
            _fill(self._filters)
            self.passed = self._script.fileno(), reported.fileno()
            self.variables = {_REPORT: f"file=/dev/fd/{reported.fileno()}:level={_REPORT_LEVEL}"}
            return super().spawn()

    def _with_filters(self, descriptor: int) -> list[str]:
        self._told = descriptor
        option = _known.get(self._program, _FROM_FILE[0])
        return self._waiting((option, f"pipe:{self._script.fileno()}"))


class Opening:
    """Has FFmpeg open a file before the decode is planned, if it is an ordinary file, and an ordinary decode.

    Call `open` in a ``try`` that calls `end`, as for `Child.start`.

    Args:
        path: the file, as the caller named it.
        source: what FFmpeg reads, from `endpoints.source`.
        stream: number of the video stream; None for the best.

    Attributes:
        process: has opened the file, and waits for its filters; None if the file is to be probed, and FFmpeg to be
            started then.
    """

    def __init__(
        self, program: str, path: str, source: str, stream: int | None, options: DecodeOptions, tuning: Tuning
    ) -> None:
        self.process: WaitingFFmpeg | None = None
        self._path, self._source = path, source
        self._identity = endpoints.identity(source)
        self._container = endpoints.likely_container(source)
        self._stream = stream
        self._may_try = (
            can_wait(options)
            and isinstance(stream, int | None)
            # A name with line breaks could pass for a line of the description, which quotes it.
            and source.isprintable()
            and _REPORT not in os.environ
        )
        self._text = ""
        self._claims: dict[int, str] = {}
        self._waiting = partial(
            WaitingFFmpeg,
            program,
            partial(waiting_arguments, source, self._container or "", stream, options),
            tuning,
            is_strict=not options.conceal_errors,
        )

    def open(self) -> bool:
        """Whether `process` has opened the file. If not, whatever the reason is, `probe` tells it."""
        while self._may_try and self._container is not None:
            self.process = self._waiting()
            self._text = self.process.open(_PATIENCE_S) or ""
            if self._is_ordinary(self._container):
                return True
            self.process.end()
            self._may_try = self.process.learn()
            self.process = None
        return False

    def end(self) -> None:
        """Ends `process`."""
        if self.process is not None:
            self.process.end()

    @property
    def is_file_there(self) -> bool:
        """Whether the file is still the one that was opened, with the same content."""
        return endpoints.identity(self._source) == self._identity

    def describe(self, program: str | None = None) -> MediaInfo:
        """What FFmpeg told of the file, with the full names and the channels that `program` lists."""
        answer = probe_by_ffmpeg.parse_description(self._text, program)
        videos = [one for one in answer.get("streams", []) if one["codec_type"] == "video"]
        for one in answer.get("streams", []):
            if one["codec_type"] == "audio":
                # FFmpeg prints none for sound. All tracks of Matroska have one; that of QuickTime is mostly the rate.
                is_shared = self._container == endpoints.MATROSKA and videos
                one["time_base"] = videos[0]["time_base"] if is_shared else f"1/{one['sample_rate']}"
        for one in videos:
            one["nb_frames"] = self._claimed_frames(one["index"])
        if answer and self._identity is not None:
            answer["format"]["size"] = str(self._identity.size_bytes)
        return media_info(self._path, program or "FFmpeg", answer, is_counted=False)

    def _claimed_frames(self, index: int) -> str | None:
        """What the header says, as long as the file is there."""
        if index not in self._claims and self._container == endpoints.QUICKTIME:
            with suppress(OSError), Path(endpoints.without_protocol(self._source)).open("rb") as file:
                self._claims[index] = str(boxes.claimed_frames(file, index))
        return self._claims.get(index)

    def _is_ordinary(self, container: str) -> bool:
        """Whether FFmpeg reads the stream that is to be decoded, and has told all that its plan needs."""
        try:
            media = self.describe()
        except (DecoderError, LookupError):
            return False
        mapped = [one for one in media.video if self._stream is not None or not one.is_attached_picture]
        number = self._stream or 0
        if media.container != container or not 0 <= number < len(mapped):
            return False
        video = mapped[number]
        return (
            (self._stream is not None or video == media.best_video)
            and video.pixel_format is not None
            and min(video.width, video.height) > 0
            # FFmpeg rounds what is no whole number of units in a second.
            and video.time_base.numerator == 1
            # It needs a decoder that is named.
            and not video.has_separate_alpha
        )


def _fill(pipe: FileIO) -> None:
    """Fills a pipe with spaces, which FFmpeg skips, so that it becomes writable when FFmpeg reads it."""
    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PAGE_BYTES)
    os.set_blocking(pipe.fileno(), False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe.fileno(), b" " * _PAGE_BYTES)
