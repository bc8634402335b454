"""The codec of a video follows its name: what stands in each kind of file, and how players show it."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import a_few, eventually, needs

from penstock import Decoder, Encoder, EncoderError, FFmpegWarning, probe
from penstock._ffmpeg.command.settings import with_overrides
from penstock._ffmpeg.program import capabilities
from penstock.rendering import plan
from penstock.video import EncoderSettings

SIZE = (160, 120)


def frame(index: int, channels: int = 3) -> Any:
    """A gradient that moves, with alpha that is not all or nothing."""
    rows, columns = np.mgrid[0 : SIZE[1], 0 : SIZE[0]]
    planes = (columns + index * 5, rows * 2 + index * 3, rows + columns, np.full_like(rows, 90))
    return np.stack(planes[:channels], axis=-1).astype(np.uint8)


def written(path: Path, ffmpeg: str | None = None, frames: int = 6, **arguments: Any) -> Encoder:
    with Encoder(path, **{"fps": 20, "settings": EncoderSettings(ffmpeg=ffmpeg)} | arguments) as encoder:
        channels = 4 if arguments.get("pixel_format") == "rgba" else 3
        for index in range(frames):
            encoder.write(frame(index, channels))
    return encoder


@pytest.mark.parametrize(
    "name, encoder, codec",
    a_few(
        [
            ("a.mp4", "libx264", "h264"),
            ("a.mkv", "libx264", "h264"),
            ("a.MOV", "libx264", "h264"),
            ("a.webm", "libvpx-vp9", "vp9"),
            ("a.gif", "gif", "gif"),
            ("a.apng", "apng", "apng"),
            ("a.avif", "libsvtav1", "av1"),
            ("a.webp", "libwebp", "webp"),
            ("a.h264", "libx264", "h264"),
            ("a.ivf", "libvpx", "vp8"),
            ("a.y4m", "wrapped_avframe", "rawvideo"),
            ("%03d.png", "png", "png"),
            ("%03d.jpg", "mjpeg", "mjpeg"),
            ("%03d.webp", "libwebp", "webp"),
        ],
        2,
    ),
)
def test_the_codec_follows_the_name(tmp_path: Path, ffmpeg: str, name: str, encoder: str, codec: str) -> None:
    needs(ffmpeg, encoder)
    report = written(tmp_path / name, ffmpeg).report
    assert report is not None and report.frames_encoded == 6 and report.warnings == ()
    found = probe(tmp_path / name.replace("%03d", "001")).video[0].codec
    assert found.removesuffix("_anim") == codec  # as libav calls WebP since PyAV 19


@pytest.mark.parametrize(
    ("codec", "encoder", "found"),
    [("avc1", "libx264", "h264"), ("h265", "libx265", "hevc"), ("av1", "libsvtav1", "av1")],
)
def test_format_name_selects_an_encoder(
    tmp_path: Path, ffmpeg: str, codec: str, encoder: str, found: str
) -> None:
    needs(ffmpeg, encoder)
    report = written(tmp_path / "video.mp4", ffmpeg, codec=codec, quality="draft").report
    assert report is not None and report.codec == encoder
    assert probe(tmp_path / "video.mp4").video[0].codec == found


def test_container_option_overrides_the_file_name(tmp_path: Path) -> None:
    written(tmp_path / "video.dat", options={"f": "webm"})
    assert probe(tmp_path / "video.dat").video[0].codec == "vp9"
    with pytest.raises(EncoderError):
        Encoder(tmp_path / "video.mkv", size=SIZE, fps=20, codec="libx264", options={"f": "gif"})


@pytest.mark.parametrize(
    ("name", "codec"), [("video.webm", "libx264"), ("video.mp4", "rawvideo"), ("video.avi", "qoi")]
)
def test_a_codec_that_a_container_does_not_hold_is_refused_at_the_call(
    tmp_path: Path, ffmpeg: str, name: str, codec: str
) -> None:
    needs(ffmpeg, codec)
    with pytest.raises((ValueError, EncoderError)):
        Encoder(tmp_path / name, size=SIZE, fps=20, codec=codec, settings=EncoderSettings(ffmpeg=ffmpeg))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "codec", "found"),
    a_few(
        [
            ("a.mp4", "mpeg2video", "mpeg2video"),
            ("a.mp4", "png", "png"),
            ("a.mp4", "libaom-av1", "av1"),
            ("a.m4v", "mpeg4", "mpeg4"),
            ("a.flv", "flv", "flv1"),
            ("a.flv", "libx265", "hevc"),
            ("a.mp4", "ffv1", "ffv1"),
            ("a.ogv", "auto", "theora"),
            ("a.avi", "png", "png"),
            ("a.mkv", "png", "png"),
            ("a.mkv", "tiff", "tiff"),
            ("a.nut", "gif", "gif"),
            ("a.mpg", "libx265", "hevc"),
            ("a.wmv", "auto", "h264"),
            ("a.ogv", "libvpx", "vp8"),
        ],
        3,
    ),
)
def test_codec_that_the_container_holds_is_accepted(
    tmp_path: Path, ffmpeg: str, name: str, codec: str, found: str
) -> None:
    since = {("a.flv", "hevc"): (6, 1), ("a.mp4", "ffv1"): (8, 0)}.get((name, found), ())
    if capabilities.version_numbers(ffmpeg) < since:
        with pytest.raises(EncoderError):
            written(tmp_path / name, ffmpeg, codec=codec)
        return
    written(tmp_path / name, ffmpeg, codec=codec)
    assert probe(tmp_path / name).video[0].codec == found


def test_theora_default_bitrate_is_high_enough(tmp_path: Path) -> None:
    blocks = np.random.default_rng(1).integers(0, 256, (6, 30, 40, 1), np.uint8)
    frames = np.kron(blocks, np.ones((1, 8, 8, 3), np.uint8))
    with Encoder(tmp_path / "a.ogv", fps=25) as encoder:
        for picture in frames:
            encoder.write(picture)
    with Decoder(tmp_path / "a.ogv", pixel_format="rgb24") as decoder:
        found = np.array(decoder[:])
    assert np.abs(found.astype(int) - frames).mean() < 6
    with pytest.raises(ValueError):
        Encoder(tmp_path / "a.ogv", fps=25, crf=20)
    with Encoder(tmp_path / "b.ogv", fps=25, options={"b:v": "20k"}) as encoder:
        for picture in frames:
            encoder.write(picture)
    assert (tmp_path / "b.ogv").stat().st_size < (tmp_path / "a.ogv").stat().st_size


@pytest.mark.parametrize("name", ["a.gif", "a.apng", "a.webp"])
def test_animations_loop_and_keep_their_times(tmp_path: Path, ffmpeg: str, name: str) -> None:
    image = pytest.importorskip("PIL.Image")
    needs(ffmpeg, "libwebp")
    times_s = [0.0, 0.1, 0.2, 0.5, 1.0]
    with Encoder(tmp_path / name, fps=None, settings=EncoderSettings(ffmpeg=ffmpeg)) as encoder:
        for index, time_s in enumerate(times_s):
            encoder.write(frame(20 * index), time_s=time_s)
    assert encoder.report is not None and encoder.report.warnings == ()
    with image.open(tmp_path / name) as picture:
        assert picture.info["loop"] == 0, "for ever"
        steps_ms = []
        for index in range(picture.n_frames):
            picture.seek(index)
            picture.load()
            steps_ms.append(picture.info["duration"])
    assert steps_ms[:4] == [100, 100, 300, 500]
    once = {"a.gif": {"loop": -1}, "a.apng": {"plays": 1}, "a.webp": {"loop": 1}}[name]
    written(tmp_path / name, ffmpeg, options=once)
    with image.open(tmp_path / name) as picture:
        assert picture.info.get("loop", 1) == 1


def test_gif_has_a_palette_per_frame(tmp_path: Path, ffmpeg: str) -> None:
    """256 colors that suit a frame are nearer to it than FFmpeg's, which are the same for every picture."""

    def error(name: str, **arguments: Any) -> float:
        written(tmp_path / name, ffmpeg, **arguments)
        with Decoder(tmp_path / name) as decoder:
            frames = [np.asarray(read, float) for read in decoder]
        assert len(frames) == 6
        return float(np.mean([np.abs(read - frame(index)) for index, read in enumerate(frames)]))

    with pytest.warns(FFmpegWarning):
        written(tmp_path / "alpha.gif", ffmpeg, pixel_format="rgba")
    own = error("own.gif")
    assert own < 6.0
    assert own < error("fixed.gif", output_pixel_format="rgb8") / 2
    assert own == pytest.approx(error("asked.gif", output_pixel_format="pal8"))


