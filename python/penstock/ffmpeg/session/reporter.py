"""Reports the progress of an `Encoder` twice a second."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Self

from penstock._native import _count
from penstock.results import EncoderStats

# As often as FFmpeg reports.
PERIOD_S = 0.5
# Guessed: so long `close` waits for a callback, which should draw a line.
_PATIENCE_S = 1.0


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
        from penstock._bars import VideoBar  # rich takes long to import

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
            warnings.warn("progress: the callback has not returned yet", RuntimeWarning, stacklevel=2)
        elif not self._has_ended:
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        if not self._has_failed and self._last is not None:
            self._try(self._show, self._last)
        self._try(self._finish)

    def _try(self, call: Callable[..., object], *arguments: EncoderStats) -> bool:
        """Calls a function, and gives whether it works: an error in it is a warning, and must not replace FFmpeg's."""
        try:
            call(*arguments)
        except Exception as error:
            self._has_failed = True
            warnings.warn(f"progress is no longer reported: {error!r}", RuntimeWarning, stacklevel=2)
        return not self._has_failed


def _report(
    itself: weakref.ref[Reporter], stop: threading.Event, look: Callable[[], EncoderStats | None]
) -> None:
    while not stop.wait(PERIOD_S):
        if not _report_once(itself(), look()):
            return
    if (reporter := itself()) is not None:
        reporter._end()


def _report_once(reporter: Reporter | None, stats: EncoderStats | None) -> bool:
    return reporter is not None and stats is not None and reporter._try(reporter._show, stats)
