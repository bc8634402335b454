"""The runner of short programs: what it captures, and an error for each way to fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.cases import eventually
from support.processes import has_ended

from penstock._ffmpeg.program.child import FailedError, NotStartedError, TimedOutError, run


def program(code: str, *arguments: str) -> list[str]:
    """The command of a program in Python."""
    return [sys.executable, "-S", "-c", f"import os, signal, subprocess, sys, time\n{code}", *arguments]


def test_smoke() -> None:
    code = "print('out', sys.argv[1]); print('error', file=sys.stderr); sys.exit(3)"
    done = run(program(code, "x"), 30, check=False)
    assert (done.text, done.stderr, done.returncode) == ("out x\n", "error", 3)
    assert done.ending == "ended with exit code 3"


def test_only_the_end_of_stderr_is_kept() -> None:
    code = r"sys.stderr.write('it is broken\n' * 200_000)"
    assert len(run(program(code), 30).stderr) <= 256 << 10


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (r"sys.exit('first\nlast')", "^last$"),
        ("sys.exit(3)", "exit code 3"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGSEGV)",
            "SIGSEGV",
            marks=pytest.mark.linux("signals in exit statuses"),
        ),
    ],
)
def test_failed_program_raises_with_its_reason(code: str, words: str) -> None:
    with pytest.raises(FailedError, match=words):
        run(program(code), 30)


@pytest.mark.parametrize("content", [None, b"\x7fELF and no more"])
def test_missing_or_broken_program_raises(tmp_path: Path, content: bytes | None) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_bytes(content)
        program.chmod(0o755)
    with pytest.raises(NotStartedError):
        run([str(program)], 30)


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = """
sleeping = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(100)'])
with open(sys.argv[1] + '.new', 'w') as file:
    file.write(str(sleeping.pid))
os.replace(sys.argv[1] + '.new', sys.argv[1])
time.sleep(100)"""
    with pytest.raises(TimedOutError):
        run(program(code, str(child)), 3)
    assert eventually(lambda: has_ended(int(child.read_text())))
