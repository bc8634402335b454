"""Capture of rendered pictures into a video, without waiting for the GPU.

`Capture` reads pictures from a ``moderngl.Framebuffer``, or from any renderer with two small methods.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import deque
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, cast

from penstock._common.messages import in_short, plural
from penstock._common.types import PictureRead, PictureSource
from penstock._encoding.encoder import Encoder
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._formats.pixel_formats import OPENGL
from penstock._native import _copy, _count
from penstock.errors import ClosedError

if TYPE_CHECKING:
    import moderngl
    import numpy.typing as npt

__all__ = ["Capture"]


class Capture:
    """Passes rendered OpenGL pictures to an encoder, a few frames late, without waiting for the GPU.

    ```python
    with (
        Encoder("out.mp4", size=framebuffer.size, fps=60, vflip=True) as encoder,
        Capture(framebuffer, encoder) as capture,
    ):
        for frame in range(600):
            draw(frame)
            capture.take()
    ```

    The calling thread copies each picture once, into memory of the encoder, whose native thread flips and converts it.
    Make all calls on the thread that made the capture, where the context is current.

    Leaving the ``with`` block closes the capture, also after an exception. It doesn't close the encoder.

    Args:
        source: a ``moderngl.Framebuffer`` of the encoder's size. Or an object with ``start_read()``, which begins to
            read the last picture, and returns an object with ``read_into(view)``. That call waits for the picture and
            copies it into `view`, an array as `Encoder.lease` yields it.
        encoder: an encoder with a ``size``. OpenGL's first row is the bottom of the picture, so pass the encoder
            ``vflip=True``, unless your shader flips. For a framebuffer, its ``pixel_format`` must be rgb24, rgba, rgb0
            or gray.
        buffers: number of pictures in flight. Each picture reaches the encoder this many calls later, and takes a
            frame's bytes of GPU memory meanwhile. 1 is enough if the GPU finishes within one frame.

    Raises:
        ValueError: if the framebuffer's size differs from the encoder's, it has several samples a pixel, or it has a
            capture already; or if the encoder has no size yet, or a pixel format that OpenGL doesn't read.
        EncoderError, ClosedError: if the encoder has failed, or is closed.
    """

    def __init__(
        self, source: moderngl.Framebuffer | PictureSource, encoder: Encoder, *, buffers: int = 3
    ) -> None:
        if (buffers := _count("buffers", buffers)) == 0:
            raise ValueError(f"buffers must be more than 0, not {buffers}")
        self._encoder, self._intake = encoder, encoder._intake_for()
        self._intake.check_open()
        # The renderer's type is not imported: penstock does not need it.
        is_framebuffer = hasattr(source, "mglo")
        self._source = (
            _Framebuffer(source, self._intake.layout, buffers)
            if is_framebuffer
            else cast("PictureSource", source)
        )
        self._buffers = buffers
        self._in_flight: deque[tuple[PictureRead, float | Fraction | None]] = deque()
        self._last_tick = -1
        self._thread = threading.get_ident()
        self._is_closed = False
        if isinstance(self._source, _Framebuffer):
            _captured[self._source.key] = self

    @property
    def in_flight(self) -> int:
        """Number of pictures that you took and that haven't reached the encoder yet."""
        return len(self._in_flight)

    def take(self, *, time_s: float | Fraction | None = None, timeout: float | None = None) -> None:
        """Takes the last picture. Call it after each drawn frame, before you draw the next.

        If all buffers are in flight, the call first passes the oldest picture to the encoder, as `Encoder.lease` does.

        Args:
            time_s: time of the picture in seconds, as for `Encoder.write`.
            timeout: seconds to wait for room in the encoder's queue; None waits as long as it takes.

        Raises:
            ValueError: if `time_s` is wrong, as for `Encoder.write`.
            RuntimeError: if this isn't the capture's thread.
            StalledError: if there is no room within `timeout`. The picture wasn't taken.
            EncoderError: if FFmpeg has failed.
            ClosedError: if the capture or the encoder is closed, or the OpenGL context was released, with the pictures
                in flight.
        """
        self._check_thread()
        if self._is_closed:
            raise ClosedError("the capture is closed")
        self._intake.check_open()
        # Its number once the pictures in flight before it have reached the encoder.
        tick = self._intake.tick_of(time_s, number=self._intake.submitted + len(self._in_flight))
        if tick is not None and tick <= self._last_tick:
            raise ValueError(f"time_s must be later than that of the picture before, not {time_s} s")
        # Before the read: if there is no room in time, this picture has not been taken.
        if len(self._in_flight) >= self._buffers:
            self._hand_over(timeout)
        self._in_flight.append((self._source.start_read(), time_s))
        self._last_tick = -1 if tick is None else tick

    def close(self) -> None:
        """Passes all pictures in flight to the encoder, in order. Does nothing when called again.

        Raises:
            RuntimeError: if this isn't the capture's thread.
            StalledError, EncoderError: as for `take`. The pictures in flight are lost.
            ClosedError: if the OpenGL context was released while pictures were in flight. They are lost.
        """
        if self._is_closed:
            return
        self._check_thread()
        try:
            while self._in_flight:
                self._hand_over(None)
        finally:
            self._is_closed = True
            self._in_flight.clear()
            if isinstance(self._source, _Framebuffer):
                _captured.pop(self._source.key, None)
                self._source.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        try:
            self.close()
        except Exception as failure:
            if exc is None:
                raise
            exc.add_note(f"and the last pictures were not captured: {in_short(failure)}")

    def __del__(self) -> None:
        if lost := len(getattr(self, "_in_flight", ())):
            warnings.warn(
                f"a capture was never closed, and lost {plural(lost, 'picture')}. Call capture.close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "a capture must be used on the thread that created it, where the OpenGL context is current"
            )

    def _hand_over(self, timeout: float | None) -> None:
        """Hands the oldest picture to the encoder. If that raises, the picture is still in flight."""
        read, time_s = self._in_flight[0]
        with self._encoder.lease(time_s=time_s, timeout=timeout) as view:
            read.read_into(view)
        self._in_flight.popleft()


