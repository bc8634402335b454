"""The `Encoder`: raw frames in, a video file out."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from penstock._native import AppliedPolicy, ThreadPolicy, Ticket, Writer, WriterStats
from penstock._types import Mode
from penstock.errors import BrokenStreamError, ClosedError, EncoderError, PenstockError, StalledError
from penstock.ffmpeg import command
from penstock.ffmpeg.find import find_ffmpeg
from penstock.ffmpeg.pixels import frame_layout
from penstock.ffmpeg.process import WATCH_INTERVAL_S, FFmpegProcess, Watch

# After this long without a sign of life, an FFmpeg that nobody waits for knowingly is killed: as long as the
# native writers give a reader at exit.
STUCK_S = 5.0


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
    """

    output: str
    frames_submitted: int
    frames_encoded: int
    bytes_submitted: int
    output_bytes: int | None
    seconds: float
    fps: float


class Encoder:
    """Encodes raw frames with FFmpeg, which it starts and feeds from a native thread.

    ```python
    with Encoder("out.mp4", size=(1920, 1080), fps=60) as encoder:
        for frame in frames:
            encoder.write(frame)
    ```

    A frame's memory must stay unchanged until its ticket is done: ``write`` queues, it does not copy. (The
    bytes of a ModernGL buffer are the exception: they are copied at the call.)

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
        options: FFmpeg's output options without their dash, ``{"preset": "ultrafast", "crf": 18}``. A value
            of None gives an option without a value. Options that change the number of frames (``r``, ``t``,
            ``vf`` with ``fps``) make ``close`` raise, for it compares the frames submitted and encoded.
        output_pixel_format: pixel format of the video. The default plays everywhere, and needs an even width
            and height. None leaves the choice to FFmpeg.
        container_format: FFmpeg's name of the container (``ffmpeg -muxers``); None takes it from the file's
            name.
        ffmpeg: the program; None finds one (see `penstock.ffmpeg.find_ffmpeg`). It must itself ``read`` its
            standard input: one that splices it onward, as ``pv`` does, must not be given zero-copy writes.
        mode, queue_items, queue_bytes, capacity_bytes, policy: as for `penstock.Writer`.
        ffmpeg_policy: priority and CPUs of FFmpeg, all of its threads. With ``near=threading.get_native_id()`` here
            and in `policy`, FFmpeg and the writer share the L3 cache of the thread that renders.

    Raises:
        ValueError: `size`, `fps` or `pixel_format` is not possible, or the size is odd and
            `output_pixel_format` needs an even one.
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
        options: Mapping[str, object] | None = None,
        output_pixel_format: str | None = "yuv420p",
        container_format: str | None = None,
        ffmpeg: str | os.PathLike[str] | None = None,
        mode: Mode = "auto",
        queue_items: int | None = None,
        queue_bytes: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | None = None,
        ffmpeg_policy: ThreadPolicy | None = None,
    ) -> None:
        self._layout = frame_layout(pixel_format, *command.checked_size(size))
        self._target = command.target(output)
        options = {} if options is None else options
        command.check_even(self._layout, output_pixel_format, options)
        arguments = [
            *command.input_arguments(self._layout, command.frame_rate(fps)),
            *command.output_arguments(self._target, codec, output_pixel_format, options, container_format),
        ]
        self._aborted = self._inherited = False
        self._report: EncodeReport | None = None
        self._process = FFmpegProcess(find_ffmpeg(ffmpeg), arguments, ffmpeg_policy)
        try:
            self._writer = Writer(
                self._process.stdin,
                mode=mode,
                queue_bytes=queue_bytes,
                queue_items=queue_items,
                capacity_bytes=capacity_bytes,
                policy=policy,
                reader="reads",  # FFmpeg's pipe protocol takes bytes with read(2), which allows zero-copy
            )
        except BaseException:
            self._process.end()
            raise
        self._unfinished = True
        _unfinished_encoders.add(self)

    @property
    def stats(self) -> WriterStats:
        """What the native writer did: transport and why, bytes accepted and delivered, times blocked."""
        return self._writer.stats

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
        return self._layout.frame_bytes

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
        """Queues one frame and returns its ticket; waits while the queue is full.

        The wait releases the GIL and lets Ctrl-C through.

        Args:
            frame: C-contiguous buffer of exactly ``frame_bytes`` bytes, of any shape and dtype: height × width ×
                channels for packed pixel formats, the planes one after another for planar ones. Anything that
                `penstock.Writer.write` takes.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Raises:
            ValueError: the frame has another size, or is not C-contiguous.
            TypeError: it is no buffer.
            StalledError: no room within `timeout`; the frame is not queued.
            EncoderError: FFmpeg has failed; its words are in the message.
            ClosedError: after ``close`` or ``abort``.
        """
        self._check_open()
        self._check_frame(frame)
        try:
            return self._writer.write(frame, timeout=timeout)
        except BrokenStreamError as broken:
            raise self._failure() from broken

    def close(self, timeout: float | None = None) -> EncodeReport:
        """Finishes the video: delivers what is queued, ends FFmpeg's input and waits until it is done.

        May be called again: with the same report, or with the same failure. The wait lets Ctrl-C through,
        after which the encoder is as it was, and can be closed again or aborted.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            EncoderError: FFmpeg failed, or encoded another number of frames than were submitted.
            StalledError: not done within `timeout`. Nothing is lost: close again, or abort.
            ClosedError: the encoder was aborted.
        """
        if self._report is not None:
            return self._report
        self._check_not_given_up()
        deadline_s = None if timeout is None else time.monotonic() + timeout
        self._deliver(deadline_s)
        self._process.close_stdin()
        if not self._process.wait(_left_s(deadline_s)):
            raise StalledError(f"FFmpeg has all frames, but was not done within {timeout} s", timeout or 0.0)
        self._finished()
        if self._process.returncode != 0 or self.frames_encoded != self.frames_submitted:
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
                self.close()
            else:
                self._finish_during(exc)
        except BaseException:  # Ctrl-C while waiting, say: whoever leaves the block leaves nothing running
            self.abort()
            raise

    def __del__(self) -> None:
        if not self._unfinished:
            return
        try:
            # Not here: this may be any thread, in the middle of anything, and FFmpeg may take long.
            threading.Thread(target=self._finish_forgotten, name="penstock-encoder-finish").start()
        except RuntimeError:  # the interpreter is ending: FFmpeg gets its end of file, and finishes alone
            self._process.close_stdin()
        _warn_unclosed(self)

    def __repr__(self) -> str:
        size = f"{self._layout.width}x{self._layout.height}"
        return f"<Encoder {command.without_protocol(self._target)!r} {size} {self._layout.pixel_format}>"

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

    def _check_frame(self, frame: Any) -> None:
        if (nbytes := _nbytes(frame)) == self._layout.frame_bytes:
            return
        shape = getattr(frame, "shape", None)
        got = f"{nbytes} bytes" if shape is None else f"{tuple(shape)}, {nbytes} bytes"
        layout = self._layout
        raise ValueError(
            f"wrong size of frame: got {got}; "
            f"a {layout.pixel_format} frame of {layout.width}x{layout.height} pixels is {layout}"
        )

    def _deliver(self, deadline_s: float | None) -> None:
        if self._writer.closed:
            return
        try:
            # A flush that is late leaves the writer open, so that a second close can go on from there.
            self._writer.flush(_left_s(deadline_s))
            self._writer.close()
        except BrokenStreamError as broken:
            raise self._failure() from broken

    def _failure(self) -> EncoderError:
        """The error of an FFmpeg that takes no more frames, once it has ended and said why."""
        self._writer.abort()
        self._process.close_stdin()
        self._process.wait_unless_stuck(STUCK_S)
        self._finished()
        return self._error()

    def _error(self) -> EncoderError:
        process = self._process
        said = process.stderr or "(nothing)"
        message = (
            f"FFmpeg {_ending(process.returncode)}; it had encoded {process.frames} "
            f"of {self.frames_submitted} submitted frames\n"
            f"it said: {said}\n"
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
        stats = self._writer.stats
        seconds = self._process.seconds
        return EncodeReport(
            output=command.without_protocol(self._target),
            frames_submitted=stats.items_accepted,
            frames_encoded=self.frames_encoded,
            bytes_submitted=stats.bytes_accepted,
            output_bytes=command.file_bytes(self._target),
            seconds=seconds,
            fps=self.frames_encoded / seconds,
        )

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

    def _disown(self) -> None:
        # A copy of the pipe's end in a forked child would keep FFmpeg waiting for more.
        self._inherited, self._unfinished = True, False
        self._process.close_stdin()


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


def _nbytes(frame: Any) -> int:
    if hasattr(frame, "mglo"):  # a moderngl.Buffer: a memoryview would map it, and wait for the GPU
        return int(frame.size)
    try:
        with memoryview(frame) as view:
            return view.nbytes
    except TypeError:
        nbytes = getattr(frame, "nbytes", None)  # a torch tensor, say, which is no buffer itself
        if isinstance(nbytes, int):
            return nbytes
        raise


def _left_s(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "still runs"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
