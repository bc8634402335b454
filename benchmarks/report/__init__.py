"""Draws records of benchmarks: a page for the documentation site, and a file of HTML that needs nothing else.

Without an argument it draws the records in benchmarks/records. Each group of a record is a chart with the median and
every round of each method. A table below it has the same numbers. With --figures it writes the tables of figures in
README.md and docs/ instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from benchmarks.harness.machine import ROOT
from benchmarks.harness.record import FOLDER, SCHEMA, describe
from benchmarks.harness.rounds import ROUNDS_NEEDED
from benchmarks.harness.tables import short
from benchmarks.report import figures
from benchmarks.report.charts import BENCHMARKS, MODULES, Chart, Comparison, RatioAxis, charts

BUILT = ROOT / "build" / "bench-report"
#: The picture on the front page, and its colors.
SPEED = {
    ROOT / "docs" / f"speed-{theme}.svg": {"text": text, "grid": grid, "faster": faster, "slower": slower}
    for theme, text, grid, faster, slower in (
        ("light", "#1f2328", "#d0d7de", "#54aeff", "#ff8a80"),
        ("dark", "#e6edf3", "#3d444d", "#1f6feb", "#b62324"),
    )
}
#: How the sentences about rivals begin, by what all charts with the rival show.
VERDICTS = {"faster": "Faster than", "mixed": "Mixed against", "even": "Even with", "slower": "Slower than"}
#: The sections in their order: title, and the first line of the benchmark's help.
SECTIONS = {
    name: (name.replace("_", "-").capitalize(), str(one.__doc__).partition("\n")[0])
    for name, one in zip(BENCHMARKS, MODULES, strict=True)
}


def read_record(path: Path) -> dict[str, Any]:
    """A record, if it has today's layout."""
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        is_known = record["schema"] == SCHEMA and record["benchmark"] in BENCHMARKS
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        is_known = False
    if not is_known:
        raise click.ClickException(f"{path} is not a record of these benchmarks (schema {SCHEMA})")
    return record


