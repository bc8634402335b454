"""Frame rates: what `probe` says is the rate that was written, whatever packets hold and however times are rounded."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support import media
from support.real_files import real_file
from support.this_process import threads

from penstock import Decoder, Encoder, probe
from penstock._decoding.frame_times import FrameTimes
from penstock.video import DecoderSettings

_NTSC = Fraction(1000, 1001)


def _rate(path: Path) -> tuple[Fraction | None, bool]:
    video = probe(path).best_video
    assert video is not None
    return video.frame_rate, video.is_variable_frame_rate


def _source(rate: object, frames: int) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc=s=64x48:r={rate}", "-frames:v", str(frames), "-pix_fmt", "yuv420p")


@pytest.mark.parametrize(
    "rate", [60 * _NTSC, 48 * _NTSC, 120 * _NTSC, 24 * _NTSC, Fraction(60), Fraction(15, 2)]
)
@pytest.mark.parametrize("ending", ["mkv", "webm"])
def test_the_rate_of_an_encoder_is_read_back(tmp_path: Path, rate: Fraction, ending: str) -> None:
    path = tmp_path / f"out.{ending}"
    with Encoder(path, fps=rate) as encoder:
        for number in range(12):
            encoder.write(np.full((48, 64, 3), 9 * number, np.uint8))
    assert _rate(path) == (rate, False)


@pytest.mark.parametrize("rate", [Fraction(24), 24 * _NTSC, Fraction(30), 60 * _NTSC, Fraction(15)])
@pytest.mark.parametrize("options", [("-bf", "0"), ("-movflags", "frag_keyframe+empty_moov"), ()])
def test_a_constant_rate_in_milliseconds_is_constant(
    tmp_path: Path, rate: Fraction, options: tuple[str, ...]
) -> None:
    units = ("-video_track_timescale", "1000")
    media.ffmpeg(*_source(rate, 100), "-c:v", "libx264", *units, *options, tmp_path / "a.mp4")
    assert _rate(tmp_path / "a.mp4") == (rate, False)


def test_a_short_constant_rate_in_milliseconds_is_constant(tmp_path: Path) -> None:
    units = ("-bf", "0", "-video_track_timescale", "1000")
    media.ffmpeg(*_source(30, 3), "-c:v", "libx264", *units, tmp_path / "a.mp4")
    assert _rate(tmp_path / "a.mp4") == (30, False)


@pytest.mark.parametrize("rate", [24 * _NTSC, Fraction(24), 60 * _NTSC, Fraction(60)])
def test_a_rate_survives_a_copy_from_matroska(tmp_path: Path, rate: Fraction) -> None:
    media.ffmpeg(*_source(rate, 100), "-c:v", "libx264", tmp_path / "a.mkv")
    media.ffmpeg("-i", tmp_path / "a.mkv", "-c", "copy", tmp_path / "a.mp4")
    assert _rate(tmp_path / "a.mp4") == (rate, False)


def test_like_keeps_the_rate_of_a_filter(tmp_path: Path) -> None:
    media.ffmpeg(*_source(60, 60), "-c:v", "libx264", tmp_path / "a.mp4")
    path = tmp_path / "b.mp4"
    with Decoder(tmp_path / "a.mp4", filters="fps=25") as decoder, Encoder.like(decoder, path) as encoder:
        for frame in decoder:
            encoder.write(frame)
    assert _rate(path) == (25, False)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VP8 with packets whose frames are not shown."""
    folder = tmp_path_factory.mktemp("hidden")
    codec = ("-c:v", "libvpx", "-lag-in-frames", "25", "-auto-alt-ref", "1", "-b:v", "50k")
    log = ("-passlogfile", str(folder / "log"))
    media.ffmpeg(*_source(30, 60), *codec, "-pass", "1", *log, "-f", "null", "-")
    media.ffmpeg(*_source(30, 60), *codec, "-pass", "2", *log, folder / "hidden.webm")
    return folder / "hidden.webm"


@pytest.mark.parametrize(
    "ending", ["webm", "nut"]
)  # where they have the next one's time, or a time of their own
def test_packets_that_show_nothing_are_no_frames(hidden: Path, tmp_path: Path, ending: str) -> None:
    media.ffmpeg("-i", hidden, "-c", "copy", tmp_path / f"a.{ending}")
    assert _rate(tmp_path / f"a.{ending}") == (30, False)


