"""Progress: its callbacks, and the bars on standard error.

rich takes long to import, so that only a bar that is drawn imports it.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

from penstock._native import _count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn

    from penstock._common.reports import EncoderStats
    from penstock.rendering.reports import RenderProgress

# How often an encoder's progress is reported: as often as FFmpeg tells it.
_PERIOD_S = 0.5
# Guessed: how long `close` waits for a callback, which should only draw a line.
_PATIENCE_S = 1.0
# Raised if standard error is closed or its terminal is gone. Ignored, so that the reported work is finished.
UNWRITABLE = (OSError, ValueError)
# The width of a row of bytes without its title (counted), and the least width of the title. The bar can shrink, the
# numbers cannot.
ROW_COLUMNS = 60
LEAST_TITLE_COLUMNS = 12


class Reporter:
    """Calls `show` with statistics on a daemon thread, until `stop`, and then `finish` once."""

    def __init__(self, show: Callable[[EncoderStats], object], finish: Callable[[], object]) -> None:
        self._show = show
        self._finish = finish
        self._has_failed = self._has_ended = False
        self._last: EncoderStats | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(
        cls, progress: bool | int | Callable[[EncoderStats], object], rate: Fraction | None
    ) -> Self | None:
        """The reporter for an `Encoder`'s argument `progress`; None for none."""
        if callable(progress):
            return cls(progress, lambda: None)
        total_frames = None if isinstance(progress, bool) else _count("progress", progress)
        if progress is False:
            return None
        bar = VideoBar(total_frames, None if rate is None else float(rate))
        return cls(bar.update, bar.finish)

    def start(self, look: Callable[[], EncoderStats | None]) -> None:
        """Starts the thread. `look` gives the statistics, or None to end it.

        Between two reports the thread references neither the reporter nor `show`, whose object may own the encoder: the
        garbage collector can take them.
        """
        arguments = (weakref.ref(self), self._stop, look)
        name = "penstock-encoder-progress"
        self._thread = threading.Thread(target=_report, args=arguments, name=name, daemon=True)
        self._thread.start()

    def stop(self, last: EncoderStats) -> None:
        """Ends the thread, which shows the `last` statistics first. Waits for it for a while."""
        if self._stop.is_set():
            return
        self._last = last
        self._stop.set()
        if self._thread is threading.current_thread():
            return  # the callback closes the encoder
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if self._thread is not None and self._thread.is_alive():
            warnings.warn("the progress callback hasn't returned yet", RuntimeWarning, stacklevel=2)
        elif not self._has_ended:
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        if not self._has_failed and self._last is not None:
            self._try(self._show, self._last)
        self._try(self._finish)

    def _try(self, call: Callable[..., object], *arguments: EncoderStats) -> bool:
        """Calls a function. Returns whether none has failed yet: an error is a warning, and must not hide FFmpeg's."""
        try:
            call(*arguments)
        except Exception as error:
            self._has_failed = True
            warnings.warn(f"progress is no longer reported: {error!r}", RuntimeWarning, stacklevel=2)
        return not self._has_failed


