"""The `Decoder` against FFmpeg itself: which frames, which pixels, when."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import mmap
import pickle
import re
import signal
import subprocess
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from support.cases import a_few, ffmpegs
from support.clips import VIDEOS, WITH_AUDIO, clip
from support.engines import engine as engine
from support.media import children, ffmpeg
from support.this_process import rss_bytes

from penstock import AudioDecoder, ClosedError, Decoder, DecoderError, Encoder, FFmpegWarning
from penstock._decoding.pixels import Pixels
from penstock._decoding.session import DecodeSession
from penstock._ffmpeg.command.settings import with_overrides
from penstock.video import Colors, DecoderSettings, find_ffmpeg

pytestmark = pytest.mark.filterwarnings(
    "error::penstock.FFmpegWarning", "ignore:.*bt2020_10bit.mp4. the video is HDR:penstock.FFmpegWarning"
)

# FFmpeg's conversion with all its care: chroma from the nearest sample, and no fraction dropped.
EXACT = ("-sws_flags", "neighbor+accurate_rnd+full_chroma_int")
NATIVE = ("h264", "h264_large", "mjpeg_420", "mjpeg_422", "ffv1_yuv422p", "ffv1_yuv444p", "ffv1_yuv444p_odd")
TAGGED = ("untagged", "bt709", "bt709_full", "bt601", "bt601_full", "bt601_625", "bt2020", "bt2020_full")
DEEP = (
    "h264_10bit",
    "h264_422_10bit",
    "h265_10bit",
    "vp9_10bit",
    "prores",
    "ffv1_yuv422p10le",
    "bt2020_10bit",
)

TIMED = (
    *("h264", "h264_mkv", "h264_ts", "h264_large", "h265", "vp9", "gif", "rawvideo", "one_frame"),
    *("variable_mp4", "variable_mkv", "rotated_90", "interlaced", "starts_late_ts", "starts_late_mkv"),
    *("audio_aac", "audio_flac_51", "several_videos", "video_and_cover", "mirrored"),
)


def raw(path: Path, decoder: Decoder, *options: str) -> np.ndarray:
    """All frames as FFmpeg's own ``rawvideo`` has them, each of the file once."""
    arguments = (*("-map", f"0:{decoder.stream.index}"), *("-fps_mode", "passthrough"), *options)
    made = ffmpeg(
        "-i", f"file:{path}", *arguments, "-pix_fmt", decoder.pixel_format, "-f", "rawvideo", "pipe:1"
    )
    return np.frombuffer(made, decoder.dtype).reshape(-1, *decoder.shape)


FFMPEG_ERROR = 3
"""FFmpeg 5.1 truncates three products of green where chroma is subsampled: it is up to 2.98 below the exact value."""


def furthest(frames: list[np.ndarray], others: np.ndarray) -> int:
    """The largest difference of a sample; the frames are as many."""
    pairs = zip(frames, others, strict=True)
    return max(int(np.abs(frame.astype(np.int64) - other).max()) for frame, other in pairs)


@pytest.mark.parametrize("name", a_few(sorted(VIDEOS)))
def test_frames_in_the_files_own_format_are_bit_exact(name: str) -> None:
    path = clip(name)
    with Decoder(path, pixel_format="source") as decoder:
        frames = list(decoder)
        assert decoder.converted_by is None
        assert len(frames) == VIDEOS[name].frames
        assert np.array_equal(np.stack(frames), raw(path, decoder))


@pytest.mark.parametrize("name", a_few(sorted(VIDEOS)))
def test_rgb_matches_ffmpeg(name: str) -> None:
    path = clip(name)
    with Decoder(path, pixel_format="rgb24") as decoder:
        frames = list(decoder)
        assert decoder.shape == (decoder.stream.height, decoder.stream.width, 3)
        assert all(frame.shape == decoder.shape and frame.dtype == np.uint8 for frame in frames)
        # FFmpeg's scaler smooths the chroma of more than 8 bits over edges, if it is not told to be exact.
        is_deep = (decoder.stream.bit_depth or 8) > 8 and decoder.converted_by == "penstock"
        assert furthest(frames, raw(path, decoder, *(EXACT if is_deep else ()))) <= FFMPEG_ERROR


@pytest.mark.parametrize(
    ("name", "pixel_format"),
    [
        *a_few((name, "rgb24") for name in (*NATIVE, *TAGGED)),
        *(("bt709", to) for to in ("bgr24", "rgba", "bgra", "gray")),
    ],
)
def test_native_conversion_matches_an_exact_ffmpeg(name: str, pixel_format: str) -> None:
    path = clip(name)
    with Decoder(
        path, pixel_format=pixel_format, settings=with_overrides(DecoderSettings(), convert="native")
    ) as decoder:
        assert decoder.converted_by == "penstock"
        # Gray is the luma, which FFmpeg 9 takes from RGB by BT.601.
        luma = ("-vf", "scale=in_color_matrix=bt601") if pixel_format == "gray" else ()
        assert furthest(list(decoder), raw(path, decoder, *luma, *EXACT)) <= 1


@pytest.mark.parametrize("color_range", ["limited", "full"])
@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020"])
@pytest.mark.parametrize("chroma", ["420", "422"])
def test_noise_matches_ffmpeg(chroma: str, matrix: str, color_range: str, tmp_path: Path) -> None:
    """All code values, allowed or not, beside all others."""
    path, noise = tmp_path / "noise.y4m", np.random.default_rng(1)
    frame_bytes = 322 * 182 * 3 // 2 if chroma == "420" else 322 * 182 * 2
    header = f"YUV4MPEG2 W322 H182 F25:1 Ip A1:1 C{chroma}\n".encode()
    path.write_bytes(header + b"".join(b"FRAME\n" + noise.bytes(frame_bytes) for _ in range(3)))
    with Decoder(path, color_matrix=matrix, color_range=color_range) as decoder:
        assert decoder.converted_by == "penstock"
        told = f"scale=in_color_matrix={matrix}:in_range={'tv' if color_range == 'limited' else 'pc'},format=rgb24"
        assert furthest(list(decoder), raw(path, decoder, "-vf", told)) <= FFMPEG_ERROR


