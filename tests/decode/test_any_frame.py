"""Frames of a `Decoder` by number and time: the same as in sequence, whatever the file, or an error."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import a_few, eventually, ffmpegs
from support.clips import ALPHA_CLIPS, VIDEOS, clip
from support.media import ffmpeg
from support.this_process import libav_threads, open_fds

from penstock import ClosedError, Decoder, DecoderError, FFmpegWarning, read_video, write_video
from penstock._decoding.open_video import OpenVideo
from penstock._decoding.video_frame import VideoFrame
from penstock.video import DecoderSettings

MOVING = "testsrc2=size=64x48:rate=25:duration=4"
H264 = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p")


def same(frame: np.ndarray, other: np.ndarray) -> bool:
    """Whether two frames have the same bytes in the same form."""
    return (frame.shape, frame.dtype, frame.tobytes()) == (other.shape, other.dtype, other.tobytes())


def check(decoder: Decoder, *, has_times: bool = True) -> None:
    """Each frame by its number is the one in sequence."""
    frames = list(decoder)
    numbers = list(range(len(frames)))
    random.Random(2).shuffle(numbers)
    for number in numbers[:20]:
        frame = decoder[number]
        assert same(frame, frames[number]), number
        assert frame.index == number
        if has_times:
            assert (frame.pts, frame.time_s) == (frames[number].pts, frames[number].time_s)
    with pytest.raises(IndexError):
        decoder[len(frames)]
    batch = decoder.batch(range(len(frames)))
    assert all(same(one, frame) for one, frame in zip(batch, frames, strict=True))


def made(folder: Path, name: str, *arguments: str) -> Path:
    """A video of 100 frames by FFmpeg with these arguments, in the container that the name tells."""
    path = folder / name
    # By more threads, x264 does not write the same file each time.
    ffmpeg("-f", "lavfi", "-i", MOVING, *arguments, "-threads", "1", "-y", f"file:{path}")
    return path


@pytest.fixture(scope="module")
def video() -> Path:
    return clip("long")


# --- the same frames --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"pixel_format": "source", "size": (48, 32)},
        {"pixel_format": "gray", "size": (48, 32)},
        {"pixel_format": "yuv444p"},
        {"size": (48, 32)},
        {"size": (48, 32), "color_matrix": "bt601", "color_range": "full"},
    ],
)
def test_colors_of_the_file_are_kept_by_filters(tmp_path: Path, options: dict[str, Any]) -> None:
    path = made(tmp_path, "v.mp4", *H264, "-colorspace", "bt709", "-color_range", "tv")
    with Decoder(path, **options) as decoder:
        check(decoder)


def test_frames_by_index_are_right_if_packets_are_wrongly_marked_as_keyframes(tmp_path: Path) -> None:
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=128x96:rate=25:duration=1", "-c:v", "h263p", tmp_path / "v.avi"
    )
    with Decoder(tmp_path / "v.avi", pixel_format="source") as decoder:
        check(decoder)


OPEN = ("-x264-params", "open-gop=1:b-pyramid=normal")
STARTS = {
    "open.mp4": (*H264, "-g", "12", "-bf", "3", *OPEN),
    "mpeg4.mp4": ("-c:v", "mpeg4", "-bf", "2"),
    "mpeg2.mov": ("-c:v", "mpeg2video", "-bf", "2", "-g", "12"),
    "fragments.mp4": (*H264, "-g", "12", "-bf", "3", "-movflags", "frag_keyframe+empty_moov"),
}


@pytest.mark.parametrize("name", a_few(STARTS, one_in=2))
def test_decoder_starts_after_a_keyframe_that_comes_first_in_the_file(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name, *STARTS[name])
    with Decoder(path) as decoder:
        times = [frame.time_s for frame in decoder]
    for number in range(20, 60, 3):
        with Decoder(path, start=times[number], count=20) as decoder:
            assert [frame.time_s for frame in decoder] == times[number : number + 20]


X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params")
# What follows the name is how the pictures depend on each other.
DEPENDING = {
    "pyramid.mp4": (*H264, "-bf", "6", "-x264-params", "b-pyramid=normal:keyint=30:slices=3"),
    "open.ts": (*H264, "-bf", "4", "-x264-params", "open-gop=1:b-pyramid=strict:keyint=20"),
    "both_fields.mkv": (*H264, "-bf", "3", "-flags", "+ildct+ilme", "-x264-params", "tff=1:keyint=40"),
    "refresh.mp4": (*H264, "-bf", "2", "-x264-params", "intra-refresh=1:keyint=30"),
    # A picture is whole only some keyframes later.
    "short_refresh.mp4": (
        *(*H264, "-x264-params"),
        "intra-refresh=1:keyint=9:bframes=3:b-pyramid=none:b-adapt=1:ref=4:weightp=0",
    ),
    "layers.mp4": (
        *X265,
        "log-level=none:temporal-layers=1:bframes=7:b-adapt=0:b-pyramid=1:rc-lookahead=10:keyint=40",
    ),
    "closed.mp4": (*X265, "log-level=none:open-gop=0:bframes=4:rc-lookahead=10:keyint=20"),
    "layers.ts": (*X265, "log-level=none:open-gop=1:bframes=5:rc-lookahead=10:keyint=30"),
    "mpeg2.ts": ("-c:v", "mpeg2video", "-bf", "2", "-g", "18"),
    "av1.mp4": ("-c:v", "libsvtav1", "-preset", "12", "-g", "40", "-pix_fmt", "yuv420p", "-s", "96x64"),
    "av1.mkv": ("-c:v", "libaom-av1", "-cpu-used", "8", "-g", "40", "-lag-in-frames", "19", "-usage", "good"),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_any_subset_of_the_frames_is_that_of_all(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name, *DEPENDING[name])
    with Decoder(path, pixel_format="source") as decoder:
        frames = list(decoder)
    chosen = random.Random(4)
    for _ in range(4):
        with Decoder(path, pixel_format="source") as decoder:
            for _ in range(6):
                numbers = chosen.sample(range(len(frames)), chosen.choice((1, 2, 5, 12)))
                batch = decoder.batch(numbers)
                assert all(same(one, frames[n]) for one, n in zip(batch, numbers, strict=True)), numbers


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the packets that decoders get, but for a first one that is decoded alone."""
    sent: list[int] = []
    really = OpenVideo.decode

    def decode(video: OpenVideo, packet: Any) -> Any:
        sent.extend([] if packet is None else [packet.pts])
        return really(video, packet)

    monkeypatch.setattr(OpenVideo, "decode", decode)
    return sent


