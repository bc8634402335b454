"""Runs a plan to its end: what is missing is rendered by an engine, failures are tried again, the chunks are joined."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from types import MappingProxyType

from penstock._common.log import logger
from penstock._common.progress import RenderBar
from penstock.errors import RenderError
from penstock.rendering.chunk import data_name, folder_of, remove_chunks, stored_report
from penstock.rendering.engines.executor import Engine
from penstock.rendering.engines.work import PERIOD_S, Failed, Outcome
from penstock.rendering.join import join_chunks
from penstock.rendering.planning import Plan, chunk_of_number, stored_plans
from penstock.rendering.reports import RenderProgress, RenderReport
from penstock.rendering.storage import storage_of

# Chosen: how often a chunk is tried before the render fails.
_ATTEMPTS = 3
_SLOWEST_CHUNKS = 5
_PLAN_NAME = "plan.json"

Show = Callable[[RenderProgress], object]


class PlanRun:
    """One run of a plan. It keeps the chunks that an earlier run has finished, unless `resume` is False."""

    def __init__(self, plan: Plan, *, resume: bool) -> None:
        self._started_s = time.monotonic()
        self._storage = storage_of(plan.storage)
        if not resume:
            self._storage.remove(folder_of(plan))
        self.plan = self._resumed(plan) if resume else plan
        self._reports: dict[int, RenderReport.Chunk] = {}
        self._find(range(len(self.plan.lengths)))
        self._resumed_chunks = frozenset(self._reports)
        self._resumed_frames = self._done_frames = sum(one.frames for one in self._reports.values())
        self._failures: Counter[int] = Counter()
        self._running: dict[Future[Outcome], int] = {}

    def run(self, engine: Callable[[Plan], Engine], progress: bool | Show) -> RenderReport:
        """Renders the missing chunks, with an engine that `engine` makes only if there are any, and joins all."""
        try:
            # Before the first chunk: after a crash, it tells which frames are in each.
            self._storage.write(f"{folder_of(self.plan)}/{_PLAN_NAME}", self.plan.to_json())
            missing = deque(number for number in range(len(self.plan.lengths)) if number not in self._reports)
            with _shown(progress, len(self.plan.frames)) as show:
                if missing:
                    self._render(missing, engine(self.plan), show)
                    self._remove_parts()
                show(self._progress())
            join = join_chunks(self.plan, self._storage)
        except BaseException as error:
            try:
                self._remove_parts()
                self._find(self._running.values())  # some may have been finished after the last event
                if not self._reports:
                    remove_chunks(self.plan, self._storage)
            except OSError as failure:  # the storage fails: its chunks are kept
                error.add_note(f"the chunks in {self.plan.storage} could not be listed or removed: {failure}")
            if self._reports:
                done = (
                    f"{len(self._reports)} of {len(self.plan.lengths)} chunks are kept in {self.plan.storage}"
                )
                error.add_note(f"{done}. The same call continues from there")
            raise
        return self._report(join.output_bytes, join.elapsed_s, join.warnings)

    def _render(self, missing: deque[int], engine: Engine, show: Show) -> None:
        try:
            while missing or self._running:
                while missing and engine.has_room(self._running):
                    number = missing.popleft()
                    self._running[engine.submit(number)] = number
                show(self._progress(engine.frames(self._running)))
                wait(self._running, PERIOD_S, FIRST_COMPLETED)
                # `wait` doesn't return calls that an executor has cancelled in its shutdown.
                for future in [one for one in self._running if one.done()]:
                    number, outcome = self._running[future], _outcome(future)
                    if isinstance(outcome, Failed):
                        self._fail(number, outcome)
                        # It is tried next: a chunk that never succeeds ends the render early.
                        missing.appendleft(number)
                    else:
                        self._take(outcome)
                    del self._running[future]
        finally:
            engine.end(self._running)

    def _remove_parts(self) -> None:
        """Removes what workers that were killed have left."""
        for part in self._storage.names(".part"):
            if part.startswith(folder_of(self.plan)):
                self._storage.remove(part)

    def _find(self, numbers: Iterable[int]) -> None:
        """Loads the reports of those of the chunks that are in the storage."""
        for number in numbers:
            if (report := stored_report(self.plan, self._storage, number)) is not None:
                self._reports[number] = report

    def _take(self, report: RenderReport.Chunk) -> None:
        name = data_name(self.plan, report.number)
        if self._storage.read(f"{name}.json") is None:
            raise RenderError(
                f"{report.worker} wrote chunk {report.number} to {self.plan.storage}, but this machine can't see it "
                "there. Pass a folder or URL that all machines share as storage=",
                chunk=report.number,
            )
        self._reports[report.number] = report
        self._done_frames += report.frames

    def _fail(self, number: int, failed: Failed) -> None:
        self._failures[number] += 1
        chunk, attempts = chunk_of_number(self.plan, number), self._failures[number]
        logger.warning("%s failed (%d of %d): %s", chunk, attempts, _ATTEMPTS, failed.reason)
        if attempts == _ATTEMPTS:
            why = f"{chunk} failed {attempts} times: {failed.reason}"
            error = RenderError(why, chunk=number, frames=chunk.frames, attempts=attempts)
            if failed.details:
                error.add_note(failed.details.rstrip())
            raise error

    def _progress(self, at_work: Mapping[int, int] = MappingProxyType({})) -> RenderProgress:
        """The progress, with the frames so far of the chunks that workers are at."""
        elapsed_s = time.monotonic() - self._started_s
        done = self._done_frames + sum(at_work.values())
        return RenderProgress(
            frames_done=done,
            frames=len(self.plan.frames),
            chunks_done=len(self._reports),
            chunks=len(self.plan.lengths),
            workers=len(at_work),
            elapsed_s=elapsed_s,
            fps=(done - self._resumed_frames) / elapsed_s,
        )

    def _report(self, output_bytes: int, join_s: float, warnings: Iterable[str]) -> RenderReport:
        rendered = [report for number, report in self._reports.items() if number not in self._resumed_chunks]
        last = self._progress()
        slowest = sorted(rendered, key=lambda report: report.elapsed_s, reverse=True)[:_SLOWEST_CHUNKS]
        of_chunks = (line for report in self._reports.values() for line in report.warnings)
        return RenderReport(
            output=self.plan.output,
            frames=len(self.plan.frames),
            chunks=len(self.plan.lengths),
            output_bytes=output_bytes,
            elapsed_s=last.elapsed_s,
            join_s=join_s,
            fps=last.fps,
            resumed=len(self._resumed_chunks),
            retries=self._failures.total(),
            workers=tuple(_workers(rendered)),
            slowest=tuple(slowest),
            warnings=tuple(dict.fromkeys((*of_chunks, *warnings))),
        )

    def _resumed(self, plan: Plan) -> Plan:
        """The plan with the chunks of one that an earlier run has left, if that makes the same frames."""
        names = self._storage.names(_PLAN_NAME)
        texts = (text for name in names if (text := self._storage.read(name)) is not None)
        found = (plan.with_chunks_of(other) for other in stored_plans(texts))
        return next((same for same in found if same is not plan), plan)


def _outcome(future: Future[Outcome]) -> Outcome:
    """What became of a chunk. An executor that is broken, or was shut down, ends the render."""
    try:
        error = future.exception()
    except CancelledError as cancelled:
        error = cancelled
    if error is None:
        return future.result()
    if isinstance(error, BrokenExecutor | CancelledError):
        raise RenderError(
            f"the executor renders no more: {type(error).__name__}: {error}. Pass a new one"
        ) from error
    return Failed.of(error)


@contextmanager
def _shown(progress: bool | Show, frames: int) -> Iterator[Show]:
    """What to call with the progress: nothing, a bar on standard error, or the function of the caller's."""
    if progress is False:
        yield lambda _: None
    elif progress is not True:
        yield progress
    else:
        with RenderBar(frames) as bar:
            yield bar.show


def _workers(reports: Iterable[RenderReport.Chunk]) -> list[RenderReport.Worker]:
    by_worker: dict[str, list[RenderReport.Chunk]] = {}
    for report in reports:
        by_worker.setdefault(report.worker, []).append(report)
    workers = [
        RenderReport.Worker(
            worker, len(done), sum(one.frames for one in done), sum(one.elapsed_s for one in done)
        )
        for worker, done in by_worker.items()
    ]
    return sorted(workers, key=lambda one: one.frames / one.busy_s, reverse=True)
