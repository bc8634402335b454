"""``scripts/corpus.py`` reads each file in all ways, and says by kind what differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock import Encoder
from penstock.video import AudioTrack
from scripts import corpus

ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.corpus", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A video with audio, in a folder in a folder."""
    frames = np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), np.uint8)
    (tmp_path / "inner").mkdir()
    track = AudioTrack(48_000, 1, codec="flac")
    with Encoder(tmp_path / "inner" / "whole.mkv", size=(64, 48), fps=24, audio=track) as encoder:
        encoder.write_audio(np.sin(np.arange(24_000) / 20).astype(np.float32)[:, None])
        for frame in frames:
            encoder.write(frame)
    return tmp_path


def test_a_whole_file_is_the_same_in_all_ways(folder: Path) -> None:
    done = run(folder)
    assert (done.returncode, done.stdout.strip()) == (0, "1 files, 0 kinds of differences"), done.stderr


def test_a_file_that_ends_early_is_named_with_its_kind(folder: Path) -> None:
    path = folder / "inner" / "whole.mkv"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5])
    done = run(folder)
    assert done.returncode == 1
    assert "audio: another length (1)" in done.stdout
    assert str(path) in done.stdout


def test_a_folder_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    for arguments in ((), (tmp_path,), (tmp_path / "missing",)):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "folder" in done.stderr or "no files" in done.stderr


def test_a_way_that_crashes_or_hangs_is_counted_and_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MOST_SECONDS", 1)
    for program, words in (("import os; os.abort()", "-6"), ("import time; time.sleep(60)", "1 s")):
        monkeypatch.setattr(
            corpus, "command_of", lambda way, path, code=program: [sys.executable, "-c", code]
        )
        reading = corpus.read_apart("in sequence", Path("any"))
        assert words in reading.killed
        readings = {way: reading if way == "in sequence" else corpus.Reading() for way in corpus.WAYS}
        assert list(corpus.differences(readings)) == [("in sequence: crashed or hung", reading.killed)]


def test_other_frames_times_and_samples_are_kinds_of_their_own() -> None:
    readings = {way: corpus.Reading() for way in corpus.WAYS}
    for way in ("in sequence", "by number", "by time", "isolated"):
        for index in (0, 2, 1) if way.startswith("by") else range(3):
            readings[way].add(index, index / 10, b"frame %d" % index)
    readings["by number"].digests[1] = "another"
    readings["by time"].times_s[1] = 0.25
    readings["isolated"].numbers.pop()
    readings["audio"].samples, readings["FFmpeg's audio"].samples = 1, 2
    kinds = [kind for kind, _ in corpus.differences(readings)]
    assert kinds == [
        "by number: other pixels",
        "by time: other times",
        "isolated: another number of frames",
        "audio: another length",
    ]


def test_an_isolated_read_without_frames_and_the_audio_of_a_file_without_video_are_compared() -> None:
    readings = {way: corpus.Reading() for way in corpus.WAYS}
    readings["FFmpeg's audio"].samples = 10
    assert [kind for kind, _ in corpus.differences(readings)] == ["audio: another length"]
    for way in ("in sequence", "by number", "by time"):
        readings[way].add(0, 0.0, b"frame")
    readings["FFmpeg's audio"].samples = 0
    assert [kind for kind, _ in corpus.differences(readings)] == ["isolated: another number of frames"]