class Bars:
    """Rows with the same columns. A context manager: leaving it ends them as they were last drawn.

    On a terminal, `draw` draws them again in place. Elsewhere they are printed once, at the end. If standard error
    cannot be written to, they show nothing and raise nothing. What the program prints is not redirected.

    Args:
        columns: of each row. A text is the name of a field, whose text comes with each `draw`.
        total: what `completed` will be at the end; None if that is not known.
        rows: how many there are.
    """

    def __init__(self, *columns: ProgressColumn | str, total: int | None, rows: int = 1) -> None:
        from rich.progress import Progress

        self._progress = Progress(
            *(_field(column) if isinstance(column, str) else column for column in columns),
            console=_standard_error(),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        empty: dict[str, Any] = {column: "" for column in columns if isinstance(column, str)}
        self._tasks = [self._progress.add_task("", total=total, **empty) for _ in range(rows)]
        self._is_drawn = False

    def set(self, row: int, completed: int, **fields: Any) -> None:
        """Sets what the next `draw` draws in a row: `fields` are texts."""
        self._progress.update(self._tasks[row], completed=completed, **fields)

    def draw(self) -> None:
        """Draws the rows. The first call starts them."""
        with suppress(*UNWRITABLE):
            if not self._is_drawn:
                self._is_drawn = True
                self._progress.start()
                # `start` hides the cursor. A program that a second Ctrl-C kills could not show it again.
                self._progress.console.show_cursor(True)
            self._progress.refresh()

    def finish(self) -> None:
        """Ends the rows as they were last drawn. May be called again, and without a `draw`."""
        if self._is_drawn:
            self._is_drawn = False
            with suppress(*UNWRITABLE):
                self._progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.finish()


class VideoBar(Bars):
    """The bar of an `Encoder` and of ``penstock decode``: frames, frames per second, speed, size, remaining time.

    Args:
        total_frames: number of frames. With None the bar shows the length of the video instead of the remaining time.
        fps: frames per second of the video. With None the bar shows neither speed nor length.
        is_estimate: `total_frames` is an estimate.
    """

    def __init__(self, total_frames: int | None, fps: float | None, *, is_estimate: bool = False) -> None:
        last = "length" if total_frames is None else _remaining()
        super().__init__(_bar(), "frames", "rate", "size", last, total=total_frames)
        self._total = "" if total_frames is None else f"/{'~' * is_estimate}{total_frames}"
        self._fps = fps

    def update(self, stats: EncoderStats) -> None:
        """Draws `stats`."""
        self.show(stats.frames_encoded, stats.fps, stats.output_bytes)

    def show(self, frames: int, fps: float, output_bytes: int | None) -> None:
        """Draws the number of frames, how many come in a second, and the bytes of the output."""
        from rich.filesize import decimal

        self.set(
            0,
            frames,
            frames=f"{frames}{self._total} frames",
            rate=f"{fps:.1f} fps{'' if self._fps is None else f' {fps / self._fps:.2f}x'}",
            size="" if output_bytes is None else decimal(output_bytes),
            length="" if self._fps is None else f"{frames / self._fps:.1f} s of video",
        )
        self.draw()


class RenderBar(Bars):
    """The bar of a render: frames, chunks, workers, frames per second, remaining time."""

    def __init__(self, frames: int) -> None:
        super().__init__(_bar(), "state", _remaining(), total=frames)
        self._frames = frames

    def show(self, now: RenderProgress) -> None:
        """Draws how far the render is."""
        state = (
            f"{now.frames_done}/{self._frames} frames  {now.chunks_done}/{now.chunks} chunks  "
            f"{now.workers} workers  {now.fps:.1f} fps"
        )
        self.set(0, now.frames_done, state=state)
        self.draw()


class ByteBars(Bars):
    """A row for each destination of bytes: bytes, bytes per second, remaining time, and a state in words."""

    def __init__(self, titles: Sequence[str], total: int | None) -> None:
        from rich.progress import DownloadColumn, TransferSpeedColumn
        from rich.table import Column

        super().__init__(
            "title",
            _bar(),
            DownloadColumn(table_column=Column(no_wrap=True)),
            TransferSpeedColumn(table_column=Column(no_wrap=True)),
            *([] if total is None else [_remaining()]),
            "state",
            total=total,
            rows=len(titles),
        )
        width = max(self._progress.console.width - ROW_COLUMNS, LEAST_TITLE_COLUMNS)
        self._titles = [_shortened(title, width) for title in titles]

    def show(self, states: Sequence[tuple[int, str]]) -> None:
        """Draws the bytes and the state of each destination."""
        for row, (title, (nbytes, state)) in enumerate(zip(self._titles, states, strict=True)):
            self.set(row, nbytes, title=title, state=state)
        self.draw()


def _standard_error() -> Console:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_jupyter:
        return console
    # There rich draws with ipywidgets, and warns where they are missing. But notebooks draw a line of standard error
    # again after a carriage return, as terminals do.
    return Console(stderr=True, force_jupyter=False, force_terminal=True, width=console.width)


def _field(name: str) -> TextColumn:
    from rich.progress import TextColumn
    from rich.table import Column

    return TextColumn(f"{{task.fields[{name}]}}", markup=False, table_column=Column(no_wrap=True))


def _bar() -> BarColumn:
    from rich.progress import BarColumn

    # On a terminal of 16 colors, rich draws its own color of a finished bar as the gray of an empty one.
    return BarColumn(bar_width=20, finished_style="green")


def _remaining() -> TimeRemainingColumn:
    from rich.progress import TimeRemainingColumn
    from rich.table import Column

    return TimeRemainingColumn(table_column=Column(no_wrap=True))


def _shortened(title: str, width: int) -> str:
    """The end of a title that is too long: it tells one path from another."""
    return title if len(title) <= width else f"…{title[1 - width :]}"


def _report(
    itself: weakref.ref[Reporter], stop: threading.Event, look: Callable[[], EncoderStats | None]
) -> None:
    while not stop.wait(_PERIOD_S):
        if not _report_once(itself(), look()):
            return
    if (reporter := itself()) is not None:
        reporter._end()


def _report_once(reporter: Reporter | None, stats: EncoderStats | None) -> bool:
    return reporter is not None and stats is not None and reporter._try(reporter._show, stats)
