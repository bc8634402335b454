"""Sound beside the picture. Claps and flashes show whether they agree."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
import warnings
import wave
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import a_few, examples, ffmpegs
from support.media import children, ffmpeg
from support.processes import run_script, succeeded
from support.renders import mapped

import penstock
from penstock import AudioDecoder, Encoder, probe
from penstock._ffmpeg.command.settings import with_overrides
from penstock.errors import ClosedError, DecoderError, EncoderError, FFmpegWarning, StalledError
from penstock.video import AudioFile, AudioTrack, DecoderSettings, EncoderSettings, find_ffmpeg

SIZE = (64, 48)
FPS = 25
SAMPLE_RATE = 48_000
PER_FRAME = SAMPLE_RATE // FPS
INPUT = AudioTrack(SAMPLE_RATE, 2)
# Codecs that keep the samples, by their type.
PLAIN = {"int16": "pcm_s16le", "int32": "pcm_s32le", "float32": "pcm_f32le"}
# Loud enough to be found after every codec, and longer than any frame of one.
CLAP_S = 0.05
LOUD = 0.1


def claps(seconds: float, channels: int = 2, sample_rate: int = SAMPLE_RATE) -> npt.NDArray[np.float32]:
    """A tone of 1 kHz at the beginning of each second."""
    times = np.arange(round(seconds * sample_rate)) / sample_rate
    tone = 0.5 * np.sin(2 * np.pi * 1000 * times) * (times % 1 < CLAP_S)
    return np.repeat(tone[:, np.newaxis], channels, 1).astype(np.float32)


def picture(index: int) -> npt.NDArray[np.uint8]:
    """White at the beginning of each second."""
    return np.full((SIZE[1], SIZE[0], 3), 255 if index % FPS == 0 else 0, np.uint8)


def make(
    output: Path, *, frames: int = 3 * FPS, audio: Any = INPUT, **options: Any
) -> penstock.video.EncodeReport:
    """A video with `frames` pictures. Samples are written in step with them."""
    settings = {"size": SIZE, "fps": FPS, "preset": "ultrafast"} | options
    with Encoder(output, audio=audio, **settings) as encoder:
        sound = claps(frames / FPS)
        for index in range(frames):
            encoder.write(picture(index))
            if isinstance(audio, AudioTrack):
                encoder.write_audio(sound[index * PER_FRAME : (index + 1) * PER_FRAME])
    assert encoder.report is not None
    return encoder.report


def beside_a_picture(path: Path, audio: AudioTrack, **options: Any) -> Encoder:
    """An encoder with one picture, for samples of any length."""
    encoder = Encoder(path, size=SIZE, fps=FPS, audio=audio, **options)
    encoder.write(picture(0))
    return encoder


def sounded(path: Path, codec: str, seconds: float = 8, sample_rate: int = SAMPLE_RATE) -> Path:
    """A sound file with a clap each second."""
    path.write_bytes(encoded(path.suffix, codec, seconds, sample_rate))
    return path


@functools.cache
def encoded(suffix: str, codec: str, seconds: float, sample_rate: int) -> bytes:
    samples = claps(seconds, sample_rate=sample_rate)
    command = (find_ffmpeg(), "-v", "error", "-f", "f32le", "-ar", str(sample_rate), "-ac", "2", "-i", "-")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"sound{suffix}")
        subprocess.run((*command, "-strict", "-2", "-c:a", codec, path), input=samples.tobytes(), check=True)
        return path.read_bytes()


def heard_s(path: Path, stream: int = 0) -> tuple[list[float], float]:
    """When the claps are, and when the sound ends, by decoding it at its own times."""
    aligned = "aresample=48000:async=1:min_hard_comp=0.001:first_pts=0"
    command = (find_ffmpeg(), "-v", "error", "-i", path, "-map", f"0:a:{stream}", "-af", aligned)
    raw = subprocess.run((*command, "-ac", "1", "-f", "f32le", "-"), capture_output=True, check=True).stdout
    samples = np.frombuffer(raw, "<f4")
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    first = loud[np.insert(np.diff(loud) > SAMPLE_RATE // 2, 0, True)] if len(loud) else loud
    return [float(at) / 48_000 for at in first], len(samples) / 48_000


def seen_s(path: Path) -> list[float]:
    """When the flashes are."""
    with penstock.Decoder(path, pixel_format="gray") as decoder:
        return [float(frame.time_s or 0) for frame in decoder if frame.mean() > 128]


def assert_in_step(path: Path, seconds: int, within_s: float = 1 / FPS) -> None:
    flashes, (heard, _) = seen_s(path), heard_s(path)
    assert len(flashes) == seconds
    assert len(heard) >= seconds
    assert np.abs(np.array(flashes) - heard[:seconds]).max() <= within_s


# Samples of the program


@pytest.mark.parametrize(("rate", "codec"), [(44_100, "libmp3lame"), (22_050, "aac"), (8_000, "aac")])
def test_the_priming_of_a_sound_is_no_wrong_time_of_the_picture(
    tmp_path: Path, rate: int, codec: str
) -> None:
    track = AudioTrack(rate, 1, codec=codec)
    with Encoder(tmp_path / "a.flv", codec="flv", fps=None, audio=track) as encoder:
        for number in range(4):
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=number / 10)
        encoder.write_audio(np.zeros((rate, 1), np.float32))
    begins_s = probe(tmp_path / "a.flv").video[0].start_s
    assert begins_s == pytest.approx(1105 / rate if codec == "libmp3lame" else 1024 / rate, abs=2e-3)


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.webm"])
def test_audio_and_frames_are_in_sync(tmp_path: Path, name: str) -> None:
    codec = {"codec": "libvpx-vp9", "preset": None} if name.endswith("webm") else {}
    report = make(tmp_path / name, **codec)
    assert (report.frames_encoded, report.samples_submitted, report.warnings) == (75, 3 * SAMPLE_RATE, ())
    assert_in_step(tmp_path / name, 3)
    [sound] = probe(tmp_path / name).audio
    assert (sound.sample_rate, sound.channels, sound.channel_layout) == (SAMPLE_RATE, 2, "stereo")


@pytest.mark.parametrize("order", ["sound first", "picture first", "in turns of a second"])
def test_audio_and_frames_can_be_written_in_any_order(tmp_path: Path, order: str) -> None:
    seconds = 10
    sound = claps(seconds)
    with Encoder(tmp_path / "a.mp4", size=SIZE, fps=FPS, audio=INPUT, preset="ultrafast") as encoder:
        if order == "sound first":
            encoder.write_audio(sound, timeout=20)
        for index in range(seconds * FPS):
            encoder.write(picture(index), timeout=20)
            if order == "in turns of a second" and index % FPS == FPS - 1:
                second = index // FPS
                encoder.write_audio(sound[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE], timeout=20)
        if order == "picture first":
            encoder.write_audio(sound, timeout=20)
    assert_in_step(tmp_path / "a.mp4", seconds)
    assert heard_s(tmp_path / "a.mp4")[1] == pytest.approx(seconds, abs=0.03)


@pytest.mark.parametrize(
    ("fps", "codec"),
    # JPEG's pixel formats have no name in the stream that has both.
    [(Fraction(30_000, 1001), "ffv1"), (240, "ffv1"), (FPS, "mjpeg")],
)
def test_audio_does_not_change_the_pictures(tmp_path: Path, fps: float, codec: str) -> None:
    for name, audio in (("a.mkv", None), ("b.mkv", AudioTrack(SAMPLE_RATE, 1, codec="flac"))):
        with Encoder(tmp_path / name, size=SIZE, fps=fps, codec=codec, audio=audio) as encoder:
            for index in range(20):
                encoder.write(np.full((48, 64, 3), 10 * index, np.uint8))
            if audio is not None:
                encoder.write_audio(claps(float(20 / Fraction(fps)), 1))
    names = ("a.mkv", "b.mkv")
    without, with_sound = (
        ffmpeg("-i", tmp_path / name, "-map", "0:v", "-f", "framemd5", "-") for name in names
    )
    assert with_sound == without
    without, with_sound = (probe(tmp_path / name).video[0].frame_rate for name in names)
    assert with_sound == without


def test_times_of_frames_go_with_sound(tmp_path: Path) -> None:
    times_s = [0, 0.04, 1, 1.5, 2, 3.75]
    with Encoder(tmp_path / "a.mp4", size=SIZE, fps=None, audio=INPUT, preset="ultrafast") as encoder:
        encoder.write_audio(claps(4))
        for time_s in times_s:
            encoder.write(picture(0 if time_s == int(time_s) else 1), time_s=time_s)
    assert seen_s(tmp_path / "a.mp4") == pytest.approx([0, 1, 2], abs=1e-6)
    assert heard_s(tmp_path / "a.mp4")[0] == pytest.approx([0, 1, 2, 3], abs=0.002)


@pytest.mark.parametrize(("dtype", "channels"), [("int16", 1), ("int32", 6), ("float32", 2)])
def test_lossless_audio_keeps_every_sample(tmp_path: Path, dtype: Any, channels: int) -> None:
    random = np.random.default_rng(1)
    samples: npt.NDArray[Any] = (
        random.uniform(-1, 1, (30_000, channels)).astype(np.float32)
        if dtype == "float32"
        else random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (30_000, channels), dtype)
    )
    sound = AudioTrack(44_100, channels, dtype, codec=PLAIN[dtype])
    with beside_a_picture(tmp_path / "a.mkv", sound) as encoder:
        encoder.write_audio(samples[:1])
        encoder.write_audio(samples[1:10_000])
        encoder.write_audio(np.asfortranarray(samples[10_000:20_000]))
        encoder.write_audio(np.repeat(samples[20_000:], 2, 0)[::2])
        encoder.write_audio(samples[:0])
    with AudioDecoder(tmp_path / "a.mkv", dtype=dtype) as decoder:
        assert np.array_equal(decoder.read_all(), samples)
    assert encoder.report is not None
    assert encoder.report.samples_submitted == 30_000


def test_samples_can_be_overwritten_after_write_audio_returns(tmp_path: Path) -> None:
    sound = AudioTrack(SAMPLE_RATE, 1, "int16", codec=PLAIN["int16"])
    with beside_a_picture(tmp_path / "a.mkv", sound) as encoder:
        block = np.empty((4800, 1), np.int16)
        for index in range(50):
            block[:] = index
            encoder.write_audio(block)
            block[:] = -1
    with AudioDecoder(tmp_path / "a.mkv", dtype="int16") as decoder:
        assert np.array_equal(decoder.read_all()[::4800, 0], np.arange(50))


def test_asyncio_tasks_write_audio_beside_frames(tmp_path: Path) -> None:
    async def write_all(encoder: Encoder) -> None:
        async def sound() -> None:
            for second in range(4):
                await encoder.awrite_audio(claps(4)[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE])

        async def pictures() -> None:
            for index in range(4 * FPS):
                await encoder.awrite(picture(index))

        await asyncio.gather(sound(), pictures())

    with Encoder(tmp_path / "a.mp4", size=SIZE, fps=FPS, audio=INPUT, preset="ultrafast") as encoder:
        asyncio.run(write_all(encoder))
    assert_in_step(tmp_path / "a.mp4", 4)


# Wrong samples


def test_wrong_samples_are_refused_at_the_call(tmp_path: Path) -> None:
    with beside_a_picture(tmp_path / "a.mkv", INPUT) as encoder:
        for samples, error, word in (
            (np.zeros((10, 3), np.float32), ValueError, r"\(n, 2\), not \(10, 3\)"),
            (np.zeros((2, 10), np.float32), ValueError, "samples.T"),
            (np.zeros(10, np.float32), ValueError, r"not \(10,\)"),
            (np.full((10, 2), 1e300), ValueError, "infinite"),
            (np.full((10, 2), -np.inf, np.float32), ValueError, "infinite"),
            (np.full((10, 2), np.nan, np.float32), ValueError, "NaN"),
            (np.zeros((10, 2), np.int64), ValueError, "int64"),
            (np.zeros((10, 2), np.int16), ValueError, "int16"),
            (np.ma.masked_less(np.zeros((10, 2), np.float32), 1), ValueError, "filled"),
            (picture(0), ValueError, "AudioTrack"),
            (b"bytes", TypeError, "channels"),
        ):
            with pytest.raises(error, match=word):
                encoder.write_audio(samples)  # type: ignore[arg-type]
        encoder.write_audio(claps(0.1))
    assert encoder.report is not None
    assert encoder.report.samples_submitted == SAMPLE_RATE // 10


def test_floats_of_any_size_are_taken(tmp_path: Path) -> None:
    samples = claps(0.1).astype(np.float16)
    sound = AudioTrack(SAMPLE_RATE, 2, codec=PLAIN["float32"])
    with beside_a_picture(tmp_path / "a.mkv", sound) as encoder:
        for dtype in (np.float64, np.float16, ">f4"):
            encoder.write_audio(samples.astype(dtype))
    with AudioDecoder(tmp_path / "a.mkv") as decoder:
        assert np.array_equal(decoder.read_all(), np.tile(samples.astype(np.float32), (3, 1)))


@pytest.mark.parametrize(("codec", "found"), [("mp3", "mp3"), ("AAC", "aac")])
def test_format_name_selects_an_audio_encoder(tmp_path: Path, codec: str, found: str) -> None:
    with beside_a_picture(tmp_path / "a.mkv", AudioTrack(SAMPLE_RATE, 2, codec=codec)) as encoder:
        encoder.write_audio(claps(0.1))
    assert probe(tmp_path / "a.mkv").audio[0].codec == found


def test_calls_that_do_not_fit_the_encoder_are_refused(tmp_path: Path) -> None:
    with Encoder(tmp_path / "a.mp4", size=SIZE, fps=FPS) as encoder:
        with pytest.raises(ValueError):
            encoder.write_audio(claps(1))
        encoder.write(picture(0))
    with pytest.raises(ClosedError):
        encoder.write_audio(claps(1))
    encoder = Encoder(tmp_path / "a.mp4", fps=FPS, audio=INPUT)
    with pytest.raises(ValueError):
        encoder.write_audio(claps(1))  # before the size is known
    encoder.abort()
    encoder = Encoder(tmp_path / "a.mp4", size=SIZE, fps=FPS, audio=INPUT, codec="mpeg4")
    encoder.write_audio(claps(1)[:0])
    with pytest.raises(EncoderError):
        encoder.close()  # without a frame


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"audio": 3}, TypeError, "path"),
        ({"audio": np.zeros((9, 2))}, TypeError, "AudioTrack"),
        ({"audio": (np.zeros((9, 2)), SAMPLE_RATE)}, TypeError, "AudioTrack"),
        ({"fps": None, "codec": None}, TypeError, "codec"),
        ({"audio": [INPUT, INPUT]}, ValueError, "one AudioTrack"),
        ({"audio": AudioTrack(8000, 1, codec="copy")}, ValueError, "copy"),
        ({"audio": AudioTrack(8000, 1, codec="aacc")}, EncoderError, "'aac'"),
        ({"audio": [AudioTrack(8000, 1, codec="aac")], "fps": 1000}, ValueError, "fps=1000"),
        ({"audio": "missing.wav"}, FileNotFoundError, "missing.wav"),
        ({"options": {"an": None}}, ValueError, "audio"),
        *(({"options": {option: 1}}, ValueError, "samples") for option in ("frames:a", "aframes")),
        ({"pixel_format": "p010le", "codec": "libx265"}, ValueError, "times"),
    ],
)
def test_impossible_audio_is_refused_at_the_call(
    tmp_path: Path, options: Any, error: type[Exception], message: str
) -> None:
    output = tmp_path / "a.mp4"
    with pytest.raises(error, match=message):
        Encoder(output, **{"size": SIZE, "fps": FPS, "audio": INPUT} | options)
    assert not output.exists()


@pytest.mark.parametrize(
    "name, sound, options, warned",
    [
        ("a.mkv", AudioTrack(48_000, 6, codec="mp3"), {}, "has 6 channels, but the file's mp3 has 2"),
        (
            "a.mkv",
            AudioTrack(96_000, 2, codec="mp3"),
            {},
            "96000 Hz, but the file's mp3 has 48000",
        ),
        ("a.mkv", AudioTrack(96_000, 6, codec="mp3"), {"ac": 2, "ar": 48_000}, None),
        ("a.mkv", AudioTrack(44_100, 2, codec="opus"), {}, None),
        ("a.mkv", AudioTrack(96_000, 6, codec="flac"), {}, None),
        ("a.mxf", AudioTrack(48_000, 2), {}, "the float32 samples become 16 bits in pcm_s16le"),
        ("a.mxf", AudioTrack(48_000, 2, codec="pcm_s16le"), {}, None),
        ("a.mxf", AudioTrack(48_000, 2, dtype="int16"), {}, None),
    ],
)
def test_lost_channels_sample_rate_and_bit_depth_warn(
    tmp_path: Path, name: str, sound: AudioTrack, options: dict[str, object], warned: str | None
) -> None:
    with (
        warnings.catch_warnings(record=True) as caught,
        beside_a_picture(tmp_path / name, sound, options=options, codec="mpeg2video") as encoder,
    ):
        warnings.simplefilter("always")
        encoder.write_audio(claps(0.2, sound.channels, sound.sample_rate).astype(sound.dtype))
        report = encoder.close()
    said = [str(one.message) for one in caught]
    assert set(said) <= set(report.warnings)
    assert (warned is None and not said) or [warned in one for one in said] == [True]


def test_mixed_down_audio_file_warns_unless_asked_for(tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "anoisesrc=d=3", "-ac", 6, tmp_path / "six.flac")
    audio = AudioFile(tmp_path / "six.flac", codec="libmp3lame")
    with pytest.warns(FFmpegWarning, match="channels"):
        make(tmp_path / "a.mp4", audio=audio, frames=5)
    assert not make(tmp_path / "b.mp4", audio=tmp_path / "six.flac", frames=5).warnings
    assert not make(tmp_path / "c.mp4", audio=audio, frames=5, options={"ac:a:0": 2}).warnings


def test_audio_that_is_never_written_warns(tmp_path: Path) -> None:
    with pytest.warns(FFmpegWarning):
        make(tmp_path / "a.mp4", frames=5, audio=[INPUT])
    assert probe(tmp_path / "a.mp4").audio == ()


def test_container_that_cannot_hold_audio_raises(tmp_path: Path) -> None:
    with pytest.raises(EncoderError):
        make(tmp_path / "a.gif", codec="gif", preset=None, output_pixel_format="rgb8")


@pytest.mark.parametrize("name", ["a.ts", "a.avi", "a.m3u8"])
def test_other_containers_hold_audio_in_sync(tmp_path: Path, name: str) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 8)
    make(tmp_path / name, audio=source)
    media = probe(tmp_path / name, follow_playlists=True)
    assert len(media.video) == len(media.audio) == 1
    assert media.audio[0].start_s == pytest.approx(media.video[0].start_s, abs=1 / FPS)
    assert media.duration_s == pytest.approx(3, abs=0.1)


def test_ffmpeg_tee_writes_audio_to_several_outputs(tmp_path: Path) -> None:
    folder = tmp_path.as_posix()  # a list of outputs takes a backslash for an escape
    outputs = f"[f=mp4]{folder}/a.mp4|[f=matroska]{folder}/a.mkv"
    options = {"f": "tee", "flags": "+global_header"}
    with Encoder(outputs, size=SIZE, fps=FPS, audio=INPUT, preset="ultrafast", options=options) as encoder:
        encoder.write_audio(claps(3))
        for index in range(3 * FPS):
            encoder.write(picture(index))
    for name in ("a.mp4", "a.mkv"):
        assert_in_step(tmp_path / name, 3)


# Sound of files


@pytest.mark.parametrize(
    "sound, codec, name, becomes",
    a_few(
        [
            ("a.m4a", "aac", "a.mp4", "aac"),
            ("a.m4a", "aac", "a.mkv", "aac"),
            ("a.m4a", "aac", "a.webm", "opus"),
            ("a.m4a", "aac", "a.mov", "aac"),
            ("a.opus", "libopus", "a.webm", "opus"),
            ("a.mkv", "aac", "a.mp4", "aac"),
            ("a.opus", "libopus", "a.mov", "aac"),
            ("a.ogg", "libvorbis", "a.mov", "aac"),
            ("a.mp3", "libmp3lame", "a.mp4", "mp3"),
            ("a.wav", "pcm_s16le", "a.webm", "opus"),
            ("a.wav", "pcm_s16le", "a.mov", "pcm_s16le"),
            ("a.wav", "pcm_s16le", "a.mp4", "aac"),
            ("a.flac", "flac", "a.mkv", "flac"),
            ("a.aac", "aac", "a.mp4", "aac"),
        ],
        3,
    ),
)
def test_audio_file_is_copied_if_the_container_holds_its_codec(
    tmp_path: Path, sound: str, codec: str, name: str, becomes: str
) -> None:
    (tmp_path / "in").mkdir()
    source = sounded(tmp_path / "in" / sound, codec, 8)
    video = {"codec": "libvpx-vp9", "preset": None} if name.endswith("webm") else {}
    report = make(tmp_path / name, audio=source, **video)
    assert report.warnings == ()
    [stream] = probe(tmp_path / name).audio
    assert stream.codec == becomes
    assert_in_step(tmp_path / name, 3)
    # A packet of FLAC has 96 ms.
    assert heard_s(tmp_path / name)[1] == pytest.approx(3, abs=0.1)


def test_a_copy_has_the_bytes_of_the_file(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 2)
    make(tmp_path / "a.mp4", audio=AudioFile(source, end="longest"), frames=FPS)

    def packets(path: Path) -> list[bytes]:
        lines = ffmpeg("-i", path, "-map", "0:a", "-c", "copy", "-f", "framemd5", "-").splitlines()
        return [line.split(b",")[5] for line in lines if not line.startswith(b"#")]

    assert packets(tmp_path / "a.mp4") == packets(source)


@pytest.mark.parametrize(
    ("end", "codec", "sound_s"),
    [("video", None, 6), ("video", "aac", 0.5), ("longest", None, 0.5), ("longest", "aac", 6)],
)
def test_end_option_sets_where_an_audio_file_ends(
    tmp_path: Path, end: Any, codec: str | None, sound_s: float
) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", sound_s)
    make(tmp_path / "a.mp4", audio=AudioFile(source, codec=codec, end=end), frames=2 * FPS)
    _, end_s = heard_s(tmp_path / "a.mp4")
    expected_s = {"video": min(sound_s, 2) if codec is None else 2, "longest": sound_s}[end]
    assert end_s == pytest.approx(expected_s, abs=0.05)
    assert len(seen_s(tmp_path / "a.mp4")) == 2


@pytest.mark.parametrize("frames", [26, 27, 51])
def test_encoded_audio_file_ends_exactly_with_the_video(tmp_path: Path, frames: int) -> None:
    source = sounded(tmp_path / "in.flac", "flac", 3)  # with packets of 96 ms
    make(
        tmp_path / "a.mkv",
        audio=AudioFile(source, codec="pcm_s16le"),
        frames=frames,
        fps=50,
    )
    with AudioDecoder(tmp_path / "a.mkv") as decoder:
        assert len(decoder.read_all()) == frames * SAMPLE_RATE // 50


@pytest.mark.parametrize(
    ("name", "times_s", "sound_s"),
    [
        ("a.mp4", None, 0.3),
        ("a.mp4", [0, 0.1, 0.5, 1.5], 6),
        ("a.mkv", None, 6),
        ("a.mkv", [0, 0.1, 0.5, 1.5], 0.3),
        ("a.ts", None, 6),
        ("a.ts", [0, 0.1, 0.5, 1.5], 0.3),
    ],
)
def test_audio_track_ends_with_the_video(
    tmp_path: Path, ffmpeg: str, name: str, times_s: list[float] | None, sound_s: float
) -> None:
    track, settings = AudioTrack(SAMPLE_RATE, 2, end="video"), EncoderSettings(ffmpeg=ffmpeg)
    fps = FPS if times_s is None else None
    with Encoder(tmp_path / name, size=SIZE, fps=fps, audio=track, settings=settings) as encoder:
        encoder.write_audio(claps(sound_s))
        for index, time_s in enumerate(times_s or [None] * 2 * FPS):
            encoder.write(picture(index), time_s=time_s)
    assert encoder.report is not None
    assert not any("audio" in warning for warning in encoder.report.warnings)
    video_s = 2 if times_s is None else 2.5
    assert heard_s(tmp_path / name)[1] == pytest.approx(video_s, abs=0.05)  # a frame of the codec


def test_audio_track_ends_with_the_video_in_a_fan_out_and_with_asyncio(tmp_path: Path) -> None:
    track = AudioTrack(SAMPLE_RATE, 2, codec="pcm_s16le", end="video")
    encoders = [Encoder(tmp_path / f"{name}.mkv", size=SIZE, fps=FPS, audio=track) for name in "ab"]
    with penstock.FanOut(encoders) as fan_out:
        for encoder, seconds in zip(encoders, (0.5, 3), strict=True):
            asyncio.run(write_audio(encoder, claps(seconds)))
        for index in range(FPS):
            fan_out.write(picture(index))
    for name in "ab":
        with AudioDecoder(tmp_path / f"{name}.mkv") as decoder:
            assert len(decoder.read_all()) == SAMPLE_RATE


async def write_audio(encoder: Encoder, samples: npt.NDArray[np.float32]) -> None:
    await encoder.awrite_audio(samples)


def test_audio_tracks_keep_language_and_title(tmp_path: Path) -> None:
    first = sounded(tmp_path / "first.m4a", "aac", 3)
    second = sounded(tmp_path / "second.wav", "pcm_s16le", 3, 44_100)
    sounds = [
        AudioFile(first, language="deu", title="Deutsch"),
        AudioTrack(SAMPLE_RATE, 1, codec="flac", language="eng"),
        AudioFile(second, codec="libopus"),
    ]
    with Encoder(tmp_path / "a.mkv", size=SIZE, fps=FPS, audio=sounds, preset="ultrafast") as encoder:
        for index in range(3 * FPS):
            encoder.write(picture(index))
            encoder.write_audio(claps(3, 1)[index * PER_FRAME : (index + 1) * PER_FRAME])
    assert [stream.codec for stream in probe(tmp_path / "a.mkv").audio] == ["aac", "flac", "opus"]
    assert [stream.is_default for stream in probe(tmp_path / "a.mkv").audio] == [True, False, False]
    for stream in range(3):
        assert heard_s(tmp_path / "a.mkv", stream)[0] == pytest.approx(seen_s(tmp_path / "a.mkv"), abs=0.04)
    told = probe(tmp_path / "a.mkv").audio
    assert [(one.language, one.title) for one in told] == [("deu", "Deutsch"), ("eng", None), (None, None)]


@pytest.mark.parametrize(
    ("name", "language", "lost"),
    [
        ("a.mp4", "deu", []),
        ("a.mp4", "de", ["language 'de'"]),
        ("a.mkv", "und", []),
        ("a.mov", "ger", []),
        ("a.mov", "deu", ["language 'deu'"]),
        ("a.avi", "deu", ["language 'deu'"]),
        ("a.ts", "deu", ["title 'Deutsch'"]),
    ],
)
def test_lost_language_or_title_of_an_audio_track_warns(
    tmp_path: Path, name: str, language: str, lost: list[str]
) -> None:
    sound = AudioTrack(SAMPLE_RATE, 1, language=language, title="Deutsch")
    encoder = Encoder(tmp_path / name, size=SIZE, fps=FPS, audio=sound, preset="ultrafast")
    encoder.write(picture(0))
    encoder.write_audio(claps(1, 1)[:PER_FRAME])
    warned = [one for one in encoder.close().warnings if "the audio's" in one]
    assert len(warned) == len(lost) and all(what in one for what, one in zip(lost, warned, strict=True))
    [told] = probe(tmp_path / name).audio
    assert ((told.language or "und") == language) == (f"language {language!r}" not in lost)
    assert (told.title == "Deutsch") == ("title 'Deutsch'" not in lost)


@pytest.mark.parametrize("change", [("-ac", 2), ("-ar", 44_100)])
def test_a_file_whose_channels_or_rate_change_is_kept_whole(tmp_path: Path, change: tuple[str, int]) -> None:
    """FFmpeg makes new filters where they change, and those must not begin again at 0."""
    tone = ("-f", "lavfi", "-i", "sine=600:r=48000:d=1", "-ac", 1)
    for name, options in (("a", ()), ("b", change)):
        ffmpeg(*tone, *options, tmp_path / f"{name}.aac")
    joined = tmp_path / "joined.aac"
    joined.write_bytes((tmp_path / "a.aac").read_bytes() + (tmp_path / "b.aac").read_bytes())
    make(tmp_path / "out.mkv", audio=AudioFile(joined, codec="flac"))
    with AudioDecoder(tmp_path / "out.mkv", channels=1) as audio:
        samples = np.abs(audio.read_all()[:, 0])
    loud_s = np.flatnonzero(samples > 0.02) / SAMPLE_RATE
    # Raw AAC has no times: FFmpeg's guess is 3 % off after the rate changes.
    assert loud_s[0] < 0.05 and loud_s[-1] == pytest.approx(2.05, abs=0.15)
    assert (samples.reshape(-1, SAMPLE_RATE // 20).max(axis=1)[1:38] > 0.02).all()


def test_the_sound_of_a_video_is_kept(tmp_path: Path) -> None:
    make(tmp_path / "in.mp4")
    with (
        penstock.Decoder(tmp_path / "in.mp4") as decoder,
        Encoder(tmp_path / "a.mkv", fps=decoder.stream.frame_rate, audio=tmp_path / "in.mp4") as encoder,
    ):
        for frame in decoder:
            encoder.write(frame)
    assert_in_step(tmp_path / "a.mkv", 3)


@pytest.mark.linux("FIFOs")
def test_sound_in_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.wav")
    with pytest.raises(ValueError):
        make(tmp_path / "b.mp4", audio=tmp_path / "fifo.wav")
    assert not (tmp_path / "b.mp4").exists()


def test_a_file_that_cannot_be_copied_or_has_no_sound_is_refused(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.opus", "libopus", 1)
    make(tmp_path / "silent.mp4", frames=5, audio=None)
    (tmp_path / "text.wav").write_text("no sound at all")
    make(tmp_path / "a.mp4", frames=5)
    (tmp_path / "link.mp4").hardlink_to(tmp_path / "a.mp4")
    for name, audio, error in (
        ("a.mov", AudioFile(source, codec="copy"), ValueError),
        ("b.mp4", tmp_path / "silent.mp4", DecoderError),
        ("b.mp4", tmp_path / "text.wav", DecoderError),
        ("a.mp4", tmp_path / "link.mp4", ValueError),  # which would be overwritten
    ):
        with pytest.raises(error):
            make(tmp_path / name, audio=audio)
    assert not (tmp_path / "b.mp4").exists() and probe(tmp_path / "a.mp4").audio


@pytest.mark.parametrize(("codec", "ending"), a_few(product([None, "pcm_s16le"], ["mov", "mkv", "ts"]), 2))
def test_a_file_that_begins_late_stays_in_step(tmp_path: Path, ending: str, codec: str | None) -> None:
    begins, late, out = tmp_path / f"begins.{ending}", tmp_path / f"late.{ending}", tmp_path / "out.mov"
    make(begins)
    ffmpeg("-i", begins, "-map", "0", "-c", "copy", "-output_ts_offset", "2", late)
    with (
        penstock.Decoder(late) as decoder,
        Encoder(out, fps=None, audio=AudioFile(late, codec=codec), preset="ultrafast") as encoder,
    ):
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    first_s = seen_s(late)[0]  # MKV and MPEG-TS begin the picture after the priming of AAC, 21 ms
    assert first_s == pytest.approx(0 if ending == "ts" else 2, abs=1 / FPS)
    # FFmpeg 9 puts the picture of MPEG-TS 10 ms and two ticks of 1/90,000 s later.
    assert seen_s(out)[0] == pytest.approx(first_s, abs=0.0101)
    heard, _ = heard_s(out)  # since the file's first timestamp
    assert (probe(out).start_s or 0.0) + heard[0] == pytest.approx(seen_s(out)[0], abs=1 / FPS)
    with AudioDecoder(late, start=first_s + 1.0) as audio:
        assert np.flatnonzero(np.abs(audio.read_all()[:, 0]) > LOUD)[0] < 0.05 * SAMPLE_RATE
    with AudioDecoder(late, start=first_s + 1.0 - 0.2) as audio:
        first = np.flatnonzero(np.abs(audio.read_all()[:, 0]) > LOUD)[0]
        assert first / SAMPLE_RATE == pytest.approx(0.2, abs=1 / FPS)


@pytest.mark.parametrize(
    ("wrong", "error", "word"),
    [
        ({"codec": 3}, TypeError, "codec"),
        ({"language": ["deu"]}, TypeError, "language"),
        ({"title": b"x"}, TypeError, "title"),
        ({"dtype": "float64"}, ValueError, "dtype"),
        ({"sample_rate": 2**31}, ValueError, "rate"),
        ({"channels": 0}, ValueError, "channels"),
        # Samples in place of a declaration.
        ({"end": "picture"}, ValueError, "longest"),
        ({"sample_rate": np.zeros((9, 2))}, TypeError, "AudioTrack"),
        ({"channels": np.zeros((9, 2))}, TypeError, "AudioTrack"),
        ({"sample_rate": [0.0] * 999}, TypeError, "AudioTrack"),
    ],
)
def test_wrong_audio_track_fields_are_refused(
    wrong: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        AudioTrack(**{"sample_rate": 8000, "channels": 1} | wrong)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("layout", a_few(["quad", "5.1(side)", "3.0", "7.1(wide)"], 2))
def test_channel_order_is_kept(tmp_path: Path, layout: str) -> None:
    tone = ("-f", "lavfi", "-i", "sine=d=2", "-af", f"aformat=channel_layouts={layout}")
    ffmpeg(*tone, "-c:a", "pcm_s16le", tmp_path / "in.wav")
    make(tmp_path / "a.mkv", audio=AudioFile(tmp_path / "in.wav", codec="pcm_s24le"), frames=FPS)
    [before], [after] = probe(tmp_path / "in.wav").audio, probe(tmp_path / "a.mkv").audio
    assert before.channel_layout == layout and after.channels == before.channels
    # Matroska keeps no layout: by its number of channels a reader takes the usual one.
    if after.channel_layout == layout:
        heard, wanted = (
            np.frombuffer(
                ffmpeg("-t", 1, "-i", tmp_path / name, "-map", "0:a", "-ac", 2, "-f", "s16le", "-"), "<i2"
            )
            for name in ("a.mkv", "in.wav")
        )
        assert np.array_equal(heard[: len(wanted)], wanted)


def test_surround_of_ac3_becomes_opus(tmp_path: Path) -> None:
    sides = ("-f", "lavfi", "-i", "sine=d=2", "-af", "pan=5.1(side)|FL=0*c0|SL=c0")
    ffmpeg(*sides, "-c:a", "ac3", tmp_path / "in.mka")
    assert probe(tmp_path / "in.mka").audio[0].channel_layout == "5.1(side)"
    make(tmp_path / "a.webm", audio=tmp_path / "in.mka", frames=FPS, preset=None)
    [sound] = probe(tmp_path / "a.webm").audio
    assert (sound.codec, sound.channel_layout) == ("opus", "5.1")
    heard = np.frombuffer(ffmpeg("-i", tmp_path / "a.webm", "-map", "0:a", "-f", "s16le", "-"), "<i2")
    loudness = np.abs(heard.reshape(-1, 6).astype(float)).mean(axis=0)
    assert loudness.argmax() == 4 and loudness[4] > 10 * np.delete(loudness, 4).max()


@pytest.mark.parametrize(
    "name, codec, becomes",
    [("in.flac", "flac", None), ("in.mka", "aac", "aac"), ("in.mp3", "libmp3lame", None)],
)
def test_cut_audio_file_warns(tmp_path: Path, name: str, codec: str, becomes: str | None) -> None:
    source = sounded(tmp_path / name, codec, 8)
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    with pytest.warns(FFmpegWarning):
        report = make(tmp_path / "a.mkv", audio=AudioFile(source, codec=becomes), frames=8 * FPS)
    assert any(name in warning for warning in report.warnings)


def test_audio_encoder_options_make_an_audio_file_be_encoded(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 8)
    make(tmp_path / "a.mp4", audio=source, options={"b:a": "32k", "ar": 22_050})
    assert probe(tmp_path / "a.mp4").audio[0].sample_rate == 22_050
    make(
        tmp_path / "b.mp4", audio=source, options={"disposition:a:0": "default", "metadata:s:a:0": "title=x"}
    )
    assert probe(tmp_path / "b.mp4").audio[0].sample_rate == SAMPLE_RATE


def test_late_frame_does_not_lengthen_the_audio(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 20)
    with Encoder(tmp_path / "a.mp4", size=SIZE, fps=None, audio=source, preset="ultrafast") as encoder:
        encoder.write(picture(0), time_s=5)
    assert heard_s(tmp_path / "a.mp4")[1] == pytest.approx(5, abs=0.1)


def test_a_sound_that_breaks_off_is_an_error_and_the_picture_is_whole(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.flac", "flac", 8)
    data = bytearray(source.read_bytes())
    data[len(data) // 5 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 5)
    source.write_bytes(data)
    with pytest.raises(EncoderError):
        make(tmp_path / "a.mp4", audio=AudioFile(source, codec="aac"), frames=6 * FPS)
    assert len(seen_s(tmp_path / "a.mp4")) == 6


# Faults


def test_ctrl_c_leaves_a_file_with_playable_video_and_audio(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 20)
    script = """
    import signal, sys, numpy as np, penstock
    from penstock.video import AudioTrack
    sounds = [sys.argv[2], AudioTrack(48_000, 2)]
    with penstock.Encoder(sys.argv[1], size=(64, 48), fps=25, audio=sounds, preset="ultrafast") as encoder:
        for index in range(500):
            encoder.write(np.full((48, 64, 3), 255 if index % 25 == 0 else 0, np.uint8))
            encoder.write_audio(np.full((1920, 2), 0.5, np.float32))
            if index == 60:
                signal.raise_signal(signal.SIGINT)
    """
    done = run_script(script, tmp_path / "a.mkv", source)
    assert done.returncode != 0 and b"KeyboardInterrupt" in done.stderr
    assert len(seen_s(tmp_path / "a.mkv")) == 3
    assert heard_s(tmp_path / "a.mkv", 0)[1] == pytest.approx(61 / FPS, abs=0.1)
    assert heard_s(tmp_path / "a.mkv", 1)[1] == pytest.approx(61 / FPS, abs=0.1)


@pytest.mark.linux("forks")
def test_forked_child_does_not_affect_the_audio(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 20)
    sounds = [source, INPUT]
    with Encoder(tmp_path / "a.mkv", size=SIZE, fps=FPS, audio=sounds, preset="ultrafast") as encoder:
        for index in range(3 * FPS):
            encoder.write(picture(index))
            encoder.write_audio(claps(3)[index * PER_FRAME : (index + 1) * PER_FRAME])
            if index == FPS:
                child = os.fork()
                if child == 0:
                    status = 1
                    with contextlib.suppress(ClosedError):
                        encoder.write_audio(claps(1))
                        status = 2
                    with contextlib.suppress(ClosedError):
                        encoder.close()
                        status = 3
                    os._exit(status)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert_in_step(tmp_path / "a.mkv", 3)
    assert heard_s(tmp_path / "a.mkv", 1)[0] == pytest.approx([0, 1, 2], abs=0.05)


def test_killed_ffmpeg_raises_at_the_next_write_audio(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 20)
    encoder = Encoder(tmp_path / "a.mkv", size=SIZE, fps=FPS, audio=[source, INPUT])
    encoder.write(picture(0))
    os.kill(encoder.pid, signal.SIGKILL)
    with pytest.raises(EncoderError) as caught:
        for _ in range(100):
            encoder.write_audio(claps(1))
    assert abs(caught.value.returncode) == signal.SIGKILL
    with pytest.raises(EncoderError):
        encoder.close()
    assert children() == set()


def test_abort_ends_the_reading_of_files(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.wav", "pcm_s16le", 60)  # more than the pipes to FFmpeg hold
    encoder = Encoder(tmp_path / "a.mkv", size=SIZE, fps=FPS, audio=source)
    encoder.write(picture(0))
    assert len(children()) == 2
    encoder.abort()
    assert children() == set()
    with pytest.raises(ClosedError):
        encoder.write(picture(1))


def test_stalled_ffmpeg_raises_and_no_sample_is_torn(tmp_path: Path) -> None:
    samples = np.arange(1_000_000, dtype=np.int32)[:, np.newaxis]
    settings = with_overrides(EncoderSettings(stall_timeout=None), queue_bytes=1 << 16)
    sound = AudioTrack(SAMPLE_RATE, 1, "int32", codec=PLAIN["int32"])
    with beside_a_picture(tmp_path / "a.mkv", sound, settings=settings) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        written = 0
        with pytest.raises(StalledError):
            while True:
                encoder.write_audio(samples[written : written + 10_000], timeout=0.2)
                written += 10_000
        os.kill(encoder.pid, signal.SIGCONT)
        encoder.write_audio(samples[written:])
    with AudioDecoder(tmp_path / "a.mkv", dtype="int32") as decoder:
        assert np.array_equal(decoder.read_all(), samples)


def test_stalled_audio_file_raises_at_close_and_the_pictures_are_kept(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.wav", "pcm_s16le", 60)  # more than the pipes to FFmpeg hold
    encoder = Encoder(
        tmp_path / "a.mp4",
        size=SIZE,
        fps=FPS,
        audio=source,
        settings=EncoderSettings(stall_timeout=0.5),
        preset="ultrafast",
    )
    [reading] = children() - {encoder.pid}
    encoder.write(picture(0))
    os.kill(reading, signal.SIGSTOP)
    for index in range(1, 10 * FPS):
        encoder.write(picture(index))
    with pytest.raises(EncoderError):
        encoder.close()
    assert len(seen_s(tmp_path / "a.mp4")) == 10


@pytest.mark.linux("signals to programs")
@pytest.mark.parametrize("end", ["longest", "video"])
def test_exception_of_a_signal_handler_tears_no_sample(tmp_path: Path, end: str) -> None:
    samples = np.random.default_rng(1).integers(-(2**15), 2**15, (60 * 8000, 1), np.int16)
    with wave.open(str(tmp_path / "in.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    script = """
    import numpy as np
    from penstock.video import AudioFile, AudioTrack
    from penstock import Encoder

    class Tick(Exception):
        pass

    is_armed = False

    def tick(*_):
        global is_armed
        if is_armed:
            is_armed = False
            raise Tick

    signal.signal(signal.SIGALRM, tick)
    sounds = [AudioFile(sys.argv[2], codec="copy"), AudioTrack(8000, 1, "int16", codec="pcm_s16le", end=sys.argv[3])]
    with Encoder(sys.argv[1], size=(64, 48), fps=25, codec="ffv1", pixel_format="gray", audio=sounds) as encoder:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.0007)
        ticks = 0
        while encoder.frames_submitted < 1500:
            try:
                number, is_armed = encoder.frames_submitted, True
                encoder.write(np.full((48, 64), number % 256, np.uint8))
                encoder.write_audio(np.full((320, 1), number, np.int16))
                is_armed = False
            except Tick:
                ticks += 1
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(ticks, encoder.report.samples_submitted)
    """
    told = succeeded(run_script(script, tmp_path / "a.mkv", tmp_path / "in.wav", end))
    ticks, submitted = map(int, told.split())
    assert ticks > 0
    with AudioDecoder(tmp_path / "a.mkv", stream=0, dtype="int16") as decoder:
        assert np.array_equal(decoder.read_all(), samples)
    with AudioDecoder(tmp_path / "a.mkv", stream=1, dtype="int16") as decoder:
        own = decoder.read_all()[:, 0]
    if end == "video":
        assert len(own) == 1500 * 320
        own = own[:submitted]
    assert len(own) == min(submitted, 1500 * 320)
    assert np.all(np.diff(own[::320]) >= 0) and np.array_equal(own, np.repeat(own[::320], 320))
    with penstock.Decoder(tmp_path / "a.mkv", pixel_format="gray") as video:
        assert [int(frame[0, 0]) for frame in video] == [number % 256 for number in range(1500)]


def test_timeouts_hold_while_a_sound_file_stalls(tmp_path: Path) -> None:
    source = sounded(tmp_path / "in.m4a", "aac", 60)
    settings = EncoderSettings(stall_timeout=None)
    encoder = Encoder(
        tmp_path / "a.mp4", size=SIZE, fps=FPS, audio=source, preset="ultrafast", settings=settings
    )
    [reading] = children() - {encoder.pid}
    encoder.write(picture(0))
    os.kill(reading, signal.SIGSTOP)
    with pytest.raises(StalledError):
        for _ in range(60 * FPS):
            encoder.write(picture(1), timeout=0.1)
    with pytest.raises(StalledError):
        asyncio.run(encoder.awrite(picture(1), timeout=0.1))
    with pytest.raises(StalledError):
        encoder.close(timeout=0.1)
    os.kill(reading, signal.SIGCONT)
    encoder.close()
    assert heard_s(tmp_path / "a.mp4")[1] == pytest.approx(encoder.frames_submitted / FPS, abs=0.1)


@examples(30)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=12),
    st.sampled_from([1, 3]),
    st.sampled_from(["longest", "video"]),
)
def test_audio_and_frames_of_any_order_and_size_are_kept(
    writes: list[tuple[bool, int]], channels: int, end: Any
) -> None:
    sound = AudioTrack(8000, channels, "int16", codec="pcm_s16le", end=end)
    blocks = [np.zeros((1, channels), np.int16)]
    writes = [*writes, (True, 7)]  # a picture without a frame is an error
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "a.mkv")
        with Encoder(output, size=SIZE, fps=FPS, codec="ffv1", pixel_format="gray", audio=sound) as encoder:
            encoder.write_audio(blocks[0])
            for is_frame, number in writes:
                if is_frame:
                    encoder.write(np.full((SIZE[1], SIZE[0]), number % 256, np.uint8))
                else:
                    blocks.append(
                        np.random.default_rng(number).integers(-999, 999, (number, channels), np.int16)
                    )
                    encoder.write_audio(blocks[-1])
        assert encoder.report is not None
        assert encoder.report.samples_submitted == sum(map(len, blocks))
        with penstock.Decoder(output, pixel_format="gray") as video:
            levels = [int(frame[0, 0]) for frame in video]
        assert levels == [number % 256 for is_frame, number in writes if is_frame]
        written = np.concatenate(blocks)
        if end == "video":
            written = np.resize(np.pad(written, ((0, 10_000), (0, 0))), (len(levels) * 8000 // FPS, channels))
        with AudioDecoder(output, dtype="int16") as decoder:
            assert np.array_equal(decoder.read_all(), written)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.webm"])
def test_audio_and_picture_are_in_sync_after_ten_minutes(tmp_path: Path, name: str) -> None:
    fps, sample_rate, seconds = Fraction(30_000, 1001), 44_100, 600
    codec: dict[str, Any] = {"preset": "ultrafast"}
    if name.endswith("webm"):
        codec = {"codec": "libvpx", "options": {"deadline": "realtime", "cpu-used": 8}}
    sound, done, flashes_s = AudioTrack(sample_rate, 1), 0, []
    with Encoder(tmp_path / name, size=SIZE, fps=fps, audio=sound, **codec) as encoder:
        for index in range(int(seconds * fps)):
            time_s = index / fps
            is_flash = time_s % 1 < 1 / fps
            flashes_s += [time_s] * is_flash
            encoder.write(np.full((SIZE[1], SIZE[0], 3), 255 * is_flash, np.uint8))
            until = int((index + 1) * sample_rate / fps)
            times = np.arange(done, until) / sample_rate - float(flashes_s[-1])
            tone = 0.5 * np.sin(2 * np.pi * 1000 * times) * (times < CLAP_S)
            encoder.write_audio(tone.astype(np.float32))
            done = until
    flashes, heard = np.array(seen_s(tmp_path / name)), np.array(heard_s(tmp_path / name)[0])
    assert len(flashes) == len(heard) == seconds
    assert np.abs(flashes - heard).max() <= 1 / fps
    # By ffprobe: what each stream says of its own end, where it says so.
    media = probe(tmp_path / name)
    ends_s = [one.duration_s for one in (*media.video, *media.audio) if one.duration_s is not None]
    assert max(ends_s) - min(ends_s) <= 1 / fps


def apart(path: Path, codec: str, later_s: float, seconds: int = 3) -> Path:
    """A video whose sound begins that much later than its picture, or sooner, and claps 0.5 s after its beginning."""
    container = {".ts": "mpegts", ".mpg": "mpeg"}.get(path.suffix, path.suffix[1:])
    video, sound = path.with_suffix(".video.mkv"), path.with_suffix(".sound.mkv")
    claps = f"aevalsrc='0.5*sin(2*PI*1000*t)*between(mod(t,1),0.5,{0.5 + CLAP_S})':s=48000:d={seconds}"
    command = (find_ffmpeg(), "-v", "error", "-y")
    picture = ("-f", "lavfi", "-i", f"color=white:s=64x48:r=25:d={seconds}")
    encoder = "libtheora" if container == "ogg" else "mpeg2video"
    subprocess.run((*command, *picture, "-c:v", encoder, "-bf", "0", video), check=True)
    subprocess.run((*command, "-f", "lavfi", "-i", claps, "-c:a", codec, sound), check=True)
    first, second = ("-itsoffset", str(max(-later_s, 0))), ("-itsoffset", str(max(later_s, 0)))
    both = (*first, "-i", video, *second, "-i", sound, "-map", "0:v", "-map", "1:a", "-c", "copy")
    subprocess.run((*command, *both, "-f", container, path), check=True)
    return path


# Codec, ending, and what is made of it: by an `Encoder` that copies or encodes, or by `map_video` in a container. That
# needs the time of each frame, which MPEG-PS does not have. Limits have Ogg that is copied.
APART = [
    *product(("mp2", "aac", "ac3"), ("ts",), ("copy", "aac", "mov", "mkv")),
    *product(("mp2", "ac3"), ("mpg",), ("copy", "aac")),
    *product(("libvorbis",), ("ogg",), ("aac", "mov")),
    *product(("aac",), ("matroska",), ("copy", "aac", "mov", "mkv")),
]


@pytest.mark.parametrize(
    "codec, ending, made, later_s", a_few(((*one, later_s) for later_s in (0.8, -0.8) for one in APART), 9)
)
def test_audio_that_begins_at_another_time_than_the_picture_stays_in_sync(
    tmp_path: Path, ffmpeg: str, codec: str, ending: str, made: str, later_s: float
) -> None:
    source, settings = apart(tmp_path / f"in.{ending}", codec, later_s), EncoderSettings(ffmpeg=ffmpeg)
    out = tmp_path / f"out.{'mkv' if made == 'mkv' else 'mov'}"
    if made.startswith("m"):
        encoder = {"preset": "ultrafast", "settings": settings}
        mapped(source, out, encoder_options=encoder)
        first_s = 0.0
    else:
        audio = AudioFile(source, codec=made)
        with (
            penstock.Decoder(source) as decoder,
            Encoder(out, fps=None, audio=audio, preset="ultrafast", settings=settings) as encoder,
        ):
            for frame in decoder:
                encoder.write(frame, time_s=frame.time_s)
        first_s = max(-later_s, 0.0)
    heard, _ = heard_s(out)
    wanted = [at for at in (first_s + later_s + n + 0.5 for n in range(3)) if at > 0]
    assert heard[0] == pytest.approx(wanted[0], abs=1 / FPS)
    # Of a render, the sound ends with the picture.
    assert len(heard) >= len([at for at in wanted if at < first_s + 2.9])


def test_a_copy_of_chained_ogg_fails_in_ffmpegs_words(tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "sine=r=44100:d=1", "-c:a", "libvorbis", tmp_path / "part.ogg")
    path = tmp_path / "joined.ogg"
    path.write_bytes(2 * (tmp_path / "part.ogg").read_bytes())
    try:
        with Encoder(tmp_path / "a.mp4", fps=25, audio=path) as encoder:
            for _ in range(50):
                encoder.write(np.zeros((48, 64, 3), np.uint8))
    except EncoderError as failure:
        assert re.search("(?i)monoton.* dts", str(failure))
    else:
        pytest.skip("this FFmpeg copies it")


@functools.cache
def ogg_flac(channels: int, length_s: float) -> bytes:
    """A tone as FLAC in Ogg."""
    tone = ("-f", "lavfi", "-i", f"sine=r=48000:d={length_s}", "-ac", channels)
    return ffmpeg(*tone, "-c:a", "flac", "-f", "ogg", "pipe:1")


@pytest.mark.parametrize("channels", [(1, 2, 1), (1, 1, 1)])
@pytest.mark.parametrize("lengths_s", [(1, 1, 1), (1.2345, 0.53, 1.2345)])
def test_joined_ogg_flac_is_encoded_whole_and_without_gaps(
    tmp_path: Path, ffmpeg: str, channels: tuple[int, ...], lengths_s: tuple[float, ...]
) -> None:
    """FFmpeg 5.1 says that the samples after a seam are later than they are, and FFmpeg 9 that some are earlier."""
    source, path = tmp_path / "a.oga", tmp_path / "a.mkv"
    source.write_bytes(b"".join(map(ogg_flac, channels, lengths_s)))
    audio = AudioFile(source, codec="pcm_s16le", end="longest")
    make(path, frames=FPS, audio=audio, settings=EncoderSettings(ffmpeg=ffmpeg))
    with AudioDecoder(path) as decoder:
        samples = np.abs(decoder.read_all()).max(1)
    assert len(samples) == sum(round(length_s * 48_000) for length_s in lengths_s)
    assert np.diff(np.flatnonzero(samples > 0.01)).max() < 48  # no silence


def test_samples_under_a_wrong_header_are_refused_or_right(tmp_path: Path, ffmpeg: str) -> None:
    """FFmpeg 9 writes 24-bit samples into MP4 under a header that says 32; 5.1 writes none at all."""
    path, track = tmp_path / "a.mp4", AudioTrack(SAMPLE_RATE, 2, dtype="int32", codec="pcm_s24le")
    samples = (claps(0.2) * (2**31 - 1)).astype(np.int32)
    try:
        with Encoder(
            path, size=SIZE, fps=FPS, audio=track, settings=EncoderSettings(ffmpeg=ffmpeg)
        ) as encoder:
            for index in range(5):
                encoder.write(picture(index))
            encoder.write_audio(samples)
    except (ValueError, EncoderError):
        assert not path.exists()
        return
    with AudioDecoder(path, dtype="int32", settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder:
        np.testing.assert_allclose(decoder.read_all(), samples, atol=256)


@pytest.mark.parametrize("codec", ["pcm_s24le", "pcm_s32le"])
def test_copied_samples_are_refused_or_right(tmp_path: Path, ffmpeg: str, codec: str) -> None:
    """FFmpeg 9 copies PCM to MP4, and 5.1 neither does nor reads it."""
    source, path = sounded(tmp_path / "a.wav", codec, 1), tmp_path / "a.mp4"
    try:
        make(path, frames=FPS, audio=AudioFile(source, "copy"), settings=EncoderSettings(ffmpeg=ffmpeg))
    except (ValueError, EncoderError):
        assert not path.exists()
        return
    settings = DecoderSettings(ffmpeg=ffmpeg)
    with AudioDecoder(path, settings=settings) as decoder, AudioDecoder(source) as original:
        got, wanted = decoder.read_all(), original.read_all()
    np.testing.assert_allclose(got, wanted[: len(got)], atol=1e-4)


def test_the_last_packet_of_a_copied_sound_is_heard_in_mp4(tmp_path: Path, ffmpeg: str) -> None:
    """FFmpeg isn't told its length, but MP4 ends after it."""
    source = sounded(tmp_path / "in.opus", "libopus", 2)
    make(tmp_path / "a.mp4", audio=source, settings=EncoderSettings(ffmpeg=ffmpeg))
    with AudioDecoder(tmp_path / "a.mp4") as decoder, AudioDecoder(source) as original:
        assert (
            len(decoder.read_all()) > len(original.read_all()) - 48
        )  # 1 ms: MP4's edit list is in milliseconds


