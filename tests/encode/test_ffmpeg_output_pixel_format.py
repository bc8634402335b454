"""The pixel format of a video, and what is said of what it cannot hold: names, choices, files that are read again."""

from __future__ import annotations

import logging
import re
import subprocess
import warnings
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.cases import UNREHEARSED, a_few, needs
from support.media import needs_ffprobe, picture, probed

from penstock import Decoder, Encoder, EncoderError, FFmpegWarning
from penstock._encoding import output_pixel_format
from penstock._encoding.output_pixel_format import closest, output_format
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock._ffmpeg.command.settings import with_overrides
from penstock._ffmpeg.program import capabilities
from penstock._formats import encoders
from penstock._formats.pixel_formats import pixel_format_of
from penstock.video import Colors, EncoderSettings

PLAYABLE = tuple(name for name in encoders.common() if encoders.known(name).is_playable)

SIZE = (96, 64)
ENDINGS = {
    "libvpx-vp9": "webm",
    "libvpx": "webm",
    "ffv1": "mkv",
    "ffvhuff": "mkv",
    "prores_ks": "mov",
    "gif": "gif",
    "mjpeg": "avi",
    "utvideo": "avi",
    "huffyuv": "avi",
    "png": "mov",
    "qtrle": "mov",
    "apng": "apng",
    "rawvideo": "nut",
    "libx264rgb": "mkv",
    "v210": "mov",
    "magicyuv": "avi",
}


def frame(pixel_format: str) -> np.ndarray:
    """A picture with noise in it, and alpha with a gradient."""
    width, height = SIZE
    dtype = np.uint16 if re.search("48|64|16", pixel_format) else np.uint8
    rgb = picture(SIZE, dtype)
    if pixel_format.startswith("gray"):
        return rgb[..., 0].copy()
    if pixel_format.startswith("rgba"):
        alpha = np.linspace(0, np.iinfo(dtype).max, width).astype(dtype)
        return np.dstack([rgb, np.broadcast_to(alpha, (height, width))])
    return rgb


def encoded(
    ffmpeg: str, folder: Path, codec: str, pixel_format: str, convert: str = "auto", **settings: object
) -> tuple[Path, Encoder]:
    """A video of three frames, and the closed encoder. An `FFmpegWarning` is an error unless it is expected."""
    output = folder / f"video.{ENDINGS.get(codec, 'mp4')}"
    if codec == "libvpx":
        settings = {"options": {"auto-alt-ref": 0}, **settings}  # else it has no alpha, and says so
    with Encoder(
        output,
        size=SIZE,
        fps=30,
        pixel_format=pixel_format,
        codec=codec,
        settings=with_overrides(EncoderSettings(ffmpeg=ffmpeg), convert=convert),
        **settings,
    ) as encoder:
        for _ in range(3):
            if pixel_format.startswith(("rgb", "gray")):
                encoder.write(frame(pixel_format)).wait()
            else:
                encoder.write(bytes(encoder.frame_bytes)).wait()
    return output, encoder


