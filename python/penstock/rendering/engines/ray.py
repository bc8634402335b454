"""Tasks on a Ray cluster. Ray schedules them, and runs those of a lost worker or node elsewhere."""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._common.log import logger
from penstock.errors import FFmpegWarning, RenderError
from penstock.rendering.chunk import Renderer
from penstock.rendering.engines import ATTEMPTS, Done, Event, Failed, FramesDone
from penstock.rendering.engines.worker import PERIOD_S, at_times
from penstock.rendering.planning import Plan, RenderChunk, chunk_of_number

try:
    ray: Any = importlib.import_module("ray")
except ImportError:
    raise ImportError("engine='ray' needs Ray. Run: pip install 'penstock-io[ray]'") from None

# What Ray raises once it has tried as often as it may.
_LOST = ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError
# Options of Ray's tasks that may be given. The others are ours, or make no sense for a task that returns a report.
_OPTIONS = (
    *("num_cpus", "num_gpus", "resources", "memory", "accelerator_type"),
    *("label_selector", "scheduling_strategy", "runtime_env"),
)
# Ray's names of resources, where they are not those of the options.
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
# Chosen: tasks that wait in Ray beside those that run, so that no worker waits for us, and the driver stays small.
_WAITING_TASKS = 16
# Chosen: how often the cluster is asked for its nodes, which come and go.
_NODES_PERIOD_S = 5.0
# Chosen: so many messages a second about progress. Ray answers one in 0.9 ms (measured).
_MESSAGES_PER_S = 1000
# Guessed: an answer takes a millisecond, once the actor's process has started. Progress is asked for again.
_ANSWER_S = 0.1
# Guessed: the actor's process starts in so many seconds on a busy machine, and has to hear of the end.
_END_ANSWER_S = 10.0
# Chosen: so many seconds tasks have to end by themselves.
_ENDING_S = 2.0


def check_options(options: Mapping[str, Any]) -> None:
    """Checks options of tasks, without a cluster.

    Raises:
        ValueError, TypeError: one is unknown, or its value is not possible.
    """
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise ValueError(f"ray must only have {', '.join(_OPTIONS)}, not {', '.join(unknown)}")
    _task(options)


def room(options: Mapping[str, Any]) -> int:
    """How many tasks the nodes of the cluster have room for, if nothing else runs on them."""
    connect()
    needs = {"CPU": _cpus(options), **(options.get("resources") or {})}
    needs |= {name: options.get(option) or 0 for option, name in _RESOURCES.items() if option != "num_cpus"}
    needs = {name: amount for name, amount in needs.items() if amount} or {"CPU": 1}
    nodes = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return sum(
        math.floor(min(node.get(name, 0) / amount for name, amount in needs.items())) for node in nodes
    )


def connect() -> None:
    """Connects to the cluster that Ray finds, or starts one here. It stays, for the calls to come."""
    if not ray.is_initialized():
        ray.init(logging_level=logging.WARNING)


@dataclass(eq=False, slots=True)
class _Task:
    """A chunk that was submitted, by a `key` of its own, and whether its task has begun."""

    key: int
    number: int
    is_running: bool = False


