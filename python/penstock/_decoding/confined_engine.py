"""Reads a file in sequence by libav in a confined process, whose frames a native thread reads."""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from av.video.format import names as video_formats  # type: ignore[attr-defined]

from penstock._common.control_groups import whole_cpus
from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.from_child import FramesFromChild
from penstock._decoding.open_video import MOST_THREADS
from penstock._decoding.options import AudioDecodeOptions, DecodeOptions
from penstock._decoding.pixels import NoPixels
from penstock._decoding.plan import DecodePlan, plan_decode
from penstock._decoding.sequence import SequenceFrame
from penstock._decoding.session import KILL_GRACE_S, ChildRun, ChildSession
from penstock._facts.confined_process import ConfinedProcess
from penstock._facts.info import MediaInfo, Track
from penstock._facts.isolation import Isolation
from penstock._facts.probing import PATIENCE_S
from penstock._facts.seeking import Clock
from penstock._native import Reader
from penstock.errors import ClosedError, DecoderError, StalledError, TruncatedStreamError

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._facts.source import Source
    from penstock._native import Frame, ThreadPolicy

T = TypeVar("T")

#: What to say if it sends nothing.
LATE = "libav's process delivered nothing"
_CHILD = "penstock._decoding.confined_child"
# Guessed: a process that has sent all frames says so within this time.
END_GRACE_S = 5.0
#: What comes before the bytes of each frame: a word that says that it is one, its number from 0, and its time. As long
#: as a line of a processor's cache, so that the samples lie at a multiple of that.
RECORD = struct.Struct("=8sqq40x")
FRAME, END = b"a frame\n", b"the end\n"