def test_file_whose_audio_decodes_to_nothing_is_no_success(tmp_path: Path) -> None:
    source = tmp_path / "a.flac"
    command = ("-v", "error", "-f", "lavfi", "-i", "sine=d=0.5", "-sample_fmt", "s32")
    bits = ("-bits_per_raw_sample", "32", "-strict", "-2")
    decode = ("-v", "quiet", "-i", source, "-f", "s32le", "pipe:1")
    deaf: list[str] = []
    for writer in ffmpegs():
        if not deaf and not subprocess.run((writer, "-y", *command, *bits, source), check=False).returncode:
            deaf = [
                one for one in ffmpegs() if not subprocess.run((one, *decode), capture_output=True).stdout
            ]
    if not deaf:
        pytest.skip("needs an FFmpeg that writes FLAC of 32 bits, and one that doesn't decode it")
    settings = EncoderSettings(ffmpeg=deaf[0])
    with pytest.raises(EncoderError, match="decode"):
        make(tmp_path / "a.mp4", frames=5, audio=AudioFile(source, codec="aac"), settings=settings)


@pytest.mark.parametrize(("codec", "ending"), [("truehd", "thd"), ("tta", "tta")])
def test_audio_that_cannot_travel_beside_frames_is_encoded(
    tmp_path: Path, ffmpeg: str, codec: str, ending: str
) -> None:
    source, output = tmp_path / f"a.{ending}", tmp_path / "a.mkv"
    tone = ("-f", "lavfi", "-i", "sine=r=48000:d=0.5", "-ac", "2", "-c:a", codec, "-strict", "-2")
    subprocess.run((ffmpeg, "-v", "error", *tone, source), check=True)
    settings = EncoderSettings(ffmpeg=ffmpeg)
    make(output, frames=10, audio=source, settings=settings)
    assert [one.codec for one in probe(output).audio] == ["aac"]
    with pytest.raises(ValueError, match="codec"):
        make(output, frames=10, audio=AudioFile(source, codec="copy"), settings=settings)


@pytest.mark.parametrize(
    ("ending", "options", "codec"),
    [
        ("mkv", {}, "aac"),
        ("ts", {}, "aac"),
        ("flv", {}, "aac"),
        ("avi", {}, "aac"),
        ("nut", {}, "aac"),
        ("webm", {}, "opus"),
        ("mkv", {"acodec": "flac"}, "flac"),
    ],
)
def test_audio_without_a_codec_is_what_players_know(
    tmp_path: Path, ending: str, options: dict[str, object], codec: str
) -> None:
    path = tmp_path / f"a.{ending}"
    make(path, frames=FPS, options=options, preset=None)
    assert [one.codec for one in probe(path).audio] == [codec]


def test_samples_that_outlast_the_video_warn(tmp_path: Path) -> None:
    with beside_a_picture(tmp_path / "a.mp4", INPUT) as encoder:
        encoder.write_audio(claps(1))
        with pytest.warns(FFmpegWarning, match="end='video'"):
            encoder.close()