class RayTasks:
    """Chunks as tasks on a cluster, `workers` at once at most, or as many as it has room for.

    An actor that tasks find by its name counts their frames, and asks them to end. Ray starts a process for it, which
    on two CPUs delays the first frames by half a second (measured). Without `progress` it comes only to end tasks.
    """

    def __init__(
        self,
        plan: Plan,
        workers: int | None,
        options: Mapping[str, Any],
        *,
        progress: bool,
    ) -> None:
        connect()
        self._plan = plan
        self._workers = workers
        self._options = options
        self._threads = max(1, math.floor(_cpus(options)))
        self._setup = ray.put((plan.to_json(), [str(Path(path).absolute()) for path in sys.path]))
        # The dashboard groups tasks by name. One for each chunk would cost the driver 12 KB each: Ray's metrics keep
        # all names (measured with Ray 2.60: 263 MiB after 20,000 tasks, and 20 MiB with one name).
        self._task = _task(options).options(name=f"render {Path(plan.output).name}")
        self._progress_actor: Any = _started(self._setup.hex()) if progress else None
        self._answer: Any = None  # that was asked for, and has not come yet
        self._tasks: dict[Any, _Task] = {}
        self._keys = itertools.count()
        self._room = room(options)
        self._room_s = time.monotonic()
        if self._room == 0:
            logger.warning(
                "no node of the Ray cluster has the resources that a task needs: %s",
                {"num_cpus": 1, **options},
            )

    def has_room(self) -> bool:
        return len(self._tasks) < (self._workers or self._room_now() + _WAITING_TASKS)

    def submit(self, number: int) -> None:
        chunk = chunk_of_number(self._plan, number)
        key = next(self._keys)
        # All workers together send no more messages than the actor can read.
        every = math.ceil(len(self._tasks) / (_MESSAGES_PER_S * PERIOD_S)) or 1
        task = self._task.remote(self._setup, self._setup.hex(), chunk, key, self._threads, every)
        self._tasks[task] = _Task(key, number)

    def events(self, timeout_s: float) -> Iterator[Event]:
        tasks = list(self._tasks)
        if ray.wait(tasks, num_returns=1, timeout=timeout_s)[0]:
            ready, _ = ray.wait(tasks, num_returns=len(tasks), timeout=0)
        else:
            ready = []
        by_key = {task.key: task for task in self._tasks.values()}
        for key, frames in self._taken().items():
            if (task := by_key.get(key)) is not None:
                task.is_running = True
                yield FramesDone(task.number, frames)
        for reference in ready:
            yield self._ended(reference, self._tasks.pop(reference))

    def workers(self) -> int:
        # What a task has told may be from before its end, or from before its worker was lost.
        return min(self._room, sum(task.is_running for task in self._tasks.values()))

    def close(self) -> None:
        # Ray 2.60 aborts this process if a task succeeds while it is cancelled ("Tried to complete task that was not
        # pending"): those that run are asked to end, and only those that do not are cancelled.
        running, waiting = self._running_and_waiting()
        self._tasks.clear()
        with suppress(ray.exceptions.RayError):  # the cluster is gone
            for reference in waiting:
                ray.cancel(reference, force=True)
            if running:
                self._progress_actor = self._progress_actor or _started(self._setup.hex())
                with suppress(ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError):
                    ray.get(self._progress_actor.end.remote(), timeout=_END_ANSWER_S)
                _, running = ray.wait(running, num_returns=len(running), timeout=_ENDING_S)
            for reference in running:
                ray.cancel(reference, force=True)
            if self._progress_actor is not None:
                ray.kill(self._progress_actor)

    def _running_and_waiting(self) -> tuple[list[Any], list[Any]]:
        """Divides the tasks, as far as known. Those that run have reported frames, or are the first in Ray's queue."""
        running: list[Any] = []
        waiting: list[Any] = []
        for place, (reference, task) in enumerate(self._tasks.items()):
            (running if place < self._room or task.is_running else waiting).append(reference)
        return running, waiting

    def _room_now(self) -> int:
        now_s = time.monotonic()
        if now_s >= self._room_s + _NODES_PERIOD_S:
            self._room, self._room_s = room(self._options), now_s
        return self._room

    def _ended(self, reference: Any, task: _Task) -> Event:
        """What became of a task that has ended."""
        try:
            event: Event = ray.get(reference)
        except _LOST as error:
            event = Failed(task.number, f"{type(error).__name__}: {error}", attempts=ATTEMPTS)
        except ray.exceptions.RayError as error:
            event = Failed.of(task.number, error)
        return event

    def _taken(self) -> dict[int, int]:
        """What tasks have told since the last answer. Without the actor, the render goes on."""
        if self._progress_actor is None:
            return {}
        try:
            self._answer = self._answer or self._progress_actor.taken.remote()
            taken: dict[int, int] = ray.get(self._answer, timeout=_ANSWER_S)
        except ray.exceptions.GetTimeoutError:  # its process is starting, or the machine is busy
            return {}
        except ray.exceptions.RayError as error:
            logger.warning("the progress inside chunks is no longer shown: %s", str(error))
            self._progress_actor = self._answer = None
            return {}
        self._answer = None
        return taken


