"""The `Encoder`: raw frames in, a video file out."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import shlex
import subprocess
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock._asyncio import until_done
from penstock._native import AppliedPolicy, ThreadPolicy, Ticket, Writer, _count, _seconds, _SlotPool
from penstock._types import Mode
from penstock.errors import (
    BrokenStreamError,
    ClosedError,
    EncoderError,
    FFmpegWarning,
    PenstockError,
    StalledError,
)
from penstock.ffmpeg import endpoints
from penstock.ffmpeg.capabilities import check_codec
from penstock.ffmpeg.diagnostics import explain
from penstock.ffmpeg.find import find_ffmpeg
from penstock.ffmpeg.frame_check import frame_buffer
from penstock.ffmpeg.lease import seal, view_of
from penstock.ffmpeg.plan import ColorMatrix, ColorRange, Convert, OddSize, Wish, all_options, plan_encode
from penstock.ffmpeg.process import WATCH_INTERVAL_S, FFmpegProcess, Watch, checked_stall_timeout
from penstock.ffmpeg.reporter import Reporter
from penstock.ffmpeg.stats import EncoderStats

R = TypeVar("R")

_logger = logging.getLogger("penstock")

# After this long without a sign of life, an FFmpeg that nobody waits for knowingly is killed: as long as the
# native writers give a reader at exit.
STUCK_S = 5.0
# How often a wait for FFmpeg looks whether it lives. Chosen: much shorter than anybody's `stall_timeout_s`.
LOOK_INTERVAL_S = 0.5
FULL = "FFmpeg did not take enough of what is queued for it"
# What may wait for FFmpeg: so many frames and bytes, but four frames of any size. What lies longer in memory is cold
# when FFmpeg reads it, and its pages are fresh at the start. Measured, 2-core x86-64 VM, x264 ultrafast, 2026-11-22: at
# 2160p `write` has 0.96, 0.97 and 0.99 of `submit`'s frame rate with 16, 8 and 4 frames; up to 1080p they are equal.
QUEUE_FRAMES = 16
QUEUE_BYTES = 24 << 20
LEAST_QUEUE_FRAMES = 4
# Leased frames that nobody has any more and that are kept: one is drawn into while another is read, and one to spare.
KEPT_SLOTS = 3


@dataclass(frozen=True, slots=True)
class EncodeReport:
    """What an `Encoder` delivered.

    Attributes:
        output: the absolute path of the file, or the URL, that FFmpeg wrote to.
        frames_submitted: frames that ``write`` accepted.
        frames_encoded: frames that FFmpeg reported as encoded; the same number, or there is no report.
        bytes_submitted: bytes of the submitted frames.
        output_bytes: size of the file at the end; None if the output is not a regular file.
        seconds: from the start of FFmpeg to its end.
        fps: frames encoded a second of that time.
        warnings: what the video does not hold of the frames, and what FFmpeg itself called an error or a warning, such
            as an option that nothing used.
    """

    output: str
    frames_submitted: int
    frames_encoded: int
    bytes_submitted: int
    output_bytes: int | None
    seconds: float
    fps: float
    warnings: tuple[str, ...] = ()


class Encoder:
    """Encodes raw frames with FFmpeg, which it starts and feeds from a native thread.

    ```python
    with Encoder("out.mp4", size=(1920, 1080), fps=60) as encoder:
        for frame in frames:
            encoder.write(frame)
    ```

    ``write`` takes a frame: its memory is yours again when the call returns. ``frame()`` leases memory to draw into,
    which saves that copy. ``submit`` borrows memory of yours, until its ticket is done.

    An existing output file is overwritten. FFmpeg runs in a process group of its own, so that Ctrl-C
    interrupts Python only, and FFmpeg can finish the file. Leaving the ``with`` block by an exception
    finishes what was submitted and lets the exception through; an FFmpeg that gives no sign of life for 5 s
    is killed then, and what went wrong is added to the exception as a note. An encoder that is never closed
    is finished in the same way when it is collected or at the interpreter's exit, with a `ResourceWarning`.

    In a process made by ``fork``, an inherited encoder is closed; it goes on in the parent.

    Args:
        output: the file to write: a path, or a URL that FFmpeg knows. A `str` with ``://`` is taken as a URL,
            all else is a local path, whatever its characters.
        size: width and height in pixels.
        fps: frames per second, more than 0. ``Fraction(30000, 1001)`` is exact; a float becomes the nearest
            fraction with a denominator of at most a million.
        pixel_format: layout of the frames handed to ``write``, one of
            `penstock.ffmpeg.pixels.PIXEL_FORMATS`.
        codec: FFmpeg's name of the video encoder (``ffmpeg -encoders``).
        crf: constant quality, if the codec has that option. A lower number is better and makes a larger file; libx264
            takes 0 to 51, and 23 by default.
        preset: how hard the codec works for a small file, if it has that option: "ultrafast" to "veryslow" of libx264.
        options: FFmpeg's output options without their dash, ``{"tune": "film", "g": 60}``. A value of None gives an
            option without a value, and a list gives the option once for each of its values,
            ``{"metadata": ["title=x", "artist=y"]}``. Options that change the number of frames (``r``, ``t``,
            ``vf`` with ``fps``) make ``close`` raise, for it compares the frames submitted and encoded.
        output_pixel_format: pixel format of the video. "auto" keeps the samples of the frames for a lossless codec
            (ffv1, png, rawvideo) and keeps alpha where the codec has it. Otherwise it is yuv420p, or what the codec has
            nearest to it: yuv420p plays everywhere and needs an even width and height. If this drops alpha or bits,
            an `FFmpegWarning` says so. None leaves the choice to FFmpeg.
        convert: who makes `output_pixel_format` of `pixel_format`: "native", the worker while it copies; "ffmpeg";
            or "auto", the worker where it can, and FFmpeg where it cannot. The worker makes yuv420p, yuv422p,
            yuv444p (of 8 or 10 bits) and nv12 of 8-bit and 16-bit RGB and of gray.
        color_matrix: how YUV stands for RGB: "bt601", "bt709", "bt2020", or "auto": BT.709 from 720 lines on, and
            BT.601 below. Written to the file. For frames that are YUV already: what they were made with.
        color_range: "limited" (black at 16, white at 235 of 8 bits) or "full". Motion JPEG always has "full".
        odd_size: what to do with a width or height that `output_pixel_format` cannot have: "error", "pad" (the
            last column or row twice) or "crop" (without it).
        vflip: the first row in memory is the picture's lowest, as OpenGL has it.
        progress: True draws a bar on standard error; a callable is called with an
            `EncoderStats` twice a second, on a thread of its own, and once at the end.
        total_frames: how many frames there will be, for the bar.
        stall_timeout_s: ``write`` and ``close`` raise `StalledError` when they have waited so long for an FFmpeg
            that gave no sign of life: no frame, and no CPU time used. None waits for ever.
        container_format: FFmpeg's name of the container (``ffmpeg -muxers``); None takes it from the file's
            name.
        ffmpeg: the program; None finds one (see `penstock.ffmpeg.find_ffmpeg`). It must itself ``read`` its
            standard input: one that splices it onward, as ``pv`` does, must not be given zero-copy writes.
        queue_items: frames that may wait for FFmpeg before ``write`` does.
        queue_bytes: bytes of these frames, as FFmpeg gets them; None is 24 MiB, or four frames where those are more.
        mode, capacity_bytes, policy: as for `penstock.Writer`.
        ffmpeg_policy: priority and CPUs of FFmpeg, all of its threads. With ``near=threading.get_native_id()`` here
            and in `policy`, FFmpeg and the writer share the L3 cache of the thread that renders.

    Raises:
        ValueError: `size`, `fps` or `pixel_format` is not possible; the size is odd and `output_pixel_format` needs an
            even one; the codec lacks `output_pixel_format`, `crf` or `preset`; or one of these is in `options`, too.
        FileNotFoundError: the output's folder does not exist.
        EncoderError: FFmpeg was not found, or could not be started.
    """

    _unfinished = False  # until FFmpeg runs, there is nothing to finish

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        size: tuple[int, int],
        fps: int | float | Fraction,
        pixel_format: str = "rgb24",
        codec: str = "libx264",
        crf: float | str | None = None,
        preset: str | None = None,
        options: Mapping[str, object] | None = None,
        output_pixel_format: str | None = "auto",
        convert: Convert = "auto",
        color_matrix: ColorMatrix = "auto",
        color_range: ColorRange = "limited",
        odd_size: OddSize = "error",
        vflip: bool = False,
        progress: bool | Callable[[EncoderStats], object] = False,
        total_frames: int | None = None,
        stall_timeout_s: float | None = 60.0,
        container_format: str | None = None,
        ffmpeg: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        queue_items: int = QUEUE_FRAMES,
        queue_bytes: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | None = None,
        ffmpeg_policy: ThreadPolicy | None = None,
    ) -> None:
        program = find_ffmpeg(ffmpeg)
        options = all_options(program, codec, options or {}, crf, preset)
        self._target = endpoints.target(output, container_format)
        wish = Wish(
            size=size,
            fps=fps,
            pixel_format=pixel_format,
            codec=codec,
            options=options,
            output_pixel_format=output_pixel_format,
            container_format=container_format,
            convert=convert,
            color_matrix=color_matrix,
            color_range=color_range,
            odd_size=odd_size,
            vflip=vflip,
        )
        self._plan = plan_encode(program, self._target, wish)
        check_codec(program, codec)
        for lost in self._plan.warnings:
            warnings.warn(lost, FFmpegWarning, stacklevel=2)
        self._explain = partial(explain, program, codec, options, container_format, self._target)
        self._stall_timeout_s = checked_stall_timeout(stall_timeout_s)
        total_frames = None if total_frames is None else _count("total_frames", total_frames)
        self._aborted = self._inherited = False
        self._report: EncodeReport | None = None
        self._slots = _SlotPool(self._plan.layout.frame_bytes, KEPT_SLOTS)
        self._taken = _SlotPool(self._plan.fed.frame_bytes, KEPT_SLOTS)
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )
        self._closing_at_s: float | None = None
        self._reporter = Reporter.of(progress, total_frames, self._plan.rate)
        self._process = FFmpegProcess(
            program,
            self._plan.arguments,
            ffmpeg_policy,
            is_fed=True,
            is_strict=True,
            stdout=None if endpoints.uses_stdout(self._target) else subprocess.DEVNULL,
            with_warnings=True,
            error=EncoderError,
        )
        if queue_bytes is None:
            queue_bytes = max(QUEUE_BYTES, LEAST_QUEUE_FRAMES * self._plan.fed.frame_bytes)
        try:
            self._process.start()
            self._writer = Writer(
                self._process.stdin,
                mode=mode,
                queue_bytes=queue_bytes,
                queue_items=queue_items,
                capacity_bytes=capacity_bytes,
                policy=policy,
                reader="reads",  # FFmpeg's pipe protocol takes bytes with read(2), which allows zero-copy
                conversion=self._plan.conversion,
            )
            self._unfinished = True
            _unfinished_encoders.add(self)
            if self._reporter is not None:
                self._reporter.start(_looking_at(weakref.ref(self)))
        except BaseException:  # a signal handler's, say: nothing is left of what was begun
            self._unfinished = False
            _unfinished_encoders.discard(self)
            self._process.end()
            if hasattr(self, "_writer"):
                self._writer.abort()
            raise

    @property
    def report(self) -> EncodeReport | None:
        """What ``close`` returned, also where leaving the ``with`` block closed; None before."""
        return self._report

    @property
    def stats(self) -> EncoderStats:
        """What was done so far: frames submitted, written and encoded, and who waited for whom."""
        writer, process = self._writer.stats, self._process
        seconds, taking_s = process.seconds, self._taken.filling_s + self._slots.filling_s
        fed_s = seconds if self._closing_at_s is None else self._closing_at_s
        fps = process.frames / seconds
        return EncoderStats(
            frames_submitted=writer.items_accepted,
            frames_written=writer.bytes_delivered // self._plan.fed.frame_bytes,
            frames_encoded=process.frames,
            bytes_written=writer.bytes_delivered,
            output_bytes=process.output_bytes,
            seconds=seconds,
            fps=fps,
            speed=fps / float(self._plan.rate),
            queue_blocked_s=writer.caller_wait_s,
            ffmpeg_blocked_s=writer.output_wait_s,
            caller_idle_s=max(0.0, fed_s - writer.busy_s - taking_s),
            converting_s=writer.converting_s + taking_s,
            writer=writer,
        )

    @property
    def bottleneck(self) -> str:
        """Who is the slowest so far, in words: the caller, the conversion or FFmpeg."""
        return self.stats.bottleneck

    @property
    def converted_by(self) -> str | None:
        """Who makes the video's pixels of the caller's: "penstock", "ffmpeg", or None if they are the same."""
        return self._plan.converted_by

    @property
    def pid(self) -> int:
        """FFmpeg's process id."""
        return self._process.pid

    @property
    def ffmpeg_policy(self) -> AppliedPolicy | None:
        """What FFmpeg was started with; None without a policy for it."""
        return self._process.policy

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self._plan.layout.frame_bytes

    @property
    def frames_submitted(self) -> int:
        """Frames that ``write`` accepted."""
        return self._writer.stats.items_accepted

    @property
    def frames_encoded(self) -> int:
        """Frames that FFmpeg has encoded, by its own report, which it gives about twice a second."""
        return self._process.frames

    @property
    def closed(self) -> bool:
        """Whether it takes no more frames: after ``close``, ``abort`` or FFmpeg's failure."""
        return not self._unfinished

    def write(self, frame: Any, *, timeout: float | None = None) -> Ticket:
        """Takes one frame and queues it; waits while the queue is full. The frame's memory is yours again afterwards.

        The bytes are copied or converted before the call returns, without the GIL.
        The wait releases the GIL and lets Ctrl-C through.

        Args:
            frame: a NumPy array, or any buffer, a tensor in the CPU's memory, a PIL image, a ``moderngl.Buffer``.
                Its shape is height × width × channels for packed pixel formats, height × width for gray, and the
                planes one after another for planar ones; its dtype is uint8, uint16 for formats of more than 8 bits,
                or float32. It need not be contiguous: ``frame[::-1]`` and ``frame[..., ::-1]`` are taken as they look.
                Bytes and flat arrays are taken by their size, ``frame_bytes``.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, done when FFmpeg has the frame. Nothing has to be done with it; ``await`` works.

        Raises:
            ValueError: the frame has another shape, dtype, size or byte order.
            TypeError: it is no buffer.
            StalledError: no room within `timeout`, or FFmpeg gave no sign of life for ``stall_timeout_s``; the frame
                is not queued.
            EncoderError: FFmpeg has failed; its words are in the message.
            ClosedError: after ``close`` or ``abort``.
        """
        return self._queue(self._take(frame), timeout)

    async def awrite(self, frame: Any, *, timeout: float | None = None) -> Ticket:
        """`write` for asyncio: while the queue is full, the event loop goes on.

        Of several tasks that wait, the first to call is the first to be served.

        Args:
            frame, timeout: as for `write`. The memory must stay as it is until this returns.

        Raises:
            As `write`.
        """
        timeout = _seconds("timeout", timeout)
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            deadline_s = None if timeout is None else time.monotonic() + timeout
            push = self._take(frame)
            watch: Watch | None = None
            while True:
                try:
                    return push(timeout=0)
                except BrokenStreamError as broken:
                    raise await asyncio.to_thread(self._failure) from broken
                except StalledError as full:
                    bytes_pending = full.bytes_pending
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise StalledError(f"{FULL} within {timeout:.3g} s", timeout or 0.0, bytes_pending)
                watch = watch or Watch(self._process)
                await self._until_room(_left_s(deadline_s))
                self._check_alive(watch, bytes_pending)

    def submit(self, frame: Any, *, timeout: float | None = None) -> Ticket:
        """Queues one frame without a copy: its memory must stay unchanged until the ticket is done.

        For programs that keep several buffers in turn and wait for each one's ticket before they draw into it again. A
        change before that makes a wrong frame, which nobody can notice: where in doubt, use `write` or `frame`. The
        bytes of a ``moderngl.Buffer`` are copied at the call.

        Args:
            frame: as for `write`, but C-contiguous.
            timeout: as for `write`.

        Returns:
            A ticket, done when FFmpeg has the frame and its memory is yours again; ``ticket.wait()``, ``await ticket``.

        Raises:
            As `write`; ValueError also for a frame that is not C-contiguous.
        """
        self._check_open()
        buffer = frame_buffer(frame, self._plan.layout)
        return self._queue(partial(self._writer.write, buffer), timeout)

    @contextmanager
    def frame(self, *, timeout: float | None = None) -> Iterator[Any]:
        """Leases memory for one frame, and submits it without a copy when the block is left.

        ```python
        with encoder.frame() as view:
            framebuffer.read_into(view)
        ```

        What is in the memory at first is undefined. A block that raises submits nothing. The view turns read-only
        at the block's end; its memory is leased again when FFmpeg has read it, or it was converted, and nobody has
        the view any more.

        Args:
            timeout: as for `write`, which waits at the block's end.

        Yields:
            A writable NumPy array, page-aligned: height × width × channels of uint8 or uint16 for packed pixel
            formats, height × width for gray, and all samples in one dimension for planar ones.

        Raises:
            As `write`.
        """
        timeout = _seconds("timeout", timeout)
        self._check_open()
        slot = self._slots.take()
        view = view_of(slot, self._plan.layout)
        yield view
        seal(view)
        self._check_open()
        self._queue(partial(self._writer.write, slot), timeout)

    def close(self, timeout: float | None = None) -> EncodeReport:
        """Finishes the video: delivers what is queued, ends FFmpeg's input and waits until it is done.

        May be called again: with the same report, or with the same failure. The wait lets Ctrl-C through,
        after which the encoder is as it was, and can be closed again or aborted.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            EncoderError: FFmpeg failed, or encoded another number of frames than were submitted.
            StalledError: not done within `timeout`, or FFmpeg gave no sign of life for ``stall_timeout_s``. Nothing is
                lost: close again, or abort.
            ClosedError: the encoder was aborted.
        """
        timeout = _seconds("timeout", timeout)
        if self._report is not None:
            return self._report
        self._check_not_given_up()
        if self._closing_at_s is None:
            self._closing_at_s = self._process.seconds
        deadline_s = None if timeout is None else time.monotonic() + timeout
        self._deliver(deadline_s)
        self._process.close_pipes()
        self._wait(_left_s(deadline_s), self._await_end)
        self._finished()
        if not self._process.has_succeeded or self.frames_encoded != self.frames_submitted:
            raise self._error()
        self._report = self._make_report()
        return self._report

    def abort(self) -> None:
        """Kills FFmpeg and drops what is queued; the output stays as it is. Does nothing after ``close``."""
        if not self._unfinished:
            return
        self._aborted = True
        self._process.end()
        self._writer.abort()
        self._finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._aborted:
            return
        try:
            if exc is None:
                self._close_in_spite_of_ctrl_c()
            else:
                self._finish_during(exc)
        except BaseException:  # a second Ctrl-C, say: whoever leaves the block leaves nothing running
            self.abort()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exiting = asyncio.ensure_future(asyncio.to_thread(self.__exit__, exc_type, exc, traceback))
        try:
            await asyncio.shield(exiting)
        except asyncio.CancelledError as cancelled:
            await self._go_on_exiting(exiting, is_second=isinstance(exc, asyncio.CancelledError))
            raise cancelled from None

    async def _go_on_exiting(self, exiting: asyncio.Future[None], *, is_second: bool) -> None:
        """After a cancellation, which is asyncio's Ctrl-C: the first lets the video be finished, a second ends all."""
        if not is_second:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(exiting)
        if not exiting.done():
            # The thread is not ours to stop: it ends because FFmpeg has, and its failure is our doing.
            exiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.to_thread(self.abort)

    def __del__(self) -> None:
        if not self._unfinished:
            return
        try:
            # Not here: this may be any thread, in the middle of anything, and FFmpeg may take long.
            threading.Thread(target=self._finish_forgotten, name="penstock-encoder-finish").start()
        except RuntimeError:  # the interpreter is ending: FFmpeg gets its end of file, and finishes alone
            self._process.close_pipes()
        _warn_unclosed(self)

    def __repr__(self) -> str:
        layout = self._plan.layout
        size = f"{layout.width}x{layout.height}"
        return f"<Encoder {endpoints.without_protocol(self._target)!r} {size} {layout.pixel_format}>"

    def _check_open(self) -> None:
        self._check_not_given_up()
        if self._report is not None:
            raise ClosedError("the encoder is closed")
        if not self._unfinished:
            raise self._error()

    def _check_not_given_up(self) -> None:
        if self._aborted:
            raise ClosedError("the encoder was aborted")
        if self._inherited:
            raise ClosedError("the encoder belongs to the process that made it, of which this one is a fork")

    def _take(self, frame: Any) -> Callable[..., Ticket]:
        """Takes the frame's bytes into memory of ours. Returns what queues that.

        A worker that has nothing to do gets a copy and converts it: a caller in step with real time waits for the copy
        only. Where frames wait, they are converted here, which saves that copy: a tenth of all CPU time with x264
        ultrafast (2-core x86-64 VM, 2026-11-22), of which FFmpeg has none to spare then.
        """
        self._check_open()
        buffer, conversion = frame_buffer(frame, self._plan.layout), self._plan.conversion
        if conversion is not None and self._writer._oldest() is None:
            return partial(self._writer.write, self._slots.filled(buffer))
        return partial(self._writer._write_made, self._taken.filled(buffer, conversion))

    def _queue(self, push: Callable[..., Ticket], timeout: float | None) -> Ticket:
        timeout = _seconds("timeout", timeout)
        try:
            return self._wait(timeout, lambda slice_s: push(timeout=slice_s))
        except BrokenStreamError as broken:
            raise self._failure() from broken

    async def _until_room(self, left_s: float | None) -> None:
        """Waits until a frame has ended, or it is time to look whether FFmpeg lives."""
        oldest = self._writer._oldest()
        if oldest is None:  # all have ended, and the worker is about to take them out of the queue
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            patience_s = LOOK_INTERVAL_S if left_s is None else min(left_s, LOOK_INTERVAL_S)
            await asyncio.wait_for(until_done(oldest), patience_s)

    def _deliver(self, deadline_s: float | None) -> None:
        if self._writer.closed:
            return
        try:
            # A flush that is late leaves the writer open, so that a second close can go on from there.
            self._wait(_left_s(deadline_s), self._writer.flush)
            self._writer.close()
        except BrokenStreamError as broken:
            raise self._failure() from broken

    def _await_end(self, timeout_s: float) -> None:
        if not self._process.wait(timeout_s):
            raise StalledError("FFmpeg has all frames, but was not done", timeout_s)

    def _wait(self, timeout: float | None, step: Callable[[float], R]) -> R:
        """Waits for `step`, which waits for FFmpeg and is late with a `StalledError`, for as long as FFmpeg lives."""
        start_s = time.monotonic()
        watch: Watch | None = None
        while True:
            left_s = LOOK_INTERVAL_S if timeout is None else start_s + timeout - time.monotonic()
            try:
                return step(max(0.0, min(left_s, LOOK_INTERVAL_S)))
            except StalledError as late:
                if left_s <= LOOK_INTERVAL_S and timeout is not None:
                    words = f"{FULL if late.bytes_pending else late} within {timeout:.3g} s"
                    raise StalledError(words, timeout, late.bytes_pending) from None
                watch = watch or Watch(self._process)
                self._check_alive(watch, late.bytes_pending)

    def _check_alive(self, watch: Watch, bytes_pending: int) -> None:
        idle_s = watch.idle_s()
        if self._stall_timeout_s is None or idle_s < self._stall_timeout_s:
            return
        said = self._process.stderr or "(nothing)"
        raise StalledError(
            f"FFmpeg gave no sign of life for {idle_s:.1f} s; it had encoded {self.frames_encoded} frames\n"
            f"it said: {said}",
            idle_s,
            bytes_pending,
        )

    def _failure(self) -> EncoderError:
        """The error of an FFmpeg that takes no more frames, once it has ended and said why."""
        self._writer.abort()
        self._process.close_pipes()
        self._process.wait_unless_stuck(STUCK_S)
        self._finished()
        return self._error()

    def _error(self) -> EncoderError:
        process = self._process
        said = process.stderr or "(nothing)"
        advice = self._explain(process.stderr) if process.stderr else None
        advice = f"what to do: {advice}\n" if advice else ""
        warned = "".join(f"it warned: {line}\n" for line in process.warnings)
        message = (
            f"FFmpeg {process.ending}; it had encoded {process.frames} "
            f"of {self.frames_submitted} submitted frames\n"
            f"it said: {said}\n{advice}{warned}"
            f"command: {shlex.join(process.command)}"
        )
        return EncoderError(
            message,
            returncode=process.returncode,
            command=process.command,
            stderr=process.stderr,
            frames=process.frames,
        )

    def _make_report(self) -> EncodeReport:
        # FFmpeg has ended well; what it called an error all the same may matter more than a warning.
        told = (*self._process.errors, *self._process.warnings)
        for line in told:
            _logger.warning("FFmpeg: %s", line)
        stats = self._writer.stats
        seconds = self._process.seconds
        return EncodeReport(
            output=endpoints.without_protocol(self._target),
            frames_submitted=stats.items_accepted,
            frames_encoded=self.frames_encoded,
            bytes_submitted=stats.items_accepted * self.frame_bytes,
            output_bytes=endpoints.file_bytes(self._target),
            seconds=seconds,
            fps=self.frames_encoded / seconds,
            warnings=(*self._plan.warnings, *told),
        )

    def _close_in_spite_of_ctrl_c(self) -> None:
        try:
            self.close()
        except KeyboardInterrupt as interrupt:
            self._finish_during(
                interrupt
            )  # a playable file of what was submitted; a second Ctrl-C gets through
            raise

    def _finish_during(self, exc: BaseException) -> None:
        """Finishes the video while `exc` is on its way, and never gets in its way."""
        error = self._finish()
        if error is not None and not isinstance(exc, EncoderError):  # which has said it already
            exc.add_note(f"and {self!r} could not be finished: {error}")

    def _finish_forgotten(self) -> None:
        error = self._finish()
        if error is not None:
            # Not a ResourceWarning, which Python hides by default: frames are lost, and nobody else is told.
            warnings.warn(f"{self!r} could not be finished: {error}", RuntimeWarning, stacklevel=2)

    def _finish(self) -> Exception | None:
        """Closes if FFmpeg lets us, leaves nothing running if not, and returns what went wrong."""
        try:
            self._close_unless_stuck()
        except (PenstockError, OSError) as error:
            self.abort()
            return error
        return None

    def _close_unless_stuck(self) -> None:
        watch = Watch(self._process)
        while True:
            try:
                self.close(timeout=WATCH_INTERVAL_S)
            except StalledError:
                if watch.idle_s() < STUCK_S:
                    continue
                message = f"FFmpeg gave no sign of life for {STUCK_S} s and was killed"
                raise StalledError(message, STUCK_S) from None
            return

    def _finished(self) -> None:
        self._unfinished = False
        _unfinished_encoders.discard(self)
        if self._reporter is not None:
            self._reporter.stop(self.stats)

    def _disown(self) -> None:
        # A copy of the pipe's end in a forked child would keep FFmpeg waiting for more.
        self._inherited, self._unfinished = True, False
        self._process.close_pipes()


_unfinished_encoders: weakref.WeakSet[Encoder] = weakref.WeakSet()


@atexit.register
def _finish_all_at_exit() -> None:
    for encoder in list(_unfinished_encoders):
        encoder._finish_forgotten()
        _warn_unclosed(encoder)


def _disown_all_in_child() -> None:
    for encoder in list(_unfinished_encoders):
        encoder._disown()
    _unfinished_encoders.clear()


os.register_at_fork(after_in_child=_disown_all_in_child)


def _warn_unclosed(encoder: Encoder) -> None:
    warnings.warn(f"{encoder!r} was never closed", ResourceWarning, source=encoder, stacklevel=3)


def _looking_at(encoder: weakref.ref[Encoder]) -> Callable[[], EncoderStats | None]:
    """What looks at an unfinished encoder's statistics, and does not keep it from being collected."""

    def look() -> EncoderStats | None:
        alive = encoder()
        return None if alive is None or not alive._unfinished else alive.stats

    return look


def _left_s(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
