"""The command line: what it says of itself, and how it fails."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from conftest import PATIENCE_S, eventually

import penstock

pytest.importorskip("click", reason="the command line is the extra penstock-io[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock-io[cli]")


PROGRAM = "import sys\nsys.argv[0] = 'penstock'\nfrom penstock.cli import main\nmain()"


def run(
    *arguments: str, before: str = "", stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter, as its console script does."""
    command = [sys.executable, "-c", f"{before}\n{PROGRAM}", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_help_names_the_subcommands() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "bench" in shown.stdout


def test_version() -> None:
    shown = run("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"penstock, version {penstock.__version__}\n"


def test_help_of_the_benchmark_names_every_method() -> None:
    from penstock.bench.pipe.cases import METHODS

    shown = run("bench", "pipe", "--help")
    assert shown.returncode == 0
    words = shown.stdout.replace(",", " ").replace(";", " ").split()
    assert [method.name for method in METHODS if method.name not in words] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pour"], "No such command 'pour'"),
        (["bench", "pipe", "--size", "8k"], "'8k' is none of 720p"),
        (["bench", "pipe", "--method", "magic"], "'magic' is none of stdin.write"),
        (["bench", "pipe", "--bytes", "much"], "'much' is not a number of bytes"),
        (["bench", "pipe", "--bytes", "0"], "'0' is not a number of bytes"),
        (["bench", "pipe", "--buffers", "0"], "0 buffers"),
        (["bench", "pipe", "--rounds", "0"], "--rounds"),
        (["bench", "pipe", "--quick", "--all"], "exclude each other"),
        (["bench", "relay", "--way", "call", "--method", "os.splice"], "none of these methods"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(arguments: list[str], complaint: str) -> None:
    shown = run(*arguments)
    assert shown.returncode == 2
    assert complaint in " ".join(shown.stderr.split())


def test_an_ffmpeg_that_is_not_there_is_told() -> None:
    shown = run("bench", "pipe", "--quick", "--ffmpeg", "/nowhere/ffmpeg")
    assert shown.returncode == 1
    assert "/nowhere/ffmpeg" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    shown = run("--version", before=f"import sys; sys.modules[{missing!r}] = None")
    assert shown.returncode == 1
    assert "pip install 'penstock-io[cli]'" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_full_standard_output_is_told() -> None:
    with Path("/dev/full").open("wb") as full:
        shown = run("--help", stdout=full)
    assert shown.returncode == 1
    assert os.strerror(errno.ENOSPC) in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("benchmark", ["pipe", "relay"])
def test_a_signal_ends_a_benchmark_and_what_it_has_started(benchmark: str, number: int) -> None:
    pytest.importorskip("numpy", reason="the benchmark's frames are NumPy arrays")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "bench", benchmark, "--quick"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # A case of the pipe's has a process of its own.
    is_there = has_worker if benchmark == "pipe" else is_busy
    assert eventually(lambda: is_there(process.pid))
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, b"Traceback" in said) == (-number, False)
    assert not has_worker(process.pid)
    assert eventually(lambda: of_session(process.pid) == [])  # an FFmpeg that has lost its input


def has_worker(session: int) -> bool:
    """Whether a case is being run in it."""
    return any(b"penstock.bench.pipe.worker" in command for command in of_session(session))


def is_busy(pid: int) -> bool:
    """Whether it has used a second of the processor: it is past its imports."""
    return sum(map(int, status_of(pid)[11:13])) / os.sysconf("SC_CLK_TCK") >= 1


def status_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def of_session(session: int) -> list[bytes]:
    """Command lines of the processes in a session that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            state, *_, its_session = status_of(int(entry.name))[:4]
            if int(its_session) == session and state != "Z":
                found.append((entry / "cmdline").read_bytes())
    return found


def test_a_signal_waits_while_what_it_ends_is_begun() -> None:
    code = """
import os, signal
from penstock.commands.signals import ending_by_signal, held

with ending_by_signal():
    with held():
        os.kill(os.getpid(), signal.SIGTERM)
        print("begun", flush=True)
    print("never")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "begun\n", "Error: terminated\n")