def _started(name: str) -> Any:
    """A new actor of this name."""
    # It dies with the driver, and not with another node.
    here = ray.get_runtime_context().get_node_id()
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=strategy)(_ProgressActor).options(name=name).remote()


class _ProgressActor:
    """An actor to which tasks report their numbers of frames, and from which the driver reads them."""

    def __init__(self) -> None:
        self._frames: dict[int, int] = {}
        self._goes_on = True

    def tell(self, key: int, frames: int) -> bool:
        """Takes the frames of a task, and tells whether it is to go on."""
        self._frames[key] = frames
        return self._goes_on

    def end(self) -> None:
        self._goes_on = False

    def taken(self) -> dict[int, int]:
        frames, self._frames = self._frames, {}
        return frames


class _ProgressSender:
    """Reports a task's number of frames to the actor at every `every`-th call. Raises once the render has ended."""

    def __init__(self, name: str, key: int, every: int) -> None:
        self._name = name
        self._progress_actor: Any = None
        self._key = key
        self._every = every
        self._calls = itertools.count()
        self._answer: Any = None

    def __call__(self, frames: int) -> None:
        if self._answer is not None:
            if not self._answer.done():
                return
            if self._answer.exception() is not None:
                self._progress_actor = None  # it was lost, and there may be another one
            elif not self._answer.result():
                raise RenderError("the render has ended")
        if next(self._calls) % self._every == 0:
            with suppress(ValueError):  # there is no such actor, or not yet
                self._progress_actor = self._progress_actor or ray.get_actor(self._name)
                self._answer = self._progress_actor.tell.remote(self._key, frames).future()


def _cpus(options: Mapping[str, Any]) -> float:
    cpus = options.get("num_cpus")
    return 1 if cpus is None else float(cpus)


def _task(options: Mapping[str, Any]) -> Any:
    """The function that Ray runs."""
    given = {"num_cpus": 1, **options}
    # max_retries counts lost workers and nodes, not exceptions, which `_render` returns as failures. max_calls=0 reuses
    # processes: for tasks with a GPU, Ray's default starts a process each, which would make the scene again.
    return ray.remote(max_calls=0, max_retries=ATTEMPTS - 1, **given)(_render)


def _attempt() -> int:
    """How often Ray has started this task by now. Ray has no public name for it; without, retries are not counted."""
    with suppress(AttributeError):
        return 1 + int(ray._private.worker.global_worker.core_worker.get_current_task_attempt_number())
    return 1


# A worker's process runs many tasks of one render: the scene is made once.
_renderers: dict[str, Renderer] = {}


def _renderer(setup: tuple[str, list[str]], setup_id: str, threads: int) -> Renderer:
    if setup_id not in _renderers:
        _renderers.clear()
        text, paths = setup
        # The driver's come last: where machines share folders, modules beside a script are found by them.
        sys.path.extend(path for path in paths if path not in sys.path)
        _renderers[setup_id] = Renderer(Plan.from_json(text), threads)
    return _renderers[setup_id]


def _render(
    setup: tuple[str, list[str]],
    setup_id: str,
    chunk: RenderChunk,
    key: int,
    threads: int,
    every: int,
) -> Event:
    """The task: renders a chunk."""
    attempt = _attempt()
    if attempt > ATTEMPTS:  # Ray counts no retries of a worker that it kills for want of memory
        why = "its worker was lost each time, perhaps because memory ran out"
        return Failed(chunk.number, why, attempts=ATTEMPTS)
    tell = _ProgressSender(setup_id, key, every)
    try:
        tell(0)
        renderer = _renderer(setup, setup_id, threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FFmpegWarning)  # the report has them
            return Done(chunk.number, renderer.render(chunk, at_times(tell)), attempt)
    except Exception as error:
        where = f"on {socket.gethostname()}, process {os.getpid()}: "
        return Failed.of(chunk.number, error, where=where, attempts=attempt)
