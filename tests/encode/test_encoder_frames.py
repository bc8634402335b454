"""What callers hand to an Encoder: whose memory it is and when, in which shapes and dtypes, and what is refused."""

from __future__ import annotations

import array
import asyncio
import itertools
import os
import signal
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import PATIENCE_S, eventually
from support.media import SIZE, children, decode, flat, is_flat, make, stopped
from support.processes import run_script, succeeded
from support.this_process import are_asleep

from penstock import ClosedError, Decoder, Encoder, EncoderError, StalledError, probe
from penstock._encoding import encoder_base
from penstock._encoding.frame_check import frame_buffer, frame_size
from penstock._encoding.plan import EncodePlan, plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import AudioTrack, EncoderSettings, EncoderStats

WIDTH, HEIGHT = SIZE
# Frames come out as they went in: without a conversion of any kind.
EXACT = {"codec": "rawvideo", "output_pixel_format": "ffmpeg", "options": {"f": "rawvideo"}}
# More frames of 640x480 than the pipe and FFmpeg hold, so that a stopped FFmpeg is felt.
MANY = 400


def painted(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A frame that differs from all others of this test, everywhere."""
    width, height = size
    return np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)


def exact_frames(path: Path, size: tuple[int, int] = SIZE) -> np.ndarray:
    width, height = size
    return np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, height, width, 3)


# The size of the first frame


@pytest.mark.parametrize("pixel_format", ["rgb24", "gray", "rgba64"])
def test_first_frame_sets_the_size(tmp_path: Path, pixel_format: str) -> None:
    channels = {"rgb24": (3,), "gray": (1,), "rgba64": (4,)}[pixel_format]
    frame = np.full((HEIGHT, WIDTH, *channels), 7, np.uint16 if pixel_format == "rgba64" else np.uint8)
    output = tmp_path / "v.raw"
    with make(output, size=None, pixel_format=pixel_format, **EXACT) as encoder:
        assert "not started" in repr(encoder) and not encoder.closed
        assert encoder.frames_submitted == encoder.frames_encoded == 0 and not output.exists()
        encoder.write(frame)
        assert "64x48" in repr(encoder) and encoder.frame_bytes == frame.nbytes
        encoder.submit(frame).wait()
        with encoder.lease() as view:
            view[...] = frame.reshape(view.shape)
    assert output.read_bytes() == frame.tobytes() * 3


@pytest.mark.parametrize("pixel_format", ["gray", "ya8", "rgb24", "rgba", "bgr48le"])
def test_small_frames_are_not_taken_for_planes(pixel_format: str) -> None:
    for size in itertools.product(range(1, 7), repeat=2):
        layout = frame_layout(pixel_format, *size)
        assert frame_size(np.zeros(layout.shape, layout.dtype), pixel_format) == size


def test_awrite_after_a_start_does_not_overtake(tmp_path: Path) -> None:
    async def use() -> None:
        async with make(tmp_path / "v.raw", size=None, **EXACT) as encoder:
            tasks = [asyncio.create_task(encoder.awrite(painted(index))) for index in range(3)]
            await asyncio.sleep(0)
            assert eventually(lambda: encoder._started is not None)
            tasks.append(asyncio.create_task(encoder.awrite(painted(3))))
            await asyncio.gather(*tasks)

    asyncio.run(use())
    np.testing.assert_array_equal(exact_frames(tmp_path / "v.raw"), [painted(index) for index in range(4)])


def test_awrite_starts_ffmpeg_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = []
    start = Encoder._start

    def told(self: Encoder, plan: EncodePlan) -> None:
        where.append(threading.current_thread())
        start(self, plan)

    async def use() -> None:
        async with make(tmp_path / "v.raw", size=None, **EXACT) as encoder:
            await encoder.awrite(painted(0))

    monkeypatch.setattr(Encoder, "_start", told)
    asyncio.run(use())
    assert where and where[0] is not threading.main_thread()


async def count(ticks: list[int]) -> None:
    """Counts the turns of the event loop."""
    while True:
        ticks[0] += 1
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_like", [False, True])
def test_the_event_loop_goes_on_during_a_trial(tmp_path: Path, is_like: bool) -> None:
    with make(tmp_path / "source.mp4") as made:
        made.write(painted(0))
    source = probe(tmp_path / "source.mp4")
    # Options of their own: the verdict of an earlier trial would need none.
    options = {"qcomp": 0.61 + is_like / 100}

    async def use() -> int:
        ticks = [0]
        counting = asyncio.create_task(count(ticks))
        await asyncio.sleep(0)
        before = ticks[0]
        encoder = (
            Encoder.like(source, tmp_path / "v.mp4", options=options)
            if is_like
            else make(tmp_path / "v.mp4", options=options)
        )
        async with encoder:
            during = ticks[0] - before
            assert encoder.pid is not None
            await encoder.awrite(painted(0))
        counting.cancel()
        return during

    assert asyncio.run(use()) > 10


def test_a_trial_in_an_event_loop_raises_at_the_first_await(tmp_path: Path) -> None:
    async def use() -> None:
        encoder = make(tmp_path / "v.mp4", options={"qcomp": "nonsense"})
        with pytest.raises(EncoderError):
            async with encoder:
                pass
        assert await asyncio.to_thread(eventually, lambda: encoder.closed)

    asyncio.run(use())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("begin", ["with", "lease", "write", "write_audio"])
def test_an_encoder_with_a_size_starts_without_an_await(tmp_path: Path, begin: str) -> None:
    async def use() -> Encoder:
        audio = AudioTrack(8_000, 1) if begin == "write_audio" else None
        encoder = make(tmp_path / "v.mp4", options={"qcomp": 0.63}, audio=audio)
        if begin == "with":
            with encoder:
                assert encoder.pid is not None
                encoder.write(painted(0))
            return encoder
        if begin == "lease":
            with encoder.lease() as view:
                view[...] = 0
        if begin == "write_audio":
            encoder.write_audio(np.zeros(8, np.float32))
        encoder.write(painted(0))
        encoder.close()
        return encoder

    assert asyncio.run(use()).frames_encoded >= 1


def test_a_trial_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def use() -> Encoder:
        encoder = make(tmp_path / "v.mp4", options={"qcomp": 0.65})
        entering = asyncio.create_task(encoder.__aenter__())
        await asyncio.sleep(0.01)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        return encoder

    encoder = asyncio.run(use())
    assert encoder.closed and not any(tmp_path.iterdir())


def test_several_threads_can_race_for_the_first_frame(tmp_path: Path) -> None:
    with make(tmp_path / "v.raw", size=None, **EXACT) as encoder:
        threads = [threading.Thread(target=encoder.write, args=(painted(index),)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(bytes, exact_frames(tmp_path / "v.raw"))) == sorted(bytes(painted(i)) for i in range(8))


def test_first_frame_without_a_clear_size_is_refused_with_advice(tmp_path: Path) -> None:
    with make(tmp_path / "v.mp4", size=None) as encoder:
        for frame, word in (
            (bytes(WIDTH * HEIGHT * 3), "size="),
            (np.zeros((0, WIDTH, 3), np.uint8), r"\(0, 64, 3\)"),
            (np.zeros((HEIGHT, WIDTH), np.uint8), "pixel_format='gray'$"),
            (np.zeros((HEIGHT, WIDTH, 4), np.uint8), "pixel_format='rgba'"),
            (np.zeros((3, HEIGHT, WIDTH), np.uint8), "channels_first=True$"),
            (np.zeros((5, HEIGHT, WIDTH, 3), np.uint8), "one by one$"),
            (np.zeros((HEIGHT - 1, WIDTH, 3), np.uint8), "64x47"),
            (np.zeros((HEIGHT, WIDTH, 3), np.float64), "dtype"),
        ):
            with pytest.raises(ValueError, match=word):
                encoder.write(frame)  # type: ignore[arg-type]
        assert [*tmp_path.iterdir()] == []
        encoder.write(painted(0))
    assert encoder.close().frames_encoded == 1


def test_lease_and_planar_formats_without_a_size_raise(tmp_path: Path) -> None:
    with make(tmp_path / "v.mp4", size=None) as encoder:
        with pytest.raises(ValueError):
            encoder.lease().__enter__()
        encoder.abort()
    for closed in (lambda: encoder.write(painted(0)), encoder.close, lambda: encoder.lease().__enter__()):
        with pytest.raises(ClosedError):
            closed()
    planar = make(tmp_path / "v.mp4", size=None, pixel_format="yuv420p")
    with pytest.raises(ValueError):
        planar.write(np.zeros((HEIGHT * 3 // 2, WIDTH), np.uint8))
    with pytest.raises(EncoderError):
        make(tmp_path / "v.mp4", size=None, codec="libx246")


def test_attributes_are_none_until_the_encoder_has_started(tmp_path: Path) -> None:
    def facts(encoder: Encoder) -> list[object]:
        return [encoder.pid, encoder.frame_bytes, encoder.converted_by, encoder.ffmpeg_policy, encoder.report]

    encoder = make(tmp_path / "v.mp4", size=None)
    assert facts(encoder) == [None] * 5 and encoder.bottleneck is None
    assert encoder.stats == EncoderStats() and encoder.stats.writer is None
    encoder.abort()
    assert facts(encoder) == [None] * 5 and encoder.stats == EncoderStats()
    with make(tmp_path / "v.mp4", size=None) as encoder:
        encoder.write(painted(0))
        assert encoder.pid in children() and encoder.frame_bytes == painted(0).nbytes
        assert encoder.converted_by == "penstock" and encoder.stats.writer is not None


def test_encoder_without_a_frame_raises_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(EncoderError), make(tmp_path / "v.mp4", size=None) as encoder:
        pass
    with pytest.raises(ZeroDivisionError), make(tmp_path / "v.mp4", size=None) as another:
        raise ZeroDivisionError
    for ended in (encoder, another):
        assert ended.closed
        with pytest.raises(ClosedError):
            ended.write(painted(0))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("end", ["abort", "close"])
def test_encoder_can_be_ended_while_another_thread_writes_the_first_frame(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, encoder = children(), make(tmp_path / "v.mp4", size=None)
    working, begun, go_on = encoder_base.working_plan, threading.Event(), threading.Event()

    def planned(*arguments: Any, **named: Any) -> EncodePlan:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return working(*arguments, **named)

    def ended(call: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            with suppress(ClosedError, EncoderError):
                call()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    monkeypatch.setattr(encoder_base, "working_plan", planned)
    writing = ended(lambda: encoder.write(painted(0)))
    assert begun.wait(PATIENCE_S)
    ending = ended(getattr(encoder, end))
    ending.join(0.2)  # it waits for the start, or is over
    go_on.set()
    for thread in (writing, ending):
        thread.join(PATIENCE_S)
    assert encoder.closed and children() == others


@pytest.mark.linux("forks")
def test_forked_child_gets_a_closed_encoder_if_no_frame_was_written(tmp_path: Path) -> None:
    code = """
    encoder = penstock.Encoder(sys.argv[1], fps=30)
    if (child := os.fork()) == 0:
        try:
            encoder.write(frame)
        except penstock.ClosedError:
            os._exit(7 if encoder.closed else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    encoder.write(frame)
    assert encoder.close().frames_encoded == 1
    """
    succeeded(
        run_script(
            "import numpy\nframe = numpy.zeros((48, 64, 3), 'u1')\n" + textwrap.dedent(code),
            tmp_path / "v.mp4",
        )
    )


# Whose memory


@pytest.mark.parametrize(
    "options",
    [
        EXACT,
        EXACT | {"settings": with_overrides(EncoderSettings(), mode="write")},
        pytest.param(
            EXACT | {"settings": with_overrides(EncoderSettings(), mode="staged")},
            marks=pytest.mark.linux("modes that map or give away pages"),
        ),
        EXACT | {"vflip": True},
        EXACT | {"settings": with_overrides(EncoderSettings(), convert="ffmpeg")},
    ],
    ids=["auto", "write", "staged", "turned over by us", "left to FFmpeg"],
)
def test_memory_is_free_when_write_returns(tmp_path: Path, options: dict) -> None:
    output = tmp_path / "video.raw"
    buffer = np.empty((480, 640, 3), np.uint8)
    with make(output, size=(640, 480), **options) as encoder, stopped(encoder):
        for index in range(12):
            buffer[...] = painted(index, (640, 480))
            encoder.write(buffer)
            buffer[...] = 255
    wanted = [painted(index, (640, 480)) for index in range(12)]
    if "vflip" in options:
        wanted = [frame[::-1] for frame in wanted]
    np.testing.assert_array_equal(exact_frames(output, (640, 480)), wanted)


def test_written_submitted_and_leased_frames_keep_their_order(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    with make(output, settings=EncoderSettings(queue_items=60)) as encoder, stopped(encoder):
        for index in range(0, 60, 3):
            encoder.write(flat(index))
            encoder.submit(flat(index + 1))
            with encoder.lease() as view:
                view[...] = flat(index + 2)
    frames = decode(output)
    assert [index for index in range(60) if not is_flat(frames[index], index)] == []


def test_submitted_memory_is_borrowed_until_its_ticket_is_done(tmp_path: Path) -> None:
    """Four arrays in turn, each painted again when its ticket says so."""
    output = tmp_path / "video.raw"
    ring = [np.empty((HEIGHT, WIDTH, 3), np.uint8) for _ in range(4)]
    tickets: list = [None] * 4
    with make(output, **EXACT) as encoder:
        for index in range(100):
            if tickets[index % 4] is not None:
                tickets[index % 4].wait()
            ring[index % 4][...] = painted(index)
            tickets[index % 4] = encoder.submit(ring[index % 4])
    np.testing.assert_array_equal(exact_frames(output), [painted(index) for index in range(100)])


def test_frame_that_times_out_for_room_is_not_encoded(tmp_path: Path) -> None:
    output = tmp_path / "video.raw"
    accepted = []
    with make(output, size=(640, 480), settings=EncoderSettings(queue_items=2), **EXACT) as encoder:
        with stopped(encoder):
            for index in range(MANY):
                try:
                    encoder.write(painted(index, (640, 480)), timeout=0)
                    accepted.append(index)
                except StalledError:
                    break
        encoder.write(painted(999, (640, 480)))
    frames = exact_frames(output, (640, 480))
    np.testing.assert_array_equal(frames, [painted(index, (640, 480)) for index in [*accepted, 999]])


def test_threads_write_whole_frames(tmp_path: Path) -> None:
    """Several at once, each painting its own buffer again and again."""
    output = tmp_path / "video.raw"

    def work(number: int, encoder: Encoder) -> None:
        buffer = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        for index in range(50):
            buffer[...] = painted(100 * number + index)
            encoder.write(buffer[::-1] if index % 2 else buffer)

    with make(output, **EXACT) as encoder:
        threads = [threading.Thread(target=work, args=(number, encoder)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = {
        painted(100 * number + index)[:: -1 if index % 2 else 1].tobytes()
        for number in range(3)
        for index in range(50)
    }
    assert {frame.tobytes() for frame in exact_frames(output)} == written


# Views


VIEWS = {
    "upside down": lambda rgb: rgb[::-1],
    "mirrored": lambda rgb: rgb[:, ::-1],
    "BGR": lambda rgb: rgb[..., ::-1],
    "all of these": lambda rgb: rgb[::-1, ::-1, ::-1],
    "every second pixel": lambda rgb: np.repeat(np.repeat(rgb, 2, 0), 2, 1)[::2, ::2],
    "a part": lambda rgb: np.pad(rgb, ((3, 5), (7, 2), (0, 0)))[3:-5, 7:-2],
    "without alpha": lambda rgb: np.concatenate([rgb, rgb[..., :1]], axis=-1)[..., :3],
    "in Fortran order": np.asfortranarray,
    "channels first, turned": lambda rgb: np.ascontiguousarray(rgb.transpose(2, 0, 1)).transpose(1, 2, 0),
    "columns first, turned": lambda rgb: np.ascontiguousarray(rgb.transpose(1, 0, 2)).transpose(1, 0, 2),
    "one row for all": lambda rgb: np.broadcast_to(rgb[0], rgb.shape),
    "a memoryview": lambda rgb: memoryview(rgb[::-1]),
    "read-only": lambda rgb: np.frombuffer(rgb.tobytes(), rgb.dtype).reshape(rgb.shape)[:, ::-1],
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{}, {"output_pixel_format": "yuv444p"}, {"pixel_format": "rgb48"}],
    ids=["as they are", "converted", "of 16 bits"],
)
def test_strided_views_are_encoded_as_they_look(tmp_path: Path, options: dict[str, str]) -> None:
    factor = 257 if "pixel_format" in options else 1
    frames = [painted(1).astype(np.uint16 if factor > 1 else np.uint8) * factor]
    looks = [view(*frames) for view in VIEWS.values()]
    for name, writes in (("views", looks), ("copies", map(np.ascontiguousarray, looks))):
        with make(tmp_path / name, **EXACT | options) as encoder:
            for frame in writes:
                encoder.write(frame)
    got, wanted = ((tmp_path / name).read_bytes() for name in ("views", "copies"))
    nbytes = frames[0].nbytes
    assert len(got) == len(looks) * nbytes
    at = {name: slice(index * nbytes, (index + 1) * nbytes) for index, name in enumerate(VIEWS)}
    wrong = [name for name, part in at.items() if got[part] != wanted[part]]
    assert wrong == []
    if "output_pixel_format" not in options:
        assert got == b"".join(np.ascontiguousarray(frame).tobytes() for frame in looks)


# Shapes and dtypes


GOOD = [
    ("rgb24", (HEIGHT, WIDTH, 3), np.uint8),
    ("rgb24", (1, HEIGHT, WIDTH, 3), np.uint8),
    ("rgb24", (HEIGHT, WIDTH * 3), np.uint8),
    ("rgb24", (HEIGHT * WIDTH * 3,), np.uint8),
    ("gray", (HEIGHT, WIDTH), np.uint8),
    ("gray", (HEIGHT, WIDTH, 1), np.uint8),
    ("gray16le", (HEIGHT, WIDTH), np.uint16),
    ("grayf32le", (HEIGHT, WIDTH), np.float32),
    ("rgba", (HEIGHT, WIDTH, 4), np.uint8),
    ("yuv420p", (HEIGHT * 3 // 2, WIDTH), np.uint8),
    ("yuv444p", (3, HEIGHT, WIDTH), np.uint8),
    ("nv12", (HEIGHT * 3 // 2, WIDTH), np.uint8),
    ("yuv420p10le", (HEIGHT * 3 // 2, WIDTH), np.uint16),
    ("bgr48le", (HEIGHT, WIDTH, 3), np.uint16),
    ("ya8", (HEIGHT, WIDTH, 2), np.uint8),
    ("gray16be", (HEIGHT, WIDTH), ">u2"),
    ("rgb48be", (HEIGHT, WIDTH, 3), ">u2"),
    ("grayf32be", (HEIGHT, WIDTH), ">f4"),
    # Known to FFmpeg only: by the size.
    ("rgb565le", (HEIGHT, WIDTH, 2), np.uint8),
]


@pytest.mark.parametrize("pixel_format", dict.fromkeys(name for name, *_ in GOOD))
def test_arrays_of_every_documented_shape_and_dtype_are_frames(tmp_path: Path, pixel_format: str) -> None:
    output = tmp_path / "video.raw"
    random = np.random.default_rng(4)
    frames = [
        (random.random(shape) * 250).astype(dtype) for name, shape, dtype in GOOD if name == pixel_format
    ]
    with make(output, pixel_format=pixel_format, **EXACT) as encoder:
        for frame in frames:
            encoder.write(frame)
            encoder.submit(frame)
    assert output.read_bytes() == b"".join(frame.tobytes() * 2 for frame in frames)


class Tensor:
    """Has its axes in another order by the method of that name, as PyTorch's tensors do."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def detach(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.values

    def permute(self, *axes: int) -> Tensor:
        return Tensor(self.values.transpose(axes))


W, H = WIDTH, HEIGHT
# Planes in the order of gbrpf32le.
GBR = r"frame\[\.\.\., 1\], frame\[\.\.\., 2\], frame\[\.\.\., 0\]"

BAD = [
    ("rgb24", np.zeros((W, H, 3), np.uint8), r"\(48, 64, 3\) of uint8.* not \(64, 48, 3\).*size=\(48, 64\)"),
    ("rgb24", np.zeros((W, H, 3), np.uint8), r"frame\.transpose\(1, 0, 2\)"),
    ("rgb24", Tensor(np.zeros((W, H, 3), np.uint8)), r"frame\.permute\(1, 0, 2\)"),
    ("rgb24", np.zeros((3, H, W), np.uint8), "channels_first=True$"),
    ("rgb24", Tensor(np.zeros((3, H, W), np.uint8)), "channels_first=True$"),
    ("rgb24", np.zeros((3, W, H), np.uint8), r"frame\.transpose\(2, 1, 0\)"),
    ("rgb24", np.zeros((H, W, 4), np.uint8), r"pixel_format='rgba' \(or 'bgra'\)"),
    ("rgb24", np.zeros((H, W), np.uint8), "pixel_format='gray'"),
    ("gray", np.zeros((W, H), np.uint8), r"frame\.transpose\(1, 0\)"),
    ("rgb24", np.zeros((20, 30, 3), np.uint8), r"size=\(30, 20\)"),
    ("rgb24", np.zeros((5, H, W, 3), np.uint8), "one by one"),
    ("yuv420p", np.zeros((H, W, 3), np.uint8), "and output_pixel_format='yuv420p'$"),
    ("yuv420p", np.zeros((W, H * 3 // 2), np.uint8), r"not \(64, 72\)"),
    ("rgb24", np.zeros((H, W, 3), np.float32), r"value_range=.* or \(-1\.0, 1\.0\)"),
    pytest.param(
        *("rgb24", np.zeros((H, W, 3), np.longdouble), r"0 to 255.*\.astype\(np\.uint8\)$"),
        marks=pytest.mark.linux("a long double of more than 64 bits"),
    ),
    ("rgb24", Tensor(np.zeros((H, W, 3), bool)), r"\.to\(torch\.uint8\)"),
    ("rgb24", np.zeros((H, W, 3), bool), r"frame\.astype\(np\.uint8\) \* 255"),
    ("rgb24", np.zeros((H, W, 3), np.int8), r"frame\.astype\(np\.uint8\) if its values are from 0 to 255"),
    ("rgb24", np.zeros((H, W, 3), np.uint16), "pixel_format='rgb48le'"),
    ("rgb24", np.ma.masked_greater(np.arange(H * W * 3).reshape(H, W, 3).astype(np.uint8), 9), "filled"),
    ("rgb48", np.zeros((H, W, 3), np.uint8), "pixel_format='rgb24'"),
    ("rgb48", np.zeros((H, W, 3), np.int16), r"\.astype\(np\.uint16\)"),
    ("rgb48", np.zeros((H, W, 3), ">u2"), r"frame\.astype\('<u2'\)"),
    ("gray16be", np.zeros((H, W), "<u2"), "gray16le"),
    ("grayf32le", np.zeros((H, W)), r"\.astype\(np\.float32\)"),
    ("grayf32le", np.zeros((H, W), np.uint8), r"0 to 1.*\.astype\(np\.float32\)$"),
    ("gbrpf32le", np.zeros((H, W, 3), np.float32), rf"[^']\. Pass np\.stack\(\[{GBR}\]\)$"),
    ("gbrpf32le", np.zeros((H, W, 3)), rf"np\.stack\(\[{GBR}\]\), and pass frame\.astype\(np\.float32\)$"),
    ("gbrpf32le", Tensor(np.zeros((H, W, 3), np.float32)), rf"torch\.stack\(\[{GBR}\]\)$"),
    ("gbrpf32le", np.zeros((H, W, 4), np.float32), r"pixel_format='gbrapf32le', and pass np\.stack"),
    ("gbrpf32le", np.zeros((H, W), np.float32), "pixel_format='grayf32le'$"),
    ("grayf32le", np.zeros((H, W, 3), np.float32), r"pixel_format='gbrpf32le', and pass np\.stack"),
    ("rgb0", np.zeros((H, W, 3), np.uint8), r"pixel_format='rgb24' \(or 'bgr24'\)$"),
    ("bgr48le", np.zeros((H, W, 6), np.uint8), "shape"),
    # Channels and dtype are both wrong: one message says all that is to be done.
    ("rgb24", np.zeros((H, W), np.uint16), r"pixel_format='gray16le'$"),
    ("rgb24", np.zeros((H, W, 4), np.uint16), r"'rgba64le' \(or 'bgra64le'\)$"),
    ("rgb24", np.zeros((H, W), np.float32), r"pixel_format='gray', and pass value_range="),
    ("rgb24", np.zeros((H, W), bool), r"'gray', and pass frame\.astype\(np\.uint8\) \* 255$"),
    ("rgb24", Tensor(np.zeros((3, H, W), np.float32)), "channels_first=True, and pass value_range="),
    ("yuv420p", np.zeros((H, W, 3), np.uint16), r"'rgb48le' .*, and output_pixel_format='yuv420p'$"),
    ("rgb24", bytes(100), "not 100 bytes"),
    ("rgb24", array.array("f", [0.0] * (H * W * 3)), "not 36864 bytes$"),
    ("rgb24", bytes(H * W * 4), r"not 12288 bytes.*pixel_format='rgba' \(or 'bgra'\)$"),
    # No buffer.
    ("rgb24", [[1, 2], [3, 4]], r"numpy\.asarray\(frame, numpy\.uint8\)"),
    ("rgb24", [np.zeros((H, W, 3), np.uint8)], "one by one"),
    ("rgb24", None, "NoneType"),
    ("rgb24", "frame.png", "str"),
]  # fmt: skip


@pytest.mark.parametrize(("pixel_format", "frame", "words"), BAD)
def test_a_wrong_frame_is_refused_with_the_remedy(pixel_format: str, frame: object, words: str) -> None:
    is_buffer = not isinstance(frame, list | str | None)
    with pytest.raises(ValueError if is_buffer else TypeError, match=words):
        frame_buffer(frame, frame_layout(pixel_format, W, H))


def test_wrong_frame_is_refused_by_each_call_and_the_next_frame_is_encoded(tmp_path: Path) -> None:
    with make(tmp_path / "v", **EXACT) as encoder:
        for call in (encoder.write, encoder.submit):
            for _, frame, _ in BAD[:3]:
                with pytest.raises(ValueError):
                    call(frame)
            with pytest.raises(TypeError):
                call("frame.png")
        with pytest.raises(ValueError):
            encoder.submit(flat(0)[::-1])  # which cannot be borrowed
        assert encoder.frames_submitted == 0
        encoder.write(bytes(encoder.frame_bytes))
    assert encoder.close().frames_submitted == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "remedy"),
    [
        ((H, W), np.uint8, {"pixel_format": "gray"}),
        ((H, W, 4), np.uint8, {"pixel_format": "rgba", "codec": "ffv1"}),
        ((H, W, 3), np.uint16, {"pixel_format": "rgb48le", "codec": "ffv1"}),
    ],
)
def test_advice_of_the_first_error_leads_to_a_video(
    tmp_path: Path, shape: tuple, dtype: type, remedy: dict
) -> None:
    """Without a size, and without a pixel format: what a newcomer writes first."""
    frame = np.random.default_rng(8).integers(0, np.iinfo(dtype).max, shape, dtype)
    with (
        pytest.raises(ValueError, match=remedy["pixel_format"]),
        Encoder(tmp_path / "v.mkv", fps=30) as encoder,
    ):
        encoder.write(frame)
    with Encoder(tmp_path / "v.mkv", fps=30, **remedy) as encoder:
        encoder.write(frame)
    assert encoder.report is not None and encoder.report.warnings == ()
    if "codec" in remedy:
        with Decoder(tmp_path / "v.mkv", pixel_format=remedy["pixel_format"]) as decoder:
            np.testing.assert_array_equal(decoder.read(), frame)


@given(
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple),
    dtype=st.sampled_from(["u1", "u2", ">u2", "i1", "i4", "f2", "f4", "f8", "?"]),
    channels=st.sampled_from([("gray", ()), ("rgb24", (3,)), ("rgba", (4,)), ("rgb48", (3,))]),
)
def test_a_frame_is_taken_exactly_or_refused_at_the_call(shape: tuple, dtype: str, channels: tuple) -> None:
    """Against the rule in one line: height x width x channels, axes of length 1 aside, or rows of all samples."""
    pixel_format, last = channels
    layout = frame_layout(pixel_format, 4, 3)
    frame = np.zeros(shape, dtype)
    wanted = [tuple(n for n in full if n != 1) for full in ((3, 4, *last), (3, 4 * int(np.prod(last or 1))))]
    is_frame = tuple(n for n in shape if n != 1) in wanted and frame.dtype == np.dtype(layout.dtype)
    try:
        assert frame_buffer(frame, layout) is frame
    except ValueError:
        assert not is_frame
    else:
        assert is_frame


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((HEIGHT, WIDTH), np.uint8),
        np.zeros((HEIGHT, WIDTH, 4), np.uint8),
        bytes(HEIGHT * WIDTH * 4),
        np.zeros((HEIGHT, WIDTH, 3), np.uint16),
        np.zeros((HEIGHT, WIDTH, 3), np.float32),
        np.zeros((3, HEIGHT, WIDTH), np.uint8),
    ],
)
def test_wrong_frame_midway_gets_no_advice_that_contradicts_the_first_frames(frame: Any) -> None:
    with pytest.raises(ValueError, match=r"of frame 1: .*as of the first frame.*, not") as caught:
        frame_buffer(frame, frame_layout("rgb24", W, H), number=1)
    assert "ass" not in str(caught.value).partition(", not ")[2]  # Pass, pass


