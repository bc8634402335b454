"""A running FFmpeg that decodes, and the reader of its output.

Measured against alternatives (H.264 1080p to RGB, 2-core x86-64 VM, FFmpeg 5.1, 2026-11-23; CPU time a frame, frames a
second): the FFmpeg program 11.3 ms, 146; OpenCV 9.3 ms, 182; ``ffmpeg -f null`` 6.8 ms, 252; a child process with libav
(PyAV) that converts into shared memory 7.9 to 8.6 ms, 203 to 217. With `isolated`, such a child decodes. Filters and
options of FFmpeg's need the program, because libav has no parser of them. With the FFmpeg program, decoding costs at
least 6.8 ms, writing to the pipe 1.3, reading from it 0.5 and converting 1.1, so that pipes reach 0.95 times OpenCV's
speed at best. The program writes NUT, which contains the times. libav reads it by its protocol ``pipe:``: by a Python
file object, it takes up to twice the CPU time (1080p and 2160p, FFmpeg 5.1 and 9.0.2, 2026-11-29). A native reader of
raw frames, with the times in a second pipe, takes 0.9 to 1.1 times as much.
"""

from __future__ import annotations

import operator
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from io import FileIO
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from penstock._common.deadline import Deadline
from penstock._common.messages import argument, plural
from penstock._common.ownership import Closable
from penstock._facts.completeness import End, other_codecs
from penstock._facts.info import MediaInfo
from penstock._facts.source import Source
from penstock._facts.told_damage import told_damage
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import DecoderSettings
from penstock._ffmpeg.program.child import DRAIN_GRACE_S
from penstock._ffmpeg.program.messages import has_no_frames
from penstock._ffmpeg.program.process import FFmpegProcess, Session, warn_unclosed
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._native import AppliedPolicy
from penstock.errors import ClosedError, DecoderError, FFmpegError, StalledError, TruncatedStreamError

if TYPE_CHECKING:
    from penstock._native import Reader

# Guessed: an FFmpeg that has closed its output exits within this time. If it has reported its end, that is all.
END_GRACE_S = 5.0
# Guessed: an FFmpeg that was killed is gone within milliseconds, unless the kernel has it wait for a lost server.
KILL_GRACE_S = 2.0
LATE = "FFmpeg delivered nothing"
# FFmpeg's messages about a packet of which a part is missing, or which begins another file, and what to do.
_GAPS = ("corrupt input packet", "Error parsing the packet header", "Header missing")
_OVER_GAPS = (
    "bytes are missing, or the file was joined from several. "
    "Pass conceal_errors=True (--conceal-errors) to read on"
)
#: An impossible width for FFmpeg's filter `crop`, which makes it fail at a palette picture whose size differs from the
#: first one's. Chosen: a width that no caller asks for, so that the failure is recognized by FFmpeg's message.
OTHER_SIZE = -(1 << 20)

Stream = TypeVar("Stream")
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Reading(Protocol[Item_co]):
    """What reads FFmpeg's output ahead: a native `Reader` of blocks of samples, or `ProgramFrames`."""

    @property
    def stats(self) -> Any:
        """What it has done, with `frames_delivered`."""

    def read(self, timeout: float) -> Item_co | None:
        """The next one; None at the end."""

    def close(self) -> None:
        """Stops reading."""