@pytest.mark.parametrize("name", DEEP)
def test_native_conversion_of_10_bits_matches_an_exact_ffmpeg(name: str) -> None:
    path = clip(name)
    with Decoder(path, settings=with_overrides(DecoderSettings(), convert="native")) as decoder:
        assert furthest(list(decoder), raw(path, decoder, *EXACT)) <= 1
    with Decoder(
        path, pixel_format="rgb48le", settings=with_overrides(DecoderSettings(), convert="native")
    ) as decoder:
        assert decoder.dtype == "<u2"
        # FFmpeg's own arithmetic has no more than a unit of 8 bits here.
        assert furthest(list(decoder), raw(path, decoder, *EXACT)) <= 257


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("color_range", ["limited", "full"])
@pytest.mark.parametrize(
    "stored", a_few(["yuvj420p", "yuv420p", "yuv422p10le", "yuv422p", "yuv420p10le", "yuv444p10le"], 2)
)
def test_rgb_of_16_bits_is_as_bright_as_the_video(
    tmp_path: Path, program: str, stored: str, color_range: Any
) -> None:
    """White is white: FFmpeg's own RGB of 16 bits has 65283."""
    path = tmp_path / "ramp.mkv"
    levels = np.linspace(0, 65535, 64).round().astype(np.uint16)
    frame = np.broadcast_to(levels[None, :, None], (48, 64, 3))
    colors = Colors(matrix="bt709", range="full" if stored == "yuvj420p" else color_range)
    with Encoder(
        path, fps=5, pixel_format="rgb48le", codec="ffv1", output_pixel_format=stored, colors=colors
    ) as encoder:
        for _ in range(3):
            encoder.write(frame)
    with Decoder(path, pixel_format="rgb48le", settings=DecoderSettings(ffmpeg=program)) as decoder:
        frames = np.array(list(decoder))
        assert decoder.converted_by == "penstock"
        assert np.array_equal(decoder[:], frames)
    codes = (219 if colors.range == "limited" else 255) * (4 if "10" in stored else 1)
    assert np.abs(frames.astype(int) - frame).max() <= 65535 / codes / 2 + 2
    assert (frames[:, :, 0].max(), frames[:, :, -1].min()) == (0, 65535)


@pytest.mark.parametrize("program", ffmpegs())
def test_a_scaled_picture_has_the_colors_of_the_file(tmp_path: Path, program: str) -> None:
    chart = tmp_path / "chart.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=640x360:d=0.1", "-pix_fmt", "yuv420p", "-c:v", "ffv1", chart)
    settings = DecoderSettings(ffmpeg=program)
    with Decoder(chart, settings=settings) as decoder:
        mean = next(decoder).reshape(180, 2, 320, 2, 3).mean(axis=(1, 3))
    with Decoder(chart, size=(320, 180), settings=settings) as decoder:
        scaled = next(decoder)
        assert decoder.converted_by == "penstock"
        assert np.array_equal(decoder[0], scaled)
    # In dB of the peak: 4:2:0 of this size is far below.
    assert 10 * np.log10(255**2 / ((scaled - mean) ** 2).mean()) > 40


@pytest.mark.parametrize("name", ["h264_10bit", "h264_422_10bit", "vp9_10bit"])
def test_rgb_of_16_bits_has_smooth_chroma(name: str) -> None:
    def distance(convert: Any) -> float:
        with Decoder(
            clip(name), pixel_format="rgb48le", settings=with_overrides(DecoderSettings(), convert=convert)
        ) as decoder:
            frames = np.array(list(decoder), float)
            flags = ("-sws_flags", "bicubic+accurate_rnd+full_chroma_int")
            smooth = raw(clip(name), decoder, *flags).astype(float)
        return float(np.abs(frames - np.minimum(smooth * 257 / 256, 65535)).mean())

    assert distance("auto") < distance("native") / 2


@pytest.mark.parametrize(
    ("name", "pixel_format"),
    [
        ("h264", "rgb24"),
        ("h264_10bit", "rgb48le"),
        ("h264_rgb", "rgb24"),
        ("h264_rgb", "gbrp"),
        ("ffv1_gray16le", "gray16le"),
        ("smpte240m", "rgb24"),
        ("ffv1_yuva420p", "nv12"),
    ],
)
def test_ffmpeg_conversion_matches_ffmpeg_exactly(name: str, pixel_format: str) -> None:
    path = clip(name)
    with Decoder(
        path, pixel_format=pixel_format, settings=with_overrides(DecoderSettings(), convert="ffmpeg")
    ) as decoder:
        frames = list(decoder)
        assert np.array_equal(np.stack(frames), raw(path, decoder))


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize(
    ("name", "pixel_format"),
    [
        ("h264", "grayf32le"),
        ("h264_rgb", "grayf32le"),
        ("ffv1_gray16le", "grayf32le"),
        ("ffv1_gray", "gbrpf32le"),
    ],
)
def test_floats_are_as_bright_as_integers(program: str, name: str, pixel_format: str) -> None:
    path, settings = clip(name), DecoderSettings(ffmpeg=program)
    integers = {"grayf32le": "gray16le", "gbrpf32le": "gbrp16le"}[pixel_format]
    with Decoder(path, pixel_format=integers, settings=settings) as decoder:
        expected = np.stack(list(decoder)) / 65535
    with Decoder(path, pixel_format=pixel_format, settings=settings) as decoder:
        for frames in (list(decoder), decoder[:]):
            assert np.abs(np.stack(frames) - expected).max() < 0.005


