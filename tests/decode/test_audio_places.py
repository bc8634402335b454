"""The `AudioDecoder` at places of its file: parts and windows are slices of the whole; and how channels are mixed."""

from __future__ import annotations

import functools
import math
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.cases import a_few, ffmpegs
from support.clips import clip
from support.media import ffmpeg, made_by_the_newest
from support.media import nothing_is_left as nothing_is_left
from support.processes import run_script, succeeded

from penstock import AudioDecoder, ClosedError, Decoder, DecoderError, StalledError
from penstock._decoding import mixing, open_sound
from penstock._decoding.options import SampleType
from penstock._decoding.placed_sound import PlacedSound
from penstock._facts.opening import decode
from penstock.video import DecoderSettings, find_ffmpeg

SECONDS, RATE = 6, 44_100
# No two pieces of it are alike.
SWEEP = f"aevalsrc='0.5*sin(2*PI*t*(200+60*t))|0.4*cos(330*t*t)':d={SECONDS}:s={RATE}"
# Two that depend on each other's rounding of times, then codecs and containers of each kind.
SOUNDS = {
    "a.mkv": ("-c:a", "aac", "-aac_pns", "0"),
    "vorbis.webm": ("-c:a", "libvorbis"),
    "a.m4a": ("-c:a", "aac", "-aac_pns", "0"),
    "a.flv": ("-c:a", "aac", "-aac_pns", "0"),
    # The times that libav makes in AVI are wrong.
    "dts.avi": ("-c:a", "dca", "-strict", "experimental"),
    "vorbis.avi": ("-c:a", "libvorbis"),
    "a.mp3": (),
    "a.ogg": ("-c:a", "libvorbis"),
    "opus.webm": ("-c:a", "libopus", "-ar", "48000"),
    "a.opus": ("-ar", "48000"),
    "a.ts": ("-c:a", "aac", "-aac_pns", "0"),
    "a.wav": (),
    "a.mka": ("-c:a", "pcm_s16le"),
    "a.flac": (),
    "flac.ogg": ("-c:a", "flac"),
    "ac3.mkv": ("-c:a", "ac3"),
    "a.ac3": (),
    "a.wma": (),
    "a.mov": ("-c:a", "alac"),
    "mp3.avi": ("-c:a", "libmp3lame"),
    # libav makes wrong times of it, or finds a wrong place.
    "flac.asf": ("-c:a", "flac"),
    "flac.wav": ("-c:a", "flac"),
}
MONO = {"sample_rate": 16_000, "channels": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sound")


@functools.cache
def made(folder: Path, name: str) -> Path:
    ffmpeg("-f", "lavfi", "-i", SWEEP, *SOUNDS[name], folder / name)
    return folder / name


@functools.cache
def whole(path: Path, **options: Any) -> tuple[np.ndarray, int]:
    """All samples from the time 0 on, and their rate."""
    with AudioDecoder(path, start=0, **options) as audio:
        return audio.read_all(), audio.sample_rate


def piece(samples: np.ndarray, begin: int, count: int) -> np.ndarray:
    """Samples from a place on, with silence around them."""
    padded = np.zeros((count, *samples.shape[1:]), samples.dtype)
    first, last = max(0, begin), max(0, min(len(samples), begin + count))
    padded[first - begin : last - begin] = samples[first:last]
    return padded


@pytest.mark.parametrize("options", [{}, MONO], ids=["own", "mono"])
@pytest.mark.parametrize("name", a_few([*SOUNDS], 5))
def test_a_part_is_a_slice_of_the_whole(name: str, options: dict[str, Any], folder: Path) -> None:
    samples, rate = whole(made(folder, name), **options)
    for start, duration in ((0.1, 0.5), (4.3, 0.7), (2.0, 1 / 3)):
        with AudioDecoder(made(folder, name), start=start, duration=duration, **options) as audio:
            got = audio.read_all()
        assert len(got) == round(duration * rate)
        assert np.abs(got - piece(samples, round(start * rate), len(got))).max() <= 1e-6
    with AudioDecoder(made(folder, name), start=5.5, end=5.6, **options) as audio:
        assert len(audio.read_all()) == round(5.6 * rate) - round(5.5 * rate)


@pytest.mark.parametrize("options", [{}, MONO, {"dtype": "int16"}], ids=["own", "mono", "integers"])
@pytest.mark.parametrize("name", a_few([*SOUNDS], 5))
def test_windows_are_slices_of_the_whole(name: str, options: dict[str, Any], folder: Path) -> None:
    samples, rate = whole(made(folder, name), **options)
    starts_s = [5.1, 0.0, 3.7, 3.8, -0.2, len(samples) / rate - 0.1, 4.444, 100.0, -50.0, 1.5]
    count = round(0.3 * rate)
    expected = np.stack([piece(samples, round(start * rate), count) for start in starts_s])
    with AudioDecoder(made(folder, name), **options) as audio:
        first = next(audio)
        together = audio.windows(starts_s, 0.3)
        alone = np.stack([audio.window(start, 0.3) for start in starts_s])
        assert np.array_equal(np.concatenate([first, *audio]), whole(made(folder, name), **options)[0])
    assert together.dtype == samples.dtype
    for got in (together, alone):
        assert np.abs(got.astype(float) - expected).max() <= 1e-6


@pytest.mark.linux("isolated=True")
@pytest.mark.parametrize("name", a_few([*SOUNDS], 5))
def test_isolated_audio_is_that_of_this_process(name: str, folder: Path) -> None:
    path = made(folder, name)
    variants: tuple[dict[str, Any], ...] = ({}, MONO, {"dtype": "int16", "start": 2.1, "duration": 0.7})
    for options in variants:
        got = []
        for isolated in (False, True):
            with AudioDecoder(path, isolated=isolated, **options) as audio:
                windows = audio.windows([5.1, 0.0, 3.7, 3.8, -0.2, 5.95, 100.0], 0.3, pad=False)
                facts = audio.stream, audio.sample_rate, audio.channels
                got.append((facts, [*windows, *audio, audio.matrix]))
        assert got[0][0] == got[1][0]
        for ours, isolateds in zip(got[0][1], got[1][1], strict=True):
            assert ours.dtype == isolateds.dtype and np.array_equal(ours, isolateds)


def test_a_window_is_not_padded_if_that_is_not_wanted(folder: Path) -> None:
    samples, rate = whole(made(folder, "a.wav"))
    with AudioDecoder(made(folder, "a.wav")) as audio:
        before, inside, at_end, after = audio.windows([-0.1, 2, SECONDS - 0.1, 9], 0.2, pad=False)
        assert np.array_equal(before, samples[: len(before)]) and len(before) == round(0.1 * rate)
        assert np.array_equal(inside, samples[2 * rate :][: len(inside)]) and len(inside) == round(0.2 * rate)
        assert np.array_equal(at_end, samples[-len(at_end) :]) and len(at_end) == round(0.1 * rate)
        assert after.shape == (0, 2)
        assert audio.windows([], 1).shape == (0, rate, 2)


@pytest.mark.parametrize("start_s", [1e305, 1e30, -1e305])
def test_a_time_that_no_file_reaches_is_outside_of_the_audio(start_s: float) -> None:
    with AudioDecoder(clip("audio_aac")) as audio:
        assert audio.window(start_s, 0.1, pad=False).shape == (0, audio.channels)
        assert not audio.window(start_s, 0.1).any()
    for settings in (DecoderSettings(), DecoderSettings(ffmpeg=find_ffmpeg())):
        with AudioDecoder(clip("audio_aac"), start=abs(start_s), settings=settings) as audio:
            assert not len(audio.read_all())


def test_a_gap_is_silent_in_a_window(tmp_path: Path) -> None:
    """The sound pauses from 1 s to 3 s."""
    path = tmp_path / "pause.mkv"
    pause = ("-af", "aselect='lt(t,1)+gte(t,3)'")
    ffmpeg("-f", "lavfi", "-i", "sine=440:r=48000:d=4", *pause, "-c:a", "pcm_s16le", path)
    with AudioDecoder(path) as audio:
        window = audio.window(0.5, 3)[:, 0]
    silent = np.flatnonzero(np.abs(np.diff(np.flatnonzero(window))) > 1000)
    assert len(silent) == 1 and np.abs(window[: 24_000 - 1200]).max() > 0.1
    assert not window[24_000 + 1200 : 120_000 - 1200].any() and np.abs(window[-20_000:]).max() > 0.1


def test_a_window_of_aac_decodes_few_packets_outside_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = list[Any]()

    def counted(codec: Any, packet: Any) -> list[Any]:
        decoded.append(packet)
        return decode(codec, packet)

    monkeypatch.setattr(open_sound, "decode", counted)
    with AudioDecoder(made(folder, "a.m4a")) as audio:
        audio.window(3, 0.1)
        decoded.clear()
        audio.window(4, 0.3)
    assert len(decoded) <= math.ceil(0.3 * RATE / 1024) + 4


@pytest.mark.parametrize("name", ["a.m4a", "a.wav", "a.flac"])
def test_audio_that_needs_no_mixing_is_read_without_filters(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, rate = whole(made(folder, name))
    monkeypatch.setattr(mixing, "_link", None)
    with AudioDecoder(made(folder, name)) as audio:
        assert np.array_equal(audio.window(4, 0.3), samples[4 * rate :][: round(0.3 * rate)])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("codec", ["pcm_u8", "pcm_s16le", "pcm_s32le", "pcm_f32le", "pcm_f64le"])
def test_each_type_is_converted_as_ffmpeg_does(codec: str, dtype: SampleType, tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", f"{SWEEP}:c=stereo", "-t", "0.2", "-c:a", codec, tmp_path / "a.wav")
    with (
        AudioDecoder(tmp_path / "a.wav", dtype=dtype) as audio,
        AudioDecoder(
            tmp_path / "a.wav", dtype=dtype, settings=DecoderSettings(ffmpeg=ffmpegs()[-1])
        ) as by_program,
    ):
        assert np.array_equal(audio.read_all(), by_program.read_all())


PEAK = """
import resource
from penstock import AudioDecoder

with AudioDecoder(sys.argv[1]) as audio:
    audio.windows([0], 0.1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    audio.windows([0, 599], 0.1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_windows_keep_nothing_of_what_lies_between(tmp_path: Path) -> None:
    """Uneven times don't tell samples, so all before the last window is decoded: 38 MB as floats."""
    path = tmp_path / "long.mka"
    uneven = ("-bsf:a", "setts=ts=TS+10*mod(N\\,2)")
    ffmpeg("-f", "lavfi", "-i", "sine=440:r=8000:d=600", "-ac", "2", "-c:a", "pcm_s16le", *uneven, path)
    assert int(succeeded(run_script(PEAK, path))) < 10_000_000


@pytest.mark.parametrize("name", ["aac.mkv", "aac.mp4", "aac.ts", "opus.mkv", "flac.mkv"])
def test_a_window_after_a_lost_packet_is_the_same_after_a_seek(name: str, tmp_path: Path) -> None:
    path, codec = tmp_path / name, {"aac": "aac", "opus": "libopus", "flac": "flac"}[name.split(".")[0]]
    lost = ("-aac_pns", "0") if codec == "aac" else ()
    sound = ("-f", "lavfi", "-i", SWEEP.replace(str(RATE), "48000"), "-c:a", codec, *lost)
    ffmpeg(*sound, "-bsf:a", "noise=drop=eq(n\\,30)", path)
    with AudioDecoder(path, conceal_errors=True) as audio:
        # The first one makes that the second isn't reached by a seek.
        _, _, _, near = audio.windows([0, 1.9, 3.8, 5], 0.5)
        assert np.abs(audio.window(5, 0.5) - near).max() <= 1e-6


@pytest.mark.parametrize("frame_ms", ["20", "60"])
def test_the_priming_of_chained_opus_is_no_pause(frame_ms: str, folder: Path, tmp_path: Path) -> None:
    first, second, chained = made(folder, "a.opus"), tmp_path / "b.opus", tmp_path / "chained.opus"
    ffmpeg("-f", "lavfi", "-i", SWEEP, "-ar", "48000", "-frame_duration", frame_ms, second)
    chained.write_bytes(first.read_bytes() + second.read_bytes())
    samples, rate = whole(chained)
    with AudioDecoder(chained) as audio:
        assert np.array_equal(audio.window(7.5, 0.5), samples[round(7.5 * rate) : round(8 * rate)])


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_windows_are_exact_if_times_are_about_those_of_samples(
    name: str, folder: Path, tmp_path: Path
) -> None:
    """mkvmerge's unit of times is that of a sample, in whole nanoseconds, and times within a block are sums."""
    if shutil.which("mkvmerge") is None:
        pytest.skip("mkvmerge is not installed")
    subprocess.run(["mkvmerge", "-q", "-o", tmp_path / "a.mka", made(folder, name)], check=True)
    samples, rate = whole(tmp_path / "a.mka")
    starts_s = [2.6, 3.3, 4.45, 5.039]
    with AudioDecoder(tmp_path / "a.mka") as audio:
        for start_s, window in zip(starts_s, audio.windows(starts_s, 0.3), strict=True):
            begin = round(start_s * rate)
            assert np.array_equal(window, samples[begin : begin + len(window)])


def test_only_libav_reads_windows(folder: Path) -> None:
    with AudioDecoder(made(folder, "a.wav"), settings=DecoderSettings(ffmpeg=ffmpegs()[-1])) as audio:
        assert audio.engine.name == "ffmpeg"
        with pytest.raises(ValueError):
            audio.windows([0], 1)
    with AudioDecoder(made(folder, "a.wav")) as audio:
        assert audio.engine.name == "libav" and audio.pid is None
        for starts_s, duration_s in (([math.nan], 1), ([math.inf], 1), ([0], -1), ([0], math.nan)):
            with pytest.raises(ValueError):
                audio.windows(starts_s, duration_s)
    with pytest.raises(ClosedError):
        audio.windows([0], 1)


def test_an_mp4_ends_where_its_container_says(folder: Path) -> None:
    """AAC fills its last packet."""
    for dtype in ("float32", "int16"):
        assert len(whole(made(folder, "a.m4a"), dtype=dtype)[0]) == SECONDS * RATE


def test_an_mp4_that_is_joined_keeps_its_last_samples(folder: Path, tmp_path: Path) -> None:
    """The first part's last packet overlaps the second part."""
    source = made(folder, "a.m4a")
    (tmp_path / "list.txt").write_text(f"file '{source}'\n" * 2)
    ffmpeg("-f", "concat", "-safe", "0", "-i", tmp_path / "list.txt", "-c", "copy", tmp_path / "joined.m4a")
    samples, _ = whole(source)
    joined, _ = whole(tmp_path / "joined.m4a")
    assert np.array_equal(joined[-RATE:], samples[-RATE:])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("24.mov", ("-c:a", "pcm_s24le")),
        ("32.mp4", ("-c:a", "pcm_s32le")),
        ("24.mp4", ("-c:a", "pcm_s24le")),
        ("32.flac", ("-sample_fmt", "s32", "-bits_per_raw_sample", "32", "-strict", "-2")),
    ],
)
def test_samples_of_many_bits_are_exact(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    sound = ("-f", "lavfi", "-i", "aevalsrc='0.5*sin(900*t)|0.25':d=0.2:s=48000")
    made_by_the_newest(tmp_path / name, *sound, *options)
    wanted = np.frombuffer(ffmpeg(*sound, "-f", "f64le", "pipe:1", program=ffmpegs()[-1]), np.float64)
    with AudioDecoder(tmp_path / name, dtype="float64") as audio:
        assert np.abs(audio.read_all().reshape(-1) - wanted).max() < 2**-22


def test_a_wav_without_a_length_is_whole(tmp_path: Path) -> None:
    """A program that writes to a pipe can't go back to write the length."""
    path = tmp_path / "piped.wav"
    path.write_bytes(ffmpeg("-f", "lavfi", "-i", "sine=d=1:r=48000", "-f", "wav", "pipe:1"))
    with AudioDecoder(path) as audio:
        assert len(audio.read_all()) == 48_000


@pytest.mark.parametrize("ending", ["m4a", "flac"])
def test_announced_audio_of_which_nothing_can_be_decoded_raises(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    ffmpeg("-f", "lavfi", "-i", "sine=d=1", "-movflags", "+faststart", path)
    data = bytearray(path.read_bytes())
    begins = data.index(b"mdat") + 4 if ending == "m4a" else data.index(b"\xff\xf8")
    data[begins:] = bytes(len(data) - begins)
    path.write_bytes(data)
    for options in ({}, {"conceal_errors": True}):
        with pytest.raises(DecoderError), AudioDecoder(path, **options) as audio:  # type: ignore[arg-type]
            audio.read_all()


# Mixing


@pytest.fixture(scope="module")
def center(folder: Path) -> Path:
    """5.1 with 0.5 in the center."""
    ffmpeg("-f", "lavfi", "-i", "aevalsrc=0|0|0.5|0|0|0:c=5.1:d=0.1:s=48000", folder / "center.flac")
    return folder / "center.flac"


@pytest.mark.parametrize("channels", [1, 2])
def test_integers_and_floats_are_mixed_alike(center: Path, channels: int) -> None:
    means = {}
    for dtype, full_scale in (("float32", 1), ("float64", 1), ("int16", 2**15), ("int32", 2**31)):
        with AudioDecoder(center, channels=channels, dtype=dtype) as audio:  # type: ignore[arg-type]
            means[dtype] = float(audio.read_all()[1000].mean()) / full_scale
            factor = audio.matrix[0, 2]
    assert means == pytest.approx(dict.fromkeys(means, 0.5 * factor), abs=1e-4)


@pytest.mark.parametrize("layout", ["stereo", "5.1", "7.1"])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_mix_is_never_louder_than_full_scale(layout: str, dtype: SampleType, tmp_path: Path) -> None:
    count = {"stereo": 2, "5.1": 6, "7.1": 8}[layout]
    loud = f"aevalsrc={'|'.join(['0.99'] * count)}:c={layout}:d=0.1:s=48000"
    ffmpeg("-f", "lavfi", "-i", loud, "-c:a", "pcm_f32le", tmp_path / "loud.wav")
    with AudioDecoder(tmp_path / "loud.wav", channels=1, dtype=dtype) as audio:
        full_scale = 1 if dtype == "float32" else 2**15 - 1
        assert 0.9 < audio.read_all()[1000, 0] / full_scale <= 1
        assert audio.matrix.shape == (1, count) and audio.matrix.sum() == pytest.approx(1, abs=1e-3)


def test_a_matrix_mixes_as_it_says(folder: Path) -> None:
    samples, _ = whole(made(folder, "a.wav"))
    matrix = np.array([[0.25, 0.5], [1, -1], [0, 0]])
    for options in ({}, {"settings": DecoderSettings(ffmpeg=ffmpegs()[-1])}):
        with AudioDecoder(made(folder, "a.wav"), matrix=matrix, **options) as audio:  # type: ignore[arg-type]
            assert audio.channels == 3 and np.array_equal(audio.matrix, matrix)
            assert np.abs(audio.read_all() - samples @ matrix.T).max() < 1e-4


@pytest.mark.parametrize(
    ("matrix", "options"),
    [([1, 2], {}), ([[1, 2, 3]], {}), ([[1, math.nan]], {}), ([[1, 0]], {"channels": 2}), ([], {})],
)
def test_a_matrix_of_another_shape_is_refused(matrix: Any, options: dict[str, Any], folder: Path) -> None:
    with pytest.raises(ValueError, match="matrix"):
        AudioDecoder(made(folder, "a.wav"), matrix=matrix, **options)


# The engine


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal comes while the first block is decoded."""
    blocks = PlacedSound.blocks

    def with_signal(self: PlacedSound, begin: int, stop: int | None) -> Iterator[Any]:
        for number, block in enumerate(blocks(self, begin, stop)):
            if number == 0 and not begin:
                signal.raise_signal(signal.SIGTERM)
            yield block

    monkeypatch.setattr(PlacedSound, "blocks", with_signal)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("interrupted")
def test_a_signal_handler_can_close_the_decoder_that_reads(folder: Path) -> None:
    audio = AudioDecoder(made(folder, "a.flac"))
    signal.signal(signal.SIGTERM, lambda *_: audio.close())
    with pytest.raises(ClosedError):
        audio.read_all()


@pytest.mark.usefixtures("interrupted")
def test_no_sample_is_lost_if_a_signal_handler_raises(folder: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    samples, _ = whole(made(folder, "a.flac"), dtype="int16")
    signal.signal(signal.SIGTERM, interrupt)
    with AudioDecoder(made(folder, "a.flac"), dtype="int16") as audio:
        with pytest.raises(KeyboardInterrupt):
            audio.read_all()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert np.array_equal(audio.read_all(), samples)


def test_a_read_that_is_late_loses_no_sample(folder: Path) -> None:
    blocks: list[np.ndarray] = []
    late = 0
    with AudioDecoder(made(folder, "a.mp3")) as audio:
        while True:
            try:
                block = audio.read(timeout=0)
            except StalledError:
                late += 1
                continue
            if block is None:
                break
            blocks.append(block)
    assert late and np.array_equal(np.concatenate(blocks), whole(made(folder, "a.mp3"))[0])


def test_threads_share_the_blocks(folder: Path) -> None:
    blocks: list[np.ndarray] = []
    with AudioDecoder(made(folder, "a.flac")) as audio:
        threads = [threading.Thread(target=lambda: blocks.extend(audio)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(map(len, blocks)) == len(whole(made(folder, "a.flac"))[0])


@pytest.mark.linux("forks")
def test_the_child_of_a_fork_cannot_read(folder: Path) -> None:
    with AudioDecoder(made(folder, "a.flac")) as audio:
        next(audio)
        if not (child := os.fork()):
            try:
                audio.read()
            except ClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert audio.read() is not None


@pytest.mark.parametrize(
    "name", a_few(["a.mp3", "a.ogg", "a.m4a", "a.flac", "a.mkv", "a.wav", "a.ts", "a.wma"], 4)
)
def test_damage_raises_no_error_of_pyav(name: str, folder: Path, tmp_path: Path) -> None:
    data, random = made(folder, name).read_bytes(), np.random.default_rng(3)
    for _ in range(6):
        bad = bytearray(data)
        for at in random.integers(200, len(bad), 20):
            bad[at] = random.integers(256)
        (tmp_path / name).write_bytes(bad)
        for options in ({}, {"conceal_errors": True}, {"start": 3}):
            try:
                with AudioDecoder(tmp_path / name, **options) as audio:
                    audio.windows([0.5, 4.5], 0.2)
                    audio.read_all()
            except DecoderError:
                pass


@pytest.mark.parametrize("options", [{}, {"channels": 1}, {"sample_rate": 22_050}], ids=str)
def test_all_audio_before_damage_is_delivered(options: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    path = made(folder, "a.flac")
    samples, rate = whole(path, **options)
    with av.open(path) as file:
        [*packets] = file.demux()
    damaged = bytearray(path.read_bytes())
    damaged[(packets[30].pos or 0) + 500] ^= 0xFF
    (tmp_path / "damaged.flac").write_bytes(damaged)
    got = []
    with AudioDecoder(tmp_path / "damaged.flac", **options) as audio, pytest.raises(DecoderError):
        got.extend(audio)
    joined = np.concatenate(got)
    assert len(joined) == pytest.approx((packets[30].pts or 0) * rate / RATE, abs=32)
    assert np.array_equal(joined, samples[: len(joined)])


def damaged(path: Path, packet: int, folder: Path) -> Path:
    """A copy whose packet of this number is damaged."""
    with av.open(path) as file:
        found = [one for one in file.demux(audio=0) if one.size][packet]
    data, begin = bytearray(path.read_bytes()), found.pos or 0
    for at in range(begin + found.size // 4, begin + found.size):
        data[at] ^= 0xA5
    (folder / path.name).write_bytes(data)
    return folder / path.name


@pytest.mark.parametrize("packet", [0, 1, 5])
@pytest.mark.parametrize("name", ["a.flac", "a.mov", "a.m4a", "a.mkv"])
def test_damage_at_the_beginning_neither_breaks_nor_moves_windows_behind_it(
    name: str, packet: int, folder: Path, tmp_path: Path
) -> None:
    path = made(folder, name)
    samples, rate = whole(path)
    bad = damaged(path, packet, tmp_path)
    with AudioDecoder(bad) as audio, pytest.raises(DecoderError):
        audio.window(0, 0.8)
    for conceals in (False, True):
        for start_s in (0.9, 1.2, 4):
            with AudioDecoder(bad, conceal_errors=conceals) as audio:
                try:
                    window = audio.window(start_s, 0.3)
                except DecoderError:
                    # Where samples of the first packets are dropped, a lost one can't be told from those.
                    assert packet < 2 and name in ("a.m4a", "a.mkv") and not conceals
                    continue
            assert np.abs(window - samples[round(start_s * rate) :][: len(window)]).max() <= 1e-3


@pytest.mark.parametrize("packet", [0, 14, 40])
def test_no_sample_behind_a_damaged_page_stands_for_one_in_it(
    packet: int, folder: Path, tmp_path: Path
) -> None:
    """libav counts on behind the page, until another one says how many samples there were."""
    path = made(folder, "flac.ogg")
    samples, rate = whole(path)
    bad, got = damaged(path, packet, tmp_path), [samples[:0]]
    with AudioDecoder(bad) as audio, pytest.raises(DecoderError):
        got.extend(audio)
    joined = np.concatenate(got)
    assert np.array_equal(joined, samples[: len(joined)])
    for start_s in range(SECONDS):
        with AudioDecoder(bad) as audio:
            try:
                window = audio.window(start_s, 0.3)
            except DecoderError:
                continue
        assert np.array_equal(window, samples[start_s * rate :][: len(window)])


def test_the_audio_of_a_decoder_begins_with_its_first_frame() -> None:
    with Decoder(clip("audio_aac"), start=0.21) as decoder:
        first_s = next(iter(decoder)).time_s or 0.0
        with decoder.audio() as audio, AudioDecoder(clip("audio_aac"), start=0) as other:
            samples = audio.read_all()
            assert np.array_equal(samples, other.read_all()[round(first_s * audio.sample_rate) :])


def test_windows_of_dts_are_decoded_with_the_packets_that_they_need(tmp_path: Path) -> None:
    path, starts = tmp_path / "a.dts", [1.2345, 2.0, 2.5, 2.71]
    noise = "anoisesrc=d=3:r=48000:a=0.5:seed=1"
    ffmpeg("-f", "lavfi", "-i", noise, "-c:a", "dca", "-strict", "experimental", "-b:a", "640k", path)
    with AudioDecoder(path) as audio:
        whole, windows = audio.read_all(), audio.windows(starts, 0.1)
    for start, window in zip(starts, windows, strict=True):
        begin = round(start * 48_000)
        np.testing.assert_array_equal(window, whole[begin : begin + len(window)])
