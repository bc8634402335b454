"""``penstock convert``: what it keeps, when a file has its name, what it skips and refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.clips import clip
from support.command_line import failed, ffmpegs_of, finish, printed, run, run_on_terminal, start
from support.media import SIZE, ffmpeg, flat
from support.processes import has_ended

from penstock import Decoder, Encoder, probe

TIMES_S = (0.0, 0.1, 0.15, 0.5, 0.52, 1.0, 1.25, 1.5)
FAST = ("--preset", "ultrafast")


def uneven(path: Path, times_s: Sequence[float] = TIMES_S, **options: Any) -> Path:
    """A video of flat frames at these times."""
    with Encoder(path, size=SIZE, fps=None, preset="ultrafast", **options) as encoder:
        for number, time_s in enumerate(times_s):
            encoder.write(flat(number), time_s=time_s)
    return path


def times_of(path: Path) -> list[float]:
    with Decoder(path) as decoder:
        return [round(frame.time_s or 0.0, 3) for frame in decoder]


def pixels_of(path: Path, **options: Any) -> np.ndarray:
    with Decoder(path, **options) as decoder:
        return np.stack([np.array(frame) for frame in decoder])


def lines_of(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def left_of(folder: Path) -> list[str]:
    """The names in a folder without those of records."""
    return sorted(one.name for one in folder.iterdir() if not one.name.endswith(".convert"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return uneven(tmp_path / "in.mkv")


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A video that takes seconds to convert."""
    path = tmp_path / "long.mkv"
    test = ("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=100", "-t", 30)
    ffmpeg(*test, "-c:v", "mpeg4", "-q:v", 5, path)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


# The filter labels the frames for FFmpeg 9, and the options the file for FFmpeg 5.1.
PQ = (
    *("-vf", "setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc"),
    *("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc"),
)