@pytest.mark.parametrize("program", ffmpegs())
def test_container_crop_is_ignored(tmp_path: Path, program: str) -> None:
    """As by number, and as FFmpeg before 7.1 has it; later ones crop it, and scaled what was left."""
    path = tmp_path / "crop.mkv"
    video = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.2", "-vf", "setsar=4/3", "-c:v", "ffv1")
    ffmpeg(*video, path)
    # PixelCropTop and PixelCropLeft take the places of DisplayWidth and DisplayHeight.
    whole = path.read_bytes().replace(
        b"\x54\xb0\x81\x10\x54\xba\x81\x09", b"\x54\xbb\x81\x08\x54\xcc\x81\x08", 1
    )
    assert b"\x54\xbb\x81\x08" in whole
    path.write_bytes(whole)
    with Decoder(path, settings=DecoderSettings(ffmpeg=program)) as decoder:
        assert all(np.array_equal(frame, decoder[frame.index]) for frame in decoder)


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv444p", "nv12"])
def test_full_range_yuv_is_not_passed_off_as_limited(tmp_path: Path, program: str, pixel_format: str) -> None:
    """FFmpeg 9 by itself would convert the format alone."""
    path, deep = clip("mjpeg_420"), tmp_path / "deep.mkv"
    filters = ("-vf", "scale=out_range=full,format=yuv420p10le", "-color_range", "pc")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.2", *filters, "-c:v", "libx264", deep)
    for full in (path, deep):
        with Decoder(full, pixel_format=pixel_format, settings=DecoderSettings(ffmpeg=program)) as decoder:
            assert decoder.converted_by == "ffmpeg" and decoder.stream.color_range == "full"
            frames = list(decoder)
        limited = raw(full, decoder, "-vf", "scale=out_range=limited")
        assert furthest(frames, limited) <= 2
        assert all(frame.reshape(-1)[: 64 * 48].min() >= 14 for frame in frames)
    with pytest.raises(ValueError):
        Decoder(path, pixel_format="yuv420p", settings=with_overrides(DecoderSettings(), convert="native"))


@pytest.mark.parametrize(
    ("pixel_format", "dtype", "shape"),
    [
        ("rgb24", "uint8", (48, 64, 3)),
        ("rgba", "uint8", (48, 64, 4)),
        ("rgb48", "uint16", (48, 64, 3)),
        ("gray16le", "uint16", (48, 64)),
        ("grayf32le", "float32", (48, 64)),
        ("gbrpf32le", "float32", (3 * 48 * 64,)),
        ("rgb565le", "uint8", (2 * 48 * 64,)),
        ("yuv420p", "uint8", (48 * 64 * 3 // 2,)),
        ("p010le", "uint16", (48 * 64 * 3 // 2,)),
    ],
)
def test_arrays_have_the_pixel_formats_type_and_shape(
    pixel_format: str, dtype: str, shape: tuple[int, ...]
) -> None:
    with Decoder(clip("h264"), pixel_format=pixel_format, count=1) as decoder:
        (frame,) = decoder
    assert (frame.dtype, frame.shape) == (np.dtype(dtype), shape)
    assert (np.dtype(decoder.dtype), decoder.shape) == (np.dtype(dtype), shape)


def test_the_planes_of_a_planar_frame_have_their_shapes() -> None:
    with Decoder(clip("h264"), pixel_format="yuv420p", count=1) as decoder:
        (frame,) = decoder
    luma, u, v = frame.planes
    assert (luma.shape, u.shape, v.shape) == ((48, 64), (24, 32), (24, 32))
    assert np.array_equal(np.concatenate([luma.ravel(), u.ravel(), v.ravel()]), frame)
    with pytest.raises(ValueError):
        _ = frame[:100].planes


@pytest.mark.parametrize("name", a_few(TIMED))
def test_each_frame_has_its_timestamp(name: str, engine: str) -> None:
    path = clip(name)
    with Decoder(path) as decoder:
        told = [(frame.index, frame.pts, frame.time_s) for frame in decoder]
        info, zero_s = decoder.stream, decoder.file.zero_s
    # Not by ffprobe, which not every FFmpeg comes with.
    shown = ("-map", f"0:{info.index}", "-vf", "showinfo", "-fps_mode", "passthrough", "-f", "null", "-")
    command = [find_ffmpeg(), "-nostdin", "-copyts", "-i", f"file:{path}", *shown]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stderr
    expected = [int(pts) for pts in re.findall(r"n: *\d+ pts: *(-?\d+)", said)]
    assert [pts for _, pts, _ in told] == expected
    assert [index for index, _, _ in told] == list(range(len(told)))
    assert [time for _, _, time in told] == pytest.approx([pts * info.time_base - zero_s for pts in expected])


@pytest.mark.parametrize(("name", "first_s"), [("starts_late_mkv", 5.0), ("starts_late_ts", 0.0)])
def test_a_file_that_starts_late_begins_where_its_container_says(
    name: str, first_s: float, engine: str
) -> None:
    with Decoder(clip(name), start=first_s + 0.2) as decoder:
        assert decoder.file.start_s == pytest.approx(first_s or decoder.file.zero_s)
        assert decoder[0].time_s == next(decoder).time_s == pytest.approx(first_s + 0.22, abs=0.021)
    with Decoder(clip(name)) as decoder:
        assert next(decoder).time_s == decoder.frame_at(first_s / 2).time_s == first_s
        assert decoder.frame_at(first_s + 0.2).time_s == pytest.approx(first_s + 0.2, abs=0.04)


def test_a_part_of_a_frame_has_its_time_and_a_result_of_arithmetic_has_none() -> None:
    with Decoder(clip("h264"), start=0.4) as decoder:
        frame = next(decoder)
    part = frame[:10, ::2]
    assert (part.index, part.pts, part.time_s) == (0, frame.pts, frame.time_s)
    results = [255 - frame, ~frame, np.clip(frame, 10, 20), frame.mean(axis=2), np.where(frame > 9, frame, 0)]
    assert [type(result) for result in results] == [np.ndarray] * len(results)
    changed = frame
    changed //= 2
    assert changed is frame


def test_numbers_made_of_a_frame_are_plain() -> None:
    with Decoder(clip("h264"), count=1) as decoder:
        (frame,) = decoder
    plain = np.array(frame)
    for function in (np.mean, np.max, np.min, np.sum, np.std, np.var, np.median, np.ptp, np.any, np.argmax):
        number = function(frame)
        assert isinstance(number, np.generic) and number == function(plain), function
    for number in (
        frame.mean(),
        frame.max(),
        np.linalg.norm(frame.astype(float)),
        frame.ravel() @ frame.ravel(),
    ):
        assert isinstance(number, np.generic)
    assert type(frame.mean()) is np.float64
    assert round(frame.mean(), 2) == round(float(plain.mean()), 2)
    assert json.loads(json.dumps({"max": frame.max().item()})) == {"max": plain.max()}
    assert {frame.min(): "darkest"}[plain.min()] == "darkest"
    rows = frame.mean(axis=(1, 2))
    assert type(rows) is np.ndarray and rows.shape == (48,)
    total = np.zeros(())
    assert np.add.reduce(frame, axis=None, out=total) == total == plain.sum()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_frame_keeps_its_place(protocol: int) -> None:
    with Decoder(clip("h264"), pixel_format="yuv420p", start=0.4) as decoder:
        next(decoder)
        frame = next(decoder)
    for other in (frame, frame[10:], frame[::-2]):
        again = pickle.loads(pickle.dumps(other, protocol))
        assert type(again) is type(frame) and np.array_equal(again, other)
        assert (again.index, again.pts, again.time_s) == (1, frame.pts, frame.time_s)
        again[:] = 0
    whole = pickle.loads(pickle.dumps(frame, protocol))
    assert all(np.array_equal(*pair) for pair in zip(whole.planes, frame.planes, strict=True))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, np.ndarray.copy])
def test_a_copied_frame_keeps_its_place(copied: Callable[[np.ndarray], np.ndarray]) -> None:
    with Decoder(clip("h264"), start=0.4) as decoder:
        next(decoder)
        frame = next(decoder)
    again = copied(frame)
    assert type(again) is type(frame) and np.array_equal(again, frame) and not np.shares_memory(again, frame)
    assert (again.index, again.pts, again.time_s) == (1, frame.pts, frame.time_s)


@pytest.mark.parametrize("convert", ["native", "ffmpeg"])
@pytest.mark.parametrize("second", [("smpte170m", "tv"), ("bt709", "pc"), ("smpte170m", "pc")], ids="-".join)
def test_tags_that_change_in_the_middle_are_followed(
    second: tuple[str, str], convert: str, tmp_path: Path
) -> None:
    """Both halves show the same red."""
    path = tmp_path / "both.ts"
    halves = [tmp_path / "first.ts", tmp_path / "second.ts"]
    for half, (matrix, tag) in zip(halves, (("bt709", "tv"), second), strict=True):
        picture = (
            f"color=0xC80000:size=64x48:rate=30:duration=0.5,format=rgb24,scale=out_color_matrix={matrix}"
        )
        offset_s = str(halves.index(half) / 2)
        tagged = ("-colorspace", matrix, "-color_range", tag, "-output_ts_offset", offset_s)
        ffmpeg(
            "-f", "lavfi", "-i", f"{picture}:out_range={tag},format=yuv420p", "-c:v", "libx264", *tagged, half
        )
    path.write_bytes(b"".join(half.read_bytes() for half in halves))
    settings = with_overrides(DecoderSettings(), convert=convert)
    with Decoder(path, settings=settings, conceal_errors=True) as decoder:
        frames = list(decoder)
        assert len(frames) == 30 and decoder.converted_by == ("penstock" if convert == "native" else "ffmpeg")
        assert max(np.abs(frame.astype(int) - [200, 0, 0]).max() for frame in frames) <= 5
        assert all(np.array_equal(decoder[at], frames[at]) for at in (0, 29))
    with Decoder(halves[1], settings=settings) as alone:
        assert np.array_equal(alone[14], frames[29])


@pytest.mark.parametrize("option", [{"noautorotate": None}, {"autorotate": 0}], ids=str)
def test_autorotate_option_returns_frames_as_stored(option: dict[str, object]) -> None:
    with Decoder(clip("rotated_90"), input_options=option) as decoder, Decoder(clip("h264")) as stored:
        assert decoder.size == stored.size
        assert all(np.array_equal(*pair) for pair in zip(decoder, stored, strict=True))
    with (
        Decoder(clip("rotated_90"), input_options={"autorotate": 1}) as asked,
        Decoder(clip("rotated_90")) as turned,
    ):
        assert asked.size == turned.size != stored.size and np.array_equal(next(asked), next(turned))


def test_input_option_with_a_dash_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError) as caught:
        Decoder(clip("h264"), input_options={"-hwaccel": "auto"})
    assert "input_options={'hwaccel': 'auto'}" in str(caught.value)


X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "50")