@pytest.mark.parametrize("name", ["pyramid.mp4", "layers.mp4", "layers.ts", "mpeg2.ts", "av1.mp4"])
def test_pictures_that_no_wanted_frame_needs_are_not_decoded(
    tmp_path: Path, name: str, sent: list[int]
) -> None:
    path = made(tmp_path, name, *DEPENDING[name])
    with Decoder(path) as decoder:
        decoder.batch([19])
    assert len(sent) < 20
    sent.clear()
    with Decoder(path) as decoder:
        assert len(sent) < sum(1 for _ in decoder) <= len(sent)


@pytest.mark.parametrize("name", ["pyramid.mp4", "closed.mp4", "mpeg2.ts"])
def test_pictures_behind_the_last_wanted_one_of_a_group_are_not_decoded(
    tmp_path: Path, name: str, sent: list[int]
) -> None:
    path = made(tmp_path, name, *DEPENDING[name])
    with av.open(path) as file:
        packets = [packet for packet in file.demux(video=0) if packet.size]
    keys = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    shown = sorted(packet.pts for packet in packets)
    numbers = [shown.index(packets[key].pts) for key in keys]
    with Decoder(path) as decoder:
        frames = list(decoder)
    sent.clear()
    with Decoder(path) as decoder:
        batch = decoder.batch(numbers)
        assert [number for number in sent if number <= keys[-1]] == keys[1:]
        assert all(same(one, frames[n]) for one, n in zip(batch, numbers, strict=True))
        left_out = numbers[1] + 5
        assert same(decoder.batch([left_out])[0], frames[left_out])


def test_clips_by_turns_from_four_groups_go_on_where_they_were(tmp_path: Path, sent: list[int]) -> None:
    path = made(tmp_path, "a.mp4", *H264, "-g", "20", "-bf", "0")
    with Decoder(path) as decoder:
        frames = list(decoder)
        sent.clear()
        for number in (1, 21, 41, 61):
            decoder.batch([number])
        assert len({0, 20, 40, 60} & {*sent}) == 4
        sent.clear()
        for number in (12, 32, 52, 72):
            assert same(decoder.batch([number])[0], frames[number])
        assert not {0, 20, 40, 60} & {*sent}