def test_fps_accepts_numbers_of_any_kind() -> None:
    for fps in (np.float32(30), np.int64(30), np.float64(30), Fraction(30), 30.0):
        assert plan(Request("v.mp4", fps=fps), None).rate == 30


# asyncio


def test_awrite_waits_for_room_without_holding_the_loop(tmp_path: Path) -> None:
    output = tmp_path / "video.raw"

    async def main() -> int:
        ticks = 0
        buffer = np.empty((480, 640, 3), np.uint8)
        async with make(output, size=(640, 480), settings=EncoderSettings(queue_items=2), **EXACT) as encoder:

            async def feed() -> None:
                for index in range(40):
                    buffer[...] = painted(index, (640, 480))
                    await encoder.awrite(buffer)

            os.kill(encoder.pid, signal.SIGSTOP)
            feeding = asyncio.create_task(feed())
            for _ in range(20):  # the loop goes on while FFmpeg stands
                await asyncio.sleep(0.02)
                ticks += 1
            assert not feeding.done()
            os.kill(encoder.pid, signal.SIGCONT)
            await feeding
        return ticks

    assert asyncio.run(main()) == 20
    np.testing.assert_array_equal(
        exact_frames(output, (640, 480)), [painted(index, (640, 480)) for index in range(40)]
    )