@pytest.mark.parametrize(
    ("ending", "codec"),
    [
        *(("avi", X264), ("flv", X264), ("h264", X264), ("mp4", X264), ("ts", X264)),
        *(("avi", ("-c:v", "mpeg4")), ("mxf", ("-c:v", "mpeg2video")), ("ogv", ("-c:v", "libtheora"))),
        ("mov", ("-c:v", "smc", "-pix_fmt", "pal8")),
        *(("y4m", ()), ("gif", ()), ("ivf", ("-c:v", "libvpx", "-deadline", "realtime"))),
    ],
    ids=lambda one: one if isinstance(one, str) else one[1] if one else "raw",
)
def test_the_first_frame_is_the_one_on_screen_at_the_start(
    ending: str, codec: tuple[str, ...], tmp_path: Path
) -> None:
    """Behind 10 s a seek comes first, where the container can."""
    path = tmp_path / f"clip.{ending}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=12", *codec, "-threads", "1", path)
    with Decoder(path, conceal_errors=True) as decoder:
        frames = [(frame.time_s or 0.0, frame.tobytes()) for frame in decoder]
    for start in (0.0, 0.1, 0.11, 0.68, 3.32, 11.51):
        expected = from_time(frames, start)[:2]
        with Decoder(path, start=start, count=2) as decoder:
            assert [(frame.time_s, frame.tobytes()) for frame in decoder] == expected, start
            assert decoder[0].tobytes() == expected[0][1]


Timed = TypeVar("Timed")


def from_time(frames: list[tuple[float, Timed]], start: float) -> list[tuple[float, Timed]]:
    """The frames from the one on screen at a time on."""
    before = [number for number, (time_s, _) in enumerate(frames) if time_s <= start + 1e-6]
    return frames[max(before, default=0) :]


def check_starts(path: Path, starts: tuple[float, ...]) -> None:
    """From each start on come the same frames as in a decode of the whole file, with and without `count`."""
    with Decoder(path) as decoder:
        frames = [(frame.time_s or 0.0, frame.tobytes()) for frame in decoder]
    for start, count in itertools.product(starts, (None, 3)):
        expected = from_time(frames, start)[:count]
        with Decoder(path, start=start, count=count) as decoder:
            got = [(frame.time_s or 0.0, frame.tobytes()) for frame in decoder]
        assert got == expected and got, (start, count)


