"""The command line: what it says of itself, and how it fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock

pytest.importorskip("click", reason="the command line is the extra penstock[cli]")
pytest.importorskip("rich", reason="the command line is the extra penstock[cli]")


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter, as its console script does."""
    program = f"{before}\nimport sys\nsys.argv[0] = 'penstock'\nfrom penstock.cli import main\nmain()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)


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
    assert "pip install 'penstock[cli]'" in shown.stderr
    assert "Traceback" not in shown.stderr
