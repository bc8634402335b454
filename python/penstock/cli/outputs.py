"""Where ``penstock decode`` delivers frames: raw to a descriptor, or to image files. And their timestamps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import click

from penstock._common.messages import show_name
from penstock._encoding.encoder import Encoder
from penstock._encoding.session import STUCK_S
from penstock._native import Writer
from penstock.cli.failures import in_one_line
from penstock.cli.opening import Endpoint
from penstock.cli.progress import CANCEL_S
from penstock.cli.signals import Stopped
from penstock.errors import PenstockError

#: Frames that wait to be written, beside those that were read ahead. Chosen: the decoder goes on while one is written.
QUEUE_FRAMES = 4


class RawOutput:
    """Writes frames one after another to a descriptor, with nothing between them.

    Args:
        destination: where they go.
        frame_bytes: size of a frame.
        is_standard: the destination is standard output. If nobody reads it any more, the command ends silently.
    """

    def __init__(self, destination: Endpoint, frame_bytes: int, *, is_standard: bool) -> None:
        self.title = destination.title
        self._frame_bytes = frame_bytes
        self._is_standard = is_standard
        self._is_finished = False
        try:
            self._writer = Writer(destination.fd, queue_items=QUEUE_FRAMES)
        except OSError as error:
            raise _failure(error, self.title, is_standard=is_standard) from None

    @property
    def frames(self) -> int:
        return self.output_bytes // self._frame_bytes

    @property
    def output_bytes(self) -> int:
        stats = self._writer.stats
        # Afterwards nobody can see what the pipe still holds for its reader.
        return stats.bytes_accepted if self._is_finished else stats.bytes_delivered

    def write(self, frame: Any) -> None:
        with self._failures():
            self._writer.submit(frame)

    def finish(self) -> None:
        with self._failures():
            self._writer.close()
        self._is_finished = True

    def stop(self) -> bool:
        return _closed(self._writer, CANCEL_S)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            frames = f"; frames delivered: {self.frames}"
            raise _failure(error, self.title, frames, is_standard=self._is_standard) from None


class ImageOutput:
    """Writes each frame to an image file, by an Encoder."""

    output_bytes = None

    def __init__(self, name: str, encoder: Encoder) -> None:
        self.title = show_name(name)
        self._encoder = encoder

    @property
    def frames(self) -> int:
        return self._encoder.frames_encoded

    def write(self, frame: Any) -> None:
        with self._failures():
            self._encoder.submit(frame)  # the decoder keeps the memory unchanged

    def finish(self) -> None:
        with self._failures():
            self._encoder.close()

    def stop(self) -> bool:
        return _closed(self._encoder, STUCK_S)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (PenstockError, OSError) as error:
            self._encoder.abort()
            raise click.ClickException(f"{in_one_line(error)}; frames delivered: {self.frames}") from None


Output: TypeAlias = RawOutput | ImageOutput
"""Where frames go.

`title` is its name in messages, `frames` counts frames that were delivered whole, and `output_bytes` bytes; None if
they are not known. `write` queues a frame, which is not copied, and waits while the queue is full. `finish` delivers
what is queued. Both raise a ``click.ClickException`` if a frame cannot be delivered, or `Stopped` if nobody reads
standard output any more. `stop` delivers what is queued unless that takes long, ends, and returns whether all was
delivered.
"""


class TimestampOutput:
    """Writes a line for each frame: its number, its timestamp, and its time in seconds. Fails as `RawOutput` does."""

    def __init__(self, destination: Endpoint, *, is_standard: bool) -> None:
        self._destination = destination
        self._is_standard = is_standard
        self._write_line("index,pts,time_s")

    def write(self, frame: Any) -> None:
        """Write the line of a `VideoFrame`. Raises as the class."""
        pts, time_s = ("" if value is None else str(value) for value in (frame.pts, frame.time_s))
        self._write_line(f"{frame.index},{pts},{time_s}")

    def _write_line(self, line: str) -> None:
        try:
            self._destination.write_all(f"{line}\n".encode())
        except OSError as error:
            raise _failure(error, self._destination.title, is_standard=self._is_standard) from None


def _failure(error: OSError, title: str, progress: str = "", *, is_standard: bool) -> BaseException:
    """The exception that ends the command because a destination of that title cannot be written to."""
    if not isinstance(error, BrokenPipeError):
        return click.ClickException(f"{title}: {error.strerror or error}{progress}")
    if is_standard:
        return Stopped(signal.SIGPIPE)
    return click.ClickException(f"{title}: the reader went away{progress}")


def _closed(sink: Writer | Encoder, timeout: float) -> bool:
    """Whether the sink could be closed in time. Aborts it if not."""
    try:
        sink.close(timeout)
    except (PenstockError, OSError):
        sink.abort()
        return False
    return True
