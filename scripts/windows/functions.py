"""A plugin of pytest that counts test functions, rather than their cases: `pytest -p scripts.windows.functions`.

It prints how many pass in all their cases, how many fail in one, and why the others are for Linux only.
"""

from __future__ import annotations

from collections import Counter

import pytest

_PASSED, _SKIPPED, _FAILED = range(3)
_outcomes: dict[str, int] = {}
_reasons: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = report.nodeid.partition("[")[0]
    if report.failed:
        _outcomes[function] = _FAILED
    elif report.skipped and isinstance(report.longrepr, tuple):
        _outcomes.setdefault(function, _SKIPPED)
        _reasons[function] = report.longrepr[2].removeprefix("Skipped: ")
    elif report.when == "call" and _outcomes.get(function) != _FAILED:
        # A function of which some cases are for Linux counts: the others ran.
        _outcomes[function] = _PASSED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    say = terminalreporter.write_line
    counts = Counter(_outcomes.values())
    say(f"{counts[_PASSED]} functions pass, {counts[_FAILED]} fail, {counts[_SKIPPED]} are skipped:")
    skipped = Counter(_reasons[name] for name, outcome in _outcomes.items() if outcome == _SKIPPED)
    for reason, count in skipped.most_common():
        say(f"{count:5} {reason}")