@pytest.mark.parametrize("ending", a_few(["mp4", "mkv", "ts", "flv", "nut"], 2))
def test_start_in_an_intra_refresh_video_is_exact(ending: str, tmp_path: Path) -> None:
    """Of x264's `intra-refresh`, what is called a keyframe is whole only some frames later."""
    path = tmp_path / f"clip.{ending}"
    codec = ("-c:v", "libx264", "-x264-params", "keyint=50:intra-refresh=1")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=160x112:rate=25", "-frames:v", "300", *codec, path)
    check_starts(path, (2.0, 3.0, 11.2, 11.6))


@pytest.mark.parametrize("ending", a_few(["mp4", "ts"]))
def test_start_where_pictures_are_whole_only_some_keyframes_later_is_exact(
    ending: str, tmp_path: Path
) -> None:
    """libav takes a picture for whole that is not: its decoder tells nothing of that."""
    path = tmp_path / f"clip.{ending}"
    order = "intra-refresh=1:keyint=9:bframes=3:b-pyramid=none:b-adapt=1:ref=4:weightp=0:bff=1"
    codec = ("-c:v", "libx264", "-threads", "1", "-x264-params", order, "-pix_fmt", "yuv420p")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=80x64:rate=25", "-frames:v", "160", *codec, path)
    with Decoder(path) as decoder:
        frames = [frame.tobytes() for frame in decoder]
    for number in range(5, 160, 6):
        with Decoder(path, start=number / 25, count=3) as decoder:
            assert [frame.tobytes() for frame in decoder] == frames[number : number + 3]
        with Decoder(path) as decoder:
            assert decoder[number].tobytes() == frames[number]


@pytest.mark.parametrize(
    ("ending", "codec"),
    [
        ("ts", ("-c:v", "mpeg2video", "-g", "600", "-sc_threshold", "1000000000")),
        ("mpg", ("-c:v", "mpeg2video", "-g", "600", "-sc_threshold", "1000000000")),
        ("ts", ("-c:v", "libx264", "-x264-params", "keyint=500:scenecut=0")),
    ],
    ids=("mpeg2-ts", "mpeg2-ps", "h264-ts"),
)
def test_start_far_after_a_keyframe_is_exact(ending: str, codec: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / f"clip.{ending}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-frames:v", "700", *codec, path)
    check_starts(path, (15.0, 23.0, 27.0))


@pytest.mark.parametrize(
    ("ending", "refresh"), a_few([("mp4", 0), ("mkv", 0), ("ts", 1), ("ts", 0), ("mkv", 1), ("mp4", 1)], 2)
)
@pytest.mark.filterwarnings("ignore:.*its header says 100 frames, and it has 99")  # that FFmpeg 7.1 wrote
def test_start_in_a_pause_returns_the_frame_before(
    ending: str, refresh: int, tmp_path: Path, engine: str
) -> None:
    """The frames are at 0 to 2 s and at 15 to 17 s."""
    path = tmp_path / f"clip.{ending}"
    pause = ("-vf", "setpts=if(gte(N\\,50)\\,PTS+13/TB\\,PTS)", "-fps_mode", "passthrough")
    codec = ("-c:v", "libx264", "-x264-params", f"keyint=20:intra-refresh={refresh}")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-frames:v", "100", *pause, *codec, path)
    check_starts(path, (2.5, 14.9, 15.5))


@pytest.mark.parametrize("name", ["h264", "h264_ts", "variable_mp4", "starts_late_ts"])
@pytest.mark.parametrize("first", [0, 11])
def test_start_and_count_are_exact_to_the_frame(name: str, first: int, engine: str) -> None:
    with Decoder(clip(name)) as decoder:
        frames = list(decoder)
    with Decoder(clip(name), start=frames[first].time_s, count=3) as decoder:
        got = list(decoder)
    assert [frame.pts for frame in got] == [frame.pts for frame in frames[first : first + 3]]
    assert all(np.array_equal(*pair) for pair in zip(got, frames[first:], strict=False))


@pytest.mark.parametrize(("name", "size"), [("rotated_90", (48, 64)), ("rotated_180", (64, 48))])
def test_frames_are_rotated_as_players_show_them(name: str, size: tuple[int, int], engine: str) -> None:
    with Decoder(clip(name)) as turned, Decoder(clip("h264")) as stored:
        assert turned.size == size
        times = turned.stream.rotation // 90
        for frame, as_stored in zip(turned, stored, strict=True):
            assert np.array_equal(frame, np.rot90(as_stored, -times))


@pytest.mark.parametrize(
    ("asked", "size"),
    [((32, 24), (32, 24)), ((32, None), (32, 24)), ((None, 96), (128, 96)), ((31, 17), (31, 17))],
)
def test_frames_are_scaled(asked: tuple[int | None, int | None], size: tuple[int, int]) -> None:
    path = clip("h264")
    with Decoder(path, size=asked, pixel_format="source") as decoder:
        assert decoder.size == size
        frames = list(decoder)
        assert np.array_equal(np.stack(frames), raw(path, decoder, "-vf", f"scale={size[0]}:{size[1]}"))
    with Decoder(path, size=asked) as decoder:
        assert [frame.shape for frame in decoder] == [(size[1], size[0], 3)] * 30


def test_a_video_that_changes_its_size_in_the_middle_keeps_the_first(tmp_path: Path, engine: str) -> None:
    small, large, joined = (tmp_path / name for name in ("small.ts", "large.ts", "joined.ts"))
    for path, size in ((small, "64x48"), (large, "96x96")):
        source = ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=25:duration=0.4")
        ffmpeg(*source, "-c:v", "libx264", "-y", str(path))
    joined.write_bytes(small.read_bytes() + large.read_bytes())
    # To FFmpeg the seam is damage.
    with Decoder(joined, conceal_errors=True) as decoder, Decoder(small) as alone:
        frames, before = list(decoder), list(alone)
        assert len(before) < len(frames)
        assert all(frame.shape == (48, 64, 3) for frame in frames)
        assert all(np.array_equal(*pair) for pair in zip(frames, before[:-1], strict=False))
        assert frames[-1].std() > 10


def test_colors_can_be_given_if_the_file_does_not_state_them() -> None:
    with Decoder(clip("untagged"), count=1) as decoder:
        (as_bt601,) = decoder
    frames = {}
    for convert in ("native", "ffmpeg"):
        with Decoder(
            clip("untagged"),
            count=1,
            color_matrix="bt709",
            color_range="full",
            settings=with_overrides(DecoderSettings(), convert=convert),
        ) as decoder:
            (frames[convert],) = decoder
    assert np.abs(frames["native"].astype(int) - as_bt601).max() > 10
    assert np.abs(frames["native"].astype(int) - frames["ffmpeg"]).max() <= 3