class TestWhatIsKept:
    def test_smoke(self, source: Path, out: Path) -> None:
        assert printed(run("convert", source, out / "a.mp4", *FAST)) == ""
        assert left_of(out) == ["a.mp4"] and len(pixels_of(out / "a.mp4")) == len(TIMES_S)

    @pytest.mark.parametrize("ending", [".mp4", ".mkv", ".webm"])
    def test_frames_keep_their_times(self, source: Path, out: Path, ending: str) -> None:
        printed(run("convert", source, out / f"a{ending}"))
        assert times_of(out / f"a{ending}") == list(TIMES_S)

    def test_a_part_keeps_its_times_from_0_on(self, source: Path, out: Path) -> None:
        printed(run("convert", source, out / "a.mp4", "--start", 0.5, *FAST))
        assert times_of(out / "a.mp4") == [0.0, 0.02, 0.5, 0.75, 1.0]

    @staticmethod
    def lasting(path: Path, last_s: float, times_s: Sequence[float] = TIMES_S) -> Path:
        """An uneven video whose last frame is shown for that long."""
        shown = f"setts=duration=if(eq(NEXT_DTS\\,NOPTS)\\,{last_s}/TB\\,NEXT_DTS-DTS)"
        return uneven(path, times_s, options={"bf": 0, "bsf:v": shown})

    def test_a_last_frame_that_is_shown_for_less_than_the_one_before_is_a_warning(
        self, tmp_path: Path, out: Path
    ) -> None:
        source = self.lasting(tmp_path / "in.mp4", 0.1, (*TIMES_S, 4.0))
        done = run("convert", source, out / "a.mp4", *FAST, "--option", "bf=0")
        assert done.returncode == 0 and re.search(r"last frame .*2\.500 s.*0\.100 s", done.stderr.decode())

    def test_a_last_frame_that_is_shown_for_long_stays_so(self, tmp_path: Path, out: Path) -> None:
        source = self.lasting(tmp_path / "in.mp4", 4)
        lasts_s = probe(source).duration_s
        printed(run("convert", source, out / "a.mp4", *FAST, "--option", "bf=0"))
        assert lasts_s == pytest.approx(5.5) and probe(out / "a.mp4").duration_s == pytest.approx(lasts_s)

    def test_samples_are_kept(self, tmp_path: Path, out: Path) -> None:
        source = tmp_path / "in.mkv"
        test = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10", "-t", 0.5)
        ffmpeg(*test, "-c:v", "ffv1", "-pix_fmt", "yuv422p10le", source)
        printed(run("convert", source, out / "a.mkv", "--quality", "lossless"))
        before, after = (pixels_of(path, pixel_format="source") for path in (source, out / "a.mkv"))
        assert np.array_equal(before, after)

    def test_audio_labels_and_colors_are_kept(self, tmp_path: Path, out: Path) -> None:
        source = tmp_path / "in.mov"
        test = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-f", "lavfi", "-i", "sine", "-t", 1)
        labels = ("-metadata", "title=Waves", "-timecode", "01:00:00:00")
        ffmpeg(*test, "-c:v", "libx264", "-pix_fmt", "yuv420p10le", *PQ, *labels, source)
        printed(run("convert", source, out / "a.mp4", *FAST))
        made = probe(out / "a.mp4")
        assert (made.tags["title"], made.timecode) == ("Waves", "01:00:00:00")
        assert [one.codec for one in made.audio] == ["aac"]
        video = made.best_video
        assert video is not None and video.pixel_format == "yuv420p10le"
        assert (video.color_transfer, video.color_matrix) == ("smpte2084", "bt2020")

    @pytest.mark.parametrize(
        "option", ["--color-matrix", "--color-range", "--output-pixel-format", "--codec"]
    )
    def test_auto_is_the_default(self, tmp_path: Path, out: Path, option: str) -> None:
        source = tmp_path / "in.mkv"
        test = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-t", 0.2)
        ffmpeg(*test, "-c:v", "libx264", "-pix_fmt", "yuv420p10le", *PQ, source)
        printed(run("convert", source, out / "a.mkv", *FAST, option, "auto"))
        video = probe(out / "a.mkv").best_video
        assert video is not None and video.pixel_format == "yuv420p10le"
        assert (video.color_transfer, video.color_matrix) == ("smpte2084", "bt2020")

    @pytest.mark.parametrize("matrix", ["bt709", "smpte170m"])
    @pytest.mark.parametrize("name", ["a.mov", "a.avi"])
    def test_motion_jpeg_has_the_colors_of_the_source(
        self, tmp_path: Path, out: Path, name: str, matrix: str
    ) -> None:
        source = tmp_path / "in.mkv"
        color = ("-f", "lavfi", "-i", "color=0xc81e1e:size=64x48:duration=0.2", "-pix_fmt", "yuv420p")
        ffmpeg(*color, "-vf", f"scale=out_color_matrix={matrix}", "-colorspace", matrix, source)
        done = run("convert", source, out / name, "--codec", "mjpeg")
        assert done.returncode == 0 and done.stderr == b""
        assert abs(pixels_of(out / name).astype(int) - (200, 30, 30)).max() <= 4

    def test_a_rotated_video_is_upright(self, out: Path) -> None:
        printed(run("convert", clip("rotated_90"), out / "a.mp4", *FAST))
        with Decoder(clip("rotated_90")) as before, Decoder(out / "a.mp4") as after:
            assert before.stream.rotation and not after.stream.rotation
            assert before.size == after.size

    def test_a_gif_of_an_ordinary_video_does_not_warn(self, source: Path, out: Path, ffmpeg: str) -> None:
        done = run("convert", source, out / "a.gif", "--ffmpeg", ffmpeg)
        assert done.returncode == 0 and done.stderr == b""

    def test_losses_are_those_of_encoder_like(self, tmp_path: Path, out: Path) -> None:
        source = tmp_path / "in.mkv"
        tracks = ("-map", 0, "-map", 1, "-map", 1)
        test = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-f", "lavfi", "-i", "sine", "-t", 0.4)
        ffmpeg(*test, *tracks, "-flags", "+ilme+ildct", "-c:v", "mpeg2video", "-vf", "setfield=tff", source)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Decoder(source, pixel_format="source") as decoder:
                Encoder.like(decoder, out / "like.mp4").abort()
        done = run("convert", source, out / "a.mp4", *FAST)
        assert len(caught) >= 2
        assert done.stderr.decode().splitlines() == [f"Warning: {one.message}" for one in caught]

    def test_options_of_encode_and_decode_act(self, source: Path, out: Path) -> None:
        of_decode = ("--crop", "0,0,32,32", "--size", "16x16", "--fps", 10, "--end", 1)
        printed(run("convert", source, out / "a.mkv", *of_decode, "--codec", "ffv1", "--metadata", "title=T"))
        made = probe(out / "a.mkv")
        video = made.best_video
        assert video is not None and (video.codec, video.width, video.height) == ("ffv1", 16, 16)
        assert times_of(out / "a.mkv") == [number / 10 for number in range(10)]
        assert made.tags["title"] == "T"


