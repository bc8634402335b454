"""A child process that decodes: it starts when it is needed, and its end tells whether all is well.

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
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock._common.messages import argument, plural
from penstock._common.ownership import Closable
from penstock._facts.completeness import EndOfFile, other_codecs
from penstock._facts.info import MediaInfo, Track
from penstock._facts.reported_damage import reported_damage
from penstock._facts.source import Source
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import DecoderSettings
from penstock._ffmpeg.program.child import DRAIN_GRACE_S
from penstock._ffmpeg.program.messages import has_no_frames
from penstock._ffmpeg.program.process import FFmpegProcess, Session, warn_unclosed
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock._native import AppliedPolicy
from penstock.errors import ClosedError, DecoderError

# Guessed: an FFmpeg that has closed its output exits within this time. If it has reported its end, that is all.
END_GRACE_S = 5.0
# Guessed: an FFmpeg that was killed is gone within milliseconds, unless the kernel has it wait for a lost server.
KILL_GRACE_S = 2.0
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


class ChildSession(Session):
    """A running child that decodes."""

    error = DecoderError

    @property
    def is_done(self) -> bool:
        """Whether nothing is lost if it is dropped now."""
        raise NotImplementedError

    @property
    def delivered(self) -> int:
        """Frames that were read from it."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return not self.is_open or self.is_inherited

    def progress(self) -> str:
        return f"delivered {plural(self.delivered, 'frame')}"

    def check_usable(self) -> None:
        """Checks that it was not closed, and that this process started it."""
        self.check_owner()
        if not self.is_open:
            raise ClosedError("the decoder is closed")

    def close(self) -> None:
        """Ends the child at once. May be called again, also by a signal handler."""
        self.abandon()
        if not self.is_inherited:
            self.process.wait(KILL_GRACE_S)

    def abandon(self) -> None:
        """Kills the child without waiting: for a finalizer, which may run on any thread."""
        self.mark_closed()
        # In the child of a fork, the pipes are closed, and another thread may have held a lock.
        if not self.is_inherited:
            self.process.kill()
            self.disconnect()
            self.process.close_pipes()

    def end_collected(self) -> None:
        """Ends the child when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if self.is_closed:
            return
        is_done = self.is_done
        self.abandon()
        if not is_done:
            warn_unclosed(self)

    def end_at_exit(self) -> None:
        self.close()


class FrameOutput(Protocol):
    """Reads what a program writes: in this process (`ProgramOutput`), or in a confined one (`ConfinedOutput`)."""

    @property
    def count(self) -> int:
        """How many frames were read."""

    def read(self) -> tuple[int, Any] | None:
        """The next frame and its timestamp; None at the end."""

    def waits(self) -> bool:
        """Whether a thread waits for the program to write."""

    def close(self) -> None:
        """Ends the reading. May be called again."""

    def release(self) -> None:
        """Closes the pipe, which no thread may read any more. May be called again."""


class DecodeSession(ChildSession):
    """A running FFmpeg that writes NUT.

    Args:
        new_output: begins to read from its output.
        is_strict: FFmpeg exits at the first error instead of going on.
        sandbox: what FFmpeg may do; None if it may do all.

    Attributes:
        output: what reads from its output.
        has_succeeded: whether FFmpeg has written all that it had to; None until it has ended.
    """

    # Set by `start`.
    output: FrameOutput

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        title: str,
        settings: DecoderSettings,
        new_output: Callable[[FileIO], FrameOutput],
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
        self._new_output = new_output

    def connect(self) -> None:
        self.output = self._new_output(self.process.stdout)
        # The output has a duplicate, and FFmpeg must notice at once when that is closed.
        self.process.stdout.close()

    def disconnect(self) -> None:
        if hasattr(self, "output"):
            self.output.close()

    @property
    def is_done(self) -> bool:
        return self.has_succeeded is not None

    @property
    def delivered(self) -> int:
        return self.output.count

    def read(self) -> tuple[int, Any] | None:
        """The next packet, with its time; None at the end, when FFmpeg has exited. Waits as long as it takes."""
        if (packet := self.output.read()) is None:
            self.finish()
        return packet

    @property
    def is_left_running(self) -> bool:
        """Whether FFmpeg has ended, but what its wrapper has started keeps the pipe open."""
        return self.process.seconds_since_end() >= DRAIN_GRACE_S and self.output.waits()

    def finish(self) -> None:
        """Notes whether FFmpeg succeeded, which has closed its output, unless `close` has killed it."""
        with self._ending:
            self.check_usable()
            # A thread that reads ahead and one that judges the end may both come here.
            if self.has_succeeded is not None:
                return  # another thread was first
            process = self.process
            # A program of the user's, such as a wrapper, may close its output and stay.
            if is_late := not process.wait(END_GRACE_S):
                process.kill()
                process.wait()
            self.check_usable()
            self.has_succeeded = process.has_succeeded or (is_late and process.is_complete)
            process.kill()
            self.output.close()


Child = TypeVar("Child", bound=ChildSession)


class ChildRun(Closable, Generic[Child]):
    """A run of a child that starts when it is needed, and what its end means.

    Args:
        opened: what the caller gave.

    Attributes:
        run: the child; None before its start.
        warning: what is to be said of the file at its end; None if that is nothing.
        account: None. Its frames have no packets that can be read again.
    """

    account = None
    is_left_running = False

    def __init__(self, opened: Source) -> None:
        super().__init__()
        self._opened = opened
        self.run: Child | None = None
        self.warning: str | None = None
        self._count = 0  # frames, or the like, that were read
        self._is_judged = False
        self._failure: DecoderError | None = None
        self._judging = threading.Lock()
        self._starting = threading.RLock()  # a signal handler may close the decoder

    @property
    def session(self) -> Child:
        """The child, which the first use starts."""
        if self.run is None:
            self.check_owner()
            with self._starting:
                self.check_open()
                self.run = self.run or self._start()
                if self._is_closed:  # by a signal handler
                    self.run.close()
        return self.run

    def _start(self) -> Child:
        run = self._make_session()
        try:
            run.start()
            self._opened.start_feeding()
        except BaseException:
            run.discard()
            raise
        return run

    def _make_session(self) -> Child:
        """A child that has not started."""
        raise NotImplementedError

    def finish(self) -> None:
        """Finds out at the end whether all is well. Raises why it is not, the same at each call."""
        run = self.session
        with self._judging:
            if not self._is_judged:
                try:
                    self.warning = self._judged(run)
                except DecoderError as failure:
                    self._failure = failure
                self._is_judged = True
        if self._failure is not None:
            raise self._failure

    def _judged(self, run: Child) -> str | None:
        """What is to be said of the file. Raises why reading has failed."""
        raise NotImplementedError

    def lend(self) -> None:
        """Nothing: no file is open."""

    def resume(self, given: int, _: int | None) -> None:
        """Goes on, if no frame is lost."""
        if given != self._count:
            raise DecoderError(f"{self._opened.path}: frame {given} is lost, and can't be read again")

    def end(self, _: Track) -> EndOfFile:
        """Nothing: `finish` tells."""
        return EndOfFile()

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started."""
        return None if self.run is None else self.run.process.pid

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that the child started with; None if none was given, and before it has started."""
        return None if self.run is None else self.run.process.policy

    def stop(self) -> None:
        """Ends the child at once. May be called again."""
        self._is_closed = True
        with nullcontext() if self.is_inherited else self._starting:
            if self.run is not None:
                self.run.close()
        self._opened.stop_feeding()

    def close(self) -> None:
        """The same, and closes the pipe. No thread may read."""
        self.stop()

    def end_collected(self) -> None:
        """Ends the child when the garbage collector takes the decoder."""
        if self.run is not None:
            self.run.end_collected()


class FFmpegRun(ChildRun[DecodeSession]):
    """A run of FFmpeg.

    Args:
        program: FFmpeg.
        opened: what the caller gave.
        source, media, index: what FFmpeg reads, the facts about it, and the number of the stream.
        is_strict: damage is an error, although FFmpeg goes on.
        sandbox: what FFmpeg may do; None if it may do all.
    """

    def __init__(
        self,
        program: str,
        opened: Source,
        source: str,
        media: MediaInfo,
        index: int,
        settings: DecoderSettings,
        title: str,
        *,
        is_strict: bool,
        sandbox: Sandbox | None = None,
    ) -> None:
        super().__init__(opened)
        self._program, self._source, self._media = program, source, media
        self._settings, self._title = settings, title
        self._is_strict, self._sandbox = is_strict, sandbox
        self._other_codecs = other_codecs(media, index)  # whose damage doesn't matter
        #: Nothing more is wanted.
        self.has_enough = False

    def _make_session(self) -> DecodeSession:
        return DecodeSession(
            self._program,
            self._arguments(),
            title=self._title,
            settings=self._settings,
            new_output=self._new_output,
            is_strict=self._is_strict,
            sandbox=self._sandbox,
        )

    def _arguments(self) -> list[str]:
        """FFmpeg's arguments."""
        raise NotImplementedError

    def _new_output(self, output: FileIO) -> FrameOutput:
        """Begins to read FFmpeg's output."""
        raise NotImplementedError

    def close(self) -> None:
        super().close()
        if self.run is not None and hasattr(self.run, "output"):
            self.run.output.release()

    @property
    def is_left_running(self) -> bool:  # type: ignore[override]
        """Whether FFmpeg has ended, but what its wrapper has started keeps the pipe open."""
        return self.session.is_left_running

    def _judged(self, run: DecodeSession) -> str | None:
        if self.has_enough:
            run.process.kill()
        run.finish()
        run.has_succeeded = run.has_succeeded or self.has_enough
        end = self._end_of(run)
        if end.reason is not None:
            advice = _OVER_GAPS if any(gap in run.process.log.text for gap in _GAPS) else None
            raise run.failure(f"{self._opened.path}: {end.reason}", self._count, advice)
        return end.warning

    def _end_of(self, run: DecodeSession) -> EndOfFile:
        """What the end of FFmpeg means: why reading has failed, and what to say of the file."""
        process, after = run.process, f"after {plural(self._count, 'frame')}"
        text = process.log.text
        if process.returncode not in (0, None) and has_no_frames(text):
            return EndOfFile("the video stream has no frames that FFmpeg can decode")
        if f"width '{OTHER_SIZE}'" in text:
            return EndOfFile(
                f"the pictures change their size, which a palette doesn't support, {after}. Pass "
                f"{argument('pixel_format', DEFAULT_FORMAT)} to scale all frames to the size of the first one"
            )
        sandbox = self._sandbox if self._is_strict or not run.has_succeeded else None
        # Before damage: what FFmpeg says for want of memory looks like that.
        if sandbox is not None and (limit := sandbox.reached_limit(process.returncode, text)) is not None:
            return EndOfFile(f"decoding {limit}, {after}")
        if not run.has_succeeded:
            return EndOfFile(f"FFmpeg {process.ending}, {after}")
        if not self._is_strict:
            return EndOfFile()
        warning = None
        media, others = self._media, self._other_codecs
        if damage := reported_damage(process, self._source, media.container, others, self._sandbox):
            warning = self._explained(damage)
            if warning is None:
                return EndOfFile(f"the file is damaged or ends too early, {after}")
        if self._is_all_asked_for(run):
            return EndOfFile(warning=warning)
        end = EndOfFile(self._opened.failure) if self._opened.failure else self._end_of_file(run)
        if end.reason is not None:
            return EndOfFile(f"{end.reason}, {after}")
        return EndOfFile(warning=warning or end.warning)

    def _explained(self, damage: Counter[str]) -> str | None:
        """The warning to give for FFmpeg's messages of damage, if only the beginning is damaged; else None."""
        return None

    def _is_all_asked_for(self, run: DecodeSession) -> bool:
        """Whether the caller asked for no more than was delivered, whatever follows in the file."""
        return False

    def _end_of_file(self, run: DecodeSession) -> EndOfFile:
        """What shows at the end of the file, although FFmpeg has succeeded."""
        raise NotImplementedError


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