def test_tasks_write_in_order_and_a_cancelled_task_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "video.raw"

    async def main() -> list[int]:
        async with make(output, size=(640, 480), settings=EncoderSettings(queue_items=2), **EXACT) as encoder:
            os.kill(encoder.pid, signal.SIGSTOP)
            tasks = [asyncio.create_task(encoder.awrite(painted(index, (640, 480)))) for index in range(30)]
            loop = threading.get_native_id()
            assert await asyncio.to_thread(eventually, lambda: are_asleep(lambda: {loop}))
            waiting = [index for index, task in enumerate(tasks) if not task.done()]
            for index in waiting[::3]:
                tasks[index].cancel()
            await asyncio.sleep(0)
            os.kill(encoder.pid, signal.SIGCONT)
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert waiting
        return [index for index, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]

    written = asyncio.run(main())
    assert all(before < after for before, after in pairwise(written))
    np.testing.assert_array_equal(
        exact_frames(output, (640, 480)), [painted(index, (640, 480)) for index in written]
    )


@pytest.mark.parametrize("size", [None, (WIDTH, HEIGHT)])
def test_changed_size_error_names_the_frame_and_not_the_argument(
    tmp_path: Path, size: tuple[int, int] | None
) -> None:
    with make(tmp_path / "v.mp4", size=size) as encoder:
        encoder.write(flat(0))
        for shape in ((20, 30, 3), (WIDTH, HEIGHT, 3)):
            with pytest.raises(ValueError) as caught:
                encoder.write(np.zeros(shape, np.uint8))
            assert "size=" not in str(caught.value)


