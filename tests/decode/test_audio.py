"""The `AudioDecoder` against FFmpeg itself: which samples, from where, and what is said when there are none."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.audio.layout import AudioLayout
from support.cases import PATIENCE_S, a_few, eventually, ffmpegs, needs_the_end_of_edits
from support.clips import clip
from support.media import ffmpeg, made_by_the_newest
from support.media import nothing_is_left as nothing_is_left
from support.processes import processes

from penstock import (
    AudioDecoder,
    ClosedError,
    Decoder,
    DecoderError,
    Encoder,
    EncoderError,
    StalledError,
    probe,
)
from penstock._decoding.audio import SampleType
from penstock._decoding.placed_sound import BLOCK_SAMPLES
from penstock.video import DecoderSettings, EncoderSettings, find_ffmpeg

SOUNDS = ("audio_aac", "audio_pcm", "audio_flac_51", "audio_only", "audio_only_m4a")
FORMATS = {"uint8": "u8", "int16": "s16le", "int32": "s32le", "float32": "f32le", "float64": "f64le"}
RATE = 48_000
BY_PROGRAM = DecoderSettings(ffmpeg=find_ffmpeg())
# Of AAC, the versions decode other samples.
NEWEST = ffmpegs()[-1]
# No two pieces of it are alike.
SWEEP = "aevalsrc='sin(2*PI*t*(200+60*t))|cos(330*t*t)':d=15:s=48000"


def raw(path: Path, channels: int, dtype: str = "float32", *options: str) -> np.ndarray:
    """All samples as FFmpeg's own raw output has them."""
    if path.suffix in (".mp4", ".m4a"):
        needs_the_end_of_edits(NEWEST)
    arguments = ("-i", f"file:{path}", "-vn", *options, "-f", FORMATS[dtype], "pipe:1")
    made = ffmpeg(*arguments, program=NEWEST)
    return np.frombuffer(made, np.dtype(dtype)).reshape(-1, channels)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in SOUNDS),
        *((SOUNDS[0], dtype) for dtype in FORMATS if dtype != "float32"),
    ],
)
def test_samples_match_ffmpeg(name: str, dtype: str) -> None:
    with AudioDecoder(clip(name), dtype=dtype) as audio:  # type: ignore[arg-type]
        samples = audio.read_all()
        assert (samples.dtype, samples.shape[1]) == (np.dtype(dtype), audio.stream.channels)
        assert len(samples) > 0.4 * audio.sample_rate
        assert np.array_equal(samples, raw(clip(name), audio.channels, dtype))
        assert audio.read() is None
        assert audio.read_all().shape == (0, audio.channels)


@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (48_000, 2), (8_000, 6)])
@pytest.mark.parametrize("name", ["audio_aac", "audio_flac_51"])
def test_resampled_and_mixed_samples_match_ffmpeg(name: str, rate: int, channels: int) -> None:
    with AudioDecoder(clip(name), sample_rate=rate, channels=channels) as audio:
        assert (audio.sample_rate, audio.channels) == (rate, channels)
        # By the matrix for integers, which is never louder than full scale.
        mixed = ("-af", f"aresample={rate}:rematrix_maxval=1", "-ac", str(channels))
        expected = raw(clip(name), channels, "float32", *mixed)
        assert np.array_equal(audio.read_all(), expected)


@functools.cache
def sweep(folder: Path, ending: str) -> tuple[Path, np.ndarray]:
    path = folder / f"sweep.{ending}"
    picture = ("-f", "lavfi", "-i", "testsrc2=d=15:s=64x48", "-c:v", "mpeg4")
    video = () if ending in ("m4a", "wav", "flac") else picture
    codec = {"wav": "pcm_s16le", "flac": "flac"}.get(ending, "aac")
    ffmpeg("-f", "lavfi", "-i", SWEEP, *video, "-c:a", codec, "-y", str(path))
    early_s = (probe(path).audio[0].start_s or 0.0) - first_s(path)
    return path, raw(path, 2)[round(early_s * RATE) :]


