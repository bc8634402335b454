"""The progress of a render: a bar on standard error, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        from penstock._bars import RenderBar  # rich takes long to import

        with RenderBar(frames) as bar:
            yield bar.show
