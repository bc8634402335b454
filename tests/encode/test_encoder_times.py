"""Frames with their times: `Encoder(fps=None)` and `write(time_s=)`."""

import asyncio
import contextlib
import itertools
import signal
import warnings
from fractions import Fraction

import numpy as np
import pytest
from support.cases import a_few, ffmpegs, needs
from support.media import ffmpeg

import penstock
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._formats.pixel_formats import PIXEL_FORMATS
from penstock.video import AudioTrack, EncoderSettings, find_ffmpeg

SIZE = (64, 48)
# Irregular, with the smallest step and a long one.
TIMES_US = [20_000, 53_333, 86_667, 500_000, 500_020, 1_500_000, 1_533_333, 4_000_000, 4_016_667]


def picture(index, shape=(48, 64, 3), dtype=np.uint8):
    return np.full(shape, 20 * index, dtype)


def times_s(path):
    """The times of the packets in order, exact, with the unit of the file."""
    lines = (
        ffmpeg("-copyts", "-i", path, "-c", "copy", "-copyts", "-f", "framecrc", "-").decode().splitlines()
    )
    [unit] = [Fraction(line.split()[-1]) for line in lines if line.startswith("#tb")]
    return sorted(int(line.split(",")[2]) * unit for line in lines if not line.startswith("#")), unit


@pytest.fixture(params=ffmpegs())
def program(request):
    return request.param


@pytest.mark.parametrize("times_s", [range(5), [Fraction(index, 30) for index in range(30)]])
@pytest.mark.parametrize(
    "name, codec",
    [
        *(("a.mp4", "libx264"), ("a.mp4", "libsvtav1"), ("a.mov", "prores_ks"), ("a.mov", "mjpeg")),
        *(("a.mkv", "libx264"), ("a.webm", "libvpx-vp9")),
    ],
)
def test_last_frame_lasts_as_long_as_the_frame_before(tmp_path, program, name, codec, times_s):
    """Also where the last frame that is decoded isn't the last one that is shown."""
    needs(program, codec)
    settings = EncoderSettings(ffmpeg=program)
    path = tmp_path / name
    with penstock.Encoder(path, size=(64, 64), fps=None, codec=codec, settings=settings) as encoder:
        for index, time_s in enumerate(times_s):
            encoder.write(picture(index % 12, (64, 64, 3)), time_s=time_s)
    media, rate = penstock.probe(path), 1 / Fraction(times_s[1])
    assert media.duration_s == pytest.approx(float(len(times_s) / rate), abs=0.002)
    if name.endswith(("mp4", "mov")):
        assert (media.video[0].frame_rate, media.video[0].is_variable_frame_rate) == (rate, False)
    assert encoder.report.warnings == ()


@pytest.mark.parametrize("flags", ["empty_moov", "delay_moov"])
def test_fragments_do_not_begin_late(tmp_path, flags):
    options = {"movflags": f"frag_keyframe+{flags}"}
    with penstock.Encoder(path := tmp_path / "a.mp4", size=SIZE, fps=25, options=options) as encoder:
        for index in range(10):
            encoder.write(picture(index))
    assert next(iter(penstock.Decoder(path))).time_s == 0
    assert encoder.report.warnings == ()


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("options", [{}, {"bf": 2}])
def test_a_picture_that_begins_later_than_its_audio_warns(tmp_path, program, options):
    options = {"movflags": "frag_keyframe+empty_moov", **options}
    encoder = penstock.Encoder(
        tmp_path / "a.mp4",
        size=SIZE,
        fps=25,
        options=options,
        audio=AudioTrack(48_000, 1),
        settings=EncoderSettings(ffmpeg=program),
    )
    encoder.write_audio(np.zeros(19_200, np.float32))
    for index in range(10):
        encoder.write(picture(index))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = encoder.close()
    assert any("delay_moov" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    "name, codec",
    [
        ("a.mp4", "libx264"),
        ("a.mov", "prores_ks"),
        ("a.mkv", "ffv1"),
        ("a.mkv", "libx264"),
        ("a.webm", "libvpx-vp9"),
        ("a.mp4", "mpeg4"),
        ("a.mkv", "mpeg4"),
    ],
)
def test_times_are_carried_exactly_to_the_unit_of_the_container(tmp_path, name, codec):
    with penstock.Encoder(tmp_path / name, size=SIZE, fps=None, codec=codec) as encoder:
        for index, time_us in enumerate(TIMES_US):
            encoder.write(picture(index), time_s=Fraction(time_us, 1_000_000))
    found, unit = times_s(tmp_path / name)
    assert found == [round(Fraction(time_us, 1_000_000) / unit) * unit for time_us in TIMES_US]
    ticks = 60_000 if codec == "mpeg4" else 90_000
    assert unit == (Fraction(1, ticks) if name.endswith(("mp4", "mov")) else Fraction(1, 1000))
    with penstock.Decoder(tmp_path / name) as decoder:
        levels = [int(frame[24, 32].mean()) for frame in decoder]
    assert np.allclose(levels, [20 * index for index in range(len(TIMES_US))], atol=6)


