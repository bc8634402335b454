"""Tasks on a Ray cluster. Ray schedules them, and runs those of a lost worker or node elsewhere."""

from __future__ import annotations

import faulthandler
import importlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.rendering.chunk import Renderer
from penstock.rendering.engines import Advance, Done, Event, Failed
from penstock.rendering.engines.worker import watched
from penstock.rendering.failure import Failure
from penstock.rendering.plan import Plan, numbered
from penstock.results import ChunkReport

try:
    ray: Any = importlib.import_module("ray")
except ImportError:
    raise ImportError("engine='ray' needs Ray: pip install 'penstock-io[ray]'") from None

# So often Ray runs a task again whose worker or node was lost, before it counts as a failure of ours. Ray's default.
_RETRIES = 3
# Chosen: tasks that wait in Ray beside those that run, so that no worker waits for us, and the driver stays small.
_WAITING_TASKS = 16


class RayTasks:
    """Chunks as tasks on the cluster that Ray finds, or else on one that it starts here."""

    def __init__(
        self, plan: Plan, workers: int | None, frame_timeout: float | None, options: Mapping[str, Any]
    ) -> None:
        if not ray.is_initialized():
            ray.init()
        num_cpus = options.get("num_cpus", 1)
        self._plan = plan
        self._workers = workers
        self._text = ray.put(plan.to_json())
        self._advances = ray.remote(num_cpus=0)(_Advances).remote()
        self._settings = max(1, math.floor(num_cpus)), frame_timeout, self._advances
        # Without max_calls, Ray starts a process for each task that has a GPU, and the scene would be made again.
        self._task = ray.remote(max_calls=0, max_retries=_RETRIES, **{"num_cpus": num_cpus, **options})(
            _render
        )
        self._running: dict[Any, int] = {}

    def has_room(self) -> bool:
        most = self._workers
        if most is None:
            most = int(ray.cluster_resources().get("CPU", 1)) + _WAITING_TASKS
        return len(self._running) < most

    def submit(self, number: int) -> None:
        frames = self._plan.chunks[number].frames
        task = self._task.options(name=f"frames {frames[0]} to {frames[-1]}")
        self._running[task.remote(self._text, number, *self._settings)] = number

    def events(self, timeout_s: float) -> Iterator[Event]:
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        for task in ready:
            number = self._running.pop(task)
            try:
                answer = ray.get(task)
            except ray.exceptions.RayError as error:
                answer = Failure.of(error)
            yield Done(number, answer) if isinstance(answer, ChunkReport) else Failed(number, answer)
        at_work = set(self._running.values())
        for number, frames in ray.get(self._advances.taken.remote()).items():
            if number in at_work:
                yield Advance(number, frames)

    def workers(self) -> int:
        return len(self._running)

    def close(self) -> None:
        for task in self._running:
            ray.cancel(task, force=True)
        self._running.clear()
        ray.kill(self._advances)


class _Advances:
    """The frames of the chunks at work, which their tasks tell and the driver asks for."""

    def __init__(self) -> None:
        self._frames: dict[int, int] = {}

    def tell(self, number: int, frames: int) -> None:
        self._frames[number] = frames

    def taken(self) -> dict[int, int]:
        frames, self._frames = self._frames, {}
        return frames


# A worker's process runs many tasks of one plan: the scene is made once.
_renderers: dict[str, Renderer] = {}


def _render(
    text: str, number: int, threads: int, frame_timeout: float | None, advances: Any
) -> ChunkReport | Failure:
    plan = Plan.from_json(text)
    try:
        on_frame = watched(frame_timeout, lambda frames: advances.tell.remote(number, frames))
        on_frame(0)
        if plan.hash not in _renderers:
            _renderers.clear()
            _renderers[plan.hash] = Renderer(plan, threads)
        return _renderers[plan.hash].render(numbered(plan, number), on_frame)
    except Exception as error:
        return Failure.of(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
