"""FFmpeg's listings, with every FFmpeg of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.clips import clip
from support.processes import script

from penstock import Decoder, Encoder
from penstock._ffmpeg.program import capabilities
from penstock._formats.encoders import common
from penstock._formats.pixel_formats import PIXEL_FORMATS
from penstock.errors import DecoderError, EncoderError
from penstock.video import DecoderSettings, EncoderSettings, find_ffmpeg


def test_smoke(ffmpeg: str) -> None:
    assert {"mpeg4", "ffv1", "rawvideo"} <= set(capabilities.encoders(ffmpeg))
    assert "aac" not in capabilities.encoders(ffmpeg)
    assert {"h264", "mpeg4"} <= set(capabilities.codecs(ffmpeg))
    assert set(PIXEL_FORMATS) <= set(capabilities.pixel_formats(ffmpeg))


def test_listing_of_encoders_is_complete(ffmpeg: str) -> None:
    said = subprocess.run(
        [ffmpeg, "-hide_banner", "-encoders"], capture_output=True, text=True, check=True
    ).stdout
    _, _, lines = said.partition("--\n")
    assert (
        len(capabilities.encoders(ffmpeg)) == sum(line.startswith(" V") for line in lines.splitlines()) > 20
    )


def test_options_have_their_values_and_limits(ffmpeg: str) -> None:
    options = capabilities.encoder_options(ffmpeg, "mpeg4")
    assert options["mpv_flags"].kind == "flags"
    assert {"skip_rd", "naq"} <= set(options["mpv_flags"].values)
    assert options["skip_factor"].limits.startswith("from ")
    assert "faststart" in capabilities.muxer_options(ffmpeg, "mp4")["movflags"].values
    assert {"b", "bf", "g", "r", "vf", "filter", "pix_fmt", "colorspace"} <= set(
        capabilities.global_options(ffmpeg)
    )
    assert "crf" not in capabilities.global_options(ffmpeg)  # an encoder's own
    assert capabilities.encoder_options(ffmpeg, "nonsense") == {}


def test_each_listing_is_read_once(tmp_path: Path) -> None:
    program = str(
        script(tmp_path / "program", f"echo asked >> {tmp_path}/asked", f"exec '{find_ffmpeg()}' \"$@\"")
    )
    for _ in range(3):
        assert capabilities.encoders(program)
        assert capabilities.pixel_formats(program)
    assert (tmp_path / "asked").read_text().count("asked") == 2


def test_a_listing_that_failed_is_read_again(tmp_path: Path) -> None:
    runs = (
        f"[ -e '{tmp_path}/ran' ] || {{ touch '{tmp_path}/ran'; exit 1; }}",
        f"exec '{find_ffmpeg()}' \"$@\"",
    )
    program = str(script(tmp_path / "program", *runs))
    assert (capabilities.encoders(program), "mpeg4" in capabilities.encoders(program)) == ((), True)


@pytest.mark.parametrize("line", ["exit 1", "echo nonsense"])
def test_without_listings_nothing_is_refused(tmp_path: Path, line: str) -> None:
    program = str(script(tmp_path / "program", line))
    assert capabilities.encoders(program) == ()
    assert capabilities.pixel_formats(program) == capabilities.encoder_options(program, "libx264") == {}
    capabilities.check_codec(program, "anything")
    assert capabilities.encoders(str(tmp_path / "missing")) == ()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["sleep 1000 & wait", "exec sleep 1000"])
def test_a_listing_that_does_not_end_is_given_up(tmp_path: Path, line: str) -> None:
    capabilities.check_codec(str(script(tmp_path / "program", line)), "anything")


# Codecs


@pytest.mark.parametrize(
    ("codec", "meant"),
    [
        ("libx246", "libx264"),
        ("lix264", "libx264"),
        ("x264", "libx264"),
        ("LIBX264", "libx264"),
        ("mpeg-4", "mpeg4"),
        ("svtav1", "libsvtav1"),
    ],
)
def test_an_unknown_codec_raises_with_the_nearest_names(ffmpeg: str, codec: str, meant: str) -> None:
    if meant not in (*capabilities.encoders(ffmpeg), *capabilities.codecs(ffmpeg)):
        pytest.skip(f"this FFmpeg has no {meant}")
    with pytest.raises(EncoderError, match=meant):
        capabilities.check_codec(ffmpeg, codec)


@pytest.mark.parametrize(
    ("format_name", "names"),
    [
        ("h264", ("h264", "H264", "h.264", "x264", "avc", "avc1")),
        ("hevc", ("hevc", "HEVC", "h265", "H.265", "x265", "hvc1", "hev1")),
        ("av1", ("av1", "AV1", "av01")),
        ("vp9", ("vp9", "VP9", "vp09")),
        ("theora", ("theora",)),
        ("mpeg4", ("mp4v", "MPEG4")),
    ],
)
def test_format_name_means_the_encoder_that_ffmpeg_prefers(
    ffmpeg: str, format_name: str, names: tuple[str, ...]
) -> None:
    if not (encoders := capabilities.codecs(ffmpeg).get(format_name)):
        pytest.skip(f"this FFmpeg encodes no {format_name}")
    assert {capabilities.named_encoder(ffmpeg, name) for name in names} == {encoders[0]}
    ours = {format_name: ("none", encoders[-1])}
    assert (
        capabilities.named_encoder(ffmpeg, names[-1], preferred=ours) == encoders[-1]
        or format_name == "mpeg4"
    )


def test_encoder_name_means_that_encoder(ffmpeg: str) -> None:
    for name in (*capabilities.encoders(ffmpeg), "copy", "nonsense"):
        assert capabilities.named_encoder(ffmpeg, name) in (name, *capabilities.codecs(ffmpeg).get(name, ()))
    assert capabilities.named_encoder(ffmpeg, "LIBX264") == "libx264"
    for name, preferred in (("mp3", "libmp3lame"), ("opus", "libopus"), ("vorbis", "libvorbis")):
        if preferred in capabilities.encoders(ffmpeg, "sound"):
            assert capabilities.named_encoder(ffmpeg, name, "sound") == preferred


def test_every_suggested_name_is_accepted(ffmpeg: str) -> None:
    for wrong in ("x26", "h26", "hvec", "av2", "vp", "mpg4", "opsu", "mp"):
        for kind in ("video", "sound"):
            known = capabilities.encoders(ffmpeg, kind)
            for name in capabilities.nearest(wrong, (*known, *capabilities.codecs(ffmpeg, kind))):
                assert capabilities.named_encoder(ffmpeg, name, kind) in known


@pytest.mark.parametrize("codec", ["nonsense", "aac", ""])
def test_codec_without_a_near_name_raises(ffmpeg: str, codec: str) -> None:
    with pytest.raises(EncoderError):
        capabilities.check_codec(ffmpeg, codec)


@pytest.mark.parametrize("codec", ["mpeg4", "huffyuv", "h264", "copy"])
def test_codecs_that_ffmpeg_accepts_pass(ffmpeg: str, codec: str) -> None:
    capabilities.check_codec(ffmpeg, codec)


def test_common_codecs_are_not_looked_up(tmp_path: Path) -> None:
    program = str(script(tmp_path / "program", f"touch {tmp_path}/asked"))
    for codec in common():
        capabilities.check_codec(program, codec)
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("yuv402p", ["yuv422p", "yuv420p", "yuv410p"], "yuv420p"),
        ("fats", ["faster", "fast", "slow"], "fast"),
        ("RGB24", ["bgr24", "rgb24"], "rgb24"),
        ("nvenc", ["hevc_nvenc", "nvdec"], "nvdec"),
    ],
)
def test_the_nearest_name_comes_first(name: str, known: list[str], nearest: str) -> None:
    assert capabilities.nearest(name, known)[0] == nearest


def test_no_name_is_near_nonsense() -> None:
    assert capabilities.nearest("nonsense", ["libx264", "mpeg4"]) == []
    assert capabilities.did_you_mean("nonsense", ["libx264"]) == ""


# An FFmpeg that does not fit


def without(codec: str, path: Path) -> Path:
    """The system's FFmpeg without an encoder: it does not list it, and gets another name for it."""
    ffmpeg = find_ffmpeg()
    return script(
        path,
        f'case "$*" in *-encoders*|*-codecs*) {ffmpeg} "$@" | sed /{codec}/d; exit;; esac',
        f'for word; do shift; [ "$word" != {codec} ] || word=no-{codec}; set -- "$@" "$word"; done',
        f'exec {ffmpeg} "$@"',
    )


