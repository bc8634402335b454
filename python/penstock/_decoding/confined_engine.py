"""Reads a file in sequence by libav in a confined process, whose frames a native thread reads."""

from __future__ import annotations

import pickle
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from av.video.format import names as video_formats  # type: ignore[attr-defined]

from penstock._common.control_groups import whole_cpus
from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.engine import Made
from penstock._decoding.open_video import MOST_THREADS
from penstock._decoding.plan import DecodeOptions, DecodePlan, plan_decode
from penstock._facts.confined_process import ConfinedProcess
from penstock._facts.info import MediaInfo, Track, VideoInfo
from penstock._facts.isolation import Isolation
from penstock._facts.probing import PATIENCE_S
from penstock._facts.seeking import Clock
from penstock._ffmpeg.program.process import Session, warn_unclosed
from penstock._native import Reader
from penstock.errors import ClosedError, DecoderError, TruncatedStreamError

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.questions import Questions
    from penstock._facts.source import Source
    from penstock._native import Frame, ThreadPolicy

T = TypeVar("T")

_CHILD = "penstock._decoding.confined_child"
LATE = "libav's process delivered nothing"
# Guessed: a process that has sent all frames says so within this time.
END_GRACE_S = 5.0
# Guessed: a process that was killed is gone within milliseconds, unless the kernel has it wait for a lost server.
_KILL_GRACE_S = 2.0
#: What comes before the bytes of each frame: a word that says that it is one, its number from 0, and its time. As long
#: as a line of a processor's cache, so that the samples lie at a multiple of that.
RECORD = struct.Struct("=8sqq40x")
FRAME, END = b"a frame\n", b"the end\n"


