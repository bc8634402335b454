"""The distributions of the latencies, drawn: of each configuration, how many assets took no longer than so long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.bench.pipeline.cases import END_TO_END, PARTS, Settings
from penstock.bench.pipeline.latency import Row
from penstock.bench.pipeline.storage import MissingPackageError


def draw(rows: Sequence[Row], settings: Settings, path: Path) -> None:
    """Write a picture; the ending of its name says of which kind.

    Raises:
        MissingPackageError: matplotlib is not installed.
        OSError, ValueError: it cannot be written there, or the kind is unknown.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("a picture needs the package matplotlib: pip install matplotlib") from error
    # No pyplot: it would look for a screen.
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    for axes, part in zip(figure.subplots(1, 4, sharey=True), (*PARTS, END_TO_END), strict=True):
        for row in rows:
            values = sorted(value for run in row.runs for value in run.latencies_us[part])
            shares = [100 * (number + 1) / len(values) for number in range(len(values))]
            axes.step(values, shares, where="post", label=row.configuration.name)
        axes.set(title=part, xscale="log", xlabel="µs", ylim=(0, 100))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("% of assets, all rounds")
    figure.axes[-1].legend()
    figure.suptitle(
        f"{settings.chunks} {settings.codec} assets of {settings.chunk_bytes} bytes, "
        f"{settings.background} workers in the background"
    )
    figure.savefig(path, dpi=120)
