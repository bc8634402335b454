"""No video is wrong in silence: what is read back is what was written, or a warning or an error says what is not."""

from __future__ import annotations

import re
import tempfile
import warnings
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.cases import UNREHEARSED, a_few, eventually, examples, ffmpegs, needs
from support.media import ffmpeg
from support.processes import run_script

from penstock import Decoder, Encoder, EncoderError, FFmpegWarning
from penstock._ffmpeg.command.pixel_formats import FrameLayout, frame_layout
from penstock._ffmpeg.command.settings import with_overrides
from penstock._ffmpeg.program import capabilities
from penstock._formats.pixel_formats import is_gray
from penstock.errors import DecoderError
from penstock.video import AudioTrack, Colors, EncoderSettings, find_ffmpeg

# BT.709 by default. Most codecs take no less than 32 columns.
SIZE = (32, 720)
COLORS = ((200, 0, 0), (0, 200, 0), (20, 30, 220), (128, 128, 128), (250, 240, 30), (0, 0, 0))
# The mean of a plain area, after lossy codecs. A wrong matrix is 35 off with these colors, a wrong range 15.
TOLERANCE = 12
CONTAINERS = ("mp4", "mov", "mkv", "webm", "avi", "ts", "mxf", "nut", "gif")
OFTEN_USED = (
    ("mp4", "libx264"),
    ("avi", "mpeg4"),
    ("webm", "libvpx"),
    ("mov", "prores_ks"),
    ("avi", "rawvideo"),
)
# Repeats of a frame are no frames of their own, and are not delivered. By default, VC-2 has too few bits for so narrow
# a picture. Matroska stores no palette for SMC. In some builds of FFmpeg: libvvenc's pictures of that size are decoded
# otherwise at each time, and libkvazaar reorders so many frames that NUT begins 0.2 s late.
OTHERWISE = ("libtheora", "smc", "vc2", "libvvenc", "libkvazaar")


def written(
    output: Path, *, fps: int | None = 25, **options: Any
) -> tuple[str, list[np.ndarray], list[float]] | None:
    """What was warned of, the frames that are read back, and their times; None if it was refused."""
    frames = [np.full((SIZE[1], SIZE[0], 3), color, np.uint8) for color in COLORS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            encoder = Encoder(output, size=SIZE, fps=fps, **options)
        except (ValueError, EncoderError):
            return None
        try:
            for number, frame in enumerate(frames):
                encoder.write(frame, time_s=None if fps else 2 + Fraction(number, 10))
            encoder.close()
        except EncoderError:
            return None
        said = " ".join(str(one.message) for one in caught if one.category is FFmpegWarning)
        try:
            with Decoder(output) as decoder:
                got = list(decoder)
        except DecoderError as error:
            return f"{said} unreadable {error}", [], []
    means = [np.asarray(frame, float).mean(axis=(0, 1)) for frame in got]
    return said, means, [frame.time_s or 0.0 for frame in got]


def check(output: Path, **options: Any) -> str:
    """What is wrong with the video, and nobody says so; nothing if all is well."""
    outcome = written(output, **options)
    if outcome is None:
        return ""
    said, means, times_s = outcome
    if len(means) != len(COLORS):
        return "" if "unreadable" in said else f"{len(means)} frames"
    off = max(float(np.abs(mean - color).max()) for mean, color in zip(means, COLORS, strict=True))
    if off > TOLERANCE and not said:
        return f"{off:.0f} off"
    fps = options.get("fps", 25)
    wanted_s = [number / fps if fps else 2 + number / 10 for number in range(len(COLORS))]
    late_s = max(abs(a - b) for a, b in zip(times_s, wanted_s, strict=True))
    return f"{late_s:.3f} s late" if late_s > 0.1 and not said else ""


@pytest.mark.parametrize(
    ("suffix", "codec", "given"),
    a_few(
        (
            (*pair, given)
            for pair in OFTEN_USED
            for given in ({}, {"fps": None}, {"colors": Colors(range="full")})
        ),
        2,
    ),
)
def test_written_video_reads_back_unchanged(
    tmp_path: Path, suffix: str, codec: str, given: dict[str, Any]
) -> None:
    assert check(tmp_path / f"video.{suffix}", codec=codec, **given) == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", CONTAINERS)
def test_every_codec_reads_back_or_warns_in_every_container(tmp_path: Path, suffix: str) -> None:
    wrong = {}
    for codec in sorted({*capabilities.encoders(find_ffmpeg())} - {"libxavs2"}):  # it hangs
        found = check(tmp_path / f"{codec}.{suffix}", codec=codec)
        if found and codec not in OTHERWISE:
            wrong[codec] = found
    assert wrong == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "suffix, codec",
    [("mkv", "ffv1"), ("mp4", "libx264"), ("mov", "prores_ks"), ("webm", "libvpx-vp9")]
    + [(suffix, "rawvideo") for suffix in ("avi", "mkv", "mov", "nut")],
)
def test_every_pixel_format_reads_back_or_warns(tmp_path: Path, suffix: str, codec: str) -> None:
    program = find_ffmpeg()
    names = capabilities.encoder_pixel_formats(program, codec) or capabilities.pixel_formats(program)
    wrong = {}
    for name in names:
        if is_gray(name) or name.startswith("mono"):
            continue  # asked for: it has no colors
        if re.fullmatch("(rgb|bgr)5[56]5be", name):
            continue  # libav's scaler (libswscale 9) reads them wrongly: see docs/containers.md
        if found := check(tmp_path / f"{name}.{suffix}", codec=codec, output_pixel_format=name):
            wrong[name] = found
    assert wrong == {}