class Confined(ChildSession):
    """A process that confines itself, opens the file once, and sends frames: it runs `FrameCalls`.

    Nothing that it sends is believed: the size of a frame follows from the facts about the file and from the options.

    Args:
        isolation: the file.
        passed: as for `ConfinedProcess`.

    Attributes:
        isolation: as above.
        frame_bytes: bytes of a frame.
    """

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

    @property
    def reader(self) -> Reader:
        """The native reader, which the first use starts."""
        if self._reader is None:
            with self._lock:
                self.check_usable()
                if self._reader is None:
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
            raise

    def answer(self, call: int, kind: type[T]) -> T:
        """The answer to a call, which is of that type."""
        printed = self.wait_for(self._answered, Deadline(None), LATE, call)
        return self.isolation.answer(printed, kind, self.process)

    def _answered(self, call: int, timeout_s: float) -> bytes:
        if (printed := self.process.answer(call, timeout_s)) is None:
            raise StalledError(LATE, timeout_s)
        return printed

    def next_frame(self) -> tuple[int, int, Any] | None:
        """The number, the time and the bytes of the next frame; None at the end. Waits as long as it takes."""
        if (record := self._take(None)) is None:
            return None
        return self._frame(record, record.index)

    def _frame(self, record: Frame, number: int) -> tuple[int, int, Any]:
        """The same of the frame of that number, which a record should be."""
        kind, index, pts = RECORD.unpack_from(record)
        if kind != FRAME or index != number:
            raise self._strange(record.index)
        return index, pts, memoryview(record)[RECORD.size :]

    def finish(self) -> str | None:
        """Ends the process behind its last record. Returns what it says of the file, after the number of frames."""
        printed = self.process.answer(self._sending, END_GRACE_S)
        self.end()
        self.check_usable()
        kind = cast("type[tuple[int, str | None]]", tuple[int, str | None])
        frames, warning = self.isolation.answer(printed or b"", kind, self.process, self.delivered)
        if self._is_cut or frames != self.delivered:
            raise self._strange(self.delivered)
        return warning

    def _strange(self, frames: int) -> DecoderError:
        """The error if it has sent something else than it should, which ends it."""
        self.end()
        after = f", after {plural(frames, 'frame')}" if frames else ""
        reason = f"{self.isolation.path}: libav's process sent something else than was asked for{after}"
        return self.isolation.failure(reason, self.process, frames)

    @property
    def is_done(self) -> bool:
        return self._reader is None or self.process.has_ended

    @property
    def delivered(self) -> int:
        return 0 if self._reader is None else self._reader.stats.frames_delivered

    def disconnect(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait(KILL_GRACE_S)


class SequenceSession(Confined):
    """Such a process that sends all frames.

    Args:
        options: of the decoder.
        choose: chooses the stream by the facts.

    Attributes:
        plan: what is made of the frames, once it was started.
    """

    # Set by `start`.
    plan: DecodePlan

    def __init__(
        self,
        isolation: Isolation,
        options: DecodeOptions,
        choose: Callable[[MediaInfo], MediaInfo.Video],
    ) -> None:
        super().__init__(isolation, "", options.settings.stall_timeout)
        self._options, self._choose = options, choose
        self._queue_items = 1  # a thread reads others ahead

    def connect(self) -> None:
        """Waits for the facts, and makes the plan."""
        call = self.process.call("opened", packed(self._options))
        path, printed = self.isolation.path, self.process.answer(call, PATIENCE_S)
        answer = self.isolation.answer(printed, MediaInfo, self.process, timeout_s=PATIENCE_S)
        media = self.isolation.named(answer)
        impossible = self.isolation.failure(f"{path} has impossible facts", self.process)
        video = self._choose(media)
        if not self._is_possible(media, video):
            raise impossible
        try:
            self.plan = plan_decode(None, Track(self.isolation.file.url, media, video), self._options)
        # Facts that no file has, such as a time base of 0, may fail anywhere in a plan.
        except (ArithmeticError, LookupError, AttributeError) as strange:
            raise impossible from strange
        self.frame_bytes, self.title = self.plan.delivered.frame_bytes, self.plan.title
        if self.frame_bytes > (most := self.process.sandbox.memory_bytes):
            reason = f"a frame takes more than {most >> 20} MiB of memory, the limit of isolated reading"
            raise self.isolation.failure(f"{path}: {reason}", self.process)

    def ask(self, question: str, kind: type[T], *arguments: object) -> T:
        """The answer to one of `FileChecks`, by this process as long as it sends no frames."""
        about = self.plan.track.video.index, question, *arguments
        with self._lock:
            if self.is_closed or self._reader is not None:
                return self.isolation.ask("about", kind, None, *about)
            printed = self.process.answer(self.process.call("about", *about), None)
        self.check_usable()
        return self.isolation.answer(printed, kind, self.process)

    def _begin(self) -> None:
        self._sending = self.process.call("frames")

    def _is_possible(self, media: MediaInfo, video: MediaInfo.Video) -> bool:
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


class SequenceRun(ChildRun[SequenceSession]):
    """The frames of such a process, as a `Sequence` gives those of a file."""

    how = "in a process of its own"

    def __init__(self, opened: Source, session: SequenceSession) -> None:
        super().__init__(opened)
        self._made = session
        self.session  # noqa: B018 - starts it

    def _make_session(self) -> SequenceSession:
        return self._made

    def advance(self) -> SequenceFrame:
        """The next frame. Waits as long as it takes."""
        if (frame := self.session.next_frame()) is None:
            raise StopIteration
        self._count += 1
        return SequenceFrame(*frame)

    def _judged(self, run: SequenceSession) -> str | None:
        return run.finish()


class ConfinedEngine(FramesFromChild):
    """Decodes frames in sequence in such a process."""

    def __init__(self, opened: Source, session: SequenceSession) -> None:
        run, isolation = SequenceRun(opened, session), session.isolation
        checks = isolation.about(session.plan.track.video.index, session.ask)
        reason = "isolated=True: libav reads in a sandboxed process"
        facts = DecoderEngine("libav", reason, isolation.unconfined)
        super().__init__(session.plan, run, checks, facts, NoPixels(session.frame_bytes))
        self._session = session

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        reader = self._session._reader
        return replace(super().stats, reader=None if reader is None else reader.stats)


def packed(options: DecodeOptions) -> str:
    """The options for the process that decodes."""
    return pickle.dumps(replace(options, isolated=False)).hex()


def isolation_of(opened: Source, options: DecodeOptions | AudioDecodeOptions) -> Isolation:
    """The isolation of a decoder."""
    threads = options.settings.threads or min(whole_cpus(), MOST_THREADS)
    return Isolation.of(
        opened, threads=threads, isolated=options.isolated, follow_playlists=options.follow_playlists
    )


def read_confined(
    opened: Source, options: DecodeOptions, choose: Callable[[MediaInfo], MediaInfo.Video]
) -> ConfinedEngine:
    """Reads a file by libav in a process that confines itself."""
    return ConfinedEngine(opened, SequenceSession(isolation_of(opened, options), options, choose))