@pytest.mark.linux("/proc")
@pytest.mark.slow
def test_a_gif_is_made_in_bounded_memory(tmp_path: Path, ffmpeg: str) -> None:
    size = (320, 240)
    with Encoder(
        tmp_path / "long.gif", size=size, fps=20, settings=EncoderSettings(ffmpeg=ffmpeg)
    ) as encoder:
        peaks_kib = []
        for frames in (50, 500):
            for index in range(encoder.frames_submitted, frames):
                encoder.write(np.full((240, 320, 3), index % 256, np.uint8))
            assert eventually(lambda frames=frames: encoder.stats.frames_written >= frames - 5)
            status = Path(f"/proc/{encoder.pid}/status").read_text()
            peaks_kib.append(int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]))
    # As 32 bits a pixel, 450 frames have 135,000 KiB.
    assert peaks_kib[1] - peaks_kib[0] < 30_000


def scene(index: int, time_s: float, view: Any) -> None: ...


def test_a_render_follows_the_name(tmp_path: Path) -> None:
    def made(name: str, **encoder: Any) -> str:
        return plan(
            f"{__name__}:scene", frames=4, size=SIZE, fps=20, output=tmp_path / name, encoder_options=encoder
        ).codec

    assert made("a.webm") == "libvpx-vp9"
    assert made("a.mkv") == made("b.mkv", codec="auto") == made(".MP4") == "libx264"
    with pytest.raises(EncoderError):
        made("a.webm", codec="libx264")
    with pytest.raises(ValueError):
        made("a.gif")