class TestSeveral:
    def test_several_become_files_of_a_folder(self, source: Path, tmp_path: Path, out: Path) -> None:
        other = uneven(tmp_path / "other.mp4", TIMES_S[:3])
        done = run("convert", source, other, out, "--suffix", ".mp4", "--jobs", 2, "--json", *FAST)
        lines = lines_of(done)
        assert printed(done) and left_of(out) == ["in.mp4", "other.mp4"]
        assert {line["input"]: line["frames"] for line in lines} == {str(source): 8, str(other): 3}
        assert not any(line["skipped"] or line["error"] for line in lines)

    @pytest.mark.parametrize("jobs", [1, 3])
    def test_if_one_fails_the_others_are_made_and_it_is_named(
        self, source: Path, tmp_path: Path, out: Path, jobs: int
    ) -> None:
        bad = tmp_path / "bad.mp4"
        bad.write_bytes(b"no video" * 100)
        other = uneven(tmp_path / "other.mp4")
        done = run(
            "convert", bad, source, other, f"{out}/", "--suffix", "mp4", "--jobs", jobs, "--json", *FAST
        )
        assert failed(done).endswith(f"1 of 3 INPUTs failed: {bad}")
        assert left_of(out) == ["in.mp4", "other.mp4"]
        assert [line["input"] for line in lines_of(done) if line["error"]] == [str(bad)]

    def test_warnings_name_their_input(self, source: Path, tmp_path: Path, out: Path) -> None:
        alpha = uneven(tmp_path / "alpha.mkv")
        test = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10", "-t", 0.5)
        ffmpeg(*test, "-c:v", "ffv1", "-pix_fmt", "yuva420p", alpha)
        done = run("convert", source, alpha, out, "--suffix", ".mp4", "--jobs", 2, *FAST, "--json")
        said = done.stderr.decode().splitlines()
        assert len(said) == 1 and f"{alpha}: " in said[0] and "alpha" in said[0]
        assert {line["input"]: len(line["warnings"]) for line in lines_of(done)} == {
            str(source): 0,
            str(alpha): 1,
        }


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "status", "said"),
        [
            (("in.mkv", "other.mkv", "a.mp4"), 2, "folder"),
            (("in.mkv", "out/"), 2, "--suffix"),
            (("in.mkv", "a.mp4", "--suffix", ".mp4"), 2, "--suffix"),
            (("in.mkv", "more/in.mkv", "out", "--suffix", ".mp4"), 2, str(Path("out/in.mp4"))),
            (("other.mkv", "in.mkv", "in.mkv"), 2, "folder"),
            (("in.mkv", "in.mkv", "--overwrite"), 2, "also an INPUT"),
            (("other.mkv", "more/in.mkv", ".", "--suffix", ".mkv", "--overwrite"), 2, "also an INPUT"),
            (("in.mkv", "link.mkv", "--overwrite"), 2, "also an INPUT"),
            (("in.mkv", "-", "out", "--suffix", ".mp4"), 2, "several INPUTs"),
            (("in.mkv", "shots", "out", "--suffix", ".mp4"), 2, "several INPUTs"),
            (("in.mkv", "shots/%03d.png", "out", "--suffix", ".mp4"), 2, "several INPUTs"),
            (("in.mkv", "other.mkv", "missing/", "--suffix", ".mp4"), 1, "folder does not exist"),
            (("in.mkv", "missing.mkv", "out", "--suffix", ".mp4"), 1, "missing.mkv"),
            (("in.mkv", "other.mkv", "out", "--suffix", ".png"), 2, "image"),
            (("in.mkv", "-", "--format", "matroska", "--json"), 2, "--json"),
        ],
    )
    def test_what_cannot_be_done_is_refused_before_the_first_starts(
        self, source: Path, tmp_path: Path, out: Path, words: Sequence[str], status: int, said: str
    ) -> None:
        for folder in ("more", "shots"):
            (tmp_path / folder).mkdir()
        (tmp_path / "shots" / "001.png").touch()
        for name in ("more/in.mkv", "other.mkv"):
            (tmp_path / name).write_bytes(source.read_bytes())
        if "link.mkv" in words:
            (tmp_path / "link.mkv").symlink_to("in.mkv")
        before = source.read_bytes()
        assert said in failed(run("convert", *words, cwd=tmp_path), status)
        assert left_of(out) == [] and source.read_bytes() == before

    def test_an_existing_file_is_refused_before_the_first_starts(
        self, source: Path, tmp_path: Path, out: Path
    ) -> None:
        other = uneven(tmp_path / "other.mkv")
        (out / "other.mp4").write_bytes(b"mine")
        words = ("convert", source, other, out, "--suffix", ".mp4", *FAST)
        assert "--overwrite" in failed(run(*words), 2)
        assert left_of(out) == ["other.mp4"] and (out / "other.mp4").read_bytes() == b"mine"
        printed(run(*words, "--overwrite"))
        assert len(times_of(out / "other.mp4")) == len(TIMES_S)

    def test_two_at_the_same_output_are_refused(self, long: Path, source: Path, out: Path) -> None:
        with start("convert", long, out / "a.mp4") as process:
            assert eventually(lambda: left_of(out))
            assert "another" in failed(run("convert", source, out / "a.mp4"))
            process.send_signal(signal.SIGINT)
            finish(process)


