"""The hot paths of this tree against those of the commit BASE, in turn: base, now, now, base, and so on.

The base is built in build/compare, whose compiled parts are kept for the next time. Each run has its own process. Two
neighboring runs of each side make a pair. The exit status is 1 if both the ratio of the medians and the median of the
pairs' ratios are worse by more than runs of the base differ among themselves (the middle half of their ratios), and by
more than 3 %. Some 4 minutes, without the build.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from benchmarks.compare import jobs as hot_paths
from benchmarks.harness import tables
from benchmarks.harness.machine import ROOT, git
from benchmarks.harness.methods import Method
from benchmarks.harness.options import chosen, counted
from benchmarks.harness.results import Group, Row, Run, Spread
from benchmarks.harness.rounds import REPEATS, run_rounds

BUILD = ROOT / "build" / "compare"
BASE, NOW = "base", "now"
#: A smaller loss is never told: guessed, from what two builds of one commit differ by.
FLOOR = 0.03


def built(commit: str) -> Path:
    """A folder with the package of a commit. Also builds its benchmark of pixels."""
    package = BUILD / commit
    if package.is_dir():
        return package
    click.echo(f"building {commit[:10]} in {BUILD}")
    tree = BUILD / "tree"
    if tree.is_dir():
        git("-C", str(tree), "checkout", "--quiet", "--force", "--detach", commit)
    else:
        git("worktree", "add", "--quiet", "--force", "--detach", str(tree), commit)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        target = ["--target-dir", str(BUILD / "target"), "--out", folder]
        subprocess.run(["maturin", "build", "--quiet", "--release", *target], cwd=tree, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(Path(folder) / "package")
        build_pixels(tree, commit)
        (Path(folder) / "package").rename(package)
    return package


def build_pixels(tree: Path, name: str) -> None:
    """The benchmark of pixels, with Cargo's default profile: the workspace's would hide its losses."""
    # Of the workspace: the package of the benchmarks was another one in older commits.
    command = ["cargo", "bench", "--quiet", "--no-run", "--workspace", "--bench", "convert"]
    command += ["--config", "profile.bench.lto=false", "--config", "profile.bench.codegen-units=16"]
    # Cargo names the result alike in all checkouts: with one folder for both, it would take the other's for fresh.
    target = BUILD / ("target-now" if tree == ROOT else "target")
    command += ["--target-dir", str(target), "--message-format", "json"]
    told = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout
    (executable,) = filter(None, (json.loads(line).get("executable") for line in told.splitlines()))
    hot_paths.PIXELS_BENCHES.mkdir(parents=True, exist_ok=True)
    shutil.copy(executable, hot_paths.PIXELS_BENCHES / name)


def compared(job: Method, packages: dict[str, Path], video: Path, pairs: int, is_quick: bool) -> Group:
    """The runs of both sides. Every second round has the reverse order of the one before."""

    def run(row: Row) -> Run:
        case = hot_paths.Case(job, packages[row.name], video, 0.1 if is_quick else 0.5)
        return hot_paths.run(case, hot_paths.measure)

    group = Group(job.name, job.summary, [Row(Method(name, "")) for name in packages])
    run_rounds(group, run, 2 * pairs, lambda _: None, 0 if is_quick else REPEATS)
    return group


@dataclass(frozen=True)
class Comparison:
    """The time now / the base's: that of the medians of all runs, and that of each pair."""

    medians: float
    pairs: Spread
    #: The loss that is no verdict.
    allowed: float

    @classmethod
    def of(cls, base: Sequence[float], now: Sequence[float]) -> Comparison:
        """Of the seconds of the runs, two of each side in a pair."""
        firsts = range(0, len(base), 2)
        among_base = Spread.of(*(base[first + 1] / base[first] for first in firsts))
        pairs = Spread.of(*(sum(now[first : first + 2]) / sum(base[first : first + 2]) for first in firsts))
        return cls(statistics.median(now) / statistics.median(base), pairs, max(FLOOR, among_base.iqr))

    @property
    def is_slower(self) -> bool:
        """By both, because one slow run moves the ratios of pairs, and a drift of the machine those of medians."""
        return min(self.medians, self.pairs.median) > 1 + self.allowed


OPTIONS = [chosen("--job", "jobs", hot_paths.COMPARED), counted("--pairs", "pairs", "Pairs of runs.")]


@click.command(help=__doc__, params=OPTIONS)
@click.option("--base", envvar="BASE", required=True, help="The commit to compare with; by default $BASE.")
@click.option("--quick", is_flag=True, help="3 short pairs: too few to tell a loss of some percent.")
def main(base: str, quick: bool, jobs: tuple[Method, ...], pairs: int | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        commit = git("rev-parse", "--verify", f"{base}^{{commit}}")
        packages = {BASE: built(commit), NOW: ROOT / "python"}
        build_pixels(ROOT, packages[NOW].name)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise click.ClickException(f"{base} cannot be built: {reason}") from None
    headings = f"base µs\n{commit[:10]}", "now µs", "now / base", "pairs", "", "allowed", ""
    table = tables.new_table("job", *headings)
    is_slower = False
    with tempfile.TemporaryDirectory() as folder:
        hot_paths.make_video(video := Path(folder) / "video.mkv")
        for job in jobs or hot_paths.COMPARED:
            group = compared(job, packages, video, pairs or (3 if quick else 7), quick)
            if errors := [f"{row.name}: {row.error}" for row in group.rows if row.error]:
                raise click.ClickException(f"{job.name}: {'; '.join(errors)}")
            found = Comparison.of(*([run.figures["op_s"] or 0.0 for run in row.runs] for row in group.rows))
            is_slower |= found.is_slower
            medians = [f"{1e6 * median:.1f}" for median in group.medians("op_s").values()]
            ratios = f"{found.medians:.3f}", f"{found.pairs.median:.3f}"
            spread = f"{found.pairs.min:.2f}-{found.pairs.max:.2f}", f"{1 + found.allowed:.2f}"
            table.add_row(job.name, *medians, *ratios, *spread, "SLOWER" * found.is_slower)
            tables.print_remarks(console, group)
    console.print(table)
    sys.exit(is_slower)


if __name__ == "__main__":
    main()