def test_filters_see_the_files_own_pixels() -> None:
    path = clip("h264")
    with Decoder(path, filters="hflip,negate") as decoder:
        frames = list(decoder)
        assert furthest(frames, raw(path, decoder, "-vf", "hflip,negate")) <= FFMPEG_ERROR


@pytest.mark.parametrize(
    ("filters", "size", "expected"),
    [
        ("crop=ih:ih", None, (48, 48)),
        ("transpose=1", None, (48, 64)),
        ("scale=33:-1", None, (33, 25)),
        ("crop=ih:ih,reverse", None, (48, 48)),
        ("tile=3x2", None, (192, 96)),
        ("crop=ih:ih", (None, 24), (24, 24)),
        ("crop=ih/2:ih", (12, None), (12, 24)),
        ("crop=ih:ih", (20, 30), (20, 30)),
        ("negate", None, (64, 48)),
    ],
)
def test_frames_have_the_size_that_filters_make(
    filters: str, size: tuple[int | None, int | None] | None, expected: tuple[int, int]
) -> None:
    path = clip("h264")
    for start in (None, 0.4):
        with Decoder(path, filters=filters, size=size, start=start, pixel_format="source") as decoder:
            assert decoder.size == expected
            frames = list(decoder)
            seek = () if start is None else ("-ss", str(start))
            arguments = ("-i", f"file:{path}", "-vf", f"{filters},scale={expected[0]}:{expected[1]}")
            made = ffmpeg(*seek, *arguments, "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1")
            assert b"".join(frame.tobytes() for frame in frames) == made
    with Decoder(path, filters=filters, size=size, count=1) as decoder:
        assert next(decoder).shape == (expected[1], expected[0], 3)


def test_filters_see_the_rotated_picture() -> None:
    with Decoder(clip("rotated_90"), filters="crop=iw:iw", count=1) as decoder:
        assert decoder.size == (48, 48)
        assert next(decoder).shape == (48, 48, 3)


ALPHA = ("vp8_alpha", "vp9_alpha")


@pytest.mark.parametrize("name", ALPHA)
def test_alpha_that_lies_beside_the_frames_is_decoded(name: str, engine: str) -> None:
    """FFmpeg's own decoders of VP8 and VP9 leave it out."""
    path = clip(name)
    columns = np.arange(64) * 4
    for pixel_format in ("rgba", "bgra", "rgba64le"):
        with Decoder(path, pixel_format=pixel_format) as decoder:
            assert decoder.stream.has_separate_alpha
            frames = list(decoder)
            assert len(frames) == 12
            for frame in frames:
                alpha = frame[..., 3] >> (8 if pixel_format == "rgba64le" else 0)
                assert np.abs(alpha.astype(int) - columns).max() <= 12
    with Decoder(path, pixel_format="rgba", start=0.2, size=(32, None), filters="hflip") as decoder:
        assert np.abs(next(decoder)[..., 3].astype(int) - columns[::-2]).max() <= 12


@pytest.mark.parametrize("name", ALPHA)
def test_the_files_own_format_has_its_alpha(name: str) -> None:
    path, library = clip(name), "libvpx-vp9" if name == "vp9_alpha" else "libvpx"
    with Decoder(path, pixel_format="source") as decoder:
        assert decoder.pixel_format == "yuva420p"
        frames = list(decoder)
    made = ffmpeg("-c:v", library, "-i", f"file:{path}", "-f", "rawvideo", "pipe:1")
    assert b"".join(frame.tobytes() for frame in frames) == made
    with Decoder(path, count=1) as decoder, Decoder(clip("vp9"), pixel_format="rgba", count=1) as opaque:
        assert next(decoder).shape == (48, 64, 3)
        assert not opaque.stream.has_separate_alpha and (next(opaque)[..., 3] == 255).all()


def test_stream_argument_selects_another_stream(engine: str) -> None:
    with Decoder(clip("several_videos")) as best, Decoder(clip("several_videos"), stream=0) as first:
        assert (best.stream.index, best.size) == (1, (64, 48))
        assert (first.stream.index, first.size) == (0, (48, 64))
        for decoder in (best, first):
            frames = list(decoder)
            assert len(frames) == 12 and np.array_equal(decoder[7], frames[7])


def test_frame_belongs_to_the_caller_and_never_changes() -> None:
    with Decoder(clip("long"), settings=DecoderSettings(queue_items=2)) as decoder:
        kept = list(decoder)
    with Decoder(clip("long")) as decoder:
        for frame, other in zip(decoder, kept, strict=True):
            assert np.array_equal(frame, other)
            frame[:] = 0  # its own memory, and writable


def test_memory_of_dropped_frames_is_reused() -> None:
    with Decoder(clip("long"), settings=DecoderSettings(queue_items=2)) as decoder:
        places = {frame.__array_interface__["data"][0] for frame in decoder}
    assert len(places) <= 6


@pytest.mark.linux("a shell script stands in for a program")
@pytest.mark.parametrize("decoder_class", [Decoder, AudioDecoder])
def test_ffmpeg_starts_with_the_first_frame_that_is_read(
    decoder_class: type[Decoder | AudioDecoder], tmp_path: Path
) -> None:
    # It tells of each start: an FFmpeg that is done with a short clip is no child any more.
    program, log = tmp_path / "ffmpeg", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {find_ffmpeg()} "$@"\n')
    program.chmod(0o755)
    before = children()

    def starts() -> int:
        return log.read_text().count(str(clip("audio_aac"))) if log.exists() else 0

    with decoder_class(clip("audio_aac"), settings=DecoderSettings(ffmpeg=program)) as decoder:
        assert children() == before and starts() == 0
        assert decoder.read() is not None
        assert starts() == 1
    never_read = decoder_class(clip("audio_aac"))
    never_read.close()
    with pytest.raises(ClosedError):
        never_read.read()
    decoder_class(clip("audio_aac"))  # and no ResourceWarning


def test_threads_that_read_the_first_frame_share_one_ffmpeg() -> None:
    with Decoder(clip("long")) as decoder, ThreadPoolExecutor(8) as pool:
        frames = list(pool.map(lambda _: decoder.read(), range(8)))
    assert sorted(frame.index for frame in frames if frame is not None) == list(range(8))


