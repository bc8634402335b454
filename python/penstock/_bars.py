"""Progress bars on standard error, drawn only when they are told to."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress, ProgressColumn


def bars(*columns: ProgressColumn) -> Progress:
    """Bars with these columns. What the program prints is not redirected."""
    return Progress(
        *columns,
        console=Console(stderr=True),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
