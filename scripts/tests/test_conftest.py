"""Nothing outlives a failing test, and signals that a background job ignores are not ignored in the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import eventually

ROOT = Path(__file__).parents[2]

FAILING = """
import os, subprocess, time

def test_fails():
    # Its parent ends at once, and no signal to a process group or session of ours reaches it.
    subprocess.run(["sh", "-c", "setsid sleep 1000 & echo $! >orphan"], check=True)
    fork = os.fork()
    if fork == 0:
        time.sleep(1000)
        os._exit(0)
    with open("fork", "w") as file:
        print(fork, file=file)
    {ending}
"""

SIGNALS = """
import signal, subprocess

def test_signals():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    shown = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, check=True).stdout
    assert int(shown.split()[1], 16) & 0b111 == 0, "SIGHUP, SIGINT and SIGQUIT"
"""


def run_tests(
    code: str, folder: Path, *arguments: str, ignored: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs tests of their own, with our helpers; with the signals ignored that nohup(1) and a shell's ``&`` ignore."""

    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    for helper in ("conftest.py", "tests/support"):
        (folder / Path(helper).name).symlink_to(ROOT / helper)
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "test_it.py"]
    return subprocess.run(
        command,
        cwd=folder,
        preexec_fn=ignore if ignored else None,
        capture_output=True,
        text=True,
        timeout=60,
    )


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "ending", "said"),
    [
        (["--numprocesses=0"], "assert False", "1 failed"),
        (["--numprocesses=1"], "assert False", "1 failed"),
        (["--numprocesses=0", "--timeout=1"], "time.sleep(1000)", "Timeout"),
        (["--numprocesses=1", "--timeout=1"], "time.sleep(1000)", "Timeout"),
        # As with --timeout-method=thread. While a fork lives, pytest-xdist does not see that the worker is gone.
        (["--numprocesses=1"], "os.kill(fork, 9); os._exit(1)", "crashed"),
    ],
)
def test_processes_of_a_failing_test_end_with_the_test(
    arguments: list[str], ending: str, said: str, tmp_path: Path
) -> None:
    done = run_tests(FAILING.format(ending=ending), tmp_path, *arguments)
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
    for name in ("orphan", "fork"):
        pid = int((tmp_path / name).read_text())
        assert eventually(lambda pid=pid: not runs(pid)), name


@pytest.mark.parametrize("workers", ["0", "1"])
def test_signals_ignored_by_a_background_job_are_at_their_defaults(workers: str, tmp_path: Path) -> None:
    done = run_tests(SIGNALS, tmp_path, f"--numprocesses={workers}", ignored=True)
    assert done.returncode == 0, done.stdout + done.stderr
