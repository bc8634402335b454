"""Parts of a video by times: one rule for `start`, `end`, `frame_at`, `index_at` and `batch`."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import ISOLATED
from support.engines import by_program
from support.media import ffmpeg

from penstock import Decoder, read_video
from penstock.errors import ClosedError, DecoderError
from penstock.video import find_ffmpeg, prefetch

# Gaps, so that the frame on screen may have come long before. The last one is shown for 1/30 s.
GAPS = "setpts=if(gte(N\\,7)\\,PTS+2/TB\\,if(gte(N\\,3)\\,PTS+0.5/TB\\,PTS))"


@pytest.fixture(scope="module", params=["mp4", "mkv"])
def gaps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gaps") / f"gaps.{request.param}"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "10")
    codec = ("-c:v", "libx264", "-g", "4", "-bf", "2", "-pix_fmt", "yuv420p")
    ffmpeg(*picture, "-vf", GAPS, "-fps_mode", "passthrough", *codec, path)
    return path


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames at 30 frames a second."""
    path = tmp_path_factory.mktemp("short") / "short.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "10", "-pix_fmt", "yuv420p", path)
    return path


def shown(frames: list[Any], time_s: float) -> int:
    """The number of the frame that is on screen at a time."""
    return max((one.index for one in frames if one.time_s <= time_s + 1e-6), default=0)


def all_of(path: Path, **options: Any) -> list[Any]:
    with Decoder(path, **options) as decoder:
        return list(decoder)


def same(got: list[Any], expected: list[Any]) -> bool:
    return [one.pts for one in got] == [one.pts for one in expected] and all(
        np.array_equal(*pair) for pair in zip(got, expected, strict=True)
    )


TIMES = (0.0, 0.05, 0.11, 0.5, 0.7, 1.9, 2.25, 2.32)


@pytest.mark.parametrize(
    "options", [{}, {"isolated": True}, {"settings": True}, {"filters": "null"}], ids=str
)
def test_start_is_the_frame_on_screen_in_sequence_and_by_number(gaps: Path, options: dict[str, Any]) -> None:
    if "settings" in options:
        options = {"settings": by_program()}
    frames = all_of(gaps)
    for start in TIMES if not options else TIMES[2::3]:
        expected = frames[shown(frames, start) :]
        with Decoder(gaps, start=start, **options) as decoder:
            assert same(list(decoder), expected), start
            if "filters" not in options:
                assert len(decoder) == len(expected) and same(decoder[:], expected)
                assert decoder.frame_at(start).pts == decoder[0].pts == expected[0].pts


@pytest.mark.parametrize(
    "options", [{}, {"isolated": True}, {"settings": True}, {"filters": "null"}], ids=str
)
def test_end_leaves_out_the_frames_from_it_on(gaps: Path, options: dict[str, Any]) -> None:
    if "settings" in options:
        options = {"settings": by_program()}
    frames = all_of(gaps)
    parts = [(0.0, 0.1), (0.05, frames[4].time_s), (0.7, 0.71), (0.11, 100.0), (2.25, 2.28)]
    for start, end in parts if not options else parts[1:2] if "isolated" in options else parts[1:4:2]:
        expected = [one for one in frames if one.index >= shown(frames, start) and one.time_s < end - 1e-6]
        assert expected
        for place in ({"end": end}, {"duration": end - start}):
            with Decoder(gaps, start=start, **place, **options) as decoder:
                assert same(list(decoder), expected), (start, end)
                if "filters" not in options:
                    assert len(decoder) == len(expected) and same(decoder[:], expected)


def test_end_alone_counts_from_the_beginning(gaps: Path) -> None:
    frames = all_of(gaps)
    for options in ({"end": 0.7}, {"duration": 0.7}):
        expected = [one for one in frames if one.time_s < 0.7]
        assert same(all_of(gaps, **options), expected)
        assert len(read_video(gaps, **options)) == len(expected)
        [ahead] = [list(decoder) for decoder in prefetch([gaps], **options)]
        assert same(ahead, expected)


@pytest.mark.parametrize("start", [0.11, 0.32, float(np.nextafter(1 / 3, 0))])
def test_start_inside_the_video_never_raises(short: Path, start: float) -> None:
    frames = all_of(short)
    for options in ({}, {"filters": "null"}):
        assert same(all_of(short, start=start, **options), frames[int(start * 30) :])