class _Framebuffer:
    """A ``moderngl.Framebuffer`` that is read into pixel buffers in turn."""

    def __init__(self, framebuffer: Any, layout: FrameLayout, buffers: int) -> None:
        if layout.pixel_format not in OPENGL:
            raise ValueError(
                f"pixel_format must be one of {', '.join(OPENGL)} for OpenGL, not {layout.pixel_format}. Pass "
                "pixel_format='rgb24' to the Encoder"
            )
        if framebuffer.size != (layout.width, layout.height):
            raise ValueError(
                f"the framebuffer must have {layout.width}x{layout.height} pixels, like the encoder's frames, not "
                + "{}x{}".format(*framebuffer.size)
            )
        if framebuffer.samples > 0:
            raise ValueError(
                "a framebuffer with several samples per pixel can't be read. Copy it to another one with "
                "context.copy_framebuffer, and capture that one"
            )
        #: The same for all Python objects on one framebuffer.
        self.key = id(framebuffer.ctx), framebuffer.glo
        if self.key in _captured:
            raise ValueError("the framebuffer already has a capture. Close that capture first")
        self._framebuffer = framebuffer
        self._channels = OPENGL[layout.pixel_format]
        self._ring = deque(framebuffer.ctx.buffer(reserve=layout.frame_bytes) for _ in range(buffers))

    def start_read(self) -> _PixelBuffer:
        _check_alive(self._framebuffer, "framebuffer")
        _check_alive(self._framebuffer.ctx, "context")
        buffer = self._ring[0]
        # Reads into a buffer of OpenGL's: the call returns before the picture is drawn, if the driver supports that.
        self._framebuffer.read_into(buffer, components=self._channels)
        # Only now: the buffer of a read that has failed is the next one.
        self._ring.rotate(-1)
        return _PixelBuffer(buffer)

    def release(self) -> None:
        """Frees the buffers."""
        # The buffers went with a context that was released.
        if not _is_released(self._framebuffer.ctx):
            for buffer in self._ring:
                buffer.release()


class _PixelBuffer:
    """A buffer that a picture is read into."""

    def __init__(self, buffer: moderngl.Buffer) -> None:
        self._buffer = buffer

    def read_into(self, view: npt.NDArray[Any], /) -> None:
        _check_alive(self._buffer.ctx, "context")
        _copy(self._buffer, view)  # as `Buffer.read_into`, which would keep the GIL meanwhile


def _is_released(owner: Any) -> bool:
    return type(owner.mglo).__name__ == "InvalidObject"  # which ModernGL puts in place of what is released


def _check_alive(owner: Any, name: str) -> None:
    if _is_released(owner):
        raise ClosedError(f"the OpenGL {name} was released before the capture was closed")


# The open captures, by their framebuffers.
_captured: weakref.WeakValueDictionary[tuple[int, int], Capture] = weakref.WeakValueDictionary()
