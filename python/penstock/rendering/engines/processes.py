"""Workers that are processes of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from socket import socketpair

from penstock._common.control_groups import whole_cpus
from penstock._common.deadline import Deadline
from penstock.rendering.engines import ENDING_S, Event, Failed, FramesDone
from penstock.rendering.planning import Plan


@dataclass(eq=False, slots=True)
class _Worker:
    """A process, and the connection over which it gets numbers of chunks and answers."""

    process: subprocess.Popen[bytes]
    connection: Connection
    number: int | None = field(default=None)


class Processes:
    """Chunks on up to `count` processes, which start when there is something to do.

    They are programs of their own and no forks, so that threads and OpenGL contexts of this process do no harm, and a
    script needs no ``if __name__ == "__main__"``.
    """

    def __init__(self, plan: Plan, count: int) -> None:
        self._count = count
        # What a worker needs to begin: the plan, where Python finds modules, and its share of the CPUs.
        self._setup = plan.to_json(), list(sys.path), max(1, whole_cpus() // count)
        self._workers: list[_Worker] = []

    def has_room(self) -> bool:
        return len(self._workers) < self._count or any(worker.number is None for worker in self._workers)

    def submit(self, number: int) -> None:
        worker = next((one for one in self._workers if one.number is None), None) or self._start()
        worker.number = number
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died, which `events` tells
            worker.connection.send(number)

    def events(self, timeout_s: float) -> Iterator[Event]:
        ready = wait([worker.connection for worker in self._workers], timeout_s)
        for worker in [one for one in self._workers if one.connection in ready]:
            try:
                event: Event = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                yield from self._lost(worker)
                continue
            if not isinstance(event, FramesDone):
                worker.number = None
            yield event

    def workers(self) -> int:
        return sum(worker.number is not None for worker in self._workers)

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()  # at which it ends its FFmpeg and itself
        deadline = Deadline(ENDING_S)
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(deadline.left_s())
            worker.process.kill()
            worker.process.wait()
        self._workers.clear()

    def _start(self) -> _Worker:
        ours, its = socketpair()
        with its:
            command = (sys.executable, "-m", "penstock.rendering.engines.worker", str(its.fileno()))
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                # Ctrl-C is for us: we end the workers, and keep what is done.
                process_group=0,
            )
        worker = _Worker(process, Connection(ours.detach()))
        self._workers.append(worker)
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(self._setup)
        return worker

    def _lost(self, worker: _Worker) -> Iterator[Event]:
        """The end of a worker that has died."""
        self._workers.remove(worker)
        worker.process.kill()
        status = worker.process.wait()
        worker.connection.close()
        if worker.number is not None:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            yield Failed(worker.number, f"worker {worker.process.pid} {how}")
