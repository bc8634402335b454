"""What feeds an encode: frames and samples are checked, taken and queued."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from penstock._common.deadline import Deadline
from penstock._common.tensors import OnDevice
from penstock._common.types import FrameData
from penstock._encoding import nut
from penstock._encoding.feed import QueuedFrame
from penstock._encoding.frame_check import frame_buffer
from penstock._encoding.input_layout import PLAIN
from penstock._encoding.session import FULL, EncodeSession
from penstock._ffmpeg.command.arguments import TICK_S
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._ffmpeg.program.process import Arguments
from penstock._native import Ticket, _Slot
from penstock.errors import BrokenStreamError, StalledError

if TYPE_CHECKING:
    import asyncio


class Intake:
    """Takes frames and samples for a session. Parts outside of this room use nothing else of a session.

    Attributes:
        plan: how the frames are encoded.
    """

    def __init__(self, session: EncodeSession) -> None:
        self.plan = session.plan
        self._session, self._feed, self._time_check = session, session.feed, session.time_check
        # An asyncio.Lock belongs to the event loop that first waits for it.
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def waiting(self) -> str | None:
        """What the start of FFmpeg waits for; None if it waits for nothing."""
        return self._session.process.waiting

    @property
    def layout(self) -> FrameLayout:
        """The layout of the frames that the caller writes."""
        return self.plan.frames

    @property
    def submitted(self) -> int:
        """Frames that were accepted."""
        return self._feed.submitted

    @property
    def video_s(self) -> float:
        """When the picture ends, in seconds."""
        return float(self._feed.video_s)

    def check_open(self) -> None:
        """Checks that frames are still accepted."""
        self._session.check_open()

    def lease(self) -> _Slot:
        """Memory for one frame."""
        self.check_open()
        return self._feed.lease()

    def tick_of(
        self, time_s: float | Fraction | None, frame: object = None, number: int | None = None
    ) -> int | None:
        """The time of a frame as a multiple of `TICK_S`; None where the rate is constant, which is checked.

        Without `time_s`, a decoded frame has its own. Its colors are noted.

        Args:
            number: the frame's number in the video; None for the next one.
        """
        self._time_check.colors = getattr(frame, "_colors", None) or self._time_check.colors
        is_given = time_s is not None
        time_s = time_s if is_given else getattr(frame, "time_s", None)
        if self.plan.rate is None:
            if time_s is None:
                raise self._time_check.missing_time()
            self._feed.check_later(tick := nut.ticks(time_s))
            return tick
        if time_s is None:
            self._time_check.is_untimed = True
        if time_s is None or (self._time_check.rate_given and not is_given):
            return None
        shown_s = float(nut.ticks(time_s) * TICK_S) if is_given else float(time_s)
        number = self.submitted if number is None else number
        self._time_check.check(self.plan, number, shown_s, is_given=is_given)
        return None

    def take(self, frame: FrameData, time_s: float | Fraction | None) -> QueuedFrame:
        """Copies a frame, for `queue`."""
        self.check_open()
        input_layout, number = self.plan.input_layout, self.submitted
        buffer = frame_buffer(frame, self.plan.frames, number, input_layout)
        return self._feed.take(buffer, self.tick_of(time_s, frame), input_layout, number)

    def borrow(self, frame: FrameData, time_s: float | Fraction | None) -> QueuedFrame:
        """Takes a frame for `queue`, without a copy if FFmpeg gets it as it is."""
        if self.plan.input_layout != PLAIN or self.plan.stream is not None:
            return self.take(frame, time_s)
        self.check_open()
        buffer = frame_buffer(frame, self.plan.frames, self.submitted)
        self.tick_of(time_s, frame)  # checks a time
        return self._feed.take(buffer) if isinstance(buffer, OnDevice) else QueuedFrame(buffer)

    def take_samples(self, samples: object) -> QueuedFrame:
        """Copies samples, for `queue`."""
        self.check_open()
        return self._feed.take_samples(samples)

    def queue(self, item: QueuedFrame, timeout: float | None) -> Ticket:
        """Queues a frame or samples; waits while the queue is full."""
        deadline = Deadline(timeout)
        try:
            with self._session.logged_stalls():
                return self._session.wait_for(self._feed.queue, deadline, FULL, item)
        except BrokenStreamError as broken:
            raise self._session.failed() from broken

    async def queue_async(
        self,
        take: Callable[[Unpack[Arguments]], QueuedFrame],
        *arguments: *Arguments,
        timeout: float | None,
    ) -> Ticket:
        """`take` and `queue` for asyncio, in the order of the calls."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        session, deadline = self._session, Deadline(timeout)
        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        with session.logged_stalls():
            try:
                async with asyncio.timeout(deadline.left_s()), turn:
                    item = take(*arguments)
                    return await session.wait_for_async(self._feed.queue, session.writer._oldest, item)
            except StalledError:  # a subclass of TimeoutError
                raise
            except TimeoutError:
                late = session.process.waits_for() or FULL
                raise deadline.late(late, session.writer.stats.bytes_pending) from None
            except BrokenStreamError as broken:
                # It waits for the end of FFmpeg.
                raise await asyncio.to_thread(session.failed) from broken

    def take_back(self, slot: _Slot, tick: int | None, *, is_kept: bool) -> QueuedFrame:
        """Takes a leased slot for `queue`, and copies the frame if somebody else keeps the memory."""
        self.check_open()
        return self._feed.take(slot, tick) if is_kept else self._feed.take_lease(slot, tick)

    def prefix(self, tick: int | None) -> bytes | None:
        """What comes before a frame in its memory; None if nothing does. Without `tick`, it is written later."""
        return self._feed.prefix(tick)

    def offer(self, item: QueuedFrame, deadline: Deadline) -> None:
        """Queues a frame as `queue` does. If FFmpeg has failed, the error is that of the stream."""
        self._session.wait_for(self._feed.queue, deadline, FULL, item)

    def note_last(self) -> None:
        """Notes that the caller has no more frames."""
        self._session.note_all_submitted()
