"""Counts, sizes and times: whatever is given for one, the call takes it or says ValueError or TypeError, and lives."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import importlib
import inspect
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.cases import examples
from support.clips import clip
from support.stub import FUNCTIONS

import penstock
from penstock import AudioDecoder, Decoder, Encoder, Pipeline, _native, fifo, probe
from penstock.pipeline import Sink, Source, Stage
from penstock.video import AudioTrack, DecoderSettings, EncoderSettings, prefetch

MODULES = (
    "penstock",
    "penstock.pipeline",
    "penstock.pipes",
    "penstock.fifo",
    "penstock.cpu",
    "penstock.video",
)
RESULTS = "penstock.results"

# What passes arguments on to a class, which is tried itself.
FORWARDING = {
    "penstock.Decoder.audio": AudioDecoder,
    "penstock.Encoder.like": Encoder,
    "penstock.read_video": Decoder,
    "penstock.video.prefetch": Decoder,
}
NOT_COUNTED = {
    "chapters": "pairs, of which there may be none",
    "crf": "a scale of the codec's own",
    "fd": "a descriptor",
    "permissions": "a mode, which the system judges",
}


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What people call: functions, classes that are no plain records, and the methods of all."""
    seen = set()
    for module in map(importlib.import_module, (*MODULES, RESULTS)):
        for name in module.__all__:
            target = getattr(module, name)
            is_record = (
                dataclasses.is_dataclass(target)
                and target not in (AudioTrack, DecoderSettings, EncoderSettings)
            ) or (inspect.isclass(target) and issubclass(target, BaseException))
            if not callable(target) or target in seen:
                continue
            seen.add(target)
            if not is_record:
                yield f"{module.__name__}.{name}", target
            if inspect.isclass(target):
                # With those of a base that several share, and that is not public itself.
                owners = [base for base in target.__mro__ if base is target or base.__name__.endswith("Base")]
                own = {key: value for owner in owners for key, value in vars(owner).items()}
                methods = {key: value for key, value in own.items() if not key.startswith("_")}
                for key, value in methods.items():
                    if callable(value) and not dataclasses.is_dataclass(value):  # a record of its own
                        yield f"{module.__name__}.{name}.{key}", value


def numbers_of(path: str, target: Callable[..., Any]) -> Iterator[str]:
    """The parameters that are counts, sizes or times, by their types, but for those that are passed on as they are."""
    passed_on = inspect.signature(FORWARDING[path]).parameters if path in FORWARDING else ()
    for name, annotation in annotations_of(path, target).items():
        is_number = re.search(r"\b(int|float|Fraction)\b", annotation) and "HasFileno" not in annotation
        if is_number and name not in (*NOT_COUNTED, *passed_on):
            yield name


def annotations_of(path: str, target: Callable[..., Any]) -> dict[str, str]:
    stubbed = re.sub(r"^penstock\.(cpu\.|results\.)?", "", path)
    node = FUNCTIONS.get(f"{stubbed}.__new__") or FUNCTIONS.get(stubbed)
    if node is not None:
        arguments = (*node.args.args, *node.args.kwonlyargs)
        return {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation is not None}
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # a built-in method that some class inherits
        return {}
    by_name = [one for one in parameters if one.kind is not inspect.Parameter.POSITIONAL_ONLY]
    return {one.name: str(one.annotation) for one in by_name}


NUMBERS = sorted((path, name) for path, target in callables() for name in numbers_of(path, target))


@contextlib.contextmanager
def ends() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def ended_source() -> Iterator[int]:
    """A pipe with 100 bytes and then its end."""
    reader, writer = os.pipe()
    os.write(writer, bytes(100))
    os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)


def with_writer(method: str, *arguments: object, **options: object) -> None:
    with ends() as (_, writer), penstock.Writer(writer) as own:
        getattr(own, method)(*arguments, **options)


def make_writer(**options: Any) -> None:
    with ends() as (_, writer), penstock.Writer(writer, **options) as own:
        own.submit(b"x")