def caveats(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What weakens these records, in sentences."""
    machines = {f"{one['machine']['cpu']}, {one['machine']['cores']} cores" for one in records}
    yield f"Measured on: {'; '.join(sorted(machines))}."
    weaknesses = {
        "ran while other programs used the CPUs": lambda one: any(
            row["disturbed_rounds"] for group in one["groups"] for row in group["methods"]
        ),
        f"had fewer than {ROUNDS_NEEDED} rounds, which is too few for a claim": lambda one: (
            one["settings"]["rounds"] < ROUNDS_NEEDED
        ),
        "measured code with uncommitted changes": lambda one: "uncommitted" in (one["software"]["git"] or ""),
    }
    for what, is_weak in weaknesses.items():
        if count := sum(map(is_weak, records)):
            yield f"{count} of {len(records)} runs {what}."


def verdicts(every: Sequence[Chart]) -> Iterator[str]:
    """How Penstock's default compares with each rival in all charts of one benchmark, in sentences."""
    by_rival: dict[str, list[Comparison]] = {}
    for compared in (one for chart in every for one in chart.comparisons):
        by_rival.setdefault(compared.rival.name, []).append(compared)
    said: dict[str, list[str]] = {kind: [] for kind in VERDICTS}
    for name, found in by_rival.items():
        outcome, *others = {one.outcome for one in found}
        low, high = (f"{limit(one.ratio for one in found):.2f}×" for limit in (min, max))
        said["mixed" if others else outcome].append(f"{name} ({low if low == high else f'{low} to {high}'})")
    yield from (f"{start} {', '.join(said[kind])}." for kind, start in VERDICTS.items() if said[kind])
    lost = [(one.title, best) for one in every if (best := one.comparison) and best.outcome == "slower"]
    if lost:
        jobs = "; ".join(f"{title} ({best.rival.name}, {best.ratio:.2f}×)" for title, best in lost)
        yield f"A rival is faster in {jobs}."


def page(records: dict[str, dict[str, Any]]) -> str:
    """Markdown with figures of HTML. ``records`` are by the name of their file. The newest of a job is drawn."""
    ranked = sorted(records.items(), key=lambda item: str(item[1]["date"]))
    every: list[Chart] = []
    for name, record in ranked:
        try:
            every += charts(name, record)
        except (LookupError, ValueError) as error:
            raise click.ClickException(f"{name} does not fit these benchmarks: {error}") from error
    newest = {(chart.benchmark, chart.title): chart for chart in every}
    drawn = [chart for chart in every if newest[chart.benchmark, chart.title] is chart]
    drawn.sort(key=lambda chart: (chart.comparison is None, chart.pixels))
    by_benchmark = {key: [chart for chart in drawn if chart.benchmark == key] for key in SECTIONS}
    sections = {key: found for key, found in by_benchmark.items() if found}
    methods = {
        key: {bar.name: bar.summary for chart in found for bar in chart.bars if bar.summary}
        for key, found in sections.items()
    }
    return _render(
        "page.md",
        titles=SECTIONS,
        sections=sections,
        verdicts={key: said for key, found in sections.items() if (said := [*verdicts(found)])},
        methods=methods,
        axis=RatioAxis(chart.comparison.ratio for chart in drawn if chart.comparison),
        caveats=caveats([*records.values()]),
    )


def document(markdown: str) -> str:
    """The page as a file of its own."""
    return _render("document.html", body=Markup(MarkdownIt("commonmark", {"html": True}).render(markdown)))


def _render(template: str, **values: Any) -> str:
    loader = PackageLoader(__name__)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "short": short,
        "times": lambda ratio: f"{ratio:.2f}×",
        # Shorter than 0.015625.
        "power_of_two": lambda ratio: f"{ratio:g} ×" if ratio >= 1 else f"1/{1 / ratio:g} ×",
        "described": describe,
        # Markdown ends a figure at an empty line.
        "one_line": lambda html: Markup(" ".join(html.split())),
    }
    return str(environment.get_template(template).render(**values))


def speed(kept: dict[str, dict[str, Any]], theme: dict[str, str]) -> str:
    """Bars of the slowest of each line's ratios, with Penstock at 1, on a scale of factors of two, as SVG."""
    bars = figures.bars(kept)
    axis = RatioAxis(min(bar.ratios) for bar in bars)
    return _render(
        "speed.svg",
        bars=bars,
        ticks=axis.ticks,
        # Right of the longest name.
        place=lambda ratio: round(490 + 3 * axis.place(ratio), 1),
        plain=lambda text: text.replace("`", "").replace("*", ""),
        span=figures.span,
        theme=theme,
    )


def changed_figures() -> dict[Path, str]:
    """The pages and pictures whose figures are not those of the kept records, as they have to be."""
    kept = figures.records()
    wanted = {path: figures.rewritten(path.read_text(), kept) for path in figures.pages()}
    wanted |= {path: speed(kept, theme) for path, theme in SPEED.items()}
    return {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}


@click.command(help=__doc__)
@click.argument("records", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORD]...")
@click.option("--page", "page_path", type=click.Path(path_type=Path), help="Where the site's page goes.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Where the file of HTML goes.")
@click.option("--figures", "is_figures", is_flag=True, help="Write the figures on the pages; draw nothing.")
def main(records: tuple[Path, ...], page_path: Path | None, html_path: Path | None, is_figures: bool) -> None:
    if is_figures:
        for path, text in changed_figures().items():
            path.write_text(text)
            click.echo(path)
        return
    paths = records or sorted(FOLDER.glob("*.json"))
    read = {path.name: read_record(path) for path in paths}
    if len(read) < len(paths):
        raise click.ClickException("two records have the same name")
    markdown = page(read)
    for path, text in (
        (page_path or BUILT / "benchmarks.md", markdown),
        (html_path or BUILT / "benchmarks.html", document(markdown)),
    ):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from None
        click.echo(path)