def test_error_without_libx264_names_available_encoders(tmp_path: Path) -> None:
    settings = EncoderSettings(ffmpeg=without("libx264", tmp_path / "ffmpeg"))
    with (
        pytest.raises(EncoderError, match="mpeg4"),
        Encoder(tmp_path / "video.mp4", size=(64, 48), fps=25, settings=settings) as encoder,
    ):
        encoder.write(bytes(64 * 48 * 3))


OLD = ("case \"$*\" in *-version*) echo 'ffmpeg version 4.2.2-static Copyright'; exit;; esac",)


@pytest.mark.parametrize("error", [DecoderError, EncoderError])
def test_error_of_an_old_ffmpeg_names_both_versions(tmp_path: Path, error: type[Exception]) -> None:
    # FFmpeg 4.2.2's own words, about an option that it does not know.
    old = script(tmp_path / "ffmpeg", *OLD, "echo \"Unrecognized option 'fps_mode'.\" >&2", "exit 1")
    given = {"size": (64, 48), "fps": 25, "settings": EncoderSettings(ffmpeg=old)}
    with pytest.raises(error, match=r"4\.2\.2"):
        if error is DecoderError:
            with Decoder(clip("h264"), settings=DecoderSettings(ffmpeg=old)) as decoder:
                decoder.read()
        else:
            with Encoder(tmp_path / "video.mp4", **given) as encoder:
                encoder.write(bytes(64 * 48 * 3))


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        *(("4.4.2-0ubuntu0.22.04.1", True), ("n4.4", True), ("5.0.1", True), ("5.1.9-0+deb12u1", False)),
        *(("n7.1", False), ("10.0", False), ("N-109542-g746f1ff36a", False), ("git-2024-01-01", False)),
    ],
)
def test_ffmpeg_older_than_required_is_recognized(version: str, is_old: bool, tmp_path: Path) -> None:
    program = script(tmp_path / "ffmpeg", f"echo 'ffmpeg version {version} Copyright (c) 2000-2023'")
    assert (capabilities.too_old(str(program)) is not None) == is_old


def test_the_ffmpegs_here_are_new_enough(ffmpeg: str) -> None:
    assert capabilities.too_old(ffmpeg) is None


@pytest.mark.parametrize("silent", ["-h encoder=ffv1", "-codecs"])
def test_auto_pixel_format_raises_if_ffmpeg_lists_nothing(tmp_path: Path, silent: str) -> None:
    """A lossless codec would become lossy."""
    lines = f'case "$*" in *"{silent}"*) exit 1 ;; esac', f"exec '{find_ffmpeg()}' \"$@\""
    settings = EncoderSettings(ffmpeg=str(script(tmp_path / "program", *lines)))
    with pytest.raises(EncoderError):
        Encoder(tmp_path / "a.mkv", size=(64, 48), fps=25, codec="ffv1", settings=settings)
    given = {"output_pixel_format": "yuv420p", "settings": settings}
    with Encoder(tmp_path / "a.mkv", size=(64, 48), fps=25, codec="ffv1", **given) as encoder:
        encoder.write(bytes(64 * 48 * 3))
    assert encoder.report is not None and encoder.report.frames_encoded == 1
