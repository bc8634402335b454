"""Files whose times are unusual: they go back, two are the same, or the last frame is shown for long."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import av
import numpy as np
import pytest
from support.cases import ffmpegs
from support.engines import engine as engine
from support.media import ffmpeg
from support.renders import mapped

import penstock
from penstock import AudioDecoder, Decoder, DecoderError, Encoder, probe

PICTURE = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=1")
H264 = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p")
LAST_S = 3.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("times")


@pytest.fixture(scope="module")
def joined(folder: Path) -> Path:
    """Two transport streams of 25 frames, of which the second one's times are earlier."""
    parts = []
    for offset_s in (1, 0):
        path = folder / f"p{offset_s}.ts"
        ffmpeg(*PICTURE, *H264, "-output_ts_offset", offset_s, "-mpegts_flags", "initial_discontinuity", path)
        parts.append(path.read_bytes())
    (folder / "joined.ts").write_bytes(b"".join(parts))
    return folder / "joined.ts"


@pytest.fixture(scope="module")
def decoding_times(folder: Path) -> Path:
    """The times of the frames are those at which they are decoded."""
    ffmpeg(*PICTURE, *H264, "-bsf:v", "setts=pts=DTS", folder / "dts.ts")
    return folder / "dts.ts"


def long_last(path: Path) -> Path:
    """A video whose last frame is shown for `LAST_S`, with a sound that is as long."""
    source = path.with_name("source.mp4")
    sound = ("-f", "lavfi", "-i", f"sine=440:d={0.96 + LAST_S}", "-c:a", "aac")
    ffmpeg(*PICTURE, *sound[:4], *H264, "-bf", "0", *sound[4:], source)
    with av.open(str(source)) as made, av.open(str(path), "w") as file:
        streams = {stream.index: file.add_stream_from_template(stream) for stream in made.streams}
        packets = [packet for packet in made.demux() if packet.size]
        last = max(packet.pts for packet in packets if packet.stream.type == "video")
        for packet in packets:
            if packet.stream.type == "video" and packet.pts == last:
                packet.duration = round(LAST_S / packet.time_base)
            packet.stream = streams[packet.stream.index]
            file.mux(packet)
    return path


@pytest.mark.parametrize(
    ("ending", "codec"),
    [
        ("avi", "libx264"),
        ("avi", "mpeg4"),
        ("avi", "mpeg2video"),
        ("asf", "mpeg4"),
        ("m1v", "mpeg1video"),
        ("m2v", "mpeg2video"),
    ],
)
def test_frames_begin_at_0_if_the_container_only_has_decoding_times(
    tmp_path: Path, ending: str, codec: str, engine: str
) -> None:
    path = tmp_path / f"late.{ending}"
    ffmpeg(*PICTURE, "-pix_fmt", "yuv420p", "-c:v", codec, "-bf", "2", path)
    expected = pytest.approx([number / 25 for number in range(25)])
    with Decoder(path) as decoder:
        assert [frame.time_s for frame in decoder] == expected
    with Decoder(path, start=0.33, end=0.5) as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(
            [8 / 25, 9 / 25, 10 / 25, 11 / 25, 12 / 25]
        )
    with Decoder(path) as decoder:
        assert decoder.times_s.tolist() == expected and decoder.index_at(0.33) == 8
        assert decoder.stream.frame_rate == 25 and (decoder.stream.late_units > 0) is (
            ending not in ("m1v", "m2v")
        )


def test_packets_without_times_in_mpeg_ps_begin_at_0(tmp_path: Path) -> None:
    ffmpeg(*PICTURE, "-c:v", "mpeg2video", "-bf", "2", tmp_path / "a.m2v")
    ffmpeg("-i", tmp_path / "a.m2v", "-c", "copy", tmp_path / "a.vob")
    for options in ({}, {"filters": "null"}):
        with Decoder(tmp_path / "a.vob", **options) as decoder:
            times = [frame.time_s for frame in decoder]
            assert times == pytest.approx([number / 25 for number in range(25)])
            assert decoder.file.zero_s == pytest.approx(decoder.stream.start_s)


def test_frame_at_in_joined_streams_uses_times_of_the_first_stream(joined: Path) -> None:
    with Decoder(joined) as decoder:
        assert decoder.frame_at(0.5).index == 12


def test_start_0_reads_all_frames_of_joined_streams(joined: Path) -> None:
    with Decoder(joined, start=0.0) as decoder:
        assert len(list(decoder)) == len(decoder[:]) == 50