def test_awrite_raises_what_write_raises(tmp_path: Path) -> None:
    async def main() -> None:
        black = np.zeros((480, 640, 3), np.uint8)

        async def write_many(**options: float) -> None:
            for _ in range(MANY):
                await encoder.awrite(black, **options)

        encoder = make(
            tmp_path / "v.raw",
            size=(640, 480),
            settings=EncoderSettings(queue_items=2, stall_timeout=1.0),
            **EXACT,
        )
        with pytest.raises(ValueError):
            await encoder.awrite(black.transpose(1, 0, 2))
        os.kill(encoder.pid, signal.SIGSTOP)
        with pytest.raises(StalledError):
            await write_many(timeout=0.1)
        with pytest.raises(StalledError):
            await write_many()
        os.kill(encoder.pid, signal.SIGKILL)
        with pytest.raises(EncoderError):
            await write_many()
        with pytest.raises(EncoderError):
            await encoder.awrite(black)
        closed = make(tmp_path / "w.raw", **EXACT)
        closed.abort()
        with pytest.raises(ClosedError):
            await closed.awrite(flat(0))

    asyncio.run(main())


def test_the_timeout_of_awrite_counts_the_wait_for_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        frame = np.zeros((480, 640, 3), np.uint8)
        encoder = make(tmp_path / "v.raw", size=(640, 480), settings=EncoderSettings(queue_items=2), **EXACT)
        with stopped(encoder):
            first, loop = asyncio.create_task(write_all(encoder, frame)), asyncio.get_running_loop()
            assert await asyncio.to_thread(eventually, lambda: loop in encoder._intake._turns)
            with pytest.raises(StalledError):
                while True:
                    await asyncio.wait_for(encoder.awrite(frame, timeout=0.1), PATIENCE_S)
            assert not first.done()
            first.cancel()
        encoder.abort()

    async def write_all(encoder: Encoder, frame: np.ndarray) -> None:
        while True:
            await encoder.awrite(frame)

    asyncio.run(main())


