"""The outputs of a `FanOut`, and what each of them gets of a frame."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isnan, nan
from typing import NamedTuple

from penstock._common import exits
from penstock._common.deadline import Deadline
from penstock._common.log import logger
from penstock._common.reports import EncodeReport, OutputReport
from penstock._common.tensors import memory_and_size
from penstock._common.types import FrameData
from penstock._encoding.encoder import Encoder
from penstock._encoding.feed import QueuedFrame
from penstock._encoding.frame_check import frame_buffer
from penstock._encoding.input_layout import PLAIN, InputLayout
from penstock._encoding.intake import Intake
from penstock._native import Writer, _Conversion, _Slot, _SlotPool
from penstock.errors import ClosedError, PenstockError, StalledError
from penstock.results import WriterStats


@dataclass(frozen=True, slots=True)
class ConversionKey:
    """What an output gets of a frame. Equal forms share memory.

    Attributes:
        frames: how the frames differ from the pixel format of the encoders; plain for writers, which get the bytes as
            they are.
        conversion: of the pixels; None leaves them as they are.
        nbytes: bytes of the converted frame.
        tick: the time of a frame with ``fps=None``.
        prefix: what stands before the frame; None if nothing does.
        output: set if the memory cannot be shared: at a constant rate, the output writes its own prefix into it.
    """

    frames: InputLayout = PLAIN
    conversion: _Conversion | None = None
    nbytes: int = 0
    tick: int | None = None
    prefix: bytes | None = None
    output: OutputBase | None = None

    @property
    def unconverted(self) -> ConversionKey:
        """The same without conversion and prefix."""
        return ConversionKey(self.frames)


class PendingWrite(NamedTuple):
    """A frame for one output.

    Attributes:
        item: what is queued of it.
        time_s: its time; None if it came without one.
        accepted: how many frames the output had accepted before.
    """

    item: QueuedFrame
    time_s: float | None
    accepted: int


class OutputBase:
    """An output of a `FanOut`, and what became of it.

    Attributes:
        error: why it failed; None as long as it has not.
        key: what it gets of the frame that `start` got.
    """

    key = ConversionKey()

    def __init__(self, target: Encoder | Writer, when_full: str) -> None:
        self.target = target
        self.error: Exception | None = None
        self._when_full = when_full
        self._accepted_before = self.accepted
        # The index and the time, or NaN, of each dropped frame: 16 bytes a frame, because a preview may run for weeks.
        self._dropped = array("d")

    @property
    def is_started(self) -> bool:
        """Whether its frames have a size."""
        return True

    @property
    def accepted(self) -> int:
        """Frames that its queue has accepted, also before it was an output."""
        raise NotImplementedError

    @property
    def result(self) -> EncodeReport | WriterStats | None:
        """The target's own report or statistics, `OutputReport.result`."""
        raise NotImplementedError

    @property
    def report(self) -> OutputReport:
        """What became of it so far."""
        values = iter(self._dropped[:])  # another thread may write
        dropped = tuple(
            OutputReport.DroppedFrame(int(index), None if isnan(time_s) else time_s)
            for index, time_s in zip(values, values, strict=True)
        )
        return OutputReport(self.target, self._taken, dropped, self.result, self.error)

    @property
    def _taken(self) -> int:
        return self.accepted - self._accepted_before

    def start(self, frame: FrameData, time_s: float | Fraction | None) -> None:
        """Makes sure that it can take `frame`, at that time. It may fail.

        Raises:
            ValueError, TypeError: `frame` or `time_s` does not suit it.
        """

    def filled(self, frame: FrameData, key: ConversionKey, pool_of: Callable[[int], _SlotPool]) -> _Slot:
        """Memory with the frame that `start` got, as that key says.

        Args:
            pool_of: the pool of slots of so many bytes.

        Raises:
            ValueError: the frame has NaN.
        """
        memory, nbytes = memory_and_size(frame)
        return pool_of(nbytes).filled(memory)

    def item_of(self, slot: _Slot, key: ConversionKey) -> QueuedFrame:
        """What `queue` gets of `slot`, which holds the frame as that key says."""
        return QueuedFrame(slot)

    def take(self, offer: PendingWrite, deadline: Deadline) -> bool:
        """Queues a frame, or drops it if the queue is full. Returns False if it waits for room instead.

        If the output fails, the frame is gone.
        """
        try:
            # A signal handler may have interrupted the call that queued it.
            if self.error is None and self.accepted == offer.accepted:
                self._push(offer.item, deadline)
        except StalledError as stalled:
            if not deadline.is_over():
                # Not this deadline has ended the wait, but the stall timeout of the encoder.
                self.give_up(stalled)
            elif self._when_full == "block":
                return False
            else:
                # A dropped frame takes two places.
                index = self._taken + len(self._dropped) // 2
                self._dropped.extend((index, nan if offer.time_s is None else offer.time_s))
        except (PenstockError, OSError) as failure:
            self.fail(failure)
        return True

    def close(self, deadline: Deadline) -> None:
        """Delivers what is queued, and closes the target. It may fail.

        Raises:
            StalledError: not done until the deadline.
        """
        try:
            self._close(deadline)
        except StalledError as stalled:
            if deadline.is_over():
                raise
            self.give_up(stalled)
        except (PenstockError, OSError) as failure:
            # The first failure stays: after an abort, a ClosedError says less than what led to it.
            if self.error is None or not isinstance(failure, ClosedError):
                self.fail(failure)

    def note_last(self) -> None:
        """Notes that there are no more frames."""

    def finish_during(self, error: BaseException) -> None:
        """Delivers what is queued, while `error` propagates, and gives up what is stuck. A failure becomes a note."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Notes a failure, and the first of them in the log. A note of the error names the output."""
        if self.error is None:
            logger.warning("%r failed, and the other outputs go on: %s", self.target, str(error))
        # A stream that has failed raises the same error at each later call.
        if (note := f"for {self.target!r}") not in getattr(error, "__notes__", ()):
            error.add_note(note)
        self.error = error

    def give_up(self, stalled: StalledError) -> None:
        """Ends the target, which is stuck."""
        self.fail(stalled)
        self.cut_off(stalled)

    def cut_off(self, error: BaseException) -> None:
        """Ends the target without waiting for it, while `error` propagates. What an encoder has written is left."""
        raise NotImplementedError

    def _push(self, item: QueuedFrame, deadline: Deadline) -> None:
        raise NotImplementedError

    def _close(self, deadline: Deadline) -> None:
        raise NotImplementedError


