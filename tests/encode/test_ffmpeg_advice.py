"""Advice for the messages of an FFmpeg that fails, with every FFmpeg of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import needs

from penstock import write_video
from penstock._encoding.advice import explain
from penstock._encoding.plan import plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.arguments import input_arguments, output_arguments
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import frame_layout
from penstock.errors import EncoderError
from penstock.video import EncoderSettings

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
        # Values.
        ({"b:v": "lots"}, "int64"),
        ({"mpv_flags": "skip_dr"}, "'skip_rd'"),
        ({"brd_scale": 7}, "0 to 3"),
        ({"colorspace": "bt790"}, "'bt709'"),
        ({"codec": "libx264", "preset": "fats"}, "'fast'"),
        ({"codec": "libx264", "tune": "gran"}, "'grain'"),
        ({"codec": "libx265", "preset": "fats"}, "'fast'"),
    ],
    ids=str,
)
def test_errors_of_ffmpeg_get_advice(ffmpeg: str, tmp_path: Path, given: dict[str, Any], word: str) -> None:
    needs(ffmpeg, *{given.get("codec")} & {"libx264", "libx265"})
    if "output" in given and "://" not in given["output"]:
        given = given | {"output": tmp_path / given["output"]}
    said = advice(ffmpeg, **given)
    assert word in said and "\n" not in said


# Names


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


# Places


def test_unknown_messages_get_no_advice() -> None:
    assert explained("/missing/ffmpeg", "") == NO_ADVICE
    assert explained("/missing/ffmpeg", "Conversion failed!\nOh dear") == NO_ADVICE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"codec": "ffv1", "options": {"f": "webm"}}, "Only VP8 or VP9"),
        ({"options": {"vf": "sacle=w=3"}}, "No such filter: 'sacle'"),
        ({"options": {"f": "matroksa"}}, "'matroksa' is not"),
    ],
    ids=str,
)
def test_what_ffmpeg_says_by_itself_is_quoted(
    ffmpeg: str, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    with pytest.raises(EncoderError) as caught:
        write_video(tmp_path / "v.mkv", [np.zeros((48, 64, 3), np.uint8)], 30, **options, settings=settings)
    assert caught.value.advice is None and words in str(caught.value)


@pytest.mark.parametrize(
    "stderr",
    [
        "Unknown encoder 'libx246'",
        "Unrecognized option 'crff'.",
        "Error setting option crf to value abc.",
    ],
)
def test_advice_works_without_listings(stderr: str) -> None:
    assert explained("/missing/ffmpeg", stderr, "libx264")
