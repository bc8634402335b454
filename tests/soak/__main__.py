"""Penstock under random use, by hand or as `make soak`: with kills, forks, signals, and nothing left to take.

    python tests/soak --seed 5 --minutes 30
    python tests/soak --seed 5 --round 17          that round alone, again
    python tests/soak --seed 5 --only relay,tee    rounds of these actions

A run is a series of rounds, each of one to four actions at the same time: one on the main thread, the others on
threads of their own. The seed decides what a round does, but for the scheduling of threads. Each action checks what
came against a plain Python oracle. Every few rounds, threads, descriptors and children must be as they were at the
start, and memory must not have grown. `actions` has what is done, `holdings` what is counted.

Rounds run in a worker process, so that one that hangs, aborts or leaks is reported, and the run goes on behind it. It
exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import faulthandler
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from actions import ACTIONS, ALONE
from holdings import Holdings, rss_bytes

ROUND_S = 90.0
"""A round that takes longer hangs. Guessed: most take less than a second, and a destructor's old wait was 5."""
QUIET_EVERY = 10
"""After so many rounds all must be quiet again; workers that idle may take 1.5 s to leave."""
MEMORY_BYTES = 64 << 20
"""How much more memory than after the first quarter may be taken. Guessed: what pools may keep, and some more."""
ARENA_MAX = -8
"""``M_ARENA_MAX`` of malloc.h."""


def plan(seed: int, number: int, only: list[str]) -> list[tuple[str, str]]:
    """The actions of a round, each with the seed of its own choices. The first runs on the main thread."""
    choose = random.Random(f"{seed}/{number}")
    names = choose.choices(only, k=choose.choice([1, 1, 2, 3, 4]))
    return [(name, f"{seed}/{number}/{lane}") for lane, name in enumerate(names)]


def run_action(name: str, seed: str, failures: list[str]) -> None:
    try:
        if name in ALONE:
            run_alone(name, seed)
        else:
            ACTIONS[name](random.Random(seed))
    except BaseException:
        failures.append(f"{name} (seed {seed}):\n{traceback.format_exc()}")


def run_alone(name: str, seed: str) -> None:
    """In a process of its own, because it takes all that there is of something, or ends the program."""
    command = [sys.executable, __file__.removesuffix("/__main__.py"), "--alone", name, "--action-seed", seed]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    try:
        said, _ = process.communicate(timeout=ROUND_S - 20)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        said, _ = process.communicate()
        raise AssertionError(f"it hung:\n{said.decode()}") from None
    assert process.returncode == 0, f"exit code {process.returncode}:\n{said.decode()}"


def run_round(actions: list[tuple[str, str]]) -> list[str]:
    failures: list[str] = []
    threads = [
        threading.Thread(target=run_action, args=(name, seed, failures), name=name)
        for name, seed in actions[1:]
    ]
    for thread in threads:
        thread.start()
    run_action(*actions[0], failures)
    for thread in threads:
        thread.join()
    return failures