def test_awrite_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    output = tmp_path / "video.raw"

    async def write(encoder: Encoder, first: int) -> None:
        await asyncio.gather(*(encoder.awrite(painted(index)) for index in range(first, first + 60)))

    with make(output, settings=EncoderSettings(queue_items=2), **EXACT) as encoder:
        asyncio.run(write(encoder, 0))
        asyncio.run(write(encoder, 60))
    np.testing.assert_array_equal(exact_frames(output), [painted(index) for index in range(120)])


@pytest.mark.parametrize(
    ("pixel_format", "refused", "mode"),
    [
        ("rgb24", {"L": "convert", "RGBA": "convert", "YCbCr": "RGB", "HSV": "RGB", "P": "RGB"}, "RGB"),
        ("rgba", {"CMYK": "RGBA"}, "RGBA"),
        ("gray", {"P": "L", "1": "L"}, "L"),
        # They are not taken for BGR.
        ("bgr24", {"RGB": "rgb24"}, None),
        ("argb", {"RGBA": "rgba"}, None),
        ("bgra", {"RGBA": "rgba"}, None),
        # Pillow has none of it.
        ("gray16be", {"L": "size"}, None),
    ],
)
def test_images_of_pillow_are_taken_or_refused_by_their_mode(
    pixel_format: str, refused: dict[str, str], mode: str | None
) -> None:
    image = pytest.importorskip("PIL.Image").fromarray(painted(7))
    layout = frame_layout(pixel_format, W, H)
    for other, word in refused.items():
        with pytest.raises(ValueError, match=word):
            frame_buffer(image.convert(other), layout)
    if mode is not None:
        taken = image.convert("RGB").convert(mode)
        assert np.array_equal(np.asarray(frame_buffer(taken, layout)), np.asarray(taken))
