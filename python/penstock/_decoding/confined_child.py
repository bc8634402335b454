"""Decodes a file in a process that confines itself first, and sends the frames. `Confined` runs it."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock._common.control_groups import whole_cpus
from penstock._decoding.confined_engine import Sent
from penstock._decoding.confined_frames import END, ERROR_BYTES, FAILED, RENUMBERED, Shown
from penstock._decoding.confined_records import FRAME, write_record, writer_to
from penstock._decoding.engines import read_in_process
from penstock._decoding.random_access import RenumberedError
from penstock._facts.isolated_facts import confined
from penstock._facts.probing import probe
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.decoder import Decoder
    from penstock._decoding.engine import Engine
    from penstock._decoding.frames_by_number import FramesByNumber
    from penstock._decoding.options import DecodeOptions
    from penstock._facts.info import MediaInfo
    from penstock._facts.source import Source

Answered: TypeAlias = Callable[[Callable[[], Any]], None]


def main(request: dict[str, Any], records: int) -> None:
    """Sends the frames of a file: all of them in sequence, or those that it is asked for."""
    options = pickle.loads(bytes.fromhex(request["options"]))
    whole_cpus()  # which reads its files once
    source, answered = confined(request)
    send = _send_by_number if "by_number" in request else _send_in_sequence
    send(source, options, records, answered)


def _send_in_sequence(source: Source, options: DecodeOptions, records: int, answered: Answered) -> None:
    """Prints the facts about the file, and answers questions. Then sends its frames, and prints `Sent`."""
    engine: Engine | None = None

    def opened() -> MediaInfo:
        nonlocal engine
        try:
            engine = read_in_process(source, options)
        except (ValueError, TypeError) as error:
            print(error, file=sys.stderr)
            return probe(source)  # whoever gave the options finds the same fault in them
        return engine.plan.track.media

    answered(opened)
    if engine is None:
        return
    for line in sys.stdin:
        if (asked := json.loads(line)) is None:  # now frames are wanted
            break
        question, arguments = asked
        answered(partial(getattr(engine.questions, question), *arguments))
    answered(lambda: _sent(engine, records, source.path))


def _sent(engine: Engine, records: int, path: str) -> Sent:
    """Sends all frames."""
    failure: DecoderError | None = None
    frames = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with writer_to(records) as writer:
            try:
                while (made := engine.read()) is not None:
                    write_record(writer, FRAME, made.index, made.pts, made.memory)
                    frames += 1
            except DecoderError as error:
                failure = error  # not past the writer, which would not wait for a slow reader any more
    if failure is not None:
        raise failure
    return Sent(frames, _words(caught, path, engine.warning))


def _send_by_number(source: Source, options: DecodeOptions, records: int, answered: Answered) -> None:
    """Prints `Shown`. Then answers each line of numbers by the frames, and a record that says that they were all."""
    from penstock._decoding.decoder import Decoder  # which a sequence does not need

    decoder: Decoder | None = None
    frames: FramesByNumber | None = None

    def shown() -> Shown:
        nonlocal decoder, frames
        with warnings.catch_warnings(record=True):  # which whoever reads in sequence has given
            decoder = Decoder(source, **options.arguments)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frames = decoder._frames()
            shown = _shown(frames)
        return replace(shown, warning=_words(caught, source.path))

    answered(shown)
    if decoder is None or frames is None:
        return
    least = max(decoder.frame_bytes, ERROR_BYTES)
    with writer_to(records) as writer:
        for line in sys.stdin:
            kind, error = END, b""
            try:
                for number, frame in frames.decoded(json.loads(line)):
                    write_record(writer, FRAME, number, frame.pts, frame, least)
            except DecoderError as failure:
                kind, error = FAILED, str(failure).encode()[:ERROR_BYTES]
            except RenumberedError:
                kind = RENUMBERED
                answered(lambda: _shown(frames))
            write_record(writer, kind, 0, len(error), error, least)


def _shown(frames: FramesByNumber) -> Shown:
    pts = tuple(map(int, frames.times.pts))
    return Shown(pts, frames.times.last_duration if pts else 0, frames.why_short, None)


def _words(caught: Sequence[warnings.WarningMessage], path: str, last: str | None = None) -> str | None:
    """What is to be said of the file: what was warned of, without the file's name, and one thing more."""
    said = [str(one.message).removeprefix(f"{path}: ") for one in caught]
    return "; ".join([*said, *filter(None, [last])]) or None