class DecodeSession(Session, Generic[Item]):
    """A running FFmpeg that writes frames, or blocks of samples.

    Args:
        new_reader: starts to read from its output.
        is_strict: FFmpeg exits at the first error instead of going on.
        sandbox: what FFmpeg may do; None if it may do all.

    Attributes:
        reader: what reads from its output.
        has_succeeded: whether FFmpeg has written all that it had to; None until it has ended and all frames were read.
    """

    error = DecoderError
    # Set by `start`.
    reader: Reading[Item]

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        title: str,
        settings: DecoderSettings,
        new_reader: Callable[[FileIO], Reading[Item]],
        is_strict: bool,
        sandbox: Sandbox | None = None,
    ) -> None:
        process = FFmpegProcess(
            program,
            arguments,
            settings.ffmpeg_policy,
            is_strict=is_strict,
            stdout=subprocess.PIPE,
            sandbox=sandbox,
            error=DecoderError,
        )
        super().__init__(process, title, settings.stall_timeout)
        self.has_succeeded: bool | None = None
        self._ending = threading.Lock()
        self._grace: Deadline | None = None  # once FFmpeg has closed its output
        self._new_reader = new_reader

    def connect(self) -> None:
        self.reader = self._new_reader(self.process.stdout)
        # The reader has a duplicate, and FFmpeg must notice at once when that is closed.
        self.process.stdout.close()

    def disconnect(self) -> None:
        if hasattr(self, "reader"):
            self.reader.close()

    @property
    def is_closed(self) -> bool:
        return not self.is_open or self.is_inherited

    @property
    def delivered(self) -> int:
        """Frames that callers received."""
        delivered: int = self.reader.stats.frames_delivered
        return delivered

    def read(self, timeout: float | None = None) -> Item | None:
        """The next frame; None at the end, when FFmpeg has exited."""
        deadline = Deadline(timeout)
        self.check_open()
        if self.has_succeeded is not None:
            return None
        with self.logged_stalls():
            frame = self.wait_for(self._take, deadline, LATE)
            if frame is None:
                self._end(deadline)
            return frame

    async def read_async(self) -> Item | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""
        self.check_open()
        if self.has_succeeded is not None:
            return None
        with self.logged_stalls():
            frame = await self.wait_for_async(self._take, cast("Reader", self.reader)._ready)
        if frame is None:
            import asyncio  # slow to import; a program that uses asyncio has done so

            await asyncio.to_thread(self._end, Deadline(None))
        return frame

    def finish(self) -> None:
        """Goes on as at the end of FFmpeg's output, which a program that FFmpeg's wrapper has started keeps open."""
        self._end(Deadline(None))

    def close(self) -> None:
        """Ends FFmpeg and the reader at once. May be called again."""
        self.abandon()
        if not self.is_inherited:
            self.process.wait(KILL_GRACE_S)

    def abandon(self) -> None:
        """Kills FFmpeg without waiting: for a finalizer, which may run on any thread."""
        self.mark_closed()
        self._let_go()

    def end_collected(self) -> None:
        """Ends FFmpeg when the garbage collector takes the decoder, with a `ResourceWarning` before the last frame."""
        if self.is_closed:
            return
        self.abandon()
        if self.has_succeeded is None:
            warn_unclosed(self)

    def end_at_exit(self) -> None:
        self.close()

    def progress(self) -> str:
        return f"delivered {plural(self.delivered, 'frame')}"

    def check_open(self) -> None:
        """Checks that it was not closed."""
        self.check_owner()
        if not self.is_open:
            raise ClosedError("the decoder is closed")

    def _take(self, timeout_s: float) -> Item | None:
        """A frame; None at the end of FFmpeg's output."""
        try:
            return self.reader.read(timeout_s)
        except TruncatedStreamError:
            return None
        except StalledError as stalled:
            read = self.reader.stats
            is_between_frames = read.bytes_read == read.frames_read * stalled.bytes_pending
            if self.process.seconds_since_end() < DRAIN_GRACE_S or not is_between_frames:
                raise
            return None  # what a wrapper of FFmpeg has left running keeps the pipe open
        except ClosedError:
            self.check_open()
            return None  # another thread saw the end first and closed the reader

    def _end(self, deadline: Deadline) -> None:
        """FFmpeg has closed its output: notes whether it succeeded, unless `close` has killed it in another thread.

        Raises:
            StalledError: FFmpeg had not exited at the deadline.
        """
        with self._ending:
            self.check_open()
            if self.has_succeeded is not None:
                return  # another thread was first
            process, is_late = self.process, False
            self._grace = grace = self._grace or Deadline(END_GRACE_S)
            if not process.wait(deadline.at_most(grace.at_most(END_GRACE_S))):
                if not grace.is_over():
                    raise deadline.late(LATE)
                is_late = True
                process.kill()
                process.wait()
            self.check_open()
            self.has_succeeded = process.has_succeeded or (is_late and process.is_complete)
            self._let_go()

    def _let_go(self) -> None:
        if not self.is_inherited:  # where a fork has closed the pipe, and another thread may have held a lock
            self.process.kill()
            self.reader.close()


