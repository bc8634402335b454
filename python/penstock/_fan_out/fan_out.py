"""One stream of frames to several encoders and writers: `FanOut`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal, Self, get_args

from penstock._common import exits
from penstock._common.deadline import Deadline
from penstock._common.keywords import explains
from penstock._common.ownership import check_owner
from penstock._common.reports import OutputReport
from penstock._common.tensors import OnDevice, memory_and_size
from penstock._common.types import FrameData
from penstock._encoding.encoder import Encoder
from penstock._encoding.plan import EncodePlan
from penstock._fan_out.outputs import ConversionKey, EncoderOutput, OutputBase, PendingWrite, WriterOutput
from penstock._ffmpeg.command.settings import check_choice
from penstock._native import Writer, _Slot, _SlotPool
from penstock.errors import ClosedError, StalledError

WhenFull = Literal["block", "drop"]

# Unused frames that are kept for reuse, of each size. Guessed: one is filled while slower outputs hold others.
KEPT_SLOTS = 4
# Sizes of frames whose memory is kept. A caller of writers alone may write any sizes.
KEPT_SIZES = 8

_NOW = Deadline(0.0)


class FanOut:
    """Writes each frame to several encoders and writers. The frame is copied once, and all of them share the copy.

    ```python
    with FanOut([archive, raw]) as fan_out:
        fan_out.add(preview, when_full="drop")
        for number, frame in enumerate(frames):
            fan_out.write(frame, time_s=number / 30)
    ```

    Each output has its own queue and native thread. Encoders that need the same conversion of pixels share it: `write`
    does it once. If an output fails, the others continue. A warning in the log and `reports` say so.

    The fan-out owns its outputs after `add`: don't write to them yourself. Closing the fan-out closes them. Leaving the
    ``with`` block closes the fan-out, and raises the error of the first output that failed. To get reports instead,
    call `close` in the block. If an exception leaves the block, each output ends as it would in its own ``with`` block.

    There is no `lease` or `submit`, because all outputs share one copy, and no `awrite`: use ``asyncio.to_thread``.
    Write audio with each encoder's own `write_audio`.

    Several threads may call `write`: the calls run one after another. After a ``fork``, the fan-out is closed in the
    child and continues in the parent.

    Args:
        outputs: encoders and writers that never miss a frame. Use `add` for outputs that may drop frames.

    Raises:
        TypeError, ValueError: as for `add`.
    """

    @explains("[first, second]", when_full='when_full="drop" to add(output)')
    def __init__(self, outputs: Iterable[Encoder | Writer] = ()) -> None:
        self._outputs: list[OutputBase] = []
        self._pool_of = lru_cache(KEPT_SIZES)(partial(_SlotPool, keep_slots=KEPT_SLOTS))
        self._waiting: dict[OutputBase, PendingWrite] = {}  # outputs that do not have the newest frame yet
        self._lock = threading.RLock()  # a signal handler may close the fan-out in a call
        self._forks = exits.forks
        self._is_closed = False
        if isinstance(outputs, Encoder | Writer):
            raise TypeError(f"outputs must be a list of encoders and writers, not {outputs!r}. Pass [output]")
        for output in outputs:
            self.add(output)

    def add(self, output: Encoder | Writer, when_full: WhenFull = "block") -> None:
        """Adds an output, which gets the frames that you write after this call.

        ```python
        with FanOut() as fan_out:
            fan_out.add(Encoder("archive.mkv", fps=None, codec="ffv1"))
            fan_out.add(Encoder("preview.mp4", fps=None, size=(160, 120)), when_full="drop")
            fan_out.write(np.zeros((120, 160, 3), np.uint8), time_s=0.0)
        ```

        Args:
            output: an `Encoder`, which gets frames as its own `write` does; or a `Writer`, which gets the bytes of the
                frames as they are, in C order.
            when_full: what to do while the output's queue is full: "block" makes `write` wait, "drop" leaves the frame
                out of this output. An encoder with "drop" needs ``fps=None``, so that the other frames keep their
                times. The output sets the size of the queue: ``queue_items`` of a `Writer`, or of an `Encoder`'s
                ``settings``. Pass the encoder its ``size``: otherwise the first `write` waits until FFmpeg has started.

        Raises:
            TypeError: if `output` is neither an encoder nor a writer.
            ValueError: if the fan-out has this output already; if the output's `pixel_format`, `value_range` or
                `channels_first` differs from the encoders before; if `when_full` is unknown, or is "drop" for an
                encoder with a constant rate.
            ClosedError: if `output` or the fan-out is closed.
        """
        check_choice("when_full", when_full, get_args(WhenFull))
        if not isinstance(output, Encoder | Writer):
            raise TypeError(
                f"an output must be an Encoder or a Writer, not {type(output).__name__}. Pass Encoder(path, fps=30)"
            )
        self._check_open()
        with self._lock:
            # Again, because the thread that had the lock may have closed it.
            self._check_open()
            if any(added.target is output for added in self._outputs):
                raise ValueError(f"{output!r} is already an output of this fan-out")
            if output.closed:
                raise ClosedError(f"{output!r} is closed")
            self._outputs.append(self._output_of(output, when_full))

    def write(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> tuple[bool, ...]:
        """Writes one frame to all outputs. You can reuse the frame's memory when the call returns.

        The call waits while the queue of an output with ``when_full="block"`` is full. The wait releases the GIL, and
        Ctrl-C interrupts it. The call never waits for an output with ``when_full="drop"``.

        Args:
            frame: as for `Encoder.write`. It must suit every encoder: the same pixel format and size. Without encoders,
                any buffer. Writers get its samples as they are: floats as floats, and channels first if they are.
            time_s: time of the frame in seconds, for encoders, as for `Encoder.write`. Writers ignore it.
            timeout: seconds to wait; None waits as long as it takes. An accepted frame reaches every output that
                blocks: if the frame still waits for an output after this time, the call returns, and the next call
                waits first.

        Returns:
            Whether each output took the frame, in the order of `add`: False if its queue was full and it dropped the
            frame, or if it has failed.

        Raises:
            ValueError, TypeError: if the frame doesn't suit an encoder, or `time_s` is wrong, as for `Encoder.write`.
                No output has the frame.
            StalledError: if an output still has no room for the frame before. No output has this frame.
            EncoderError, BrokenStreamError, OSError: if all outputs have failed. This is the error of the first.
            ClosedError: if the fan-out is closed or aborted, or has no output.
        """
        self._check_open()
        deadline = Deadline(timeout)
        with self._turn(deadline):
            # As in `add`.
            self._check_open()
            self._settle(deadline)
            pending = self._pending_writes(frame, time_s)
            self._waiting = {**pending}  # a copy, because `_settle` takes outputs out of it
            _unsettled.add(self)
            exits.at_exit(_settle_all, 3)  # before encoders are closed
            # A frame that still waits is not lost: the next call, `close` or the end of the program hands it out.
            with suppress(StalledError):
                self._settle(deadline)
            return tuple(
                output.error is None
                and (output in self._waiting or output.accepted > pending[output].accepted)
                for output in self._outputs
            )

    @property
    def reports(self) -> tuple[OutputReport, ...]:
        """A report for each output so far, in the order of `add`.

        Each dropped frame takes 16 bytes until the end, and each call lists all of them.
        """
        return tuple(output.report for output in self._outputs)

    @property
    def closed(self) -> bool:
        """Whether the fan-out refuses frames: after `close` or `abort`, and after a fork."""
        return self._is_closed or self._forks != exits.forks

    def close(self, timeout: float | None = None) -> tuple[OutputReport, ...]:
        """Delivers the queued frames, closes all outputs, and returns a report for each. Failures are in the reports.

        Encoders are closed first. A writer with ``when_full="drop"`` is given up if its reader takes nothing for 5 s.
        Another call returns the same reports.

        Args:
            timeout: seconds to wait for all outputs; None waits as long as it takes.

        Raises:
            StalledError: if the outputs aren't done within `timeout`. Nothing is lost: close again, or abort to drop
                the videos.
            ClosedError: if this is the child of a fork.
        """
        check_owner("fan-out", self._forks)
        if not self._is_closed:
            deadline = Deadline(timeout)
            with self._turn(deadline):
                self._settle(deadline)
                # All of them before the first wait: Ctrl-C in a wait then makes no video shorter.
                for output in self._outputs:
                    output.note_last()
                for output in self._encoders_first():
                    output.close(deadline)
                self._is_closed = True
        return self.reports

    def abort(self) -> None:
        """Aborts all outputs, as their own `abort` does. Does nothing after `close`."""
        for output in self._given_up():
            output.target.abort()

    def _given_up(self) -> list[OutputBase]:
        """Closes the fan-out without its outputs, which the caller ends. Returns them, or none after the end."""
        if self.closed:
            return []
        self._is_closed = True
        self._waiting.clear()
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

    @contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        """Excludes other threads.

        Raises:
            StalledError: another thread had its turn until the deadline.
        """
        if not self._lock.acquire(timeout=deadline.at_most(threading.TIMEOUT_MAX)):
            raise deadline.late("another thread is still writing")
        try:
            yield
        finally:
            self._lock.release()

    def _output_of(self, target: Encoder | Writer, when_full: WhenFull) -> OutputBase:
        """The output that is added. Raises a `ValueError` if the encoder does not suit."""
        if isinstance(target, Writer):
            return WriterOutput(target, when_full)
        output = EncoderOutput(target, when_full)
        self._check_same_frames(output.plan)
        if when_full == "drop" and not output.plan.is_timed:
            raise ValueError(
                f"when_full='drop' needs an Encoder with fps=None, and {target!r} has a constant rate. Pass fps=None "
                "to that Encoder, and use fan_out.write(frame, time_s=seconds)"
            )
        return output

    def _check_same_frames(self, plan: EncodePlan) -> None:
        """Checks that the frames of an encoder with this `plan` are those of the encoders before."""
        for output in self._outputs:
            if isinstance(output, EncoderOutput) and (given := output.plan.other_frames(plan)):
                raise ValueError(
                    f"all encoders of a FanOut need the same frames as {output.target!r}. Pass {given} to the new one"
                )

    def _encoders_first(self) -> list[OutputBase]:
        return sorted(self._outputs, key=lambda output: isinstance(output, WriterOutput))

    def _alive(self) -> list[OutputBase]:
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
            raise ClosedError("the fan-out has no outputs. Call fan_out.add(encoder) first")
        return alive

    def _pending_writes(
        self, frame: FrameData, time_s: float | Fraction | None
    ) -> dict[OutputBase, PendingWrite]:
        """Copies a frame. Returns what each output is to queue of it."""
        if time_s is not None and not any(isinstance(output, EncoderOutput) for output in self._outputs):
            raise ValueError("time_s needs an Encoder, and all outputs are writers. Leave time_s out")
        # First those that know their size: a frame that does not suit them starts no others.
        for output in sorted(self._alive(), key=lambda output: not output.is_started):
            output.start(frame, time_s)
        alive = self._alive()
        uses = Counter(output.key for output in alive)
        slots: dict[ConversionKey, _Slot] = {}
        memory, nbytes = memory_and_size(frame)
        if isinstance(memory, OnDevice):
            memory = memory.copy_to(slots.setdefault(ConversionKey(), self._pool_of(nbytes).take()))
        shown_s, pending = _time_of(frame, time_s), dict[OutputBase, PendingWrite]()
        for output in alive:
            key = output.key
            # A conversion that only one output needs is left to its thread.
            used = key if key.prefix is not None or uses[key] > 1 else key.unconverted
            if used not in slots:
                slots[used] = output.filled(memory, used, self._pool_of)
            pending[output] = PendingWrite(output.item_of(slots[used], used), shown_s, output.accepted)
        return pending

    def _settle(self, deadline: Deadline) -> None:
        """Hands the newest frame to the outputs that do not have it.

        Raises:
            StalledError: an output that blocks has no room until the deadline.
        """
        for until in (_NOW, deadline):  # first without a wait: no output holds up another
            for output in [*self._waiting]:
                offer = self._waiting.get(output)  # None after another thread's `abort`
                if offer is not None and output.take(offer, until):
                    self._waiting.pop(output, None)
        if late := [*self._waiting]:
            raise deadline.late(f"{late[0].target!r} had no room")
        _unsettled.discard(self)

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
            self._settle(Deadline(exits.STALL_S))
        except StalledError as stalled:
            error.add_note(f"and a frame was lost: {stalled}")
        for output in self._encoders_first():
            output.finish_during(error)
        self._is_closed = True
        _unsettled.discard(self)


def _time_of(frame: FrameData, time_s: float | Fraction | None) -> float | None:
    """The time that a frame was written with, or else that of a decoded frame."""
    time_s = getattr(frame, "time_s", None) if time_s is None else time_s
    return None if time_s is None else float(time_s)


# Fan-outs whose last frame waits for an output.
_unsettled: set[FanOut] = set()


def _settle_all() -> None:
    # A copy, because `_settle` takes a fan-out that has settled out of the set.
    for fan_out in list(_unsettled):
        if not fan_out.closed:
            try:
                fan_out._settle(Deadline(exits.STALL_S))
            except StalledError as stalled:
                exits.report_loss(f"a frame was lost: {stalled}")