def with_reader(method: str, *arguments: object, **options: object) -> None:
    with ended_source() as source, penstock.Reader(source, frame_bytes=100) as reader:
        getattr(reader, method)(*arguments, **options)


def make_reader(**options: Any) -> None:
    with ended_source() as source, penstock.Reader(source, **({"frame_bytes": 100} | options)) as reader:
        reader.read(10)


def with_ticket(method: str, **options: object) -> None:
    with ends() as (_, writer):
        ticket = _native._pipe(b"x", writer)
        ticket.wait(10)
        getattr(ticket, method)(**options)


def make_relay(**options: object) -> None:
    with ended_source() as source, ends() as (_, writer):
        penstock.relay(source, writer, **options)


def start_relay(**options: object) -> None:
    with ended_source() as source, ends() as (_, writer):
        penstock.pipes.start_relay(source, writer, **options).wait(10)


def prepare_relay(**options: object) -> None:
    with (
        ended_source() as source,
        ends() as (_, writer),
        penstock.pipes.Relay(source, writer, **options) as relay,
    ):
        relay.move(10)


def move_piece(**options: object) -> None:
    with ended_source() as source, ends() as (_, writer), penstock.pipes.Relay(source, writer) as relay:
        relay.move(**options)


def with_relay_ticket(method: str, **options: object) -> None:
    with ended_source() as source, ends() as (_, writer):
        ticket = penstock.pipes.start_relay(source, writer)
        ticket.wait(10)
        getattr(ticket, method)(**options)


def make_tee(**options: object) -> None:
    with (
        ended_source() as source,
        ends() as (_, writer),
        penstock.Tee(source, writer, when_full="evict", **options),
    ):
        pass


def add_to_tee(**options: object) -> None:
    with ended_source() as source, ends() as (_, writer), penstock.Tee(source, start=False) as tee:
        tee.add(writer, when_full="evict", **options)


def wait_for_tee(**options: object) -> None:
    with ended_source() as source, ends() as (_, writer):
        penstock.Tee(source, writer).wait(**options)


def run_pipeline(*parts: Any, **options: Any) -> None:
    with Pipeline(*parts, **options) as line:
        for _ in line:
            pass


def with_pipeline(method: str, **options: object) -> None:
    with ends() as (_, writer), Pipeline([b"x"], sink=Sink.fd(writer) if method == "wait" else None) as line:
        getattr(line, method)(**options)


def with_stage(make: Callable[..., Stage], **options: object) -> None:
    run_pipeline([b"x"], make(**options))


def read_file(**options: Any) -> None:
    run_pipeline(Source.file(__file__, **options))


def read_files(**options: Any) -> None:
    run_pipeline(Source.files([__file__], **options))


def read_fd(**options: Any) -> None:
    with ended_source() as source:
        run_pipeline(Source.fd(source, **options))


def make_pipe(**options: Any) -> None:
    for end in penstock.pipes.make_pipe(**options):
        end.close()


def between_ends(method: str, **options: object) -> None:
    ours, theirs = penstock.pipes.make_pipe()
    with ours, theirs, ended_source() as source, ends() as (_, writer):
        theirs.write(bytes(10))
        theirs.close()
        if method == "write_to":
            ours.write_to(writer, **options)
        else:
            spare, theirs = penstock.pipes.make_pipe()
            with spare, theirs:
                theirs.read_from(source, **options)


