"""`penstock.gl.Capture`: every drawn picture once, in order, with a real OpenGL, in software where there is no GPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import a_few
from support.media import SIZE, decode, make, no_opengl

import penstock
from penstock.gl import Capture

moderngl = pytest.importorskip("moderngl")
pytestmark = pytest.mark.skipif(no_opengl() is not None, reason=str(no_opengl()))


def new_context() -> Any:
    return moderngl.create_context(standalone=True, backend="egl")


@pytest.fixture
def context() -> Iterator[Any]:
    context = new_context()
    yield context
    context.release()


def lossless(path: Path, **options: Any) -> penstock.Encoder:
    return make(path, **{"codec": "ffv1", "vflip": True, **options})


def draw(framebuffer: Any, number: int) -> None:
    """The picture of that number: its lower half has one color, which tells the number, and the upper is blue."""
    width, height = framebuffer.size
    framebuffer.clear(0.0, 0.0, 1.0, 1.0)
    framebuffer.clear(number / 255, 0.5, 0.0, 1.0, viewport=(0, 0, width, height // 2))


def drawn(number: int) -> np.ndarray:
    frame = np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    frame[: SIZE[1] // 2], frame[SIZE[1] // 2 :] = (0, 0, 255), (number, 128, 0)
    return frame


def assert_drawn(path: Path, numbers: range) -> None:
    frames = decode(path).astype(int)
    assert len(frames) == len(numbers)
    assert all(
        np.abs(frame - drawn(number)).max() <= 1 for frame, number in zip(frames, numbers, strict=True)
    )


@pytest.mark.parametrize("buffers", a_few([3, 1, 40]))
def test_every_picture_arrives_once_and_in_order(context: Any, tmp_path: Path, buffers: int) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv") as encoder:
        with Capture(framebuffer, encoder, buffers=buffers) as capture:
            for number in range(30):
                draw(framebuffer, number)
                capture.take()
                assert capture.in_flight == min(number + 1, buffers)
                assert encoder.frames_submitted == max(0, number + 1 - buffers)
        capture.close()
        assert (capture.in_flight, encoder.frames_submitted) == (0, 30)
    assert_drawn(tmp_path / "a.mkv", range(30))


@pytest.mark.parametrize(
    "components, pixel_format", a_few([(4, "rgba"), (4, "rgb0"), (3, "rgb24"), (1, "gray")])
)
def test_pictures_of_every_pixel_format_are_captured(
    context: Any, tmp_path: Path, components: int, pixel_format: str
) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=components)
    options = {"output_pixel_format": "rgb24" if components > 1 else "gray", "codec": "png"}
    encoder = lossless(tmp_path / "a.mkv", pixel_format=pixel_format, **options)
    with encoder, Capture(framebuffer, encoder) as capture:
        for number in range(5):
            draw(framebuffer, 50 * number)
            capture.take()
    frames = decode(tmp_path / "a.mkv").astype(int)
    for number, frame in enumerate(frames):
        assert np.abs(frame - drawn(50 * number))[:, :, : min(components, 3)].max() <= 1 or components == 1
        assert np.abs(frame[-1, 0, 0] - 50 * number) <= 1
    assert len(frames) == 5


def test_capture_passes_times_and_refuses_wrong_times(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv", fps=None) as encoder, Capture(framebuffer, encoder) as capture:
        for number in range(6):
            draw(framebuffer, number)
            capture.take(time_s=number * number / 10)
            for time_s in (None, 0, number * number / 10, -1):  # at the call, and not when it is handed over
                with pytest.raises(ValueError):
                    capture.take(time_s=time_s)
    with penstock.Decoder(tmp_path / "a.mkv") as decoder:
        assert [round(frame.time_s, 3) for frame in decoder] == [n * n / 10 for n in range(6)]


def test_constant_frame_rate_refuses_a_wrong_time_at_take(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv", fps=25) as encoder, Capture(framebuffer, encoder) as capture:
        for number in range(6):
            draw(framebuffer, number)
            with pytest.raises(ValueError):
                capture.take(time_s=number / 25 + 0.04)
            capture.take(time_s=number / 25)
    assert_drawn(tmp_path / "a.mkv", range(6))


def test_wrong_uses_are_errors_at_the_call(context: Any, tmp_path: Path) -> None:
    framebuffer, free = (context.simple_framebuffer(SIZE, components=3) for _ in range(2))
    small = context.simple_framebuffer((32, 32), components=3)
    several = context.framebuffer([context.renderbuffer(SIZE, 4, samples=4)])
    with (
        lossless(tmp_path / "a.mkv") as encoder,
        make(tmp_path / "b.mkv", pixel_format="bgr24") as other,
        make(tmp_path / "c.mkv", size=None) as sizeless,
    ):
        with Capture(framebuffer, encoder) as capture:
            draw(framebuffer, 0)
            for call, error, keyword in (
                (lambda: Capture(small, encoder), ValueError, "32x32"),
                (lambda: Capture(free, encoder, buffers=0), ValueError, "buffers"),
                (lambda: Capture(several, encoder), ValueError, "several"),
                (lambda: Capture(framebuffer, encoder), ValueError, "already"),
                (lambda: Capture(free, other), ValueError, "bgr24"),
                (lambda: Capture(free, sizeless), ValueError, "size"),
                (lambda: capture.take(time_s=1), ValueError, "fps=None"),
                (lambda: other.write(framebuffer), TypeError, "framebuffer"),
                (lambda: other.write(context.texture(SIZE, 3)), TypeError, "texture"),
                (lambda: sizeless.write(framebuffer), TypeError, "framebuffer"),
            ):
                with pytest.raises(error, match=keyword):
                    call()
            capture.take()
        with pytest.raises(penstock.ClosedError):
            capture.take()
        with Capture(framebuffer, encoder) as capture:  # the other one is closed
            draw(framebuffer, 1)
            capture.take()
        other.write(drawn(0))
        sizeless.write(drawn(0))
    with pytest.raises(penstock.ClosedError):
        Capture(framebuffer, encoder)
    assert_drawn(tmp_path / "a.mkv", range(2))


def test_capture_refuses_calls_from_another_thread(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv") as encoder, Capture(framebuffer, encoder) as capture:
        draw(framebuffer, 0)
        capture.take()
        errors = []

        def use() -> None:
            for call in (capture.take, capture.close):
                try:
                    call()
                except RuntimeError as error:
                    errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert len(errors) == 2 and "thread" in errors[0]
    assert_drawn(tmp_path / "a.mkv", range(1))


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_capture_raises_if_its_context_is_released(tmp_path: Path, taken: int) -> None:
    context = new_context()
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv") as encoder:
        encoder.write(drawn(0)[::-1])
        capture = Capture(framebuffer, encoder)
        for number in range(taken):
            draw(framebuffer, 1 + number)
            capture.take()
        context.release()
        with pytest.raises(penstock.ClosedError):
            capture.take()
        if taken:
            with pytest.raises(penstock.ClosedError):
                capture.close()
        capture.close()
    assert_drawn(tmp_path / "a.mkv", range(1 + max(0, taken - 3)))


def test_capture_raises_if_its_framebuffer_is_released(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv") as encoder, Capture(framebuffer, encoder) as capture:
        draw(framebuffer, 0)
        capture.take()
        framebuffer.release()
        with pytest.raises(penstock.ClosedError):
            capture.take()
    assert_drawn(tmp_path / "a.mkv", range(1))  # it was read before


@pytest.mark.linux("files in /dev")
def test_capture_raises_if_its_encoder_dies(context: Any) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    encoder = make("/dev/full", options={"f": "matroska"}, codec="rawvideo", output_pixel_format="yuv420p")
    with (
        pytest.raises(penstock.EncoderError) as raised,
        Capture(framebuffer, encoder) as capture,
    ):
        for _ in range(10_000):
            capture.take()
    assert any("last pictures were not captured" in note for note in raised.value.__notes__)
    with lossless(Path("/dev/null"), options={"f": "null"}) as other, Capture(framebuffer, other):
        other.write(drawn(0))  # the framebuffer is free again


def test_an_exception_in_the_block_keeps_what_was_drawn(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    encoder = lossless(tmp_path / "a.mkv")
    with pytest.raises(KeyError), encoder, Capture(framebuffer, encoder) as capture:
        for number in range(4):
            draw(framebuffer, number)
            capture.take()
        raise KeyError
    assert_drawn(tmp_path / "a.mkv", range(4))


def test_unclosed_capture_warns(context: Any, tmp_path: Path) -> None:
    framebuffer = context.simple_framebuffer(SIZE, components=3)
    with lossless(tmp_path / "a.mkv") as encoder:
        capture = Capture(framebuffer, encoder)
        capture.take()
        with pytest.warns(ResourceWarning):
            del capture
            gc.collect()
        encoder.write(drawn(0))


class Drawing:
    """A renderer without OpenGL: it draws on the CPU, and its reads note when they are awaited."""

    def __init__(self) -> None:
        self.number = 0
        self.log: list[tuple[str, int]] = []

    def start_read(self) -> Any:
        number, log = self.number, self.log
        log.append(("start", number))

        class Read:
            def read_into(self, view: np.ndarray) -> None:
                log.append(("read", number))
                view[:] = drawn(number)

        return Read()


def test_capture_reads_any_renderer_with_the_protocol(tmp_path: Path) -> None:
    drawing = Drawing()
    with make(tmp_path / "a.mkv", codec="ffv1") as encoder, Capture(drawing, encoder, buffers=2) as capture:
        for drawing.number in range(5):
            capture.take()
    assert_drawn(tmp_path / "a.mkv", range(5))
    starts = [("start", number) for number in range(5)]
    reads = [("read", number) for number in range(5)]
    middle = [one for pair in zip(reads[:3], starts[2:], strict=True) for one in pair]
    assert drawing.log == [*starts[:2], *middle, *reads[3:]]
