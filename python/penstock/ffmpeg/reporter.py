"""Tells somebody, twice a second, how far an `Encoder` is."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Self

from penstock.ffmpeg.stats import EncoderStats

# As often as FFmpeg reports.
PERIOD_S = 0.5


class Reporter:
    """Calls `show` with what `look` gives, on a daemon thread, until it is told to stop.

    Args:
        show: gets the `EncoderStats`.
        finish: called once, after the last `show`.
    """

    def __init__(self, show: Callable[[EncoderStats], object], finish: Callable[[], object]) -> None:
        self._show = show
        self._finish = finish
        self._has_failed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(
        cls, progress: bool | Callable[[EncoderStats], object], total_frames: int | None, rate: Fraction
    ) -> Self | None:
        """What an encoder's argument `progress` asks for; None for nothing."""
        if callable(progress):
            return cls(progress, lambda: None)
        if not progress:
            return None
        from penstock.ffmpeg.bar import Bar  # rich takes long to import

        bar = Bar(total_frames, float(rate))
        return cls(bar.update, bar.finish)

    def start(self, look: Callable[[], EncoderStats | None]) -> None:
        """Begins; `look` gives None when there is nothing to look at any more.

        Between two reports the thread holds neither this nor what `show` belongs to, which may be what has the encoder.
        """
        arguments = (weakref.ref(self), self._stop, look)
        name = "penstock-encoder-progress"
        self._thread = threading.Thread(target=_report, args=arguments, name=name, daemon=True)
        self._thread.start()

    def stop(self, last: EncoderStats) -> None:
        """Shows how it ended, and ends."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if not self._has_failed:
            self._try_show(last)
        self._finish()

    def _try_show(self, stats: EncoderStats) -> bool:
        """Shows, and tells whether that is possible: an error of the user's must not take the place of FFmpeg's."""
        try:
            self._show(stats)
        except Exception as error:
            self._has_failed = True
            warnings.warn(f"progress is not told any more: {error!r}", RuntimeWarning, stacklevel=2)
        return not self._has_failed


def _report(
    itself: weakref.ref[Reporter], stop: threading.Event, look: Callable[[], EncoderStats | None]
) -> None:
    while not stop.wait(PERIOD_S):
        if not _report_once(itself(), look()):
            return


def _report_once(reporter: Reporter | None, stats: EncoderStats | None) -> bool:
    return reporter is not None and stats is not None and reporter._try_show(stats)
