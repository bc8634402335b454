"""The command line: its help, how it fails, and that it starts quickly."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import PATIENCE_S
from support.clips import clip
from support.command_line import failed, printed, run, run_process, start, text_of
from support.processes import run_script, succeeded

import penstock
from penstock.cli import penstock_command
from penstock.cli.commands import COMMANDS


def test_help_shows_every_command_with_the_first_line_of_its_own_help() -> None:
    assert printed(run("--help")) == printed(run("-h"))
    shown = " ".join(printed(run("--help")).split())
    for name, help_line in COMMANDS.items():
        assert f"{name} {help_line}" in shown
        command = penstock_command.get_command(None, name)
        assert command is not None and (command.name, command.get_short_help_str(200)) == (name, help_line)


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("convert", 5),
        ("decode", 6),
        ("encode", 6),
        ("probe", 3),
        ("relay", 1),
        pytest.param("tee", 1, marks=pytest.mark.linux("Tee")),
    ],
)
def test_help_has_examples_that_are_right_usage(tmp_path: Path, command: str, count: int) -> None:
    """What they name is not here: they can complain of nothing else."""
    (tmp_path / "frames").mkdir()
    shown = printed(run(command, "--help")).partition("Example")[2]
    examples = [line.partition("penstock ")[2] for line in shown.splitlines() if "penstock " in line]
    assert len(examples) == count
    for example in examples:
        arguments = shlex.split(re.split("[|>]", example)[0])
        said = failed(run(*arguments, cwd=tmp_path, data=b""))
        assert re.search(
            "No such file|no image in this folder|no file matches|after 0 bytes|there is no FIFO", said
        )


def test_version_option_prints_the_version() -> None:
    assert printed(run("--version")) == f"penstock, version {penstock.__version__}\n"
    assert printed(run_process("--version")) == printed(run("--version"))


def test_a_command_is_imported_when_it_is_called() -> None:
    code = """
        import click
        before = {*sys.modules}
        import penstock.cli
        for arguments in (["--version"], ["--help"]):
            penstock.cli.penstock_command.main(arguments, standalone_mode=False)
        new = {name.partition(".")[0] for name in {*sys.modules} - before}
        assert not new & {"asyncio", "numpy", "rich"}, new
        loaded = {name for name in sys.modules if name.startswith("penstock.cli.")}
        assert loaded == {"penstock.cli.commands", "penstock.cli.signals"}, loaded
    """
    succeeded(run_script(code))


def test_wrong_usage_is_reported_and_exits_with_2() -> None:
    assert "No such command 'pour'" in failed(run("pour"), status=2)
    assert "No such command 'signals'" in failed(run_process("signals"), status=2)


def test_closed_standard_error_puts_no_message_into_the_data() -> None:
    command = 'exec "$0" -m penstock decode nothing - 2>&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, b"")


def test_probe_succeeds_with_standard_output_closed() -> None:
    command = f'exec "$0" -m penstock probe {clip("h264")} >&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.linux("files in /dev")
def test_full_standard_output_is_reported() -> None:
    with Path("/dev/full").open("wb") as full:
        assert os.strerror(errno.ENOSPC) in failed(run_process("--help", stdout=full))


@pytest.mark.linux("pipes that don't wait")
@pytest.mark.parametrize("number", [1, 2])
def test_what_is_printed_into_a_nonblocking_pipe_is_whole(number: int) -> None:
    """Into one page, whose reader waits until the program does."""
    file = clip("h264")
    arguments = ["probe", "--json", *[file] * 20] if number == 1 else ["probe", *["/nowhere"] * 200]
    whole = run(*arguments)
    import fcntl

    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with start(*arguments, **{"stdout" if number == 1 else "stderr": writer}) as process:
        os.close(writer)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == (whole.stdout if number == 1 else whole.stderr)
    assert process.returncode == whole.returncode


def test_signal_is_deferred_while_a_command_starts() -> None:
    code = """
import signal
from penstock.cli.signals import ending_by_signal, deferred

with ending_by_signal():
    with deferred():
        signal.raise_signal(signal.SIGTERM)
        print("begun", flush=True)
    print("never")
"""
    done = run_script(code)
    assert (done.returncode, done.stdout.split()) == (-signal.SIGTERM, [b"begun"])
    assert text_of(done.stderr) == "Error: terminated\n"
