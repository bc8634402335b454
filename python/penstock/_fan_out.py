"""One stream of frames to several encoders and writers: `FanOut`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal, Self, get_args

from penstock import _exit
from penstock._deadline import Deadline
from penstock._fan_out_outputs import UNCONVERTED, EncoderOutput, Form, Output, WriterOutput
from penstock._ffmpeg.command.settings import check_choice
from penstock._ffmpeg.encoder import Encoder
from penstock._ffmpeg.plan.frame_check import buffer_and_size
from penstock._ffmpeg.program.process import check_owner
from penstock._ffmpeg.session.encode_session import Push
from penstock._messages import argument
from penstock._native import Writer, _Slot, _SlotPool
from penstock._reports import OutputReport
from penstock._types import FrameData
from penstock.errors import ClosedError, StalledError

WhenFull = Literal["block", "drop", "replace"]

# Unused frames that are kept for reuse, of each size. Guessed: one is filled while slower outputs hold others.
KEPT_SLOTS = 4
# Sizes of frames whose memory is kept. A caller of writers alone may write any sizes.
KEPT_SIZES = 8


class FanOut:
    """Writes each frame to several encoders and writers. The frame is copied once, and all of them share the copy.

    ```python
    with FanOut([archive, raw]) as fan_out:
        fan_out.add(preview, when_full="drop")
        for frame in frames:
            fan_out.write(frame)
    ```

    Each output has its own queue and native thread. Encoders that need the same conversion of pixels share it, too:
    `write` does it once. If an output fails, the others go on; a warning in the log says so, and so do `reports`.

    The fan-out owns its outputs from `add` on: nobody else writes to them, and closing the fan-out closes them. Leaving
    the ``with`` block closes it, and raises the error of the first output that failed; call `close` in the block for
    reports instead. If an exception leaves the block, all outputs are finished as without the fan-out.

    There is no `lease` or `submit`, because all outputs share one copy, and no `awrite`: use ``asyncio.to_thread``.
    Sound goes to each encoder's own `write_audio`.

    Calls from several threads are served one after another. After a ``fork``, the fan-out is closed in the child and
    continues in the parent.

    Args:
        targets: encoders and writers that never miss a frame; `add` takes others.

    Raises:
        TypeError, ValueError: as for `add`.
    """

    def __init__(self, targets: Iterable[Encoder | Writer] = ()) -> None:
        self._outputs: list[Output] = []
        self._pool_of = lru_cache(KEPT_SIZES)(partial(_SlotPool, keep_slots=KEPT_SLOTS))
        # The frame that was taken last, for the outputs that do not have it yet.
        self._waiting: dict[Output, Push] = {}
        self._lock = threading.Lock()
        self._forks = _exit.forks
        self._is_closed = False
        for target in targets:
            self.add(target)

    def add(self, target: Encoder | Writer, when_full: WhenFull = "block") -> None:
        """Adds an output. It gets the frames that are written from now on.

        Args:
            target: an `Encoder`, whose frames are those that `write` takes; or a `Writer`, which gets their bytes as
                they are, in C order.
            when_full: "block" makes `write` wait while the output's queue is full. "drop" leaves the frame out of this
                output. "replace" keeps only the newest frame waiting beside the queue. Dropped frames are counted. At a
                constant rate, an encoder gets the frame before again for each dropped one, so that later frames keep
                their times. The size of the queue is the target's: ``queue_items`` of a `Writer`, and of `Tuning` for
                an `Encoder`.

        Raises:
            TypeError: `target` is neither an encoder nor a writer.
            ValueError: it is an output of this fan-out already; it takes another pixel format than the encoders before;
                `when_full` is unknown; or frames with sound, at a constant rate, would be left out.
            ClosedError: `target` or the fan-out is closed.
        """
        check_choice("when_full", when_full, get_args(WhenFull))
        if not isinstance(target, Encoder | Writer):
            raise TypeError(f"a target is an Encoder or a Writer, and not {type(target).__name__}")
        self._check_open()
        if any(output.target is target for output in self._outputs):
            raise ValueError(f"{target!r} is an output of this fan-out already")
        if target.closed:
            raise ClosedError(f"{target!r} is closed")
        if isinstance(target, Writer):
            self._outputs.append(WriterOutput(target, when_full))
            return
        output = EncoderOutput(target, when_full)
        self._check_same_frames(output.settings.pixel_format)
        if when_full != "block" and output.settings.sounds and not output.is_timed:
            raise ValueError("an Encoder with sound can drop frames only with fps=None, and time_s for write")
        self._outputs.append(output)

    def write(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> None:
        """Takes one frame for all outputs. You can reuse the frame's memory when the call returns.

        Waits while the queue of an output with ``when_full="block"`` is full, without the GIL and awake to Ctrl-C.

        Args:
            frame: as for `Encoder.write`. It must suit every encoder: the same pixel format and size. Without encoders,
                any buffer.
            time_s: the time of the frame in seconds, for encoders, as for `Encoder.write`. Writers do not use it.
            timeout: seconds to wait; None waits as long as it takes. A frame that was taken reaches every output: if it
                still waits for one after this time, the call returns, and the next call waits first.

        Raises:
            ValueError, TypeError: the frame does not suit an encoder, or `time_s` is wrong, as for `Encoder.write`. No
                output has the frame.
            StalledError: an output still has no room for the frame before. No output has this one.
            EncoderError, BrokenStreamError, OSError: the last output has failed; this is the error of the first.
            ClosedError: after `close` or `abort`, or without any output.
        """
        self._check_open()
        deadline = Deadline(timeout)
        deadline.acquire(self._lock)
        try:
            self._check_open()
            self._settle(deadline)
            pushes, before = self._pushes(frame, time_s), self._waiting
            # While an output gets repeats, keep its waiting frame, or an encoder that is always slow gets no new one.
            kept = {output: push for output, push in before.items() if output.is_catching_up}
            # In one step: what a signal handler interrupts here is continued by the next call.
            self._waiting = pushes | kept
            for output in pushes:
                output.offered += 1
                # Either the waiting frame is replaced, or this one is not taken.
                output.dropped += output in before
                output.due = output.due if output in kept else output.offered
            _unsettled.add(self)
            _exit.at_exit(_settle_all, 3)  # before encoders are closed
            with suppress(StalledError):
                self._settle(deadline)
        finally:
            self._lock.release()

    @property
    def reports(self) -> tuple[OutputReport, ...]:
        """A report for each output, in the order of `add`: what became of it so far."""
        return tuple(output.report for output in self._outputs)

    @property
    def closed(self) -> bool:
        """Whether frames are no longer accepted: after `close` or `abort`, and after a fork."""
        return self._is_closed or self._forks != _exit.forks

    def close(self, timeout: float | None = None) -> tuple[OutputReport, ...]:
        """Delivers what is queued, closes all outputs, and returns a report for each. Failures are in the reports.

        Encoders are closed first. A writer with ``when_full="drop"`` whose reader takes nothing for 5 s is given up.
        Calling it again gives the same reports.

        Args:
            timeout: seconds to wait for all of them; None waits as long as it takes.

        Raises:
            StalledError: not done within `timeout`. Nothing is lost: close again, or abort, which drops the videos.
            ClosedError: in the child of a fork.
        """
        check_owner("fan-out", self._forks)
        if not self._is_closed:
            deadline = Deadline(timeout)
            deadline.acquire(self._lock)
            try:
                self._settle(deadline, is_last=True)
                for output in self._outputs:
                    output.note_last()
                for output in self._encoders_first():
                    output.close(deadline)
                self._is_closed = True
            finally:
                self._lock.release()
        return self.reports

    def abort(self) -> None:
        """Aborts all outputs, as their own `abort` does. Does nothing after `close`."""
        for output in self._given_up():
            output.target.abort()

    def _given_up(self) -> list[Output]:
        """Closes the fan-out without its outputs, which the caller ends. Returns them, or none after the end."""
        if self.closed:
            return []
        self._is_closed = True
        self._waiting = {}
        _unsettled.discard(self)
        return self._outputs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        if self.closed:
            return
        try:
            if exc is None:
                self._close_despite_ctrl_c()
            else:
                self._finish_during(exc)
        except BaseException as error:  # a second Ctrl-C, for example: nothing is left running
            for output in self._given_up():
                output.cut_off(error)
            raise

    def __repr__(self) -> str:
        return f"<FanOut to {len(self._outputs)} outputs>"

    def _check_open(self) -> None:
        check_owner("fan-out", self._forks)
        if self._is_closed:
            raise ClosedError("the fan-out is closed")

    def _check_same_frames(self, pixel_format: str) -> None:
        for output in self._outputs:
            if isinstance(output, EncoderOutput) and output.settings.pixel_format != pixel_format:
                given = argument("pixel_format", output.settings.pixel_format)
                raise ValueError(
                    f"all encoders get the same frames, as {output.target!r} does: give the new one {given}"
                )

    def _encoders_first(self) -> list[Output]:
        return sorted(self._outputs, key=lambda output: isinstance(output, WriterOutput))

    def _alive(self) -> list[Output]:
        """The outputs that have not failed.

        Raises:
            EncoderError, BrokenStreamError, OSError: all have failed.
            ClosedError: there is none.
        """
        alive = [output for output in self._outputs if output.error is None]
        if self._outputs and not alive:
            for output in self._outputs:
                output.close(Deadline(None))  # to get FFmpeg's output into the error
            assert self._outputs[0].error is not None
            raise self._outputs[0].error
        if not alive:
            raise ClosedError("the fan-out has no outputs yet: add encoders or writers")
        return alive

    def _pushes(self, frame: FrameData, time_s: float | Fraction | None) -> dict[Output, Push]:
        """Copies a frame. Returns the function that queues it, for each output."""
        if time_s is not None and not any(isinstance(output, EncoderOutput) for output in self._outputs):
            raise ValueError("time_s is for encoders, and all outputs are writers: leave it out")
        alive = self._alive()
        # First those that know their size: a frame that does not suit them starts no others.
        for output in sorted(alive, key=lambda output: not output.is_started):
            output.start(frame, time_s)
        buffer, nbytes = buffer_and_size(frame)
        forms = {output: output.form() for output in self._alive()}
        uses, pushes = Counter(forms.values()), dict[Output, Push]()
        slots: dict[Form, _Slot] = {}
        for output, form in forms.items():
            # A conversion that only one output needs is left to its thread.
            used = form if form.prefix is not None or uses[form] > 1 else UNCONVERTED
            if used not in slots:
                pool = self._pool_of(nbytes if used == UNCONVERTED else used.nbytes)
                slots[used] = pool.filled(buffer, used.conversion, used.prefix)
            pushes[output] = output.push_of(slots[used], used)
        return pushes

    def _settle(self, deadline: Deadline, *, is_last: bool = False) -> None:
        """Hands the frame that was taken last to the outputs that do not have it.

        Raises:
            StalledError: an output has no room until the deadline.
        """
        now = Deadline(0.0)
        for output in list(self._waiting):
            is_dropped = not self._hand(output, now) and output.when_full == "drop"
            if is_dropped and not output.is_catching_up:
                output.dropped += 1
                self._waiting.pop(output, None)
        late = [output for output in self._waiting if output.when_full == "block"]
        for output in self._outputs if is_last else late:
            own = output.closing_deadline(deadline) if is_last else deadline
            if self._hand(output, own) and output.catch_up(output.offered, own):
                continue
            if deadline.is_over():
                raise deadline.late(f"{output.target!r} had no room")
            output.dropped += 1
            self._waiting.pop(output, None)
        if not self._waiting and not any(output.is_behind for output in self._outputs):
            _unsettled.discard(self)

    def _hand(self, output: Output, deadline: Deadline) -> bool:
        """Hands an output the frame that waits for it. Returns False if it has no room until the deadline."""
        push = self._waiting.get(output)
        if push is not None and not output.catch_up(output.due - 1, deadline):
            return False
        before = output.accepted
        try:
            if push is not None and output.error is None:
                if not output.queue(push, deadline):
                    return False
                output.last, output.is_catching_up = push if output.repeats else None, False
            # With a default: another thread's `abort` may have removed it already.
            self._waiting.pop(output, None)
        except BaseException:  # a signal handler's; it may come when the frame is queued already
            if output.accepted > before:
                self._waiting.pop(output, None)
            raise
        return True

    def _close_despite_ctrl_c(self) -> None:
        try:
            reports = self.close()
        except KeyboardInterrupt as interrupt:
            self._finish_during(interrupt)
            raise
        for report in reports:
            if report.error is not None:
                raise report.error

    def _finish_during(self, error: BaseException) -> None:
        """Finishes all outputs while `error` propagates. Failures become notes of `error`."""
        try:
            self._settle(Deadline(_exit.STALL_S), is_last=True)
        except StalledError as stalled:
            error.add_note(f"and a frame was lost: {stalled}")
        for output in self._encoders_first():
            output.finish_during(error)
        self._is_closed = True
        _unsettled.discard(self)


# Fan-outs whose last frame waits for an output.
_unsettled: set[FanOut] = set()


def _settle_all() -> None:
    for fan_out in list(_unsettled):
        if not fan_out.closed:
            try:
                fan_out._settle(Deadline(_exit.STALL_S), is_last=True)
            except StalledError as stalled:
                _exit.report_loss(f"a frame was lost: {stalled}")
