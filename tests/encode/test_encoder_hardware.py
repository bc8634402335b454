"""``codec="auto-h264"`` and the like: the hardware's encoder where one works, and else the software's.

Where an encoder of hardware has to work, FFmpeg is a script that has the real FFmpeg encode by libx264 in its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cases import a_few, needs
from support.command_line import printed, run
from support.media import decode, flat, is_flat
from support.processes import script
from support.renders import mapped

from penstock import Encoder, EncoderError, rendering
from penstock._encoding import encoders
from penstock._encoding.plan import plan
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import Request
from penstock.video import Colors, EncodeReport, EncoderSettings

# SVT-AV1 has no fewer lines.
SIZE = WIDTH, HEIGHT = 96, 64
FRAMES = 3
SOFTWARE = {"auto-h264": "libx264", "auto-hevc": "libx265", "auto-av1": "libsvtav1"}

Working = Callable[[str], EncoderSettings]


@pytest.fixture
def working(tmp_path: Path, ffmpeg: str) -> Working:
    """Makes an FFmpeg in which an encoder works. It writes its arguments to the file ``runs``."""

    def made(codec: str) -> EncoderSettings:
        needs(ffmpeg, codec)
        lines = (
            f'echo "$*" >> {shlex.quote(str(tmp_path / "runs"))}',
            'for one; do shift; case "$one" in',
            f'    {codec}) set -- "$@" libx264 -preset ultrafast;;',
            '    *) set -- "$@" "$one";;',
            "esac; done",
            f'exec {shlex.quote(ffmpeg)} "$@"',
        )
        return EncoderSettings(ffmpeg=str(script(tmp_path / "ffmpeg", *lines)))

    return made


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines() if (folder / "runs").exists() else []


def trials(folder: Path) -> list[str]:
    return [one for one in runs(folder) if "/rehearsal." in one]


def encoded(output: Path, **arguments: Any) -> EncodeReport:
    with Encoder(output, **{"fps": 30, "size": SIZE, **arguments}) as encoder:
        for number in range(FRAMES):
            encoder.write(flat(number, SIZE))
    frames = decode(output, SIZE)
    assert len(frames) == FRAMES and all(is_flat(frame, number) for number, frame in enumerate(frames))
    return encoder.close()


def names(skipped_encoders: tuple[str, ...]) -> list[str]:
    """The encoders that the sentences begin with."""
    return [one.partition(" ")[0].removesuffix(":") for one in skipped_encoders]


@pytest.mark.parametrize("codec", a_few(SOFTWARE, 3))
def test_auto_codec_uses_software_without_hardware(
    tmp_path: Path, ffmpeg: str, codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    report = encoded(tmp_path / "a.mp4", codec=codec, settings=EncoderSettings(ffmpeg=ffmpeg))
    if report.codec in encoders.hardware_encoders(codec):
        pytest.skip(f"{report.codec} works here")
    assert (report.codec, report.warnings) == (SOFTWARE[codec], ())
    assert names(report.skipped_encoders) == [*encoders.hardware_encoders(codec)]
    assert not any("\n" in one or "[" in one for one in report.skipped_encoders)
    assert f"the encoder is {'; '.join([report.codec, *report.skipped_encoders])}" in caplog.messages


def test_first_working_hardware_encoder_is_used(tmp_path: Path, working: Working) -> None:
    report = encoded(tmp_path / "a.mp4", codec="auto-h264", settings=working("h264_nvenc"))
    assert (report.codec, report.skipped_encoders, report.warnings) == ("h264_nvenc", (), ())
    assert "-c:v h264_nvenc" in runs(tmp_path)[-1]


def test_failing_hardware_encoder_is_skipped(tmp_path: Path, working: Working) -> None:
    report = encoded(tmp_path / "a.mp4", codec="auto-h264", settings=working("h264_qsv"))
    if report.codec == "h264_nvenc":
        pytest.skip("h264_nvenc works here")
    assert (report.codec, names(report.skipped_encoders)) == ("h264_qsv", ["h264_nvenc"])


def test_trial_encodes_once_per_size_and_options(tmp_path: Path, working: Working) -> None:
    settings, options = working("h264_nvenc"), {"g": 7}
    for _ in range(2):
        encoded(tmp_path / "a.mp4", codec="auto-h264", options=options, settings=settings)
    [trial] = trials(tmp_path)
    for part in (f"-video_size {WIDTH}x{HEIGHT}", "-framerate 30/1", "-pix_fmt yuv420p", "-g 7"):
        assert part in trial
    encoded(tmp_path / "a.mp4", codec="auto-h264", options={"g": 8}, settings=settings)
    assert len(trials(tmp_path)) == 2


def test_other_codecs_start_no_trial(tmp_path: Path, working: Working) -> None:
    settings = working("h264_nvenc")
    for codec in ("auto", "libx264"):
        assert encoded(tmp_path / "a.mp4", codec=codec, settings=settings).skipped_encoders == ()
    assert len(runs(tmp_path)) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_trial_uses_the_size_of_the_first_frame(tmp_path: Path, working: Working, is_async: bool) -> None:
    encoder = Encoder(tmp_path / "a.mkv", fps=None, codec="auto-h264", settings=working("h264_nvenc"))
    assert trials(tmp_path) == []
    with encoder:
        for number in range(FRAMES):
            frame, pts = flat(number, SIZE), number / 10
            if is_async:
                asyncio.run(encoder.awrite(frame, time_s=pts))
            else:
                encoder.write(frame, time_s=pts)
    assert encoder.close().codec == "h264_nvenc"
    assert len(trials(tmp_path)) == 1


@pytest.mark.parametrize(
    ("asked", "reason"),
    a_few(
        [
            ({"crf": 20}, "h264_qsv has no crf"),
            ({"quality": "good"}, "h264_qsv has no quality='good'"),
            ({"output_pixel_format": "yuv422p"}, "h264_qsv has no pixel format 'yuv422p'"),
            # Of libx264, which stands for it.
            ({"options": {"cq": 20}}, "h264_qsv: it has no option cq"),
        ],
        3,
    ),
)
def test_hardware_encoder_without_a_requested_feature_is_skipped(
    tmp_path: Path, working: Working, asked: dict[str, Any], reason: str
) -> None:
    report = encoded(tmp_path / "a.mp4", codec="auto-h264", settings=working("h264_qsv"), **asked)
    assert report.codec == "libx264"
    assert reason in report.skipped_encoders


def test_software_preset_skips_hardware_encoders(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "h264_nvenc")
    report = encoded(
        tmp_path / "a.mp4", codec="auto-h264", preset="veryfast", settings=EncoderSettings(ffmpeg=ffmpeg)
    )
    assert "veryfast" in report.skipped_encoders[0]


def test_lossless_rgb_uses_libx264rgb(tmp_path: Path, ffmpeg: str) -> None:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    report = encoded(tmp_path / "a.mkv", codec="auto-h264", quality="lossless", settings=settings)
    assert report.codec == "libx264rgb"
    assert all("has no quality='lossless'" in one or "not in this" in one for one in report.skipped_encoders)


@pytest.mark.slow
def test_hanging_hardware_encoder_is_skipped(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "h264_nvenc")
    hang = 'case "$*" in *"-c:v h264_nvenc"*) exec sleep 60;; esac'
    program = script(tmp_path / "ffmpeg", hang, f'exec {shlex.quote(ffmpeg)} "$@"')
    report = encoded(tmp_path / "a.mp4", codec="auto-h264", settings=EncoderSettings(ffmpeg=str(program)))
    assert "couldn't be tried" in report.skipped_encoders[0]


def test_unknown_auto_codec_is_refused(tmp_path: Path) -> None:
    for name in ("auto-vp9", "auto-", "auto-libx264"):
        with pytest.raises(ValueError):
            Encoder(tmp_path / "a.mp4", fps=30, size=SIZE, codec=name)
    given = {"frames": 3, "size": SIZE, "fps": 30, "output": tmp_path / "a.mp4"}
    with pytest.raises(TypeError):
        rendering.plan("math:sin", **given, encoder_options={"codec": None})


def test_auto_codec_must_fit_the_container(tmp_path: Path) -> None:
    with pytest.raises(EncoderError):
        Encoder(tmp_path / "a.webm", fps=30, size=SIZE, codec="auto-h264")
    request = Request(tmp_path / "a.webm", fps=30, codec="auto-av1")
    assert plan(request, None).codec in ("libsvtav1", "libaom-av1")


def test_hdr_skips_hardware_encoders_that_write_no_tags(tmp_path: Path, ffmpeg: str) -> None:
    needs(ffmpeg, "hevc_nvenc")
    light = Colors(matrix="bt2020", transfer="smpte2084", content_light=Colors.ContentLight(1000, 400))
    request = Request(
        tmp_path / "a.mp4",
        fps=30,
        pixel_format="rgb48le",
        codec="auto-hevc",
        colors=light,
        settings=EncoderSettings(ffmpeg=ffmpeg),
    )
    made = working_plan(request, SIZE)
    assert made.codec == "libx265"
    nvenc = made.skipped_encoders[0]
    assert nvenc.startswith("hevc_nvenc: ") or "content_light" in nvenc  # FFmpeg 9 has them for every codec


def test_render_uses_one_encoder_for_all_chunks(tmp_path: Path, working: Working) -> None:
    encoder = {"codec": "auto-h264", "settings": working("h264_nvenc")}
    encoded(tmp_path / "in.mp4")
    files = tmp_path / "in.mp4", tmp_path / "a.mp4"
    assert rendering.plan_video(None, *files, encoder_options=encoder).codec == "h264_nvenc"
    mapped(*files, encoder_options=encoder)
    assert len(decode(files[1], SIZE)) == FRAMES
    assert len(trials(tmp_path)) == 1


@pytest.mark.parametrize(
    "codecs", [("auto-h264",), pytest.param(encoders.AUTO_CODECS, marks=pytest.mark.exhaustive)]
)
def test_info_shows_the_encoder_of_each_auto_codec(
    tmp_path: Path, working: Working, monkeypatch: pytest.MonkeyPatch, codecs: tuple[str, ...]
) -> None:
    monkeypatch.setattr("penstock.cli.machine.AUTO_CODECS", codecs)
    environment = os.environ | {"PENSTOCK_FFMPEG": str(working("h264_nvenc").ffmpeg), "COLUMNS": "400"}
    found = json.loads(printed(run("info", "--json", env=environment)))["ffmpeg"]["auto"]
    assert [*found] == [*codecs]
    assert found["auto-h264"] == {"encoder": "h264_nvenc", "skipped_encoders": []}
    text = printed(run("info", env=environment))
    for codec, chosen in found.items():
        assert f"{codec}: {'; '.join([chosen['encoder'], *chosen['skipped_encoders']])}\n" in text