class TestRepeated:
    def test_a_file_that_is_made_already_is_skipped(self, source: Path, out: Path) -> None:
        words = ("convert", source, out / "a.mp4", *FAST, "--json")
        printed(run(*words))
        before = (out / "a.mp4").stat()
        for more in ((), ("--overwrite",)):
            assert lines_of(run(*words, *more))[0]["skipped"]
        assert (out / "a.mp4").stat() == before

    def test_a_file_of_another_input_or_other_options_is_refused(self, source: Path, out: Path) -> None:
        words = ("convert", source, out / "a.mp4", *FAST)
        printed(run(*words))
        assert "--overwrite" in failed(run(*words, "--crf", 30), 2)
        uneven(source, TIMES_S[:4])
        assert "--overwrite" in failed(run(*words), 2)
        printed(run(*words, "--overwrite"))
        assert times_of(out / "a.mp4") == list(TIMES_S[:4])

    def test_an_input_that_changes_meanwhile_is_not_taken_for_the_one_that_was_read(
        self, long: Path, out: Path
    ) -> None:
        words = ("convert", long, out / "a.mp4", *FAST)
        with start(*words) as process:
            assert eventually(lambda: ffmpegs_of(process.pid))
            os.utime(long, (1, 1))
            assert finish(process)[0] == 0
        assert "--overwrite" in failed(run(*words), 2)

    def test_a_file_that_was_changed_since_is_refused(self, source: Path, out: Path) -> None:
        words = ("convert", source, out / "a.mp4", *FAST)
        printed(run(*words))
        with (out / "a.mp4").open("ab") as file:
            file.write(b"more")
        assert "--overwrite" in failed(run(*words), 2)


