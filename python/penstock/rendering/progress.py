"""The progress of a render: a bar on standard error, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.results import RenderProgress

Show = Callable[[RenderProgress], object]


@contextmanager
def shown(progress: bool | Show, frames: int) -> Iterator[Show]:
    """What to call with the progress, for a render's argument `progress`."""
    if progress is False:
        yield lambda _: None
    elif progress is not True:
        yield progress
    else:
        with _bar(frames) as show:
            yield show


@contextmanager
def _bar(frames: int) -> Iterator[Show]:
    # rich takes long to import.
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from penstock._bars import bars

    text = "{task.completed}/{task.total} frames  {task.fields[rest]}"
    bar = bars(BarColumn(bar_width=20), TextColumn(text, markup=False), TimeRemainingColumn())
    task = bar.add_task("", total=frames, rest="")

    def show(now: RenderProgress) -> None:
        rest = f"{now.chunks_done}/{now.chunks} chunks  {now.workers} workers  {now.fps:.1f} fps"
        bar.update(task, completed=now.frames_done, rest=rest)
        with suppress(OSError, ValueError):  # standard error is closed, or its terminal is gone
            bar.refresh()

    with suppress(OSError, ValueError):
        bar.start()
    try:
        yield show
    finally:
        with suppress(OSError, ValueError):
            bar.stop()
