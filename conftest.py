"""What holds for every test: signals, the number of examples, what is left behind; and the fixtures of many."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from support.cases import IS_THOROUGH, ffmpegs, prefer_the_quickest
from support.processes import kill_started, processes
from support.streams import noise

from penstock import _native

# A shell's background jobs ignore SIGINT and SIGQUIT, nohup's SIGHUP, and what they start inherits that. A program that
# is started by one that handles a signal has the signal's default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (getattr(signal, name) for name in ("SIGHUP", "SIGQUIT") if hasattr(signal, name)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda _number, _frame: None)


if sys.platform == "win32":
    from support.windows import have_signals, skip_what_is_for_linux

    have_signals()
    skip_what_is_for_linux()

prefer_the_quickest()
hypothesis.settings.register_profile("penstock", deadline=None, max_examples=100 if IS_THOROUGH else 20)
hypothesis.settings.load_profile("penstock")


def _is_isolated(item: pytest.Item) -> bool:
    """Whether one of the case's parameters has the option that only Linux has."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return any(value.get("isolated") for value in (params, *params.values()) if isinstance(value, dict))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What only `make test-exhaustive` runs is slow, too. What is for Linux is skipped elsewhere, with the reason."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
        if sys.platform == "win32" and _is_isolated(item):
            item.add_marker(pytest.mark.linux("isolated=True"))
        if sys.platform == "win32" and (linux := item.get_closest_marker("linux")):
            item.add_marker(pytest.mark.skip(reason=f"for Linux: {linux.args[0]}"))


def pytest_collection_finish() -> None:
    """Has `gc.collect()` look only at what the tests make, and not at the collected tests themselves.

    Hundreds of tests call it, most of them twice. With all tests collected, each call took 0.16 s.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_stays_running() -> Iterator[None]:
    """A test that fails may leave programs behind, and some of them spin."""
    others = processes()
    yield
    kill_started(others)


def pytest_unconfigure() -> None:
    """What is left of tests whose process died."""
    kill_started()


@pytest.fixture(params=ffmpegs(), ids=lambda program: "wheel" if "imageio" in program else "system")
def ffmpeg(request: pytest.FixtureRequest) -> str:
    """Each FFmpeg of this machine."""
    return str(request.param)


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """A pipe's two ends, closed afterwards if the test has not."""
    reader, writer = os.pipe()
    # On Windows, a thread that reads keeps others from closing that end, until the other end is closed.
    inodes = {fd: os.fstat(fd).st_ino for fd in (writer, reader)}
    yield reader, writer
    for fd, inode in inodes.items():
        with contextlib.suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                os.close(fd)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of 3 MiB, larger than any pipe."""
    path = tmp_path / "big"
    path.write_bytes(noise(3 << 20))
    return path


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture(autouse=True)
def nothing_stays_queued() -> Iterator[None]:
    """No test leaves a failure or a write of `pipe` to the next."""
    yield
    with contextlib.suppress(OSError):
        _native._close(timeout=10)
