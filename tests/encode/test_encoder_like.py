"""`Encoder.like`: a video that has what another one has."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import warnings
from contextlib import nullcontext
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support import media
from support.cases import a_few, needs
from support.clips import clip
from support.command_line import run
from support.renders import mapped

from penstock import (
    AudioDecoder,
    Decoder,
    DecoderError,
    Encoder,
    FanOut,
    FFmpegWarning,
    StalledError,
    probe,
)
from penstock._ffmpeg.command.colors import holds_hdr_metadata
from penstock._ffmpeg.command.settings import with_overrides
from penstock._platform.paths import shell_word
from penstock.video import AudioFile, Colors, EncoderSettings

TIMES_S = [0.0, 0.1, 0.15, 0.5, 0.52, 1.7, 1.8, 4.0]


def changed(source: Path, output: Path, *, decoder: Any = None, **arguments: Any) -> None:
    with Decoder(source, **(decoder or {})) as frames, Encoder.like(frames, output, **arguments) as encoder:
        for frame in frames:
            encoder.write(frame // 2, time_s=frame.time_s)


def changed_as_it_is(source: Path, output: Path, *, pixel_format: str, **arguments: Any) -> None:
    with (
        Decoder(source, pixel_format=pixel_format) as frames,
        Encoder.like(frames, output, **arguments) as encoder,
    ):
        for frame in frames:
            encoder.write(frame, time_s=frame.time_s)


def made(path: Path, *arguments: object) -> Path:
    media.ffmpeg("-f", "lavfi", *arguments, path)
    return path


def red(path: Path) -> Path:
    """A video of one color, (200, 30, 30), by BT.709."""
    tagged = ("-vf", "scale=out_color_matrix=bt709", "-colorspace", "bt709", "-pix_fmt", "yuv420p")
    return made(path, "-i", "color=0xc81e1e:size=64x48:duration=0.2", *tagged)


@pytest.fixture
def varying(tmp_path: Path) -> Path:
    """A video whose times vary, and that begins late."""
    with Encoder(tmp_path / "source.mp4", fps=None) as encoder:
        for time_s in TIMES_S:
            encoder.write(np.full((48, 64, 3), 100, np.uint8), time_s=0.3 + time_s)
    return tmp_path / "source.mp4"


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_like_keeps_frame_times(tmp_path: Path, varying: Path, suffix: str) -> None:
    changed(varying, tmp_path / f"a{suffix}")
    with Decoder(tmp_path / f"a{suffix}") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx([0.3 + one for one in TIMES_S], abs=0.001)


def test_times_that_the_container_cannot_hold_warn(tmp_path: Path, varying: Path) -> None:
    with pytest.warns(FFmpegWarning) as told:
        changed(varying, tmp_path / "a.avi")
    missed = [str(one.message) for one in told]
    assert any("variable frame rate" in one for one in missed)
    assert any("0.300 s" in one for one in missed)


@pytest.mark.parametrize("name", [5, ["mp4"]])
def test_container_that_is_no_name_is_refused(tmp_path: Path, varying: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="name of a container"):
        Encoder.like(probe(varying), tmp_path / "v.mp4", options={"f": name})


def test_frame_rate_is_kept_if_the_container_has_no_times(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=30000/1001:duration=0.5")
    changed(source, tmp_path / "a.avi")
    video = probe(tmp_path / "a.avi").video[0]
    assert (video.frame_rate, video.frames) == (Fraction(30000, 1001), 15)
    changed(source, tmp_path / "b.mp4")
    assert probe(tmp_path / "b.mp4").video[0].frame_rate == Fraction(30000, 1001)


@pytest.mark.parametrize("suffix", [".mkv", ".webm", ".avi"])
def test_a_constant_rate_stays_constant(tmp_path: Path, suffix: str) -> None:
    """Also of a container that tells of its first frames only; and one late frame far behind is not missed."""
    source = tmp_path / f"a{suffix}"
    with Encoder(source, fps=25) as encoder:
        for _ in range(25):
            encoder.write(np.full((48, 64, 3), 100, np.uint8))
    changed(source, tmp_path / "b.mp4")
    video = probe(tmp_path / "b.mp4").video[0]
    assert (video.frame_rate, video.duration_s, video.is_variable_frame_rate) == (25, 1, False)


@pytest.mark.parametrize("rate", [Fraction(25), Fraction(30000, 1001)])
def test_header_tells_the_rate_of_a_source_that_begins_late(tmp_path: Path, rate: Fraction) -> None:
    late = ("-output_ts_offset", "0.5")
    source = made(tmp_path / "a.mp4", "-i", f"testsrc2=64x48:rate={rate}:duration=0.5", *late)
    changed(source, tmp_path / "b.mkv")
    with av.open(tmp_path / "b.mkv") as written:
        assert written.streams.video[0].average_rate == rate
        assert written.streams.video[0].start_time == 500


@pytest.mark.parametrize(("filters", "rate"), [("hflip", 25), ("yadif=mode=1", 50), ("fps=10", 10)])
def test_header_tells_the_rate_that_filters_make(tmp_path: Path, filters: str, rate: int) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=0.8")
    changed(source, tmp_path / "b.mkv", decoder={"filters": filters})
    with av.open(tmp_path / "b.mkv") as written:
        assert written.streams.video[0].average_rate == rate
    assert probe(tmp_path / "b.mkv").video[0].frame_rate == rate


def test_unknown_argument_names_the_one_that_was_meant(tmp_path: Path, varying: Path) -> None:
    with Decoder(varying) as frames, pytest.raises(TypeError, match="'crf'"):
        Encoder.like(frames, tmp_path / "a.mp4", crff=20)  # type: ignore[call-arg]


def test_skipped_frame_raises_instead_of_moving_later_frames(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=1")
    with Decoder(source) as frames:
        encoder = Encoder.like(frames, tmp_path / "b.mp4")
        encoder.write(frames[0])
        encoder.write(frames[1])
        for wrong in (1, 3):
            with pytest.raises(ValueError):
                encoder.write(frames[wrong])
        encoder.abort()
        with Encoder.like(frames, tmp_path / "c.mp4", fps=None) as encoder:
            for frame in frames[::2]:
                encoder.write(frame)
        with Encoder.like(frames, tmp_path / "d.mp4", fps=50) as encoder:
            for frame in frames[::2]:
                encoder.write(frame)
    with Decoder(tmp_path / "c.mp4") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx([index / 12.5 for index in range(13)])
    assert probe(tmp_path / "d.mp4").video[0].duration_s == pytest.approx(13 / 50)


@pytest.mark.parametrize(
    ("rate", "start_s", "suffix"),
    a_few(product((Fraction(30000, 1001), None), (None, 0.12), (".mp4", ".mkv")), 3),
)
def test_one_loop_keeps_the_times_of_every_video(
    tmp_path: Path, rate: Fraction | None, start_s: float | None, suffix: str
) -> None:
    """Also of plain arrays, as OpenCV returns them."""
    source = tmp_path / f"a{suffix}"
    with Encoder(source, fps=rate) as encoder:
        for index, time_s in enumerate(TIMES_S):
            encoder.write(np.full((48, 64, 3), 100, np.uint8), time_s=index / rate if rate else time_s)
    with Decoder(source, start=start_s) as decoder, Encoder.like(decoder, tmp_path / f"b{suffix}") as encoder:
        times_s = []
        for frame in decoder:
            encoder.write(np.array(frame), time_s=frame.time_s)
            times_s.append(frame.time_s)
    # A part at a constant rate begins at 0.
    begins_s = times_s[0] if rate and start_s else 0
    with Decoder(tmp_path / f"b{suffix}") as decoder:
        kept_s = [frame.time_s for frame in decoder]
    assert kept_s == pytest.approx([one - begins_s for one in times_s], abs=0.0015)
    assert encoder.report.warnings == ()


def test_frame_without_a_time_is_refused_at_a_variable_frame_rate(tmp_path: Path, varying: Path) -> None:
    with Decoder(varying) as decoder:
        encoder = Encoder.like(decoder, tmp_path / "b.mp4")
        for changed in (255 - decoder[0], np.array(decoder[0])):
            with pytest.raises(ValueError):
                encoder.write(changed)
        encoder.abort()


def test_skipped_frames_raise_or_warn_with_and_without_times(tmp_path: Path) -> None:
    sound = ("-f", "lavfi", "-i", "sine=440:duration=2")
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=2", *sound)
    with Decoder(source) as decoder:
        with Encoder.like(decoder, tmp_path / "b.mp4") as encoder, pytest.raises(ValueError):
            for frame in decoder[::2]:
                encoder.write(255 - frame, time_s=frame.time_s)
        with pytest.warns(FFmpegWarning):  # noqa: SIM117
            with Encoder.like(decoder, tmp_path / "c.mp4") as encoder:
                for frame in decoder[::2]:
                    encoder.write(255 - frame)
        assert any("time_s=frame.time_s" in one for one in encoder.report.warnings)
    with Decoder(source, count=10) as decoder, Encoder.like(decoder, tmp_path / "d.mp4") as encoder:
        for frame in decoder:
            encoder.write(255 - frame)
    assert encoder.report.warnings == ()


def test_encoder_tag_of_an_avi_file_does_not_count_as_metadata(tmp_path: Path) -> None:
    source = made(tmp_path / "a.avi", "-i", "testsrc2=64x48:rate=25:duration=0.2", "-c:v", "mpeg4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changed(source, tmp_path / "b.mp4")


def test_warning_says_how_far_frames_move_if_the_container_has_no_times(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mkv", "-i", "testsrc2=64x48:rate=25:duration=1")
    with Decoder(source) as decoder, pytest.warns(FFmpegWarning, match=r"0\.480"):  # noqa: SIM117
        with Encoder.like(decoder, tmp_path / "b.avi") as encoder:
            for frame in decoder[::2]:
                encoder.write(255 - frame, time_s=frame.time_s)


def test_frame_that_timed_out_can_be_written_again(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=2")
    settings = with_overrides(EncoderSettings(queue_items=1), capacity_bytes=4096)
    with Decoder(source) as frames, Encoder.like(frames, tmp_path / "b.mp4", settings=settings) as encoder:
        os.kill(encoder.pid, signal.SIGSTOP)
        refused = 0
        for frame in frames:
            try:
                encoder.write(frame, timeout=0)
            except StalledError:
                refused += 1
                os.kill(encoder.pid, signal.SIGCONT)
                encoder.write(frame)
    assert refused and probe(tmp_path / "b.mp4").video[0].frames == 50


def test_every_way_to_write_checks_frame_times(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=1")
    with Decoder(source) as frames, Encoder.like(frames, tmp_path / "b.mp4") as encoder:
        encoder.write(frames[0])
        writes = (encoder.write, encoder.submit, lambda frame: asyncio.run(encoder.awrite(frame)))
        for number, write in enumerate(writes, 1):
            with pytest.raises(ValueError):
                write(frames[number + 1])
            write(frames[number])


def test_fan_out_checks_frame_times(tmp_path: Path) -> None:
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=25:duration=1")
    with Decoder(source) as frames, FanOut() as outputs:
        outputs.add(Encoder.like(frames, tmp_path / "b.mp4"))
        timed = Encoder.like(frames, tmp_path / "c.mp4", fps=None)
        for frame in frames[:3]:
            outputs.write(frame)
        with pytest.raises(ValueError):
            outputs.write(frames[4])
        outputs.write(frames[3])
    with Decoder(source) as frames, FanOut([timed]) as outputs:
        for frame in frames[::5]:
            outputs.write(frame)
    with Decoder(tmp_path / "c.mp4") as result:
        assert [round(frame.time_s, 3) for frame in result] == [0, 0.2, 0.4, 0.6, 0.8]


def test_lost_alpha_warns(tmp_path: Path) -> None:
    with Encoder(tmp_path / "a.webm", fps=5, pixel_format="rgba") as encoder:
        encoder.write(np.zeros((48, 64, 4), np.uint8))
    with pytest.warns(FFmpegWarning, match="rgba"):
        changed(tmp_path / "a.webm", tmp_path / "b.webm")
    changed(tmp_path / "a.webm", tmp_path / "c.webm", decoder={"pixel_format": "rgba"})
    assert probe(tmp_path / "c.webm").video[0].has_separate_alpha


def test_pause_late_in_the_video_is_kept(tmp_path: Path) -> None:
    pause = ("-vf", r"select=not(between(n\,150\,170))", "-fps_mode", "passthrough")
    source = made(tmp_path / "a.mkv", "-i", "testsrc2=64x48:rate=25:duration=8", *pause)
    assert not probe(source).video[0].is_variable_frame_rate
    with Decoder(source) as decoder:
        times_s = [frame.time_s for frame in decoder]
    changed(source, tmp_path / "b.mp4")
    with Decoder(tmp_path / "b.mp4") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(times_s, abs=0.001)


def test_like_keeps_audio_metadata_and_chapters(tmp_path: Path) -> None:
    source = tmp_path / "source.mp4"
    made(tmp_path / "sound.m4a", "-i", "sine=440:duration=2")
    with Encoder(
        source,
        fps=20,
        audio=AudioFile(tmp_path / "sound.m4a"),
        metadata={"title": "Waves", "artist": "Ada"},
        chapters=[(0.0, "One"), (0.5, "Two")],
    ) as encoder:
        for _ in range(20):
            encoder.write(np.zeros((48, 64, 3), np.uint8))
    changed(source, tmp_path / "a.mkv")
    told = probe(tmp_path / "a.mkv")
    assert [one.codec for one in told.audio] == ["aac"]
    assert {name.lower(): value for name, value in told.tags.items()}.items() >= {
        "title": "Waves",
        "artist": "Ada",
    }.items()
    assert [(one.start_s, one.title) for one in told.chapters] == [(0.0, "One"), (0.5, "Two")]
    changed(source, tmp_path / "b.mp4", audio=None, metadata=None, chapters=None)
    told = probe(tmp_path / "b.mp4")
    assert (told.audio, told.chapters) == ((), ()) and "title" not in told.tags
    with pytest.warns(FFmpegWarning) as missed:
        changed(source, tmp_path / "c.gif")
    told_of = [str(one.message).rpartition("source's ")[2] for one in missed]
    assert told_of == ["audio tracks (1 of 1)", "metadata", "chapters"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changed(source, tmp_path / "d.gif", audio=None, metadata=None, chapters=None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("suffix", "codec", "pixel_format", "tagged"),
    a_few(
        (
            (*output, pixel_format, tagged)
            for tagged in ((), ("-colorspace", "bt709"))
            for pixel_format in ("rgb24", "yuv420p", "gray")
            for output in (
                *(("mp4", "auto"), ("mkv", "auto"), ("webm", "auto")),
                *(("mkv", "libx265"), ("mp4", "auto-h264")),
            )
        ),
        6,
    ),
)
def test_lossless_picks_the_same_format_as_without_a_source(
    tmp_path: Path, suffix: str, codec: str, pixel_format: str, tagged: tuple[str, ...]
) -> None:
    picture = ("-i", "testsrc2=64x48:duration=0.2", "-pix_fmt", "yuv444p", *tagged)
    source, output = made(tmp_path / "a.mp4", *picture), tmp_path / f"b.{suffix}"
    with (
        Decoder(source, pixel_format=pixel_format) as decoder,
        Encoder.like(decoder, output, quality="lossless", codec=codec) as encoder,
    ):
        frames = [np.array(frame) for frame in decoder]
        for frame in frames:
            encoder.write(frame)
    by_map = tmp_path / f"c.{suffix}"
    lossless = {"quality": "lossless", "codec": codec}
    mapped(source, by_map, pixel_format=pixel_format, encoder_options=lossless)
    for path in (output, by_map):
        with Decoder(path, pixel_format=pixel_format) as decoder:
            assert np.array_equal(list(decoder), frames)


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
@pytest.mark.parametrize(
    ("pixel_format", "tagged"),
    a_few(
        product(
            ("gray", "gray16le", "bgr0", "yuv444p", "yuv420p"),
            ((), ("-color_range", "pc"), ("-color_range", "tv")),
        ),
        4,
    ),
)
def test_contrast_is_kept(tmp_path: Path, pixel_format: str, tagged: tuple[str, ...]) -> None:
    """Also where RGB and gray, which may be tagged as full range, are read as YUV."""
    ramp = "gradients=64x48:c0=0x282828:c1=0xc8c8c8:x0=0:y0=0:x1=63:y1=0:n=2:duration=0.2"
    source = made(tmp_path / "a.mkv", "-i", ramp, "-c:v", "ffv1", "-pix_fmt", pixel_format, *tagged)
    changed_to = tmp_path / "b.mp4"
    # Of gray that is tagged as limited, FFmpeg 5.1 makes wrong YUV of more than 8 bits.
    is_misread = (pixel_format, *tagged) == ("gray", "-color_range", "tv")
    for read_as in ("rgb24", "yuv420p", *([] if is_misread else ["yuv444p10le"])):
        with Decoder(source, pixel_format=read_as) as decoder, Encoder.like(decoder, changed_to) as encoder:
            for frame in decoder:
                encoder.write(frame)
        with Decoder(source) as before, Decoder(changed_to) as after:
            seen, wanted = np.asarray(after.read(), int), np.asarray(before.read(), int)
        assert abs(seen.mean() - wanted.mean()) < 2 and abs(np.ptp(seen) - np.ptp(wanted)) < 8, read_as


def test_advice_on_colors_without_a_tag_gives_the_colors_of_the_source(tmp_path: Path) -> None:
    """YUV frames would only be called another matrix."""
    source = red(tmp_path / "a.mkv")
    with pytest.warns(FFmpegWarning, match=r"'bt709'.*Pass pixel_format='rgb24' and colors=.*'bt601'"):
        changed_as_it_is(source, tmp_path / "b.avi", pixel_format="yuv420p", codec="mpeg4")
    colors = Colors(matrix="bt601")
    changed_as_it_is(source, tmp_path / "c.avi", pixel_format="rgb24", codec="mpeg4", colors=colors)
    with Decoder(tmp_path / "c.avi") as decoder:
        assert np.abs(np.asarray(decoder.read(), int) - (200, 30, 30)).max() <= 4


def test_motion_jpeg_takes_the_colors_of_rgb_and_refuses_yuv_of_another_matrix(tmp_path: Path) -> None:
    source = red(tmp_path / "a.mkv")
    with pytest.raises(ValueError, match=r"'bt601'.*rgb24"):
        changed_as_it_is(source, tmp_path / "b.mov", pixel_format="yuv420p", codec="mjpeg")
    changed_as_it_is(source, tmp_path / "c.mov", pixel_format="rgb24", codec="mjpeg")
    with Decoder(tmp_path / "c.mov") as decoder:
        assert np.abs(np.asarray(decoder.read(), int) - (200, 30, 30)).max() <= 4


@pytest.mark.parametrize("name", ["b.gif", "%d.png"])
def test_yuv_frames_become_images_of_the_same_colors(tmp_path: Path, name: str) -> None:
    source = red(tmp_path / "a.mp4")
    with (
        Decoder(source, pixel_format="yuv420p") as decoder,
        Encoder.like(decoder, tmp_path / name) as encoder,
    ):
        for frame in decoder:
            encoder.write(frame)
    with Decoder(tmp_path / name.replace("%d", "1")) as decoder:
        assert np.abs(np.asarray(decoder.read(), int) - (200, 30, 30)).max() <= 3
    with Decoder(source, pixel_format="yuv420p") as decoder, pytest.warns(FFmpegWarning):
        Encoder.like(decoder, tmp_path / "c.wmv", codec="wmv2").abort()


@pytest.mark.parametrize(
    ("matrix", "suffix"),
    [(None, "mp4"), (None, "mkv"), ("fcc", "mkv"), ("smpte240m", "mp4"), ("bt709", "mp4"), ("RGB", "mkv")],
)
def test_yuv_that_passes_through_keeps_its_colors(tmp_path: Path, suffix: str, matrix: str | None) -> None:
    """Also in HD, where BT.709 is the default: what changes the tags changes every color."""
    source, green = tmp_path / f"a.{suffix}", ("-i", "color=0x00ff00:size=1280x720:duration=0.2:rate=10")
    if matrix == "RGB":
        made(source, *green, "-c:v", "libx264rgb", "-pix_fmt", "bgr24")
    else:
        label = matrix or "unknown"
        converted = f"scale=out_color_matrix={matrix or 'bt601'},format=yuv420p,setparams=colorspace={label}"
        made(source, *green, "-vf", converted)
    with (
        Decoder(source, pixel_format="yuv420p") as decoder,
        Encoder.like(decoder, tmp_path / f"like.{suffix}") as encoder,
    ):
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    mapped(source, tmp_path / f"mapped.{suffix}", pixel_format="yuv420p")
    raw = (tmp_path / "raw").open("wb")
    with raw, Decoder(source, pixel_format="yuv420p") as decoder:
        for frame in decoder:
            raw.write(frame)
    made_by = run(
        "encode", raw.name, tmp_path / f"line.{suffix}", "--like", source, "--pixel-format", "yuv420p"
    )
    assert not made_by.returncode, made_by.stderr
    for name in ("like", "mapped", "line"):
        output = tmp_path / f"{name}.{suffix}"
        with Decoder(source) as before, Decoder(output) as after:
            assert np.abs(np.asarray(before.read(), int) - np.asarray(after.read(), int)).max() <= 3, name
        if matrix != "RGB":
            assert probe(output).video[0].color_matrix == matrix


@pytest.mark.parametrize(
    ("matrix", "color_range", "asked", "has_warning"),
    [
        ("smpte240m", "tv", Colors(), True),
        ("smpte240m", "tv", Colors(matrix="smpte240m"), False),
        ("unknown", "tv", Colors(), False),  # BT.601, as the output
        ("bt2020nc", "tv", Colors(), True),
        ("smpte170m", "pc", Colors(), True),
        ("smpte170m", "pc", Colors(range="full"), False),
    ],
)
@pytest.mark.parametrize("copies", [False, True])
def test_yuv_that_is_relabeled_is_reported(
    tmp_path: Path, matrix: str, color_range: str, asked: Colors, *, has_warning: bool, copies: bool
) -> None:
    tags = ("-c:v", "ffv1", "-pix_fmt", "yuv420p", "-colorspace", matrix, "-color_range", color_range)
    source = made(tmp_path / "a.mkv", "-i", "testsrc2=64x48:duration=0.2:rate=10", *tags)
    expected = pytest.warns(FFmpegWarning, match=r"Encoder\.like") if has_warning else nullcontext()
    with Decoder(source, pixel_format="yuv420p") as decoder, expected:
        size = decoder.size
        with Encoder(tmp_path / "b.mp4", size=size, fps=10, pixel_format="yuv420p", colors=asked) as encoder:
            for frame in decoder:
                encoder.write(frame.copy() if copies else frame)
    assert encoder.report is not None
    assert bool(encoder.report.warnings) == has_warning


@pytest.mark.parametrize(
    ("name", "arguments", "extras"),
    [
        ("a.mkv", ("-metadata:s:v", "stereo_mode=left_right"), ("stereo 3D mode",)),
        ("a.mp4", ("-x264-params", "frame-packing=3"), ("stereo 3D mode",)),
        ("a.mkv", ("-metadata:s:v", "stereo_mode=mono"), ()),
    ],
)
def test_extras_of_frames_are_reported_as_lost(
    tmp_path: Path, name: str, arguments: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    source = made(tmp_path / name, "-i", "testsrc2=64x48:duration=0.2", *arguments)
    assert probe(source).video[0].extras == extras
    expected = pytest.warns(FFmpegWarning, match=extras[0]) if extras else nullcontext()
    with expected, Decoder(source) as decoder:
        Encoder.like(decoder, tmp_path / "b.mkv").abort()
    expected = pytest.warns(FFmpegWarning, match=extras[0]) if extras else nullcontext()
    with expected:
        mapped(source, tmp_path / "c.mkv")


def test_rgb_is_not_encoded_by_a_matrix_that_frames_keep(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="untagged"):
        Encoder(tmp_path / "a.mp4", fps=10, colors=Colors(matrix="untagged"))


def test_warning_names_the_pixel_format_that_keeps_everything(tmp_path: Path) -> None:
    source = made(
        tmp_path / "a.mkv", "-i", "testsrc2=64x48:duration=0.1", "-c:v", "ffv1", "-pix_fmt", "yuva444p10le"
    )
    for read_as, said in (
        (
            "rgb24",
            ["alpha and 10 bits, because the frames are rgb24. Read them with pixel_format='rgba64le'"],
        ),
        ("rgba", ["10 bits, because the frames are rgba. Read them with pixel_format='rgba64le'"]),
        ("rgba64le", []),
    ):
        with pytest.warns(FFmpegWarning) as caught:
            changed(source, tmp_path / "b.mkv", decoder={"pixel_format": read_as}, codec="ffv1")
            warnings.warn("one", FFmpegWarning, stacklevel=1)
        told = [str(one.message).rpartition("source's ")[2] for one in caught]
        assert [one for one in told if "because the frames" in one] == said
    with pytest.warns(FFmpegWarning):  # GIF has 8 bits at most
        changed(source, tmp_path / "b.gif")
    with pytest.warns(FFmpegWarning):
        Encoder.like(probe(source), tmp_path / "b.mp4").abort()


def test_part_of_a_video_keeps_the_rate_and_has_no_audio(tmp_path: Path) -> None:
    source = made(
        tmp_path / "a.mp4",
        "-i",
        "testsrc2=64x48:rate=20:duration=1",
        "-f",
        "lavfi",
        "-i",
        "sine=440:duration=1",
    )
    with pytest.warns(FFmpegWarning, match="has a start. Pass audio="):
        changed(source, tmp_path / "b.mp4", decoder={"start": 0.5})
    told = probe(tmp_path / "b.mp4")
    assert told.audio == () and told.video[0].start_s == 0 and told.video[0].frames == 10
    changed(source, tmp_path / "c.mp4", decoder={"count": 10})
    told = probe(tmp_path / "c.mp4")
    assert told.video[0].frames == 10 and told.audio[0].duration_s == pytest.approx(0.5, abs=0.1)


def test_audio_that_goes_on_after_the_picture_warns_also_in_matroska(tmp_path: Path) -> None:
    """Matroska tells only how long the whole file is, so that the end of the encode shows it."""
    tone = ("-f", "lavfi", "-i", "sine=440:duration=2.5")
    source = made(tmp_path / "a.mkv", "-i", "testsrc2=64x48:rate=20:duration=1", *tone)
    with pytest.warns(FFmpegWarning, match="end of the audio is missing"):
        changed(source, tmp_path / "b.mkv")


@pytest.mark.parametrize("name", ["settings", "colors", "pixel_format"])
def test_an_argument_that_can_not_be_none_is_named(tmp_path: Path, name: str) -> None:
    given: Any = {name: None}
    source = made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:duration=0.1", "-f", "lavfi", "-i", "sine=d=0.1")
    with Decoder(source) as decoder:
        with pytest.raises(TypeError, match=name):
            Encoder.like(decoder, tmp_path / "b.mp4", **given)
        if name == "settings":
            with pytest.raises(TypeError, match=name):
                decoder.audio(**given)


def test_like_keeps_pixel_aspect_ratio_colors_and_size(tmp_path: Path) -> None:
    source = made(
        *(
            tmp_path / "a.mp4",
            "-i",
            "testsrc2=96x64:rate=20:duration=0.5",
            "-vf",
            "setsar=4/3,format=yuv420p",
        ),
        *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "pc"),
    )
    changed(source, tmp_path / "b.mp4")
    video = probe(tmp_path / "b.mp4").video[0]
    assert (video.width, video.height, video.sample_aspect_ratio) == (96, 64, Fraction(4, 3))
    assert (video.color_matrix, video.color_range, video.color_primaries) == ("bt709", "full", "bt709")
    with pytest.warns(FFmpegWarning):
        changed(source, tmp_path / "c.mp4", decoder={"size": (48, 32)})
    assert probe(tmp_path / "c.mp4").video[0].width == 48


def test_like_keeps_bit_depth_and_hdr(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "libx265")
    display = Colors.MasteringDisplay(
        (0.708, 0.292), (0.17, 0.797), (0.131, 0.046), (0.3127, 0.329), (0.0001, 1000.0)
    )
    light = Colors.ContentLight(1000, 400)
    hdr = {
        "primaries": "bt2020",
        "transfer": "smpte2084",
        "mastering_display": display,
        "content_light": light,
    }
    given = {"pixel_format": "rgb48le", "codec": "libx265", "output_pixel_format": "yuv420p10le"}
    ramp = np.linspace(0, 65535, 64 * 64 * 3).reshape(64, 64, 3).astype(np.uint16)
    with Encoder(tmp_path / "a.mkv", fps=20, colors=Colors("bt2020", **hdr), **given) as encoder:
        for _ in range(5):
            encoder.write(ramp)
    changed(tmp_path / "a.mkv", tmp_path / "b.mkv", decoder={"pixel_format": "rgb48le"}, codec="libx265")
    video = probe(tmp_path / "b.mkv").video[0]
    assert (video.pixel_format, video.color_transfer) == ("yuv420p10le", "smpte2084")
    with pytest.warns(FFmpegWarning):
        changed(tmp_path / "a.mkv", tmp_path / "d.mkv", decoder={"pixel_format": "gray"}, codec="libx265")
    assert video.content_light == light and video.mastering_display is not None
    is_held = holds_hdr_metadata(ffmpeg, "libvpx-vp9")
    missed = pytest.warns(FFmpegWarning, match="HDR")
    with nullcontext() if is_held else missed:
        decoder, settings = {"pixel_format": "rgb48le"}, EncoderSettings(ffmpeg=ffmpeg)
        changed(tmp_path / "a.mkv", tmp_path / "c.webm", decoder=decoder, settings=settings)
    assert probe(tmp_path / "c.webm").video[0].content_light == (light if is_held else None)


def test_rotated_video_is_encoded_upright(tmp_path: Path) -> None:
    source = clip("rotated_90")
    changed(source, tmp_path / "c.mp4")
    video = probe(tmp_path / "c.mp4").video[0]
    assert (video.width, video.height, video.rotation) == (48, 64, 0)
    with pytest.warns(FFmpegWarning, match="rotation"):
        changed(source, tmp_path / "d.mp4", decoder={"input_options": {"autorotate": 0}})


def test_like_takes_the_rate_from_probed_facts(tmp_path: Path) -> None:
    source = probe(made(tmp_path / "a.mp4", "-i", "testsrc2=64x48:rate=24:duration=0.5"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Encoder.like(source, tmp_path / "b.mp4") as encoder:
            encoder.write(np.zeros((48, 64, 3), np.uint8))
    assert probe(tmp_path / "b.mp4").video[0].frame_rate == 24
    with pytest.raises(TypeError):
        Encoder.like(source, tmp_path / "b.mp4", settings={"queue_items": 2})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Encoder.like("a.mp4", tmp_path / "b.mp4")  # type: ignore[arg-type]
    with pytest.raises(DecoderError):
        Encoder.like(probe(made(tmp_path / "a.wav", "-i", "sine=440:duration=0.1")), tmp_path / "b.mp4")


def test_a_sound_that_begins_late_is_not_called_longer(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """In Matroska, a stream is as long as the file by what libav tells."""
    source = made(
        tmp_path / "a.mkv", "-i", "testsrc=r=10:d=3", "-itsoffset", "2", "-f", "lavfi", "-i", "sine=d=1"
    )
    changed(source, tmp_path / "b.mp4")
    assert not recwarn


@pytest.mark.parametrize("name", ["yuvj422p", "yuvj444p"])
def test_chroma_of_a_camera_stays_as_fine(tmp_path: Path, name: str) -> None:
    source = made(tmp_path / "a.avi", "-i", "testsrc2=64x48:duration=0.2", "-c:v", "mjpeg", "-pix_fmt", name)
    changed(source, tmp_path / "b.mp4")
    mapped(source, tmp_path / "c.mp4")
    for output in (tmp_path / "b.mp4", tmp_path / "c.mp4"):
        video = probe(output).video[0]
        assert (video.pixel_format, video.color_range) == (name, "full")


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("a.mkv", ("-c:v", "ffv1", "-pix_fmt", "bgr0", "-color_range", "pc")),
        ("a.mkv", ("-c:v", "ffv1", "-pix_fmt", "gray16le", "-color_range", "pc")),
        ("a.mp4", ("-c:v", "libx264rgb")),
        ("a.mov", ("-c:v", "png", "-pix_fmt", "rgb24")),
        ("a.mov", ("-c:v", "png", "-pix_fmt", "pal8")),
    ],
)
def test_a_source_of_rgb_or_gray_becomes_video_of_the_limited_range(
    tmp_path: Path, name: str, encoder: tuple[str, ...]
) -> None:
    """As frames of RGB do: the full range of such a source is no choice of its author, and many players ignore it."""
    source = made(tmp_path / name, "-i", "testsrc2=64x48:duration=0.2", *encoder)
    with pytest.warns(FFmpegWarning) if "gray16le" in encoder or "pal8" in encoder else nullcontext():
        changed(source, tmp_path / "b.mp4")
        mapped(source, tmp_path / "c.mp4")
    for output in (tmp_path / "b.mp4", tmp_path / "c.mp4"):
        video = probe(output).video[0]
        assert (video.pixel_format, video.color_range, video.color_matrix) == ("yuv420p", "limited", "bt601")
    with Decoder(source, pixel_format="rgb24") as before, Decoder(tmp_path / "c.mp4") as after:
        colors = [np.asarray(one.read()).mean(axis=(0, 1)) for one in (before, after)]
    assert np.abs(colors[0] - colors[1]).max() < 4


@pytest.mark.parametrize("name", ["b.mp4", "b.mkv"])
@pytest.mark.parametrize("aspect", ["1001/1000", "118/81"])
@pytest.mark.filterwarnings("ignore::penstock.errors.FFmpegWarning")
def test_like_and_map_video_keep_the_pixel_aspect_ratio_or_warn(
    tmp_path: Path, ffmpeg: str, name: str, aspect: str
) -> None:
    source, wanted = tmp_path / "a.mp4", Fraction(aspect)
    made(source, "-i", "testsrc=s=64x48:d=0.2", "-vf", f"setsar={aspect}:max=9999")
    assert probe(source).video[0].sample_aspect_ratio == wanted
    settings = EncoderSettings(ffmpeg=ffmpeg)
    with Decoder(source) as decoder, Encoder.like(decoder, tmp_path / name, settings=settings) as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    kept = (probe(tmp_path / name).video[0].sample_aspect_ratio or 1) == wanted
    assert encoder.report is not None
    report = mapped(source, tmp_path / f"mapped {name}")
    kept_by_map = (probe(tmp_path / f"mapped {name}").video[0].sample_aspect_ratio or 1) == wanted
    for is_kept, told in ((kept, encoder.report), (kept_by_map, report)):
        assert is_kept != any("aspect" in one for one in told.warnings)


@pytest.mark.parametrize("ending", ["mov", "ts"])
@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_like_of_a_dv_tape_has_its_audio(tmp_path: Path, ffmpeg: str, ending: str) -> None:
    """Its PCM packets differ in size, so the end of a trial fell between two. MPEG-TS can't hold them."""
    source, out = tmp_path / "a.dv", tmp_path / f"b.{ending}"
    sound = ("-f", "lavfi", "-i", "sine=r=48000", "-t", "0.3", "-c:a", "pcm_s16le", "-ac", "2")
    made(source, "-i", "testsrc=s=720x480:r=30000/1001", *sound, "-c:v", "dvvideo", "-pix_fmt", "yuv411p")
    settings = EncoderSettings(ffmpeg=ffmpeg)
    with Decoder(source) as decoder, Encoder.like(decoder, out, settings=settings) as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    with AudioDecoder(source) as original, AudioDecoder(out) as written:
        wanted, got = original.read_all(), written.read_all()
    assert len(got) == pytest.approx(len(wanted), abs=2048)
    assert np.std(got) == pytest.approx(np.std(wanted), rel=0.2)


