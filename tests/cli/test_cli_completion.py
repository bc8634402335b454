"""What shells complete on the command line: file names where one belongs, commands, and options."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import PATIENCE_S
from support.command_line import printed, run
from support.processes import run_script, succeeded

SHELLS = ("bash", "zsh", "fish")
WHERE_FILES_BELONG = (
    *("convert", "convert one.mp4 two.mp4", "convert in.mp4 out.mp4 --audio"),
    *("decode", "decode in.mp4", "decode in.mp4 --timestamps", "decode --ffmpeg"),
    *("encode", "encode frames/", "encode frames/ out.mp4 --audio", "probe", "probe one.mp4"),
    *("relay", "relay -", "tee", "tee - one two"),
    *("render", "render scene.py:waves", "render --audio", "render --storage", "render --plan-only"),
    *("render chunk", "render assemble"),
)


def asked(shell: str, words: str, begun: str) -> list[list[str]]:
    """What the completion answers: kind and text."""
    place = begun if shell == "fish" else str(1 + len(words.split()))
    env = {"_PENSTOCK_COMPLETE": f"{shell}_complete", "COMP_WORDS": f"penstock {words} {begun}"}
    lines = printed(run(env=os.environ | env | {"COMP_CWORD": place})).splitlines()
    if shell == "zsh":  # a line each for kind, text and description
        return [list(one) for one in zip(lines[::3], lines[1::3], strict=True)]
    return [line.split("\t")[0].split(",", 1) for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("words", WHERE_FILES_BELONG)
def test_completion_offers_file_names(shell: str, words: str) -> None:
    assert asked(shell, words, "vid") == [["file", "vid"]]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_offers_commands_options_and_choices(shell: str) -> None:
    assert asked(shell, "", "re") == [["plain", "relay"], ["plain", "render"]]
    assert asked(shell, "decode in.mp4", "--ev") == [["plain", "--every"]]
    assert asked(shell, "decode in.mp4 --color-range", "l") == [["plain", "limited"]]


def test_completion_of_a_command_name_imports_no_command() -> None:
    code = """
        import os, penstock.cli
        words = {"COMP_WORDS": "penstock ", "COMP_CWORD": "1", "_PENSTOCK_COMPLETE": "bash_complete"}
        os.environ.update(words)
        try:
            penstock.cli.penstock_command.main([], "penstock")
        except SystemExit:
            assert "penstock.cli.commands.relay" not in sys.modules
    """
    assert succeeded(run_script(code)).decode().splitlines()[:2] == ["plain,convert", "plain,decode"]


@pytest.mark.parametrize("begun", ["decode vid", "decode x.mp4 --timestamps ./vid", "tee - a vid"])
def test_completion_works_in_bash(tmp_path: Path, begun: str) -> None:
    if not shutil.which("bash"):
        pytest.skip("bash is missing")
    command = tmp_path / "bin" / "penstock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
    command.chmod(0o755)
    (tmp_path / "video one.mkv").touch()
    path = f"{command.parent}:{os.environ['PATH']}"
    controlling, terminal = os.openpty()
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "TERM": "dumb", "INPUTRC": "/dev/null", "HISTFILE": ""},
        start_new_session=True,
    )
    os.close(terminal)
    with bash:
        os.write(controlling, b'eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"; echo rea""dy\n')
        _until(controlling, b"ready")
        os.write(controlling, f"penstock {begun}\t".encode())
        shown = _until(controlling, b"video\\ one.mkv ")
        bash.kill()
    os.close(controlling)
    assert b"video\\ one.mkv " in shown


def _until(fd: int, awaited: bytes) -> bytes:
    """What comes from a terminal up to these words, or until patience ends."""
    shown = b""
    while awaited not in shown and select.select([fd], [], [], PATIENCE_S)[0]:
        shown += os.read(fd, 4096)
    return shown