@pytest.mark.parametrize(("fps", "pixel_format"), [(10, "rgba"), (None, "rgba"), (10, "rgb24")])
def test_webp_frame_replaces_the_frame_before(
    tmp_path: Path, ffmpeg: str, fps: int | None, pixel_format: str
) -> None:
    """A sprite that moves leaves nothing behind, though FFmpeg has frames with alpha laid over each other."""
    Image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.webp"
    with Encoder(
        path, fps=fps, pixel_format=pixel_format, settings=EncoderSettings(ffmpeg=ffmpeg)
    ) as encoder:
        for index in range(5):
            picture = np.zeros((64, 64, 4 if pixel_format == "rgba" else 3), np.uint8)
            picture[20:30, 8 * index : 8 * index + 10] = 255
            encoder.write(picture, time_s=None if fps else index / 10)
    with Image.open(path) as shown:
        for index in range(5):
            shown.seek(index)
            channel = np.asarray(shown.convert("RGBA"))[..., 3 if pixel_format == "rgba" else 0]
            assert (channel > 128).sum() == pytest.approx(100, abs=20)
            assert channel[25, 8 * index + 5] > 128


@pytest.mark.parametrize(
    "arguments",
    [{"output_pixel_format": "ffmpeg"}, {"settings": with_overrides(EncoderSettings(), convert="ffmpeg")}],
)
def test_frames_of_a_webp_are_not_blended_whatever_the_pixel_format(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    written(tmp_path / "a.webp", pixel_format="rgba", **arguments)
    assert flags_of(tmp_path / "a.webp") == 6 * [2]


def flags_of(path: Path) -> list[int]:
    """Those of the frames of a WebP."""
    content = path.read_bytes()
    return [content[found.start() + 23] for found in re.finditer(b"ANMF", content)]


@pytest.mark.parametrize("name", ["cr_threshold", "cr_threshold:v"])
def test_webp_frames_that_hold_only_changes_are_left_unchanged(
    tmp_path: Path, ffmpeg: str, name: str
) -> None:
    arguments: dict[str, Any] = {"pixel_format": "rgba", "options": {name: 10}}
    assert written(tmp_path / "a.webp", ffmpeg, **arguments).report is not None
    assert flags_of(tmp_path / "a.webp") == 6 * [0]


def test_libwebp_anim_frames_are_left_unchanged(tmp_path: Path, ffmpeg: str) -> None:
    command = f"{ffmpeg} -v error -f lavfi -i testsrc -frames:v 3 -c:v libwebp_anim -f webp -y -progress - /dev/null"
    if "frame=3" not in subprocess.check_output(command.split(), text=True).split():
        pytest.skip("this FFmpeg counts the frames of an animated WebP as one")
    Image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.webp"
    picture = np.random.default_rng(0).integers(0, 255, (64, 64, 4), np.uint8)
    picture[..., 3] = 255
    pictures = []
    formats = {"codec": "libwebp_anim", "pixel_format": "rgba", "output_pixel_format": "bgra"}
    given: dict[str, Any] = {"options": {"lossless": 1}, "settings": EncoderSettings(ffmpeg=ffmpeg)}
    with Encoder(path, fps=10, **formats, **given) as encoder:
        for index in range(4):
            picture[40:52, 8 * index : 8 * index + 10] = (255, 0, 0, 255)
            pictures.append(picture.copy())
            encoder.write(picture)
    with Image.open(path) as shown:
        for index, picture in enumerate(pictures):
            shown.seek(index)
            assert np.array_equal(np.asarray(shown.convert("RGBA")), picture)


@pytest.mark.linux("FIFOs")
def test_webp_can_be_written_to_a_fifo(tmp_path: Path, ffmpeg: str) -> None:
    path = tmp_path / "a.webp"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        content = pool.submit(path.read_bytes)
        written(path, ffmpeg, pixel_format="rgba")
        assert content.result().startswith(b"RIFF")


def test_concurrent_closes_of_a_webp_return_the_same_report(tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    path.write_bytes(b"old")
    encoder = Encoder(path, fps=10, pixel_format="rgba")
    for _ in range(3):
        encoder.write(np.zeros((64, 64, 4), np.uint8))
    with ThreadPoolExecutor(3) as pool:
        first, *others = [pool.submit(encoder.close) for _ in range(3)]
        assert all(one.result() == first.result() for one in others)
