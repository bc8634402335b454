"""A simulation of a render: workers that take chunks in turn, fail and are replaced or not, and the join.

What it has: the start of workers and chunks, frames with a spread, one driver that serves one chunk at a time, the way
of a chunk to the storage, and losses, after each of which the chunk is rendered again from its first frame. What it
leaves out: machines of different speed, scenes whose frames differ in cost for long, a network or a storage that all
workers together saturate, Ray's own limits with thousands of workers, and machines that come back.

A run is a function of its arguments: the same seed gives the same times.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Parts:
    """What a render is made of, as `benchmarks.render.parts` measures it.

    Attributes:
        worker_start_s: from the start of a worker until it takes a chunk.
        chunk_start_s: what a chunk takes beside its frames: FFmpeg's start and end, and its report.
        frame_s: one frame.
        spread: the standard deviation of the logarithm of a chunk's time.
        driver_s: the driver's time for a chunk, during which it serves no other.
        storage_start_s: to begin a file in the storage.
        storage_bytes_per_s: how fast a worker writes to the storage, and the driver reads from it.
        join_start_s: what a join takes beside its chunks and bytes.
        join_chunk_s: what it takes for a chunk.
        join_bytes_per_s: how fast it moves bytes.
        frame_bytes: of an encoded frame.
    """

    worker_start_s: float
    chunk_start_s: float
    frame_s: float
    spread: float
    driver_s: float
    storage_start_s: float = 0.0
    storage_bytes_per_s: float = float("inf")
    join_start_s: float = 0.0
    join_chunk_s: float = 0.0
    join_bytes_per_s: float = float("inf")
    frame_bytes: float = 0.0

    @classmethod
    def of(cls, engine: str, measured: Mapping[str, Mapping[str, float]]) -> Self:
        """The parts with the workers of an engine. ``measured`` has the medians by row and figure."""
        figures: dict[str, float] = {}
        for part in ("storage", "join", engine):
            figures |= measured[f"parts-{part}"]
        names = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in figures.items() if name in names})

    def transfer_s(self, nbytes: float) -> float:
        """A file on its way to or from the storage."""
        return self.storage_start_s + nbytes / self.storage_bytes_per_s

    def join_s(self, lengths: Sequence[int]) -> float:
        """The join. It fetches a chunk from the storage while it joins the one before."""
        began_s = done_s = 0.0
        for length in lengths:
            nbytes = length * self.frame_bytes
            # It was fetched since the one before began.
            began_s = max(began_s + self.transfer_s(nbytes), done_s)
            done_s = began_s + self.join_chunk_s + nbytes / self.join_bytes_per_s
        return self.join_start_s + done_s


@dataclass(frozen=True)
class Simulated:
    """What a simulated render came to.

    Attributes:
        render_s: from the start until the last chunk was there.
        work_s: what workers spent on chunks that were finished, all together.
        lost_s: what they spent on chunks that they lost.
        losses: how many chunks were lost with their worker.
    """

    render_s: float
    work_s: float
    lost_s: float
    losses: int


def durations(lengths: Iterable[int], parts: Parts, seed: int) -> list[float]:
    """How long a worker takes for each chunk."""
    generator = random.Random(seed)
    return [
        parts.chunk_start_s
        + length * parts.frame_s * generator.lognormvariate(0, parts.spread)
        + parts.transfer_s(length * parts.frame_bytes)
        for length in lengths
    ]


def losses_in(seconds: float, workers: int, share_per_hour: float, seed: int) -> list[tuple[float, int]]:
    """A Poisson process: when a worker is lost, and which one. Each is lost at this rate."""
    generator = random.Random(seed)
    rate = workers * share_per_hour / 3600
    found: list[tuple[float, int]] = []
    time_s = 0.0
    while rate and (time_s := time_s + generator.expovariate(rate)) < seconds:
        found.append((time_s, generator.randrange(workers)))
    return found


def simulate(
    lengths: Sequence[int],
    workers: int,
    parts: Parts,
    *,
    losses: Iterable[tuple[float, int]] = (),
    noticed_after_s: float = 0.0,
    is_replaced: bool = False,
    seed: int = 0,
) -> Simulated:
    """Renders chunks of these lengths, in their order.

    Args:
        lengths: frames of each chunk.
        workers: how many begin.
        parts: the parts' times.
        losses: when a worker is lost, in seconds since the start, and its number; one that is lost already stays so.
        noticed_after_s: so long after a loss the chunk is given to another worker.
        is_replaced: whether a new worker starts when a loss is noticed.
        seed: of the spread.

    Raises:
        ValueError: no worker is left.
    """
    return _Course(durations(lengths, parts, seed), workers, parts, noticed_after_s, is_replaced).run(losses)


@dataclass
class _Course:
    """A render in progress: events in the order of their times."""

    durations_s: Sequence[float]
    workers: int
    parts: Parts
    noticed_after_s: float
    is_replaced: bool

    def __post_init__(self) -> None:
        self._missing = deque(range(len(self.durations_s)))
        self._alive = set(range(self.workers))
        self._numbers = itertools.count(self.workers)
        self._idle: deque[int] = deque()
        #: By worker: its chunk, and when it began.
        self._running: dict[int, tuple[int, float]] = {}
        self._driver_free_s = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, Any]] = []
        for worker in range(self.workers):
            self._at(self.parts.worker_start_s, "ready", worker)

    def run(self, losses: Iterable[tuple[float, int]]) -> Simulated:
        for time_s, worker in losses:
            self._at(time_s, "lost", worker)
        left, work_s, lost_s, lost = len(self.durations_s), 0.0, 0.0, 0
        while left:
            if not self._events:
                raise ValueError("no worker is left")
            time_s, _, kind, what = heapq.heappop(self._events)
            if kind == "ready" and what in self._alive:
                self._idle.append(what)
            elif kind == "done":
                worker, chunk = what
                # A worker that was lost meanwhile has no chunk.
                if self._running.get(worker, (None,))[0] == chunk:
                    del self._running[worker]
                    work_s += self.durations_s[chunk]
                    left -= 1
                    self._idle.append(worker)
            elif kind == "lost" and what in self._alive:
                self._alive.discard(what)
                if what in self._idle:
                    self._idle.remove(what)
                if what in self._running:
                    chunk, began_s = self._running.pop(what)
                    lost_s += max(0.0, time_s - began_s)
                    lost += 1
                    self._at(time_s + self.noticed_after_s, "noticed", chunk)
                if self.is_replaced:
                    started = next(self._numbers)
                    self._alive.add(started)
                    started_s = time_s + self.noticed_after_s + self.parts.worker_start_s
                    self._at(started_s, "ready", started)
            elif kind == "noticed":
                self._missing.appendleft(what)
            self._assign(time_s)
        return Simulated(time_s, work_s, lost_s, lost)

    def _assign(self, time_s: float) -> None:
        """Gives chunks to idle workers. The driver serves one after the other."""
        while self._missing and self._idle:
            worker, chunk = self._idle.popleft(), self._missing.popleft()
            began_s = max(time_s, self._driver_free_s) + self.parts.driver_s
            self._driver_free_s = began_s
            self._running[worker] = chunk, began_s
            self._at(began_s + self.durations_s[chunk], "done", (worker, chunk))

    def _at(self, time_s: float, kind: str, what: Any) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), kind, what))
