"""The runner of short programs: what it captures, and an error for each way to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import eventually
from support.processes import has_ended, script

from penstock._ffmpeg.program.child import FailedError, NotStartedError, TimedOutError, run


def test_smoke(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "echo out $1", "echo error >&2", "exit 3")
    done = run([str(program), "x"], 30, check=False)
    assert (done.text, done.stderr, done.returncode) == ("out x\n", "error", 3)
    assert done.ending == "ended with exit code 3"


def test_only_the_end_of_stderr_is_kept(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "yes 'it is broken' | head -c 3000000 >&2")
    assert len(run([str(program)], 30).stderr) <= 256 << 10


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo first >&2; echo last >&2; exit 1", "^last$"),
        ("exit 3", "exit code 3"),
        ("kill -SEGV $$", "SIGSEGV"),
    ],
)
def test_failed_program_raises_with_its_reason(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(FailedError, match=words):
        run([str(script(tmp_path / "program", line))], 30)


@pytest.mark.parametrize("content", [None, b"\x7fELF and no more"])
def test_missing_or_broken_program_raises(tmp_path: Path, content: bytes | None) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_bytes(content)
        program.chmod(0o755)
    with pytest.raises(NotStartedError):
        run([str(program)], 30)


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    program = script(tmp_path / "program", "sleep 1000 &", f"echo $! > {tmp_path}/child", "wait")
    with pytest.raises(TimedOutError):
        run([str(program)], 0.5)
    child = int((tmp_path / "child").read_text())
    assert eventually(lambda: has_ended(child))
