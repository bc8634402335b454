"""Chunks as tasks on a Ray cluster. Ray schedules them, and the render submits those of a lost worker or node again."""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import os
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock._common.log import logger
from penstock.errors import RenderError
from penstock.rendering.engines.executor import Engine, Running
from penstock.rendering.engines.processes import ENDING_S
from penstock.rendering.engines.work import PERIOD_S, Outcome, Work
from penstock.rendering.planning import Plan

try:
    ray: Any = importlib.import_module("ray")
except ImportError:
    raise ImportError("engine='ray' needs Ray. Run: pip install 'penstock-io[ray]'") from None

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


class RayTasks(Engine):
    """Chunks as tasks on a cluster, `workers` at once at most, or as many as it has room for.

    An actor that tasks find by its name counts their frames, and asks them to end. Ray starts a process for it, which
    on two CPUs delays the first frames by half a second (measured). Without `progress` it comes only to end tasks.
    """

    def __init__(
        self, plan: Plan, workers: int | None, options: Mapping[str, Any], *, progress: bool
    ) -> None:
        connect()
        self._most, self._options = workers, options
        self._shared = ray.put(Work.of(plan, _cpus(options)))
        self._name = self._shared.hex()
        # The dashboard groups tasks by name. One for each chunk would cost the driver 12 KB each: Ray's metrics keep
        # all names (measured with Ray 2.60: 263 MiB after 20,000 tasks, and 20 MiB with one name).
        self._task = _task(options).options(name=f"render {Path(plan.output).name}")
        self._actor: Any = _started(self._name) if progress else None
        self._answer: Any = None  # that was asked for, and has not come yet
        self._frames: dict[int, int] = {}
        self._room, self._room_s = room(options), time.monotonic()
        if self._room == 0:
            needs = {"num_cpus": 1, **options}
            logger.warning("no node of the Ray cluster has the resources that a task needs: %s", needs)

    def has_room(self, running: Running) -> bool:
        if self._most is None and time.monotonic() >= self._room_s + _NODES_PERIOD_S:
            self._room, self._room_s = room(self._options), time.monotonic()
        return len(running) < (self._most or self._room + _WAITING_TASKS)

    def submit(self, number: int) -> Future[Outcome]:
        self._frames.pop(number, None)  # of a worker that was lost
        task = self._task.remote(self._shared, self._name, number, self._room)
        future: Future[Outcome] = task.future()
        return future

    def frames(self, running: Running) -> Mapping[int, int]:
        """Those that tasks have told. Without the actor, the render goes on."""
        if self._actor is not None:
            try:
                self._answer = self._answer or self._actor.taken.remote()
                self._frames |= ray.get(self._answer, timeout=_ANSWER_S)
                self._answer = None
            except ray.exceptions.GetTimeoutError:
                pass  # its process is starting, or the machine is busy
            except ray.exceptions.RayError as error:
                logger.warning("the progress inside chunks is no longer shown: %s", str(error))
                self._actor = None
        return {number: self._frames[number] for number in running.values() if number in self._frames}

    def end(self, running: Running) -> None:
        # Ray 2.60 aborts this process if a task succeeds while it is cancelled ("Tried to complete task that was not
        # pending"): those that run are asked to end, and only those that do not are cancelled. Those that run have told
        # of frames, or are the first in Ray's queue.
        asked = [
            future
            for place, future in enumerate(running)
            if place < self._room or running[future] in self._frames
        ]
        with suppress(ray.exceptions.RayError):  # the cluster is gone
            _cancel(running.keys() - asked)
            if asked:
                self._actor = self._actor or _started(self._name)
                with suppress(ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError):
                    ray.get(self._actor.end.remote(), timeout=_END_ANSWER_S)
                _cancel(wait(asked, ENDING_S).not_done)
            if self._actor is not None:
                ray.kill(self._actor)


def _cancel(futures: Iterable[Any]) -> None:
    for future in futures:
        ray.cancel(future.object_ref, force=True)


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

    def tell(self, number: int, frames: int) -> bool:
        """Takes the frames of a chunk, and tells whether its task is to go on."""
        self._frames[number] = frames
        return self._goes_on

    def end(self) -> None:
        self._goes_on = False

    def taken(self) -> dict[int, int]:
        frames, self._frames = self._frames, {}
        return frames


class _ProgressSender:
    """Reports a chunk's number of frames to the actor at every `every`-th call. Raises once the render has ended."""

    def __init__(self, name: str, number: int, every: int) -> None:
        self._name, self._number, self._every = name, number, every
        self._calls = itertools.count()
        self._actor: Any = None
        self._answer: Any = None

    def __call__(self, frames: int) -> None:
        if self._answer is not None:
            if not self._answer.done():
                return
            if self._answer.exception() is not None:
                self._actor = None  # it was lost, and there may be another one
            elif not self._answer.result():
                raise RenderError("the render has ended")
        if next(self._calls) % self._every == 0:
            with suppress(ValueError):  # there is no such actor, or not yet
                self._actor = self._actor or ray.get_actor(self._name)
                self._answer = self._actor.tell.remote(self._number, frames).future()


def _cpus(options: Mapping[str, Any]) -> float:
    cpus = options.get("num_cpus")
    return 1 if cpus is None else float(cpus)


def _task(options: Mapping[str, Any]) -> Any:
    """The function that Ray runs."""
    given = {"num_cpus": 1, **options}
    # The render itself tries chunks of lost workers again. max_calls=0 reuses processes: for tasks with a GPU, Ray's
    # default starts a process each, which would make the scene again.
    return ray.remote(max_calls=0, max_retries=0, **given)(_render)


def _render(work: Work, name: str, number: int, workers: int) -> Outcome:
    """The task: renders a chunk, as one of so many workers."""
    # All workers together send no more messages than the actor can read.
    tell = _ProgressSender(name, number, math.ceil(workers / (_MESSAGES_PER_S * PERIOD_S)) or 1)
    tell(0)
    return work(number, tell, where=f"on {socket.gethostname()}, process {os.getpid()}: ")