@pytest.mark.parametrize("pixel_format", a_few(PIXEL_FORMATS, 3))
def test_timed_frames_of_all_common_formats_keep_every_sample(tmp_path, pixel_format):
    layout = frame_layout(pixel_format, *SIZE, find_ffmpeg())
    frame = np.random.default_rng(1).integers(0, 200, layout.frame_bytes, np.uint8)
    if layout.dtype.endswith("f4"):
        frame = np.linspace(0, 1, layout.frame_bytes // 4, dtype="<f4").view(np.uint8)
    output = tmp_path / "a.nut"
    try:
        encoder = penstock.Encoder(output, size=SIZE, fps=None, pixel_format=pixel_format, codec="rawvideo")
    except ValueError:
        assert pixel_format in ("p010le", "ya16le", "grayf32le", "gbrpf32le")
        return
    with encoder:
        encoder.write(frame.tobytes(), time_s=0.5)
        encoder.write(frame.tobytes(), time_s=1)
    with penstock.Decoder(output, pixel_format="source") as decoder:
        frames = [np.array(one) for one in decoder]
    assert [one.tobytes() for one in frames] == [frame.tobytes()] * 2


@pytest.mark.parametrize("ending", ["mp4", "mov"])
def test_decoder_times_can_be_passed_to_an_encoder(tmp_path, ending):
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    with penstock.Encoder(first, size=SIZE, fps=None) as encoder:
        for index, time_us in enumerate(TIMES_US):
            with encoder.lease(time_s=time_us / 1e6) as view:
                view[:] = picture(index)
    with penstock.Decoder(first) as decoder, penstock.Encoder(second, fps=None) as encoder:
        for frame, time_us in zip(decoder, TIMES_US, strict=True):
            assert frame.time_s == pytest.approx(time_us / 1e6, abs=0.0005)
            encoder.write(frame, time_s=frame.time_s)
    assert times_s(second) == times_s(first)


def test_awrite_accepts_a_time(tmp_path):
    async def main():
        async with penstock.Encoder(tmp_path / "a.mkv", size=SIZE, fps=None, codec="ffv1") as encoder:
            for index in range(40):
                await encoder.awrite(picture(index % 9), time_s=index * index / 100)

    asyncio.run(main())
    assert times_s(tmp_path / "a.mkv")[0] == [Fraction(index * index, 100) for index in range(40)]


@pytest.mark.parametrize("fps, audio", [(None, None), (10, AudioTrack(8000, 1))])
def test_submit_takes_what_write_takes_and_frees_the_memory_by_its_ticket(tmp_path, fps, audio):
    frame = np.empty((48, 64, 3), np.uint8)
    output = tmp_path / "a.mkv"
    with penstock.Encoder(output, size=SIZE, fps=fps, audio=audio, quality="lossless") as encoder:
        for index in range(5):
            frame[...] = picture(index)
            ticket = encoder.submit(frame, time_s=None if fps else index / 4)
            if audio is not None:
                encoder.write_audio(np.zeros(800, np.float32))
            ticket.wait()
    with penstock.Decoder(output) as decoder:
        frames = list(decoder)
    assert [frame.max() for frame in frames] == [20 * index for index in range(5)]
    # Sound may move the picture in Matroska.
    times_s = [frame.time_s - frames[0].time_s for frame in frames]
    assert times_s == pytest.approx([index / (fps or 4) for index in range(5)], abs=0.001)


def test_wrong_uses_of_times_are_errors_at_the_call_and_lose_nothing(tmp_path):
    with penstock.Encoder(tmp_path / "a.mp4", size=SIZE, fps=None) as encoder:
        encoder.write(picture(0), time_s=1)
        for time_s, error, word in (
            *((time_s, ValueError, "later") for time_s in (1, 0.5, 1.0000004)),
            *((time_s, ValueError, "store") for time_s in (1.000001, 1.000005, 1 + 2**28 / 90_000)),
            *((time_s, ValueError, "seconds") for time_s in (-0.1, float("nan"), float("inf"), 1e30, 40_000)),
            (None, ValueError, "time_s=seconds"),
            ("1", TypeError, "number"),
        ):
            with pytest.raises(error, match=word):
                encoder.write(picture(1), time_s=time_s)
        encoder.write(picture(1), time_s=1.00002)
    assert encoder.report.frames_submitted == encoder.report.frames_encoded == 2


def test_stats_exclude_the_headers_that_carry_times(tmp_path):
    with penstock.Encoder(
        tmp_path / "a.mkv", size=SIZE, fps=None, codec="ffv1", pixel_format="gray"
    ) as encoder:
        assert encoder.stats.frames_submitted == encoder.stats.frames_written == 0
        for index in range(5):
            encoder.write(picture(index, (48, 64)), time_s=index).wait()
    assert encoder.stats.frames_submitted == encoder.stats.frames_written == encoder.stats.frames_encoded == 5
    assert encoder.report.bytes_submitted == 5 * encoder.frame_bytes
    assert encoder.stats.speed > 0


@pytest.mark.linux("signals to programs")
@pytest.mark.parametrize(
    "options", [{"fps": None}, {"fps": 900, "audio": penstock.video.AudioTrack(8000, 1)}]
)
def test_a_signal_handler_that_writes_inside_a_write_loses_nothing(tmp_path, options):
    told = []

    def write(index):
        time_s = {"time_s": index / 1000} if options["fps"] is None else {}
        encoder.write(picture(index % 9), **time_s)
        told.append(index)

    def handler(_signal, _frame):
        nonlocal depth
        if depth == 3:  # on a busy machine, they would nest up to a RecursionError
            return
        depth += 1
        with contextlib.suppress(ValueError):  # earlier than the write that it is in
            write(next(numbers))
        depth -= 1

    depth, numbers = 0, itertools.count()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with penstock.Encoder(
            tmp_path / "a.mkv", size=SIZE, codec="libx264", preset="ultrafast", **options
        ) as encoder:
            signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
            for _ in range(1500):
                with contextlib.suppress(ValueError):
                    write(next(numbers))
            signal.setitimer(signal.ITIMER_REAL, 0)
            if "audio" in options:
                encoder.write_audio(np.zeros((8000, 1), np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert encoder.report.frames_encoded == len(told) > 1000


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
@pytest.mark.parametrize(
    "times",
    [range(0, 1200, 60), [*range(10), *range(309, 319)], [0, 1, 2, 2_900, 2_901]],
    ids=["one a minute", "a pause", "a long pause"],
)
def test_pauses_lose_no_frame(tmp_path, name, times):
    with penstock.Encoder(tmp_path / name, size=SIZE, fps=None) as encoder:
        for index, time in enumerate(times):
            encoder.write(picture(index % 9), time_s=time)
    with penstock.Decoder(tmp_path / name) as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(list(times))
    packets = ffmpeg("-i", tmp_path / name, "-fps_mode", "passthrough", "-f", "framecrc", "-").decode()
    assert sum(not line.startswith("#") for line in packets.splitlines()) == len(times)


@pytest.mark.parametrize(("name", "fps", "instead"), [("a.gif", 101, "fps=50"), ("a.mkv", 1001, "fps=1000")])
def test_rate_too_high_for_a_container_names_one_that_it_has(tmp_path, name, fps, instead):
    with pytest.raises(ValueError, match=rf"{instead}\b"):
        penstock.Encoder(tmp_path / name, size=SIZE, fps=fps)


def test_pause_too_long_for_gif_raises(tmp_path):
    times_s = [0, 0.04, 0.08, 655.43, 655.47]
    with penstock.Encoder(tmp_path / "a.gif", size=SIZE, fps=None) as encoder:
        for index, time_s in enumerate(times_s):
            encoder.write(picture(index), time_s=time_s)
        for wrong in (655.474, times_s[-1] + 655.4):
            with pytest.raises(ValueError):
                encoder.write(picture(9), time_s=wrong)
    with penstock.Decoder(tmp_path / "a.gif") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(times_s, abs=0.0015)


def test_numpy_numbers_are_accepted_as_times(tmp_path):
    times_s = [np.float32(0.5), np.float64(0.75), np.int64(1), Fraction(5, 4)]
    with penstock.Encoder(tmp_path / "a.mp4", size=SIZE, fps=None) as encoder:
        for index, time_s in enumerate(times_s):
            encoder.write(picture(index), time_s=time_s)
    with penstock.Decoder(tmp_path / "a.mp4") as decoder:
        assert [frame.time_s for frame in decoder] == [0.5, 0.75, 1, 1.25]


@pytest.mark.parametrize("call", ["write", "awrite", "submit", "frame"])
def test_constant_frame_rate_refuses_a_time_of_another_frame(tmp_path, call):
    def write(encoder, time_s):
        if call == "frame":
            with encoder.lease(time_s=time_s) as view:
                view[...] = 9
        elif call == "awrite":
            asyncio.run(encoder.awrite(picture(0), time_s=time_s))
        else:
            getattr(encoder, call)(picture(0), time_s=time_s)

    with penstock.Encoder(tmp_path / "a.mkv", size=SIZE, fps=Fraction(30000, 1001)) as encoder:
        with pytest.raises(ValueError):
            write(encoder, 5)  # which would begin at 0
        write(encoder, 0)
        write(encoder, 0.0335)  # as Matroska rounds
        others = ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError))
        for wrong, error in (*((time_s, ValueError) for time_s in (0, 0.1, 1, Fraction(3, 30))), *others):
            with pytest.raises(error):
                write(encoder, wrong)
        write(encoder, np.float32(1001 / 15000))
        write(encoder, None)
        write(encoder, Fraction(4 * 1001, 30000))
    assert encoder.report.frames_encoded == 5 and encoder.report.warnings == ()


def test_decoded_frames_at_another_rate_warn_once(tmp_path):
    with penstock.Encoder(tmp_path / "a.mp4", fps=None) as encoder:
        for time_s in (0, 0.1, 0.2, 0.5, 0.6):
            encoder.write(picture(0), time_s=time_s)

    def warned(frames, fps=10):
        with penstock.Encoder(tmp_path / "b.mp4", fps=fps) as encoder:
            for frame in frames:
                encoder.write(frame)
        return encoder.report.warnings

    with penstock.Decoder(tmp_path / "a.mp4") as decoder:
        frames = list(decoder)
    with pytest.warns(penstock.FFmpegWarning):
        [warning] = warned(frames)
    assert "0.200" in warning
    with pytest.warns(penstock.FFmpegWarning):
        warned(frames[:3], fps=25)
    for not_moved in ([np.asarray(frame) for frame in frames], [255 - frame for frame in frames]):
        assert warned(not_moved) == ()
    assert warned(frames[:3]) == warned(frames[3:]) == warned([*frames[:3], *frames[:3]]) == ()
