"""Pipes and FIFOs as sources: a decoder waits for them as a `Reader` does, and closes what it opened."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support import media
from support.this_process import open_fds

from penstock import AudioDecoder, Decoder, probe
from penstock.errors import DecoderError

_LATE_S = 0.3


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("recording") / "a.ts"
    media.ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "testsrc=s=64x48:d=1",
        "-f",
        "lavfi",
        "-i",
        "sine=d=1",
        "-c:v",
        "mpeg2video",
        path,
    )
    return path.read_bytes()


def _later(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Timer(_LATE_S, function)
    thread.start()
    return thread


def _write_slowly(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb", 0) as file:
        for at in range(0, len(data), 20_000):
            file.write(data[at : at + 20_000])
            time.sleep(0.01)


def _write_all(descriptor: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb", 0) as file:
        for at in range(0, len(data), 20_000):
            file.write(data[at : at + 20_000])


def test_a_decoder_waits_for_the_bytes_of_a_non_blocking_pipe(
    recording: bytes, pair: tuple[int, int]
) -> None:
    reader, writer = pair
    os.set_blocking(reader, False)
    thread = _later(lambda: _write_slowly(writer, recording))
    with Decoder(reader) as decoder:
        assert len([*decoder]) == 25
    thread.join()


def test_a_pipe_with_mp4_says_that_its_index_is_at_the_end(tmp_path: Path, pair: tuple[int, int]) -> None:
    path = tmp_path / "a.mp4"
    noise = "color=s=320x240:r=25:d=1,noise=alls=100:allf=t"
    media.ffmpeg("-f", "lavfi", "-i", noise, "-c:v", "mpeg4", "-q:v", "2", path)
    reader, writer = pair
    thread = _later(lambda: _write_all(writer, path.read_bytes()))
    with pytest.raises(DecoderError, match="faststart"):
        Decoder(reader)
    os.close(reader)
    thread.join()


def test_a_pipe_with_sound_in_mp4_says_that_its_index_is_at_the_end(
    tmp_path: Path, pair: tuple[int, int]
) -> None:
    path = tmp_path / "a.mov"
    media.ffmpeg("-f", "lavfi", "-i", "anoisesrc=d=5:r=48000", "-c:a", "pcm_f32le", path)
    reader, writer = pair
    thread = _later(lambda: _write_all(writer, path.read_bytes()))
    with AudioDecoder(reader) as audio, pytest.raises(DecoderError, match="faststart"):
        audio.read_all()
    os.close(reader)
    thread.join()


@pytest.mark.linux("FIFOs")
@pytest.mark.parametrize("kind", [Decoder, AudioDecoder])
def test_a_decoder_waits_for_the_first_writer_of_a_non_blocking_fifo(
    recording: bytes, tmp_path: Path, kind: type[Decoder] | type[AudioDecoder]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    thread = _later(lambda: fifo.write_bytes(recording))
    with kind(reader) as decoder:
        assert sum(1 for _ in decoder)
    thread.join()
    os.close(reader)


@pytest.mark.parametrize("open_it", [Decoder, AudioDecoder, probe])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_failure_leaves_nothing_open(
    open_it: Callable[[int], object], is_pipe: bool, tmp_path: Path, pair: tuple[int, int]
) -> None:
    reader, writer = pair
    os.write(writer, b"no media" * 100)
    os.close(writer)
    (tmp_path / "a").write_bytes(b"no media" * 100)
    with (tmp_path / "a").open("rb") as file:
        before = open_fds()
        with pytest.raises(DecoderError) as failure:
            open_it(reader if is_pipe else file.fileno())
        assert open_fds() == before, failure  # whose traceback refers to the source
