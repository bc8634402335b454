"""``penstock probe``: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
from fractions import Fraction
from pathlib import Path

import pytest
from support.cases import eventually
from support.clips import clip
from support.command_line import failed, finish, printed, run, run_process, start, text_of

from penstock import probe
from penstock._facts.info import clock


def shown(*arguments: object) -> str:
    """What a run that succeeded printed."""
    return printed(run("probe", *arguments))


def refused(*arguments: object, status: int = 1) -> tuple[str, str]:
    """What a run that failed wrote to standard output, and to standard error."""
    done = run("probe", *arguments)
    failed(done, status)
    return text_of(done.stdout), text_of(done.stderr)


class TestForPeople:
    """The table."""

    def test_smoke(self) -> None:
        file, video, audio = shown(clip("audio_aac")).splitlines()
        assert file.startswith(f"{clip('audio_aac')}: QuickTime / MOV, 0:00:00.4")
        assert (
            "#0  video  h264 (High)  yuv420p, 64x48, 25 frames/s, 12 frames, 0:00:00.48, colors untagged"
            in video
        )
        assert "#1  audio  aac (LC)     44100 Hz, stereo, fltp, 0:00:00.4" in audio
        assert not any(line.endswith(" ") for line in (file, video, audio))

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("rotated_90", "48x64, stored as 64x48 and turned 90 degrees clockwise,"),
            ("wide_pixels", "64x48, pixels of 4:3,"),
            ("variable_mp4", "15 frames/s (variable), 12 frames,"),
            ("h264_large", "29.97 frames/s"),
            ("h264_mkv", "frames unknown"),
            ("bt709", "bt709, limited"),
            ("bt2020_10bit", "bt2020, limited (smpte2084)"),
            ("mjpeg_422", "bt601, full"),
            ("interlaced", "interlaced (tt)"),
            ("starts_late_mkv", "from 5 s"),
            ("video_and_cover", "yuvj420p, 32x32, attached picture"),
            ("no_streams", "no video and no audio"),
        ],
    )
    def test_probe_shows_unusual_facts(self, name: str, words: str) -> None:
        assert words in shown(clip(name))

    def test_probe_shows_several_files_in_order(self) -> None:
        text = shown(clip("h264"), clip("audio_only"))
        assert text.index(str(clip("h264"))) < text.index("h264 (High)") < text.index("pcm_s16le")

    @pytest.mark.linux("a terminal that a program holds")
    def test_probe_fits_a_narrow_terminal(self) -> None:
        controlling, terminal = os.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "60"}
        process = start("probe", clip("rotated_90"), stdout=terminal, env=environment)
        os.close(terminal)
        assert finish(process) == (0, "")
        text = os.read(controlling, 1 << 16).decode()
        os.close(controlling)
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
        assert len(lines) > 3 and max(map(len, lines)) <= 60
        # What is broken goes on where it began.
        assert lines[-1].startswith(" " * lines[-2].index(lines[-2].split()[0])) and lines[-1].startswith(
            " " * 20
        )

    @pytest.mark.linux("names with colons and line ends")
    def test_probe_escapes_control_characters_in_names(self, tmp_path: Path) -> None:
        path = tmp_path / "a\nb\x1b[2Jé.mp4"
        path.write_bytes(clip("h264").read_bytes())
        environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
        text = printed(run_process("probe", path, env=environment))
        assert "\x1b" not in text and text.isascii() and len(text.splitlines()) == 2
        path.write_bytes(b"no video")
        _, said = refused(path)
        assert "\x1b" not in said and len(said.splitlines()) == 1

    @pytest.mark.parametrize(
        ("seconds", "shown_as"),
        [(0.0416, "0:00:00.042"), (59.9996, "0:01:00.0"), (3723.25, "1:02:03.25"), (1e6, "277:46:40.0")],
    )
    def test_times_are_formatted_as_a_clock(self, seconds: float, shown_as: str) -> None:
        assert clock(seconds) == shown_as


class TestForPrograms:
    """``--json``"""

    def test_json_matches_the_python_facts(self) -> None:
        told, info = json.loads(shown(clip("audio_aac"), "--json")), probe(clip("audio_aac"))
        assert told["path"] == info.path
        assert told["duration_s"] == info.duration_s
        assert told["tags"] == info.tags
        assert told["audio"][0]["sample_rate"] == 44_100
        assert told["video"][0]["pixel_format"] == "yuv420p"
        assert told["video"][0]["color_matrix"] is None
        assert Fraction(told["video"][0]["time_base"]) == info.video[0].time_base

    def test_json_has_fractions_as_fractions(self) -> None:
        stream = json.loads(shown(clip("h264_large"), "--json"))["video"][0]
        assert (stream["frame_rate"], stream["sample_aspect_ratio"]) == ("30000/1001", "1/1")

    def test_json_of_several_files_is_a_list(self) -> None:
        names = [str(clip("h264")), str(clip("audio_only"))]
        assert [one["path"] for one in json.loads(shown(*names, "--json"))] == names


class TestFailures:
    """One line each, no traceback, and an exit status."""

    @pytest.mark.parametrize("options", [(), ("--json",)])
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("text", "is not a media file"),
            ("text_txt", "is a text file"),
            ("empty", "is an empty file"),
            ("cut_before_the_index", "moov"),
        ],
    )
    def test_file_that_is_no_media_is_reported_in_one_line(
        self, name: str, words: str, options: tuple[str, ...]
    ) -> None:
        printed, said = refused(clip(name), *options)
        assert printed == ""
        assert said.startswith(f"Error: {clip(name)} ") and words in said
        assert len(said.splitlines()) == 1

    def test_missing_file_and_folder_are_reported(self, tmp_path: Path) -> None:
        assert refused(tmp_path / "none") == ("", f"Error: {tmp_path / 'none'}: No such file or directory\n")
        assert refused(tmp_path) == ("", f"Error: {tmp_path}: Is a directory\n")

    def test_other_files_are_shown_if_one_file_fails(self) -> None:
        printed, said = refused("--json", clip("h264"), clip("text"), clip("audio_only"))
        assert [one["path"] for one in json.loads(printed)] == [str(clip("h264")), str(clip("audio_only"))]
        assert str(clip("text")) in said

    @pytest.mark.linux("FIFOs")
    def test_fifo_without_a_writer_times_out(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        assert "was not read within 0.3 s" in refused(tmp_path / "fifo", "--timeout", "0.3")[1]

    @pytest.mark.parametrize("arguments", [(), ("x", "--timeout", "0"), ("x", "--nonsense")])
    def test_wrong_usage_exits_with_2(self, arguments: tuple[str, ...]) -> None:
        refused(*arguments, status=2)

    @pytest.mark.linux("files in /dev")
    def test_full_standard_output_is_reported(self) -> None:
        with Path("/dev/full").open("wb") as full:
            done = run_process("probe", clip("h264"), stdout=full)
        assert done.returncode == 1
        assert b"No space left" in done.stderr and b"Traceback" not in done.stderr

    @pytest.mark.linux("FIFOs")
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_ends_probe(self, tmp_path: Path, number: int) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        process = start("probe", fifo)

        def is_waiting() -> bool:
            threads = Path(f"/proc/{process.pid}/task").iterdir()
            return any((one / "wchan").read_text() == "wait_for_partner" for one in threads)

        assert eventually(is_waiting)
        process.send_signal(number)
        status, said = finish(process)
        assert status == -number and "Traceback" not in said