def decoded(ffmpeg: str, path: Path, pixel_format: str, *decoder: str) -> np.ndarray:
    """The first frame of a video, as `frame` has it."""
    arguments = [*decoder, "-i", path, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", pixel_format, "-"]
    done = subprocess.run([ffmpeg, "-v", "error", *arguments], capture_output=True, check=True)
    like = frame(pixel_format)
    return np.frombuffer(done.stdout, like.dtype).reshape(like.shape)


# Names


def test_pixel_format_names_state_alpha_and_bits_as_ffmpeg_does(ffmpeg: str) -> None:
    listed = re.findall(
        r"^[I.][O.]([H.])[P.]([B.]) (\w+) +(\d) +\d+ +(\S+)$",
        capabilities.stdout_of(ffmpeg, "-pix_fmts"),
        re.MULTILINE,
    )
    assert len(listed) > 150
    for hardware, _, name, components, depths in listed:
        found = pixel_format_of(name)
        if hardware == "H":
            assert found is None, name
            continue
        assert found is not None, name
        if name == "pal8":
            assert found.has_alpha  # of its palette
            continue
        assert found.has_alpha == (int(components) % 2 == 0), name
        if not name.startswith("bayer"):  # bits of a mosaic are counted otherwise
            assert found.depth == min(map(int, depths.split("-"))), name


def test_playable_codecs_take_yuv420p_and_are_lossy(ffmpeg: str) -> None:
    for codec in set(PLAYABLE) & set(capabilities.encoders(ffmpeg)):
        assert "yuv420p" in capabilities.encoder_pixel_formats(ffmpeg, codec), codec
        assert not capabilities.is_lossless(ffmpeg, codec), codec


def test_ordinary_encode_does_not_query_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = str(tmp_path / "no program")
    for codec in PLAYABLE:
        for asked in ("auto", "yuv420p", None):
            assert output_format(nobody, codec, {}, "rgb24", asked).name == (asked and "yuv420p")
    with monkeypatch.context() as patch:
        patch.setattr(capabilities, "stdout_of", None)  # which says nothing for a program that is missing
        capabilities.check_option(nobody, "libx264", "crf")
    with pytest.raises(EncoderError):
        output_format(nobody, "libx264", {}, "rgba", "auto")


# Choices


@pytest.mark.parametrize(
    ("codec", "frames", "expected"),
    [
        ("libx264", "gray", "yuv420p"),
        ("libx264rgb", "rgb24", "rgb24"),
        ("libvpx-vp9", "bgra", "yuva420p"),
        ("prores_ks", "rgb24", "yuv422p10le"),
        ("prores_ks", "rgba", "yuva444p10le"),
        ("prores_ks", "yuv420p10le", "yuv422p10le"),
        ("ffv1", "rgb24", "bgr0"),
        ("ffv1", "gray16le", "gray16le"),
        ("ffv1", "rgb48le", "rgb48le"),
        ("png", "rgb48le", "rgb48be"),
        ("png", "yuv420p10le", "rgb48be"),
        ("qtrle", "bgra", "argb"),
        ("huffyuv", "yuv420p", "yuv422p"),
        ("utvideo", "rgba", "gbrap"),
        ("ffvhuff", "rgba64le", "yuva444p16le"),
        ("rawvideo", "rgba64le", "rgba64le"),
        ("mjpeg", "rgb24", "yuv420p"),
    ],
)
def test_auto_drops_nothing_that_the_codec_can_hold(
    ffmpeg: str, codec: str, frames: str, expected: str
) -> None:
    needs(ffmpeg, codec)
    assert output_format(ffmpeg, codec, {}, frames, "auto") == output_pixel_format.OutputFormat(expected)


@pytest.mark.parametrize(
    ("codec", "frames", "chosen", "words"),
    [
        ("libx264", "rgba", "yuv420p", ["alpha is dropped.*'prores_ks'.*'yuv420p'"]),
        ("libx264", "yuva420p", "yuv420p", ["alpha"]),
        ("libx264", "rgb48le", "yuv420p", ["16 bits per sample become 8.*'yuv420p10le' keeps 10"]),
        ("libx264", "yuv420p10le", "yuv420p", ["10 bits per sample become 8.*'yuv420p10le' keeps 10"]),
        ("libx264", "gbrpf32le", "yuv420p", ["32 bits"]),
        ("libx264", "rgba64le", "yuv420p", ["alpha", "16 bits"]),
        ("mpeg4", "gray16le", "yuv420p", ["16 bits.*ffv1 "]),
        ("prores_ks", "rgb48le", "yuv422p10le", [r"16 bits per sample become 10.*ffv1 \(\.mkv\) keeps 16"]),
        ("gif", "rgb24", "pal8", []),
        ("gif", "rgba", "pal8", ["alpha becomes 1 bit"]),
        ("hap", "rgba", "rgba", ["alpha"]),
        ("pgm", "rgb24", "gray", ["colors are dropped"]),
        ("ffv1", "xyz12le", "gbrp12le", [r"XYZ samples become RGB.*'rawvideo' \(\.nut\) keeps"]),
    ],
)
def test_loss_warning_has_the_fix(
    ffmpeg: str, codec: str, frames: str, chosen: str, words: list[str]
) -> None:
    needs(ffmpeg, codec)
    found = output_format(ffmpeg, codec, {}, frames, "auto")
    assert found.name == chosen
    assert len(found.warnings) == len(words)
    for warning, expected in zip(found.warnings, words, strict=True):
        assert re.search(expected, warning)
    assert output_format(ffmpeg, codec, {}, frames, chosen).warnings == (), "it is meant"


def test_prores_profile_sets_the_pixel_format(ffmpeg: str) -> None:
    needs(ffmpeg, "prores_ks")
    for profile, expected in (("4444", "yuv444p10le"), (4, "yuv444p10le"), ("hq", "yuv422p10le")):
        assert output_format(ffmpeg, "prores_ks", {"profile": profile}, "rgb24", "auto").name == expected
    lossy = output_format(ffmpeg, "prores_ks", {"profile": "hq"}, "rgba", "auto")
    assert lossy.name == "yuv422p10le" and "options={'profile': '4444'} keeps it" in lossy.warnings[0]


def test_palette_format_of_the_user_is_kept(ffmpeg: str) -> None:
    options = {"vf": "split[a][b];[a]palettegen[p];[b][p]paletteuse"}
    assert output_format(ffmpeg, "gif", options, "rgb24", "auto") == output_pixel_format.OutputFormat(None)


def test_format_name_without_byte_order_gets_the_byte_order_of_the_codec(ffmpeg: str) -> None:
    assert output_format(ffmpeg, "png", {}, "rgb24", "rgb48").name == "rgb48be"
    assert output_format(ffmpeg, "ffv1", {}, "rgb24", "yuv420p10").name == "yuv420p10le"


# Files


LOSSLESS = [
    *product(["ffv1", "png", "ffvhuff", "rawvideo"], ["rgb24", "rgba", "gray", "gray16le", "rgb48le"]),
    *(("qtrle", "rgba"), ("utvideo", "rgb24"), ("huffyuv", "rgba"), ("huffyuv", "gray")),
    *(("apng", "rgba"), ("apng", "rgb48le"), ("png", "rgba64le"), ("libx264rgb", "rgb24")),
]


@pytest.mark.parametrize(("codec", "pixel_format"), a_few(LOSSLESS, 3))
def test_lossless_codecs_lose_nothing(tmp_path: Path, ffmpeg: str, codec: str, pixel_format: str) -> None:
    needs(ffmpeg, codec)
    crf = 0 if codec == "libx264rgb" else None
    output, encoder = encoded(ffmpeg, tmp_path, codec, pixel_format, crf=crf)
    assert np.array_equal(decoded(ffmpeg, output, pixel_format), frame(pixel_format))
    assert encoder.report is not None and encoder.report.warnings == ()


@pytest.mark.parametrize(
    ("codec", "decoder", "matrix"),
    [
        ("prores_ks", "prores", "bt601"),
        ("prores_ks", "prores", "bt709"),
        ("libvpx-vp9", "libvpx-vp9", "bt601"),
        ("libvpx-vp9", "libvpx-vp9", "bt709"),
        ("libvpx", "libvpx", "bt601"),  # VP8 knows no other
    ],
)
def test_lossy_codecs_keep_alpha_and_colors(
    tmp_path: Path, ffmpeg: str, codec: str, decoder: str, matrix: str
) -> None:
    needs(ffmpeg, codec)
    smooth = frame("rgba")
    smooth[..., :3] = (200, 30, 40)
    output = tmp_path / f"video.{ENDINGS[codec]}"
    options = {"auto-alt-ref": 0} if codec == "libvpx" else {}
    settings = {
        "codec": codec,
        "options": options,
        "colors": Colors(matrix=matrix),
        "settings": EncoderSettings(ffmpeg=ffmpeg),
    }
    with Encoder(output, size=SIZE, fps=30, pixel_format="rgba", **settings) as encoder:
        encoder.write(smooth).wait()
    got = decoded(ffmpeg, output, "rgba", "-c:v", decoder).astype(int)
    assert np.abs(got[..., 3] - smooth[..., 3]).max() <= 16
    assert np.abs(got[..., 3] - smooth[..., 3]).mean() <= 2
    assert np.abs(got[..., :3].mean(axis=(0, 1)) - (200, 30, 40)).max() <= 5
    assert encoder.converted_by == "ffmpeg" and encoder.report is not None and encoder.report.warnings == ()


@pytest.mark.parametrize(
    ("codec", "pixel_format"), [("libx265", "rgba"), ("ffv1", "grayf32le"), ("ffv1", "gbrpf32le")]
)
def test_format_that_ffmpeg_9_lists_but_refuses_is_not_chosen(
    tmp_path: Path, ffmpeg: str, codec: str, pixel_format: str
) -> None:
    needs(ffmpeg, codec)
    settings = {
        "size": SIZE,
        "fps": 30,
        "pixel_format": pixel_format,
        "codec": codec,
        "settings": EncoderSettings(ffmpeg=ffmpeg),
    }
    with pytest.warns(FFmpegWarning), Encoder(tmp_path / "v.mkv", **settings) as encoder:
        encoder.write(bytes(encoder.frame_bytes)).wait()
    assert encoder.close().frames_encoded == 1


@pytest.mark.parametrize(
    ("name", "codec", "pixel_format", "warns"),
    [("v.mkv", "ffv1", "ya16le", False), *(("v.jxl", "libjxl", f"gbr{a}pf32le", True) for a in ("", "a"))],
)
def test_format_that_ffmpeg_9_takes_but_makes_of_no_other_is_not_chosen(
    tmp_path: Path, ffmpeg: str, name: str, codec: str, pixel_format: str, warns: bool
) -> None:
    needs(ffmpeg, codec)
    with (
        pytest.warns(FFmpegWarning, match="bits") if warns else nullcontext(),
        Encoder(
            tmp_path / name,
            size=SIZE,
            fps=30,
            pixel_format=pixel_format,
            codec=codec,
            settings=EncoderSettings(ffmpeg=ffmpeg),
        ) as encoder,
    ):
        encoder.write(bytes(encoder.frame_bytes)).wait()
    assert encoder.close().frames_encoded == 1


def test_half_floats_are_not_chosen_for_integers_of_16_bits() -> None:
    gray, half, colors = map(pixel_format_of, ("ya16le", "yaf16le", "gbrap16le"))
    assert gray is not None and half is not None and colors is not None
    assert closest(gray, [half, colors]) == colors
    assert closest(replace(gray, depth=8), [half, colors]) == half


@pytest.mark.parametrize(
    ("codec", "formats", "colors", "unused"),
    [
        ("libx264rgb", ("rgb24", "auto"), Colors(matrix="bt709", range="limited"), ["matrix", "range"]),
        ("libx264rgb", ("rgb24", "auto"), Colors(range="full"), []),
        ("libx264", ("rgb24", "ffmpeg"), Colors(matrix="bt709", range="full"), ["matrix", "range"]),
        ("ffv1", ("rgb24", "gray"), Colors(matrix="bt709", range="limited"), ["range"]),
        ("mjpeg", ("rgb24", "auto"), Colors(matrix="bt601", range="limited"), ["range"]),
        ("libx264rgb", ("yuv420p", "auto"), Colors(matrix="bt709", range="limited"), []),
        ("libx264", ("rgb24", "auto"), Colors(matrix="bt709", range="limited"), []),
    ],
)
def test_unused_color_arguments_warn(
    codec: str, formats: tuple[str, str], colors: Colors, unused: list[str]
) -> None:
    pixel_format, output = formats
    request = Request(
        "v.mkv", fps=30, codec=codec, pixel_format=pixel_format, output_pixel_format=output, colors=colors
    )
    said = [one for one in plan(request, None).warnings if "Colors" in one]
    expected = [rf"colors=Colors\({name}='.*'\) has no effect on {codec} video" for name in unused]
    assert len(said) == len(expected) and all(map(re.match, expected, said))


@pytest.mark.parametrize(("codec", "matrix"), [("png", "bt709"), ("png", "bt601"), ("libx264rgb", "bt709")])
def test_yuv_becomes_rgb_by_its_own_matrix(tmp_path: Path, ffmpeg: str, codec: str, matrix: str) -> None:
    needs(ffmpeg, codec)
    y, u, v = {"bt709": (73, 115, 202), "bt601": (86, 107, 202)}[matrix]  # (200, 30, 40)
    nbytes = SIZE[0] * SIZE[1]
    planes = bytes([y]) * nbytes + bytes([u]) * (nbytes // 4) + bytes([v]) * (nbytes // 4)
    output = tmp_path / "video.mkv"
    settings = {
        "codec": codec,
        "pixel_format": "yuv420p",
        "colors": Colors(matrix=matrix),
        "settings": EncoderSettings(ffmpeg=ffmpeg),
    }
    with Encoder(output, size=SIZE, fps=30, **settings) as encoder:
        encoder.write(planes).wait()
    got = decoded(ffmpeg, output, "rgb24").mean(axis=(0, 1))
    assert np.abs(got - (200, 30, 40)).max() <= 3


# What FFmpeg chooses for None


@needs_ffprobe
@pytest.mark.parametrize(
    ("pixel_format", "codec"),
    a_few(
        product(
            ["rgba", "rgb48le", "rgba64le"],
            ["libx264", "mpeg4", "prores_ks", "ffv1", "png", "qtrle", "utvideo"],
        )
    ),
)
def test_ffmpegs_own_choice_drops_only_what_the_report_names(
    tmp_path: Path, ffmpeg: str, pixel_format: str, codec: str
) -> None:
    needs(ffmpeg, codec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FFmpegWarning)
        output, encoder = encoded(ffmpeg, tmp_path, codec, pixel_format, output_pixel_format="ffmpeg")
    source, stream = pixel_format_of(pixel_format), probed(output)
    got = pixel_format_of(stream["pix_fmt"])
    assert source is not None and got is not None and encoder.report is not None
    has_alpha = got.has_alpha or stream.get("tags", {}).get("alpha_mode") == "1"  # type: ignore[attr-defined]
    said = "\n".join(encoder.report.warnings)
    assert has_alpha or not source.has_alpha or "alpha" in said
    assert got.depth >= source.depth or "bits" in said


# What is said of it, and what FFmpeg says


def test_a_loss_is_a_warning_at_the_call_and_in_the_report(tmp_path: Path, ffmpeg: str) -> None:
    given = {"pixel_format": "rgba", "codec": "mpeg4", "settings": EncoderSettings(ffmpeg=ffmpeg)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FFmpegWarning)
        with pytest.raises(FFmpegWarning):
            Encoder(tmp_path / "v.mp4", size=SIZE, fps=30, **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(FFmpegWarning) as caught:
        encoder = Encoder(tmp_path / "v.mp4", size=SIZE, fps=30, **given)  # type: ignore[arg-type]
    assert caught[0].filename == __file__, "the caller's line"
    with encoder:
        encoder.write(frame("rgba")).wait()
        assert encoder.report is None
    assert encoder.report is encoder.close()
    assert encoder.report.warnings == (str(caught[0].message),)


ORDINARY = (
    *("libx264", "libx264rgb", "libx265", "libvpx-vp9", "libvpx", "libsvtav1", "libaom-av1", "mpeg4"),
    *("mjpeg", "prores_ks", "ffv1", "rawvideo", "png", "apng", "qtrle", "utvideo", "huffyuv"),
)


@pytest.mark.parametrize(("convert", "codec"), a_few(product(("auto", "ffmpeg"), ORDINARY), 4))
def test_ordinary_encode_does_not_warn(tmp_path: Path, ffmpeg: str, convert: str, codec: str) -> None:
    needs(ffmpeg, codec)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FFmpegWarning)
        _, encoder = encoded(ffmpeg, tmp_path, codec, "rgb24", convert=convert)
    assert encoder.report is not None and encoder.report.warnings == ()


@pytest.mark.parametrize(
    ("container", "ending"),
    a_few(
        [
            *(("mp4", "mp4"), ("matroska", "mkv"), ("mov", "mov"), ("mpegts", "ts"), ("flv", "flv")),
            *(("nut", "nut"), ("avi", "avi"), ("hls", "m3u8"), ("h264", "h264"), ("mpeg", "mpg")),
        ],
        3,
    ),
)
def test_an_ordinary_container_has_no_warning(
    tmp_path: Path, ffmpeg: str, container: str, ending: str
) -> None:
    codec = "mpeg2video" if container == "mpeg" else "libx264"
    needs(ffmpeg, codec)
    settings = {"codec": codec, "options": {"f": container}, "settings": EncoderSettings(ffmpeg=ffmpeg)}
    with Encoder(tmp_path / f"video.{ending}", size=SIZE, fps=30, **settings) as encoder:
        for _ in range(40):
            encoder.write(frame("rgb24")).wait()
    assert encoder.report is not None and encoder.report.warnings == ()


def test_unused_option_is_reported_and_logged(
    tmp_path: Path, ffmpeg: str, caplog: pytest.LogCaptureFixture
) -> None:
    needs(ffmpeg, "libx264")
    with caplog.at_level(logging.WARNING, "penstock"):
        _, encoder = encoded(ffmpeg, tmp_path, "libx264", "rgb24", options={"cq": 20})
    assert encoder.report is not None
    [warning] = encoder.report.warnings
    assert "cq" in warning and "has not been used" in warning and "0x" not in warning
    assert [(record.name, record.levelname) for record in caplog.records] == [("penstock", "WARNING")]
    assert warning in caplog.text


def test_error_keeps_warnings_apart_from_ffmpegs_output(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "libx264")
    with pytest.raises(EncoderError) as caught:
        encoded(ffmpeg, tmp_path, "libx264", "rgb24", options={"cq": 20, "profile": "nonsense"})
    assert "has not been used" in str(caught.value)
    assert "has not been used" not in caught.value.stderr
    assert "nonsense" in caught.value.stderr
    assert not re.search(r"^(?:\[.* @ .*\] )?\[(?:error|fatal)\]", caught.value.stderr, re.MULTILINE)


# Arguments that are options


def test_crf_and_preset_reach_the_encoder(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "libx264")
    sizes = []
    for crf in (10, 40.5, np.float32(40.5)):
        _, encoder = encoded(ffmpeg, tmp_path, "libx264", "rgb24", crf=crf, preset="ultrafast")
        sizes.append(encoder.close().output_bytes)
    assert sizes[0] > sizes[1] == sizes[2]


@pytest.mark.parametrize(
    ("codec", "given", "error", "word"),
    [
        ("libx264", {"crf": 20, "options": {"crf": 18}}, ValueError, "exclude"),
        ("libx264", {"crf": 20.5, "options": {"crf:v": 20}}, ValueError, "exclude"),
        ("libx264", {"crf": "20"}, TypeError, "'20'"),
        ("libx264", {"options": {"pix_fmt": "yuv444p"}}, ValueError, "output_pixel_format='yuv444p'"),
        ("libx264", {"options": {"pix_fmt:v": "yuv444p"}}, ValueError, "output_pixel_format='yuv444p'"),
        ("mpeg4", {"crf": 20}, ValueError, "q:v"),
        ("mpeg4", {"preset": "fast"}, ValueError, "preset"),
        ("mpeg4", {"output_pixel_format": "yuva420p"}, ValueError, "mpeg4"),
        ("mpeg4", {"output_pixel_format": "nonsense"}, ValueError, "mpeg4"),
        ("png", {"output_pixel_format": "yuv420p"}, ValueError, "png"),
        ("prores_ks", {"output_pixel_format": "yuv420p"}, ValueError, "prores_ks"),
    ],
    ids=str,
)
def test_argument_that_the_codec_lacks_or_that_is_given_twice_raises_at_the_call(
    tmp_path: Path, ffmpeg: str, codec: str, given: dict[str, object], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        encoded(ffmpeg, tmp_path, codec, "rgb24", **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "pixel_format", "is_held"),
    [
        ("v.avi", "rgba", True),
        ("v.mov", "rgba", True),
        ("v.avi", "rgb24", False),
        ("v.mov", "rgb48le", False),
        ("v.mkv", "rgb24", False),
    ],
)
def test_raw_video_is_the_picture_or_is_refused(
    tmp_path: Path, name: str, pixel_format: str, is_held: bool
) -> None:
    """AVI takes RGB for BGR, and Matroska has neither."""
    layout = frame_layout(pixel_format, 16, 8)
    frame = np.zeros(layout.shape, layout.dtype)
    frame[:, :, 0] = np.iinfo(layout.dtype).max
    encode = {"size": (16, 8), "fps": 30, "codec": "rawvideo", "pixel_format": pixel_format}
    if not is_held:
        with pytest.raises((ValueError, EncoderError)):
            Encoder(tmp_path / name, **encode)
        return
    with Encoder(tmp_path / name, **encode) as encoder:
        encoder.write(frame)
    with Decoder(tmp_path / name) as decoder:
        np.testing.assert_array_equal(next(iter(decoder))[4, 8], [255, 0, 0])


def test_nonfatal_ffmpeg_error_is_in_the_report(tmp_path: Path) -> None:
    options = {
        "codec": "rawvideo",
        "pixel_format": "rgb48le",
        "output_pixel_format": "rgb48le",
        "settings": UNREHEARSED,
    }
    with Encoder(tmp_path / "v.avi", size=(16, 8), fps=30, **options) as encoder:  # type: ignore[arg-type]
        encoder.write(np.zeros((8, 16, 3), np.uint16))
    assert encoder.report is not None
    assert any("unreadable" in warning for warning in encoder.report.warnings)


@needs_ffprobe
def test_vp8_has_alpha_by_default(tmp_path: Path) -> None:
    frame = np.zeros((16, 32, 4), np.uint8)
    frame[..., 3] = 128
    with Encoder(tmp_path / "v.webm", size=(32, 16), fps=30, codec="libvpx", pixel_format="rgba") as encoder:
        encoder.write(frame)
    with Decoder(tmp_path / "v.webm", pixel_format="rgba") as decoder:
        assert abs(int(next(iter(decoder))[8, 16, 3]) - 128) <= 2
