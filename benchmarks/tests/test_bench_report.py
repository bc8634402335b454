"""The report of the benchmarks: what it says of records, and how it looks in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.browser import Page, chromium

pytest.importorskip("jinja2", reason="the report needs Jinja2 (pip install jinja2)")

from benchmarks import report
from benchmarks.harness.machine import ROOT
from benchmarks.harness.record import FOLDER, write
from benchmarks.harness.tables import short
from benchmarks.report import figures
from benchmarks.report.charts import Chart, RatioAxis, charts

KEPT = sorted(FOLDER.glob("*.json"))


def drawn(path: Path) -> list[Chart]:
    return [*charts(path.name, json.loads(path.read_text()))]


def made(tmp_path: Path, *records: Path) -> tuple[str, str]:
    """The site's page, and the file of HTML."""
    files = tmp_path / "page.md", tmp_path / "report.html"
    arguments = [*records, "--page", files[0], "--html", files[1]]
    result = CliRunner().invoke(report.main, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return files[0].read_text(), files[1].read_text()


class Elements(HTMLParser):
    """The start tags, with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.tags
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def newest() -> list[Chart]:
    """Of each job, that of the newest record, whose name begins with its date."""
    every = [chart for path in KEPT for chart in drawn(path)]
    return list({(chart.benchmark, chart.title): chart for chart in every}.values())


def in_order(every: list[Chart]) -> list[Chart]:
    """As on the page."""
    ranked = sorted(every, key=lambda chart: (chart.record["date"], chart.source))
    ranked.sort(key=lambda chart: (chart.comparison is None, chart.pixels))
    return sorted(ranked, key=lambda chart: [*report.SECTIONS].index(chart.benchmark))


def one_group(*rows: tuple[str, str, list[float]], **more: Any) -> dict[str, Any]:
    """A record of the encode benchmark, with rows of name, kind and rounds."""
    record = json.loads(max(FOLDER.glob("*-encode-*.json")).read_text())
    methods = [
        {"name": name, "kind": kind, "disturbed_rounds": [], "figures": {"fps": {"rounds": rounds}}}
        for name, kind, rounds in rows
    ]
    group = next(group for group in record["groups"] if group["name"] == "motion-1080p")
    return record | {"groups": [group | {"methods": methods} | more]}


def test_every_kept_record_is_drawn_with_every_number(tmp_path: Path) -> None:
    page, html = made(tmp_path)
    elements = Elements(html)
    every = newest()
    assert {chart.source for chart in every} == {path.name for path in KEPT}
    assert len(elements.named("div", role="img")) == len(every) > 40
    assert len(elements.named("table")) == len(every)
    for chart, image in zip(in_order(every), elements.named("div", role="img"), strict=True):
        said = image["aria-label"] or ""
        assert said.startswith(chart.title)
        for bar in chart.bars:
            assert bar.name in said and (not bar.values or short(bar.median) in said)
    for chart in every:
        assert f'id="{chart.id}"' in page
        for bar in chart.bars:
            assert ("; ".join(map(short, bar.values)) or bar.remark) in elements.text
    assert (
        len({chart.id for chart in every}) == len({(one.benchmark, one.title) for one in every}) == len(every)
    )
    links = {one["href"] for one in elements.named("a")}
    assert links == {f"#{chart.id}" for chart in every if chart.comparison}


def test_caveats_come_before_the_first_chart(tmp_path: Path) -> None:
    weak = one_group(("penstock", "ours", [1.0]))
    weak["settings"]["rounds"], weak["software"]["git"] = 1, "0123abc, with uncommitted changes"
    weak["groups"][0]["methods"][0]["disturbed_rounds"] = [0]
    write(weak, str(tmp_path / "record.json"))
    before_charts = made(tmp_path, tmp_path / "record.json")[0].partition("<figure")[0]
    for caveat in (
        "had fewer than 5 rounds",
        "other programs used the CPUs",
        "uncommitted changes",
        "Compare bars",
    ):
        assert caveat in before_charts


def only_chart(record: dict[str, Any]) -> Chart:
    [chart] = charts("record.json", record)
    return chart


@pytest.mark.parametrize(
    ("rounds", "outcome"),
    [([50.0, 51, 52], "slower"), ([99, 101, 103], "even"), ([150, 151, 152], "faster"), ([90], "slower")],
)
def test_a_loss_is_as_plain_as_a_win(rounds: list[float], outcome: str, tmp_path: Path) -> None:
    record = one_group(
        ("penstock", "ours", rounds), ("pyav", "rival", [98, 100, 102]), ("slow", "rival", [1])
    )
    compared = only_chart(record).comparison
    assert compared is not None
    assert (compared.rival.name, compared.outcome) == ("pyav", outcome)
    write(record, str(tmp_path / "record.json"))
    page, _ = made(tmp_path, tmp_path / "record.json")
    sentence = (
        "No clear difference" if outcome == "even" else f"penstock is {outcome} than the best rival, pyav"
    )
    assert sentence in Elements(page).text
    assert f'class="bench-verdict bench-{outcome}"' in page
    assert f'class="bench-row bench-{outcome}"' in page


def test_report_has_a_verdict_on_each_rival(tmp_path: Path) -> None:
    rounds = {"slow": ([50.0, 51, 52], [40.0, 41]), "pyav": ([99, 101, 103], [80]), "quick": ([200], [200])}
    paths = []
    for number in range(2):
        rivals = [(name, "rival", both[number]) for name, both in rounds.items()]
        paths.append(tmp_path / f"{number}.json")
        job = ("motion-1080p", "testsrc2-1080p")[number]
        write(one_group(("penstock", "ours", [98.0, 100, 102]), *rivals, name=job), str(paths[-1]))
    opening = made(tmp_path, *paths)[0].partition("## Read this first")[0]
    assert (
        "- **Encode.** Faster than slow (1.96× to 2.47×). "
        "Mixed against pyav (0.99× to 1.25×). "
        "Slower than quick (0.50×). "
        "A rival is faster in motion-1080p (quick, 0.50×); testsrc2-1080p (quick, 0.50×)."
    ) in opening


def test_less_is_better_turns_order_and_ratio_around() -> None:
    record = one_group(("penstock", "ours", [1.0]), ("other", "rival", [2.0]), paced_fps=30)
    for row in record["groups"][0]["methods"]:
        row["figures"]["blocked_p99_ms"] = row["figures"].pop("fps")
    chart = only_chart(record)
    assert [bar.name for bar in chart.bars] == ["penstock", "other"]
    assert chart.comparison is not None
    assert (chart.comparison.ratio, chart.comparison.outcome) == (2, "faster")


def test_method_without_values_says_why(tmp_path: Path) -> None:
    record = one_group(
        ("penstock", "ours", []),
        ("pyav", "rival", []),
        ("turbopipe", "rival", [5.0]),
        ("zero", "rival", [0.0]),
    )
    ours, pyav = record["groups"][0]["methods"][:2]
    ours["error"], pyav["skipped"] = "a frame was lost", "not installed"
    # Figures of a method that failed do not count.
    ours["figures"]["fps"]["rounds"] = [1000.0]
    chart = only_chart(record)
    assert [bar.name for bar in chart.bars if bar.values] == ["turbopipe", "zero"]
    assert chart.comparison is None
    write(record, str(tmp_path / "record.json"))
    text = Elements(made(tmp_path, tmp_path / "record.json")[1]).text
    assert "error: a frame was lost" in text
    assert "skipped: not installed" in text
    assert "At a glance" not in text


def test_a_record_is_text_and_not_html(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'&"
    record = one_group((hostile, "ours", [1.0]), ("pyav", "rival", [1.0]), findings=[hostile])
    record["machine"]["cpu"] = hostile
    write(record, str(tmp_path / "record.json"))
    for text in made(tmp_path, tmp_path / "record.json"):
        assert "<script" not in text
        assert hostile in Elements(text).text


def old_record() -> str:
    record = one_group(("penstock", "ours", [1.0]))
    del record["groups"][0]["paced_fps"]
    return json.dumps(record)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[1, 2]", "{}", '{"schema": 1, "benchmark": "pipe"}', '{"schema": 2, "benchmark": []}'),
        *(None, old_record()),
    ],
)
def test_a_file_that_is_no_record_of_these_benchmarks_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content)
    result = CliRunner().invoke(report.main, [str(path), "--html", str(tmp_path / "out.html")])
    assert result.exit_code == 1
    assert "mine.json" in result.output
    assert not (tmp_path / "out.html").exists()


def test_report_refuses_two_records_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / KEPT[0].name).write_bytes(KEPT[0].read_bytes())
    result = CliRunner().invoke(report.main, [str(KEPT[0]), str(tmp_path / KEPT[0].name)])
    assert result.exit_code == 1
    assert "two records have the same name" in result.output


def test_record_without_a_commit_is_drawn(tmp_path: Path) -> None:
    kept = json.loads(KEPT[0].read_text())
    kept["software"]["git"] = None
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(kept))
    page, _ = made(tmp_path, path)
    assert "commit" not in page.partition("mine.json")[2].partition("</p>")[0]


def test_figures_on_the_pages_match_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [*report.changed_figures()]
    assert changed == [], "python -m benchmarks.report --figures"
    page = ROOT / "docs" / "migration" / "pyav.md"
    assert page in figures.pages()
    monkeypatch.setattr(figures, "records", dict)
    assert page in report.changed_figures()


def test_the_picture_on_the_front_page_has_seven_bars_and_the_worst_loss() -> None:
    kept = figures.records()
    bars = figures.bars(kept)
    assert 1 <= len(bars) <= 7
    shown = {(one.line.job, one.line.other) for one in bars}
    assert shown >= figures.FRONT
    worst = min(min(one.ratios) for one in figures.compared(kept))
    assert worst in [min(one.ratios) for one in bars]


def test_shorter_wait_per_frame_counts_as_faster() -> None:
    record = one_group(("penstock", "ours", []), ("pyav", "rival", []), paced_fps=30)
    for row, wait_ms in zip(record["groups"][0]["methods"], (2, 20), strict=True):
        row["figures"]["blocked_p99_ms"] = {"median": wait_ms}
    assert f"| {figures.WAIT}, motion 1080p | PyAV | 10 × | `new` |" in figures.table(
        ["pyav"], {"new": record}
    )


def test_a_figure_is_from_the_newest_record_that_has_both() -> None:
    old = one_group(
        ("penstock", "ours", []), ("pyav", "rival", []), ("moviepy", "rival", []), content="motion"
    )
    new = one_group(("penstock", "ours", []), ("pyav", "rival", []), content="camera")
    for record, speeds in ((old, (100, 50, 20)), (new, (99, 100))):
        for row, speed in zip(record["groups"][0]["methods"], speeds, strict=True):
            row["figures"]["fps"]["median"] = speed
    shown = figures.table(["pyav", "moviepy"], {"new": new, "old": old})
    assert "| RGB to x264 ultrafast, camera 1080p | PyAV | **0.99** × | `new` |" in shown
    assert "| RGB to x264 ultrafast, motion 1080p | moviepy | 5.00 × | `old` |" in shown
    page = "before\n<!-- figures: pyav -->\nold\n<!-- end of figures -->\nafter\n"
    once = figures.rewritten(page, {"new": new})
    assert once.startswith("before\n<!-- figures: pyav -->\n\n| job |") and once.endswith("\nafter\n")
    assert figures.rewritten(once, {"new": new}) == once


def test_times_under_a_limit_are_shown_as_multiples_of_the_unlimited_time() -> None:
    def row(name: str, op_s: float) -> dict[str, Any]:
        return {"name": name, "figures": {"op_s": {"median": op_s}, "resident_bytes": {"median": 2**26}}}

    rows = [row("here", 0.001), row("one-core", 0.0015), {"name": "512-MB", "skipped": "it takes root"}]
    group = {"name": "relay", "summary": "64 KiB", "methods": rows}
    kept = {"new": {"benchmark": "machines", "groups": [group]}}
    page = figures.rewritten("<!-- figures: machines -->\n<!-- end of figures -->\n", kept)
    assert "| job | here | memory | one-core | 512-MB |" in page
    assert "| relay: 64 KiB | 1 ms | 64 MiB | 1.50 × | - |" in page and "The record: `new`." in page


def test_no_win_is_claimed_over_a_method_with_another_file(tmp_path: Path) -> None:
    record = one_group(("penstock", "ours", [100.0]), ("pyav", "rival", [50.0]), ("slow", "rival", [1.0]))
    other_file = {"kind": "other", "notes": {"not_comparable": "its file is 0.70 x as large as ours"}}
    record["groups"][0]["methods"][1] |= other_file
    chart = only_chart(record)
    assert [bar.kind for bar in chart.bars] == ["ours", "other", "rival"]
    assert [one.rival.name for one in chart.comparisons] == ["slow"]
    write(record, str(tmp_path / "record.json"))
    text = Elements(made(tmp_path, tmp_path / "record.json")[1]).text
    assert "pyav is not comparable: its file is 0.70 x as large as ours." in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "options"),
    [
        ("relay", "--way call,file-pipe,tee-2-paced --size 5000 --rounds 2 --seconds 0.001"),
        ("pipeline", "--chunk 5000 --chunks 10 --rounds 1 --background 1 --assets 40"),
    ],
)
def test_new_records_are_drawn(benchmark: str, options: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *options.split(), "--json", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    page, _ = made(tmp_path, path)
    for chart in drawn(path):
        assert f'id="{chart.id}"' in page
        assert all(bar.values for bar in chart.bars)


# --- in a browser -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    made(folder)
    return (folder / "report.html").as_uri()


#: The elements that stand out of the window, or out of a box that does not scroll.
OUTSIDE = """[...document.querySelectorAll("body *")].filter(one => {
    const scrolls = one.closest(".bench-scroll");
    const box = one.getBoundingClientRect();
    const isOut = box.right > document.documentElement.clientWidth || box.left < 0;
    return box.width && isOut && !(scrolls && scrolls !== one);
}).map(one => one.outerHTML.slice(0, 120))"""
#: Rows whose name, value or remark overlap.
OVERLAPPING = """[...document.querySelectorAll(".bench-row")].filter(row => {
    const boxes = [...row.children].filter(one => one.tagName != "svg").map(one => one.getBoundingClientRect());
    return boxes.some((a, n) => boxes.slice(n + 1).some(b =>
        a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5));
}).map(row => row.textContent)"""
#: Rows of the picture on the front page whose name reaches into the bar or the value.
COVERED = """[...document.querySelectorAll("rect")].filter(bar => {
    const [name, value] = [bar.previousElementSibling, bar.nextElementSibling].map(one => one.getBoundingClientRect());
    return name.right > Math.min(bar.getBoundingClientRect().left, value.left) - 2;
}).map(bar => bar.previousElementSibling.textContent)"""
#: Numbers of an axis that overlap.
CROWDED = """[...document.querySelectorAll(".bench-axis")].filter(axis => {
    const boxes = [...axis.querySelectorAll("text")].map(one => one.getBoundingClientRect());
    return boxes.some((box, n) => n && box.left < boxes[n - 1].right + 2);
}).map(axis => axis.textContent)"""
#: Texts whose contrast with the background is less than 4.5, as WCAG 2 computes it, or that are smaller than 10 pixels.
HARD_TO_READ = """(() => {
    const channels = color => color.match(/[\\d.]+/g).map(Number);
    const light = color => channels(color).slice(0, 3).map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, n) => sum + one * [0.2126, 0.7152, 0.0722][n], 0);
    const behind = one => {
        for (; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (channels(color)[3] !== 0) return color;
        }
    };
    return [...document.querySelectorAll("body *")].filter(one =>
        [...one.childNodes].some(node => node.nodeType == 3 && node.data.trim()) && one.tagName != "STYLE"
    ).filter(one => {
        const style = getComputedStyle(one);
        const [a, b] = [light(one.closest("svg") ? style.fill : style.color), light(behind(one))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5 || parseFloat(style.fontSize) < 10;
    }).map(one => one.outerHTML.slice(0, 160));
})()"""


@pytest.mark.parametrize("ratios", [[1.1], [0.13, 7.0], [0.3, 12.0], [0.001, 900.0]])
def test_an_axis_of_ratios_has_few_numbers(ratios: list[float]) -> None:
    ticks = RatioAxis(ratios).ticks
    assert 1.0 in dict(ticks) and len(ticks) <= 5
    assert all(after - before > 22 for (_, before), (_, after) in pairwise(ticks))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_charts_are_whole_and_readable(width: int, scheme: str, browser: Page, url: str) -> None:
    browser.show(url, width, scheme)
    assert browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)") is None
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for what in (OUTSIDE, OVERLAPPING, CROWDED, HARD_TO_READ):
        assert browser.evaluate(what) == []
    assert browser.evaluate(
        "[...document.querySelectorAll('.bench-bar')].every(one => one.getBBox().height > 5)"
    )
    dots = browser.evaluate("document.querySelectorAll('[role=img] circle').length")
    assert dots == sum(len(bar.values) for chart in newest() for bar in chart.bars)
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.complaints == []
    # Nothing but the file itself, and its empty icon.
    assert {one for one in browser.requests if not one.startswith("data:")} == {url}


@pytest.mark.slow
def test_ceiling_line_is_drawn_at_its_value(browser: Page, url: str) -> None:
    chart = next(one for one in newest() if one.measured("bound") and one.comparison)
    browser.show(url, 1400)
    places = browser.evaluate(
        f"""[...document.getElementById("{chart.id}").querySelectorAll(".bench-row")].map(row => {{
            const [track, bar, line] = ["svg", ".bench-bar", ".bench-ceiling"].map(one => row.querySelector(one));
            const left = track.getBoundingClientRect().left;
            return [bar, line].map(one => one && (one.getBoundingClientRect().right - left) / track.clientWidth);
        }}).filter(([bar]) => bar)"""
    )
    bound = chart.measured("bound")[0]
    for (end, line), bar in zip(places, chart.bars, strict=True):
        assert end == pytest.approx(bar.median / bar.top, abs=0.01)
        assert (
            line is None if bar.kind == "bound" else line == pytest.approx(bound.median / bound.top, abs=0.01)
        )


@pytest.mark.parametrize("picture", report.SPEED)
def test_the_picture_on_the_front_page_can_be_read(browser: Page, picture: Path) -> None:
    browser.show(picture.as_uri(), 900)
    count = len(figures.bars(figures.records()))
    assert browser.evaluate("document.querySelectorAll('rect').length") == count
    assert browser.evaluate(COVERED) == []
