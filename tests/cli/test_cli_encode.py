"""``penstock encode``: what it encodes, in which order, how it ends, and what it says. And the Encoder's bar."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.command_line import (
    ENDING,
    HIDE_CURSOR,
    SHOW_CURSOR,
    failed,
    ffmpegs_of,
    finish,
    on_terminal,
    printed,
    run,
    run_on_terminal,
    start,
)
from support.image_files import make_shots, png
from support.media import SIZE, decode, described, ffmpeg, flat, is_flat
from support.processes import has_ended
from support.streams import unread_bytes

from penstock import Encoder, probe
from penstock.video import find_ffmpeg

WIDTH, HEIGHT = SIZE
FRAME_BYTES = 3 * WIDTH * HEIGHT
RAW = ("--size", f"{WIDTH}x{HEIGHT}", "--fps", "30")
FAST = ("--preset", "ultrafast")
FIFOS, DEVICES, LINE_ENDS = map(
    pytest.mark.linux, ("FIFOs", "files in /dev", "names with colons and line ends")
)


def raw_frames(count: int) -> bytes:
    return b"".join(flat(index).tobytes() for index in range(count))


def numbers(video: Path, count: int) -> list[int | None]:
    """Which of `count` flat frames each frame of a video is."""
    return [next((index for index in range(count) if is_flat(frame, index)), None) for frame in decode(video)]


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return tmp_path / "video.mp4"


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    return make_shots(tmp_path / "shots")


class TestRawFrames:
    """Standard input, a file, a FIFO."""

    def test_smoke(self, video: Path) -> None:
        for names in ((video,), ("-", video)):
            assert printed(run("encode", *names, *RAW, data=raw_frames(10))) == ""
            assert numbers(video, 5) == [*range(5)] * 2

    def test_encode_joins_pieces_smaller_than_a_frame(self, video: Path) -> None:
        with start("encode", video, *RAW, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            data = raw_frames(6)
            for begin in range(0, len(data), 5000):
                process.stdin.write(data[begin : begin + 5000])
                process.stdin.flush()
            assert finish(process) == (0, "")
        assert numbers(video, 5) == [0, 1, 2, 3, 4, 0]

    @pytest.mark.linux("pipes that don't wait")
    def test_encode_reads_a_nonblocking_pipe(self, video: Path) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with start("encode", video, *RAW, *FAST, stdin=reader) as process:
            os.close(reader)
            os.write(writer, raw_frames(2) + b"begun")
            assert eventually(lambda: not unread(writer))
            os.write(writer, raw_frames(3)[5:])
            os.close(writer)
            assert finish(process) == (0, "")
        assert len(decode(video)) == 5

    @pytest.mark.linux("sockets as descriptors")
    def test_encode_refuses_a_socket_of_messages(self, video: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, start("encode", video, *RAW, stdin=theirs) as process:
            status, told = finish(process)
        assert status == 2
        assert "must be a stream of bytes" in told
        assert not video.exists()

    def test_encode_reads_a_file_in_another_pixel_format(self, video: Path, tmp_path: Path) -> None:
        frames = [
            np.dstack([flat(index)[..., ::-1], np.full((HEIGHT, WIDTH), 9, np.uint8)]) for index in range(4)
        ]
        (tmp_path / "frames.bgra").write_bytes(b"".join(frame.tobytes() for frame in frames))
        printed(run("encode", tmp_path / "frames.bgra", video, *RAW, "--pixel-format", "bgr0"))
        assert numbers(video, 5) == [0, 1, 2, 3]

    @pytest.mark.linux("FIFOs")
    @pytest.mark.parametrize("prefix", ["", "fifo:"])
    def test_encode_reads_a_fifo(self, video: Path, tmp_path: Path, prefix: str) -> None:
        fifo = tmp_path / "frames"
        os.mkfifo(fifo)
        with start("encode", f"{prefix}{fifo}", video, *RAW) as process:
            fifo.write_bytes(raw_frames(5))
            assert finish(process) == (0, "")
        assert numbers(video, 5) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_input_that_ends_inside_a_frame_is_reported(self, video: Path, is_replaced: bool) -> None:
        if is_replaced:
            video.write_bytes(b"kept")
        done = run("encode", video, *RAW, "--json", data=raw_frames(4) + b"left over")
        said = failed(done)
        assert "standard input ended in the middle of a frame, after 9 of its 9216 bytes" in said
        assert json.loads(done.stdout)["frames_encoded"] == 4
        assert numbers(video.with_name("video.part.mp4") if is_replaced else video, 5) == [0, 1, 2, 3]
        assert not is_replaced or video.read_bytes() == b"kept"

    @pytest.mark.parametrize("nbytes", [0, 100])
    def test_without_a_whole_frame_nothing_is_overwritten(self, video: Path, nbytes: int) -> None:
        video.write_bytes(b"kept")
        said = failed(run("encode", video, *RAW, data=bytes(nbytes)))
        assert f"standard input ended after {nbytes} bytes" in said
        assert video.read_bytes() == b"kept"

    def test_encode_refuses_its_own_input_as_output_and_leaves_it_unharmed(self, tmp_path: Path) -> None:
        (tmp_path / "frames").write_bytes(raw_frames(2))
        (tmp_path / "link").hardlink_to(tmp_path / "frames")
        assert "are the same" in failed(run("encode", "frames", "link", *RAW, cwd=tmp_path))
        assert (tmp_path / "frames").read_bytes() == raw_frames(2)

    def test_frame_too_large_for_memory_is_refused(self, video: Path) -> None:
        huge = ("--size", "130000x130000", "--fps", "1", "--pixel-format", "gbrpf32le")
        assert "memory" in failed(run("encode", video, *huge, data=b"x"))

    @pytest.mark.linux("a terminal that a program holds")
    def test_encode_refuses_to_read_frames_from_a_terminal(self, video: Path) -> None:
        controlling, terminal = os.openpty()
        said = failed(run("encode", video, *RAW, stdin=terminal), status=2)
        os.close(terminal)
        os.close(controlling)
        assert "standard input is a terminal" in said

    @pytest.mark.parametrize("name", ["missing", pytest.param("fifo:missing", marks=FIFOS), ""])
    def test_missing_input_is_reported(self, video: Path, name: str) -> None:
        said = failed(run("encode", name, video, *RAW, cwd=video.parent))
        assert said.startswith(f"Error: {name or repr('')}: ")
        assert not video.exists()

    def test_encode_writes_to_standard_output(self, video: Path) -> None:
        for container in (["--format", "matroska"], ["--option", "f=matroska"]):
            done = run("encode", "-", "-", *container, *RAW, data=raw_frames(3))
            assert (done.returncode, done.stderr) == (0, b"")
            video.write_bytes(done.stdout)
            assert numbers(video, 5) == [0, 1, 2]


class TestImages:
    """Folders, globs, patterns, files. What they stand for is tested in test_images."""

    @pytest.mark.parametrize("name", ["shots", "**/shot*.png"])
    def test_images_are_encoded_in_the_order_of_their_numbers(
        self, shots: Path, video: Path, name: str
    ) -> None:
        printed(run("encode", name, "video.mp4", "--fps", "10", cwd=shots.parent))
        assert numbers(video, 5) == [0, 1, 2, 3, 4]
        assert "10 fps" in described(video)

    def test_image_of_another_size_is_named_and_the_images_before_it_are_encoded(
        self, shots: Path, video: Path
    ) -> None:
        other = shots / "shot10.png"
        other.write_bytes(png(flat(2, (62, 48))))
        said = failed(run("encode", shots, video, "--fps", "10"))
        assert f"{other} has 62x48 pixels, {shots / 'shot8.png'} has 64x48" in said
        assert "frames encoded: 2" in said
        assert numbers(video, 5) == [0, 1]

    @pytest.mark.parametrize("index", [0, 4])
    def test_undecodable_image_is_named_and_the_images_before_it_are_encoded(
        self, shots: Path, video: Path, index: int
    ) -> None:
        bad = shots / f"shot{8 + index}.png"
        os.truncate(bad, 8)
        said = failed(run("encode", shots, video, "--fps", "10"))
        assert f"Error: {bad} can't be decoded: " in said
        assert (f"frames encoded: {index}" if index else "nothing was written") in said
        assert (len(decode(video)) if index else not video.exists()) == (index or True)

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("*.jpg", "*.jpg: no file matches"),
            ("shots/%d-%d.png", f"{Path('shots/%d-%d.png')}: a pattern must have one number"),
            ("missing.png", f"missing.png: {os.strerror(errno.ENOENT)}"),
            ("empty", "empty: there is no image in this folder"),
            ("shots/*", f"{Path('shots/notes.txt')} is not an image by its name"),
            pytest.param("a\n.png", "'a\\n.png': No such file", marks=LINE_ENDS),
        ],
    )
    def test_name_that_matches_no_image_is_an_error(
        self, shots: Path, video: Path, name: str, complaint: str
    ) -> None:
        (shots.parent / "empty").mkdir()
        (shots / "notes.txt").write_text("no image")
        said = failed(run("encode", name, "video.mp4", "--fps", "10", cwd=shots.parent))
        assert said.startswith(f"Error: {complaint}") and said.endswith("; nothing was written")
        assert not video.exists()

    def test_forgotten_output_argument_overwrites_no_image(self, shots: Path) -> None:
        before = (shots / "shot12.png").read_bytes()
        said = failed(run("encode", *sorted(shots.iterdir()), "--fps", "10"), status=2)
        assert "OUTPUT" in said
        assert (shots / "shot12.png").read_bytes() == before

    def test_images_become_a_webp_that_moves(self, shots: Path, tmp_path: Path) -> None:
        output = tmp_path / "out.webp"
        printed(run("encode", shots, output, "--fps", "10"))
        before = output.read_bytes()
        assert before.count(b"ANMF") == 5
        for inputs, complaint in (
            ([*shots.iterdir()], "If OUTPUT is missing"),
            ([tmp_path], "is one of the images"),
        ):
            said = failed(run("encode", *inputs, output, "--fps", "10"), status=2)
            assert complaint in said and output.read_bytes() == before
        printed(run("encode", shots, output, "--fps", "10"))
        assert output.read_bytes() == before


class TestSound:
    """``--audio``, beside raw frames and images."""

    @pytest.fixture
    def tone(self, tmp_path: Path) -> Path:
        """Longer than any video here."""
        path = tmp_path / "tone.m4a"
        ffmpeg("-f", "lavfi", "-i", "sine=duration=3", path)
        return path

    def test_audio_ends_with_the_picture(self, video: Path, tone: Path) -> None:
        done = run("encode", video, *RAW, *FAST, "--audio", tone, "--json", data=raw_frames(30))
        assert json.loads(printed(done))["frames_encoded"] == 30
        assert numbers(video, 5) == [*range(5)] * 6
        [sound] = probe(video).audio
        assert sound.codec == "aac"
        # The last packet is whole.
        assert sound.duration_s == pytest.approx(1, abs=0.03)

    def test_several_audio_files_are_added_to_images(self, shots: Path, tmp_path: Path, tone: Path) -> None:
        wave, video = tmp_path / "tone.wav", tmp_path / "video.mkv"
        ffmpeg("-i", tone, wave)
        assert printed(run("encode", shots, video, "--fps", "5", "--audio", tone, "--audio", wave)) == ""
        assert numbers(video, 5) == [*range(5)]
        assert [sound.codec for sound in probe(video).audio] == ["aac", "pcm_s16le"]

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("missing.wav", f"missing.wav: {os.strerror(errno.ENOENT)}"),
            ("shots/shot12.png", "shot12.png has no audio"),
            ("shots", f"shots: {os.strerror(errno.EISDIR)}"),
        ],
    )
    def test_missing_audio_is_an_error_and_overwrites_nothing(
        self, shots: Path, video: Path, name: str, complaint: str
    ) -> None:
        video.write_bytes(b"kept")
        said = failed(run("encode", "shots", video, "--fps", "10", "--audio", name, cwd=shots.parent))
        assert complaint in said
        assert video.read_bytes() == b"kept"

    def test_audio_from_the_output_file_is_refused(self, video: Path, tone: Path) -> None:
        tone.rename(video)
        said = failed(run("encode", video, *RAW, "--audio", video, data=raw_frames(3)), status=2)
        assert "is also the output" in said
        assert probe(video).audio


class TestOptions:
    """What is handed on to the Encoder."""

    def test_preset_crf_and_options_reach_the_codec(self, video: Path) -> None:
        printed(run("encode", video, *RAW, *FAST, "--crf", "7.5", "--option", "g=3", data=raw_frames(5)))
        # x264 writes its settings into the stream.
        settings = video.read_bytes()
        assert b"crf=7.5" in settings
        assert b"keyint=3 " in settings
        assert b"me=dia" in settings

    def test_quality_option_sets_the_level(self, tmp_path: Path, video: Path) -> None:
        lossless = tmp_path / "video.mkv"
        printed(run("encode", lossless, *RAW, "--quality", "lossless", data=raw_frames(5)))
        assert b"".join(frame.tobytes() for frame in decode(lossless)) == raw_frames(5)
        printed(run("encode", video, *RAW, "--quality", "master", data=raw_frames(5)))
        assert b"crf=14.0" in video.read_bytes()
        said = failed(
            run("encode", lossless, *RAW, "--quality", "draft", "--codec", "dnxhd", data=raw_frames(5)), 2
        )
        assert "dnxhd has no --quality draft. Use one of libsvtav1, " in said

    def test_metadata_and_subtitles_options_reach_the_file(self, tmp_path: Path, video: Path) -> None:
        (tmp_path / "a.srt").write_text("1\n00:00:00,000 --> 00:00:00,100\nhello\n")
        labels = ("--metadata", "title=Waves = x", "--metadata", "artist=Ada")
        printed(run("encode", video, *RAW, *labels, "--subtitles", tmp_path / "a.srt", data=raw_frames(5)))
        tags = probe(video).tags
        assert (tags["title"], tags["artist"]) == ("Waves = x", "Ada")
        assert "subtitles  mov_text" in printed(run("probe", video))
        for value in ("title", "title="):
            said = failed(run("encode", video, *RAW, "--metadata", value, data=raw_frames(5)), 2)
            assert "'title' must be NAME=VALUE" in said

    def test_like_option_takes_over_the_facts_of_a_video(self, tmp_path: Path, video: Path) -> None:
        source = tmp_path / "source.mkv"
        with Encoder(
            source,
            fps=Fraction(30000, 1001),
            metadata={"title": "Waves"},
            chapters=[(0.0, "One\n"), (0.1, "Two")],
            output_pixel_format="yuv444p",
        ) as encoder:
            for index in range(5):
                encoder.write(flat(index))
        done = run("encode", video, "--like", source, data=raw_frames(5))
        assert printed(done) == ""
        told = probe(video)
        assert (told.video[0].frame_rate, told.tags["title"]) == (Fraction(30000, 1001), "Waves")
        assert told.video[0].pixel_format == "yuv444p"
        assert re.search(r"  chapter  0:00:00\.1 +Two\n", printed(run("probe", video)))
        printed(run("encode", video, "--like", source, *RAW, "--metadata", "title=x", data=raw_frames(5)))
        assert (probe(video).video[0].frame_rate, probe(video).tags["title"]) == (30, "x")

    @pytest.mark.parametrize("suffix", ["mp4", "mkv"])
    def test_like_option_warns_if_the_frames_cannot_be_at_their_times(
        self, tmp_path: Path, suffix: str
    ) -> None:
        source, output = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
        with Encoder(source, size=(64, 48), fps=10) as encoder:
            for _ in range(20):
                encoder.write(bytes(64 * 48 * 3))
        for count, is_moved in ((20, False), (10, True)):
            done = run("encode", "-", output, "--like", source, "--json", data=bytes(count * 64 * 48 * 3))
            assert done.returncode == 0
            told = " ".join(json.loads(done.stdout)["warnings"])
            assert ("lasts 2.000 s" in told and "time_s=" in told) is is_moved, told

    def test_like_option_needs_fps_for_a_variable_frame_rate(self, tmp_path: Path, video: Path) -> None:
        source = tmp_path / "source.mp4"
        with Encoder(source, fps=None) as encoder:
            for time_s in (0.0, 0.1, 0.5, 0.7, 1.0):
                encoder.write(flat(0), time_s=time_s)
        given = ("encode", video, "--like", source)
        assert "variable frame rate" in failed(run(*given, data=raw_frames(5)), 2)
        printed(run(*given, "--fps", "30", data=raw_frames(5)))

    def test_vflip_codec_and_fps_options_apply_together(self, video: Path) -> None:
        frame = flat(0).copy()
        frame[: HEIGHT // 2] = flat(1)[: HEIGHT // 2]
        given = ("--codec", "mpeg4", "--output-pixel-format", "ffmpeg", "--fps", "30000/1001", "--vflip")
        printed(run("encode", video, *RAW[:2], *given, data=frame.tobytes()))
        [turned] = decode(video)
        assert (is_flat(turned[:16], 0), is_flat(turned[-16:], 1)) == (True, True)
        assert re.search("mpeg4.* 29.97 fps", described(video))

    def test_color_options_reach_the_file(self, video: Path) -> None:
        colors = ["--color-matrix", "bt709", "--color-range", "full"]
        printed(run("encode", video, *RAW, *colors, data=raw_frames(5)))
        assert "(pc, bt709" in described(video)
        colors = ["--color-matrix", "bt2020", "--color-primaries", "bt2020", "--color-transfer", "smpte2084"]
        printed(run("encode", video, *RAW, *colors, data=raw_frames(5)))
        assert "bt2020nc/bt2020/smpte2084" in described(video)
        assert numbers(video, 5) == [0, 1, 2, 3, 4]

    @pytest.mark.linux("a shell script stands in for a program")
    def test_ffmpeg_option_selects_the_program(self, video: Path, tmp_path: Path) -> None:
        program = tmp_path / "another"
        program.write_text(f'#!/bin/sh\n: > "{tmp_path}/used"\nexec {shutil.which(find_ffmpeg())} "$@"\n')
        program.chmod(0o755)
        # Relative, and images are decoded in another folder.
        (tmp_path / "0.png").write_bytes(png(flat(0)))
        printed(run("encode", "0.png", video, "--fps", "1", "--ffmpeg", "./another", cwd=tmp_path))
        assert (tmp_path / "used").exists()

    def test_json_option_prints_the_report(self, video: Path) -> None:
        report = json.loads(printed(run("encode", video, *RAW, "--json", data=raw_frames(5))))
        assert report["output"] == str(video)
        assert report["frames_submitted"] == report["frames_encoded"] == 5
        assert report["bytes_submitted"] == 5 * FRAME_BYTES
        assert report["output_bytes"] == video.stat().st_size
        assert report["warnings"] == []

    def test_loss_is_reported_in_a_line_and_in_json(self, video: Path) -> None:
        frames = bytes(WIDTH * HEIGHT * 4)
        arguments = ("encode", video, *RAW, "--pixel-format", "rgba", "--option", "cq=20", "--json")
        done = run(*arguments, data=frames)
        told = done.stderr.decode().splitlines()
        assert done.returncode == 0 and len(told) == 2
        assert told[0].startswith("Warning: the frames' alpha is dropped") and "cq" in told[1]
        assert "Pass --output-pixel-format yuv420p to accept the loss, or --pixel-format rgb0" in told[0]
        assert "--codec prores_ks (.mov)" in told[0]
        assert len(json.loads(done.stdout)["warnings"]) == 2
        assert run(*arguments, "--quiet", data=frames).stderr == b""

    def test_odd_size_is_an_error_only_if_the_pixel_format_needs_even_sizes(self, tmp_path: Path) -> None:
        given, data = ("encode", tmp_path / "v.mkv", "--size", "3x5", "--fps", "1"), bytes(45)
        assert "--odd-size pad or --output-pixel-format yuv444p" in failed(run(*given, data=data), 2)
        printed(run(*given, "--codec", "ffv1", data=data))
        for name in ("vf", "filter"):
            printed(run(*given, "--option", f"{name}=pad=4:6", data=data))
        printed(run(*given, "--odd-size", "pad", data=data))
        assert ", 4x6" in described(tmp_path / "v.mkv")


class TestFailures:
    """One line each, with what to do."""

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["--codec", "libx246"], "Did you mean 'libx264'"),
            (["--preset", "ultrafst"], "Did you mean 'ultrafast'?"),
            (["--option", "presset=fast"], "Did you mean 'preset'?"),
            (["--ffmpeg", "/nowhere/ffmpeg"], "/nowhere/ffmpeg"),
        ],
    )
    def test_ffmpeg_failure_is_reported_in_one_line(
        self, video: Path, arguments: list[str], complaint: str
    ) -> None:
        done = run("encode", video, *RAW, *arguments, data=raw_frames(3))
        assert complaint in failed(done)
        assert len(done.stderr.splitlines()) == 1

    def test_container_that_needs_seeking_is_refused_for_a_pipe(self) -> None:
        said = failed(run("encode", "-", "-", "--format", "mp4", *RAW, data=raw_frames(3)))
        assert "seekable" in said

    def test_crash_safe_writes_mp4_to_a_pipe(self) -> None:
        done = run("encode", "-", "-", "--format", "mp4", "--crash-safe", *RAW, data=raw_frames(3))
        assert done.returncode == 0 and b"moof" in done.stdout

    @pytest.mark.parametrize(
        ("output", "arguments", "complaint"),
        [
            ("nowhere/video.mp4", [], "nowhere: the output's folder does not exist"),
            (".", [], "the output is a folder"),
            ("video.xyz", [], "output format"),
            pytest.param("/dev/full", ["--format", "matroska"], "No space left on device", marks=DEVICES),
        ],
    )
    def test_an_output_that_cannot_be_written_is_an_error(
        self, tmp_path: Path, output: str, arguments: list[str], complaint: str
    ) -> None:
        done = run("encode", "-", output, *RAW, *arguments, data=raw_frames(3), cwd=tmp_path)
        assert complaint in failed(done)
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ([], "Missing argument 'OUTPUT'"),
            (["o.mp4", "--size", "64x48"], "--fps 30"),
            (["o.mp4", "--fps", "30"], "--size 1920x1080"),
            (["o.mp4", *RAW, "--fps", "0"], "not '0'"),
            (["o.mp4", *RAW, "--fps", "1/0"], "not '1/0'"),
            (["o.mp4", *RAW, "--size", "64"], "not '64'"),
            (["o.mp4", *RAW, "--size", "0x48"], "not '0x48'"),
            (["o.mp4", *RAW, "--option", "=3"], "'=3' must be NAME=VALUE"),
            (["o.mp4", *RAW, "--option", "g=3", "--option", "g=4"], "'g' must be passed once"),
            (
                ["o.mp4", *RAW, "--crf", "3", "--option", "crf=4"],
                "--crf 3.0 and --option crf=4 exclude each other",
            ),
            (["o.mp4", *RAW, "--color-range", "magic"], "'magic' is not one of"),
            (["o.mp4", *RAW, "--pixel-format", "rgb25"], "Did you mean 'rgb24'?"),
            (["o.mp4", *RAW, "--quiet", "--progress"], "--progress"),
            (["o.mp4", *RAW, "--crf", "3", "--option", "crf:v=4"], "and --option crf:v=4 exclude each other"),
            (
                ["o.mp4", *RAW, "--codec", "mpeg4", "--crf", "3"],
                "--option q:v=",
            ),
            (["o.mp4", "--size", "63x47", "--fps", "1"], "--odd-size pad"),
            (["-", *RAW], "--format"),
            (["-", "--json", "--format", "nut", *RAW], "both go to standard output"),
            (["a.png", "o.mp4", *RAW], "support --size"),
            (["a", "b", "o.mp4", *RAW], "Raw frames come from one INPUT"),
            (["clip.mp4", "o.mp4", *RAW], "penstock convert"),
        ],
    )
    def test_wrong_usage_is_reported_and_exits_with_2(
        self, tmp_path: Path, arguments: list[str], complaint: str
    ) -> None:
        assert complaint in failed(run("encode", *arguments, cwd=tmp_path), status=2)
        assert [*tmp_path.iterdir()] == []


class TestFifoOutput:
    @pytest.mark.linux("FIFOs")
    @pytest.mark.parametrize("prefix", ["", "fifo:"])
    def test_fifo_receives_the_video(self, tmp_path: Path, prefix: str) -> None:
        os.mkfifo(fifo := tmp_path / "out")
        (tmp_path / "frames.rgb").write_bytes(raw_frames(5))
        given = (tmp_path / "frames.rgb", f"{prefix}{fifo}", *RAW, "--format", "nut", "--codec", "mpeg4")
        with start("encode", *given) as process:
            assert process.stderr is not None
            assert b"nobody has opened" in process.stderr.readline()
            (tmp_path / "video.nut").write_bytes(fifo.read_bytes())
            assert finish(process) == (0, "")
        assert len(decode(tmp_path / "video.nut")) == 5
        assert {path.name for path in tmp_path.iterdir()} == {"out", "frames.rgb", "video.nut"}

    @pytest.mark.parametrize("command", ["encode", "render"])
    @pytest.mark.parametrize(("name", "said"), [("missing", "no FIFO"), ("file", "not a FIFO")])
    def test_fifo_output_must_be_an_existing_fifo(
        self, tmp_path: Path, command: str, name: str, said: str
    ) -> None:
        (tmp_path / "file").touch()
        arguments = ["-", f"fifo:{name}", *RAW]
        if command == "render":
            arguments = ["math:sin", f"fifo:{name}", "--frames", "1", "--size", "64x48", "--fps", "30"]
        assert said in failed(run(command, *arguments, cwd=tmp_path), status=1)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


class TestSignals:
    """A file that plays, an exit as a shell expects it, and nothing left behind."""

    @pytest.mark.parametrize(("number", "said"), ENDING)
    def test_signal_ends_the_video_after_the_frames_that_arrived(
        self, video: Path, number: int, said: str
    ) -> None:
        reader, writer = os.pipe()
        with start("encode", video, *RAW, *FAST, stdin=reader) as process:
            os.close(reader)
            # A frame has been read when the next is waited for; the last is not whole.
            os.write(writer, raw_frames(6)[:-9])
            assert eventually(lambda: video.exists() and not unread(writer))
            process.send_signal(number)
            assert finish(process) == (-number, f"Error: {said}; frames encoded: 5\n")
        os.close(writer)
        assert numbers(video, 5) == [0, 1, 2, 3, 4]

    def test_signal_keeps_the_file_that_existed(self, video: Path) -> None:
        video.write_bytes(b"kept")
        reader, writer = os.pipe()
        with start("encode", video, *RAW, *FAST, stdin=reader) as process:
            os.close(reader)
            os.write(writer, raw_frames(6)[:-9])
            assert eventually(lambda: video.with_name("video.part.mp4").exists() and not unread(writer))
            process.send_signal(signal.SIGINT)
            status, said = finish(process)
        os.close(writer)
        assert status == -signal.SIGINT and "video.part.mp4" in said and "Warning" not in said
        assert video.read_bytes() == b"kept"
        assert numbers(video.with_name("video.part.mp4"), 5) == [0, 1, 2, 3, 4]

    @pytest.mark.linux("FIFOs")
    def test_signal_before_the_first_frame_overwrites_nothing(self, video: Path, tmp_path: Path) -> None:
        video.write_bytes(b"kept")
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with start("encode", f"fifo:{fifo}", video, *RAW) as process, fifo.open("wb", 0) as writer:
            writer.write(b"begun")
            assert eventually(lambda: not unread(writer.fileno()))
            process.send_signal(signal.SIGINT)
            assert finish(process) == (-signal.SIGINT, "Error: interrupted; frames encoded: 0\n")
        assert video.read_bytes() == b"kept"

    @pytest.mark.linux("files in /dev")
    def test_second_signal_ends_encode_at_once(self, video: Path) -> None:
        with start("encode", "/dev/zero", video, *RAW, *FAST) as process:
            assert eventually(lambda: video.exists() and ffmpegs_of(process.pid))
            [ffmpeg] = ffmpegs_of(process.pid)
            os.kill(ffmpeg, signal.SIGSTOP)  # the file cannot be finished
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == -signal.SIGINT
            with contextlib.suppress(ProcessLookupError):
                os.kill(ffmpeg, signal.SIGCONT)
            assert eventually(lambda: has_ended(ffmpeg))

    def test_signal_ends_encode_while_images_are_decoded(self, tmp_path: Path, video: Path) -> None:
        size = (640, 360)
        shots = tmp_path / "shots"
        shots.mkdir()
        (shots / "0.png").write_bytes(png(flat(0, size)))
        for number in range(1, 1000):
            (shots / f"{number}.png").hardlink_to(shots / "0.png")
        with start("encode", shots, video, "--fps", "10", *FAST) as process:
            assert eventually(lambda: video.exists() and video.stat().st_size)
            ffmpegs = ffmpegs_of(process.pid)
            process.send_signal(signal.SIGINT)
            status, said = finish(process)
        frames = len(decode(video, size))
        assert (status, len(ffmpegs)) == (-signal.SIGINT, 1)  # libav decodes the images
        assert said == f"Error: interrupted; frames encoded: {frames}\n"
        assert 0 < frames < 1000
        assert eventually(lambda: all(map(has_ended, ffmpegs)))


def unread(writer: int) -> bool:
    """Whether there may be a whole frame in a pipe whose writing end this is. Windows' pipes hold none."""
    return sys.platform != "win32" and unread_bytes(writer) > 0


