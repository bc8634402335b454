"""`Decoder(path, fps=…)`: frames at a fixed rate, each the one that is on screen at its time."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.engines import by_program
from support.media import ffmpeg

from penstock import Decoder, DecoderError, FFmpegWarning, read_video
from penstock.video import prefetch

RATES = [10, 7.5, Fraction(30000, 1001), 30, 60, 100]


@pytest.fixture(scope="module", params=["mp4", "mkv", "avi", "late.mkv"])
def video(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At a variable rate, but for AVI; one begins late."""
    path = tmp_path_factory.mktemp("rate") / f"a.{request.param}"
    gaps = "setpts=if(gte(N\\,7)\\,PTS+0.4/TB\\,if(gte(N\\,3)\\,PTS+0.11/TB\\,PTS))"
    passed = () if request.param == "avi" else ("-vf", gaps, "-fps_mode", "passthrough")
    late = ("-output_ts_offset", "0.3") if request.param == "late.mkv" else ()
    codec = ("-c:v", "mpeg4" if request.param == "avi" else "libx264", "-g", "4", "-bf", "2")
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "12")
    ffmpeg(*picture, *passed, *codec, "-pix_fmt", "yuv420p", *late, path)
    return path


def expected(path: Path, fps: float | Fraction, start: float = 0.0, end: float | None = None) -> list[Any]:
    """The frames by `frame_at`."""
    with Decoder(path) as decoder:
        last_s = decoder[-1].time_s + 1 / 30 - 0.002  # the last frame is shown for 1/30 s
        ends_s = last_s if end is None else min(end, last_s)
        times_s = [start + number / fps for number in range(1000) if start + number / fps < ends_s - 1e-6]
        return [(time_s, decoder.frame_at(time_s)) for time_s in times_s]


def check(frames: list[Any], wanted: list[Any]) -> None:
    assert [frame.index for frame in frames] == list(range(len(wanted)))
    for frame, (time_s, source) in zip(frames, wanted, strict=True):
        assert np.array_equal(frame, source) and frame.time_s == pytest.approx(float(time_s), abs=1e-9)
        assert (frame.source_index, frame.source_time_s) == (source.index, source.time_s)
        assert frame.pts == source.pts and frame.flags.writeable


@pytest.mark.parametrize("fps", RATES, ids=str)
def test_frames_at_a_rate_are_those_of_frame_at(video: Path, fps: Any) -> None:
    wanted = expected(video, fps)
    with Decoder(video, fps=fps) as decoder:
        check(list(decoder), wanted)
        assert decoder.count_frames() == len(wanted)
        check(decoder[:], wanted)
        assert decoder.times_s.tolist() == [frame.time_s for frame in decoder[:]]
        assert decoder.stats.frames_delivered == len(wanted) and decoder.read() is None


def test_numbers_times_batches_and_slices_count_at_the_rate(video: Path) -> None:
    wanted = expected(video, 20, start=0.05, end=0.36)
    with Decoder(video, fps=20, start=0.05, end=0.36) as decoder:
        assert len(wanted) == 7 == decoder.count_frames()
        check(decoder[:], wanted)
        pictures = np.array([source for _, source in wanted])
        assert np.array_equal(decoder.batch([6, 0, 0, -1]), pictures[[6, 0, 0, -1]])
        out = np.zeros((3, *decoder.shape), np.uint8)
        assert decoder.batch(times_s=[0.3, 0.11, 9], out=out) is out and np.array_equal(
            out, pictures[[5, 1, 6]]
        )
        for time_s, number in ((0.0, 0), (0.05, 0), (0.1, 1), (0.149, 1), (0.15, 2), (100, 6)):
            assert decoder.index_at(time_s) == decoder.frame_at(time_s).index == number
        assert [frame.index for frame in decoder[::-3]] == [6, 3, 0]
        with pytest.raises(IndexError, match="7 frames"):
            decoder[7]
        with pytest.raises(TypeError, match="frame_at"):
            decoder[0.5]  # type: ignore[call-overload]


def test_each_frame_has_memory_of_its_own(video: Path) -> None:
    with Decoder(video, fps=100) as decoder:
        first, second = decoder[:2]
        assert np.array_equal(first, second) and first.planes[0].shape == second.planes[0].shape
        first[:] = 0
        assert second.any()
        again = pickle.loads(pickle.dumps(second))
        assert (again.source_index, again.source_time_s, again.time_s) == (0, second.source_time_s, 0.01)