class EncoderOutput(OutputBase):
    """An encoder as an output.

    Attributes:
        plan: how it encodes.
    """

    target: Encoder
    _intake: Intake  # set by `start`

    def __init__(self, target: Encoder, when_full: str) -> None:
        super().__init__(target, when_full)
        self.plan = target._plan

    @property
    def is_started(self) -> bool:
        return self.target.frame_bytes is not None

    @property
    def accepted(self) -> int:
        return self.target.frames_submitted

    @property
    def result(self) -> EncodeReport | None:
        return self.target.report

    def start(self, frame: FrameData, time_s: float | Fraction | None) -> None:
        try:
            intake = self._intake = self.target._intake_for(frame)
            intake.check_open()
            frame_buffer(frame, intake.layout, self.accepted, self.plan.input_layout)
            self.key = self._key_at(intake.tick_of(time_s, frame))
        except (PenstockError, OSError) as failure:
            self.fail(failure)
        except (ValueError, TypeError) as wrong:
            wrong.add_note(f"for {self.target!r}")
            raise

    def _key_at(self, tick: int | None) -> ConversionKey:
        plan, frames = self._intake.plan, self.plan.input_layout
        prefix = self._intake.prefix(tick)
        if prefix is None and plan.conversion is None:
            return ConversionKey(frames)
        output = self if prefix is not None and tick is None else None
        return ConversionKey(frames, plan.conversion, plan.ffmpeg_frames.frame_bytes, tick, prefix, output)

    def filled(self, frame: FrameData, key: ConversionKey, pool_of: Callable[[int], _SlotPool]) -> _Slot:
        layout, number = self._intake.layout, self.accepted
        buffer = frame_buffer(frame, layout, number, key.frames)
        pool = pool_of(layout.frame_bytes if key == key.unconverted else key.nbytes)
        return key.frames.fill(pool, buffer, number, key.conversion, key.prefix)

    def item_of(self, slot: _Slot, key: ConversionKey) -> QueuedFrame:
        is_fed = key != key.unconverted or self._intake.plan.conversion is None
        return QueuedFrame(slot, is_fed, key.tick)

    def _push(self, item: QueuedFrame, deadline: Deadline) -> None:
        self._intake.offer(item, deadline)

    def _close(self, deadline: Deadline) -> None:
        self.target.close(deadline.left_s())

    def note_last(self) -> None:
        if self.is_started:
            self.target._intake.note_last()

    def cut_off(self, error: BaseException) -> None:
        self.target._cut_off(error)

    def finish_during(self, error: BaseException) -> None:
        self.target.__exit__(type(error), error, None)


class WriterOutput(OutputBase):
    """A writer as an output."""

    target: Writer

    @property
    def accepted(self) -> int:
        return self.target.stats.items_accepted

    @property
    def result(self) -> WriterStats:
        return self.target.stats

    def _push(self, item: QueuedFrame, deadline: Deadline) -> None:
        self.target.submit(item.memory, timeout=deadline.left_s())

    def cut_off(self, error: BaseException) -> None:
        self.target.abort()

    def finish_during(self, error: BaseException) -> None:
        try:
            self._close_unless_stalled(Deadline(None))
        except (PenstockError, OSError) as failure:
            self.target.abort()
            if error is not self.error:
                error.add_note(f"and {self.target!r} couldn't deliver everything: {failure}")
            self.error = failure

    def _close(self, deadline: Deadline) -> None:
        if self._when_full == "block":
            self.target.close(deadline.left_s())
        else:
            self._close_unless_stalled(deadline)

    def _close_unless_stalled(self, deadline: Deadline) -> None:
        """Closes it. Raises a `StalledError` at the deadline, or if its reader has taken nothing for 5 s."""
        # A slow reader gets as long as it needs, and one that takes nothing gets one period.
        while True:
            delivered = self.target.stats.bytes_delivered
            try:
                self.target.close(deadline.at_most(exits.STALL_S))
                return
            except StalledError:
                if deadline.is_over() or self.target.stats.bytes_delivered == delivered:
                    raise