def test_a_video_with_hidden_packets_can_be_mapped(hidden: Path) -> None:
    frames = FrameTimes.of(probe(hidden))
    frames.check_distinct("hidden.webm")
    assert (len(frames.times_s), frames.rate) == (60, 30)


def test_like_keeps_the_rate_of_a_video_with_hidden_packets(hidden: Path, tmp_path: Path) -> None:
    with Decoder(hidden) as decoder, Encoder.like(decoder, tmp_path / "out.avi") as encoder:
        for frame in decoder:
            encoder.write(frame)
    assert _rate(tmp_path / "out.avi") == (30, False)


def test_mpeg_1_in_ts_is_constant(tmp_path: Path) -> None:
    media.ffmpeg(*_source(25, 30), "-c:v", "mpeg1video", "-bf", "0", tmp_path / "a.ts")
    assert _rate(tmp_path / "a.ts") == (25, False)


def test_a_raw_stream_has_the_rate_that_it_states(tmp_path: Path) -> None:
    for rate in (24 * _NTSC, 30 * _NTSC, 50):
        media.ffmpeg(*_source(rate, 12), "-c:v", "mpeg2video", tmp_path / "a.m2v")
        assert _rate(tmp_path / "a.m2v") == (rate, False)


def test_quick_gif_frames_have_the_same_times_by_the_program(tmp_path: Path, ffmpeg: str) -> None:
    media.ffmpeg("-f", "lavfi", "-i", "testsrc=s=64x48:r=100", "-frames:v", "8", tmp_path / "a.gif")
    with (
        Decoder(tmp_path / "a.gif") as by_libav,
        Decoder(tmp_path / "a.gif", settings=DecoderSettings(ffmpeg=ffmpeg)) as by_program,
    ):
        times = [frame.time_s for frame in by_libav]
        assert times == [frame.time_s for frame in by_program] == [n / 100 for n in range(8)]


@pytest.mark.parametrize("order", ["tt", "bb"])
def test_an_interlaced_frame_decides_where_the_container_says_progressive(tmp_path: Path, order: str) -> None:
    encoder = (
        "-c:v",
        "libx264",
        "-flags",
        "+ildct+ilme",
        "-x264-params",
        {"tt": "tff=1", "bb": "bff=1"}[order],
    )
    field_first = ("-vf", "setfield=tff" if order == "tt" else "setfield=bff")
    media.ffmpeg(*_source(25, 4), *field_first, *encoder, "-field_order", "progressive", tmp_path / "a.mkv")
    path = tmp_path / "b.mkv"
    media.ffmpeg("-i", tmp_path / "a.mkv", "-c", "copy", "-field_order", "progressive", path)
    before, while_probed = threads(), set[int]()
    sys.setprofile(lambda *_: while_probed.update(threads()))
    try:
        assert probe(path).video[0].field_order == order
    finally:
        sys.setprofile(None)
    assert while_probed <= before  # to start threads takes longer than all else
    with Decoder(path) as decoder:
        assert decoder.stream.field_order == order


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("fields-in-ts.mts", 30 * _NTSC),
        ("fields.264", 25),
        ("fields-100.264", 25),
        ("hidden-frames.webm", 24 * _NTSC),
        ("begins-inside.ts", 25),
    ],
)
def test_fields_and_hidden_packets_of_real_files_are_no_frames(name: str, rate: Fraction) -> None:
    assert _rate(real_file(name)) == (rate, False)


@pytest.mark.parametrize("ending", ["avi", "mkv", "264", "ts", "mp4", "mov"])
@pytest.mark.parametrize("name", ["fields-in-ts.mts", "fields-100.264"])
def test_fields_are_no_frames_in_other_containers(tmp_path: Path, name: str, ending: str) -> None:
    path, rate = tmp_path / f"a.{ending}", 25 if name.endswith("264") else 30 * _NTSC
    if rate == 25 and ending in ("mkv", "ts", "mp4", "mov"):
        pytest.skip("FFmpeg can't give the packets times")
    media.ffmpeg("-i", real_file(name), "-map", "0:v", "-c", "copy", path)
    assert _rate(path) == (rate, False)
    with Decoder(path) as decoder:
        told, decoded = probe(path).best_video, decoder.stream
        assert told is not None
        assert (decoded.frame_rate, decoded.field_order) == (told.frame_rate, told.field_order)


def test_fields_are_no_frames_for_map_video() -> None:
    frames = FrameTimes.of(probe(real_file("fields-in-ts.mts")))
    assert (len(frames.times_s), frames.rate) == (31, 30 * _NTSC)
