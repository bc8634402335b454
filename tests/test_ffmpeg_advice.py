"""Advice for the messages of an FFmpeg that fails, with every FFmpeg of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.cases import needs

from penstock._encoding.advice import explain
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.arguments import input_arguments, output_arguments
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import frame_layout

LAYOUT = frame_layout("yuv420p", 64, 48)
NO_ADVICE = "none"
FRAMES = bytes(10 * LAYOUT.frame_bytes)


def explained(
    ffmpeg: str,
    stderr: str,
    codec: str = "mpeg4",
    options: Mapping[str, object] | None = None,
    container_format: str | None = None,
    target: str = "file:/v.mp4",
) -> str:
    """The advice for the messages of an FFmpeg that was run for that, or `NO_ADVICE`."""
    output = Output(target, container_format)
    made = plan(Request("v.mp4", fps=30), None)
    return (
        explain(replace(made, program=ffmpeg, output=output, options=options or {}, codec=codec), stderr)
        or NO_ADVICE
    )


def advice(
    ffmpeg: str,
    output: str | Path = "/dev/null",
    codec: str = "mpeg4",
    container_format: str | None = "matroska",
    pixel_format: str | None = "yuv420p",
    **options: object,
) -> str:
    """Runs an FFmpeg that must fail, and returns the advice."""
    target = output if "://" in str(output) else f"file:{output}"
    arguments = [
        *input_arguments(LAYOUT, Fraction(30)),
        *output_arguments(Output(str(target), container_format), codec, pixel_format, options),
    ]
    program = [ffmpeg, "-hide_banner", "-nostats", "-loglevel", "error", "-xerror"]
    done = subprocess.run([*program, *arguments], input=FRAMES, capture_output=True, check=False, timeout=60)
    stderr = done.stderr.decode(errors="replace")
    assert done.returncode != 0, stderr
    return explained(ffmpeg, stderr, codec, options, container_format, str(target))


IN_MP4 = {"output": "video.mp4", "container_format": None}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        # Names.
        ({"codec": "libx246"}, "'libx264'"),
        ({"codec": "aac"}, "aac"),
        ({"qscael": 1}, "'qscale'"),
        ({"pixfmt": 1}, "'pix_fmt'"),
        ({"vff": 1}, "'vf'"),
        ({"qscal:v": 3}, "'qscale'"),
        ({**IN_MP4, "movflag": "faststart"}, "'movflags'"),
        ({"container_format": "matroksa"}, "'matroska'"),
        ({"container_format": "mkv"}, "'matroska'"),
        ({"output": "video", "container_format": None}, ".mp4"),
        ({"shortest": 1}, "'shortest': None"),
        ({"pixel_format": "yuv402p"}, "'yuv420p'"),
        ({"vf": "vflip,sacle"}, "'scale'"),
        ({"vf": "[in]sacle=w=3[out]"}, "'scale'"),
        ({"vf": "scale=widht=4:h=4"}, "'width'"),
        # Values.
        ({"b:v": "lots"}, "int64"),
        ({"mpv_flags": "skip_dr"}, "'skip_rd'"),
        ({"brd_scale": 7}, "0 to 3"),
        ({"colorspace": "bt790"}, "'bt709'"),
        ({"codec": "libx264", "preset": "fats"}, "'fast'"),
        ({"codec": "libx264", "tune": "gran"}, "'grain'"),
        ({"codec": "libx265", "preset": "fats"}, "'fast'"),
        # What does not go together.
        ({"codec": "ffv1", "container_format": "webm"}, "ffv1"),
        ({"codec": "libvpx-vp9", "output": "v.mov", "container_format": None}, ".mkv"),
        ({"codec": "libx264", "vf": "scale=63:47"}, "odd_size='pad'"),
        ({"codec": "avui", "pixel_format": "uyvy422"}, "'strict': 'experimental'"),
        # Places.
        (
            {"output": "tcp://127.0.0.1:9", "container_format": "mpegts"},
            "nothing listens at tcp://127.0.0.1:9",
        ),
    ],
    ids=str,
)
def test_errors_of_ffmpeg_get_advice(ffmpeg: str, tmp_path: Path, given: dict[str, Any], word: str) -> None:
    needs(ffmpeg, *{given.get("codec")} & {"libx264", "libx265", "libvpx-vp9"})
    if given.get("codec") == "avui":
        needs(ffmpeg, "vc2")
    if "output" in given and "://" not in given["output"]:
        given = given | {"output": tmp_path / given["output"]}
    said = advice(ffmpeg, **given)
    assert word in said and "\n" not in said


# Names


def test_advice_names_the_smallest_picture() -> None:
    said = "Svt[error]: Instance 1: Source Width must be at least 64"
    assert "64x64" in explained("ffmpeg", said, "libsvtav1")


def test_advice_names_the_audio_that_a_container_cannot_hold() -> None:
    said = "Could not find tag for codec pcm_s16le in stream #1, codec not currently supported in container"
    assert "pcm_s16le audio" in explained("ffmpeg", said, "libx264")


def test_advice_reads_colored_messages() -> None:
    said = explained("/missing/ffmpeg", "\x1b[4;31mUnknown encoder '\x1b[0mx'\x1b[0m")
    assert "'x'" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [({"c:a": "acc"}, "'aac'"), ({"c:a": ["aac", "acc"]}, "'acc'"), ({"c:s": "acc"}, NO_ADVICE)],
)
def test_advice_names_the_option_of_an_unknown_audio_encoder(
    ffmpeg: str, options: dict[str, str], words: str
) -> None:
    assert words in explained(ffmpeg, "Unknown encoder 'acc'", options=options)


# Values


def test_advice_shortens_long_lists_of_values(ffmpeg: str, tmp_path: Path) -> None:
    said = advice(ffmpeg, tmp_path / "video.mp4", container_format=None, movflags="fststart")
    assert "'faststart'" in said and said.endswith(", and others")
    assert len(said) < 400


# What does not go together


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"t": 60}, "{'t': 60}"),
        ({"g": 1, "frames:v": 60, "vf": "hflip"}, "{'frames:v': 60}"),
        ({"vf": "fps=60", "g": 1}, "{'vf': 'fps=60'}"),
        ({"t": 1, "frames:v": 1}, "{'frames:v': 1}"),
        ({"t": 60}, "fps="),
        ({"g": 1}, NO_ADVICE),
    ],
)
def test_advice_explains_a_different_number_of_frames(options: dict[str, object], left_out: str) -> None:
    ended = "FFmpeg encoded 20 of 10 frames and ended with exit code 0"
    assert left_out in explained("/missing/ffmpeg", f"\n{ended}", options=options)
    for other in (ended.replace("20", "10"), ended.replace("code 0", "code 1")):
        assert explained("/missing/ffmpeg", other, options=options) == NO_ADVICE


def test_advice_explains_a_container_that_cannot_be_streamed(ffmpeg: str) -> None:
    said = advice(ffmpeg, "tcp://127.0.0.1:9", container_format="mp4")
    assert "nothing listens" in said  # the first of its two troubles
    color = ("-f", "lavfi", "-i", "color", "-t", "1", "-c:v", "mpeg4", "-f", "mp4", "pipe:1")
    done = subprocess.run([ffmpeg, "-v", "error", *color], capture_output=True, check=False)
    said = explained(ffmpeg, done.stderr.decode(), container_format="mp4", target="pipe:1")
    assert said.startswith("mp4 can't") and "crash_safe=True" in said


def test_advice_names_an_experimental_audio_encoder(ffmpeg: str) -> None:
    words = "The encoder 'opus' is experimental but experimental codecs are not enabled"
    assert "opus" in explained(ffmpeg, words, options={"c:a": "opus"})


def test_advice_explains_missing_hardware(ffmpeg: str) -> None:
    needs(ffmpeg, "h264_nvenc")
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is an NVIDIA GPU")
    assert "GPU" in advice(ffmpeg, codec="h264_nvenc")


# Places


def test_unknown_messages_get_no_advice() -> None:
    assert explained("/missing/ffmpeg", "") == NO_ADVICE
    assert explained("/missing/ffmpeg", "Conversion failed!\nOh dear") == NO_ADVICE


@pytest.mark.parametrize(
    "stderr",
    [
        "Unknown encoder 'libx246'",
        "Unrecognized option 'crff'.",
        "Requested output format 'mkv' is not known.",
        "Unknown pixel format requested: rgb.",
        "Error setting option crf to value abc.",
        "No such filter: 'sacle'",
    ],
)
def test_advice_works_without_listings(stderr: str) -> None:
    assert explained("/missing/ffmpeg", stderr, "libx264")