class OnDemand(Closable, Generic[Item]):
    """A run of FFmpeg that starts when it is needed, and what its end means.

    Args:
        opened: what the caller gave.
        source, media, index: what FFmpeg reads, the facts about it, and the number of the stream.
        is_strict: damage is an error, although FFmpeg goes on.
        sandbox: what FFmpeg may do; None if it may do all.

    Attributes:
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    def __init__(
        self,
        opened: Source,
        source: str,
        media: MediaInfo,
        index: int,
        *,
        is_strict: bool,
        sandbox: Sandbox | None = None,
    ) -> None:
        super().__init__()
        self._opened, self._source, self._media = opened, source, media
        self._is_strict, self._sandbox = is_strict, sandbox
        self._other_codecs = other_codecs(media, index)  # whose damage doesn't matter
        self.run: DecodeSession[Item] | None = None
        self.warning: str | None = None
        self._is_judged = False
        self._failure: FFmpegError | None = None
        self._judging = threading.Lock()
        self._starting = threading.RLock()  # a signal handler may close the decoder

    @property
    def session(self) -> DecodeSession[Item]:
        """The run of FFmpeg, which the first use starts."""
        if self.run is None:
            self.check_owner()
            with self._starting:
                self.check_open()
                self.run = self.run or self._start()
                if self._is_closed:  # by a signal handler
                    self.run.close()
        return self.run

    def read_frame(self, timeout: float | None) -> Item | None:
        """What FFmpeg writes next; None at the end, if all is well."""
        run = self.session
        if (frame := run.read(timeout)) is None:
            self._judge(run)
        return frame

    async def read_frame_async(self) -> Item | None:
        """`read_frame` for asyncio. A task that is cancelled while it waits loses no frame."""
        run = self.session
        if (frame := await run.read_async()) is None:
            import asyncio  # slow to import; a program that uses asyncio has done so

            await asyncio.to_thread(self._judge, run)
        return frame

    def finish(self) -> None:
        """Finds out whether all is well, though FFmpeg's output has no end."""
        run = self.session
        run.finish()
        self._judge(run)

    def _start(self) -> DecodeSession[Item]:
        """Starts FFmpeg."""
        run = self._make_session()
        try:
            run.start()
            self._opened.start_feeding()
        except BaseException:
            run.discard()
            raise
        return run

    def _make_session(self) -> DecodeSession[Item]:
        """A run that has not started."""
        raise NotImplementedError

    def _judge(self, run: DecodeSession[Item]) -> None:
        """Finds out at the end whether all is well. Raises why it is not, the same at each call."""
        with self._judging:
            if not self._is_judged:
                end = self._end_of(run)
                if end.reason is not None:
                    advice = _OVER_GAPS if any(gap in run.process.log.text for gap in _GAPS) else None
                    self._failure = run.failure(
                        f"{self._opened.path}: {end.reason}", self._given(run), advice
                    )
                self.warning, self._is_judged = end.warning, True
        if self._failure is not None:
            raise self._failure

    def _given(self, run: DecodeSession[Item]) -> int:
        """How many frames were given to the caller."""
        return run.delivered

    def _end_of(self, run: DecodeSession[Item]) -> End:
        """What the end of FFmpeg means: why reading has failed, and what to say of the file."""
        process, after = run.process, f"after {plural(self._given(run), 'frame')}"
        said = process.log.text
        if process.returncode not in (0, None) and has_no_frames(said):
            return End("the video stream has no frames that FFmpeg can decode")
        if f"width '{OTHER_SIZE}'" in said:
            return End(
                f"the pictures change their size, which a palette doesn't support, {after}. Pass "
                f"{argument('pixel_format', DEFAULT_FORMAT)} to scale all frames to the size of the first one"
            )
        sandbox = self._sandbox if self._is_strict or not run.has_succeeded else None
        # Before damage: what FFmpeg says for want of memory looks like that.
        if sandbox is not None and (limit := sandbox.reached_limit(process.returncode, said)) is not None:
            return End(f"decoding {limit}, {after}")
        if not run.has_succeeded:
            return End(f"FFmpeg {process.ending}, {after}")
        if not self._is_strict:
            return End()
        warning = None
        media, others = self._media, self._other_codecs
        if damage := told_damage(process, self._source, media.container, others, self._sandbox):
            warning = self._explained(damage)
            if warning is None:
                return End(f"the file is damaged or ends too early, {after}")
        if self._is_all_asked_for(run):
            return End(warning=warning)
        found = End(self._opened.failure) if self._opened.failure else self._end_of_file(run)
        if found.reason is not None:
            return End(f"{found.reason}, {after}")
        return End(warning=warning or found.warning)

    def _explained(self, damage: Counter[str]) -> str | None:
        """The warning to give for FFmpeg's messages of damage, if only the beginning is damaged; else None."""
        return None

    def _is_all_asked_for(self, run: DecodeSession[Item]) -> bool:
        """Whether the caller asked for no more than was delivered, whatever follows in the file."""
        return False

    def _end_of_file(self, run: DecodeSession[Item]) -> End:
        """What shows at the end of the file, although FFmpeg has succeeded."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """FFmpeg's process id; None before FFmpeg has started."""
        return None if self.run is None else self.run.process.pid

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that FFmpeg started with; None if none was given, and before FFmpeg has started."""
        return None if self.run is None else self.run.process.policy

    def close(self) -> None:
        """Ends FFmpeg at once. What was delivered stays valid. May be called again."""
        self._is_closed = True
        with nullcontext() if self.is_inherited else self._starting:
            if self.run is not None:
                self.run.close()
        self._opened.stop_feeding()

    def end_collected(self) -> None:
        """Ends FFmpeg when the garbage collector takes the decoder."""
        if self.run is not None:
            self.run.end_collected()


class DecoderBase:
    """What `Decoder` and `AudioDecoder` have in common: iteration, and their end."""

    def close(self) -> None:
        """Ends the decoder. What was delivered stays valid. May be called again."""
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        # It may wait for the end of FFmpeg and of the native worker.
        await asyncio.to_thread(self.close)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a running {type(self).__name__} can't be copied or pickled")


def numbered_stream(path: str, kind: str, streams: Sequence[Stream], number: int) -> Stream:
    """The stream with that number. `kind` is "video" or "audio"."""
    if not 0 <= operator.index(number) < len(streams):
        has = plural(len(streams), f"{kind} stream")
        raise ValueError(f"stream number {number} is out of range: {path} has {has}, numbered from 0")
    return streams[number]
