"""A program that stands for a confined process which a file has taken over."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.path.realpath(sys.executable)

PRELUDE = """\
import json, os, struct, sys, time
records = int(sys.argv[-1])

def call():
    return json.loads(sys.stdin.readline())

def answer(answer, **other):
    print(json.dumps({"unconfined": [], "answer": answer, **other}), flush=True)

def say(*answers, **other):
    call()
    answer(*answers, **other)

def send(data):
    data = memoryview(data)
    while data:
        data = data[os.write(records, data):]

def frame(index, pts=0, word=b"a frame\\n", size=FRAME_BYTES):
    send(struct.pack("=8sqq40x", word, index, pts) + bytes(size))

call()  # what it is to read
"""


def replace_confined(
    monkeypatch: pytest.MonkeyPatch, folder: Path, code: str, facts: dict[str, Any], frame_bytes: int
) -> None:
    """Has a program run in place of the process: it has these facts, and sends frames of so many bytes."""
    program = folder / "python"
    given = f"FRAME_BYTES = {frame_bytes}\nfacts = {facts!r}\n"
    numbers = "nan = float('nan'); inf = float('inf')\n"
    program.write_text(f"#!{PYTHON} -IS\n{numbers}{given}{PRELUDE}{textwrap.dedent(code)}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(program))