class TestEnds:
    def test_after_kill_9_the_same_command_makes_what_is_missing(
        self, source: Path, long: Path, out: Path
    ) -> None:
        words = ("convert", source, long, out, "--suffix", ".mp4", *FAST)
        with start(*words) as process:
            part = out / ".long.part.mp4"
            assert eventually(lambda: part.exists() and part.stat().st_size > 0)
            [ffmpeg_id] = ffmpegs_of(process.pid)
            process.kill()
            process.wait(PATIENCE_S)
        assert (out / "in.mp4").exists() and not (out / "long.mp4").exists()
        before = (out / "in.mp4").stat()
        lines = lines_of(run(*words, "--json"))
        assert [(line["skipped"], line["error"]) for line in lines] == [(True, None), (False, None)]
        assert eventually(lambda: has_ended(ffmpeg_id))
        assert (out / "in.mp4").stat() == before and left_of(out) == ["in.mp4", "long.mp4"]
        with Decoder(out / "long.mp4") as decoder:
            assert sum(1 for _ in decoder) == 3000

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_after_a_signal_no_file_is_there_that_is_not_whole(
        self, long: Path, source: Path, out: Path, number: int
    ) -> None:
        (out / "long.mp4").write_bytes(b"old")
        words = ("convert", long, source, out, "--suffix", ".mp4", "--jobs", 2, "--overwrite")
        with start(*words, *FAST) as process:
            assert eventually(lambda: (out / "in.mp4").exists() and ".long.part.mp4" in left_of(out))
            process.send_signal(number)
            status, said = finish(process)
        assert status == -number and "Traceback" not in said
        assert left_of(out) == ["in.mp4", "long.mp4"] and (out / "long.mp4").read_bytes() == b"old"

    def test_a_failure_leaves_no_file_and_keeps_the_old_one(self, source: Path, out: Path) -> None:
        data = source.read_bytes()
        source.write_bytes(data[: len(data) // 2])
        said = failed(run("convert", source, out / "a.mp4", *FAST))
        assert ".part" not in said and left_of(out) == []
        (out / "a.mp4").write_bytes(b"old")
        failed(run("convert", source, out / "a.mp4", *FAST, "--overwrite"))
        assert (out / "a.mp4").read_bytes() == b"old" and left_of(out) == ["a.mp4"]

    def test_a_killed_ffmpeg_fails_its_input_only(self, source: Path, long: Path, out: Path) -> None:
        with start("convert", long, source, out, "--suffix", ".mp4", *FAST) as process:
            assert eventually(lambda: ffmpegs_of(process.pid) and ".long.part.mp4" in left_of(out))
            os.kill(ffmpegs_of(process.pid)[0], signal.SIGKILL)
            status, said = finish(process)
        assert (status, left_of(out)) == (1, ["in.mp4"])
        assert said.rstrip().endswith(f"1 of 2 INPUTs failed: {long}")

    def test_what_is_no_file_is_written_in_place(self, source: Path, out: Path) -> None:
        done = run("convert", source, "-", "--format", "matroska", *FAST)
        assert (done.returncode, done.stdout[:4]) == (0, b"\x1aE\xdf\xa3")
        with source.open("rb") as file:
            printed(run("convert", "-", out / "a.mkv", *FAST, stdin=file))
        assert times_of(out / "a.mkv") == list(TIMES_S)

    @pytest.mark.linux("a terminal that a program holds")
    def test_a_summary_has_what_was_made_and_skipped(self, source: Path, tmp_path: Path, out: Path) -> None:
        words = ("convert", source, out / "a.mp4", *FAST)
        _, shown, _ = run_on_terminal(*words)
        assert re.search(r"frames converted: 8 .*a\.mp4", shown)
        assert "skipped" in run_on_terminal(*words)[1]
