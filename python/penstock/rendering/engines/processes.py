"""Chunks on programs of this machine, and what these programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from penstock._common.control_groups import whole_cpus
from penstock._common.deadline import Deadline
from penstock._platform.workers import Link, end_this_program
from penstock.rendering.engines.executor import Engine, Running
from penstock.rendering.engines.work import Failed, Outcome, Work
from penstock.rendering.planning import Plan

#: Chosen: seconds that a worker has to end by itself before it is killed.
ENDING_S = 2.0


@dataclass(frozen=True, slots=True)
class _Worker:
    """A program, and the link over which it gets numbers of chunks and answers."""

    process: subprocess.Popen[bytes]
    link: Link

    def killed(self) -> int:
        """Kills the program, if it still runs, and returns its exit status."""
        self.process.kill()
        status = self.process.wait()
        self.link.end()  # a process that it has started may keep its end open
        return status


class Processes(Engine):
    """Chunks on up to `count` programs, which start when there is something to do. A thread waits for each.

    They are programs of their own and no forks, so that threads and OpenGL contexts of this process do no harm, and a
    script needs no ``if __name__ == "__main__"``.
    """

    def __init__(self, plan: Plan, count: int) -> None:
        work = Work.of(plan, whole_cpus() / count, plan.program)
        super().__init__(work, ThreadPoolExecutor(count, "penstock-render"), count)
        self._started: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._frames: dict[int, int] = {}

    def submit(self, number: int) -> Future[Outcome]:
        worker = self._idle.pop() if self._idle else self._start()
        self._frames[number] = 0
        return self._executor.submit(self._render, worker, number)

    def frames(self, running: Running) -> Mapping[int, int]:
        return {number: self._frames[number] for number in running.values()}

    def end(self, running: Running) -> None:
        for worker in self._started:
            worker.link.end_sending()  # at which it ends its FFmpeg and itself
        deadline = Deadline(ENDING_S)
        for worker in self._started:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(deadline.left_s())
            worker.killed()
        self._executor.shutdown()
        for worker in self._started:
            worker.link.close()

    def _start(self) -> _Worker:
        worker = _Worker(*Link.started(f"from {__name__} import run_worker; run_worker({{}})"))
        self._started.append(worker)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died, which `_render` tells
            worker.link.send(self._work)
        return worker

    def _render(self, worker: _Worker, number: int) -> Outcome:
        """Has a worker render a chunk, and waits for that."""
        try:
            worker.link.send(number)
            while isinstance(answer := worker.link.receive(), int):
                self._frames[number] = answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            status = worker.killed()
            how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            return Failed(f"worker {worker.process.pid} {how}")
        self._idle.append(worker)
        outcome: Outcome = answer
        return outcome


def run_worker(*ends: int) -> None:
    """Renders the chunks whose numbers come, until the other end closes. The program of a worker."""
    link = Link(*ends)
    orders: SimpleQueue[Any] = SimpleQueue()
    # By an exception, so that the ``with`` blocks of a chunk at work end its FFmpeg and remove what is unfinished.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    # Reads also while this thread renders, to find out that the driver has gone.
    threading.Thread(target=_receive, args=(link, orders), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):
        work: Work | None = orders.get()
        if work is None:
            return
        sys.path[:] = work.paths  # before the first chunk, which imports the modules of the code
        while (number := orders.get()) is not None:
            link.send(work(number, link.send))


def _receive(link: Link, orders: SimpleQueue[Any]) -> None:
    """Takes what the driver sends. When the driver has gone, ends this process, its FFmpeg, and the chunk at work."""
    try:
        while True:
            orders.put(link.receive())
    except (EOFError, OSError):
        end_this_program()
        orders.put(None)  # for a thread that waits, and doesn't see a signal
        time.sleep(ENDING_S)
        os._exit(1)  # SIGTERM had no effect: the scene is in a call that does not return to Python