@pytest.mark.parametrize(
    "options",
    [{"isolated": True}, {"settings": by_program()}, {"size": (32, None)}, {"count": 3}],
    ids=str,
)
def test_options_change_no_time(video: Path, options: dict[str, Any]) -> None:
    with Decoder(video, fps=15, start=0.1) as plain, Decoder(video, fps=15, start=0.1, **options) as other:
        frames = list(other)
        wanted = plain[: options.get("count")]
        assert [frame.source_index for frame in frames] == [frame.source_index for frame in wanted]
        assert [frame.time_s for frame in frames] == [frame.time_s for frame in wanted]
        assert len(other) == len(wanted) or "size" in options
        if "size" not in options:
            assert np.array_equal(frames, wanted)


def test_whole_videos_copies_and_read_ahead_have_the_rate(video: Path) -> None:
    pictures = np.array([source for _, source in expected(video, 15)])
    assert np.array_equal(read_video(video, fps=15), pictures)
    assert np.array_equal(read_video(video, fps=15, every=2), pictures[::2])
    [ahead] = [np.array(list(decoder)) for decoder in prefetch([video], fps=15)]
    assert np.array_equal(ahead, pictures)
    with Decoder(video, fps=15, start=0.1) as decoder, pickle.loads(pickle.dumps(decoder)) as copy:
        assert np.array_equal(decoder[1], copy[1]) and copy.times_s.tolist() == decoder.times_s.tolist()


def test_asyncio_reads_at_the_rate_and_loses_no_frame(video: Path) -> None:
    async def read() -> list[Any]:
        async with Decoder(video, fps=15) as decoder:
            task = asyncio.ensure_future(anext(decoder))
            await asyncio.sleep(0)
            task.cancel()
            read = list[Any]()
            with suppress(asyncio.CancelledError):
                read.append(await task)  # since Python 3.14, it may be done by then
            return read + [frame async for frame in decoder]

    check(asyncio.run(read()), expected(video, 15))


def test_len_does_not_decode(video: Path) -> None:
    with Decoder(video, fps=15) as decoder:
        if video.suffix == ".avi":
            with pytest.raises(TypeError, match="count_frames"):
                len(decoder)
        else:
            assert len(decoder) == len(expected(video, 15))


@pytest.mark.parametrize("fps", [0, -1, 2**31, float("nan"), float("inf")])
def test_impossible_rates_are_refused_at_the_call(video: Path, fps: float) -> None:
    with pytest.raises(ValueError, match="fps"):
        Decoder(video, fps=fps)


@pytest.mark.parametrize(
    "options", [{"filters": "null"}, {"input_options": {"r": 5}}, {"follow_playlists": True}], ids=str
)
def test_a_rate_needs_frames_by_number(video: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Decoder(video, fps=10, **options)


@pytest.mark.linux("files in /dev")
def test_a_rate_needs_a_regular_file(tmp_path: Path) -> None:
    for source in ("http://127.0.0.1:9/a.mp4", "/dev/zero"):
        with pytest.raises(ValueError, match="filters='fps=10'"):
            Decoder(source, fps=10)


def test_a_timeout_is_refused(video: Path) -> None:
    with Decoder(video, fps=10) as decoder, pytest.raises(ValueError, match="timeout"):
        decoder.read(timeout=1)


def test_damage_at_a_rate_is_told_after_the_good_frames(tmp_path: Path) -> None:
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "12")
    ffmpeg(*picture, "-c:v", "libx264", "-g", "30", "-bf", "0", tmp_path / "a.mp4")
    data = bytearray((tmp_path / "a.mp4").read_bytes())
    with av.open(tmp_path / "a.mp4") as file:
        packet = [one for one in file.demux(video=0) if one.size][5]
    assert packet.pos is not None
    data[packet.pos + 5 : packet.pos + packet.size] = bytes(packet.size - 5)
    for options in ({}, {"fps": 30}):
        frames = []
        with Decoder(bytes(data), **options) as decoder, pytest.raises(DecoderError):  # type: ignore[arg-type]
            frames.extend(decoder)  # which keeps those before an error
        assert len(frames) == 5


@pytest.mark.parametrize("options", [{}, {"isolated": True}], ids=["here", "isolated"])
def test_a_truncated_file_is_an_error_at_a_rate_too(tmp_path: Path, options: dict[str, Any]) -> None:
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "30")
    ffmpeg(*picture, "-c:v", "libx264", "-g", "4", "-bf", "2", tmp_path / "a.mkv")
    data = (tmp_path / "a.mkv").read_bytes()
    cut = data[: len(data) * 2 // 3]
    frames = []
    with Decoder(cut, fps=30, **options) as decoder:
        with pytest.warns(FFmpegWarning), pytest.raises(DecoderError) as caught:
            frames.extend(decoder)
        assert caught.value.frames == len(frames) == decoder.count_frames() > 5
    with pytest.warns(FFmpegWarning):
        assert len(read_video(cut, fps=30, end=0.2, **options)) == 6
        assert len(read_video(cut, fps=30, count=3, **options)) == 3