def test_frames_that_only_have_decoding_times_can_be_read_by_index(decoding_times: Path, engine: str) -> None:
    with Decoder(decoding_times) as decoder:
        frames = list(decoder)
        assert len(frames) == 25
        assert all(np.array_equal(decoder[number], frames[number]) for number in range(25))


def test_map_video_refuses_times_that_go_back_before_it_renders(joined: Path, tmp_path: Path) -> None:
    with pytest.raises(DecoderError):
        penstock.map_video(None, joined, tmp_path / "out.mp4")
    assert not list(tmp_path.iterdir())


def test_map_video_refuses_two_frames_at_one_time_before_it_renders(tmp_path: Path) -> None:
    source = tmp_path / "twice.ts"
    same = ("-bf", "0", "-bsf:v", "setts=pts=if(eq(N\\,4)\\,PTS+3600\\,PTS)")
    ffmpeg(*PICTURE, *H264, *same, source)
    with pytest.raises(DecoderError):
        penstock.map_video(None, source, tmp_path / "out.mp4")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_map_video_keeps_how_long_the_last_frame_is_shown(tmp_path: Path, ending: str) -> None:
    source, out = long_last(tmp_path / f"in.{ending}"), tmp_path / f"out.{ending}"
    mapped(source, out)
    video = probe(out).best_video
    # Matroska's times begin with the priming of the sound, which libav counts or not.
    assert video is not None and video.duration_s == pytest.approx(0.96 + LAST_S, abs=0.04)
    with AudioDecoder(out) as audio:
        assert len(audio.read_all()) == pytest.approx((0.96 + LAST_S) * audio.sample_rate, rel=0.02)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_an_encoder_like_a_video_says_that_its_last_frame_ends_early(
    tmp_path: Path, is_repeated: bool
) -> None:
    source, out = long_last(tmp_path / "in.mp4"), tmp_path / "out.mp4"
    with (
        warnings.catch_warnings(record=True) as caught,
        Decoder(source) as decoder,
        Encoder.like(decoder, out) as encoder,
    ):
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
        if is_repeated:
            encoder.write(frame, time_s=0.95 + LAST_S)
    said = [str(one.message) for one in caught if issubclass(one.category, penstock.FFmpegWarning)]
    assert said == list(encoder.report.warnings)
    assert [re.search("end of the audio", one) is not None for one in said] == [True] * (not is_repeated)
    with AudioDecoder(out) as audio:
        lasts_s = len(audio.read_all()) / audio.sample_rate
    assert lasts_s == pytest.approx(0.96 + (LAST_S if is_repeated else 0), abs=0.1)


def test_an_encoder_like_a_video_says_nothing_of_a_last_frame_without_audio(tmp_path: Path) -> None:
    source, short = long_last(tmp_path / "in.mp4"), tmp_path / "short.mp4"
    ffmpeg("-i", source, "-t", "0.5", "-i", source, "-map", "0:v", "-map", "1:a", "-c", "copy", short)
    with Decoder(short) as decoder, Encoder.like(decoder, tmp_path / "out.mp4") as encoder:
        for frame in decoder:
            encoder.write(frame)
    assert not encoder.report.warnings


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_frames_left_out_at_the_beginning_are_not_taken_for_a_missing_end(tmp_path: Path) -> None:
    source = tmp_path / "in.ts"
    ffmpeg("-i", long_last(tmp_path / "in.mp4"), "-c", "copy", source)
    with Decoder(source) as decoder, Encoder.like(decoder, tmp_path / "out.mp4", fps=None) as encoder:
        for frame in list(decoder)[10:]:
            encoder.write(frame)
    assert not [one for one in encoder.report.warnings if "end of the audio" in one]


def test_long_last_frame_in_matroska_is_not_taken_for_a_cut(tmp_path: Path, engine: str) -> None:
    source, copied = long_last(tmp_path / "in.mp4"), tmp_path / "copied.mkv"
    ffmpeg("-i", source, "-c", "copy", copied, program=ffmpegs()[0])
    with av.open(str(copied)) as file:
        if any(
            packet.duration > packet.time_base.denominator for packet in file.demux(video=0) if packet.size
        ):
            pytest.skip("this FFmpeg writes how long the last frame is shown")
    with Decoder(copied) as decoder:
        assert len(list(decoder)) == 25
