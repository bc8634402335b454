"""Chunks for the join: a few are rendered, and the others are these with later times."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.render import scenes
from benchmarks.render.jobs import FRAMES_PER_S, Job
from penstock.rendering import Plan, plan, render_chunk
from penstock.rendering.chunk import data_name, folder_of

#: So many are rendered.
RENDERED = 4
#: The boxes on the way to the time of a fragment (ISO/IEC 14496-12, 8.8.12), and the bytes before that in its box.
_CONTAINERS = (b"moof", b"traf")
_TIME, _VERSION_BYTES = b"tfdt", 4


def files(pool: str) -> list[str]:
    """The chunks' data, in their order."""
    return sorted(str(path) for path in Path(pool).iterdir() if path.suffix != ".json")


def planned(output: Path, job: Job) -> Plan:
    """The plan of a video of the job's, with chunks of a second."""
    made = plan(
        scenes.filmed,
        frames=job.chunks * FRAMES_PER_S,
        size=job.size,
        fps=FRAMES_PER_S,
        output=output,
        workers=1,
        encoder=job.encoder,
    )
    return replace(made, lengths=(FRAMES_PER_S,) * job.chunks)


def plan_in(folder: Path, job: Job, pool: str) -> Plan:
    """The plan for a video in `folder`, whose chunks are links to those of the pool."""
    made = planned(folder / "video.mp4", job)
    storage = Path(made.storage) / folder_of(made)
    storage.mkdir(parents=True)
    for path in Path(pool).iterdir():
        os.link(path, storage / path.name)
    return made


def fill(folder: Path, job: Job) -> str:
    """Make all chunks of a job, and return their folder."""
    made = planned(folder / "pool.mp4", job)
    storage = Path(made.storage)
    reports = [render_chunk(made, number) for number in range(min(RENDERED, job.chunks))]
    originals = [(storage / data_name(made, report.number)).read_bytes() for report in reports]
    # Of one chunk, in the unit of the file's times.
    step = _times(originals[1])[0][1] - _times(originals[0])[0][1]
    for number in range(RENDERED, job.chunks):
        report = reports[number % RENDERED]
        data = _later(originals[number % RENDERED], (number - report.number) * step)
        path = storage / data_name(made, number)
        path.write_bytes(data)
        told = replace(report, number=number, sha256=hashlib.sha256(data).hexdigest())
        path.with_name(f"{path.name}.json").write_text(json.dumps(asdict(told)))
    return str(storage / folder_of(made))


def _later(data: bytes, step: int) -> bytes:
    """A chunk with all its times later."""
    changed = bytearray(data)
    for place, time in _times(data):
        changed[place : place + 8] = (time + step).to_bytes(8, "big")
    return bytes(changed)


def _times(data: bytes) -> list[tuple[int, int]]:
    """The times of the fragments, and where in the data they are."""
    places = [place + _VERSION_BYTES for place in _boxes(data, 0, len(data))]
    return [(place, int.from_bytes(data[place : place + 8], "big")) for place in places]


def _boxes(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where the content of each box of the time begins."""
    while at < end:
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind in _CONTAINERS:
            yield from _boxes(data, at + 8, at + length)
        elif kind == _TIME:
            if data[at + 8] != 1:
                raise ValueError("the times have 32 bits")
            yield at + 8
        at += length
