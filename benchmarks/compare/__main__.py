"""The hot paths of this tree against those of the commit BASE, in turn: base, now, now, base, and so on.

The base is built in build/compare, whose compiled parts are kept for the next time. Each run has its own process. Two
neighbouring runs of each side make a pair. The exit status is 1 if the median of the pairs' ratios is worse by more
than runs of the base differ among themselves (the middle half of their ratios), and by more than 3 %. Some 4 minutes,
without the build.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.compare.jobs import JOBS, Case, make_video, measure
from benchmarks.harness import tables
from benchmarks.harness.isolated import run_isolated
from benchmarks.harness.machine import ROOT, git
from benchmarks.harness.methods import Method
from benchmarks.harness.options import chosen, counted
from benchmarks.harness.results import Group, Row, Run, Spread
from benchmarks.harness.rounds import REPEATS, run_rounds

BUILD = ROOT / "build" / "compare"
BASE, NOW = "base", "now"
#: A smaller loss is never told: guessed, from what two builds of one commit differ by.
FLOOR = 0.03
TIMEOUT_S = 120.0


def built(commit: str) -> Path:
    """A folder with the package of a commit."""
    package = BUILD / commit
    if package.is_dir():
        return package
    click.echo(f"building {commit[:10]} in {BUILD}")
    tree = BUILD / "tree"
    if tree.is_dir():
        subprocess.run(["git", "-C", tree, "checkout", "--quiet", "--force", "--detach", commit], check=True)
    else:
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "--quiet", "--force", "--detach", tree, commit], check=True
        )
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        target = ["--target-dir", str(BUILD / "target"), "--out", folder]
        subprocess.run(["maturin", "build", "--quiet", "--release", *target], cwd=tree, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(Path(folder) / "package")
        (Path(folder) / "package").rename(package)
    return package


def compared(job: Method, packages: dict[str, Path], video: str, pairs: int, is_quick: bool) -> Group:
    """The runs of both sides. Every second round has the reverse order of the one before."""

    def run(row: Row) -> Run:
        package = str(packages[row.name])
        case = Case(job, package, video, 0.1 if is_quick else 0.5)
        return run_isolated(measure, case, TIMEOUT_S, os.environ | {"PYTHONPATH": package})

    group = Group(job.name, job.summary, [Row(Method(name, "")) for name in packages])
    run_rounds(group, run, 2 * pairs, lambda _: None, 0 if is_quick else REPEATS)
    return group


def ratios(group: Group) -> tuple[Spread, float]:
    """The time now / the base's, of each pair of rounds, and the loss that is allowed."""
    base, now = ([run.figures["op_s"] or 0.0 for run in row.runs] for row in group.rows)
    pairs = range(0, len(base), 2)
    among_base = Spread.of(*(base[n + 1] / base[n] for n in pairs))
    return Spread.of(*(sum(now[n : n + 2]) / sum(base[n : n + 2]) for n in pairs)), max(FLOOR, among_base.iqr)


@click.command(
    help=__doc__, params=[chosen("--job", "jobs", JOBS), counted("--pairs", "pairs", "Pairs of runs.")]
)
@click.option("--base", envvar="BASE", required=True, help="The commit to compare with; by default $BASE.")
@click.option("--quick", is_flag=True, help="3 short pairs: too few to tell a loss of some percent.")
def main(base: str, quick: bool, jobs: tuple[Method, ...], pairs: int | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        commit = git("rev-parse", "--verify", f"{base}^{{commit}}")
        packages = {BASE: built(commit), NOW: ROOT / "python"}
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise click.ClickException(f"{base} cannot be built: {reason}") from None
    table = tables.new_table("job", f"base µs\n{commit[:10]}", "now µs", "now / base", "pairs", "allowed", "")
    is_slower = False
    with tempfile.TemporaryDirectory() as folder:
        make_video(video := Path(folder) / "video.mkv")
        for job in jobs or JOBS:
            group = compared(job, packages, str(video), pairs or (3 if quick else 7), quick)
            if errors := [f"{row.name}: {row.error}" for row in group.rows if row.error]:
                raise click.ClickException(f"{job.name}: {'; '.join(errors)}")
            ratio, allowed = ratios(group)
            slower = ratio.median > 1 + allowed
            is_slower |= slower
            medians = [f"{1e6 * median:.1f}" for median in group.medians("op_s").values()]
            spread = f"{ratio.min:.2f}-{ratio.max:.2f}"
            verdict = "SLOWER" if slower else ""
            table.add_row(job.name, *medians, f"{ratio.median:.3f}", spread, f"{1 + allowed:.2f}", verdict)
            tables.print_remarks(console, group, lambda _row: None)
    console.print(table)
    sys.exit(is_slower)


if __name__ == "__main__":
    main()
