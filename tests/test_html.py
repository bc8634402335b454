"""What notebooks show of results."""

from __future__ import annotations

from fractions import Fraction
from html.parser import HTMLParser

from support.clips import VIDEOS, clip

import penstock
from penstock.results import EncodeReport


class Table(HTMLParser):
    """The rows of the only table, by the text of their first cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("th", "td"):
            self.cells[-1] += data

    @property
    def rows(self) -> dict[str, str]:
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))


def rows(record: object) -> dict[str, str]:
    return Table(record._repr_html_()).rows  # type: ignore[attr-defined]


def test_a_report() -> None:
    report = EncodeReport("/a<b>&.mp4", 2, 2, 0, 96, None, 0.5, 4.0, ("alpha is lost", "<b>"))
    assert rows(report)["output"] == "/a<b>&.mp4"
    assert rows(report)["output_bytes"] == ""
    assert rows(report)["warnings"] == "alpha is lost<b>"


def test_the_info_of_a_video() -> None:
    info = penstock.media.probe(clip(sorted(VIDEOS)[0])).video[0]
    assert rows(info)["codec"] == info.codec
    assert Fraction(rows(info)["frame_rate"]) == info.frame_rate


def test_a_topology_has_counts_and_no_records() -> None:
    topology = penstock.cpu.topology()
    assert rows(topology)["logical_processors"] == str(len(topology.logical_processors))
    assert len(topology._repr_html_()) < 2000
