"""Arguments are declared once: the signatures, docstrings and TypedDicts that repeat them are written from that."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic

import numpy as np
import pytest

import penstock
from penstock import AudioDecoder, Decoder, Encoder, pipes, rendering, video
from penstock._common.keywords import OF_SOURCE
from penstock._decoding.options import AudioDecodeOptions, DecodeOptions, DecoderOptions
from penstock._encoding.request import EncoderOptions, Request
from scripts import arguments

PACKAGE = Path(penstock.__file__).parent
MODULES = ("penstock", *(f"penstock.{name}" for name in penstock._LAZY_MODULES))
# What passes arguments on, the class that gets them, and the arguments that differ.
FORWARDING = (
    (Encoder.like, Encoder, ()),
    (Decoder.audio, AudioDecoder, ()),
    (penstock.write_video, Encoder, ("fps", "progress")),
    (penstock.read_video, Decoder, ()),
    (video.prefetch, Decoder, ()),
    (penstock.rendering.plan, penstock.render, ()),
    (penstock.rendering.plan_video, penstock.map_video, ()),
)
# Calls as users write them, and what mypy says of the line; None if nothing.
CALLS = {
    'Encoder("a.mp4", fps=30, crf=20)': None,
    'Encoder("a.mp4", fps=30, crff=20)': "call-arg",
    'Encoder("a.mp4", fps=30, crf="20")': "arg-type",
    'Encoder("a.mp4", fps=30, quality="best")': "arg-type",
    'Encoder("a.mp4")': "call-arg",
    'Encoder("a.mp4", 30)': "call-arg",
    'Decoder("a.mp4", size=(None, 240), isolated="strict")': None,
    'Decoder("a.mp4", sizes=(None, 240))': "call-arg",
    'Decoder("a.mp4", fit="crop")': "arg-type",
    'AudioDecoder("a.mp4", dtype="int24")': "arg-type",
    'write_video("a.mp4", [], 30, crf=20)': None,
    'write_video("a.mp4", [], 30, crff=20)': "call-arg",
    'write_video("a.mp4", [], 30, preset=3)': "arg-type",
    'read_video("a.mp4", count="3")': "arg-type",
    'Encoder.like(Decoder("a.mp4"), "b.mp4", fps=None, metadata=None)': None,
    'Encoder.like(Decoder("a.mp4"), "b.mp4", fps="30")': "arg-type",
    'Decoder("a.mp4").audio(channels="mono")': "arg-type",
    'render("s:f", "a.mp4", frames=1, size=(2, 2), fps=1, encoder_options={"crf": 20})': None,
    'render("s:f", "a.mp4", frames=1, size=(2, 2), fps=1, encoder_options={"crff": 20})': "arg-type",
}


def test_sections_are_those_of_the_declarations() -> None:
    assert [path.name for path, wanted in arguments.pages(PACKAGE) if wanted != path.read_text()] == []


@pytest.mark.parametrize(
    ("options", "made", "but"), [(EncoderOptions, Encoder, {"fps"}), (DecoderOptions, Decoder, set())]
)
def test_options_are_the_parameters_of_the_class(options: type, made: type, but: set[str]) -> None:
    parameters = inspect.signature(made).parameters.values()
    named = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    wanted = {name: named[name] for name in named.keys() - but}
    assert {name: one.__forward_arg__ for name, one in typed(options).items()} == wanted


@pytest.mark.parametrize(("function", "made", "but"), FORWARDING)
def test_a_function_that_passes_arguments_on_has_them(
    function: Callable[..., Any], made: Callable[..., Any], but: tuple[str, ...]
) -> None:
    called, passed = (inspect.signature(one).parameters for one in (made, function))
    for name, parameter in called.items():
        if name in passed and parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in but:
            assert passed[name].annotation == parameter.annotation, name
            assert passed[name].default in (parameter.default, OF_SOURCE), name
    is_plan = function.__name__.startswith("plan")
    keywords = {name for name, one in called.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert is_plan or keywords <= passed.keys()


def test_an_argument_that_is_not_given_stays_so_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(OF_SOURCE)) is OF_SOURCE


@pytest.mark.parametrize(
    ("declared", "made"), [(Request, Encoder), (DecodeOptions, Decoder), (AudioDecodeOptions, AudioDecoder)]
)
def test_a_declaration_has_the_arguments_of_its_class(declared: type, made: type) -> None:
    called, asked = (inspect.signature(one).parameters for one in (made, declared))
    # The rate of a source is for headers, and no argument.
    names = [name for name in asked if name != "nominal_fps"]
    assert names == [name for name in called if name != "source"]
    for name in names:
        assert (asked[name].kind, asked[name].default) == (called[name].kind, called[name].default), name


@pytest.mark.linux("Tee")
def test_no_signature_hides_its_options() -> None:
    public = {
        getattr(module, name) for module in (penstock, video, pipes, rendering) for name in module.__all__
    }
    methods = {
        method
        for one in public
        if inspect.isclass(one) and not issubclass(one, np.ndarray | BaseException)
        for name, method in vars(one).items()
        if not name.startswith("_") and callable(getattr(one, name))
    }
    for function in {getattr(one, "__func__", one) for one in public | methods}:
        is_error = inspect.isclass(function) and issubclass(function, BaseException)
        if callable(function) and not is_error:
            kinds = [one.kind for one in inspect.signature(function).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds, function


def public_types() -> Iterator[str]:
    """The paths of all public classes, and of those that are a part of one."""
    for module in map(importlib.import_module, MODULES):
        owners = [(name, getattr(module, name)) for name in module.__all__]
        for name, owner in owners:
            if inspect.isclass(owner):
                yield f"{module.__name__}.{name}" + "[penstock.pipes.PipeReader]" * issubclass(owner, Generic)
                parts = [f"{name}.{part}" for part, found in vars(owner).items() if inspect.isclass(found)]
                yield from (f"{module.__name__}.{part}" for part in parts if "._" not in part)


@pytest.mark.linux("scripts of the sources")
def test_mypy_knows_each_public_type_and_says_what_is_wrong_in_a_users_call(tmp_path: Path) -> None:
    pytest.importorskip("mypy")  # `make test` doesn't install it
    file = tmp_path / "user.py"
    imported = "from penstock import AudioDecoder, Decoder, Encoder, read_video, render, write_video"
    types = [*public_types()]
    assert {"penstock.video.MediaInfo.Video", "penstock.Tee.Output", "penstock.cpu.Topology.Core"} <= {*types}
    modules = [f"import {name}" for name in MODULES]
    annotated = [f"one_{number}: {name}" for number, name in enumerate(types)]
    file.write_text("\n".join([imported, *CALLS, *modules, *annotated, ""]))
    command = [sys.executable, "-m", "mypy", "--strict", "--output=json", str(file)]
    told = subprocess.run(command, cwd=PACKAGE.parents[1], capture_output=True, text=True).stdout
    errors = [json.loads(line) for line in told.splitlines()]
    found = {one["line"]: one["code"] for one in errors if one["file"].endswith("user.py")}
    lines = file.read_text().splitlines()
    wrong = {lines[line - 1]: code for line, code in found.items()}
    assert wrong == {call: code for call, code in CALLS.items() if code}


@pytest.mark.linux("scripts of the sources")
def test_an_option_is_declared_in_one_file(tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, field, dummy in (
        ("_encoding/request.py", "crf", "dummy"),
        ("_decoding/options.py", "count", "dummy"),
        ("rendering/options.py", "chunk_frames", "filler"),
    ):
        option = f'CommandOption("--{dummy} N", "A {dummy}.", least=1)'
        declared = f'    {dummy}: Annotated[int, {option}] = 1\n    """a {dummy}."""\n'
        before, line, after = (package / path).read_text().partition(f"    {field}: Annotated[")
        (package / path).write_text(before + declared + line + after)
    arguments.main(package, check=False)
    files = {one.relative_to(package) for one in package.rglob("*.py")}
    changed = {one.name for one in files if (package / one).read_text() != (PACKAGE / one).read_text()}
    by_hand = {"request.py", "options.py"}
    by_the_script = {"encoder.py", "decoder.py", "prefetching.py", "_whole_videos.py", "api.py"}
    assert changed == by_hand | by_the_script
    ask = """
