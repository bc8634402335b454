"""The JSON record of a run: settings, machine, software, and each figure's median, spread and rounds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from benchmarks.harness.results import Group, Outcome, Row

#: The version of the layout. Raise it with a change that breaks a reader.
SCHEMA = 2
FOLDER = machine.ROOT / "benchmarks" / "records"
#: A list or an object that fits into so many characters takes one line.
LINE_CHARACTERS = 200


def make(
    benchmark: str,
    before: dict[str, Any],
    software: dict[str, Any],
    command: str,
    settings: dict[str, Any],
    groups: Iterable[Group],
) -> dict[str, Any]:
    """The record. ``before`` is the machine before the run, ``command`` what repeats the run."""
    return {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": before,
        "software": software,
        "command": command,
        "settings": settings,
        "groups": [_group(group) for group in groups],
    }


def _group(group: Group) -> dict[str, Any]:
    told = {"name": group.name, "title": group.title, **group.about}
    told |= _known(
        ffmpeg=group.ffmpeg, findings=group.findings, goals=[_outcome(one) for one in group.outcomes]
    )
    return told | {"methods": [_row(row) for row in group.rows]}


def _row(row: Row) -> dict[str, Any]:
    figures = dict.fromkeys(name for run in row.runs for name in run.figures)
    spreads = {name: asdict(spread) for name in figures if (spread := row.spread(name))}
    told = {"name": row.name, "kind": row.method.kind, "disturbed_rounds": row.disturbed_rounds}
    return told | _known(
        skipped=row.skipped,
        error=row.error,
        content=row.checked.figures if row.checked else None,
        notes=row.notes,
        repeats=row.repeats,
        figures={name: {key: _short(value) for key, value in one.items()} for name, one in spreads.items()},
    )


def _outcome(outcome: Outcome) -> dict[str, Any]:
    numbers = {
        name: value and _short(value)
        for name, value in asdict(outcome).items()
        if name in ("ratio", "enough")
    }
    return {"goal": outcome.goal, **_known(**numbers), "verdict": outcome.verdict}


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _short(value: Any) -> Any:
    """Six digits, more than any clock here resolves."""
    if isinstance(value, tuple):
        return [_short(one) for one in value]
    return value if isinstance(value, int) else float(f"{value:.6g}")


def to_text(value: Any, indent: str = "") -> str:
    """JSON with one item per line. A list or object that fits stays on one line."""
    flat = json.dumps(value, default=lambda item: item.name)
    if len(indent) + len(flat) <= LINE_CHARACTERS or not isinstance(value, dict | list | tuple):
        return flat
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(name)}: {to_text(item, deeper)}" for name, item in value.items()]
        return f"{{\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}}}"
    items = [to_text(item, deeper) for item in value]
    return f"[\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}]"


def describe(record: dict[str, Any]) -> str:
    """The machine and the software of a record, in one line."""
    machine, software = record["machine"], record["software"]
    ffmpeg = f"{software['ffmpeg']}, " if "ffmpeg" in software else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, "
        f"huge pages {machine['transparent_hugepage']}; "
        f"{ffmpeg}Python {software['python']}, penstock {software['penstock']}"
    )


def path_of(record: dict[str, Any]) -> Path:
    """A new file in `FOLDER`."""
    stem = f"{datetime.now(UTC):%Y-%m-%d}-{record['benchmark']}-{machine.slug(record['machine'])}"
    candidates = (FOLDER / f"{stem}{suffix}.json" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(path for path in candidates if not path.exists())


def write(record: dict[str, Any], path: str) -> None:
    """Write a record to ``path``; ``-`` is standard output."""
    text = to_text(record) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text)
