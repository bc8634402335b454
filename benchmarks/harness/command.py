"""A benchmark, its command line, and its course: run each group, print it, and write the record."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import click
from rich.console import Console

from benchmarks.harness import machine, record
from benchmarks.harness.ffmpeg import FFmpegFailedError, version, working_ffmpeg
from benchmarks.harness.methods import Method
from benchmarks.harness.options import chosen, common_options, resized
from benchmarks.harness.results import Group, Measure, rows_for
from benchmarks.harness.rounds import REPEATS, ROUNDS_NEEDED, Report, check_content, run_rounds
from benchmarks.harness.tables import print_group, print_outcomes


@dataclass(frozen=True)
class JobSettings:
    """Settings that are no more than what every benchmark has."""

    jobs: Sequence[Any]
    methods: Sequence[Method]
    rounds: int = 5


#: These options name files, which a record does not.
PATHS = ("--json", "--ffmpeg")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, as far as it differs from the others."""

    name: str
    #: What runs by default, and with ``--quick``: a frozen dataclass with the fields that the options set, ``methods``,
    #: ``rounds``, and ``jobs``, each with a ``name``, a ``title``, and its ``about`` for the record.
    settings: Any
    quick: Any
    #: The help text of ``--quick``.
    quick_help: str
    #: Prepares a job's inputs, yields its content check (None if each run checks its own content) and its measurement,
    #: and cleans up. The second argument is the FFmpeg.
    prepare: Callable[[Any, str, Group], AbstractContextManager[tuple[Measure | None, Measure]]]
    #: Each sets the field of the settings with its name. If these are `JobSettings`, there are ``--job`` and
    #: ``--method`` as well.
    options: Sequence[click.Option] = ()
    #: The main figure: the first of these that a group has.
    figures: Sequence[str] = ("fps",)
    #: The table has the ratios to the first of these methods that was measured.
    standards: Sequence[str] = ()
    #: Whether its frames, which are NumPy arrays, go through FFmpeg.
    uses_ffmpeg: bool = True

    def run(
        self, settings: Any, ffmpegs: Sequence[str] = ("",), report: Report = lambda _: None, repeats: int = 0
    ) -> Iterator[Group]:
        """Run the jobs, and yield each group when it is done. A disturbed run is repeated up to ``repeats`` times."""
        for ffmpeg in ffmpegs:
            for job in settings.jobs:
                if not (rows := rows_for(settings.methods, job)):
                    continue
                group = Group(job.name, job.title, rows, job.about, version(ffmpeg) if ffmpeg else None)
                report(f"{group.name}: preparing")
                try:
                    with self.prepare(job, ffmpeg, group) as (check, measure):
                        if check is not None:
                            check_content(group, check, report)
                        run_rounds(group, measure, settings.rounds, report, repeats)
                except FFmpegFailedError as error:
                    for row in rows:
                        row.skipped = row.skipped or f"cannot prepare it: {error}"
                yield group

    def command(self, module: str, text: str) -> click.Command:
        """The command line, whose help is ``text``. A module that is the program is run under its own name instead.

        The process of a case imports the module by that name.
        """
        if module == "__main__":
            import_module(f"benchmarks.{self.name}").main()
        options = [*self.options, *common_options(self.name, self.quick_help, self.uses_ffmpeg)]
        if isinstance(self.settings, JobSettings):
            methods = chosen("--method", "methods", self.settings.methods)
            options = [chosen("--job", "jobs", self.settings.jobs), methods, *options]
        return click.Command(self.name, callback=self._main, params=[*options], help=text)

    def _main(self, quick: bool, json_path: str | None, is_kept: bool, **given: Any) -> None:
        """Run the benchmark. The exit status is 1 if a method failed, or lost or changed a byte."""
        given = {name: one for name, one in given.items() if one not in (None, ())}
        asked = given.pop("ffmpegs", (None,))
        ffmpegs = tuple(dict.fromkeys(map(working_ffmpeg, asked))) if self.uses_ffmpeg else ("",)
        size, frames = given.pop("size", None), given.pop("frames", None)
        settings = replace(self.quick if quick else self.settings, **given)
        if size or frames:
            settings = replace(settings, jobs=resized(settings.jobs, size, frames))
        # As after Ctrl-C, the process of a run is then killed and waited for.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        # A record on standard output moves the tables to standard error.
        console = Console(stderr=json_path == "-", width=None if sys.stdout.isatty() else 160)
        before = machine.describe_machine()
        done = []
        with _status_line(console) as report:
            for group in self.run(settings, ffmpegs, report, REPEATS if is_kept else 0):
                done.append(group)
                print_group(console, group, self.figures, self.standards)
        if not done:
            raise click.UsageError("none of these methods can do any of these jobs")
        print_outcomes(console, done)
        if settings.rounds < ROUNDS_NEEDED:
            few = f"({settings.rounds} rounds: too few for a claim, {ROUNDS_NEEDED} are needed)"
            console.print(few, style="dim", highlight=False)
        packages = {package for method in self.settings.methods for package in method.packages.values()}
        packages |= {"numpy"} if self.uses_ffmpeg else set()
        software = machine.describe_software(sorted(packages), ffmpegs=[group.ffmpeg for group in done])
        command = repeated(self.name, sys.argv[1:])
        made = record.make(self.name, before, software, command, vars(settings), done)
        _keep(made, console, json_path, is_kept)
        if any(row.error for group in done for row in group.rows):
            sys.exit(1)


def repeated(benchmark: str, words: Sequence[str]) -> str:
    """The command that repeats a run with these words, without where its record goes and which FFmpeg it takes."""
    kept = [
        word
        for before, word in pairwise(["", *words])
        if before not in PATHS and word.partition("=")[0] not in (*PATHS, "--record")
    ]
    target = "bench" if benchmark == "pipe" else f"bench-{benchmark.replace('_', '-')}"
    return f'make {target} ARGS="{shlex.join(kept)}"' if kept else f"make {target}"


@contextmanager
def _status_line(console: Console) -> Iterator[Report]:
    """Show on a terminal which case is running. A log gets nothing."""
    # One console must draw both the tables and this line, or they overwrite each other.
    drawing = console if console.is_terminal else Console(stderr=True)
    if drawing.is_terminal:
        with drawing.status("starting") as status:
            yield status.update
    else:
        yield lambda _: None


def _keep(made: dict[str, Any], console: Console, json_path: str | None, is_kept: bool) -> None:
    console.print(record.describe(made), style="dim", highlight=False)
    try:
        if json_path:
            record.write(made, json_path)
        if is_kept:
            record.write(made, path := str(record.path_of(made)))
            console.print(f"record: {path}", highlight=False)
    except OSError as error:
        raise click.ClickException(f"the record cannot be written: {error}") from None
