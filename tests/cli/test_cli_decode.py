"""``penstock decode``: what it delivers, in which order, how it ends, and what it says."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from support.cases import PATIENCE_S, a_few, eventually
from support.command_line import (
    ENDING,
    delivered,
    failed,
    ffmpegs_of,
    finish,
    open_blocking,
    run,
    run_on_terminal,
    run_process,
    start,
    text_of,
)
from support.media import ffmpeg
from support.processes import has_ended
from support.streams import ReaderThread, unread_bytes

from penstock import Decoder
from penstock._platform.wakeups import READER_GONE
from penstock.cli.opening import Endpoint
from penstock.cli.outputs import RawOutput

WIDTH, HEIGHT, COUNT, RATE = 64, 48, 20, 10
FRAME_BYTES = 3 * WIDTH * HEIGHT


def make(
    path: Path, *arguments: object, size: str = f"{WIDTH}x{HEIGHT}", seconds: float = COUNT / RATE
) -> Path:
    """A video of a picture that moves; each frame shows its number."""
    picture = f"testsrc2=size={size}:rate={RATE}:duration={seconds}"
    ffmpeg("-f", "lavfi", "-i", picture, *(arguments or ("-c:v", "ffv1", "-pix_fmt", "yuv420p")), path)
    return path


#: A chroma sample is that of all of its pixels, and nothing is rounded on the way.
EXACT = "neighbor+accurate_rnd+full_chroma_int"


def frames_of(path: object, pixel_format: str = "rgb24", *before: str) -> bytes:
    """What FFmpeg itself makes of a video, or of images."""
    raw = ("-fps_mode", "passthrough", "-sws_flags", EXACT, "-f", "rawvideo", "-pix_fmt", pixel_format, "-")
    return ffmpeg(*before, "-i", path, *raw)


def differ(some: bytes, others: bytes) -> int:
    """By how many code values bytes differ at most; they must be as many."""
    assert len(some) == len(others) > 0
    return int(np.abs(np.frombuffer(some, np.uint8).astype(int) - np.frombuffer(others, np.uint8)).max())


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty frames."""
    return make(tmp_path_factory.mktemp("video") / "video.mkv")


@pytest.fixture(scope="module")
def frames(video: Path) -> list[bytes]:
    """They, as the Decoder gives them."""
    with Decoder(video) as decoder:
        return [frame.tobytes() for frame in decoder]


