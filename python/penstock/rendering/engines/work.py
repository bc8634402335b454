"""What a worker does, whoever runs it: a function of a chunk's number, which can be sent to another process."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from penstock._common.messages import silenced
from penstock.rendering.chunk import Renderer
from penstock.rendering.planning import Plan
from penstock.rendering.reports import RenderReport

#: Chosen: how often a worker tells of its frames. Often enough for a progress bar.
PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class Failed:
    """A chunk was not rendered: the message of the error, and its traceback, which is empty if there is none."""

    reason: str
    details: str = ""

    @classmethod
    def of(cls, error: BaseException, where: str = "") -> Self:
        """The failure of a chunk by an exception, and where that was."""
        is_ours = type(error).__module__ == "penstock.errors"
        reason = f"{where}{'' if is_ours else f'{type(error).__name__}: '}{error}"
        return cls(reason, "".join(traceback.format_exception(error)))


Outcome = RenderReport.Chunk | Failed


class Work:
    """Renders chunks of a plan. Each thread that calls it makes a scene of its own, which lives as long as the work.

    Args:
        text: the plan, as JSON.
        threads: how many threads FFmpeg's encoder has.
        paths: where Python finds modules.
        program: path of the worker's FFmpeg, if it's known to have the plan's version.
    """

    def __init__(self, text: str, threads: int, paths: tuple[str, ...], program: str | None) -> None:
        self.paths = paths
        self._text, self._threads, self._program = text, threads, program
        self._own = threading.local()

    @classmethod
    def of(cls, plan: Plan, threads: float, program: str | None = None) -> Work:
        """The work of a plan, for workers that import what this process can import."""
        paths = tuple(str(Path(path).absolute()) for path in sys.path)
        return cls(plan.to_json(), max(1, int(threads)), paths, program)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._text, self._threads, self.paths, self._program)

    def __call__(
        self, number: int, tell: Callable[[int], object] = lambda frames: None, where: str = ""
    ) -> Outcome:
        """Renders a chunk, and calls `tell` with the number of its frames so far, twice a second."""
        told_s = time.monotonic()

        def on_frame(frames: int) -> None:
            nonlocal told_s
            if time.monotonic() >= told_s + PERIOD_S:
                told_s = time.monotonic()
                tell(frames)

        try:
            with silenced():  # the report has all warnings
                if not hasattr(self._own, "renderer"):
                    plan = Plan.from_json(self._text)
                    self._own.renderer = Renderer(plan, self._threads, self._program)
                report: Outcome = self._own.renderer.render(number, on_frame)
        except Exception as error:  # its class may exist in this process only
            return Failed.of(error, where)
        return report


# The same object for the same render, or each chunk would make the scene again.
@lru_cache(maxsize=1)
def _arrived(text: str, threads: int, paths: tuple[str, ...], program: str | None) -> Work:
    """The work in the process to which it was sent."""
    # The driver's paths come last: where machines share folders, modules beside a script are found by them.
    sys.path.extend(path for path in paths if path not in sys.path)
    return Work(text, threads, paths, program)