def work(seed: int, first: int, end_s: float, only: list[str]) -> None:
    """Runs rounds until `end_s`, and one at least; tells of each on standard output."""
    faulthandler.enable()
    # By default glibc has 16 arenas on 2 CPUs, and kept 70 MB there that were free, beside 8 in use.
    ctypes.CDLL(None).mallopt(ARENA_MAX, 2)
    for name in only:  # imports, caches and threads that stay are none of a round's
        if name not in ALONE:
            with contextlib.suppress(Exception):
                ACTIONS[name](random.Random(0))
    before = Holdings.now().settled()
    number, memory = first, []
    is_last = False
    while not is_last:
        actions = plan(seed, number, only)
        print(f"round {number} {','.join(name for name, _ in actions)}", flush=True)
        faulthandler.dump_traceback_later(ROUND_S)
        failures = run_round(actions)
        for failure in failures:
            print(f"failed {number} {failure!r}", flush=True)
        if failures:  # what a failure leaves behind is its own
            os._exit(3)
        is_last = time.monotonic() > end_s
        if is_last or number % QUIET_EVERY == 0:
            if kept := before.kept():
                print(f"failed {number} {f'rounds up to this one left behind: {kept}'!r}", flush=True)
                os._exit(3)
            memory.append(rss_bytes())
            print(f"memory {memory[-1]}", flush=True)
            quarter = memory[len(memory) // 4]
            if len(memory) >= 8 and min(memory[-3:]) - quarter > MEMORY_BYTES:
                print(f"failed {number} {f'memory grew from {quarter} to {memory[-1]} bytes'!r}", flush=True)
                os._exit(3)
        faulthandler.cancel_dump_traceback_later()
        number += 1
    os._exit(0)


class Run:
    """Worker processes one after another, until the time is over."""

    def __init__(self, seed: int, only: list[str], minutes: float) -> None:
        self.seed, self.only = seed, only
        self.end_s = time.monotonic() + 60 * minutes
        self.rounds, self.actions, self.failures = 0, 0, 0

    def fail(self, number: int, what: str) -> None:
        self.failures += 1
        print(f"FAILED seed {self.seed} round {number}: {what}", flush=True)

    def work_from(self, number: int) -> int:
        """One worker's rounds; the number of the one that comes next."""
        command = [sys.executable, __file__.removesuffix("/__main__.py"), "--work", "--seed", str(self.seed)]
        command += ["--round", str(number), "--only", ",".join(self.only)]
        command += ["--end", str(self.end_s)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, process_group=0, bufsize=0
        ) as worker:
            try:
                number = self._listen(worker, number)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
        return number

    def _listen(self, worker: subprocess.Popen[bytes], number: int) -> int:
        assert worker.stdout is not None
        ready = selectors.DefaultSelector()
        ready.register(worker.stdout, selectors.EVENT_READ)
        names, rest = "the beginning", b""
        while True:
            if not ready.select(ROUND_S + 10):
                self.fail(number, f"hung in {names}")
                worker.send_signal(signal.SIGABRT)
                time.sleep(2)
                return number + 1
            data = os.read(worker.stdout.fileno(), 1 << 16)
            if not data:
                code = worker.wait()
                if code not in (0, 3):
                    self.fail(number, f"the process ended with {code} in {names}")
                return number + 1
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                kind, _, told = line.decode(errors="replace").partition(" ")
                if kind == "round":
                    at, _, names = told.partition(" ")
                    number = int(at)
                    self.rounds += 1
                    self.actions += names.count(",") + 1
                elif kind == "failed":
                    at, _, what = told.partition(" ")
                    self.fail(int(at), ast.literal_eval(what))


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description="Penstock under random use.")
    parser.add_argument("--seed", type=int, default=None, help="what to do; a random one unless told")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--round", type=int, default=None, help="this one alone")
    parser.add_argument("--only", default=",".join(ACTIONS), help="actions, with commas between them")
    for hidden in ("--end", "--alone", "--action-seed"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(ACTIONS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(ACTIONS)}")
    if given.alone:
        faulthandler.enable()
        ACTIONS[given.alone](random.Random(given.action_seed))
        return
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    if given.work:
        work(seed, given.round, float(given.end), only)
    run = Run(seed, only, given.minutes if given.round is None else 0)
    print(f"seed {seed}", flush=True)
    # Workers that are killed leave their files behind. One becomes another user.
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as os.environ["TMPDIR"]:
        Path(os.environ["TMPDIR"]).chmod(0o1777)
        if given.round is not None:
            run.work_from(given.round)
        else:
            number = 1
            while time.monotonic() < run.end_s:
                number = run.work_from(number)
    print(f"seed {seed}: {run.rounds} rounds, {run.actions} actions, {run.failures} failures", flush=True)
    sys.exit(1 if run.failures else 0)


if __name__ == "__main__":
    main()