CONTAINERS_OF_CODECS = {"libx264": "mp4", "ffv1": "mkv", "prores_ks": "mov", "libvpx-vp9": "webm"}
ASKED = {
    "codec": st.sampled_from([*CONTAINERS_OF_CODECS]),
    "size": st.tuples(st.integers(8, 40), st.integers(8, 40)),
    "pixel_format": st.sampled_from(["rgb24", "bgr24", "rgb0", "rgb48", "gray"]),
    "settings": st.sampled_from(
        [with_overrides(EncoderSettings(), convert=name) for name in ("auto", "ffmpeg")]
    ),
    "colors": st.builds(
        Colors,
        st.sampled_from(["auto", "bt601", "bt709", "bt2020"]),
        st.sampled_from(["auto", "limited", "full"]),
    ),
    "fps": st.sampled_from([None, 24, Fraction(30000, 1001), 1000]),
    "vflip": st.booleans(),
}


@examples(25)
@given(
    asked=st.fixed_dictionaries(ASKED),
    plain=st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=6),
)
def test_arbitrary_settings_read_back_or_warn(
    asked: dict[str, Any], plain: list[tuple[int, int, int]]
) -> None:
    layout = frame_layout(asked["pixel_format"], *asked["size"])
    quality = {"libx264": {"options": {"qp": 4}}, "libvpx-vp9": {"crf": 4}}.get(asked["codec"], {})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = Path(folder, f"a.{CONTAINERS_OF_CODECS[asked['codec']]}")
        try:
            encoder = Encoder(output, odd_size="pad", **asked, **quality)
        except ValueError:
            assume(False)
        for number, color in enumerate(plain):
            encoder.write(painted(color, layout), time_s=None if asked["fps"] else Fraction(number, 7))
        encoder.close()
        if any(one.category is FFmpegWarning for one in caught):
            return
        with Decoder(output) as decoder:
            got = [np.asarray(frame, int) for frame in decoder]
    wanted = [(sum(color) // 3,) * 3 if layout.pixel_format == "gray" else color for color in plain]
    for frame, color in zip(got, wanted, strict=True):
        assert np.abs(frame.mean(axis=(0, 1)) - color).max() <= TOLERANCE


def painted(color: tuple[int, int, int], layout: FrameLayout) -> np.ndarray:
    """A frame of a plain color."""
    if layout.pixel_format == "gray":
        return np.full(layout.shape, sum(color) // 3, layout.dtype)
    ordered = color[::-1] if layout.pixel_format.startswith("bgr") else color
    samples = (*ordered, 0)[: layout.shape[2]]
    scale = np.iinfo(layout.dtype).max // 255
    return np.broadcast_to(
        np.array(samples, layout.dtype) * np.array(scale, layout.dtype), layout.shape
    ).copy()


def test_audio_that_cuts_the_picture_short_is_reported(tmp_path: Path) -> None:
    encoder = Encoder(
        tmp_path / "video.mxf",
        size=(64, 48),
        fps=25,
        codec="mpeg2video",
        audio=AudioTrack(48_000, 1, "int16"),
    )
    for _ in range(75):
        encoder.write(bytes(64 * 48 * 3))
    encoder.write_audio(np.zeros(48_000, np.int16))
    with pytest.warns(FFmpegWarning):
        report = encoder.close()
    assert "3.000 s" in report.warnings[0]


def test_frame_rates_that_a_container_cannot_hold_are_refused_or_warn(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Encoder(tmp_path / "video.mkv", size=SIZE, fps=1001)
    with pytest.raises(ValueError):
        Encoder(tmp_path / "video.gif", size=SIZE, fps=101)
    for fps in (60, 100):
        with pytest.warns(FFmpegWarning, match="slow"):
            Encoder(tmp_path / "video.gif", size=SIZE, fps=fps).abort()


def encoded(output: Path, frames: int = 10, **options: Any) -> list[str]:
    """Writes frames that differ. Gives what was warned of, without FFmpeg's own remarks."""
    with Encoder(output, **({"size": (64, 48), "fps": 25} | options)) as encoder:
        for index in range(frames):
            encoder.write(np.full((48, 64, 3), 20 * index % 256, np.uint8))
    assert encoder.report is not None
    return [one for one in encoder.report.warnings if not one.startswith("[")]


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_video_that_readers_cannot_find_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        encoded(tmp_path / "v.mkv", codec="qtrle")
    told = encoded(tmp_path / "v.mkv", codec="qtrle", settings=UNREHEARSED)
    assert [one for one in told if "no qtrle video" in one]


@pytest.mark.linux("files that are open are moved, replaced and removed")
@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_replaced_file_is_reported(tmp_path: Path) -> None:
    output = tmp_path / "video.mp4"
    encoder = Encoder(output, size=(64, 48), fps=25)
    encoder.write(np.zeros((48, 64, 3), np.uint8))
    assert eventually(output.exists)
    output.rename(tmp_path / "moved.mp4")
    output.write_bytes(b"of another program")
    assert "libav can't read it" in " ".join(encoder.close().warnings)


@pytest.mark.linux("a shell script stands in for a program")
@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_file_that_changes_after_ffmpeg_reported_its_end_is_read_again(tmp_path: Path) -> None:
    output, program, other = tmp_path / "video.mp4", tmp_path / "ffmpeg", tmp_path / "other.mp4"
    encoded(other, frames=4)
    program.write_text(
        f'#!/bin/sh\n{find_ffmpeg()} "$@" || exit\n'
        f"case \"$*\" in *{output.name}*) sleep 0.3; cp '{other}' '{output}';; esac\n"
    )
    program.chmod(0o755)
    told = encoded(output, settings=EncoderSettings(ffmpeg=program))
    assert "the file says that it has 4 frames, but 10 were written" in told


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_frames_dropped_by_a_bitstream_filter_are_reported(tmp_path: Path) -> None:
    program = ffmpegs()[0]
    settings = with_overrides(EncoderSettings(ffmpeg=program), rehearse=False)
    given = {"settings": settings, "options": {"bsf:v": r"noise=drop=not(mod(n\,3))"}}
    if capabilities.version(program).startswith("5."):
        told = encoded(tmp_path / "v.mp4", **given)
        assert "the file says that it has 6 frames, but 10 were written" in told
    else:  # FFmpeg 7.1 and 9 count those that are left
        with pytest.raises(EncoderError):
            encoded(tmp_path / "v.mp4", **given)


@pytest.mark.parametrize("codec", ["v308", "v410"])
def test_packed_raw_video_does_not_warn(tmp_path: Path, codec: str) -> None:
    needs(find_ffmpeg(), codec)
    given = {"output_pixel_format": "yuv444p10le"} if codec == "v410" else {}
    assert encoded(tmp_path / "v.mkv", codec=codec, **given) == []


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_filter_that_may_change_colors_warns(tmp_path: Path) -> None:
    recoloring = {"vf": "scale=out_color_matrix=bt709"}
    assert "'out_color_matrix'" in encoded(tmp_path / "a.mp4", options=recoloring)[0]
    asked = {"colors": Colors("bt709", "limited"), "options": recoloring}
    assert encoded(tmp_path / "b.mp4", **asked) == encoded(tmp_path / "c.mp4", options={"vf": "hflip"}) == []


def test_alpha_of_0_bits_warns(tmp_path: Path) -> None:
    prores = {"codec": "prores_ks", "options": {"profile": "4444", "alpha_bits": 0}}
    with pytest.warns(FFmpegWarning):
        Encoder(tmp_path / "v.mov", size=SIZE, fps=25, pixel_format="rgba", **prores).abort()


@pytest.mark.parametrize(
    ("times_s", "suffix"),
    a_few(product(([5], [5, 5.04], [3600, 3601, 3602]), ("mkv", "nut", "mp4", "webm")), 3),
)
def test_few_frames_that_begin_late_keep_their_times(
    tmp_path: Path, suffix: str, times_s: list[float]
) -> None:
    """Of frames that an encoder may have reordered, libav does not tell the first time where there are few."""
    with Encoder(tmp_path / f"v.{suffix}", size=(64, 48), fps=None) as encoder:
        for time_s in times_s:
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=time_s)
    assert encoder.report is not None and encoder.report.warnings == ()
    with Decoder(tmp_path / f"v.{suffix}") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx(times_s, abs=0.001)


@pytest.mark.parametrize(
    ("suffix", "fps"), a_few(product(("mp4", "mkv"), (121.5, Fraction(123457, 1000), 130)), 2)
)
def test_short_video_keeps_its_frame_rate(tmp_path: Path, fps: float, suffix: str) -> None:
    output = tmp_path / f"v.{suffix}"
    encoded(output, fps=fps)
    with Decoder(output) as decoder:
        times_s = [frame.time_s for frame in decoder]
    assert times_s == pytest.approx([index / fps for index in range(10)], abs=0.0011)


@pytest.mark.parametrize(
    "width, height, output", [(33, 26, "nv12"), (33, 27, "yuv422p"), (33, 27, "yuv420p10le")]
)
def test_last_column_of_odd_subsampled_frames_is_padded_right(
    tmp_path: Path, width: int, height: int, output: str
) -> None:
    frame = np.full(width * height + 2 * 17 * -(-height // 2), 128, np.uint8)
    frame[: width * height] = 180
    with Encoder(
        tmp_path / "v.mkv",
        size=(width, height),
        fps=25,
        crf=1,
        pixel_format="yuv420p",
        odd_size="pad",
        output_pixel_format=output,
    ) as encoder:
        encoder.write(frame)
    with Decoder(tmp_path / "v.mkv", pixel_format="gray") as decoder:
        rows = height if output == "yuv422p" else (height + 1) // 2 * 2
        assert decoder.size == (34, rows)
        assert np.ptp(next(decoder)) <= 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(
            (name, {})
            for name in ("v.mpg", "v.vob", "v.mxf", "v.h265", "v.obu", "%d.bmp", "%d.tiff", "%d.webp")
        ),
        *(("v.ogv", {}), ("v.y4m", {}), ("v.mkv", {"options": {"f": "ogg"}})),
        ("v.ogv", {"codec": "libtheora", "options": {"q:v": 8}}),
    ],
)
def test_times_that_would_be_lost_are_refused(tmp_path: Path, name: str, given: dict[str, Any]) -> None:
    with pytest.raises((ValueError, EncoderError)):
        Encoder(tmp_path / name, size=(96, 64), fps=None, **given)


def test_asf_keeps_frame_times(tmp_path: Path) -> None:
    """The codec reorders no frames: FFmpeg writes the times of decoding only."""
    times_s = [0, 0.5, 0.6, 2, 2.1, 3.3]
    with Encoder(tmp_path / "v.wmv", size=SIZE, fps=None) as encoder:
        for number, time_s in enumerate(times_s):
            encoder.write(np.full((SIZE[1], SIZE[0], 3), 40 * number, np.uint8), time_s=time_s)
    assert [frame.time_s for frame in Decoder(tmp_path / "v.wmv")] == pytest.approx(times_s)


@pytest.mark.parametrize("ending", ["avi", "mxf", "wmv", "nut"])
def test_containers_without_presentation_times_get_no_reordered_frames(tmp_path: Path, ending: str) -> None:
    with Encoder(tmp_path / f"v.{ending}", size=SIZE, fps=25) as encoder:
        for number in range(12):
            encoder.write(np.full((*SIZE[::-1], 3), 20 * number, np.uint8))
    with Decoder(tmp_path / f"v.{ending}") as decoder:
        assert [frame.time_s for frame in decoder] == pytest.approx([number / 25 for number in range(12)])


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
@pytest.mark.parametrize("frames, is_kept", [(1, False), (3, True)])
def test_old_image_stays_until_the_new_image_is_whole(tmp_path: Path, frames: int, is_kept: bool) -> None:
    output = tmp_path / "one.png"
    output.write_bytes(b"what was there")
    try:
        encoded(output, frames, codec="png")
    except ValueError:
        assert is_kept
    assert (output.read_bytes() == b"what was there") == is_kept
    assert set(tmp_path.iterdir()) - {tmp_path / "one.part.png"} == {output}


def test_video_is_written_without_pyav_and_warns(tmp_path: Path) -> None:
    code = f"""
        sys.modules["av"] = None
        encoder = penstock.Encoder({str(tmp_path / "v.mp4")!r}, size=(64, 48), fps=25)
        encoder.write(bytes(64 * 48 * 3))
        print(*encoder.close().warnings)
    """
    done = run_script(code)
    assert done.returncode == 0
    assert b"PyAV can't be imported" in done.stdout
    with Decoder(tmp_path / "v.mp4") as decoder:
        assert len(list(decoder)) == 1


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
@pytest.mark.parametrize("name, is_told", [("v.mov", True), ("v.mkv", False)])
def test_pause_of_copied_audio_that_the_container_drops_warns(
    tmp_path: Path, name: str, is_told: bool
) -> None:
    pause = "sine=duration=2,aselect=not(between(t\\,0.2\\,0.5))"
    ffmpeg("-f", "lavfi", "-i", pause, "-c:a", "pcm_s16le", tmp_path / "sound.mka")
    told = encoded(tmp_path / name, 50, audio=tmp_path / "sound.mka")
    assert [one for one in told if "its audio ends 0.3" in one] == told[:1] * is_told
    assert bool(told) == is_told
