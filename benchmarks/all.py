"""All benchmarks, one after the other and unattended, with a record of each: 105 minutes on two idle cores.

The working tree must have no uncommitted changes, so that the records say what was measured. If a benchmark fails, the
others still run; the last lines name it, and the exit status is then 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection

import click

from benchmarks.harness.machine import ROOT, git_state

#: The quick ones first, with the minutes that they take if no run is repeated. Where a whole benchmark takes longer, it
#: has the jobs that most pages of the documentation are about.
RUNS = {
    "pipeline": 1,
    "pipeline --codec zstd": 1,
    "pipeline --simulated": 1,
    "capture": 1,
    "relay": 3,
    "machines": 5,
    "pipe": 9,
    "pipe --size 720p,1080p --encode slow --method stdin.write,turbopipe,auto,tmpfs": 2,
    "fan_out": 5,
    "sound": 2,
    "decode": 38,
    "render": 18,
    "encode --job motion-720p,motion-1080p,camera-1080p,text-1080p,paced-motion-1080p": 19,
}


def cpu_counts(available: int) -> list[int]:
    """How many CPUs the benchmarks run on, one time after the other."""
    return sorted({1, 2, available}) if available > 2 else [available]


def exit_status(run: str, cpus: Collection[int]) -> int:
    """Run a benchmark on those CPUs."""
    minutes = RUNS.get(run.removesuffix(" --record"))
    click.echo(f"\n=== {run} (CPUs: {len(cpus)})" + (f": about {minutes} min" if minutes else ""))
    name, *options = run.split()
    os.sched_setaffinity(0, cpus)  # which the benchmark inherits
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], cwd=ROOT).returncode


@click.command(help=__doc__)
@click.option(
    "--quick",
    is_flag=True,
    help="A small run of each: some 8 minutes. Nothing is kept. With more than two CPUs thrice: on 1, 2 and all.",
)
def main(quick: bool) -> None:
    state = git_state()
    if not quick and (state is None or "uncommitted" in state):
        raise click.ClickException(f"commit your changes first, for records name the commit: {state}")
    click.echo(f"measured: {state}")
    names = dict.fromkeys(run.partition(" ")[0] for run in RUNS)
    runs = [f"{name} --quick" for name in names] if quick else [f"{run} --record" for run in RUNS]
    cpus = os.sched_getaffinity(0)
    counts = cpu_counts(len(cpus)) if quick else [len(cpus)]
    failed = [
        f"failed with exit status {status} on {count} of the CPUs: {run}"
        for count in counts
        for run in runs
        if (status := exit_status(run, sorted(cpus)[:count]))
    ]
    started = len(counts) * len(runs)
    click.echo("\n".join([f"\n{started - len(failed)} of {started} benchmarks succeeded", *failed]))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
