"""ModernGL buffers: their bytes are taken at the call, so that nothing that happens to them later matters."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.cases import MODES
from support.media import decode
from support.streams import ReaderThread, noise

import penstock
from penstock import _native
from penstock._ffmpeg.command.settings import with_knobs
from penstock._native import _copy
from penstock.gl import _PixelBuffer
from penstock.video import EncoderSettings

moderngl = pytest.importorskip("moderngl")

SIZE = 3_000_000


def read_late(reader: int, writer: int) -> bytes:
    """All that was piped, read only now that it has been queued."""
    os.close(writer)
    return ReaderThread(reader).result()


@pytest.fixture
def context() -> Iterator[moderngl.Context]:
    try:
        context = moderngl.create_context(standalone=True, backend="egl")
    except Exception as error:  # whatever the driver says, there is no OpenGL to test with
        pytest.skip(f"no OpenGL context: {error}")
    yield context
    context.release()


@pytest.mark.parametrize("mode", MODES)
def test_buffer_and_its_mglo_are_delivered(
    context: moderngl.Context, pair: tuple[int, int], mode: str
) -> None:
    reader, writer = pair
    got = ReaderThread(reader)
    data = noise(SIZE)
    buffer = context.buffer(data)
    _native._pipe(buffer, writer, mode=mode)
    _native._pipe(buffer.mglo, writer, mode=mode)
    with memoryview(buffer.mglo) as view:
        _native._pipe(view, writer, mode=mode)
        _native._sync(view)
    _native._sync(buffer)
    os.close(writer)
    assert got.result() == data * 3


def test_buffer_released_while_queued_is_delivered(context: moderngl.Context, pair: tuple[int, int]) -> None:
    reader, writer = pair
    frames = [noise(SIZE, seed) for seed in range(4)]
    for frame in frames:
        buffer = context.buffer(frame)
        _native._pipe(buffer, writer)  # nobody reads yet
        buffer.release()
        del buffer
        gc.collect()
        context.buffer(bytes(SIZE))  # would get the memory that was freed
    assert read_late(reader, writer) == b"".join(frames)


@pytest.mark.parametrize("call", ["pipe", "submit", "write"])
def test_a_buffer_is_not_left_mapped(context: moderngl.Context, pair: tuple[int, int], call: str) -> None:
    # While a buffer is mapped, OpenGL ignores what is written or rendered into it, and says nothing.
    reader, writer = pair
    framebuffer = context.simple_framebuffer((64, 64), components=4)
    buffer = context.buffer(reserve=64 * 64 * 4)
    expected = b""
    stream = penstock.Writer(writer)
    take = {"pipe": partial(_native._pipe, fd=writer), "submit": stream.submit, "write": stream.write}[call]
    for number in range(5):
        framebuffer.clear(number / 5, 0.0, 1.0, 1.0)
        framebuffer.read_into(buffer, components=4)
        expected += buffer.read()
        take(buffer)  # and goes on without a wait
    buffer.write(b"\xee" * buffer.size)
    assert buffer.read() == b"\xee" * buffer.size
    assert len(set(expected[:: 64 * 64 * 4])) == 5, "the frames differ"
    del stream, take
    assert read_late(reader, writer) == expected


@pytest.mark.parametrize("call", ["capture", "submit", "write"])
def test_other_threads_run_while_a_buffer_is_copied(
    context: moderngl.Context, pair: tuple[int, int], call: str
) -> None:
    buffer = context.buffer(reserve=200_000_000)
    target = np.empty(buffer.size, np.uint8)
    passes, is_over = 0, threading.Event()

    def run() -> None:
        nonlocal passes
        while not is_over.wait(0.001):
            passes += 1

    thread = threading.Thread(target=run)
    before_s = sys.getswitchinterval()
    writer = penstock.Writer(pair[1])
    thread.start()
    try:
        sys.setswitchinterval(1000)  # the thread runs only while this one has released the GIL
        before = passes
        if call == "capture":
            _PixelBuffer(buffer).read_into(target)
        else:
            getattr(writer, call)(buffer)
        passed = passes - before
    finally:
        sys.setswitchinterval(before_s)
        is_over.set()
        thread.join()
    writer.abort()
    assert passed > 2, "calls release the GIL once or twice for a moment"


def test_a_copy_of_another_size_is_refused(context: moderngl.Context) -> None:
    buffer = context.buffer(noise(SIZE))
    with pytest.raises(ValueError):
        _copy(buffer, bytearray(SIZE - 1))
    target = bytearray(SIZE)
    _copy(buffer, target)  # it is not left mapped
    assert target == noise(SIZE)


def test_object_without_memory_is_refused(context: moderngl.Context, pair: tuple[int, int]) -> None:
    with pytest.raises(TypeError):
        _native._pipe(context.texture((4, 4), 4), pair[1])


@pytest.mark.parametrize("mode", MODES)
def test_array_on_a_buffer_released_while_queued_is_delivered(
    context: moderngl.Context, pair: tuple[int, int], mode: str
) -> None:
    """The array says nothing of OpenGL, but its memory goes with the buffer all the same."""
    reader, writer = pair
    data = noise(SIZE)
    buffer = context.buffer(data)
    _native._pipe(np.frombuffer(buffer.mglo, np.uint8)[100:], writer, mode=mode)
    buffer.release()
    litter = [context.buffer(bytes(SIZE)) for _ in range(3)]  # would get the memory that was freed
    assert read_late(reader, writer) == data[100:]
    assert len(litter) == 3


@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
def test_a_framebuffer_is_read_into_a_leased_frame(
    context: moderngl.Context, tmp_path: Path, convert: str
) -> None:
    """OpenGL's first row is the picture's lowest: red below, and blue above."""
    size = (64, 48)
    framebuffer = context.simple_framebuffer(size, components=3)
    framebuffer.use()
    output = tmp_path / "video.mkv"
    lossless = {"codec": "ffv1", "output_pixel_format": "yuv444p"}
    with penstock.Encoder(
        output,
        size=size,
        fps=30,
        vflip=True,
        settings=with_knobs(EncoderSettings(), convert=convert),
        **lossless,
    ) as encoder:
        for _ in range(10):
            context.clear(1.0, 0.0, 0.0, viewport=(0, 0, 64, 24))
            context.clear(0.0, 0.0, 1.0, viewport=(0, 24, 64, 24))
            with encoder.lease() as view:
                framebuffer.read_into(view, alignment=1)
    framebuffer.release()
    frames = decode(output)
    assert len(frames) == 10
    for frame in frames.astype(int):
        assert np.abs(frame[:24] - (0, 0, 255)).max() <= 3 and np.abs(frame[24:] - (255, 0, 0)).max() <= 3