class Confined(Session):
    """A process that confines itself, opens the file once, and sends frames: it runs `FrameCalls`.

    Nothing that it sends is believed: the size of a frame follows from the facts about the file and from the options.

    Args:
        isolation: the file.
        passed: as for `ConfinedProcess`.

    Attributes:
        isolation: as above.
        frame_bytes: bytes of a frame.
    """

    kind = "decoder"
    error = DecoderError
    process: ConfinedProcess
    frame_bytes: int
    _queue_items: int | None = None
    _policy: ThreadPolicy | Priority | None = None
    _sending: int

    def __init__(
        self,
        isolation: Isolation,
        title: str,
        stall_timeout: float | None = None,
        *,
        passed: int | None = None,
    ) -> None:
        super().__init__(isolation.process(_CHILD, isolation.sandbox.cpu_s, passed), title, stall_timeout)
        self.isolation = isolation
        self._reader: Reader | None = None
        self._lock = threading.RLock()  # a signal handler may close the decoder
        self._is_cut = False
        self._begun_s: float | None = None

    @property
    def reader(self) -> Reader:
        """The native reader, which the first use starts."""
        if self._reader is None:
            with self._lock:
                self.check_usable()
                if self._reader is None:
                    self._begun_s = time.monotonic()
                    try:
                        self._reader = Reader(
                            self.process.records,
                            frame_bytes=RECORD.size + self.frame_bytes,
                            queue_items=self._queue_items,
                            policy=self._policy,
                        )
                    except (OSError, ValueError):
                        self.check_usable()  # another thread has closed it
                        raise
                    self._begin()
                    self.process.records.close()  # the reader has a duplicate
                if not self.is_open:  # a signal handler has closed it
                    self._reader.close()
        return self._reader

    def _begin(self) -> None:
        """Has the process begin to send: `_sending` is the number of that call."""

    def _take(self, timeout_s: float | None) -> Frame | None:
        """A record; None behind the last one."""
        try:
            return self.reader.read(timeout=timeout_s)
        except TruncatedStreamError:
            self._is_cut = True
            return None
        except ClosedError:
            self.check_usable()
            return None  # another thread saw the end first and closed the reader

    def _frame(self, record: Frame, number: int) -> tuple[int, int, memoryview]:
        """The number, the time and the bytes of the frame of that number, which a record should be."""
        kind, index, pts = RECORD.unpack_from(record)
        if kind != FRAME or index != number:
            raise self._strange(record.index)
        return index, pts, memoryview(record)[RECORD.size :]

    def _finish(self, deadline: Deadline) -> str | None:
        """Ends the process behind its last record. Returns what it says of the file, after the number of frames."""
        printed = self.process.answer(self._sending, deadline.at_most(END_GRACE_S))
        if printed is None and deadline.is_over():
            raise deadline.late(LATE)
        self._kill()
        kind = cast("type[tuple[int, str | None]]", tuple[int, str | None])
        frames, warning = self.isolation.answer(printed or b"", kind, self.process, self.delivered)
        if self._is_cut or frames != self.delivered:
            raise self._strange(self.delivered)
        return warning

    def _strange(self, frames: int) -> DecoderError:
        """The error if it has sent something else than it should, which ends it."""
        self._kill()
        reason = f"{self.isolation.path}: libav's process sent something else than frames"
        return self.isolation.failure(f"{reason}, after {plural(frames, 'frame')}", self.process, frames)

    @property
    def delivered(self) -> int:
        """Frames that callers received."""
        return 0 if self._reader is None else self._reader.stats.frames_delivered

    def progress(self) -> str:
        return f"delivered {plural(self.delivered, 'frame')}"

    def check_open(self) -> None:
        """Checks that it was not closed."""
        if not self.is_open:
            raise ClosedError("the decoder is closed")

    def check_usable(self) -> None:
        """Checks that it was not closed, and that this process started it."""
        self.check_owner()
        self.check_open()

    def disconnect(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def close(self) -> None:
        """Ends the process and the reader at once. May be called again, also by a signal handler."""
        self._abandon()
        if not self.is_inherited:
            self.process.wait(_KILL_GRACE_S)

    def end_at_exit(self) -> None:
        self.close()

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait(_KILL_GRACE_S)

    def _abandon(self) -> None:
        """Kills the process without waiting: a finalizer may run on any thread."""
        self.mark_closed()
        if not self.is_inherited:
            self.process.kill()
        self.disconnect()
        self.process.close_pipes()


class ConfinedEngine(Confined):
    """Decodes frames in sequence in such a process.

    Args:
        stream: as for `Decoder`.
        choose: chooses the stream by the facts.

    Attributes:
        plan: what is made of the frames, once it was started.
        questions: answers what else there is to know of the file.
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    # Set by `start`.
    plan: DecodePlan

    account = policy = None

    def lend(self) -> None:
        """Nothing: libav decodes elsewhere."""

    def __init__(
        self,
        isolation: Isolation,
        options: DecodeOptions,
        stream: int | None,
        choose: Callable[[MediaInfo], VideoInfo],
    ) -> None:
        super().__init__(isolation, "", options.settings.stall_timeout)
        self.warning: str | None = None
        self._options, self._stream, self._choose = options, stream, choose
        self._queue_items = options.settings.queue_items
        self._failure: DecoderError | None = None
        self._is_judged = False
        self._ended_s: float | None = None

    # --- beginning -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Waits for the facts, and makes the plan."""
        call = self.process.call("opened", packed(self._options), self._stream)
        path, printed = self.isolation.path, self.process.answer(call, PATIENCE_S)
        answer = self.isolation.answer(printed, MediaInfo, self.process, timeout_s=PATIENCE_S)
        media = self.isolation.named(answer)
        impossible = self.isolation.failure(f"{path} has impossible facts", self.process)
        video = self._choose(media)
        if not self._is_possible(media, video):
            raise impossible
        try:
            self.plan = plan_decode(None, Track(self.isolation.file.url, media, video), self._options)
        except (ArithmeticError, LookupError, AttributeError) as strange:
            raise impossible from strange
        self.frame_bytes = self.plan.delivered.frame_bytes
        if self.frame_bytes > (most := self.process.sandbox.memory_bytes):
            reason = f"a frame takes more than {most >> 20} MiB of memory, the limit of isolated reading"
            raise self.isolation.failure(f"{path}: {reason}", self.process)
        self.questions: Questions = self.isolation.about(video.index, self._ask)
        self.title = self.plan.title

    def _ask(self, question: str, kind: type[T], *arguments: object) -> T:
        """The answer to one of `Questions`, by this process as long as it sends no frames."""
        about = self.plan.track.video.index, question, *arguments
        with self._lock:
            if self.is_closed or self._reader is not None:
                return self.isolation.ask("about", kind, None, *about)
            printed = self.process.answer(self.process.call("about", *about), None)
        self.check_usable()
        return self.isolation.answer(printed, kind, self.process)

    def _begin(self) -> None:
        self._sending = self.process.call("frames")

    def _is_possible(self, media: MediaInfo, video: VideoInfo) -> bool:
        """Whether a file can have these facts, from which the size of frames follows, and their times."""
        sizes = (video.width, video.height, video.stored_width, video.stored_height)
        try:
            Clock(media, video)
        except (ArithmeticError, ValueError):
            return False
        return (
            min(sizes) > 0
            and video.width * video.height <= self.process.sandbox.memory_bytes
            and video.time_base > 0
            and video.pixel_format in (None, *video_formats)
        )

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""
        deadline = Deadline(timeout)
        self.check_usable()
        if not self._is_judged:
            with self.logged_stalls():
                if (frame := self.wait_for(self._take, deadline, LATE)) is not None:
                    return self._made(frame)
                self._judge(deadline)
        self._check_failure()
        return None

    async def read_async(self) -> Made | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""
        self.check_usable()
        if not self._is_judged:
            with self.logged_stalls():
                frame = await self.wait_for_async(self._take, lambda: self.reader._ready())
            if frame is not None:
                return self._made(frame)
            import asyncio  # slow to import; a program that uses asyncio has done so

            await asyncio.to_thread(self._judge, Deadline(None))
        self._check_failure()
        return None

    def read_ahead(self) -> None:
        """Lets frames be read ahead before the first read."""
        self.reader  # noqa: B018

    def _made(self, record: Frame) -> Made:
        """The frame that a record is."""
        try:
            frame = self._frame(record, record.index)
            if record.index == self._options.count:
                raise self._strange(record.index)
        except DecoderError as strange:
            self._end(strange)
            self._check_failure()
            raise
        return Made(*frame)

    def _check_failure(self) -> None:
        """Raises why there are no more frames, if that is no end."""
        if self._failure is not None:
            raise self._failure

    def _judge(self, deadline: Deadline) -> None:
        """Finds out what the end of the frames means, unless `close` has caused it in another thread."""
        with self._lock:
            self.check_usable()
            if self._is_judged:
                return
            try:
                self.warning = self._finish(deadline)
                self._end(None)
            except DecoderError as failure:
                self.check_usable()
                self._end(failure)

    def _end(self, failure: DecoderError | None) -> None:
        """Ends it: with that failure, which every further call raises, or without."""
        self._failure = self._failure or failure
        self._is_judged = True
        self._ended_s = time.monotonic()
        self.reader.close()

    # --- what a caller may ask -----------------------------------------------------------------------------------

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller, with what the kernel cannot confine of the sandbox."""
        reason = "isolated=True: libav reads in a sandboxed process"
        return DecoderEngine("libav", reason, self.isolation.unconfined)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        if self._reader is None or self._begun_s is None:
            return DecoderStats()
        reader, elapsed_s = self._reader.stats, (self._ended_s or time.monotonic()) - self._begun_s
        return DecoderStats(
            frames_read=reader.frames_read,
            frames_delivered=reader.frames_delivered,
            bytes_read=reader.bytes_read - reader.frames_read * RECORD.size,
            elapsed_s=elapsed_s,
            fps=reader.frames_read / elapsed_s,
            caller_wait_s=reader.caller_wait_s,
            input_wait_s=reader.input_wait_s,
            output_wait_s=reader.output_wait_s,
            reader=reader,
        )

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return not self.is_open or self.is_inherited

    def end_collected(self) -> None:
        """Ends the process when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if self.is_closed:
            return
        self._abandon()
        if self._reader is not None and not self._is_judged:
            warn_unclosed(self)


def packed(options: DecodeOptions) -> str:
    """The options for the process that decodes."""
    return pickle.dumps(replace(options, isolated=False)).hex()


def isolation_of(opened: Source, options: DecodeOptions) -> Isolation:
    """The isolation of a decoder."""
    threads = options.settings.threads or min(whole_cpus(), MOST_THREADS)
    return Isolation.of(
        opened, threads=threads, isolated=options.isolated, follow_playlists=options.follow_playlists
    )


def read_confined(
    opened: Source, options: DecodeOptions, stream: int | None, choose: Callable[[MediaInfo], VideoInfo]
) -> ConfinedEngine:
    """Reads a file by libav in a process that confines itself."""
    engine = ConfinedEngine(isolation_of(opened, options), options, stream, choose)
    engine.start()
    return engine