import inspect, penstock
from click.testing import CliRunner
from penstock._decoding.options import DecoderOptions
from penstock._encoding.request import EncoderOptions
from penstock.cli import penstock_command
for made, options in ((penstock.Encoder, EncoderOptions), (penstock.Decoder, DecoderOptions)):
    parameter = inspect.signature(made).parameters["dummy"]
    assert (parameter.kind.name, parameter.default, parameter.annotation) == ("KEYWORD_ONLY", 1, "int")
    assert "dummy: a dummy.\\n" in inspect.getdoc(made)
    assert "dummy" in options.__annotations__
for function in (penstock.render, penstock.map_video):
    assert inspect.signature(function).parameters["filler"].default == 1
    assert "filler: a filler.\\n" in inspect.getdoc(function)
assert "--filler N" in CliRunner().invoke(penstock_command, ["render", "--help"]).output
for command in ("encode", "decode", "render"):
    assert "--dummy N" in CliRunner().invoke(penstock_command, [command, "--help"]).output
with penstock.Encoder("out.mp4", fps=30, size=(64, 64), dummy=3) as encoder:
    assert encoder._plan.request.dummy == 3
    encoder.write(bytes(64 * 64 * 3))
assert penstock.Decoder("out.mp4", dummy=3)._options.dummy == 3
"""
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ask], env=own, cwd=tmp_path, check=True)


def typed(options: type) -> dict[str, typing.ForwardRef]:
    """The fields of a TypedDict, which has those of its bases."""
    return options.__annotations__