@pytest.mark.parametrize("start", [0.34, 100])
def test_start_after_the_end_raises(short: Path, start: float) -> None:
    with Decoder(short, start=start) as decoder:
        assert len(decoder) == 0 and decoder[:] == [] and decoder.times_s.shape == (0,)
        with pytest.raises(DecoderError, match=f"{start:g}"):
            next(decoder)


def test_images_have_the_same_rule(tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10", "-frames:v", "5", tmp_path / "%03d.png")
    frames = all_of(tmp_path, fps=10)
    with Decoder(tmp_path, fps=10, start=0.15, end=0.3) as decoder:
        assert len(decoder) == 2 and same(decoder[:], frames[1:3]) and same(list(decoder), frames[1:3])
        assert decoder.times_s.tolist() == [0.1, 0.2]


def test_the_audio_begins_with_the_first_frame_and_ends_with_the_part(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=2:duration=3")
    ffmpeg(*picture, "-f", "lavfi", "-i", "aevalsrc=t/10:d=3:s=8000", "-c:a", "pcm_s16le", path)
    with Decoder(path, start=1.3, end=2.5) as decoder, decoder.audio() as audio:
        assert [frame.time_s for frame in decoder] == [1.0, 1.5, 2.0]
        samples = audio.read_all()
    with Decoder(path, start=1.3, end=2.5, fps=4) as decoder, decoder.audio() as audio:
        assert next(decoder).time_s == 1.3 and audio.read_all()[0, 0] == pytest.approx(0.13, abs=0.01)
    assert samples[0, 0] == pytest.approx(0.1, abs=0.01) and len(samples) == 12_000


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"end": 1, "duration": 1}, "duration"),
        ({"end": 1, "count": 1}, "count"),
        ({"duration": 1, "count": 1}, "count"),
        ({"start": 1, "end": 1}, "start"),
        ({"duration": 0}, "duration"),
        ({"end": -1}, "end"),
        ({"end": float("nan")}, "end"),
    ],
    ids=str,
)
def test_impossible_parts_are_refused_at_the_call(short: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Decoder(short, **options)


# --- times and numbers without pixels ---------------------------------------------------------------------------


def test_times_are_those_of_the_frames(gaps: Path) -> None:
    for options in ({}, {"start": 0.7}, {"start": 0.05, "end": 2.25}, {"count": 3}, *ISOLATED):
        frames = all_of(gaps, **options)
        with Decoder(gaps, **options) as decoder:
            assert decoder.times_s.dtype == np.float64
            assert decoder.times_s.tolist() == [frame.time_s for frame in frames]


@pytest.mark.parametrize("name", ["vp8", "mpeg4_avi", "h264_raw"])
def test_times_of_a_file_whose_packets_do_not_tell_are_decoded_once(name: str, tmp_path: Path) -> None:
    codec = {"vp8": ("-c:v", "libvpx"), "mpeg4_avi": ("-c:v", "mpeg4", "-bf", "2"), "h264_raw": ("-bf", "2")}
    path = tmp_path / f"a.{ {'vp8': 'webm', 'mpeg4_avi': 'avi', 'h264_raw': 'h264'}[name] }"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=30", "-frames:v", "20", *codec[name], path)
    with Decoder(path, conceal_errors=False) as decoder:
        times_s = decoder.times_s
        assert times_s.tolist() == [frame.time_s for frame in decoder]
        assert [decoder.index_at(time_s) for time_s in times_s] == list(range(len(times_s)))


def test_index_at_is_the_number_of_frame_at(gaps: Path) -> None:
    with Decoder(gaps) as whole, Decoder(gaps, start=0.7, end=2.28) as part:
        for decoder in (whole, part):
            for time_s in (*TIMES, 100, Fraction(1, 30), *decoder.times_s):
                assert decoder.index_at(time_s) == decoder.frame_at(time_s).index
            assert decoder.index_at(0) == 0 and decoder.index_at(100) == len(decoder) - 1


@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf")])
def test_index_at_and_batch_refuse_impossible_times(short: Path, time_s: float) -> None:
    with Decoder(short) as decoder:
        with pytest.raises(ValueError, match="time_s"):
            decoder.index_at(time_s)
        with pytest.raises(ValueError, match="time_s"):
            decoder.batch(times_s=[0.1, time_s])


@pytest.mark.parametrize("options", [{"filters": "null"}, {"input_options": {"r": 5}}], ids=str)
def test_times_need_frames_by_number(short: Path, options: dict[str, Any]) -> None:
    with Decoder(short, **options) as decoder:
        for read in (
            lambda: decoder.times_s,
            lambda: decoder.index_at(0),
            lambda: decoder.batch(times_s=[0]),
        ):
            with pytest.raises(ValueError):
                read()


def through_pipe(path: Path, **options: Any) -> list[Any]:
    with (
        subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as program,
        Decoder(program.stdout, **options) as decoder,
    ):
        return list(decoder)


@pytest.mark.parametrize("start", TIMES)
def test_a_pipe_begins_with_the_frame_on_screen(gaps: Path, start: float) -> None:
    path = gaps.with_name("piped.mkv")
    ffmpeg("-i", gaps, "-c", "copy", path)
    for options in ({}, {"count": 2}, {"end": start + 0.4}, {"filters": "null", "size": (64, 48)}):
        assert same(through_pipe(path, start=start, **options), all_of(path, start=start, **options))


def test_a_pipe_without_a_frame_at_the_start_says_so(short: Path) -> None:
    ffmpeg("-i", short, "-c", "copy", short.with_suffix(".mkv"))
    with pytest.raises(DecoderError, match="100") as caught:
        through_pipe(short.with_suffix(".mkv"), start=100)
    assert caught.value.frames == 0


def test_a_live_pipe_is_left_after_the_last_frame_of_the_part() -> None:
    endless = ["-re", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=50", "-c:v", "ffv1", "-f", "matroska", "-"]
    with subprocess.Popen([find_ffmpeg(), "-v", "error", *endless], stdout=subprocess.PIPE) as program:
        with Decoder(program.stdout, start=0.05, count=3) as decoder:
            assert [frame.index for frame in decoder] == [0, 1, 2]
        program.kill()


def test_a_large_file_without_an_index_begins_with_the_frame_on_screen(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = short.with_suffix(".ts"), [2, 3]
    ffmpeg("-i", short, "-c", "copy", path)
    pts = [frame.pts for frame in all_of(path)]
    monkeypatch.setattr("penstock._facts.part.CHEAP_BYTES", 0)
    frames = all_of(path, start=0.09, count=2, filters="null")
    assert [pts.index(frame.pts) for frame in frames] == expected


def test_times_need_a_regular_file(short: Path) -> None:
    with (
        subprocess.Popen(["cat", short], stdout=subprocess.PIPE) as program,
        Decoder(program.stdout) as decoder,
    ):
        for read in (lambda: decoder.times_s, lambda: decoder.index_at(0)):
            with pytest.raises(ValueError, match="regular file"):
                read()


def test_times_of_a_closed_decoder_raise(short: Path) -> None:
    with Decoder(short) as decoder:
        pass
    for read in (lambda: decoder.times_s, lambda: decoder.index_at(0), lambda: decoder.batch(times_s=[0])):
        with pytest.raises(ClosedError):
            read()


# --- batches of times -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolated", [False, True])
def test_a_batch_of_times_is_frame_at_for_each(gaps: Path, isolated: bool) -> None:
    times_s = [2.3, 0.0, 0.5, 0.5, 0.05, 100.0, 0.51]
    with Decoder(gaps, isolated=isolated) as decoder:
        expected = [decoder.frame_at(time_s) for time_s in times_s]
        assert np.array_equal(decoder.batch(times_s=times_s), expected)
        assert np.array_equal(decoder.batch(times_s=np.array(times_s, np.float32)), expected)
        out = np.zeros((len(times_s), *decoder.shape), np.uint8)
        assert decoder.batch(times_s=times_s, out=out) is out and np.array_equal(out, expected)
        assert decoder.batch(times_s=[]).shape == (0, *decoder.shape)


def test_a_batch_takes_either_numbers_or_times(short: Path) -> None:
    with Decoder(short) as decoder:
        for call in (lambda: decoder.batch(), lambda: decoder.batch([0], times_s=[0.0])):
            with pytest.raises(TypeError, match="times_s"):
                call()


def test_a_time_may_be_as_late_as_floats_go(short: Path) -> None:
    with Decoder(short, end=1e300) as decoder:
        assert decoder.index_at(1e300) == decoder.frame_at(2**80).index == len(decoder) - 1 == 9
        assert len(list(decoder)) == 10
    with Decoder(short, end=1e300, fps=30) as decoder:
        assert decoder.index_at(1e300) == len(decoder) - 1 == 9
