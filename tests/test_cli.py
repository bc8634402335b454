"""The command line: what it says of itself, and how it fails."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from conftest import PATIENCE_S

import penstock

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
    assert "encode" in shown.stdout


def test_version() -> None:
    shown = run("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"penstock, version {penstock.__version__}\n"


def test_wrong_usage_is_told_and_exits_with_2() -> None:
    shown = run("pour")
    assert shown.returncode == 2
    assert "No such command 'pour'" in " ".join(shown.stderr.split())


def test_a_full_standard_output_is_told() -> None:
    with Path("/dev/full").open("wb") as full:
        shown = run("--help", stdout=full)
    assert shown.returncode == 1
    assert os.strerror(errno.ENOSPC) in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_signal_waits_while_what_it_ends_is_begun() -> None:
    code = """
import os, signal
from penstock.cli.signals import ending_by_signal, held

with ending_by_signal():
    with held():
        os.kill(os.getpid(), signal.SIGTERM)
        print("begun", flush=True)
    print("never")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "begun\n", "Error: terminated\n")
