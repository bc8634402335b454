"""The record of a run: what every benchmark says in it, and where it is kept."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.bench import machine


def header(benchmark: str, schema: int, before: dict[str, Any], software: dict[str, Any]) -> dict[str, Any]:
    """How every record begins. ``before`` describes the machine before the run."""
    return {
        "schema": schema,
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": before,
        "software": software,
    }


def describe(record: dict[str, Any]) -> str:
    """One line on what a record was measured on."""
    machine, software = record["machine"], record["software"]
    ffmpeg = f"{software['ffmpeg']}, " if "ffmpeg" in software else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, "
        f"huge pages {machine['transparent_hugepage']}; "
        f"{ffmpeg}Python {software['python']}, penstock {software['penstock']}"
    )


def path_of(record: dict[str, Any]) -> Path:
    """A file that is not there yet, in ``benchmarks`` of the repository or else of the current directory."""
    folder = (machine.checkout() or Path.cwd()) / "benchmarks"
    folder.mkdir(exist_ok=True)
    stem = f"{datetime.now(UTC):%Y-%m-%d}-{record['benchmark']}-{machine.slug(record['machine'])}"
    candidates = (folder / f"{stem}{suffix}.json" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(path for path in candidates if not path.exists())


def write(record: dict[str, Any], path: str) -> None:
    """Write a record there; ``-`` is standard output.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(record, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text)
