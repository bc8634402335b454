"""Plans of renders as JSON: what comes back of it, and what is refused before it is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.renders import FAST, scene, settings

import penstock
from penstock._common.plain import from_plain, to_json
from penstock._encoding.request import Request
from penstock.rendering import Plan, plan, plan_video
from penstock.video import Colors, EncoderSettings

DISPLAY = Colors.MasteringDisplay((0.68, 0.32), (0.265, 0.69), (0.15, 0.06), (0.3127, 0.329), (0.005, 1000.0))


def test_a_request_comes_back_from_its_json() -> None:
    request = Request(
        "out.mp4",
        fps=Fraction(30000, 1001),
        size=(64, 48),
        value_range=(-1.0, 1.0),
        channels_first=True,
        crf=20.5,
        options={"g": 60, "map": ["0:v", "0:a"], "an": None},
        colors=Colors("bt2020", mastering_display=DISPLAY, content_light=Colors.ContentLight(1000, 400)),
        chapters=((0.0, "Intro"), (5.0, "End")),
        settings=EncoderSettings(queue_items=2, stall_timeout=None),
    )
    assert from_plain(Request, json.loads(to_json(request))) == request
    plain = Request("out.mp4", fps=None)
    assert from_plain(Request, json.loads(to_json(plain))) == plain


def test_a_plan_has_the_encoder_that_was_asked_for_on_other_machines(tmp_path: Path) -> None:
    asked = {"colors": Colors("bt709", "full"), "settings": EncoderSettings(queue_items=2), "odd_size": "pad"}
    planned = plan(scene, **settings(tmp_path, size=(65, 49), fps=29.97, encoder_options=FAST | asked))
    there = Plan.from_json(planned.to_json())
    assert there == planned and there.hash == planned.hash
    assert (there.size, there.fps, there.codec) == ((65, 49), Fraction(2997, 100), "libx264")
    for name, value in (FAST | asked).items():
        assert getattr(there.request, name) == value
    others: list[dict[str, Any]] = [{"colors": Colors("bt709")}, {"preset": "fast"}, {"crf": 20}]
    hashes = {
        plan(scene, **settings(tmp_path, size=(65, 49), encoder_options=FAST | asked | other)).hash
        for other in others
    }
    assert len(hashes | {planned.hash}) == 4


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    text = plan(scene, **settings(tmp_path)).to_json()
    with pytest.raises(ValueError, match="version"):
        Plan.from_json(json.dumps(json.loads(text) | {"version": 1}))


def test_a_render_without_a_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="size"):
        plan(scene, **settings(tmp_path, size=None))


@pytest.mark.parametrize("call", [plan, plan_video, penstock.render, penstock.map_video])
def test_an_argument_of_the_encoder_is_named_among_those_of_the_encoder(call: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"encoder_options=\{'crf'"):
        call(scene, "output.mp4", crf=20)
    with pytest.raises(TypeError, match="chunk_frames"):
        call(scene, "output.mp4", chunk_frame=20)


def test_audio_and_other_arguments_of_the_call_are_refused_among_those_of_the_encoder(tmp_path: Path) -> None:
    for name, value in (
        ("audio", "sound.wav"),
        ("size", (64, 48)),
        ("subtitles", "a.srt"),
        ("progress", True),
    ):
        with pytest.raises(ValueError, match=name):
            plan(scene, **settings(tmp_path, encoder_options={name: value}))
