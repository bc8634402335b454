"""Whether two files are the same work: of a like quality, and of a like size.

A method that is quicker because its encoder gets smoother frames, or another quality, is no rival in that job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.harness.results import Group

# Measured with x264 ultrafast and 90 frames of each content in 720p. A step of CRF is 0.4 to 0.8 dB, and 7 to 32 % of
# the size; two steps are 0.8 to 1.6 dB, and 14 to 58 %. Methods that convert alike are at most 0.7 dB and 5 % apart.
MAX_PSNR_DB_APART = 1.0
SIZES = 0.8, 1.25


def difference(ours: Mapping[str, float | None], other: Mapping[str, float | None]) -> str | None:
    """What makes the other file another work than ours, by their figures. None if nothing does, as far as is known."""
    our_bytes, nbytes = ours.get("output_bytes"), other.get("output_bytes")
    if our_bytes and nbytes is not None and not SIZES[0] <= nbytes / our_bytes <= SIZES[1]:
        return f"its file is {nbytes / our_bytes:.2f} x as large as ours"
    our_db, db = ours.get("psnr_db"), other.get("psnr_db")
    if our_db is not None and db is not None and abs(db - our_db) > MAX_PSNR_DB_APART:
        return f"its PSNR is {db:.1f} dB, and ours {our_db:.1f} dB"
    return None


def mark(group: Group) -> None:
    """Turn rivals with another file into methods that are only shown. Their notes have the reason."""
    figures = {
        row.name: {name: row.median(name) for name in ("output_bytes", "psnr_db")}
        for row in group.rows
        if row.is_measured
    }
    ours = next(
        (figures[row.name] for row in group.rows if row.method.kind == "ours" and row.is_measured), {}
    )
    for row in group.rows:
        if row.method.kind == "rival" and (reason := difference(ours, figures.get(row.name, {}))):
            row.method = replace(row.method, kind="other")
            row.runs[-1].notes = row.notes | {"not_comparable": reason}