class TestProgress:
    """What is shown on standard error."""

    @pytest.mark.linux("a terminal that a program holds")
    def test_progress_is_shown_on_a_terminal(self, video: Path, tmp_path: Path) -> None:
        (tmp_path / "frames").write_bytes(raw_frames(50))
        status, shown, _ = run_on_terminal("encode", tmp_path / "frames", video, *RAW)
        assert status == 0
        assert "50/50 frames" in shown
        assert " fps " in shown
        assert "\x1b[32m━" in shown  # a finished bar is green, and not as gray as an empty one
        assert shown.splitlines()[-1].removeprefix(SHOW_CURSOR.decode()).startswith("frames encoded: 50 in ")

    def test_progress_total_of_a_pipe_is_unknown_unless_given(self, video: Path) -> None:
        done = run("encode", video, *RAW, "--progress", data=raw_frames(5))
        row, summary = done.stderr.decode().splitlines()
        assert " 5 frames " in row
        assert "0.2 s of video" in row
        assert summary.startswith("frames encoded: 5 in ")
        assert str(video) in summary
        done = run("encode", video, *RAW, "--progress", "--total-frames", "10", data=raw_frames(5))
        assert " 5/10 frames " in done.stderr.decode()

    @pytest.mark.linux("a terminal that a program holds")
    @pytest.mark.parametrize("option", ["--no-progress", "-q"])
    def test_progress_can_be_turned_off(self, shots: Path, video: Path, option: str) -> None:
        assert run_on_terminal("encode", shots, video, "--fps", "10", option) == (0, "", b"")

    @pytest.mark.linux("files in /dev")
    def test_a_signal_leaves_the_terminal_as_it_was(self, video: Path) -> None:
        with on_terminal("encode", "/dev/zero", video, *RAW, *FAST) as (process, terminal):
            terminal.until(b" fps ")
            process.send_signal(signal.SIGINT)
            shown = terminal.rest()
        assert process.returncode == -signal.SIGINT
        # At no time a second signal would leave it hidden.
        assert shown.count(HIDE_CURSOR) == 1
        assert (
            SHOW_CURSOR in shown.partition(b" fps ")[2].partition(b" fps ")[0] + shown.partition(b" fps ")[0]
        )
        assert b"Error: interrupted; frames encoded: " in shown.rpartition(SHOW_CURSOR)[2]

    @pytest.mark.linux("a terminal that a program holds")
    def test_encode_continues_after_its_terminal_goes_away(self, video: Path) -> None:
        reader, writer = os.pipe()
        with on_terminal("encode", video, *RAW, "--json", stdin=reader) as (process, terminal):
            os.close(reader)
            os.write(writer, raw_frames(3))
            terminal.until(b" fps ")
            terminal.file.close()
            os.write(writer, raw_frames(2))
            os.close(writer)
            assert process.stdout is not None
            report = process.stdout.read()
            process.wait(PATIENCE_S)
        assert json.loads(report)["frames_encoded"] == 5
        assert len(decode(video)) == 5


ENCODER = """
import sys
from penstock import Encoder
with Encoder(sys.argv[1], size=(64, 48), fps=30, progress=3) as encoder:
    for _ in range(3):
        encoder.write(bytes(64 * 48 * 3))
"""


def test_the_encoder_draws_the_bar(video: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENCODER, video], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, b"")
    [row] = done.stderr.decode().splitlines()
    assert "3/3 frames" in row