def first_s(path: Path) -> float:
    """The time of FFmpeg's first sample. In Matroska, before version 8, it may be one by which the decoder begins."""
    command = [NEWEST, "-nostdin", "-copyts", "-i", path, "-map", "0:a:0", "-af", "ashowinfo"]
    done = subprocess.run([*command, "-f", "null", "-"], capture_output=True, text=True, check=True)
    first = re.search(r"pts_time: *(\S+)", done.stderr)
    assert first is not None
    return 0.0 if first[1] == "NOPTS" else float(first[1])


@pytest.mark.parametrize("share", [0.97, 0.6])
@pytest.mark.parametrize("ending", a_few(["mp3", "aiff", "mka", "flac", "flv", "wav"], 3))
def test_sound_that_was_cut_off_is_an_error(tmp_path: Path, ending: str, share: float) -> None:
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    ffmpeg("-f", "lavfi", "-i", "aevalsrc=0.3*random(0)|0.2*random(1):d=20:s=44100", str(whole))
    cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    with AudioDecoder(whole) as audio:
        full = audio.read_all()
    blocks = []
    with AudioDecoder(cut) as audio:
        with pytest.raises(DecoderError) as caught:
            blocks.extend(audio)
        with pytest.raises(DecoderError) as again:
            audio.read()
    samples = np.concatenate(blocks)
    assert (share - 0.1) * len(full) < len(samples) < len(full)
    assert np.array_equal(samples, full[: len(samples)])
    assert str(again.value) == str(caught.value)
    with AudioDecoder(cut, conceal_errors=True) as audio:
        assert len(audio.read_all()) >= len(samples)
    with AudioDecoder(cut, duration=2) as audio:
        assert len(audio.read_all()) == pytest.approx(2 * audio.sample_rate, rel=0.01)


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("mp3", ("-write_xing", "0")),
        ("ogg", ("-c:a", "libvorbis")),
        ("oga", ("-c:a", "flac", "-f", "ogg")),
        ("opus", ()),
    ],
)
def test_a_cut_sound_whose_file_has_no_length_ends_early(
    ending: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    ffmpeg("-f", "lavfi", "-i", "sine=d=20", *options, str(whole))
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with AudioDecoder(whole) as audio:
        expected = audio.read_all()
    with AudioDecoder(cut) as audio:
        samples = audio.read_all()
    assert 0.4 * len(expected) < len(samples) < 0.6 * len(expected)
    assert apart(samples, expected) < 1e-3


def test_whole_audio_is_no_error_if_libav_overestimates_its_length(tmp_path: Path) -> None:
    """libav guesses the length of such an MP3 file by the bit rate of its first frames, which are quiet."""
    path = tmp_path / "sound.mp3"
    quiet_and_loud = "aevalsrc=if(lt(t\\,9)\\,0.001*sin(900*t)\\,0.3*random(0)):d=18"
    ffmpeg("-f", "lavfi", "-i", quiet_and_loud, "-q:a", "4", "-write_xing", "0", path)
    assert (probe(path).duration_s or 0.0) > 20
    with AudioDecoder(path) as audio:
        assert len(audio.read_all()) == pytest.approx(18 * audio.sample_rate, rel=0.01)
        assert audio.window(17.8, 0.5).any()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sound")


@pytest.mark.parametrize("start", [None, 0, 12.5])
@pytest.mark.parametrize("ending", a_few(["mp4", "mkv", "ts", "m4a", "wav", "flac"], 3))
def test_start_and_duration_are_exact(ending: str, start: float | None, folder: Path) -> None:
    path, full = sweep(folder, ending)
    with AudioDecoder(path, start=start) as audio:
        samples = audio.read_all()
        late_s = (audio.stream.start_s or 0.0) - (audio._media.start_s or 0.0)
    first = 0 if start is None else round((start - late_s) * RATE)
    # Matroska has milliseconds, and so has the first packet that FFmpeg finds there.
    slack = RATE // 1000 if ending == "mkv" else 0
    expected = full[first:]
    if slack:
        shifts = range(max(-slack, -first), slack + 1)
        expected = min((full[first + shift :] for shift in shifts), key=lambda piece: apart(piece, samples))
    # AAC's decoder makes noise of its own, by what came before: 0.02 here. A shift by a sample makes more than 0.1.
    assert len(samples) == len(expected) and apart(samples, expected) < 0.05
    with AudioDecoder(path, start=start, duration=0.1) as audio:
        some = audio.read_all()
        assert abs(len(some) - RATE // 10) <= slack and np.array_equal(some, samples[: len(some)])


def part(path: Path, *options: object, seconds: float) -> bytes:
    ffmpeg("-f", "lavfi", "-i", f"aevalsrc='0.4*sin(t*(900+90*t))':s=44100:d={seconds}", *options, path)
    return path.read_bytes()


# The times of these start again at the second part: of two whole files one behind the other.
JOINED = {
    "ogg": ("-c:a", "libvorbis"),
    "oga": ("-c:a", "flac", "-f", "ogg"),
    "ts": ("-c:a", "aac"),
}


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("ending", [*JOINED, "aac"])
def test_a_sound_that_is_joined_is_whole_and_can_begin_in_each_part(
    ending: str, channels: int, tmp_path: Path
) -> None:
    """The second part may have other channels, so that FFmpeg makes new filters there."""
    options = JOINED.get(ending, ())
    first = part(tmp_path / f"a.{ending}", *options, "-ac", "1", seconds=1)
    second = part(tmp_path / f"b.{ending}", *options, "-ac", channels, seconds=1)
    path = tmp_path / f"joined.{ending}"
    path.write_bytes(first + second)
    if channels == 2 and ending.startswith("og"):
        with suppress(DecoderError), AudioDecoder(path) as audio:  # FFmpeg 8 and newer refuse it
            audio.read_all()
            ending = "ts"
        if ending != "ts":
            return
    with AudioDecoder(path) as audio:
        whole = audio.read_all()
        rate = audio.sample_rate
    assert len(whole) == pytest.approx(2 * rate, abs=0.1 * rate)
    for start in (0.5, 1.5):
        with AudioDecoder(path, start=start) as audio:
            samples = audio.read_all()
        assert len(samples) == pytest.approx(len(whole) - start * rate, abs=0.2 * rate)
        # A decoder that begins at another packet makes other noise.
        assert apart(samples, whole[-len(samples) :]) < 1e-3
        with AudioDecoder(path, start=start, duration=0.75) as audio:
            some = audio.read_all()
        assert len(some) == pytest.approx(min(0.75 * rate, len(samples)), abs=0.2 * rate)
        assert apart(some, samples) < 1e-3


@pytest.mark.parametrize("ending", ["ogg", "ts"])
def test_start_far_after_a_join_does_not_seek_by_time(ending: str, tmp_path: Path) -> None:
    piece = part(tmp_path / f"a.{ending}", *JOINED[ending], "-ac", "1", seconds=9)
    path = tmp_path / f"joined.{ending}"
    path.write_bytes(piece * 2)
    with AudioDecoder(path) as audio:
        whole = audio.read_all()
    with AudioDecoder(path, start=17) as audio:
        samples = audio.read_all()
        assert len(samples) == pytest.approx(
            len(whole) - 17 * audio.sample_rate, abs=0.11 * audio.sample_rate
        )
    assert apart(samples, whole[-len(samples) :]) < 1e-3


@pytest.mark.parametrize("start", [None, 0.0, 0.75])
def test_a_sound_in_ogg_is_as_long_as_asked_and_begins_beside_its_picture(
    tmp_path: Path, start: float | None
) -> None:
    """The first packet of Vorbis gives no samples, and FFmpeg 5.1 counts from the picture."""
    picture = ("-f", "lavfi", "-i", "color=black:s=64x48:r=25:d=3", "-c:v", "libtheora")
    late = ("-itsoffset", "0.5", "-f", "lavfi", "-i", "sine=r=48000:d=2.5", "-c:a", "libvorbis")
    ffmpeg(*picture[:4], *late[:6], *picture[4:], *late[6:], tmp_path / "late.ogg")
    with AudioDecoder(tmp_path / "late.ogg", start=start) as audio:
        assert len(audio.read_all()) == pytest.approx((2.5 if start is None else 3 - start) * RATE, abs=500)
    with AudioDecoder(tmp_path / "late.ogg", start=start, duration=1) as audio:
        assert len(audio.read_all()) == RATE


def test_damage_behind_a_part_is_no_error_of_a_program(tmp_path: Path) -> None:
    path = tmp_path / "a.m4a"
    ffmpeg("-f", "lavfi", "-i", "sine=d=3", "-c:a", "aac", path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = bytes(byte ^ 0x55 for byte in data[middle : middle + 400])
    path.write_bytes(data)
    with AudioDecoder(path, settings=BY_PROGRAM) as audio, pytest.raises(DecoderError):
        audio.read_all()
    with AudioDecoder(path, duration=0.5, settings=BY_PROGRAM) as audio:
        assert audio.read_all().shape == (22_050, 1)


@pytest.mark.parametrize("ending", ["mp3", "opus"])
def test_the_seam_of_joined_sounds_has_advice(tmp_path: Path, ending: str) -> None:
    """A second header is damage to some versions of FFmpeg, and not to others."""
    path = tmp_path / f"joined.{ending}"
    path.write_bytes(part(tmp_path / f"a.{ending}", "-ac", "1", seconds=1) * 2)
    try:
        with AudioDecoder(path) as audio:
            audio.read_all()
    except DecoderError as error:
        assert error.advice is not None and "conceal_errors=True" in error.advice
    with AudioDecoder(path, conceal_errors=True) as audio:
        assert len(audio.read_all()) > 1.9 * audio.sample_rate


NEW_SOUNDS = {
    "32.flac": ("-sample_fmt", "s32", "-bits_per_raw_sample", "32", "-strict", "-2"),
    "24.mp4": ("-c:a", "pcm_s24le"),
    "32.mp4": ("-c:a", "pcm_s32le"),
    "floats.mp4": ("-c:a", "pcm_f32le"),
}


@pytest.fixture(params=NEW_SOUNDS)
def new_sound(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    options = NEW_SOUNDS[request.param]
    return made_by_the_newest(tmp_path / request.param, "-f", "lavfi", "-i", "sine=d=1", *options)


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("part", [{}, {"start": 0.25, "duration": 0.25}])
def test_a_sound_that_the_program_does_not_know_is_an_error(
    new_sound: Path, program: str, part: dict[str, Any]
) -> None:
    with av.open(new_sound) as file:
        [expected] = np.concatenate([frame.to_ndarray() for frame in file.decode(audio=0)], axis=1)
    scale = 1.0 if expected.dtype.kind == "f" else 1.0 / (1 << 31)
    begins = len(expected) // 4 if part else 0
    try:
        with AudioDecoder(new_sound, settings=DecoderSettings(ffmpeg=program), **part) as audio:
            samples = audio.read_all()[:, 0]
    except DecoderError as error:
        assert error.advice is None or "newer" in error.advice
    else:
        assert len(samples) >= len(expected) // 4
        assert np.allclose(samples, (expected * scale)[begins : begins + len(samples)], atol=1e-6)


@pytest.mark.parametrize("ending", ["mkv", "mp4"])
@pytest.mark.parametrize("program", ffmpegs())
def test_an_encoder_whose_program_does_not_know_a_sound_fails(
    new_sound: Path, program: str, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"made.{ending}"
    try:
        with Encoder(path, fps=10, audio=new_sound, settings=EncoderSettings(ffmpeg=program)) as encoder:
            for _ in range(10):
                encoder.write(np.zeros((64, 64, 3), np.uint8))
    except (EncoderError, DecoderError):
        return
    with AudioDecoder(path, settings=DecoderSettings(ffmpeg=ffmpegs()[-1])) as audio:
        loudest = np.abs(audio.read_all()).max()
    assert 0.1 < loudest < 0.15  # noise is at full scale


def test_joined_flac_raises(tmp_path: Path) -> None:
    """FFmpeg 5.1 leaves out frames at the join, and says nothing of them."""
    path = tmp_path / "joined.flac"
    path.write_bytes(part(tmp_path / "a.flac", "-ac", "1", seconds=1) * 2)
    with AudioDecoder(path) as audio, pytest.raises(DecoderError):
        audio.read_all()
    with AudioDecoder(path, conceal_errors=True) as audio:
        assert len(audio.read_all()) > 1.5 * audio.sample_rate


def test_a_flac_file_that_was_cut_off_another_is_whole_unless_its_beginning_is_damaged(
    tmp_path: Path,
) -> None:
    part(tmp_path / "a.flac", "-ac", "1", seconds=3)
    cut = tmp_path / "cut.flac"
    ffmpeg("-ss", "1.3", "-i", tmp_path / "a.flac", "-c", "copy", cut)
    with AudioDecoder(tmp_path / "a.flac") as audio:
        samples = audio.read_all()
    with AudioDecoder(cut) as audio:
        got = audio.read_all()
        assert np.array_equal(audio.window(1.0, 0.3), got[44_100 : 44_100 + 13_230])
    assert 1.5 * 44_100 < len(got) < 2 * 44_100 and np.array_equal(got, samples[-len(got) :])
    begins = cut.read_bytes().index(b"\xff\xf8")
    for place in (0, 2, 5000):
        damaged = bytearray(cut.read_bytes())
        damaged[begins + place] ^= 0xFF
        (tmp_path / "damaged.flac").write_bytes(damaged)
        with AudioDecoder(tmp_path / "damaged.flac") as audio, pytest.raises(DecoderError):
            audio.read_all()


def test_start_and_duration_include_pauses(tmp_path: Path) -> None:
    """The sound pauses from 1 s to 3 s. The file's times say so, and the samples follow each other."""
    for ending in ("mkv", "ts"):
        path = tmp_path / f"pause.{ending}"
        codec = ("-c:a", "pcm_s16le") if ending == "mkv" else ("-c:a", "mp2")
        pause = ("-af", "aselect='lt(t,1)+gte(t,3)'")
        ffmpeg("-f", "lavfi", "-i", "sine=440:r=48000:d=4", *pause, *codec, path)
        with AudioDecoder(path, start=2) as audio:
            assert len(audio.read_all()) == pytest.approx(RATE, abs=0.05 * RATE)
        with AudioDecoder(path, start=0.5, duration=1) as audio:
            assert len(audio.read_all()) == pytest.approx(RATE // 2, abs=0.05 * RATE)


def apart(samples: np.ndarray, others: np.ndarray) -> float:
    """The largest difference."""
    length = min(len(samples), len(others))
    return float(np.abs(samples[:length] - others[:length]).max())


LAYOUTS = ("quad", "3.0", "3.1", "5.1(side)", "6.0", "hexagonal", "7.1(wide)", "3.1.2", "5.1.2")


@pytest.mark.parametrize("channels", [None, "all"])
@pytest.mark.parametrize("layout", a_few(LAYOUTS, 2))
def test_channels_match_the_file(tmp_path: Path, layout: str, channels: str | None) -> None:
    names = [channel.name for channel in AudioLayout(layout).channels]  # FFmpeg 5.1 does not know 5.1.2
    levels = [(number + 1) / 16 for number in range(len(names))]
    made = f"aevalsrc={'|'.join(map(str, levels))}:c={'+'.join(names)}:d=0.1"
    ffmpeg("-f", "lavfi", "-i", made, "-c:a", "pcm_f32le", str(tmp_path / "a.wav"))
    with AudioDecoder(tmp_path / "a.wav", channels=None if channels is None else len(names)) as audio:
        assert audio.stream.channel_layout == layout
        assert np.array_equal(audio.read_all(), np.tile(np.float32(levels), (4410, 1)))


@pytest.fixture(scope="module")
def late(folder: Path) -> Path:
    """A video of 2 s whose sound begins at 0.5 s, with a click at 1 s: one loud sample."""
    click = "aevalsrc='0.5+0.25*eq(n,24000)|0.5':s=48000:d=1.5"
    picture = ("-f", "lavfi", "-i", "color=black:s=64x48:r=25:d=2")
    sound = ("-itsoffset", "0.5", "-f", "lavfi", "-i", click)
    ffmpeg(*picture, *sound, "-c:v", "mpeg4", "-c:a", "pcm_s16le", str(folder / "late.mov"))
    return folder / "late.mov"


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("start", [None, 0.1, 0.5, 0.75])
def test_a_sound_that_begins_later_has_silence_before(
    late: Path, start: float | None, dtype: SampleType
) -> None:
    with Decoder(late, start=start) as video:
        blocks, begins_s = list(video.audio(dtype=dtype)), video[0].time_s or 0.0
        assert np.array_equal(asyncio.run(collected(video.audio(dtype=dtype))), np.concatenate(blocks))
    samples = np.concatenate(blocks)
    silence = 128 if dtype == "uint8" else 0
    missing = round(max(0.0, 0.5 - begins_s) * RATE)
    assert len(samples) == round((2 - begins_s) * RATE)
    assert (samples[:missing] == silence).all() and (samples[missing:, 1] > silence).all()
    assert np.argmax(samples[:, 0]) == round((1 - begins_s) * RATE)
    shorter = [number for number, block in enumerate(blocks[:-1]) if len(block) < BLOCK_SAMPLES]
    assert shorter in ([], [missing // BLOCK_SAMPLES])
    with AudioDecoder(late, dtype=dtype) as audio:
        assert np.array_equal(audio.read_all(), samples[missing:]) or begins_s > 0.5


async def collected(audio: AudioDecoder) -> np.ndarray:
    return np.concatenate([block async for block in audio])


@pytest.mark.parametrize("start", [0.0, 0.5, None])
@pytest.mark.parametrize("duration", [0.0, 5e-6, 1 / 7, 0.25, 0.500_005, 0.75])
def test_the_duration_counts_silence(late: Path, start: float | None, duration: float) -> None:
    with AudioDecoder(late, start=start, duration=duration) as audio:
        samples = audio.read_all()
    assert len(samples) == round(duration * RATE)
    missing = round(0.5 * RATE) if start == 0 else 0
    assert (samples[:missing] == 0).all() and (samples[missing:, 1] == 0.5).all()


def test_the_sound_begins_with_the_file(late: Path, folder: Path) -> None:
    later = folder / "later.mkv"
    ffmpeg("-i", str(late), "-c", "copy", "-output_ts_offset", "3600", str(later))
    with Decoder(late) as video, Decoder(later) as other:
        assert other.stream.start_s == pytest.approx(3600)
        samples = other.audio().read_all()
        assert len(samples) == pytest.approx(2 * RATE, abs=RATE // 500)
        assert np.argmax(samples[:, 0]) == pytest.approx(
            np.argmax(video.audio().read_all()[:, 0]), abs=RATE // 500
        )


def test_closed_decoder_raises_instead_of_returning_silence(late: Path) -> None:
    with AudioDecoder(late, start=0) as audio:
        with pytest.raises(ValueError):
            audio.read(-1)
        assert audio.read() is not None
    with pytest.raises(ClosedError):
        audio.read()


@pytest.mark.parametrize("samples", [1, 3 * BLOCK_SAMPLES, 3 * BLOCK_SAMPLES + 1])
def test_blocks_follow_without_a_gap_and_the_last_may_be_shorter(folder: Path, samples: int) -> None:
    path, full = sweep(folder, "wav")
    with AudioDecoder(path, duration=samples / RATE) as audio:
        blocks = list(audio)
    assert {len(block) for block in blocks[:-1]} <= {BLOCK_SAMPLES}
    assert 1 <= len(blocks[-1]) <= BLOCK_SAMPLES
    assert np.array_equal(np.concatenate(blocks), full[:samples])


def test_two_threads_at_the_end_get_the_last_block() -> None:
    expected = raw(clip("audio_only"), 2)[:3500]
    with AudioDecoder(clip("audio_only"), duration=3500 / 44_100, settings=BY_PROGRAM) as audio:
        blocks: list[np.ndarray] = []
        threads = [threading.Thread(target=lambda: blocks.extend(audio)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(blocks) == 1 and np.array_equal(blocks[0], expected)


def test_decoder_audio_matches_an_audio_decoder_of_the_same_range() -> None:
    with Decoder(clip("audio_aac"), start=0.2) as decoder, decoder.audio(channels=1) as audio:
        with AudioDecoder(clip("audio_aac"), start=0.2, channels=1) as other:
            assert np.array_equal(audio.read_all(), other.read_all())
        with decoder.audio(start=None) as all_of_it, AudioDecoder(clip("audio_aac")) as other:
            assert np.array_equal(all_of_it.read_all(), other.read_all())


def test_decoder_audio_uses_the_ffmpeg_of_the_decoder(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.symlink_to(find_ffmpeg())
    with (
        Decoder(clip("audio_aac"), settings=DecoderSettings(ffmpeg=program)) as decoder,
        decoder.audio(settings=DecoderSettings(queue_items=1)) as audio,
    ):
        assert audio._engine._run.session.process.command[0] == str(program)  # type: ignore[union-attr]


def test_settings_limit_the_decoding_threads() -> None:
    settings = DecoderSettings(threads=1, ffmpeg=find_ffmpeg())
    with AudioDecoder(clip("audio_aac"), settings=settings) as audio:
        assert len(audio.read_all())
        command = audio._engine._run.session.process.command  # type: ignore[union-attr]
        assert "-threads 1 " in " ".join(command).partition(" -i ")[0]


@pytest.mark.parametrize(("kind", "wrong"), [(Encoder, DecoderSettings()), (AudioDecoder, EncoderSettings())])
def test_settings_of_another_class_are_refused(kind: Any, wrong: Any) -> None:
    options = {"fps": 30} if kind is Encoder else {}
    with pytest.raises(TypeError):
        kind(clip("audio_aac"), settings=wrong, **options)


def test_closing_ends_ffmpeg_and_blocks_stay(folder: Path) -> None:
    path, full = sweep(folder, "wav")
    with AudioDecoder(path, settings=BY_PROGRAM) as audio:
        block, pid = next(audio), audio.pid
        assert not audio.closed
    assert audio.closed and pid not in processes()
    assert np.array_equal(block, full[:BLOCK_SAMPLES])
    with pytest.raises(ClosedError):
        audio.read()
    audio.close()


def test_dropped_audio_decoder_ends_ffmpeg_and_warns(folder: Path) -> None:
    audio = AudioDecoder(sweep(folder, "wav")[0], settings=BY_PROGRAM)
    next(audio)
    pid = audio.pid
    with pytest.warns(ResourceWarning):
        del audio
        gc.collect()
    assert eventually(lambda: pid not in processes())


def test_stopped_ffmpeg_raises_stalled_error_and_no_sample_is_lost(folder: Path) -> None:
    path, full = sweep(folder, "flac")
    with AudioDecoder(path, settings=DecoderSettings(stall_timeout=0.6, ffmpeg=find_ffmpeg())) as audio:
        blocks = [next(audio)]
        os.kill(audio.pid, signal.SIGSTOP)
        with pytest.raises(StalledError):
            while True:
                blocks.append(next(audio))
        os.kill(audio.pid, signal.SIGCONT)
        blocks.extend(audio)
    assert np.array_equal(np.concatenate(blocks), full)


@pytest.mark.parametrize("stream", [None, 0])
def test_file_without_audio_raises(stream: int | None) -> None:
    with pytest.raises(DecoderError):
        AudioDecoder(clip("h264"), stream=stream)
    with Decoder(clip("h264")) as decoder, pytest.raises(DecoderError):
        decoder.audio()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int24"}, "'int16'"),
        ({"sample_rate": 0}, "sample_rate"),
        ({"channels": -1}, "channels"),
        ({"start": -1}, "start"),
        ({"duration": float("nan")}, "duration"),
        ({"stream": 1}, "1 audio stream"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AudioDecoder(clip("audio_only"), **options)  # type: ignore[arg-type]


def test_start_after_the_end_returns_no_samples() -> None:
    with AudioDecoder(clip("audio_only"), start=100) as audio:
        assert audio.read_all().shape == (0, 2)


def test_repr_names_the_file_and_the_sample_rate() -> None:
    with AudioDecoder(clip("audio_aac")) as audio:
        assert repr(str(clip("audio_aac"))) in repr(audio) and f"{audio.sample_rate} Hz" in repr(audio)


@pytest.mark.parametrize("options", [{}, {"fps": 10}], ids=["each", "rate"])
def test_the_sound_ends_with_the_picture_if_the_file_begins_late(
    late: Path, folder: Path, options: dict[str, Any]
) -> None:
    later = folder / "later.mp4"
    ffmpeg("-i", str(late), "-c:v", "copy", "-c:a", "aac", "-output_ts_offset", "1", str(later))
    begins_s = 0.0
    with Decoder(later) as video:
        if not options:
            begins_s = video.file.start_s or 0.0
            assert begins_s > 0.5 and video.file.zero_s == 0
    with Decoder(later, end=1.2, **options) as video:
        assert len(video.audio().read_all()) == pytest.approx((1.2 - begins_s) * RATE, abs=1)
    with Decoder(later, end=0.3, **options) as video:
        assert len(video.audio().read_all()) == pytest.approx(0.3 * RATE, abs=1)