def at_fifo(use: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        use(Path(folder) / "fifo")


def open_fifo(**options: Any) -> None:
    def use(path: Path) -> None:
        os.mkfifo(path)
        with fifo.open(path, "r"), fifo.open(path, "w", **options):
            pass

    at_fifo(use)


def with_fifo_ticket(method: str, **options: object) -> None:
    def use(path: Path) -> None:
        os.mkfifo(path)
        with fifo.open(path, "r"):
            opening = fifo.open_async(path, "w")
            opening._opening.wait(10)
            if method == "exception":
                opening.exception(**options)
            with opening.wait(**(options if method == "wait" else {})):
                pass

    at_fifo(use)


def make_encoder(**options: Any) -> None:
    settings = {"size": (16, 16), "fps": 25, "codec": "rawvideo"} | options
    with tempfile.TemporaryDirectory() as folder:
        encoder = Encoder(f"{folder}/out.nut", **settings)
        try:
            if encoder.frame_bytes < 1 << 20:
                encoder.write(bytes(encoder.frame_bytes))
        finally:
            encoder.abort()


def write_whole_video(fps: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        penstock.write_video(f"{folder}/out.nut", np.zeros((2, 16, 16, 3), np.uint8), fps, codec="rawvideo")


def with_encoder(method: str, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sound = AudioTrack(8000, 1, "int16") if method.endswith("_audio") else None
        encoder = Encoder(f"{folder}/out.nut", size=(16, 16), fps=25, codec="rawvideo", audio=sound)
        data = bytes(768) if sound is None else np.zeros(8, "int16")
        call_of_encoder(encoder, method, data, **options)


def call_of_encoder(encoder: Any, method: str, data: object, **options: Any) -> None:
    try:
        if method == "lease":
            with encoder.lease(**options):
                pass
        elif method.startswith("awrite"):
            asyncio.run(getattr(encoder, method)(data, **options))
        elif method == "close":
            encoder.close(**options)
        else:
            getattr(encoder, method)(data, **options)
    finally:
        encoder.abort()


def with_decoder(decoder: Any, method: str, *arguments: object, **options: object) -> None:
    with decoder:
        getattr(decoder, method)(*arguments, **options)


def make_decoder(make: Callable[..., Any], **options: object) -> None:
    with make(clip("audio_aac"), **options) as decoder:
        decoder.read(30)


def with_fan_out(method: str, *arguments: object, **options: object) -> None:
    with ends() as (_, writer), penstock.FanOut([penstock.Writer(writer)]) as fan_out:
        getattr(fan_out, method)(*arguments, **options)


def rendered(call: Callable[..., object], **options: object) -> None:
    """A render whose chunks have no place, so that it ends before the first of them."""
    with tempfile.TemporaryDirectory() as folder:
        call(output=f"{folder}/out.mp4", storage="/dev/null/chunks", **options)


def with_decoder_of_clip(method: str, **given: object) -> None:
    with_decoder(Decoder(clip("audio_aac")), method, **given)


def scene(_index: int, _time_s: float, _view: object) -> None:
    pass


def render_scene(**options: object) -> None:
    rendered(partial(penstock.render, scene), **{"frames": 9, "size": (16, 16), "fps": 25} | options)


def few_frames(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with an end where they have a rate: a million frames a second are taken."""
    return {"end": 0.001} | given if "fps" in given else given


CALLS: dict[str, Callable[..., object]] = {
    "penstock.Decoder": partial(make_decoder, Decoder),
    **{
        f"penstock.Decoder.{method}": partial(with_decoder_of_clip, method)
        for method in ("batch", "frame_at", "index_at")
    },
    "penstock.Decoder.read": lambda **given: with_decoder(Decoder(clip("audio_aac")), "read", **given),
    "penstock.Decoder.readinto": lambda **given: with_decoder(
        Decoder(clip("audio_aac")), "readinto", bytearray(64 * 48 * 3), **given
    ),
    "penstock.Encoder": make_encoder,
    **{
        f"penstock.Encoder.{method}": partial(with_encoder, method)
        for method in ("awrite", "awrite_audio", "close", "lease", "submit", "write", "write_audio")
    },
    "penstock.FanOut.close": partial(with_fan_out, "close"),
    "penstock.FanOut.write": partial(with_fan_out, "write", b"x"),
    "penstock.Reader": make_reader,
    "penstock.Reader.latest": partial(with_reader, "latest"),
    "penstock.Reader.read": partial(with_reader, "read"),
    "penstock.Reader.readinto": partial(with_reader, "readinto", bytearray(100)),
    "penstock.Tee": make_tee,
    "penstock.Tee.add": add_to_tee,
    "penstock.Tee.wait": wait_for_tee,
    "penstock.cpu.ThreadPolicy": penstock.cpu.ThreadPolicy,
    "penstock.Writer": make_writer,
    "penstock.Writer.close": partial(with_writer, "close"),
    "penstock.Writer.flush": partial(with_writer, "flush"),
    "penstock.Writer.submit": partial(with_writer, "submit", b"x"),
    "penstock.Writer.write": partial(with_writer, "write", b"x"),
    "penstock.cpu.pin": lambda **given: penstock.cpu.ThreadPolicy(
        **given
    ),  # what it checks by, without being pinned
    "penstock.cpu.applied": penstock.cpu.applied,
    "penstock.AudioDecoder": partial(make_decoder, AudioDecoder),
    "penstock.AudioDecoder.read": lambda **given: with_decoder(
        AudioDecoder(clip("audio_aac")), "read", **given
    ),
    "penstock.AudioDecoder.window": lambda **given: with_decoder(
        AudioDecoder(clip("audio_aac")), "window", **{"start_s": 0.1, "duration_s": 0.1} | given
    ),
    "penstock.AudioDecoder.windows": lambda **given: with_decoder(
        AudioDecoder(clip("audio_aac")), "windows", **{"starts_s": [0.1], "duration_s": 0.1} | given
    ),
    "penstock.video.AudioTrack": lambda **given: AudioTrack(**{"sample_rate": 8000, "channels": 1} | given),
    "penstock.video.DecoderSettings": DecoderSettings,
    "penstock.video.EncoderSettings": EncoderSettings,
    "penstock.video.prefetch": lambda **given: list(prefetch([], **given)),
    "penstock.probe": lambda **given: probe(clip("audio_aac"), **given),
    "penstock.fifo.FifoTicket.exception": partial(with_fifo_ticket, "exception"),
    "penstock.fifo.FifoTicket.wait": partial(with_fifo_ticket, "wait"),
    "penstock.fifo.open": open_fifo,
    "penstock.pipes.make_pipe": make_pipe,
    "penstock.map_video": lambda **given: rendered(
        partial(penstock.map_video, None, clip("audio_aac")), **few_frames(given)
    ),
    "penstock.Pipeline": partial(run_pipeline, [b"x"]),
    "penstock.Pipeline.read": partial(with_pipeline, "read"),
    "penstock.Pipeline.wait": partial(with_pipeline, "wait"),
    "penstock.pipeline.Stage.call": partial(with_stage, partial(Stage.call, lambda chunk: None)),
    "penstock.pipeline.Stage.checksum": partial(with_stage, Stage.checksum),
    "penstock.pipeline.Stage.decompress": partial(with_stage, Stage.decompress),
    "penstock.pipeline.Source.fd": read_fd,
    "penstock.pipeline.Source.file": read_file,
    "penstock.pipeline.Source.files": read_files,
    "penstock.pipes.PipeReader.write_to": partial(between_ends, "write_to"),
    "penstock.pipes.PipeWriter.read_from": partial(between_ends, "read_from"),
    "penstock.pipes.Relay": prepare_relay,
    "penstock.pipes.Relay.move": move_piece,
    "penstock.read_video": lambda **given: penstock.read_video(clip("audio_aac"), **few_frames(given)),
    "penstock.relay": make_relay,
    "penstock.render": render_scene,
    "penstock.results.RelayTicket.exception": partial(with_relay_ticket, "exception"),
    "penstock.results.RelayTicket.wait": partial(with_relay_ticket, "wait"),
    "penstock.results.Ticket.exception": partial(with_ticket, "exception"),
    "penstock.results.Ticket.wait": partial(with_ticket, "wait"),
    "penstock.pipes.start_relay": start_relay,
    "penstock.write_video": write_whole_video,
}


@pytest.mark.linux("Tee")
def test_all_parameters_of_numbers_are_tried() -> None:
    assert {path for path, _ in NUMBERS} == set(CALLS)
    # A type that hides a number would hide a parameter: these are known to be some.
    assert {("penstock.Writer", "queue_items"), ("penstock.Writer.flush", "timeout")} <= set(NUMBERS)


EDGES = (2**8, 2**15, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, 10**400)
WHOLE = st.one_of(
    st.sampled_from([sign * edge + step for edge in EDGES for sign in (1, -1) for step in (-1, 0, 1)]),
    st.integers(-3, 70),
    st.integers(),
)
OTHERS = st.one_of(
    st.sampled_from(
        [math.nan, math.inf, -math.inf, -0.0, -1e-300, 1e300, "3", "", b"1", None, True, [], ...]
    ),
    st.floats(),
    st.fractions(),
    st.builds(Decimal, st.sampled_from(["NaN", "sNaN", "-1", "1e500"])),
)
SHAPED: dict[str, Callable[[object], object]] = {
    "size": lambda value: (value, 16),
    "cpus": lambda value: [value],
    "times_s": lambda value: [value],
    "starts_s": lambda value: [value],
}
# Where a time is only compared with that of a frame, one that rounds to 0 is right. Before its beginning, audio is
# silent.
MAY_BE_NEGATIVE = {"nice", "time_s", "times_s", "start_s", "starts_s"}
# Granted to root, it would take the room for pipes from all tests beside this one: `test_pipes` asks for it once.
LARGE_PIPE_BYTES = 1 << 20


def is_senseless(value: object) -> bool:
    """Whether it can be no count, size or time at all."""
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
        return value < 0 or value != value
    return isinstance(value, bytes | list) or value is ... or (isinstance(value, Decimal) and value.is_nan())


def try_one(path: str, name: str, value: object) -> None:
    if name == "capacity_bytes" and isinstance(value, int):
        assume(value <= LARGE_PIPE_BYTES)
    given = SHAPED.get(name, lambda value: value)(value)
    try:
        CALLS[path](**{name: given})
    except (ValueError, TypeError):
        pass
    except (penstock.PenstockError, OSError, MemoryError):
        assert not is_senseless(value), "it was taken"
    else:
        assert name in MAY_BE_NEGATIVE or not is_senseless(value), "it was taken"


def is_of_ffmpeg(path: str) -> bool:
    return any(part in path for part in ("coder", "ffmpeg", "render", "_video"))


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def marks_of(path: str) -> Iterator[pytest.MarkDecorator]:
    if is_of_ffmpeg(path):
        yield pytest.mark.exhaustive
    if path.startswith("penstock.Tee"):
        yield pytest.mark.linux("Tee")


@pytest.mark.parametrize(
    ("path", "name"), [pytest.param(*one, marks=list(marks_of(one[0]))) for one in NUMBERS]
)
def test_a_number_is_taken_or_refused(path: str, name: str) -> None:
    count = 20 if is_of_ffmpeg(path) else 40

    @settings(examples(count), database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(WHOLE, OTHERS))
    def try_any(value: object) -> None:
        try_one(path, name, value)

    try_any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Stage.decompress(workers=2**31), "workers must be at most 1024, not 2147483648"),
        (lambda: Source.files([__file__], workers=0), "workers must be at least 1, not 0"),
        (lambda: make_writer(queue_items=0), "queue_items must be at least 1, not 0"),
        (lambda: make_reader(queue_items=-1), "queue_items must be at least 1, not -1"),
        (lambda: make_reader(frame_bytes=2**64), "less than memory can hold, not 18446744073709551616"),
        (lambda: _native._sync(timeout=math.nan), "timeout must be None or at least 0 seconds, not NaN"),
    ],
)
def test_message_names_the_wrong_argument(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
