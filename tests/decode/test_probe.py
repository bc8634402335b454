"""`probe` with files of every kind, checked against what FFmpeg decodes, and its errors."""

from __future__ import annotations

import errno
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support.cases import IS_ROOT, PATIENCE_S, a_few, eventually
from support.clips import ALPHA_CLIPS, CLIPS, DAMAGED, NO_MEDIA, VIDEOS, WITHOUT_VIDEO, ZERO_FRAMES, clip
from support.media import ffmpeg, holdings

from penstock import Encoder, probe
from penstock.errors import DecoderError, PenstockError, StalledError
from penstock.video import (
    Colors,
    MediaInfo,
    find_ffmpeg,
)

DECODABLE = (
    VIDEOS | ALPHA_CLIPS | {"fragmented": ZERO_FRAMES["fragmented"], "fast_start": DAMAGED["fast_start"]}
)


@functools.cache
def probed(name: str) -> MediaInfo:
    """The facts about a clip."""
    return probe(clip(name))


def video(name: str) -> MediaInfo.Video:
    best = probed(name).best_video
    assert best is not None
    return best


@functools.cache
def decoded(name: str, *options: str) -> tuple[int, bytes]:
    """How many frames FFmpeg decodes of a clip's best video, and their bytes as rgb24; it must find no fault."""
    info = video(name)
    source = [*options, "-i", f"file:{clip(name)}", "-map", f"0:{info.index}"]
    output = ["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    command = [find_ffmpeg(), "-v", "error", "-xerror", *source, *output]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    frames, rest = divmod(len(done.stdout), 3 * info.width * info.height)
    assert rest == 0
    return frames, done.stdout


class TestVideo:
    """Each clip, against the table that it was made from and against what FFmpeg decodes."""

    @pytest.mark.parametrize("name", a_few(DECODABLE))
    def test_video_facts_match_the_clip(self, name: str) -> None:
        info, made = video(name), DECODABLE[name]
        assert (info.stored_width, info.stored_height) == made.size
        assert info.pixel_format == made.pixel_format
        assert {field: getattr(info, field) for field in made.told} == made.told

    @pytest.mark.parametrize(
        "name",
        ["h264", "h264_ts", "vp9", "gif", "variable_mp4", "interlaced", "starts_late_ts", "one_frame"],
    )
    def test_frame_count_matches_ffmpeg(self, name: str) -> None:
        count, _ = decoded(name)
        assert count == DECODABLE[name].frames
        # Not every container says it.
        assert video(name).frames in (count, None)

    @pytest.mark.parametrize(
        "name", ["h264", "h264_large", "h265", "prores", "mjpeg_420", "rotated_90", "long"]
    )
    def test_some_containers_state_the_number_of_frames(self, name: str) -> None:
        assert video(name).frames == CLIPS[name].frames

    @pytest.mark.parametrize("name", ["h264", "h264_large", "vp9", "long", "h264_mkv", "one_frame"])
    def test_frame_rate_duration_and_start_match_the_clip(self, name: str) -> None:
        info, made = video(name), CLIPS[name]
        assert made.frames is not None
        assert info.frame_rate == made.rate
        assert not info.is_variable_frame_rate
        assert info.duration_s == pytest.approx(made.frames / made.rate, abs=0.002)
        assert info.start_s == pytest.approx(0, abs=0.1)

    @pytest.mark.parametrize(
        ("name", "codec"),
        [("v.mpg", "mpeg1video"), ("v.vob", "mpeg2video"), ("v.h264", "libx264"), ("v.m4v", "mpeg4")],
    )
    def test_frame_rate_is_found_without_frame_times(self, tmp_path: Path, name: str, codec: str) -> None:
        source = ("-f", "lavfi", "-i", "testsrc2=size=128x96:rate=30:duration=3")
        ffmpeg(*source, "-c:v", codec, tmp_path / name)
        info = probe(tmp_path / name).video[0]
        assert (info.frame_rate, info.is_variable_frame_rate) == (30, False)

    def test_stream_without_a_duration_gets_that_of_the_file(self) -> None:
        info = probed("h264_mkv")
        assert info.video[0].duration_s == info.duration_s == 1.2

    def test_late_start_is_reported(self) -> None:
        info = probed("starts_late_ts")
        assert info.start_s is not None and info.start_s > 5
        assert info.video[0].start_s == info.start_s

    def test_time_bases_match_the_container(self) -> None:
        assert video("h264_ts").time_base == Fraction(1, 90_000)
        assert video("h264_mkv").time_base == Fraction(1, 1000)


class TestRotation:
    """Degrees clockwise by which to rotate the stored picture for display."""

    @pytest.mark.parametrize("degrees", [0, 90, 180, 270])
    def test_the_stored_picture_rotated_is_what_ffmpeg_decodes(self, degrees: int) -> None:
        name = f"rotated_{degrees}" if degrees else "h264"
        info = video(name)
        count, shown = decoded(name)
        _, stored = decoded(name, "-noautorotate")
        pictures = np.frombuffer(stored, np.uint8).reshape(count, info.stored_height, info.stored_width, 3)
        # NumPy turns from the first axis towards the second, which is against the clock.
        turned = np.rot90(pictures, -info.rotation // 90, axes=(1, 2))
        assert turned.shape[1:3] == (info.height, info.width)
        # Chroma of 4:2:0 has a place in its square of pixels, which is turned with it: brightness alone is the same.
        there = np.frombuffer(shown, np.uint8).reshape(turned.shape)
        difference = turned.mean(axis=3) - there.mean(axis=3)
        assert np.abs(difference).mean() < 4
        assert info.rotation == degrees

    def test_pixels_that_are_not_square_are_rotated_too(self) -> None:
        assert video("wide_pixels").sample_aspect_ratio == Fraction(4, 3)
        assert video("wide_pixels_rotated").sample_aspect_ratio == Fraction(3, 4)

    def test_the_rotate_tag_is_ignored_as_ffmpeg_ignores_it(self, tmp_path: Path) -> None:
        path = tmp_path / "tagged.mkv"
        options = ["-c", "copy", "-metadata:s:v", "rotate=90"]
        subprocess.run([find_ffmpeg(), "-v", "error", "-i", clip("ffv1_gray"), *options, path], check=True)
        info = probe(path).video[0]
        assert (info.rotation, info.width, info.height) == (0, 64, 48)


class TestStreams:
    """Audio, several videos, and attached pictures."""

    @pytest.mark.parametrize(
        ("name", "codec", "channels", "layout"),
        [
            ("audio_aac", "aac", 2, "stereo"),
            ("audio_pcm", "pcm_s16le", 1, ("mono", None)),
            ("audio_flac_51", "flac", 6, ("5.1", "5.1(side)")),
            ("audio_only", "pcm_s16le", 2, ("stereo", None)),
            ("audio_only_m4a", "aac", 1, "mono"),
        ],
    )
    def test_audio_facts_match_the_clip(
        self, name: str, codec: str, channels: int, layout: str | tuple[str | None, ...]
    ) -> None:
        audio = probed(name).best_audio
        assert audio is not None
        assert (audio.codec, audio.channels, audio.sample_rate) == (codec, channels, 44_100)
        assert audio.channel_layout in ((layout,) if isinstance(layout, str) else layout)
        assert audio.duration_s == pytest.approx(0.5, abs=0.05)

    @pytest.mark.parametrize("name", WITHOUT_VIDEO)
    def test_file_without_video_has_no_best_video(self, name: str) -> None:
        assert probed(name).best_video is None

    def test_cover_image_is_no_video(self) -> None:
        (cover,) = probed("audio_and_cover").video
        assert cover.is_attached_picture
        assert cover.frame_rate is None
        assert not cover.is_variable_frame_rate

    def test_best_video_is_not_a_cover_image(self) -> None:
        info = probed("video_and_cover")
        assert [stream.is_attached_picture for stream in info.video].count(True) == 1
        assert info.best_video is not None and info.best_video.codec == "h264"

    def test_default_video_is_the_best_video(self) -> None:
        info = probed("several_videos")
        assert [stream.index for stream in info.video] == [0, 1]
        assert info.best_video is info.video[1]

    def test_first_of_several_default_videos_is_best(self) -> None:
        first, second = probed("several_videos").video
        streams = {field.name: getattr(first, field.name) for field in fields(first)}
        also_default = MediaInfo.Video(**streams | {"is_default": True})
        info = probed("several_videos")
        both = {field.name: getattr(info, field.name) for field in fields(info)}
        assert MediaInfo(**both | {"video": (also_default, second)}).best_video is also_default

    @pytest.mark.parametrize("name", ["zero_frames_mp4", "zero_frames_avi"])
    def test_video_without_frames_has_a_size(self, name: str) -> None:
        assert video(name).frames in (0, None)
        assert (video(name).width, video(name).height) == (64, 48)

    def test_file_without_streams_has_no_best_stream(self) -> None:
        info = probed("no_streams")
        assert (info.video, info.audio, info.best_video, info.best_audio) == ((), (), None, None)


class TestFiles:
    """The file as a whole, and its name."""

    def test_smoke(self) -> None:
        info = probe(clip("audio_aac"))
        assert info.path == str(clip("audio_aac"))
        assert "mp4" in info.container.split(",")
        assert info.container_name == "QuickTime / MOV"
        assert info.size_bytes == clip("audio_aac").stat().st_size
        assert info.duration_s == pytest.approx(0.48, abs=0.05)
        assert info.tags["major_brand"] == "isom"
        assert isinstance(info.audio[0], MediaInfo.Audio)

    @pytest.mark.parametrize(
        "name",
        [
            *("-i.mp4", "50%.mp4", "-"),
            *(
                pytest.param(name, marks=pytest.mark.linux("names with colons and line ends"))
                for name in ("a:b.mp4", "file:x.mp4", "concat:a|b.mp4", "pipe:0", "é\n.mp4")
            ),
        ],
    )
    def test_names_are_taken_literally(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(name).write_bytes(clip("h264").read_bytes())
        for given in (name, Path(name)):
            info = probe(given)
            assert (info.path, info.video) == (name, probed("h264").video)

    @pytest.mark.linux("names of files that are no text")
    def test_file_name_that_is_no_text_is_accepted(self, tmp_path: Path) -> None:
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.mp4"))
        path.write_bytes(clip("h264").read_bytes())
        assert probe(path).video[0].frames == 30

    def test_chapters_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "told").write_text(
            ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=400\ntitle=One\n"
            "[CHAPTER]\nTIMEBASE=1/1000\nSTART=400\nEND=1200\n"
        )
        inputs = ["-i", clip("h264"), "-i", tmp_path / "told", "-map_chapters", "1", "-c", "copy"]
        subprocess.run([find_ffmpeg(), "-v", "error", *inputs, tmp_path / "clip.mkv"], check=True)
        assert probe(clip("h264")).chapters == ()
        assert probe(tmp_path / "clip.mkv").chapters == (
            MediaInfo.Chapter(0.0, 0.4, "One"),
            MediaInfo.Chapter(0.4, 1.2, None),
        )

    @pytest.mark.parametrize("ending", ["mkv", "mp4"])
    def test_content_light_and_mastering_display_are_read(self, tmp_path: Path, ending: str) -> None:
        display = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"
        hdr = f"log-level=none:master-display={display}:max-cll=1000,400"
        x265 = ("-c:v", "libx265", "-x265-params", hdr, "-pix_fmt", "yuv420p10le")
        output = (*x265, tmp_path / f"clip.{ending}")
        subprocess.run([find_ffmpeg(), "-v", "error", "-i", clip("h264"), *output], check=True)
        [video] = probe(tmp_path / f"clip.{ending}").video
        assert video.content_light == Colors.ContentLight(1000, 400)
        assert video.mastering_display == Colors.MasteringDisplay(
            red=(0.68, 0.32),
            green=(0.265, 0.69),
            blue=(0.15, 0.06),
            white=(0.3127, 0.329),
            luminance=(0.005, 1000),
        )
        [video] = probe(clip("h264")).video
        assert (video.mastering_display, video.content_light) == (None, None)

    def test_channels_described_by_the_file_are_read(self, tmp_path: Path) -> None:
        """PyAV 18 ended the process."""
        command = (find_ffmpeg(), "-v", "error", "-f", "f32le", "-ar", "8000", "-ac", "6", "-i", "-")
        subprocess.run([*command, tmp_path / "v.aiff"], input=bytes(6 * 4 * 800), check=True)
        program = "import sys\nfrom penstock import probe\nfor _ in range(100): info = probe(sys.argv[1])"
        counted = f"{program}\nprint(info.audio[0].channels)"
        run = [sys.executable, "-c", counted, tmp_path / "v.aiff"]
        assert subprocess.run(run, check=True, capture_output=True).stdout.strip() == b"6"

    def test_tags_that_are_no_utf_8_get_replacement_characters(self, tmp_path: Path) -> None:
        path = tmp_path / "v.mkv"
        copied = ("-i", clip("h264"), "-c", "copy", "-metadata", "title=LATIN")
        subprocess.run([find_ffmpeg(), "-v", "error", *copied, path], check=True)
        path.write_bytes(path.read_bytes().replace(b"LATIN", b"LAT\xffN"))
        assert probe(path).tags["title"] == "LAT\ufffdN"

    def test_file_url_is_accepted(self) -> None:
        assert probe(f"file://{clip('h264')}").video[0].frames == 30

    @pytest.mark.linux("FIFOs")
    def test_fifo_with_a_writer_is_probed(self, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        writer = threading.Thread(target=lambda: fifo.write_bytes(clip("h264_ts").read_bytes()), daemon=True)
        writer.start()
        info = probe(fifo, timeout=PATIENCE_S)
        writer.join(PATIENCE_S)
        assert info.video[0].codec == "h264"
        assert info.size_bytes is None

    @pytest.mark.parametrize("name", DAMAGED)
    def test_a_damaged_file_is_read_as_far_as_possible(self, name: str) -> None:
        assert (video(name).width, video(name).height) == DAMAGED[name].size

    def test_facts_can_be_compared_copied_and_pickled(self) -> None:
        info = probe(clip("audio_aac"))
        assert info == probe(clip("audio_aac"))
        assert pickle.loads(pickle.dumps(info)) == info
        assert asdict(info)["video"][0]["codec"] == "h264"
        with pytest.raises(AttributeError):
            info.path = "another"  # type: ignore[misc]


class TestNoMedia:
    """Errors for what is not a media file."""

    @pytest.mark.parametrize("name", NO_MEDIA)
    def test_files_unknown_to_ffmpeg_raise(self, name: str) -> None:
        with pytest.raises(DecoderError) as caught:
            probe(clip(name))
        error = caught.value
        said = str(error)
        assert said.startswith(str(clip(name))) and "0x5" not in said and "\n" not in said
        assert {"empty": "is an empty file", "text_txt": "is a text file"}.get(name, "damaged") in said
        assert not error.command or error.command[-1] == f"file:{clip(name)}"
        assert isinstance(error, PenstockError) and isinstance(error, RuntimeError)
        assert error.frames == 0

    def test_ffmpegs_output_is_in_the_message(self) -> None:
        with pytest.raises(DecoderError) as caught:
            probe(clip("cut_before_the_index"))
        assert "moov atom not found" in caught.value.stderr

    def test_missing_paths_raise_the_builtin_errors(self, tmp_path: Path) -> None:
        for name, number in (
            (f"{tmp_path}/none.mp4", errno.ENOENT),
            ("", errno.ENOENT),
            (f"{tmp_path}/", errno.EISDIR),
            (f"{clip('h264')}/", errno.EINVAL if sys.platform == "win32" else errno.ENOTDIR),
        ):
            with pytest.raises(OSError) as caught:
                probe(name)
            assert (caught.value.errno, caught.value.filename) == (number, name)

    def test_a_link_to_itself_raises_the_builtin_error(self, tmp_path: Path) -> None:
        (loop := tmp_path / "loop").symlink_to(loop)
        with pytest.raises(OSError) as caught:
            probe(loop)
        assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, str(loop))

    @pytest.mark.linux("modes of files")
    @pytest.mark.skipif(IS_ROOT, reason="root may read everything")
    def test_unreadable_file_raises_permission_error(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.mp4"
        path.write_bytes(clip("h264").read_bytes())
        path.chmod(0)
        with pytest.raises(PermissionError):
            probe(path)

    @pytest.mark.parametrize("url", ["http://127.0.0.1:9/clip.mp4", "nonsense://host/clip"])
    def test_unreachable_urls_raise(self, url: str) -> None:
        with pytest.raises(DecoderError):
            probe(url)


def test_first_frame_at_0_is_found_if_frames_are_seconds_apart(tmp_path: Path) -> None:
    with Encoder(tmp_path / "slow.mkv", size=(64, 64), fps=Fraction(1, 3)) as encoder:
        for _ in range(12):
            encoder.write(bytes(64 * 64 * 3))
    assert probe(tmp_path / "slow.mkv").video[0].start_s == 0


class TestStalled:
    """What does not come is given up."""

    @pytest.mark.linux("FIFOs")
    def test_fifo_without_a_writer_times_out(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        before = holdings()
        with pytest.raises(StalledError) as caught:
            probe(tmp_path / "fifo", timeout=0.3)
        assert caught.value.seconds == 0.3
        assert eventually(lambda: holdings() == before), "no thread is left that would take what comes later"

    @pytest.mark.linux("FIFOs")
    def test_ctrl_c_ends_probe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        begun_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            probe(tmp_path / "fifo", timeout=PATIENCE_S)
        assert time.monotonic() - begun_s < PATIENCE_S / 2
        timer.join()

    @pytest.mark.linux("FIFOs")
    def test_a_stuck_source_does_not_hold_the_interpreter(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        code = f"from penstock import probe; probe({str(tmp_path / 'fifo')!r}, timeout=0.2)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 1 and b"StalledError" in done.stderr


def test_side_data_unknown_to_pyav_is_ignored(tmp_path: Path) -> None:
    made = tmp_path / "exif.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.2", "-c:v", "tiff", "-pix_fmt", "rgb24", made)
    assert probe(made).video[0].codec == "tiff"


def test_a_frame_with_two_of_a_kind_of_side_data_hides_no_other(tmp_path: Path) -> None:
    # The encoder's own words are the first of them.
    user_data = "h264_metadata=sei_user_data=086f3693-b7b3-4f2c-9653-21492feee5b8+word"
    codec = ("-c:v", "libx264", "-x264-params", "cll=1000,400", "-bsf:v", user_data)
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.2", *codec, made := tmp_path / "two.mp4")
    assert probe(made).video[0].content_light == Colors.ContentLight(1000, 400)
