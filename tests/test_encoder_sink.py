"""An `Encoder` whose output is a Python object."""

from __future__ import annotations

import io
import os
import threading
import time
from asyncio import CancelledError
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
    """Takes a few bytes at a time."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data[:1000])
        self.taken += part
        return len(part)


class Held:
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.nbytes = 0

    def write(self, data: bytes) -> None:
        assert self.go.wait(60)
        self.nbytes += len(data)


class Broken:
    def __init__(self, after: int) -> None:
        self.left = after

    def write(self, data: bytes) -> int:
        self.left -= len(data)
        if self.left < 0:
            raise ConnectionResetError("the client has gone")
        return len(data)


@pytest.mark.parametrize("kind", [io.BytesIO, Slow])
def test_the_object_has_the_video(kind: Any, ffmpeg: str) -> None:
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


def test_fragments_and_sound() -> None:
    sink = io.BytesIO()
    with Encoder(
        sink, fps=20, options={"f": "mp4", "movflags": "frag_keyframe+empty_moov"}, audio=AudioTrack(8_000, 1)
    ) as encoder:
        for index in range(20):
            encoder.write(frame(index))
        encoder.write_audio(np.zeros((8_000, 1), np.float32))
    with Decoder(sink.getvalue()) as decoder:
        assert len(list(decoder)) == 20 and decoder.file.audio


def test_an_open_file_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "a.ts").open("wb") as file, Encoder(file, fps=20, options={"f": "mpegts"}) as encoder:
        encoder.write(frame(0))
    assert (tmp_path / "a.ts").read_bytes()[:1] == b"G"


def test_bytes_come_while_frames_are_written() -> None:
    sink = io.BytesIO()
    with Encoder(sink, fps=20, options=MATROSKA, codec="ffv1") as encoder:
        for index in range(5):
            encoder.write(noise(index))
        assert eventually(lambda: len(sink.getvalue()) > 100_000)


def test_a_slow_object_holds_frames_back() -> None:
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


def test_a_failure_of_the_object_is_the_encoder_s() -> None:
    encoder = Encoder(Broken(after=100_000), fps=20, options=MATROSKA, codec="ffv1")  # type: ignore[arg-type]
    with pytest.raises(EncoderError, match="ConnectionResetError"):
        for index in range(100):
            encoder.write(noise(index % 5))
        encoder.close()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3), CancelledError()], ids=repr)
def test_whatever_the_object_raises_is_told(raised: BaseException) -> None:
    class Ended:
        def write(self, data: bytes) -> int:
            raise raised

    encoder = Encoder(Ended(), fps=20, options=MATROSKA)  # type: ignore[arg-type]
    encoder.write(frame(0))
    with pytest.raises(EncoderError, match=type(raised).__name__):
        encoder.close()


@pytest.mark.parametrize("taken", [0, -1, True, 10**9, "all"])
def test_an_object_that_does_not_say_what_it_took(taken: Any) -> None:
    class Odd:
        def write(self, data: bytes) -> Any:
            return taken

    encoder = Encoder(Odd(), fps=20, options=MATROSKA)  # type: ignore[arg-type]
    encoder.write(frame(0))
    with pytest.raises(EncoderError, match=repr(taken)):
        encoder.close()


def test_a_failure_with_the_last_bytes_is_none_to_be_missed() -> None:
    encoder = Encoder(Broken(after=10), fps=20, options=MATROSKA, codec="ffv1")  # type: ignore[arg-type]
    encoder.write(frame(0))
    with pytest.raises(EncoderError, match="gone"):
        encoder.close()


def test_abort_ends_the_thread() -> None:
    encoder = Encoder(io.BytesIO(), fps=20, options=MATROSKA)
    encoder.write(frame(0))
    encoder.abort()
    with pytest.raises(ClosedError):
        encoder.write(frame(1))
    assert eventually(lambda: not any(one.name == "penstock-sink" for one in threading.enumerate()))


def test_what_no_object_can_take() -> None:
    with pytest.raises(TypeError, match="text"):
        Encoder(io.StringIO(), fps=20, options=MATROSKA)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="container"):
        Encoder(io.BytesIO(), fps=20)
    for container in ("hls", "webp", "avif"):
        with pytest.raises(ValueError, match=container):
            Encoder(io.BytesIO(), fps=20, options={"f": container})
    encoder = Encoder(io.BytesIO(), fps=20, options={"f": "mp4"})
    with pytest.raises(EncoderError, match="matroska"):
        encoder.write(frame(0))
        encoder.close()


@pytest.mark.parametrize("container", ["avi", "wtv"])
def test_a_header_that_is_completed_at_the_end_is_for_files(tmp_path: Path, container: str) -> None:
    """FFmpeg succeeds in a pipe, and nothing reads the result."""
    fifo = tmp_path / f"a.{container}"
    os.mkfifo(fifo)
    for output, options in ((io.BytesIO(), {"f": container}), ("-", {"f": container}), (fifo, {})):
        with pytest.raises(ValueError, match=container):
            Encoder(output, fps=20, options=options)


def test_close_waits_for_the_object() -> None:
    """FFmpeg has ended, and the pipe still holds what the object has to take."""

    class Late(Held):
        def write(self, data: bytes) -> None:
            time.sleep(0.05)
            self.nbytes += len(data)

    sink = Late()
    with Encoder(sink, fps=20, options=MATROSKA, codec="ffv1") as encoder:  # type: ignore[arg-type]
        encoder.write(noise(0))
    assert encoder.report is not None and encoder.report.output_bytes == sink.nbytes > 0


class CountedByNumPy:
    """Says how many bytes it took as NumPy counts them."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def write(self, data: bytes) -> Any:
        self.taken += data
        return np.int64(len(data))


def test_a_count_may_be_any_integer() -> None:
    sink: Any = CountedByNumPy()
    with Encoder(sink, fps=25, size=SIZE, options=MATROSKA) as encoder:
        encoder.write(frame(1))
    with Decoder(bytes(sink.taken)) as decoder:
        assert sum(1 for _ in decoder) == 1


def test_a_url_whose_folder_is_a_file_is_told_of_by_ffmpeg(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with (
        pytest.raises(EncoderError, match="directory"),
        Encoder(f"file://{tmp_path}/a/b.mp4", fps=25) as encoder,
    ):
        encoder.write(frame(1))


def test_avi_has_a_length_in_its_header_that_comes_last() -> None:
    with pytest.raises(ValueError, match="header"):
        Encoder(io.BytesIO(), fps=25, size=SIZE, options={"f": "avi"})