@pytest.mark.parametrize("pixel_format", ["rgba", "source"])
@pytest.mark.parametrize("name", [*a_few(sorted(VIDEOS)), *sorted(ALPHA_CLIPS)])
def test_frames_by_index_match_frames_in_sequence(name: str, pixel_format: str) -> None:
    with Decoder(clip(name), pixel_format=pixel_format) as decoder:
        check(decoder)


@pytest.mark.parametrize(
    ("name", "arguments"),
    a_few(
        [
            ("open.mp4", (*H264, "-x264-params", "open-gop=1:keyint=24:bframes=3")),
            ("open.ts", (*H264, "-x264-params", "open-gop=1:keyint=24:bframes=3")),
            ("refresh.mkv", (*H264, "-x264-params", "intra-refresh=1:keyint=25")),
            ("refresh.mp4", (*H264, "-x264-params", "intra-refresh=1:keyint=25")),
            ("refresh.ts", (*H264, "-x264-params", "intra-refresh=1:keyint=25")),
            ("fragmented.mp4", (*H264, "-g", "20", "-movflags", "frag_keyframe+empty_moov")),
            ("a.flv", (*H264, "-g", "20", "-bf", "3")),
            ("raw.h264", (*H264, "-g", "20", "-bf", "3")),
            ("a.mpg", ("-c:v", "mpeg2video", "-bf", "2")),
            ("packed.avi", ("-c:v", "mpeg4", "-bf", "2")),
            ("a.wmv", ("-c:v", "wmv2")),
            ("a.ogv", ("-c:v", "libtheora")),
            ("hidden.webm", ("-c:v", "libvpx", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-b:v", "200k")),
            (
                "hidden9.webm",
                ("-c:v", "libvpx-vp9", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-b:v", "200k"),
            ),
        ],
        3,
    ),
)
def test_frames_by_index_are_right_if_pictures_depend_on_others(
    tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    with Decoder(made(tmp_path, name, *arguments)) as decoder:
        check(decoder)


def test_frames_by_index_are_right_in_avi_without_packet_times(tmp_path: Path) -> None:
    with Decoder(made(tmp_path, "a.avi", *H264, "-bf", "3", "-g", "20")) as decoder:
        check(decoder, has_times=False)  # FFmpeg 5.1 gives the last one another


def test_a_palette_comes_with_its_pixels(tmp_path: Path) -> None:
    filters = "split[a][b];[a]palettegen[p];[b][p]paletteuse"
    with Decoder(made(tmp_path, "v.mkv", "-vf", filters, "-c:v", "png"), pixel_format="source") as decoder:
        assert decoder.pixel_format == "pal8"
        check(decoder)


def check_late(path: Path) -> None:
    """Each frame by its number is the one in sequence, also of a decoder that starts late."""
    with Decoder(path) as decoder:
        check(decoder)
        with Decoder(path, start=3) as late:
            frames = list(late)
        assert frames and all(same(frame, decoder[100 - len(frames) + frame.index]) for frame in frames)
        assert all(frame.any() for frame in frames)


@pytest.mark.parametrize("name", ["v.mov", "v.avi", "v.nut"])
def test_palette_in_the_first_packet_applies_to_every_frame(tmp_path: Path, name: str) -> None:
    check_late(made(tmp_path, name, "-c:v", "rawvideo", "-pix_fmt", "pal8"))


def test_dirac_frames_by_index_are_right_though_its_decoder_differs_after_a_seek(tmp_path: Path) -> None:
    check_late(made(tmp_path, "v.mkv", "-c:v", "vc2"))


def test_palette_that_changes_its_size_midway_is_an_error(tmp_path: Path) -> None:
    filters = "split[a][b];[a]palettegen[p];[b][p]paletteuse"
    parts = [tmp_path / f"{width}.mkv" for width in (64, 96)]
    for part in parts:
        source = ("-f", "lavfi", "-i", f"testsrc2=size={part.stem}x48:duration=1")
        ffmpeg(*source, "-vf", filters, "-c:v", "png", part)
    (tmp_path / "list").write_text("".join(f"file '{part}'\n" for part in parts))
    ffmpeg("-f", "concat", "-safe", "0", "-i", tmp_path / "list", "-c", "copy", tmp_path / "both.mkv")
    with Decoder(tmp_path / "both.mkv", pixel_format="source") as decoder:
        with pytest.raises(DecoderError):
            list(decoder)
        assert len(decoder[:25]) == 25
        with pytest.raises(DecoderError):
            decoder[25]
    with Decoder(tmp_path / "both.mkv", pixel_format="rgb24") as decoder:
        assert len(list(decoder)) == 50


@pytest.mark.parametrize("start", [0.84, 1.03])  # behind a keyframe at 0.8 s: one frame, and six
def test_an_edit_list_hides_frames(tmp_path: Path, start: float) -> None:
    whole = made(tmp_path, "whole.mp4", *H264, "-g", "20", "-bf", "3")
    ffmpeg("-ss", start, "-i", f"file:{whole}", "-c", "copy", f"file:{tmp_path / 'cut.mp4'}")
    with Decoder(tmp_path / "cut.mp4") as decoder:
        check(decoder)
        with Decoder(tmp_path / "cut.mp4") as again:
            assert len(decoder) == len(decoder[:]) == len(list(again))


@pytest.mark.parametrize(
    "options",
    a_few(
        [
            *(
                {"size": size, "pixel_format": pixel_format, "count": 30}
                for size in ((32, 24), (100, None), (640, 480))
                for pixel_format in ("rgb24", "gray", "yuv444p", "source")
            ),
            *(
                {**colors, "pixel_format": pixel_format, "count": 30}
                for colors in ({"color_matrix": "bt709"}, {"color_range": "full"})
                for pixel_format in ("rgb24", "rgb48le")
            ),
            *(
                {"start": start, "count": count}
                for start in (0.0, 0.5, 0.51, 0.6833, 9.9)
                for count in (None, 5)
            ),
        ],
        3,
    ),
    ids=str,
)
def test_options_do_not_change_frame_numbers(video: Path, options: dict[str, Any]) -> None:
    with Decoder(video, **options) as decoder:
        check(decoder)


@given(numbers=st.lists(st.integers(-600, 599), max_size=12))
def test_a_batch_is_in_the_order_of_its_numbers(numbers: list[int]) -> None:
    decoder, frames = _long()
    batch = decoder.batch(numbers)
    assert batch.shape == (len(numbers), *decoder.shape)
    assert all(same(one, frames[number]) for one, number in zip(batch, numbers, strict=True))


_kept: list[tuple[Decoder, list[VideoFrame]]] = []


def _long() -> tuple[Decoder, list[VideoFrame]]:
    if not _kept:
        decoder = Decoder(clip("long"))
        _kept.append((decoder, list(decoder)))
    return _kept[0]


@pytest.fixture(scope="module", autouse=True)
def _close_long() -> object:
    yield
    for decoder, _ in _kept:
        decoder.close()


# --- numbers, slices and times -----------------------------------------------------------------------------------


def test_iteration_continues_after_a_frame_by_index(video: Path) -> None:
    with Decoder(video) as decoder:
        assert next(decoder).index == 0
        assert decoder[100].index == 100
        assert [frame.index for frame in decoder] == list(range(1, 600))
        assert decoder[100].index == 100


def test_slices_are_lists(video: Path) -> None:
    with Decoder(video) as decoder:
        assert [frame.index for frame in decoder[5:11:2]] == [5, 7, 9]
        assert [frame.index for frame in decoder[:-598:-1]] == list(range(599, 2, -1))
        assert decoder[700:] == []


def test_index_past_either_end_raises(video: Path) -> None:
    with Decoder(video) as decoder:
        for number in (600, -601, 10**30):
            with pytest.raises(IndexError):
                decoder[number]
            with pytest.raises(IndexError):
                decoder.batch([0, number])
    with Decoder(video, count=1) as decoder, pytest.raises(IndexError):
        decoder[1]


def test_index_that_is_no_integer_raises(video: Path) -> None:
    with Decoder(video) as decoder:
        for key in (1.0, "1", None, (1, 2)):
            with pytest.raises(TypeError):
                decoder[key]  # type: ignore[call-overload]


def test_frame_at_returns_the_frame_on_screen_at_that_time() -> None:
    with Decoder(clip("variable_mp4")) as decoder:
        frames = list(decoder)
        for frame, after in itertools.pairwise(frames):
            assert frame.time_s is not None
            assert after.time_s is not None
            assert decoder.frame_at(frame.time_s).index == frame.index
            assert decoder.frame_at((frame.time_s + after.time_s) / 2).index == frame.index
            assert decoder.frame_at(after.time_s - 2e-6).index == frame.index
            assert decoder.frame_at(after.time_s - 5e-7).index == after.index
        assert decoder.frame_at(1e9).index == len(frames) - 1


@pytest.mark.parametrize("ending", ["mp4", "ts", "flv", "mkv"])
def test_frame_at_finds_a_frame_by_its_own_time(tmp_path: Path, ending: str) -> None:
    rate = Fraction(24_000, 1001)
    path = tmp_path / f"a.{ending}"
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=64x48:r={rate}:d=2", *H264, path)
    with Decoder(path) as decoder:
        frames = decoder[:]
        assert [frame.time_s for frame in decoder] == [frame.time_s for frame in frames]
        assert frames[0].time_s == 0.0
        for frame in frames:
            assert (
                decoder.frame_at(frame.time_s).index
                == decoder.frame_at(Fraction(frame.time_s)).index
                == frame.index
            )
            assert decoder.frame_at(frame.index / rate).index == frame.index
            assert decoder.frame_at(frame.index / float(rate)).index == frame.index
    for frame in frames[::15]:
        for start in (frame.time_s, frame.index / float(rate)):
            with Decoder(path, start=start) as decoder:
                assert next(decoder).time_s == frame.time_s


def test_frame_at_before_the_first_frame_returns_the_first_frame() -> None:
    with Decoder(clip("starts_late_mkv"), start=0.1) as decoder:
        assert decoder.frame_at(0).index == 0


@pytest.mark.parametrize("start", [10, 2**64, 1e300])
def test_frame_at_raises_if_the_video_has_no_frames(video: Path, start: float) -> None:
    with Decoder(video, start=start) as decoder, pytest.raises(DecoderError):
        decoder.frame_at(0)
    with Decoder(video, start=start) as decoder, pytest.raises(DecoderError):
        next(decoder)


def test_frame_at_refuses_invalid_times(video: Path) -> None:
    with Decoder(video) as decoder:
        for time_s in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError):
                decoder.frame_at(time_s)
        for no_time in (None, "1", b"1"):
            with pytest.raises(TypeError):
                decoder.frame_at(no_time)  # type: ignore[arg-type]


@pytest.mark.parametrize("time_s", [-1, float("nan"), None, "1.0", [1.0], True])
def test_frame_at_asks_for_one_time(video: Path, time_s: Any) -> None:
    with Decoder(video) as decoder, pytest.raises((TypeError, ValueError)) as caught:
        decoder.frame_at(time_s)
    assert "time_s must be one time" in str(caught.value) and repr(time_s) in str(caught.value)


@pytest.mark.parametrize("index", [1.0, "1", None])
def test_frame_numbers_that_are_no_int_lead_to_frame_at(video: Path, index: Any) -> None:
    with Decoder(video) as decoder:
        for read in (lambda: decoder[index], lambda: decoder.batch([index])):
            with pytest.raises(TypeError) as caught:
                read()
            assert "frame_at(" in str(caught.value) and repr(index) in str(caught.value)
        if index is not None:
            for part in (slice(index, 2), slice(index), slice(0, 2, index)):
                with pytest.raises(TypeError, match="frame_at"):
                    decoder[part]


# --- where a batch goes --------------------------------------------------------------------------------------------


def test_batch_fills_the_array_that_is_passed(video: Path) -> None:
    with Decoder(video) as decoder:
        out = np.zeros((2, *decoder.shape), np.uint8)
        assert decoder.batch([5, 3], out=out) is out
        assert same(out[1], decoder[3])
        memory = bytearray(2 * decoder.frame_bytes)
        decoder.batch([5, 3], out=memoryview(memory).cast("B", (2, *decoder.shape)))
        assert bytes(memory) == out.tobytes()


def test_memory_of_batches_with_as_many_frames_is_recycled(video: Path) -> None:
    with Decoder(video) as decoder:
        kept = decoder.batch([0, 5])
        places = set()
        for _ in range(4):
            batch = decoder.batch([0, 5])
            places.add(batch.ctypes.data)
            assert same(batch, kept)
            del batch
        assert len(places) <= 2 and kept.ctypes.data not in places


def test_batch_refuses_an_array_of_another_size_type_or_access(video: Path) -> None:
    with Decoder(video) as decoder:
        with pytest.raises(ValueError):
            decoder.batch([1], out=np.zeros((2, *decoder.shape), np.uint8))
        with pytest.raises(ValueError):
            decoder.batch([1], out=np.zeros((1, *decoder.shape), np.uint16))
        with pytest.raises(BufferError):
            decoder.batch([1], out=memoryview(bytes(decoder.frame_bytes)).cast("B", (1, *decoder.shape)))
        with pytest.raises(TypeError):
            decoder.batch([1], out=[0])  # type: ignore[arg-type]


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "whole"), [("corrupt_mkv", "h264_mkv"), ("corrupt_ts", "h264_ts"), ("cut_mp4", "h264")]
)
@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_a_frame_is_right_or_an_error(damaged: str, whole: str) -> None:
    with Decoder(clip(whole)) as decoder:
        frames = {frame.pts: frame for frame in decoder}
    right, wrong = [], []
    with Decoder(clip(damaged)) as decoder:
        for number in range(len(frames)):
            try:
                frame = decoder[number]
            except IndexError:
                break
            except DecoderError:
                wrong.append(number)
            else:
                assert same(frame, frames[frame.pts]), number
                right.append(number)
        assert right
        assert wrong
        assert same(decoder.batch(right)[-1], decoder[right[-1]])
        with pytest.raises(DecoderError, match=f"frame {wrong[0]}"):
            decoder.batch([right[0], wrong[0]])


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_frame(threads: int) -> None:
    with (
        Decoder(clip("long")) as many,
        Decoder(clip("long"), settings=DecoderSettings(threads=threads)) as few,
    ):
        assert ("one thread" in few.engine.reason) == (threads == 1)
        assert same(few[250], many[250]) and same(few[3], many[3])
        assert same(next(few), next(many))


@pytest.mark.parametrize("program", [None, *ffmpegs()])
def test_threads_change_no_frame_of_theora(tmp_path: Path, program: str | None) -> None:
    path = tmp_path / "a.ogv"
    blocks = np.random.default_rng(1).integers(0, 256, (6, 30, 40, 1), np.uint8)
    write_video(path, np.kron(blocks, np.ones((1, 8, 8, 3), np.uint8)), 25)
    right = read_video(path, settings=DecoderSettings(threads=1))
    settings = DecoderSettings(ffmpeg=program, threads=16)
    # FFmpeg itself makes other pictures in one of four runs with 16 threads.
    for _ in range(16):
        assert np.array_equal(read_video(path, settings=settings), right)
        assert np.array_equal(read_video(path, settings=settings, input_options={"threads": 16}), right)


@pytest.mark.parametrize(("cut", "whole"), [("cut_mkv", "h264_mkv"), ("cut_mp4", "h264")])
def test_cut_file_raises_and_its_whole_frames_are_right(cut: str, whole: str) -> None:
    assert_told_and_right(clip(cut), clip(whole))


def test_cut_file_raises_if_only_other_streams_reach_the_end(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.flv", tmp_path / "cut.flv"
    sound = ("-f", "lavfi", "-i", "sine=duration=4")
    ffmpeg("-f", "lavfi", "-i", MOVING, *sound, "-c:v", "libx264", "-c:a", "aac", str(whole))
    data = whole.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    assert_told_and_right(cut, whole)


def assert_told_and_right(cut: Path, whole: Path) -> None:
    """A frame behind the first warns that the file was cut; and it is right, although the file was read for that."""
    with Decoder(cut) as decoder, Decoder(whole) as all_frames:
        assert same(decoder[0], all_frames[0])
        with pytest.warns(FFmpegWarning):
            assert same(decoder[1], all_frames[1])
        assert [frame.index for frame in decoder[1:4]] == [1, 2, 3]
        with pytest.raises(IndexError):
            decoder[len(all_frames) - 1]


@pytest.mark.parametrize("read", [next, lambda decoder: decoder[0], lambda decoder: decoder[5]])
def test_file_is_opened_once(read: Callable[[Decoder], VideoFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_files(monkeypatch)
    with Decoder(clip("h264")) as decoder:
        read(decoder)
    assert len(opened) == 1


def test_file_is_opened_once_for_a_batch_of_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_files(monkeypatch)
    with Decoder(clip("long")) as decoder:
        decoder.batch([3, 100, 50, 290])
    assert len(opened) == 1


def test_file_is_opened_once_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_files(monkeypatch)
    with Decoder(clip("gif")) as decoder:
        for _ in decoder:
            pass
    assert len(opened) == 1


def test_iteration_goes_on_with_its_file_lent_to_frames_by_number() -> None:
    with Decoder(clip("h264")) as whole:
        frames = list(whole)
    with Decoder(clip("h264")) as decoder:
        assert same(decoder[7], frames[7])
        read = list(decoder)
        assert all(same(one, frame) for one, frame in zip(read, frames, strict=True))
        assert same(decoder[3], frames[3])


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The files that libav opens from now on."""
    opened: list[object] = []
    really = av.open

    def note(*given: object, **how: object) -> object:
        opened.extend([given] * ("w" not in given))  # not what has no file: see `open_video`
        return really(*given, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(av, "open", note)
    return opened


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_conceal_errors_returns_damaged_frames_by_index() -> None:
    strict = Decoder(clip("corrupt_mkv"))
    with strict, Decoder(clip("corrupt_mkv"), conceal_errors=True) as decoder:
        with pytest.raises(DecoderError):
            strict[:]
        assert all(frame.shape == decoder.shape for frame in decoder[:])
        assert same(decoder[0], strict[0])


@pytest.mark.parametrize(
    "options",
    [{"filters": "hflip", "size": (64, 48)}, {"input_options": {"r": 5}}, {"follow_playlists": True}],
)
def test_frames_by_index_are_refused_with_options_for_the_ffmpeg_program(
    video: Path, options: dict[str, object]
) -> None:
    with Decoder(video, **options) as decoder:  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            decoder[0]
        assert next(decoder).index == 0


@pytest.mark.linux("FIFOs")
def test_fifo_refuses_frames_by_index(video: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.ts"
    os.mkfifo(fifo)
    data = clip("h264_ts").read_bytes()
    writer = threading.Thread(target=fifo.write_bytes, args=(data,), daemon=True)
    writer.start()
    with Decoder(fifo) as decoder, pytest.raises(ValueError):
        decoder[0]


def test_signal_handler_closes_a_decoder_that_its_thread_is_reading(tmp_path: Path) -> None:
    def closes(*_: object) -> None:
        with pytest.raises(RuntimeError):
            decoder[0]
        decoder.close()

    before = signal.signal(signal.SIGTERM, closes)
    really = OpenVideo.decode
    sent: list[object] = []

    def decode(video: OpenVideo, packet: Any) -> Any:
        sent.append(packet)
        if len(sent) == 8:
            signal.raise_signal(signal.SIGTERM)
        return really(video, packet)

    try:
        with Decoder(clip("long")) as decoder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpenVideo, "decode", decode)
            with pytest.raises(ClosedError):
                decoder.batch(range(30))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_frame_by_index_raises_after_the_file_is_replaced(video: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(video.read_bytes())
    with Decoder(path) as decoder:
        assert decoder[3].index == 3
        path.write_bytes(clip("h264").read_bytes())
        with pytest.raises(DecoderError):
            decoder[4]


def test_frames_by_index_raise_after_close(video: Path) -> None:
    decoder = Decoder(video)
    frame = decoder[3]
    decoder.close()
    decoder.close()
    assert frame.mean() > 0
    for call in (
        lambda: decoder[0],
        lambda: decoder[0:2],
        lambda: decoder.frame_at(0),
        lambda: decoder.batch([0]),
    ):
        with pytest.raises(ClosedError):
            call()


# --- what is held -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [True, False])
def test_close_or_collection_leaves_no_file_open(video: Path, closes: bool) -> None:
    with Decoder(video) as decoder:  # what the first use opens for good
        decoder[3]
    gc.collect()
    before = open_fds()
    for _ in range(3):
        decoder = Decoder(video)
        decoder.batch([3, 100, 50])
        if closes:
            decoder.close()
        del decoder
        gc.collect()
    assert eventually(lambda: open_fds().items() <= before.items())


@pytest.mark.parametrize("name", ["h264_mkv", "h264_ts", "vp8_alpha"])
def test_closing_ends_the_threads_of_libav(name: str) -> None:
    before = libav_threads()
    gc.disable()  # it would end them, too
    try:
        with Decoder(clip(name), settings=DecoderSettings(threads=3)) as decoder:
            decoder[3], decoder.frame_at(0), decoder.batch([5, 1])
            assert libav_threads() > before
        assert libav_threads() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("read", [next, lambda decoder: decoder[0]])
def test_the_first_frame_alone_starts_no_threads(read: Callable[[Decoder], VideoFrame]) -> None:
    before = libav_threads()
    with Decoder(clip("h264"), settings=DecoderSettings(threads=3)) as decoder:
        first = read(decoder)
        assert libav_threads() == before
        decoder[5]
        assert libav_threads() > before
        assert same(first, decoder.batch([0])[0])


@pytest.mark.parametrize("read", [list, lambda decoder: decoder.batch([0, 7])])
def test_a_closed_decoder_leaves_nothing_to_the_garbage_collector(read: Callable[[Decoder], object]) -> None:
    gc.collect()
    gc.disable()  # memory of frames would wait for it
    try:
        with Decoder(clip("h264")) as decoder:
            read(decoder)
        del decoder
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_several_threads_get_the_right_frames_by_index(video: Path) -> None:
    decoder, frames = _long()
    wrong: list[int] = []

    def read(seed: int) -> None:
        for number in random.Random(seed).sample(range(600), 10):
            if not same(decoder[number], frames[number]):
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


FORKS = """
import os, sys, threading
from penstock import Decoder, ClosedError
decoder = Decoder(sys.argv[1])
before, next_one = decoder[70].tobytes(), next(decoder)
if sys.argv[2] == "busy":
    threading.Thread(target=lambda: [decoder.batch(range(0, 600, 7)) for _ in range(50)], daemon=True).start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        assert decoder[70].tobytes() == before
        assert decoder.batch([70, 3])[0].tobytes() == before
        try:
            next(decoder)
        except ClosedError:
            os.environ["SAID"] = "closed"
        if sys.argv[3] == "collects":
            del decoder
        sys.exit(0 if os.environ["SAID"] == "closed" else 1)
    assert os.waitpid(child, 0)[1] == 0
assert decoder[70].tobytes() == before
os._exit(0)
"""


@pytest.mark.linux("forks")
@pytest.mark.parametrize(("parent", "ends"), [("idle", "exits"), ("busy", "collects")])
def test_forked_child_reopens_the_file(video: Path, parent: str, ends: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, str(video), parent, ends], capture_output=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()


def test_pickled_decoder_reopens_its_file(video: Path) -> None:
    with Decoder(video, pixel_format="gray", start=1.0, count=50) as decoder:
        frame = decoder[7]
        for other in (pickle.loads(pickle.dumps(decoder)), copy.copy(decoder)):
            with other:
                assert same(other[7], frame)
                assert other[7].time_s == frame.time_s


LOADS = """
import multiprocessing, sys
from penstock import Decoder

def mean(decoder, number):
    return float(decoder[number].mean())

if __name__ == "__main__":
    with Decoder(sys.argv[1]) as decoder:
        wanted = [(decoder, number) for number in (5, 300, 77)]
        with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
            assert pool.starmap(mean, wanted) == [mean(*one) for one in wanted]
"""


@pytest.mark.parametrize("method", [pytest.param("fork", marks=pytest.mark.linux("forks")), "spawn"])
def test_data_loader_workers_read_frames_by_index(video: Path, tmp_path: Path, method: str) -> None:
    # In a process of its own, of which multiprocessing's helpers are no children of the tests'.
    script = tmp_path / "loads.py"
    script.write_text(LOADS)
    command = [sys.executable, str(script), str(video), method]
    ran = subprocess.run(command, capture_output=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr.decode()


def test_pictures_are_decoded_if_a_muxer_has_moved_times(tmp_path: Path) -> None:
    """FFmpeg does so where the times of an encoder don't increase, as those of libx265 with temporal layers."""
    path, moved = tmp_path / "a.mkv", tmp_path / "moved.mkv"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=80x64:rate=25", "-frames:v", "13", "-pix_fmt", "yuv420p")
    ffmpeg(*picture, "-c:v", "libx264", "-x264-params", "bframes=2:b-pyramid=none:b-adapt=0", path)
    with av.open(path) as file, av.open(moved, "w") as copy_of_it:
        stream = copy_of_it.add_stream_from_template(file.streams.video[0])
        for number, packet in enumerate(file.demux(video=0)):
            if packet.size:
                packet.pts = 81 if packet.pts == 40 else packet.pts
                packet.dts, packet.stream = number, stream
                copy_of_it.mux(packet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # times that go back
        with Decoder(moved) as decoder:
            frames = list(decoder)
        assert [round(1000 * frame.time_s) for frame in frames[:4]] == [0, 81, 80, 120]
        for number in range(13):
            with Decoder(moved) as decoder:
                assert np.array_equal(decoder.batch([number, 12])[0], frames[number])