@pytest.mark.parametrize("by_program", [False, True])
def test_signal_handler_can_close_a_decoder_that_is_starting(
    monkeypatch: pytest.MonkeyPatch, by_program: bool
) -> None:
    def interrupted(self: Any, *arguments: Any) -> Any:
        result = begin(self, *arguments)
        signal.raise_signal(signal.SIGTERM)
        return result

    kind, name = (DecodeSession, "connect") if by_program else (Pixels, "begin")
    begin = getattr(kind, name)
    monkeypatch.setattr(kind, name, interrupted)
    settings = DecoderSettings(ffmpeg=find_ffmpeg()) if by_program else DecoderSettings()
    decoder = Decoder(clip("long"), settings=settings)
    before = signal.signal(signal.SIGTERM, lambda *_: decoder.close())
    try:
        with pytest.raises(ClosedError):
            decoder.read()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_readinto_fills_the_array_with_each_frame(engine: str) -> None:
    with Decoder(clip("h264")) as decoder:
        expected = list(decoder)
    with Decoder(clip("h264")) as decoder:
        frame = np.empty(decoder.shape, decoder.dtype)
        for other in expected:
            assert decoder.readinto(frame) == decoder.frame_bytes
            assert np.array_equal(frame, other)
        assert decoder.readinto(frame) == 0
        with pytest.raises(ValueError):
            decoder.readinto(bytearray(10))
        with pytest.raises(BufferError):
            decoder.readinto(bytes(decoder.frame_bytes))


def test_async_for_returns_every_frame(engine: str) -> None:
    async def times() -> list[float | None]:
        async with Decoder(clip("h264")) as decoder:
            return [frame.time_s async for frame in decoder]

    async def both() -> list[list[float | None]]:
        return list(await asyncio.gather(times(), times()))

    with Decoder(clip("h264")) as decoder:
        expected = [frame.time_s for frame in decoder]
    assert asyncio.run(both()) == [expected, expected]


def test_stream_attribute_describes_the_stream() -> None:
    with Decoder(clip("h264_large")) as decoder:
        assert decoder.stream.frame_rate == Fraction(30000, 1001)
        assert decoder.size == (322, 182)
        assert repr(decoder) == f"<Decoder {str(clip('h264_large'))!r} 322x182 rgb24>"


@pytest.mark.parametrize("name", sorted(WITH_AUDIO))
def test_sound_does_not_disturb_the_picture(name: str) -> None:
    with Decoder(clip(name)) as decoder:
        assert len(list(decoder)) == 12


def test_stats_count_frames_bytes_and_times() -> None:
    with Decoder(clip("long")) as decoder:
        for _ in decoder:
            pass
        stats = decoder.stats
    assert stats.frames_read == stats.frames_delivered == 600
    assert stats.bytes_read == 600 * 160 * 120 * 3 // 2
    assert stats.elapsed_s > 0
    assert stats.fps == pytest.approx(600 / stats.elapsed_s)
    assert stats.converting_s > 0
    assert stats.bottleneck in ("caller", "conversion", "ffmpeg", None)


@pytest.mark.parametrize("frames", [1, 16, 17])
def test_short_files_are_decoded_with_threads_too(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "short.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48", "-frames:v", frames, "-c:v", "ffv1", path)
    with Decoder(path) as decoder:
        assert len(list(decoder)) == frames
        assert decoder.engine.reason.endswith("with threads")


@pytest.mark.parametrize("start", ["0.53", "1.0", "1.5"])
def test_len_of_an_mp4_excludes_frames_hidden_by_the_edit_list(
    tmp_path: Path, start: str, engine: str
) -> None:
    codec = ("-c:v", "libx264", "-g", "12", "-bf", "3")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=2", *codec, tmp_path / "whole.mp4")
    ffmpeg("-ss", start, "-i", tmp_path / "whole.mp4", "-t", "0.7", "-c", "copy", tmp_path / "part.mp4")
    with Decoder(tmp_path / "part.mp4") as decoder, warnings.catch_warnings(action="error"):
        assert len(decoder) == len(list(decoder)) < (decoder.stream.frames or 0)
        assert decoder[len(decoder) - 1].any()


@pytest.mark.parametrize("name", ["h264", "h264_ts", "variable_mkv", "starts_late_ts"])
@pytest.mark.parametrize("options", [{}, {"start": 0.3}, {"start": 0.3, "count": 2}], ids=str)
def test_len_comes_from_the_packets(name: str, options: dict[str, Any], engine: str) -> None:
    with Decoder(clip(name), **options) as decoder:
        assert len(decoder) == sum(1 for _ in decoder) > 0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gif", {}, "count_frames"),
        ("h264", {"filters": "fps=10"}, "filters"),
        ("h264", {"input_options": {"r": 50}}, "input_options"),
    ],
)
def test_len_raises_type_error_if_unknown(name: str, options: dict[str, object], words: str) -> None:
    with Decoder(clip(name), **options) as decoder:  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=words):
            len(decoder)
        assert decoder  # has no length, and is true
        assert len(list(decoder)) > 0


@pytest.mark.parametrize(
    "codec, parameters", [("libx265", "keyint=50:log-level=error"), ("libx264", "open-gop=1:keyint=50")]
)
def test_undecodable_frames_before_the_start_do_not_matter(
    tmp_path: Path, codec: str, parameters: str
) -> None:
    """FFmpeg begins some frames before, in the middle of a group, and cannot decode all of those."""
    path, damaged = tmp_path / "video.ts", tmp_path / "damaged.ts"
    option = f"{codec.removeprefix('lib')}-params"
    source = ("-f", "lavfi", "-i", "testsrc2=s=96x64:r=25:d=24")
    ffmpeg(*source, "-pix_fmt", "yuv420p", "-c:v", codec, "-threads", "1", f"-{option}", parameters, path)
    with Decoder(path) as decoder:
        frames = [(frame.time_s, bytes(frame[::8, ::8])) for frame in decoder]
    with warnings.catch_warnings(record=True) as caught, Decoder(path, start=17.42) as decoder:
        warnings.simplefilter("always")
        got = [(frame.time_s, bytes(frame[::8, ::8])) for frame in decoder]
    assert got == from_time(frames, 17.42)
    assert all("17.4" in str(one.message) for one in caught)
    data = bytearray(path.read_bytes())
    place = len(data) * 18 // 24
    data[place : place + 2000] = bytes(2000)  # 3000 are 16 packets, which MPEG-TS counts by 4 bits
    damaged.write_bytes(data)
    with pytest.raises(DecoderError), Decoder(damaged, start=14.5) as decoder:
        list(decoder)


