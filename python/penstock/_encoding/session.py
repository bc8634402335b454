"""A running FFmpeg that encodes, and the native writer that feeds it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from penstock._common import exits
from penstock._common.deadline import Deadline
from penstock._common.log import logger
from penstock._common.messages import in_short, plural, warn
from penstock._common.progress import Reporter
from penstock._common.reports import EncodeReport, EncoderStats
from penstock._common.tensors import OnDevice
from penstock._common.types import Data
from penstock._encoding import nut
from penstock._encoding.advice import explain
from penstock._encoding.feed import Feed
from penstock._encoding.frame_form import PLAIN, FrameForm
from penstock._encoding.output import (
    OutputFile,
    ReplacedError,
    Sink,
    disable_blending,
    lost_segments,
    ordinary_path,
)
from penstock._encoding.plan import EncodePlan
from penstock._encoding.sound import AudioTrack, Sound, checked_samples
from penstock._encoding.timing import Origin
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._ffmpeg.command.pixel_formats import has_alpha
from penstock._ffmpeg.program.process import (
    FFmpegProcess,
    Session,
    warn_unclosed,
)
from penstock._native import Ticket, Writer, _Slot, _SlotPool
from penstock.errors import (
    BrokenStreamError,
    ClosedError,
    EncoderError,
    FFmpegError,
    PenstockError,
    StalledError,
)

if TYPE_CHECKING:
    import asyncio

# Where no caller waits for FFmpeg (at exit, after an exception), FFmpeg is killed after so long without a sign of life.
# The same as the native writers give a reader at exit.
STUCK_S = 5.0
# Frames and bytes that may wait for FFmpeg, but at least four frames of any size. A longer queue is slower: its memory
# is cold when FFmpeg reads it, and its pages are new at the start. Measured, 2-core x86-64 VM, x264 ultrafast,
# 2026-11-22: at 2160p `write` has 0.96, 0.97 and 0.99 of `submit`'s frame rate with 16, 8 and 4 frames; up to 1080p
# they are equal.
QUEUE_FRAMES = 16
QUEUE_BYTES = 24 << 20
LEAST_QUEUE_FRAMES = 4
# Leased frames that are kept for reuse: one is drawn into while another is read, and one to spare.
KEPT_SLOTS = 3
# Of which sizes: the pixel format's, and those of frames of floats, which a caller may mix. Guessed.
_KEPT_SIZES = 3

# Containers of which the result is not read back: libav cannot recognize the file, the file has no video, or libav
# reads at most one picture of it.
_NOT_VERIFIED = (
    *("avif", "crc", "data", "framecrc", "framehash", "framemd5", "hash", "md5", "null", "rawvideo"),
    *("streamhash", "webp"),
)

# The share of clipped samples from which on a report warns. Chosen: models overshoot a little in a few places, and a
# wrong range clips many times that.
_NOTABLE_SHARE = 0.01

#: Queues a frame or samples: ``push(timeout=seconds)``.
Push = Callable[..., Ticket]

FULL = "FFmpeg did not read enough from the queue"
NOT_DONE = "FFmpeg has all frames, but was not done"
_EMPTY = "there is no video: no frame was written"


class EncodeSession(Session):
    """A running FFmpeg that encodes the frames of `plan`.

    Attributes:
        writer: the native writer that feeds FFmpeg.
        report: the result of `close`; None before.
    """

    kind = "encoder"
    error = EncoderError
    writer: Writer  # set by `start`

    def __init__(self, plan: EncodePlan, *, title: str, reporter: Reporter | None, origin: Origin) -> None:
        output = plan.output
        path = self._path = ordinary_path(output)
        self._file = file = None if path is None or output.is_several_files else OutputFile(path)
        self._url = f"file:{file.written}" if file is not None and file.is_beside else output.argument
        if output.is_image_sequence:
            output.path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = None if output.sink is None else Sink(output.sink)
        stdout = None if endpoints.uses_stdout(self._url) else subprocess.DEVNULL
        process = FFmpegProcess(
            plan.program,
            [*plan.arguments[:-1], self._url],
            plan.request.settings.ffmpeg_policy,
            is_fed=True,
            is_strict=True,
            stdout=stdout if self._sink is None else subprocess.PIPE,
            with_warnings=True,
            fifo=output.path if endpoints.is_path(output.target) and output.path.is_fifo() else None,
            error=EncoderError,
        )
        super().__init__(process, title, plan.request.settings.stall_timeout)
        self.plan, self.origin = plan, origin
        self.report: EncodeReport | None = None
        self.is_aborted = False
        self._begun_s = time.time()
        self.new_file = None if file is None or file.is_beside else path
        self._input = plan.audio_input
        self._reporter = reporter
        self._fed_bytes = plan.ffmpeg_frames.frame_bytes
        # Frames of a device that are no slots yet may have another size: floats, for example.
        self._pool_of = lru_cache(_KEPT_SIZES)(partial(_SlotPool, keep_slots=KEPT_SLOTS))
        self._slots = self._pool_of(plan.frames.frame_bytes)
        self._fed_slots = _SlotPool(self._fed_bytes, KEPT_SLOTS)
        # Reentrant, because a signal handler may write.
        self._clipped_samples, self._counting = 0, threading.RLock()
        self._queue_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )
        self._closing_at_s: float | None = None
        self._is_cut_short = False  # it is finished although nobody has called `close`
        self._is_verified = True
        # The file that was read back, and what was found.
        self._verified: tuple[endpoints.Identity, list[str]] | None = None
        self._close_lock = threading.RLock()  # a signal handler may close in a `close`
        self._failure: str | None = None  # why the file is of no use, although FFmpeg has succeeded
        self._feed: Feed | None = None
        if plan.stream is not None:
            self._feed = Feed(plan.stream, plan, self._fed_bytes)
            self._fed_bytes += nut.PREFIX_BYTES

    def connect(self) -> None:
        settings = self.plan.request.settings
        knobs, queue_bytes = settings._knobs, settings._knobs.queue_bytes
        if queue_bytes is None:
            queue_bytes = max(QUEUE_BYTES, LEAST_QUEUE_FRAMES * self._fed_bytes)
        queue_frames = QUEUE_FRAMES if settings.queue_items is None else settings.queue_items
        self.writer = Writer._converting(
            self.process.stdin,
            mode=knobs.mode,
            queue_bytes=queue_bytes,
            # A piece of sound may come with each frame.
            queue_items=queue_frames * (1 + bool(self.plan.sounds)),
            capacity_bytes=knobs.capacity_bytes,
            policy=settings.policy,
            reader_copies=True,  # FFmpeg's pipe protocol calls read(2), which allows zero-copy
            # A frame with a time is converted when it is taken.
            conversion=self.plan.conversion if self._feed is None else None,
        )
        if self._sink is not None:
            self.process.our_ends.remove(self.process.stdout)  # it stays open until FFmpeg has written all
            self._sink.start(self.process.stdout)
        if self._feed is not None:
            self._feed.start(self.writer)
        if self._reporter is not None:
            self._reporter.start(_stats_of(weakref.ref(self)))

    def disconnect(self) -> None:
        if hasattr(self, "writer"):
            self.writer.abort()
        if self._feed is not None:
            self._feed.end()
        self._leave_file()

    @property
    def warning(self) -> str | None:
        """Why an old file is overwritten in place; None if there is no old file, or it can be replaced."""
        return None if self._file is None else self._file.warning

    @property
    def stats(self) -> EncoderStats:
        writer, process = self.writer.stats, self.process
        elapsed_s, taking_s = process.elapsed_s, self._fed_slots.filling_s + self._slots.filling_s
        fed_s = elapsed_s if self._closing_at_s is None else self._closing_at_s
        fps = process.frames / elapsed_s
        # A closed writer stopped counting what FFmpeg reads. With a report, FFmpeg has read everything.
        read_bytes = writer.bytes_delivered if self.report is None else writer.bytes_accepted
        return EncoderStats(
            frames_submitted=self.submitted,
            frames_written=self._frames_until(read_bytes),
            frames_encoded=process.frames,
            bytes_written=read_bytes,
            output_bytes=process.output_bytes,
            elapsed_s=elapsed_s,
            fps=fps,
            speed=self._video_s / elapsed_s,
            caller_wait_s=writer.caller_wait_s + (0.0 if self._feed is None else self._feed.waited_s),
            output_wait_s=writer.output_wait_s,
            input_wait_s=max(0.0, fed_s - writer.busy_s - taking_s),
            converting_s=writer.converting_s + taking_s,
            writer=writer,
            clipped_samples=self._clipped_samples,
        )

    @property
    def submitted(self) -> int:
        """Frames that were accepted."""
        return self.writer.stats.items_accepted if self._feed is None else self._feed.state.frames

    @property
    def _samples(self) -> int:
        """Samples of each channel that the program made and that were accepted."""
        return 0 if self._feed is None else self._feed.state.samples

    def _frames_until(self, nbytes: int) -> int:
        """The number of whole frames in the first `nbytes` bytes that FFmpeg gets."""
        if self._feed is not None:
            return self._feed.frames_until(nbytes)
        return nbytes // self._fed_bytes

    @property
    def _video_s(self) -> float:
        """Length of what is encoded. With times it is estimated from the last one."""
        if self.plan.rate is not None:
            return float(self.process.frames / self.plan.rate)
        assert self._feed is not None
        return float(self._feed.video_s) * self.process.frames / max(1, self.submitted)

    def check_open(self) -> None:
        """Checks that frames are still accepted."""
        self._check_not_aborted()
        if self.report is not None:
            raise ClosedError("the encoder is closed")
        if not self.is_open:
            raise self._error()

    def lease(self) -> _Slot:
        """Memory for one frame."""
        self.check_open()
        return self._slots.take()

    def tick_of(
        self, time_s: float | Fraction | None, frame: object = None, number: int | None = None
    ) -> int | None:
        """The time of a frame as a multiple of `TICK_S`; None where the rate is constant, which is checked.

        Without `time_s`, a decoded frame has its own.

        Args:
            number: the frame's number in the video; None for the next one.
        """
        is_given = time_s is not None
        time_s = time_s if is_given else getattr(frame, "time_s", None)
        if self.plan.rate is None:
            if time_s is None:
                raise self.origin.missing_time()
            assert self._feed is not None
            self._feed.check_later(tick := nut.ticks(time_s))
            return tick
        if time_s is None:
            self.origin.is_untimed = True
        if time_s is None or (self.origin.is_asked and not is_given):
            return None
        shown_s = float(nut.ticks(time_s) * TICK_S) if is_given else float(time_s)
        number = self.submitted if number is None else number
        self.origin.check(self.plan, number, shown_s, is_given=is_given)
        return None

    def push_of_copy(
        self,
        buffer: Data | OnDevice,
        tick: int | None = None,
        form: FrameForm = PLAIN,
        number: int = 0,
    ) -> Push:
        """Copies a frame. Returns a function that queues the copy, for `queue` or `queue_async`.

        If the worker is idle, it gets a plain copy and converts it: a caller in step with real time waits only for the
        copy. If frames are waiting, the caller converts while it copies: this saves the second copy, a tenth of all CPU
        time with x264 ultrafast (2-core x86-64 VM, 2026-11-22), while FFmpeg has no CPU time to spare.
        """
        if isinstance(buffer, OnDevice):
            slot = self._pool_of(buffer.contents.nbytes).take()
            buffer = buffer.copy_to(slot)
            if form == PLAIN:
                return self.push_of_lease(slot, tick)
        conversion = self.plan.conversion
        if self._feed is None:
            if conversion is not None and self.writer._oldest() is None:
                return self.push_of_slot(form.fill(self._slots, buffer, number))
            return self.push_of_fed(form.fill(self._fed_slots, buffer, number, conversion))
        # At a constant rate the number of the frame is known when it is queued.
        prefix = bytes(nut.PREFIX_BYTES) if tick is None else self.prefix_of(tick)
        return self.push_of_fed(form.fill(self._fed_slots, buffer, number, conversion, prefix), tick)

    def push_of_lease(self, slot: _Slot, tick: int | None = None) -> Push:
        """Returns a function that queues a leased slot that nobody else holds, uncopied if frames have no time."""
        return self.push_of_borrowed(slot) if self._feed is None else self.push_of_copy(slot, tick)

    def prefix_of(self, tick: int | None) -> bytes:
        """The packet header of a frame at that time; with None, of the next frame at a constant rate."""
        assert self._feed is not None
        return self._feed.prefix(self._feed.next_s(tick))

    def push_of_fed(self, slot: _Slot, tick: int | None = None) -> Push:
        """Returns a function that queues the slot's converted bytes after their timestamp."""
        if self._feed is None:
            return self._counted(slot, partial(self.writer._submit_converted, slot))
        return self._counted(slot, partial(self._feed.queue_frame, slot, tick))

    def push_of_slot(self, slot: _Slot) -> Push:
        """Returns a function that queues the frame in `slot`, which the worker converts."""
        return self._counted(slot, self.push_of_borrowed(slot))

    def _counted(self, slot: _Slot, push: Push) -> Push:
        """`push`, which counts what was clipped once the frame is queued."""
        if not slot.clipped_samples:
            return push

        def counted(timeout: float) -> Ticket:
            ticket = push(timeout=timeout)
            with self._counting:
                self._clipped_samples += slot.clipped_samples
            return ticket

        return counted

    def push_of_borrowed(self, memory: Data) -> Push:
        """Returns a function that queues the frame in `memory` without a copy."""
        return partial(self.writer.submit, memory)

    def push_of_samples(self, samples: object) -> Push:
        """Copies samples. Returns a function that queues the copy, for `queue` or `queue_async`."""
        self.check_open()
        if self._input is None:
            raise ValueError("the encoder has no AudioTrack: give it audio=AudioTrack(sample_rate, channels)")
        assert self._feed is not None  # where there is sound
        return partial(self._feed.queue_samples, checked_samples(samples, self._input))

    def queue(self, push: Push, timeout: float | None) -> Ticket:
        """Queues a frame; waits while the queue is full."""
        deadline = Deadline(timeout)
        try:
            with self.logged_stalls():
                return self.wait_for(lambda slice_s: push(timeout=slice_s), deadline, FULL)
        except BrokenStreamError as broken:
            raise self._failed() from broken

    async def queue_async(self, take: Callable[[], Push], timeout: float | None) -> Ticket:
        """`queue` for asyncio, in the order of the calls. `take` returns the function that queues, in its turn."""
        deadline = Deadline(timeout)
        try:
            with self.logged_stalls():
                return await self._queue_in_turn(take, deadline)
        except BrokenStreamError as broken:
            import asyncio

            raise await asyncio.to_thread(self._failed) from broken

    async def _queue_in_turn(self, take: Callable[[], Push], deadline: Deadline) -> Ticket:
        import asyncio  # slow to import; a program that uses asyncio has done so

        turn = self._queue_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        try:
            async with asyncio.timeout(deadline.left_s()), turn:
                push = take()
                return await self.wait_for_async(lambda slice_s: push(timeout=slice_s), self.writer._oldest)
        except StalledError:  # which is a TimeoutError
            raise
        except TimeoutError:
            raise deadline.late(self.process.waits_for() or FULL, self.writer.stats.bytes_pending) from None

    def close(self, timeout: float | None) -> EncodeReport:
        """Delivers what is queued and waits for FFmpeg's end. Can be called again after a `StalledError`."""
        with self.logged_stalls():
            return self._close(timeout)

    def _close(self, timeout: float | None) -> EncodeReport:
        deadline = Deadline(timeout)
        if self.report is not None:
            return self.report
        self._check_not_aborted()
        self.note_all_submitted()
        self._deliver(deadline)
        self.process.close_pipes()
        unread = self._import_libav()
        self.wait_for(self._await_file, deadline, NOT_DONE)
        if not self.process.has_ended:
            self._differences()  # while FFmpeg exits
        self.wait_for(self._await_end, deadline, NOT_DONE)
        with self._close_lock:
            return self._end(unread)

    def note_all_submitted(self) -> None:
        """Notes that the caller has no more frames: from now on, an exception makes the video no shorter."""
        if self._closing_at_s is None:
            self._closing_at_s = self.process.elapsed_s

    def _end(self, unread: list[str]) -> EncodeReport:
        """Checks the file once FFmpeg has exited, and moves it into place. Raises what is wrong."""
        if not self.process.has_succeeded or self.process.frames != self.submitted or self._lost():
            self._mark_ended()
            raise self._error()
        differences = self._differences()
        if self.report is not None:  # of another thread, or of a signal handler
            return self.report
        self._put_in_place()
        self._mark_ended()
        missing = [*unread, *differences, *self._failed_outputs(ignored=True), *self._unused_input()]
        missing += self.origin.warnings(self.plan, self.submitted)
        missing += self._clipping()
        if self._feed is not None:
            missing += self._feed.warnings
        self.report = self._make_report(missing)
        for what in missing:
            warn(what)
        return self.report

    def abort(self) -> None:
        """Kills FFmpeg, drops what is queued, and removes what FFmpeg has written. Does nothing after the end."""
        self._kill(is_kept=False)

    def cut_off(self, error: BaseException | None) -> None:
        """Kills FFmpeg and drops what is queued, while `error` propagates. Does nothing after the end.

        What FFmpeg has written is left, and a note of `error` says where.
        """
        self._kill(is_kept=True)
        if error is not None and self.is_aborted and (left := self._left_part):
            error.add_note(left)
            if not isinstance(error, Exception | KeyboardInterrupt):  # whose notes hardly anybody sees
                warn(left)

    def _kill(self, *, is_kept: bool) -> None:
        if not self.is_open or self.is_inherited:
            return
        self.is_aborted = True
        self.process.end()
        self.writer.abort()
        if self._file is not None and not is_kept:
            self._file.discard()
        self._mark_ended()

    def finish(self) -> Exception | None:
        """Closes, or kills an FFmpeg that is stuck. Returns the error instead of raising it.

        Unless `close` was called before, nobody has said that the frames are all: an old file stays.
        """
        if self._feed is not None:
            self._feed.limit_waits(STUCK_S / 2)
        self._stall_timeout = STUCK_S
        self._is_cut_short = self._closing_at_s is None
        try:
            self.close(None)
        except (PenstockError, OSError) as error:
            self.cut_off(None)
            return error
        return None

    def finish_during(self, error: BaseException) -> None:
        """Finishes the video while `error` propagates. A note of `error` says where it is, or why it is not."""
        was_closed = self.report is not None
        failure = self.finish()
        if failure is not None:
            if not isinstance(error, EncoderError):  # which says it already
                error.add_note(self._unfinished(failure))
        elif not was_closed and self._is_cut_short:
            error.add_note(where := self.whereabouts)
            if self._keeps_old_file:
                logger.warning("%s was cut short: %s", self.title, where)
                if not isinstance(error, Exception | KeyboardInterrupt):  # whose notes hardly anybody sees
                    warn(where)

    @property
    def whereabouts(self) -> str:
        """Where the frames of a video are that was cut short, in a sentence."""
        count = self.submitted
        written = f"the {plural(count, 'frame')} written before"
        if self._file is not None and self._keeps_old_file:
            verb = "is" if count == 1 else "are"
            return f"{self._file.path} is still the old file: {written} {verb} in {self._file.written}"
        return f"{self.plan.output.name} has {written}"

    @property
    def _keeps_old_file(self) -> bool:
        """Whether the file is left beside an old one, although FFmpeg has finished it."""
        return self._is_cut_short and self._file is not None and self._file.is_beside

    @property
    def _left_part(self) -> str | None:
        """Where an unfinished file was left beside its place, in words; None if it was not."""
        if self._file is None or self._file.written in (None, self._file.path):
            return None
        return f"what FFmpeg has written is in {self._file.written}"

    def _unfinished(self, failure: Exception) -> str:
        """A note on why the video could not be finished, in one line: the exception above it is usually the cause."""
        if not self.submitted:
            return f"and {_EMPTY}"
        why = in_short(failure)
        left = "" if self._left_part is None or self._left_part in why else f"; {self._left_part}"
        return f"and {self.title} could not be finished: {why}{left}"

    def finish_forgotten(self) -> None:
        """Finishes the video of an encoder that was collected. A failure becomes a `RuntimeWarning`."""
        failure = self.finish()
        # Python hides a ResourceWarning by default, and frames were lost, or are not where they were to be.
        if failure is not None:
            warnings.warn(f"{self.title} could not be finished: {failure}", RuntimeWarning, stacklevel=2)
        elif self._keeps_old_file:
            warnings.warn(f"{self.title} was never closed: {self.whereabouts}", RuntimeWarning, stacklevel=2)

    def end_collected(self) -> None:
        """Finishes in the background, when the garbage collector takes the encoder."""
        if not self.is_open or self.is_inherited:
            return
        if sys.is_finalizing():
            # A thread would not start, and before Python 3.12 its `start` waits for ever. FFmpeg sees the end of its
            # input and finishes alone.
            self.process.close_pipes()
            return
        try:
            # A finalizer runs on any thread, inside any call, and FFmpeg may take long.
            threading.Thread(target=self.finish_forgotten, name="penstock-encoder-finish").start()
        except RuntimeError:  # the interpreter is about to exit, or no thread is left
            self.process.close_pipes()
        warn_unclosed(self)

    def end_at_exit(self) -> None:
        self._is_verified = False  # nothing can be imported any more
        if (failure := self.finish()) is not None:
            exits.report_loss(f"{self.title} could not be finished: {failure}")
        elif self._keeps_old_file:
            exits.report_loss(f"{self.title} was never closed: {self.whereabouts}")
        warn_unclosed(self)

    def progress(self) -> str:
        return f"encoded {self.process.frames} frames"

    def _check_not_aborted(self) -> None:
        if self.is_aborted:
            raise ClosedError("the encoder was aborted")
        self.check_owner()

    def _deliver(self, deadline: Deadline) -> None:
        if self.writer.closed:
            return
        try:
            if self._feed is not None:
                feed = self._feed
                self.wait_for(lambda slice_s: feed.finish(timeout=slice_s), deadline, FULL)
            # After a late flush the writer stays open, so that a second `close` can continue.
            self.wait_for(self.writer.flush, deadline, FULL)
            self.writer.close()
        except ClosedError:  # another thread has done it
            self._check_not_aborted()
        except BrokenStreamError as broken:
            raise self._failed() from broken

    def _put_in_place(self) -> None:
        """Moves the new file over the old one. Raises if that fails, or if the new file is gone."""
        try:
            if self._has_blended_frames:
                with suppress(FileNotFoundError):  # the next lines tell that the file is gone
                    disable_blending(endpoints.without_protocol(self._url))
            if self._file is not None and self._is_cut_short and self._file.is_beside:
                self._file.leave(is_finished=True)
            elif self._file is not None:
                self._file.take_place(is_expected=bool(self.process.output_bytes))
        except ReplacedError as error:
            self._failure = str(error)
            self._mark_ended()
            raise self._error() from error

    def _leave_file(self) -> None:
        """Leaves what FFmpeg has written, unless that has taken its place. Removes it if no frame is in it."""
        if self._file is None:
            return
        process, code = self.process, self.process.returncode
        was_killed = code is None or code < 0  # it may not have told of its last frames
        if was_killed or process.frames:
            self._file.leave(is_finished=process.has_succeeded)
        else:
            self._file.discard()

    def _import_libav(self) -> list[str]:
        """Imports libav, while FFmpeg works, to read the file back. Returns what prevents that, in sentences."""
        try:
            if self._is_verified:
                from penstock._encoding import compare  # noqa: F401
        except ImportError as error:
            self._is_verified = False
            return [f"the file could not be verified, because PyAV cannot be imported: {error}"]
        except RuntimeError:  # the interpreter is about to exit: threading takes no more callbacks
            self._is_verified = False
        return []

    def _differences(self) -> list[str]:
        """How the file differs from the plan, in sentences."""
        plan, url = self.plan, self._url
        if not self._is_verified or not self._is_one_file or (file := endpoints.identity(url)) is None:
            return []
        if plan.output.container in _NOT_VERIFIED:
            return []
        if self._verified is not None and self._verified[0] == file:
            return self._verified[1]
        from penstock._encoding.compare import Expected, differences

        meant = Expected(
            self.plan,
            frames=self.submitted,
            first_s=self._first_s,
            ends_s=self._ends_s if plan.keeps_times else None,
            sounds=self._written_sounds if plan.keeps_sound else (),
        )
        found = differences(url, meant)
        self._verified = file, found
        return found

    @property
    def _written_sounds(self) -> Sequence[Sound]:
        unused = bool(self._unused_input())
        return [one for one in self.plan.sounds if not (unused and isinstance(one.audio, AudioTrack))]

    @property
    def _first_s(self) -> Fraction | None:
        """The time of the first frame; None where a sound may move it."""
        if self.plan.is_timed:
            assert self._feed is not None
            return self._feed.state.first_s
        return None if self.plan.sounds else Fraction(0)

    @property
    def _ends_s(self) -> Fraction:
        """When the last frame ends at the earliest."""
        if self.plan.rate is not None:
            return self.submitted / self.plan.rate
        assert self._feed is not None
        return self._feed.state.last_s

    @property
    def _has_blended_frames(self) -> bool:
        """Whether FFmpeg has marked the frames of an animated WebP for blending, although each is a whole picture."""
        plan = self.plan
        has_parts = any(name.partition(":")[0] == "cr_threshold" for name in plan.options)
        pixel_format = plan.output_pixel_format
        return (
            self._path is not None
            and (plan.output.container, plan.codec) == ("webp", "libwebp")
            and self.submitted > 1
            and not has_parts
            and (pixel_format is None or has_alpha(pixel_format))
        )

    @property
    def _is_one_file(self) -> bool:
        output = self.plan.output
        return endpoints.is_path(output.target) and not output.is_several_files

    def _await_file(self, timeout_s: float) -> None:
        if not self.process.wait_until_done(timeout_s):
            raise StalledError(NOT_DONE, timeout_s)

    def _await_end(self, timeout_s: float) -> None:
        deadline = Deadline(timeout_s)
        has_ended = self.process.wait(timeout_s)
        if not has_ended or not (self._sink is None or self._sink.wait(deadline.at_most(timeout_s))):
            raise StalledError(NOT_DONE, timeout_s)

    def _failed(self) -> FFmpegError:
        """The error of an FFmpeg that reads no more, once it has ended."""
        self._check_not_aborted()
        self.writer.abort()
        self.process.close_pipes()
        self.process.wait_unless_stuck(STUCK_S)
        self._mark_ended()
        return self._error()

    def _failed_outputs(self, *, ignored: bool = False) -> list[str]:
        """The outputs of the muxer `tee` that failed, in sentences: those with ``onfail=ignore``, or the others."""
        failed = self.process.log.failed_outputs.items()
        target = self.plan.output.target
        named = [(endpoints.tee_output(target, number), why) for number, why in failed]
        return [
            f"the output {name!r} failed{why and ': '}{why}"
            for name, why in named
            if endpoints.ignores_failure(name) == ignored
        ]

    def _lost(self) -> list[str]:
        """What the result lacks, although FFmpeg may have succeeded, in sentences."""
        failures = [] if self._feed is None else self._feed.failures
        # Without sound, a failure of FFmpeg is the cause of a missing picture, and its output says more.
        tells = self.process.has_succeeded or self.plan.sounds
        is_empty = not self.submitted and tells
        empty = _EMPTY if is_empty else None
        segments = lost_segments(self.plan.output, self._begun_s)
        failure = self._failure
        if self._sink is not None and self._sink.failure is not None:
            failure = f"the {self.plan.output.name} that is written to has failed: {self._sink.failure!r}"
        return [*filter(None, [empty, *segments, failure]), *self._failed_outputs(), *failures]

    def _clipping(self) -> list[str]:
        """That the range of values may be wrong, because more than a few samples were outside."""
        value_range = self.plan.form.value_range
        if value_range is None or not self.submitted:
            return []
        samples = self.submitted * self.plan.frames.frame_bytes // self.plan.frames.sample_bytes
        if (share := self._clipped_samples / samples) < _NOTABLE_SHARE:
            return []
        return [
            f"{share:.0%} of the samples were outside of value_range={value_range}, and were clipped. Give the range "
            "that the frames have"
        ]

    def _unused_input(self) -> list[str]:
        if self._input is None or self._samples:
            return []
        return ["the result has no sound: the encoder has an AudioTrack, and write_audio was not called"]

    def _error(self) -> FFmpegError:
        process, submitted = self.process, self.submitted
        reason = f"FFmpeg {process.ending}; it had encoded {process.frames} of {submitted} submitted frames"
        advice = None
        with suppress(OSError):  # a shortage, which must not hide the failure
            advice = explain(self.plan, f"{process.log.text}\n{reason}")
        left = [] if self._failure is not None else filter(None, [self._left_part])
        return self.failure("; ".join([*self._lost(), reason, *left]), process.frames, advice)

    def _make_report(self, missing: list[str]) -> EncodeReport:
        # FFmpeg has succeeded. Its errors may still matter more than its warnings.
        messages = (*missing, *self.process.log.errors, *self.process.log.warnings)
        for line in messages:
            logger.warning("FFmpeg: %s", line)
        submitted, elapsed_s = self.submitted, self.process.elapsed_s
        target = self._url if self._keeps_old_file else self.plan.output.target
        return EncodeReport(
            output=endpoints.without_protocol(target) if self._sink is None else self.plan.output.name,
            frames_submitted=submitted,
            frames_encoded=self.process.frames,
            samples_submitted=self._samples,
            bytes_submitted=submitted * self.plan.frames.frame_bytes,
            output_bytes=endpoints.file_bytes(target) if self._sink is None else self._sink.nbytes,
            elapsed_s=elapsed_s,
            fps=self.process.frames / elapsed_s,
            warnings=(*self.origin.lost, *self.plan.warnings, *filter(None, [self.warning]), *messages),
            codec=self.plan.codec,
            skipped_encoders=self.plan.skipped_encoders,
            clipped_samples=self._clipped_samples,
        )

    def _mark_ended(self) -> None:
        self.mark_closed()
        if self._feed is not None:
            self._feed.end()
        self._leave_file()
        if self._reporter is not None:
            self._reporter.stop(self.stats)


def _stats_of(session: weakref.ref[EncodeSession]) -> Callable[[], EncoderStats | None]:
    """Gives the statistics of an open session, and does not keep it from being collected."""

    def look() -> EncoderStats | None:
        alive = session()
        return None if alive is None or not alive.is_open else alive.stats

    return look
