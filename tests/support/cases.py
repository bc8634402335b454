"""Which cases a test has, with which programs, and how long it waits."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import hypothesis
import pytest

from penstock._ffmpeg.command.settings import with_overrides
from penstock._ffmpeg.program import capabilities
from penstock.video import EncoderSettings

IS_THOROUGH = "PENSTOCK_THOROUGH" in os.environ
"""Whether property tests try many examples, as in make test-exhaustive."""


def examples(thorough: int) -> hypothesis.settings:
    """That many examples for a property test, or a fifth of them if the tests are not thorough."""
    return hypothesis.settings(max_examples=thorough if IS_THOROUGH else max(10, thorough // 5))


UNREHEARSED = with_overrides(EncoderSettings(), rehearse=False)
"""Settings for encoders whose FFmpeg is to fail while it runs."""


IS_ROOT = sys.platform != "win32" and os.geteuid() == 0
"""Whether no mode of a file keeps us out."""


MODES = ["auto", "write"] if sys.platform == "win32" else ["auto", "write", "staged", "zero-copy"]


ISOLATED: list[dict[str, Any]] = [] if sys.platform == "win32" else [{"isolated": True}]
"""A decoder's option for a process of its own, where it has one."""


PATIENCE_S = 60.0
"""How long a test waits for what must happen at all; how fast is nobody's claim."""


def a_few(cases: Iterable[Any], one_in: int = 4) -> list[Any]:
    """A test's cases. One in four, or in `one_in`, runs always, and the others where every case does."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*value, marks=[pytest.mark.exhaustive] if number % one_in else [])
        for number, value in enumerate(values)
    ]


def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
    """Whether the condition comes true before patience ends."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def ffmpegs() -> list[str]:
    """The FFmpegs of this machine: the system's, and the wheel's."""
    found = [shutil.which("ffmpeg")]
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        found.append(imageio_ffmpeg.get_ffmpeg_exe())
    return list(dict.fromkeys(program for program in found if program))


def prefer_the_quickest() -> None:
    """Has quick tests use the wheel's FFmpeg unless they name one: the system's takes 0.1 s of CPU time to start.

    That is half of their time. Thorough tests use the system's, and clips are made by that in any case.
    """
    os.environ.setdefault("PENSTOCK_FFMPEG", ffmpegs()[0 if IS_THOROUGH else -1])


def allowed(name: str) -> str:
    """The name of a file without what Windows allows in none."""
    return re.sub(r"[*:<>\n]", "", name) if sys.platform == "win32" else name


def needs_the_end_of_edits(ffmpeg: str) -> None:
    """Skips the test if this FFmpeg returns AAC behind the end of MP4's edit list, as 7.1 and older ones do."""
    if capabilities.version_numbers(ffmpeg) < (8,):
        pytest.skip("this FFmpeg returns AAC behind the end of MP4's edit list")


def needs(ffmpeg: str, *codecs: str) -> None:
    """Skips the test if this FFmpeg lacks one of the encoders."""
    if missing := set(codecs) - set(capabilities.encoders(ffmpeg)):
        pytest.skip(f"this FFmpeg has no {', '.join(missing)}")
