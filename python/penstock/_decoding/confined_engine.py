"""Reads a file in sequence by libav in a confined process, whose frames a native thread reads."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from av.video.format import names as video_formats  # type: ignore[attr-defined]

from penstock._common.control_groups import whole_cpus
from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.confined_records import FRAME, RECORD
from penstock._decoding.engine import Made
from penstock._decoding.open_video import MOST_THREADS
from penstock._decoding.options import DecodeOptions
from penstock._decoding.plan import DecodePlan, plan_decode
from penstock._facts.confined_process import ConfinedProcess
from penstock._facts.exact_json import pack
from penstock._facts.info import MediaInfo, Track, VideoInfo
from penstock._facts.isolation import Isolation
from penstock._facts.probing import PATIENCE_S
from penstock._facts.seeking import Clock
from penstock._ffmpeg.program.process import Session, warn_unclosed
from penstock._native import Reader
from penstock.errors import ClosedError, DecoderError, StalledError, TruncatedStreamError

if TYPE_CHECKING:
    from penstock._facts.questions import Questions
    from penstock._facts.source import Source
    from penstock._native import Frame

T = TypeVar("T")

_CHILD = "penstock._decoding.confined_child"
LATE = "libav's process delivered nothing"
# Guessed: a process that has sent all frames says so within this time.
END_GRACE_S = 5.0
# Guessed: a process that was killed is gone within milliseconds, unless the kernel has it wait for a lost server.
_KILL_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What the process says after the last frame: how many there were, and what is strange about the file."""

    frames: int
    warning: str | None


class Confined(Session):
    """A process that confines itself, opens the file once, and sends frames.

    Nothing that it sends is believed: the size of a frame follows from the facts about the file and from the options.

    Args:
        isolation: the file.
        answers: how many lines it prints.
        request: what it is asked, besides the options.

    Attributes:
        isolation: as above.
    """

    kind = "decoder"
    error = DecoderError
    process: ConfinedProcess
    #: A line that has it begin to send.
    begin = b""

    def __init__(
        self, isolation: Isolation, options: DecodeOptions, answers: int, title: str = "", **request: object
    ) -> None:
        packed = pickle.dumps(replace(options, isolated=False)).hex()
        command = isolation.command(_CHILD, {"options": packed, **request}, isolation.sandbox.cpu_s)
        super().__init__(ConfinedProcess(*command, answers), title, options.settings.stall_timeout)
        self.isolation, self._options = isolation, options
        self._reader: Reader | None = None
        self._lock = threading.RLock()  # a signal handler may close the decoder
        self._is_cut = False
        self._begun_s: float | None = None

    @property
    def record_bytes(self) -> int:
        """Bytes of a record, without what comes before."""
        raise NotImplementedError

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
                            frame_bytes=RECORD.size + self.record_bytes,
                            queue_items=self._options.settings.queue_items,
                        )
                    except (OSError, ValueError):
                        self.check_usable()  # another thread has closed it
                        raise
                    self._tell(self.begin)
                    self.process.records.close()  # the reader has a duplicate
                if not self.is_open:  # a signal handler has closed it
                    self._reader.close()
        return self._reader

    def _tell(self, line: bytes) -> None:
        """Writes a line to it."""
        with suppress(BrokenPipeError):  # it has ended, which its answer shows
            os.write(self.process.stdin.fileno(), line)

    def _take(self, timeout_s: float) -> Frame | None:
        """A record; None behind the last one."""
        try:
            return self.reader.read(timeout=timeout_s)
        except TruncatedStreamError:
            self._is_cut = True
            return None
        except ClosedError:
            self.check_usable()
            return None  # another thread saw the end first and closed the reader

    def _strange(self, frames: int) -> DecoderError:
        """The error if it has sent something else than it should."""
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
        choose: chooses the stream by the facts.

    Attributes:
        plan: what is made of the frames, once it was started.
        questions: answers what else there is to know of the file.
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    # Set by `start`.
    plan: DecodePlan

    account = policy = None
    begin = b"null\n"

    def lend(self) -> None:
        """Nothing: libav decodes elsewhere."""

    def __init__(
        self,
        isolation: Isolation,
        options: DecodeOptions,
        choose: Callable[[MediaInfo], VideoInfo],
    ) -> None:
        super().__init__(isolation, options, 3)
        self.warning: str | None = None
        self._asked = 0  # questions that this process got
        self._choose = choose
        self._failure: DecoderError | None = None
        self._is_judged = False
        self._ended_s: float | None = None

    # --- beginning -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Waits for the facts, and makes the plan."""
        printed = self.process.answer(0, PATIENCE_S)
        path = self.isolation.path
        if printed is None:
            raise StalledError(f"{path} was not read within {PATIENCE_S:g} s", PATIENCE_S)
        media = self.isolation.named(self.isolation.answer(printed, MediaInfo, self.process))
        impossible = self.isolation.failure(f"{path} has impossible facts", self.process)
        video = self._choose(media)
        if not self._is_possible(media, video):
            raise impossible
        try:
            self.plan = plan_decode(None, Track(self.isolation.file.url, media, video), self._options)
        except (ArithmeticError, LookupError, AttributeError) as strange:
            raise impossible from strange
        if self.record_bytes > (most := self.process.sandbox.memory_bytes):
            reason = f"a frame takes more than {most >> 20} MiB of memory, the limit of isolated reading"
            raise self.isolation.failure(f"{path}: {reason}", self.process)
        self.questions: Questions = self.isolation.about(video.index, self._ask)
        self.title = self.plan.title

    def _ask(self, question: str, kind: type[T], *arguments: object) -> T:
        """The answer to one of `Questions`: the first one by this process, which sends frames afterwards."""
        with self._lock:
            if self.is_closed or self._asked or self._reader is not None:
                return self.isolation.ask(question, kind, None, self.plan.track.video.index, *arguments)
            self._asked = 1
            self._tell(json.dumps([question, pack(arguments)]).encode() + b"\n")
            printed = self.process.answer(1, None)
        self.check_usable()
        return self.isolation.answer(printed or b"", kind, self.process)

    @property
    def record_bytes(self) -> int:
        return self.plan.delivered.frame_bytes

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
        kind, index, pts = RECORD.unpack_from(record)
        if kind != FRAME or index != record.index or index == self._options.count:
            self._kill()
            self._end(self._strange(record.index))
            self._check_failure()
        return Made(index, pts, memoryview(record)[RECORD.size :])

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
            printed = self.process.answer(1 + self._asked, deadline.at_most(END_GRACE_S))
            if printed is None and deadline.is_over():
                raise deadline.late(LATE)
            self._kill()
            self.check_usable()
            try:
                sent = self.isolation.answer(printed or b"", Sent, self.process, self.delivered)
                self.warning = sent.warning
                is_whole = sent.frames == self.delivered and not self._is_cut
                self._end(None if is_whole else self._strange(self.delivered))
            except DecoderError as failure:
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


def isolation_of(opened: Source, options: DecodeOptions) -> Isolation:
    """The isolation of a decoder."""
    threads = options.settings.threads or min(whole_cpus(), MOST_THREADS)
    return Isolation.of(
        opened, threads=threads, isolated=options.isolated, follow_playlists=options.follow_playlists
    )


def read_confined(
    opened: Source, options: DecodeOptions, choose: Callable[[MediaInfo], VideoInfo]
) -> ConfinedEngine:
    """Reads a file by libav in a process that confines itself."""
    engine = ConfinedEngine(isolation_of(opened, options), options, choose)
    engine.start()
    return engine