def test_lost_streams_warn(tmp_path: Path) -> None:
    thrice = ("-map", "0", "-map", "0", "-map", "0", "-c:v", "mpeg4", "-c:v:2", "png")
    cover = ("-frames:v:2", "1", "-disposition:v:2", "attached_pic")
    source = made(tmp_path / "a.mp4", "-i", "testsrc=s=64x48:r=25:d=0.4", *thrice, *cover)
    with pytest.warns(FFmpegWarning) as said:
        changed(source, tmp_path / "b.mp4")
    assert sum("video tracks (1 of 2)" in str(one.message) for one in said) == 1
    assert sum("attached picture" in str(one.message) for one in said) == 1
    with pytest.warns(FFmpegWarning) as said:
        mapped(source, tmp_path / "c.mp4")
    assert sum("attached picture" in str(one.message) for one in said) == 1


def test_lost_attachment_warns_and_chapters_and_time_code_do_not(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text(";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=400\ntitle=first\n")
    makes = {
        "attached.mkv": ("-attach", words, "-metadata:s:t", "mimetype=text/plain"),
        "chapters.mp4": ("-i", words, "-map_chapters", "1"),
        "timecode.mov": ("-timecode", "01:00:00:00"),
    }
    for name, arguments in makes.items():
        made(tmp_path / name, "-i", "testsrc=s=64x48:r=25:d=0.4", *arguments)
    assert [probe(tmp_path / name).undecodable for name in makes] == [("attachment",), (), ()]
    with pytest.warns(FFmpegWarning, match="attachment"):
        changed(tmp_path / "attached.mkv", tmp_path / "b.mkv")


def test_lost_undecodable_audio_warns(tmp_path: Path) -> None:
    sound = ("-f", "lavfi", "-i", "sine=d=0.4", "-c:a", "flac")
    source = made(tmp_path / "a.mkv", "-i", "testsrc=s=64x48:r=25:d=0.4", *sound)
    source.write_bytes(source.read_bytes().replace(b"A_FLAC", b"A_FLAX"))
    with pytest.warns(FFmpegWarning, match="audio stream"):
        changed(source, tmp_path / "b.mp4")


def test_like_keeps_the_rate_of_video_with_alpha(tmp_path: Path) -> None:
    picture = "color=red@0.5:s=64x48:r=25:d=0.4,format=yuva420p"
    source = made(tmp_path / "a.webm", "-i", picture, "-c:v", "libvpx-vp9")
    with (
        Decoder(source, pixel_format="yuva420p") as decoder,
        Encoder.like(decoder, tmp_path / "b.webm") as encoder,
    ):
        for frame in decoder:
            encoder.write(np.asarray(frame))  # which has no time
    assert probe(tmp_path / "b.webm").video[0].frame_rate == 25


@functools.cache
def soft_telecine() -> bytes:
    """Film in MPEG-2 as on a DVD: every second frame says that its first field is repeated."""
    film = ("-f", "lavfi", "-i", "testsrc=s=64x64:r=24000/1001", "-frames:v", "24", "-bf", "0")
    stream = bytearray(media.ffmpeg(*film, "-c:v", "mpeg2video", "-f", "mpeg2video", "pipe:1"))
    at = number = 0
    while (at := stream.find(b"\0\0\1", at) + 3) > 2:
        if stream[at] == 0xB3:  # sequence header: 30000/1001 frames a second
            stream[at + 4] = stream[at + 4] & 0xF0 | 4
        elif (
            stream[at] == 0xB5 and stream[at + 1] >> 4 == 1
        ):  # sequence extension: not only progressive frames
            stream[at + 2] &= ~8
        elif stream[at] == 0xB5 and stream[at + 1] >> 4 == 8:  # picture coding extension
            is_top_first, repeats = number % 4 in (0, 3), number % 2 == 0
            stream[at + 4] = stream[at + 4] & 0x7F | is_top_first << 7
            stream[at + 4] = stream[at + 4] & 0xFD | repeats << 1
            number += 1
    return bytes(stream)


@pytest.mark.parametrize("name", ["a.m2v", "a.mpg"])
def test_like_keeps_the_times_of_soft_telecine(tmp_path: Path, ffmpeg: str, name: str) -> None:
    source = tmp_path / "film.m2v"
    source.write_bytes(soft_telecine())
    if name != source.name:  # whose packets have few times
        source, film = tmp_path / name, source
        media.ffmpeg("-r", "30000/1001", "-i", film, "-c", "copy", source)
    with Decoder(source) as decoder:
        wanted = [frame.time_s for frame in decoder]
    steps_s = np.diff(wanted)
    assert steps_s.min() == pytest.approx(1001 / 30000, abs=1e-3) and steps_s.max() > 0.049
    changed(source, tmp_path / "b.mp4", settings=EncoderSettings(ffmpeg=ffmpeg))
    with Decoder(tmp_path / "b.mp4") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(wanted, abs=1e-3)
    with pytest.raises(DecoderError, match="like"):
        mapped(source, tmp_path / "c.mp4")


@pytest.mark.parametrize("name", ["my film.mov", "my film.mkv"])
@pytest.mark.filterwarnings("ignore")
def test_the_line_that_keeps_the_audio_of_a_part_keeps_it_in_sync(
    tmp_path: Path, ffmpeg: str, name: str
) -> None:
    """Its keyframes are far apart, and a copy would begin with the packets of the last one before the part.

    The frame on screen at the start began 0.3 s earlier, and is at 0 s in the new video.
    """
    source, noise = tmp_path / name, ("-f", "lavfi", "-i", "anoisesrc=r=48000:a=0.1:d=3")
    codecs = ("-g", "250", "-c:a", "pcm_s16le")
    made(source, "-i", "color=s=64x48:r=2:d=3", *noise, *codecs)
    with Decoder(source, start=1.3) as decoder, Encoder.like(decoder, tmp_path / "a.mkv") as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    assert encoder.report is not None
    [told] = [one for one in encoder.report.warnings if "audio" in one]
    line = told.partition("made with: ")[2].replace("ffmpeg", shell_word(ffmpeg), 1)
    subprocess.run(line, shell=True, check=True, cwd=tmp_path, capture_output=True)
    part, out = tmp_path / "part.mka", tmp_path / "b.mkv"
    with Decoder(source, start=1.3) as decoder, Encoder.like(decoder, out, audio=part) as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    assert encoder.report.warnings == ()
    with AudioDecoder(source, start=1, duration=1) as original, AudioDecoder(out) as kept:
        wanted, got = original.read_all(), kept.read_all()
    shifts = [
        at for at in range(-99, 99) if np.allclose(wanted[200 + at : 5000 + at], got[200:5000], atol=1e-4)
    ]
    assert shifts and abs(shifts[0]) <= (0 if name.endswith("mov") else 48)
