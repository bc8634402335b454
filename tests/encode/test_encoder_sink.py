"""An `Encoder` whose output is a Python object."""

from __future__ import annotations

import io
import os
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import eventually

from penstock import ClosedError, Decoder, Encoder, EncoderError, StalledError
from penstock.video import AudioTrack, EncoderSettings

SIZE = (64, 48)
MATROSKA = {"f": "matroska"}


def frame(index: int) -> Any:
    return np.full((SIZE[1], SIZE[0], 3), index * 10, np.uint8)


def noise(index: int) -> Any:
    return np.random.default_rng(index).integers(0, 255, (480, 640, 3), np.uint8)


class Slow(io.RawIOBase):
    """Takes a few bytes at a time, and says how many as NumPy counts them."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> Any:
        part = bytes(data[:1000])
        self.taken += part
        return np.int64(len(part))


class Held:
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.nbytes = 0

    def write(self, data: bytes) -> None:
        assert self.go.wait(60)
        self.nbytes += len(data)


class Ending:
    """Does something in place of the writing that comes after so many bytes."""

    def __init__(self, end: Callable[[], object], after: int) -> None:
        self.end, self.left = end, after

    def write(self, data: bytes) -> object:
        self.left -= len(data)
        return len(data) if self.left >= 0 else self.end()


def raises(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize("kind", [io.BytesIO, Slow])
def test_file_object_receives_the_video(kind: Any, ffmpeg: str) -> None:
    sink = kind()
    with Encoder(
        sink, fps=20, options=MATROSKA, codec="ffv1", settings=EncoderSettings(ffmpeg=ffmpeg)
    ) as encoder:
        for index in range(10):
            encoder.write(frame(index))
    video = bytes(sink.taken) if isinstance(sink, Slow) else sink.getvalue()
    report = encoder.report
    assert report is not None and report.output_bytes == len(video)
    assert report.output == f"<{type(sink).__name__}>" and report.output in repr(encoder)
    with Decoder(video) as decoder:
        assert [int(one[0, 0, 0]) for one in decoder] == [index * 10 for index in range(10)]


def test_file_object_receives_fragmented_mp4_with_audio() -> None:
    sink = io.BytesIO()
    with Encoder(sink, fps=20, crash_safe=True, options={"f": "mp4"}, audio=AudioTrack(8_000, 1)) as encoder:
        for index in range(20):
            encoder.write(frame(index))
        encoder.write_audio(np.zeros((8_000, 1), np.float32))
    with Decoder(sink.getvalue()) as decoder:
        assert len(list(decoder)) == 20 and decoder.file.audio


def test_a_stream_of_flv_ends_without_a_warning(ffmpeg: str) -> None:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    with Encoder(sink := io.BytesIO(), fps=20, options={"f": "flv"}, settings=settings) as encoder:
        for index in range(10):
            encoder.write(frame(index))
    assert encoder.report is not None and encoder.report.warnings == ()
    assert sink.getvalue().startswith(b"FLV")


def test_an_open_file_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "a.ts").open("wb") as file, Encoder(file, fps=20, options={"f": "mpegts"}) as encoder:
        encoder.write(frame(0))
    assert (tmp_path / "a.ts").read_bytes()[:1] == b"G"


def test_file_object_receives_bytes_while_frames_are_written() -> None:
    sink = io.BytesIO()
    with Encoder(sink, fps=20, options=MATROSKA, codec="ffv1") as encoder:
        for index in range(5):
            encoder.write(noise(index))
        assert eventually(lambda: len(sink.getvalue()) > 100_000)


def test_slow_file_object_holds_frames_back() -> None:
    sink = Held()
    encoder = Encoder(sink, fps=20, options=MATROSKA, codec="ffv1", settings=EncoderSettings(queue_items=2))  # type: ignore[arg-type]
    with pytest.raises(StalledError):
        for index in range(200):
            encoder.write(noise(index % 5), timeout=0.5)
    held = encoder.frames_submitted
    assert held < 100
    sink.go.set()
    report = encoder.close()
    assert report.frames_encoded == held and report.output_bytes == sink.nbytes


GONE = ConnectionResetError("the client has gone")


@pytest.mark.parametrize(
    ("end", "after", "word"),
    [
        (lambda: raises(GONE), 100_000, "gone"),
        (lambda: raises(GONE), 10, "gone"),
        *(
            (lambda error=error: raises(error()), 0, error.__name__)
            for error in (KeyboardInterrupt, SystemExit)
        ),
        (lambda: raises(CancelledError()), 0, "CancelledError"),
        # It doesn't say what it took.
        *((lambda taken=taken: taken, 0, repr(taken)) for taken in (0, -1, True, 10**9, "all")),
    ],
)
def test_exception_of_the_file_object_is_raised_by_the_encoder(
    end: Callable[[], object], after: int, word: str
) -> None:
    encoder = Encoder(Ending(end, after), fps=20, options=MATROSKA, codec="ffv1")  # type: ignore[arg-type]
    with pytest.raises(EncoderError, match=word):
        encoder.write(noise(0))
        encoder.close()


def test_abort_ends_the_thread() -> None:
    encoder = Encoder(io.BytesIO(), fps=20, options=MATROSKA)
    encoder.write(frame(0))
    encoder.abort()
    with pytest.raises(ClosedError):
        encoder.write(frame(1))
    assert eventually(lambda: not any(one.name == "penstock-sink" for one in threading.enumerate()))


def test_outputs_that_a_file_object_cannot_hold_are_refused() -> None:
    with pytest.raises(TypeError):
        Encoder(io.StringIO(), fps=20, options=MATROSKA)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Encoder(io.BytesIO(), fps=20)
    for container in ("hls", "webp", "avif"):
        with pytest.raises(ValueError):
            Encoder(io.BytesIO(), fps=20, options={"f": container})
    # FFmpeg completes their headers at the end. In a pipe it succeeds, and nothing reads the result.
    for container in ("avi", "wtv"):
        for output in (io.BytesIO(), "-"):
            with pytest.raises(ValueError):
                Encoder(output, fps=20, options={"f": container})
    encoder = Encoder(io.BytesIO(), fps=20, options={"f": "mp4"})
    with pytest.raises(EncoderError) as caught:
        encoder.write(frame(0))
        encoder.close()
    assert "seekable" in caught.value.stderr


@pytest.mark.linux("FIFOs")
@pytest.mark.parametrize("container", ["avi", "wtv"])
def test_containers_that_are_completed_at_the_end_are_refused_in_a_fifo(
    tmp_path: Path, container: str
) -> None:
    os.mkfifo(fifo := tmp_path / f"a.{container}")
    with pytest.raises(ValueError):
        Encoder(fifo, fps=20)


def test_close_waits_for_the_file_object() -> None:
    """FFmpeg has ended, and the pipe still holds what the object has to take."""

    class Late(Held):
        def write(self, data: bytes) -> None:
            time.sleep(0.05)
            self.nbytes += len(data)

    sink = Late()
    with Encoder(sink, fps=20, options=MATROSKA, codec="ffv1") as encoder:  # type: ignore[arg-type]
        encoder.write(noise(0))
    assert encoder.report is not None and encoder.report.output_bytes == sink.nbytes > 0
