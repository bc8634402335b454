"""The progress bar of an `Encoder` and of ``penstock decode``, on standard error."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from penstock._bars import bars

if TYPE_CHECKING:
    from penstock.results import EncoderStats

# Raised if standard error is closed or its terminal is gone. The video must still be finished.
UNWRITABLE = (OSError, ValueError)


class Bar:
    """A bar with frames, frames per second, speed, size, and the remaining time.

    On a terminal, each `update` redraws it. Elsewhere it prints one line at the end. If standard error cannot be
    written to, it shows nothing and raises nothing.

    Args:
        total_frames: number of frames. With None the bar shows the length of the video instead of the remaining time.
        fps: frames per second of the video. With None the bar shows neither speed nor length.
        is_estimate: `total_frames` is an estimate.
    """

    def __init__(self, total_frames: int | None, fps: float | None, *, is_estimate: bool = False) -> None:
        self._total = None if total_frames is None else f"{'~' if is_estimate else ''}{total_frames}"
        self._fps = fps
        self._progress = _progress(knows_total=total_frames is not None)
        self._task = self._progress.add_task("", total=total_frames, frames="", rate="", size="", length="")
        self._is_drawn = False

    def update(self, stats: EncoderStats) -> None:
        """Draws `stats`. The first call starts the bar."""
        self.show(stats.frames_encoded, stats.fps, stats.output_bytes)

    def show(self, frames: int, fps: float, output_bytes: int | None) -> None:
        """Draws the number of frames and the bytes of the output. The first call starts the bar."""
        self._progress.update(
            self._task,
            completed=frames,
            frames=f"{frames} frames" if self._total is None else f"{frames}/{self._total} frames",
            rate=f"{fps:.1f} fps{'' if self._fps is None else f' {fps / self._fps:.2f}x'}",
            size="" if output_bytes is None else decimal(output_bytes),
            length="" if self._fps is None else f"{frames / self._fps:.1f} s of video",
        )
        with suppress(*UNWRITABLE):
            self._draw()

    def finish(self) -> None:
        """Ends the bar as it was last drawn. May be called again, and without an `update`."""
        if self._is_drawn:
            self._is_drawn = False
            with suppress(*UNWRITABLE):
                self._progress.stop()

    def _draw(self) -> None:
        if not self._is_drawn:
            self._is_drawn = True
            self._progress.start()
            # `start` hides the cursor. A program that a second Ctrl-C kills could not show it again.
            self._progress.console.show_cursor(True)
        self._progress.refresh()


def _progress(*, knows_total: bool) -> Progress:
    return bars(
        BarColumn(bar_width=20),
        *(_field(name) for name in ("frames", "rate", "size")),
        TimeRemainingColumn(table_column=Column(no_wrap=True)) if knows_total else _field("length"),
    )


def _field(name: str) -> TextColumn:
    return TextColumn(f"{{task.fields[{name}]}}", markup=False, table_column=Column(no_wrap=True))