@pytest.fixture(scope="module")
def long_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than any pipe, queue or patience holds: minutes of decoding."""
    path = tmp_path_factory.mktemp("long") / "long.mkv"
    one = make(
        path.with_name("one.mkv"), "-c:v", "libx264", "-preset", "ultrafast", size="640x360", seconds=10
    )
    ffmpeg("-stream_loop", "500", "-i", one, "-c", "copy", path)
    return path


@pytest.fixture
def cut(tmp_path: Path, video: Path) -> Path:
    """A video that ends too early, in the middle of a frame."""
    path = tmp_path / "cut.mkv"
    path.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    return path


class TestRawFrames:
    """Standard output, a file, a FIFO."""

    def test_smoke(self, video: Path, frames: list[bytes]) -> None:
        assert len(frames) == COUNT
        for output in ((), ("-",)):
            assert delivered(run("decode", video, *output)) == b"".join(frames)
        assert differ(b"".join(frames), frames_of(video)) <= 2

    def test_decode_reads_standard_input(self, video: Path, frames: list[bytes]) -> None:
        with video.open("rb") as file:
            assert delivered(run("decode", "-", stdin=file)) == b"".join(frames)
        assert delivered(run("decode", "-", data=video.read_bytes())) == b"".join(frames)

    @pytest.mark.linux("FIFOs")
    def test_decode_reads_a_fifo(self, video: Path, frames: list[bytes], tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with start("decode", f"fifo:{fifo}", "out.rgb", cwd=tmp_path) as process:
            with open_blocking(fifo, "wb") as writer:
                writer.write(video.read_bytes())
            assert finish(process) == (0, "")
        assert (tmp_path / "out.rgb").read_bytes() == b"".join(frames)

    def test_decode_overwrites_a_file(self, video: Path, frames: list[bytes], tmp_path: Path) -> None:
        out = tmp_path / "out.rgb"
        out.write_bytes(bytes(1 << 20))
        assert delivered(run("decode", video, out)) == b""
        assert out.read_bytes() == b"".join(frames)

    @pytest.mark.linux("FIFOs")
    @pytest.mark.parametrize(("prefix", "name"), [("", "fifo"), ("fifo:", "fifo.mp4"), ("fifo:", "%d.png")])
    def test_decode_writes_to_a_fifo(
        self, video: Path, frames: list[bytes], tmp_path: Path, prefix: str, name: str
    ) -> None:
        fifo = tmp_path / name
        os.mkfifo(fifo)
        with start("decode", video, f"{prefix}{fifo}") as process:
            with open_blocking(fifo, "rb") as reader:
                assert reader.read() == b"".join(frames)
            assert finish(process) == (0, "")

    def test_decoded_frames_survive_encode_and_decode(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        raw = delivered(run("decode", video))
        again = tmp_path / "again.mkv"
        lossless = ("--codec", "ffv1", "--output-pixel-format", "bgr0")
        delivered(run("encode", again, "--size", f"{WIDTH}x{HEIGHT}", "--fps", "10", *lossless, data=raw))
        assert delivered(run("decode", again)) == b"".join(frames)

    @pytest.mark.linux("a terminal that a program holds")
    @pytest.mark.parametrize("is_named", [False, True])
    def test_a_terminal_is_refused(self, video: Path, is_named: bool) -> None:
        controlling, terminal = os.openpty()
        name = os.ttyname(terminal)
        done = run("decode", video, name) if is_named else run("decode", video, stdout=terminal)
        assert f"{name if is_named else 'standard output'} is a terminal" in failed(done, status=2)
        assert unread_bytes(controlling) == 0
        os.close(terminal)
        os.close(controlling)

    @pytest.mark.linux("descriptors that programs inherit")
    def test_closed_standard_output_is_an_error_and_no_other_file_is_written(self, video: Path) -> None:
        done = run_process("decode", video, preexec_fn=lambda: os.close(1))
        assert failed(done) == f"Error: standard output: {os.strerror(errno.EBADF)}"

    def test_decode_ends_silently_if_the_reader_goes_away(self, long_video: Path) -> None:
        with start("decode", long_video) as process:
            assert process.stdout is not None
            assert len(process.stdout.read(100)) == 100
            process.stdout.close()
            process.stdout = None
            assert finish(process) == (-READER_GONE, "")

    @pytest.mark.linux("FIFOs")
    def test_decode_reports_a_fifo_reader_that_goes_away(self, long_video: Path, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with start("decode", long_video, fifo) as process:
            with open_blocking(fifo, "rb") as reader:
                reader.read(100)
            status, said = finish(process)
        assert (status, said) == (1, f"Error: {fifo}: the reader went away; frames delivered: 0\n")

    @pytest.mark.linux("files in /dev")
    def test_full_disk_is_reported(self, video: Path, tmp_path: Path) -> None:
        said = failed(run("decode", video, "/dev/full"))
        assert said == f"Error: /dev/full: {os.strerror(errno.ENOSPC)}; frames delivered: 0"
        said = failed(run("decode", video, tmp_path / "out.rgb", "--timestamps", "/dev/full"))
        assert said == f"Error: /dev/full: {os.strerror(errno.ENOSPC)}"

    @pytest.mark.parametrize("option", [(), ("--timestamps",)])
    def test_decode_refuses_its_own_input_as_output_and_leaves_it_unharmed(
        self, video: Path, tmp_path: Path, option: tuple[str, ...]
    ) -> None:
        copy, link = tmp_path / "copy", tmp_path / "link"
        copy.write_bytes(video.read_bytes())
        link.hardlink_to(copy)
        others = ("out.rgb", *option) if option else ()
        assert "are the same file" in failed(run("decode", copy, *others, link, cwd=tmp_path))
        assert copy.read_bytes() == video.read_bytes()


class TestImages:
    """One file for each frame."""

    def test_images_hold_the_decoded_frames(self, video: Path, frames: list[bytes], tmp_path: Path) -> None:
        assert delivered(run("decode", video, tmp_path / "%03d.png")) == b""
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"{n:03}.png" for n in range(1, COUNT + 1)
        ]
        assert frames_of(tmp_path / "%03d.png") == b"".join(frames)

    @pytest.mark.parametrize("ending", a_few(["bmp", "pam", "ppm", "qoi", "sgi", "tga", "tiff"], 2))
    def test_lossless_image_formats_keep_every_byte(
        self, video: Path, frames: list[bytes], tmp_path: Path, ending: str
    ) -> None:
        delivered(run("decode", video, tmp_path / f"%d.{ending}", "--count", "3"))
        assert frames_of(tmp_path / f"%d.{ending}") == b"".join(frames[:3])

    @pytest.mark.parametrize("size", ["64x48", "63x47"])
    def test_jpeg_images_of_any_size_look_like_the_frames(
        self, video: Path, tmp_path: Path, size: str
    ) -> None:
        delivered(run("decode", video, tmp_path / "%d.jpg", "--count", "2", "--size", size))
        assert [path.read_bytes()[:3] for path in sorted(tmp_path.iterdir())] == [b"\xff\xd8\xff"] * 2
        asked = delivered(run("decode", video, "--count", "2", "--size", size))
        difference = np.frombuffer(frames_of(tmp_path / "%d.jpg"), np.uint8).astype(int) - np.frombuffer(
            asked, np.uint8
        )
        assert np.abs(difference).mean() < 6

    def test_options_reach_ffmpeg(self, video: Path, tmp_path: Path) -> None:
        for name, quality in (("fine", "2"), ("coarse", "31")):
            delivered(
                run("decode", video, tmp_path / f"{name}.jpg", "--count", "1", "--option", f"q:v={quality}")
            )
        assert (tmp_path / "fine.jpg").stat().st_size > 2 * (tmp_path / "coarse.jpg").stat().st_size

    def test_start_number_sets_the_first_image_number(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        delivered(run("decode", video, tmp_path / "%d.png", "--start-number", "0", "--count", "2"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "1.png"]

    def test_decode_writes_one_image(self, video: Path, frames: list[bytes], tmp_path: Path) -> None:
        shot = tmp_path / "100%.png"
        delivered(run("decode", video, shot, "--start", "1", "--count", "1"))
        assert [path.name for path in tmp_path.iterdir()] == [shot.name]
        assert delivered(run("decode", shot)) == frames[10]

    def test_odd_image_names_are_taken_literally(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        name = "-100%% %s[a]" if sys.platform == "win32" else "-100%% %s*[a]"
        delivered(run("decode", video, "--count", "1", f"./{name}%02d.png", cwd=tmp_path))
        [path] = tmp_path.iterdir()
        assert path.name == f"{name}01.png"
        assert frames_of(path, "rgb24", "-f", "image2", "-pattern_type", "none") == frames[0]

    def test_images_keep_16_bits_and_gray(self, tmp_path: Path) -> None:
        deep = make(tmp_path / "deep.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv444p10le")
        for pixel_format in ("rgb48le", "gray"):
            delivered(
                run("decode", deep, tmp_path / f"{pixel_format}%d.png", "-p", pixel_format, "--count", "2")
            )
            raw = delivered(run("decode", deep, "-p", pixel_format, "--count", "2"))
            assert frames_of(tmp_path / f"{pixel_format}%d.png", pixel_format) == raw

    def test_decode_makes_the_folder_of_the_images(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        delivered(run("decode", video, "new/and/%d.png", cwd=tmp_path))
        assert frames_of(tmp_path / "new" / "and" / "%d.png") == b"".join(frames)

    def test_no_folder_is_made_for_one_image_or_for_nothing(self, video: Path, tmp_path: Path) -> None:
        said = failed(run("decode", video, tmp_path / "no" / "shot.png", "--count", "1"))
        assert said == f"Error: {tmp_path / 'no'}: the output's folder does not exist"
        failed(run("decode", video, tmp_path / "no" / "%d.png", "--start", "10"))
        failed(run("decode", video, tmp_path / "no" / "%d.png", "-p", "yuv420p"), status=2)
        (tmp_path / "file").touch()
        said = failed(run("decode", video, tmp_path / "file" / "new" / "%d.png"))
        assert said == f"Error: {tmp_path / 'file'}: the output's folder is a file"
        assert [*tmp_path.iterdir()] == [tmp_path / "file"]

    def test_a_wrong_number_of_frames_in_the_header_is_a_warning(self, tmp_path: Path) -> None:
        path = make(tmp_path / "wrong.avi", "-c:v", "mpeg4")
        data = bytearray(path.read_bytes())
        length = data.index(b"strh") + 8 + 32  # dwLength in AVISTREAMHEADER
        data[length] += 2  # one more is what FFmpeg itself writes where there is sound
        path.write_bytes(data)
        done = run("decode", path)
        warning = f"Warning: {path}: the header says {COUNT + 2} frames, but the video has {COUNT}\n"
        assert (done.returncode, text_of(done.stderr)) == (0, warning)
        delivered(run("decode", path, "--quiet"))


class TestOptions:
    """What is handed on to the Decoder."""

    @pytest.mark.parametrize("name", ["yuv420p", "source"])
    def test_source_pixel_format_is_exact(self, video: Path, name: str) -> None:
        assert delivered(run("decode", video, "-p", name)) == frames_of(video, "yuv420p")

    def test_pixel_format_option_changes_the_pixels(self, video: Path, frames: list[bytes]) -> None:
        pictures = np.frombuffer(b"".join(frames), np.uint8).reshape(-1, 3)
        assert delivered(run("decode", video, "--pixel-format", "bgr24")) == pictures[:, ::-1].tobytes()

    @pytest.mark.parametrize(("size", "pixels"), [("32x24", 32 * 24), ("32x", 32 * 24), ("x96", 128 * 96)])
    def test_size_option_scales_the_frames(self, video: Path, size: str, pixels: int) -> None:
        raw = delivered(run("decode", video, "--size", size, "--count", "2"))
        assert len(raw) == 2 * 3 * pixels

    @pytest.mark.parametrize("moment", ["0.5", "00:00.5", "0:00:00.5"])
    def test_start_and_count_options_select_frames(
        self, video: Path, frames: list[bytes], moment: str
    ) -> None:
        assert delivered(run("decode", video, "--start", moment, "--count", "3")) == b"".join(frames[5:8])

    @pytest.mark.parametrize("asked", [("--end", "0.8"), ("--duration", "0:00.25")])
    def test_end_and_duration_options_select_frames(
        self, video: Path, frames: list[bytes], asked: tuple[str, str]
    ) -> None:
        assert delivered(run("decode", video, "--start", "0.55", *asked)) == b"".join(frames[5:8])

    def test_every_option_keeps_every_nth_frame(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        assert delivered(run("decode", video, "--every", "3")) == b"".join(frames[::3])
        asked = ("--every", "3", "--start", "1", "--count", "3", "--timestamps", "-")
        told = delivered(run("decode", video, tmp_path / "out.rgb", *asked)).decode()
        assert (tmp_path / "out.rgb").read_bytes() == b"".join(frames[10:17:3])
        assert told.splitlines()[1:] == ["0,1000,1.0", "3,1300,1.3", "6,1600,1.6"]

    def test_at_option_selects_frames_by_time(self, video: Path, frames: list[bytes], tmp_path: Path) -> None:
        late = run("decode", video, "--at", "1.5,0.25,00:01.5,99")
        assert late.stdout == b"".join(frames[number] for number in (15, 2, 15, COUNT - 1))
        assert re.fullmatch(
            r"Warning: 99 s is after the last frame, which is at 1\.900 s\n", text_of(late.stderr)
        )
        delivered(run("decode", video, tmp_path / "shot.png", "--at", "0.5"))
        assert frames_of(tmp_path / "shot.png") == frames[5]
        assert "Pass --at one time" in failed(
            run("decode", video, tmp_path / "shot.png", "--at", "0,1"), status=2
        )

    def test_filters_option_applies_ffmpeg_filters(self, video: Path, frames: list[bytes]) -> None:
        flipped = [np.frombuffer(one, np.uint8).reshape(HEIGHT, -1)[::-1].tobytes() for one in frames]
        assert delivered(run("decode", video, "--filters", "vflip", "--every", "6")) == b"".join(flipped[::6])
        assert len(delivered(run("decode", video, "--filters", "crop=32:24"))) == COUNT * 3 * 32 * 24
        said = failed(run("decode", video, "--filters", "no_such_filter"))
        assert "no_such_filter" in said and said.endswith("; nothing was written")

    def test_fps_option_delivers_a_fixed_rate(self, video: Path, frames: list[bytes]) -> None:
        assert delivered(run("decode", video, "--fps", 5)) == b"".join(frames[::2])
        twice = [one for frame in frames[5:7] for one in (frame, frame)]
        assert delivered(run("decode", video, "--fps", 20, "--start", 0.5, "--end", 0.7)) == b"".join(twice)

    def test_crop_option_delivers_a_part(self, video: Path) -> None:
        with Decoder(video, crop=(8, 4, 32, 16)) as decoder:
            part = b"".join(frame.tobytes() for frame in decoder)
        assert delivered(run("decode", video, "--crop", "8,4,32,16")) == part

    @pytest.mark.parametrize("fit", ["stretch", "cover", "contain"])
    def test_fit_option_keeps_the_shape_of_the_picture(self, video: Path, fit: Any) -> None:
        fill = (255.0, 0.0, 0.0) if fit == "contain" else None
        with Decoder(video, size=(40, 40), fit=fit, fill=fill) as decoder:
            frames = b"".join(frame.tobytes() for frame in decoder)
        words = ("--fill", "255,0,0") if fill else ()
        assert delivered(run("decode", video, "--size", "40x40", "--fit", fit, *words)) == frames

    def test_stream_option_selects_the_video_stream(self, tmp_path: Path) -> None:
        pictures = [f"color={color}:size=64x48:rate=10:duration=1" for color in ("black", "white")]
        inputs = [word for picture in pictures for word in ("-f", "lavfi", "-i", picture)]
        ffmpeg(*inputs, "-map", "0", "-map", "1", "-c:v", "ffv1", tmp_path / "two.mkv")
        values = [
            max(delivered(run("decode", tmp_path / "two.mkv", "-p", "gray", "--stream", number)))
            for number in (0, 1)
        ]
        assert values[0] < 5 < 250 < values[1]

    def test_color_options_change_the_conversion(self, video: Path, frames: list[bytes]) -> None:
        for option in (("--color-matrix", "bt709"), ("--color-range", "full")):
            assert differ(delivered(run("decode", video, *option)), b"".join(frames)) > 5

    def test_conceal_errors_option_decodes_past_damage(self, tmp_path: Path) -> None:
        video = make(tmp_path / "whole.ts", "-c:v", "mpeg2video", "-g", "5", size="320x240")
        data = bytearray(video.read_bytes())
        middle = len(data) // 2 // 188 * 188
        data[middle + 8 : middle + 180] = bytes(172)
        video.write_bytes(data)
        assert "frames delivered: " in failed(run("decode", video, tmp_path / "out.rgb"))
        delivered(run("decode", video, tmp_path / "all.rgb", "--conceal-errors"))
        assert (tmp_path / "all.rgb").stat().st_size > (tmp_path / "out.rgb").stat().st_size

    def test_timestamps_option_writes_index_pts_and_time(self, video: Path, tmp_path: Path) -> None:
        asked = ("--start", "1", "--count", "3", "--timestamps")
        delivered(run("decode", video, "out.rgb", *asked, "times.csv", cwd=tmp_path))
        told = (tmp_path / "times.csv").read_text()
        assert told.splitlines() == ["index,pts,time_s", "0,1000,1.0", "1,1100,1.1", "2,1200,1.2"]
        assert delivered(run("decode", video, tmp_path / "out.rgb", *asked, "-")).decode() == told

    def test_json_option_prints_the_report(self, video: Path, tmp_path: Path) -> None:
        report = json.loads(delivered(run("decode", video, tmp_path / "out.rgb", "--json")))
        assert report["frames"] == COUNT
        assert report["bytes"] == COUNT * report["frame_bytes"] == COUNT * FRAME_BYTES
        assert (report["width"], report["height"], report["pixel_format"]) == (WIDTH, HEIGHT, "rgb24")
        assert (report["input"], report["output"]) == (str(video), str(tmp_path / "out.rgb"))
        assert (report["converted_by"], report["error"]) == ("penstock", None)

    def test_json_report_has_the_error_of_a_fault(self, cut: Path, tmp_path: Path) -> None:
        done = run("decode", cut, tmp_path / "out.rgb", "--json")
        said, report = failed(done), json.loads(done.stdout)
        assert 0 < report["frames"] < COUNT
        assert f"Error: {report['error']}; frames delivered: {report['frames']}" == said


class TestFailures:
    """One line each."""

    def test_all_frames_before_the_fault_of_a_truncated_video_are_written(
        self, cut: Path, frames: list[bytes]
    ) -> None:
        done = run("decode", cut)
        count = len(done.stdout) // FRAME_BYTES
        assert 0 < count < COUNT
        assert done.stdout == b"".join(frames[:count])
        said = failed(done)
        assert said.startswith(f"Error: {cut}: ")
        assert said.endswith(f"; frames delivered: {count}")
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.parametrize("every", [2, COUNT])
    def test_fault_is_reported_with_every_too(self, cut: Path, frames: list[bytes], every: int) -> None:
        done = run("decode", cut, "--every", every)
        whole = len(run("decode", cut).stdout) // FRAME_BYTES
        assert failed(done).startswith(f"Error: {cut}: ")
        assert done.stdout == b"".join(frames[:whole:every])

    @pytest.mark.linux("what a pipe holds that was not read")
    def test_frames_in_the_pipe_count_as_delivered(self, cut: Path) -> None:
        reading, writing = os.pipe()
        with open(reading, "rb") as reader, open(writing, "wb") as writer:  # noqa: PTH123  descriptors
            done = run("decode", cut, stdout=writer)
            count = unread_bytes(reader) // FRAME_BYTES
        assert count > 0
        assert failed(done).endswith(f"; frames delivered: {count}")

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("missing.mp4", f"missing.mp4: {os.strerror(errno.ENOENT)}"),
            ("folder", "folder: there is no image in this folder"),
            ("text.txt", "text.txt is a text file"),
            ("empty.mp4", "empty.mp4 is an empty file"),
            ("sound.wav", "sound.wav has no video"),
            ("", "Error: ''"),
        ],
    )
    def test_input_that_is_no_video_is_reported_and_the_output_is_kept(
        self, tmp_path: Path, name: str, complaint: str
    ) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "text.txt").write_text("no video\n" * 100)
        (tmp_path / "empty.mp4").touch()
        (tmp_path / "out.rgb").write_bytes(b"kept")
        ffmpeg("-f", "lavfi", "-i", "sine=duration=1", tmp_path / "sound.wav")
        done = run("decode", name, "out.rgb", cwd=tmp_path)
        assert complaint in failed(done)
        assert len(done.stderr.splitlines()) == 1
        assert (tmp_path / "out.rgb").read_bytes() == b"kept"

    def test_video_that_ends_before_its_first_frame_is_an_error_and_writes_nothing(
        self, video: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "head.mkv").write_bytes(video.read_bytes()[:700])
        for asked in ((), ("--at", "1")):
            said = failed(run("decode", "head.mkv", "out.rgb", *asked, cwd=tmp_path))
            assert said.startswith("Error: head.mkv") and said.endswith("; nothing was written")
            assert not (tmp_path / "out.rgb").exists()

    def test_start_after_the_end_overwrites_nothing(self, video: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.rgb"
        out.write_bytes(b"kept")
        said = failed(run("decode", video, out, "--start", "10"))
        assert "no frames from 10 s on" in said
        assert said.endswith("; nothing was written")
        assert out.read_bytes() == b"kept"

    @pytest.mark.parametrize(
        ("output", "complaint"),
        [
            ("nowhere/out.rgb", "nowhere: the output's folder does not exist"),
            (".", "the output is a folder"),
            ("new/", "new/: "),
            pytest.param("fifo:missing", "there is no FIFO", marks=pytest.mark.linux("FIFOs")),
        ],
    )
    def test_an_output_that_cannot_be_written_is_an_error(
        self, video: Path, tmp_path: Path, output: str, complaint: str
    ) -> None:
        done = run("decode", video, output, cwd=tmp_path)
        assert complaint in failed(done)
        assert len(done.stderr.splitlines()) == 1
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ([], "Missing argument 'INPUT'"),
            (["VIDEO", "o.mp4"], "OUTPUT o.mp4"),
            (["VIDEO", "o.avif"], "OUTPUT o.avif"),
            (["VIDEO", "o.png"], "Add --count 1, or name many: o-%05d.png"),
            (["VIDEO", "o.png", "--at", "0,0.1"], "Pass --at one time, or name many: o-%05d.png"),
            (["VIDEO", "%d-%d.png"], "one number"),
            (["VIDEO", "%d.rgb"], "images"),
            (["VIDEO", "%d.png", "-p", "yuv420p"], "must be RGB or gray"),
            (["VIDEO", "o", "--start-number", "3"], "support --start-number"),
            (["VIDEO", "o", "--option", "q=3"], "support --option"),
            (["VIDEO", "o", "--size", "64"], "not '64'"),
            (["VIDEO", "o", "--start", "-1"], "not '-1'"),
            (["VIDEO", "o", "--start", "1:75"], "not '1:75'"),
            (["VIDEO", "o", "--every", "0"], "--every"),
            (["VIDEO", "o", "--end", "1", "--duration", "1"], "--end 1.0 and --duration 1.0"),
            (["VIDEO", "o", "--end", "1", "--count", "1"], "--count"),
            (["VIDEO", "o", "--at", "1", "--end", "2", "--duration", "1"], "with --end, --duration"),
            (["VIDEO", "o", "--at", "1,,2"], "not ''"),
            (["VIDEO", "o", "--at", "1", "--count", "2", "--filters", "vflip"], "with --count, --filters"),
            (["VIDEO", "o", "--stream", "1"], "1 video stream"),
            (["VIDEO", "o", "-p", "rgb25"], "Did you mean 'rgb24'?"),
            (["VIDEO", "o", "--color-range", "magic"], "'magic' is not one of"),
            (["VIDEO", "o", "--quiet", "--progress"], "--progress"),
            (["VIDEO", "--json"], "standard output"),
            (["VIDEO", "--timestamps", "-"], "standard output"),
        ],
    )
    def test_wrong_usage_is_reported_and_exits_with_2(
        self, video: Path, tmp_path: Path, arguments: list[str], complaint: str
    ) -> None:
        given = [str(video) if word == "VIDEO" else word for word in arguments]
        assert complaint in failed(run("decode", *given, cwd=tmp_path), status=2)
        assert [*tmp_path.iterdir()] == []

    def test_missing_ffmpeg_is_reported(self, video: Path) -> None:
        assert "/nowhere/ffmpeg" in failed(run("decode", video, "--ffmpeg", "/nowhere/ffmpeg"))

    def test_a_destination_that_cannot_be_written_to_is_named(self) -> None:
        with pytest.raises(click.ClickException, match="there"):
            RawOutput(Endpoint("there", 1 << 30), FRAME_BYTES, is_standard=False)

    @pytest.mark.linux("pipes that don't wait")
    def test_nonblocking_output_receives_every_byte(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        thread = ReaderThread(reader)
        destination = Endpoint("pipe", writer)
        destination.write_all(bytes(1 << 20))
        destination.close()
        assert thread.result() == bytes(1 << 20)


@pytest.mark.linux("files in /dev")
def test_path_of_standard_output_writes_to_standard_output(video: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"older, ")
    for arguments in (["/dev/stdout"], [tmp_path / "frames", "--timestamps", "/dev/stdout"]):
        with (tmp_path / "log").open("ab") as output:
            delivered(run_process("decode", video, *arguments, "--count", "1", stdout=output))
    frame = (tmp_path / "frames").read_bytes()
    assert (tmp_path / "log").read_bytes() == b"older, " + frame + b"index,pts,time_s\n0,0,0.0\n"


@pytest.mark.linux("files in /dev")
def test_process_substitution_pipe_is_written(video: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    arguments = (f"/dev/fd/{writer}", "--count", "1", "--size", "16x16", "-p", "gray")
    delivered(run_process("decode", video, *arguments, pass_fds=[writer]))
    delivered(
        run_process("decode", video, tmp_path / "raw", *("--timestamps", *arguments), pass_fds=[writer])
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read()[16 * 16 :] == b"index,pts,time_s\n0,0,0.0\n"


class TestSignals:
    """Reading ends at once, what was decoded is whole, and the exit is as a shell expects it."""

    @pytest.mark.parametrize(("number", "said"), ENDING)
    def test_signal_ends_decode_between_two_frames(
        self, long_video: Path, tmp_path: Path, number: int, said: str
    ) -> None:
        out = tmp_path / "out.rgb"
        with start("decode", long_video, out) as process:
            assert eventually(lambda: out.exists() and out.stat().st_size)
            process.send_signal(number)
            status, told = finish(process)
        count, rest = divmod(out.stat().st_size, 3 * 640 * 360)
        assert (status, told, rest) == (-number, f"Error: {said}; frames delivered: {count}\n", 0)

    def test_signal_does_not_wait_for_a_reader_that_stopped_reading(self, long_video: Path) -> None:
        # Of this size no pipe holds a frame.
        with start("decode", long_video, "--size", "1280x720") as process:
            assert process.stdout is not None
            assert eventually(lambda: unread_bytes(process.stdout.fileno()))
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == -signal.SIGINT
            assert process.stderr is not None
            assert text_of(process.stderr.read()) == "Error: interrupted; frames delivered: at least 0\n"

    def test_signal_leaves_only_whole_images(self, long_video: Path, tmp_path: Path) -> None:
        with start("decode", long_video, tmp_path / "%d.png") as process:
            assert eventually(lambda: (tmp_path / "2.png").exists())
            [encoding] = ffmpegs_of(process.pid)
            process.send_signal(signal.SIGINT)
            status, said = finish(process)
        count = len([*tmp_path.iterdir()])
        assert (status, said) == (-signal.SIGINT, f"Error: interrupted; frames delivered: {count}\n")
        assert len(frames_of(tmp_path / "%d.png")) == count * 3 * 640 * 360
        assert eventually(lambda: has_ended(encoding))

    @pytest.mark.linux("FIFOs")
    def test_signal_ends_the_wait_for_a_fifo_reader(self, video: Path, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with start("decode", video, fifo) as process:
            tasks = Path(f"/proc/{process.pid}/task")
            assert eventually(lambda: "penstock\n" in [(one / "comm").read_text() for one in tasks.iterdir()])
            process.send_signal(signal.SIGINT)
            assert finish(process) == (-signal.SIGINT, "Error: interrupted; frames delivered: 0\n")


class TestProgress:
    """What is shown on standard error."""

    @pytest.mark.linux("a terminal that a program holds")
    def test_progress_is_shown_on_a_terminal_and_not_mixed_into_frames(
        self, video: Path, frames: list[bytes], tmp_path: Path
    ) -> None:
        status, shown, out = run_on_terminal("decode", video, tmp_path / "out.rgb")
        assert (status, out) == (0, b"")
        assert f"{COUNT}/~{COUNT} frames" in shown  # Matroska does not tell how many there are
        assert " fps " in shown
        assert f"frames delivered: {COUNT} in " in shown.splitlines()[-1]
        status, _, out = run_on_terminal("decode", video)
        assert (status, out) == (0, b"".join(frames))

    def test_progress_total_is_exact_if_the_file_states_it(self, tmp_path: Path) -> None:
        video = make(tmp_path / "video.mov", "-c:v", "mjpeg")
        done = run("decode", video, tmp_path / "out.rgb", "--progress")
        assert f" {COUNT}/{COUNT} frames " in done.stderr.decode()
        done = run("decode", video, tmp_path / "out.rgb", "--progress", "--count", "5")
        assert " 5/5 frames " in done.stderr.decode()
        done = run("decode", video, tmp_path / "%d.png", "--progress", "--start", "1")
        assert " 10/~10 frames " in done.stderr.decode()
        done = run("decode", video, tmp_path / "%d.png", "--progress", "--every", "3")
        assert " 7/7 frames " in done.stderr.decode()
        shown = run("decode", video, tmp_path / "%d.png", "--progress", "--at", "0.5,1").stderr.decode()
        assert " 2/2 frames " in shown and "frames delivered: 2 in " in shown

    @pytest.mark.linux("a terminal that a program holds")
    @pytest.mark.parametrize("option", ["--no-progress", "-q"])
    def test_progress_can_be_turned_off(self, video: Path, tmp_path: Path, option: str) -> None:
        assert run_on_terminal("decode", video, tmp_path / "out.rgb", option) == (0, "", b"")