def test_recording_that_begins_inside_a_gop_warns_with_start_0(tmp_path: Path) -> None:
    whole, recorded = tmp_path / "whole.ts", tmp_path / "recorded.ts"
    source = ("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=8")
    ffmpeg(
        *source, "-pix_fmt", "yuv420p", "-c:v", "libx265", "-x265-params", "keyint=50:log-level=error", whole
    )
    data = whole.read_bytes()
    recorded.write_bytes(data[len(data) * 3 // 8 // 188 * 188 :])
    with pytest.warns(FFmpegWarning), Decoder(recorded, start=0) as decoder:
        assert len(list(decoder)) >= 100  # with FFmpeg 9, which gives one frame less than 5.1


# What an FFmpeg program writes


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize(
    "pixel_format",
    [
        "gbrpf32le",
        "p010le",
        "pal8",
        "ya16le",
        "yuva420p10le",
        "nv12",
        "gbrap16le",
        "monow",
    ],
)
def test_filtered_samples_are_those_that_ffmpeg_writes(pixel_format: str, program: str) -> None:
    filters = f"hflip,format={pixel_format}"
    raw = ffmpeg("-i", clip("h264"), "-vf", filters, "-frames:v", 3, "-f", "rawvideo", "-", program=program)
    settings = DecoderSettings(ffmpeg=program)
    given = {"filters": filters, "pixel_format": pixel_format, "count": 3}
    with Decoder(clip("h264"), settings=settings, **given) as decoder:  # type: ignore[arg-type]
        frames = list(decoder)
    assert b"".join(frame.tobytes() for frame in frames) == raw
    assert all(frame.flags.writeable for frame in frames)


def joined(folder: Path, *sizes: str, begins_s: Sequence[float] = (0, 0, 0)) -> Path:
    """MPEG-TS whose times begin anew with each part."""
    parts = []
    for number, size in enumerate(sizes):
        parts.append(folder / f"{number}.ts")
        source = ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=25:duration=0.4")
        ffmpeg(
            *source, "-c:v", "mpeg2video", "-g", "5", "-output_ts_offset", str(begins_s[number]), parts[-1]
        )
    whole = folder / "joined.ts"
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    return whole


@pytest.mark.parametrize("program", ffmpegs())
def test_times_that_go_back_pass_through_a_program(program: str, tmp_path: Path) -> None:
    path, settings = joined(tmp_path, "64x48", "64x48"), DecoderSettings(ffmpeg=program)
    with Decoder(path, conceal_errors=True, filters="hflip", settings=settings) as decoder:
        frames = list(decoder)
    assert [frame.index for frame in frames] == list(range(20))
    assert [frame.time_s for frame in frames] == pytest.approx([number % 10 / 25 for number in range(20)])


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("again_s", [1, 1.36], ids=["earlier", "same"])
def test_times_are_right_where_the_size_changes_after_they_went_back(
    again_s: float, program: str, tmp_path: Path
) -> None:
    path = joined(tmp_path, "64x48", "64x48", "96x96", begins_s=(1, again_s, 5))
    settings = DecoderSettings(ffmpeg=program)
    with Decoder(path, conceal_errors=True, filters="hflip", settings=settings) as decoder:
        times = [frame.time_s for frame in decoder]
    assert sum(later <= sooner for sooner, later in itertools.pairwise(times)) == 1
    assert times[-10:] == pytest.approx([4 + number / 25 for number in range(10)])


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize(
    ("filters", "frames"),
    [("setpts=if(eq(N\\,11)\\,NAN\\,PTS)", 11), ("setpts=PTS-1e18", 0), ("setpts=PTS+1e18", 0)],
)
def test_times_that_a_program_cannot_write_raise(
    filters: str, frames: int, program: str, tmp_path: Path
) -> None:
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=64x48:rate=25",
        "-frames:v",
        "12",
        "-c:v",
        "ffv1",
        tmp_path / "a.mkv",
    )
    delivered = []
    with (
        Decoder(tmp_path / "a.mkv", filters=filters, settings=DecoderSettings(ffmpeg=program)) as decoder,
        pytest.raises(DecoderError, match=r"(?i)pts|timestamp"),
    ):
        delivered.extend(decoder)
    assert len(delivered) == frames


@pytest.mark.linux("/proc")
@pytest.mark.parametrize("program", ffmpegs())
def test_memory_does_not_grow_with_the_frames_of_a_program(program: str) -> None:
    def used_bytes() -> int:
        pages = Path(f"/proc/{decoder.pid}/statm").read_text().split()[1]
        return rss_bytes() + int(pages) * mmap.PAGESIZE

    forever, settings = "loop=loop=-1:size=10", DecoderSettings(ffmpeg=program)
    with Decoder(clip("h264"), filters=forever, size=(64, 64), settings=settings) as decoder:
        for _ in range(1000):
            decoder.read()
        begin = used_bytes()
        for _ in range(4000):
            decoder.read()
        assert used_bytes() - begin < 500_000


@pytest.mark.parametrize("program", ffmpegs())
def test_times_pass_through_filters_where_the_size_changes_and_they_go_back(
    program: str, tmp_path: Path
) -> None:
    path, settings = joined(tmp_path, "64x48", "96x96"), DecoderSettings(ffmpeg=program)
    with Decoder(path, conceal_errors=True, filters="hflip", settings=settings) as decoder:
        times = [frame.pts for frame in decoder]
    with Decoder(path, conceal_errors=True) as decoder:
        assert times == [frame.pts for frame in decoder]


def test_tags_that_are_no_text_pass_a_program_by(tmp_path: Path) -> None:
    path = tmp_path / "latin.mkv"
    ffmpeg("-i", clip("h264"), "-c", "copy", "-metadata", "comment=LATIN", path)
    path.write_bytes(path.read_bytes().replace(b"LATIN", b"\xe9\xe8\xe7\xe6\xe5"))
    with Decoder(path, filters="hflip") as decoder:
        assert len(list(decoder)) == 30
