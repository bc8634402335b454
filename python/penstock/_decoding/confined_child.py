"""Decodes a file in a process that confines itself first, and sends the frames. `ConfinedEngine` runs it."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any

from penstock import Writer
from penstock._common.control_groups import whole_cpus
from penstock._decoding.confined_engine import FRAME, RECORD, Sent
from penstock._decoding.engines import read_in_process
from penstock._facts.isolated_facts import confined
from penstock._facts.probing import probe
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.libav_engine import LibavEngine
    from penstock._facts.info import MediaInfo

# Frames that wait for the pipe, each with what comes before it. Chosen: one that is written, and one that is ready.
_QUEUED = 2 * 2


def main(request: dict[str, Any], records: int) -> None:
    """Prints the facts about the file, sends its frames, and prints `Sent`."""
    options = pickle.loads(bytes.fromhex(request["options"]))
    whole_cpus()  # which reads its files once
    source, answered = confined(request)
    engine: LibavEngine | None = None

    def opened() -> MediaInfo:
        nonlocal engine
        try:
            engine = read_in_process(source, options, request["stream"])
        except (ValueError, TypeError) as error:
            print(error, file=sys.stderr)
            return probe(source)  # whoever gave the options finds the same fault in them
        return engine.plan.track.media

    answered(opened)
    if engine is not None:
        answered(lambda: _sent(engine, records))


def _sent(engine: LibavEngine, records: int) -> Sent:
    """Sends all frames."""
    failure: DecoderError | None = None
    frames = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Writer(records, queue_items=_QUEUED, reader_copies=True) as writer:
            os.close(records)
            try:
                while (made := engine.read()) is not None:
                    writer.write(RECORD.pack(FRAME, made.index, made.pts))
                    writer.submit(made.memory)
                    frames += 1
            except DecoderError as error:
                failure = error  # not past the writer, which would not wait for a slow reader any more
    if failure is not None:
        raise failure
    path = engine.plan.track.media.path
    said = [str(one.message).removeprefix(f"{path}: ") for one in caught]
    return Sent(frames, "; ".join([*said, *filter(None, [engine.warning])]) or None)
