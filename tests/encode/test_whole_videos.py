"""`write_video` and `read_video`: a whole video in one call, against an `Encoder` and a `Decoder`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.clips import clip
from support.media import COLORS, SIZE, children, decode, flat, is_flat
from support.media import nothing_is_left as nothing_is_left
from support.processes import run_script, succeeded

from penstock import Decoder, DecoderError, EncoderError, _whole_videos, read_video, write_video
from penstock.video import AudioTrack

COUNT = len(COLORS)
LARGE = (1280, 960)
"""More than 18 frames of this size grow the first block of a video of unknown length."""


def frames(count: int = COUNT) -> Iterator[np.ndarray]:
    return (flat(index) for index in range(count))


@pytest.mark.parametrize(
    "made",
    [
        lambda: np.stack([*frames()]),
        lambda: [*frames()],
        frames,
        lambda: map(Image.fromarray, frames()),
        lambda: (memoryview(one) for one in frames()),
        lambda: pytest.importorskip("torch").from_numpy(np.stack([*frames()])),
    ],
    ids=["array", "list", "generator", "PIL", "buffers", "tensor"],
)
def test_any_iterable_of_frames_is_written(tmp_path: Path, made: Any) -> None:
    report = write_video(tmp_path / "video.mp4", made(), 30)
    assert report.frames_encoded == COUNT
    assert all(is_flat(frame, index) for index, frame in enumerate(decode(tmp_path / "video.mp4")))


def test_floats_with_channels_first_are_written(tmp_path: Path) -> None:
    floats = np.stack([*frames()]).transpose(0, 3, 1, 2).astype(np.float32) / 255
    write_video(tmp_path / "video.mp4", floats, 30, value_range=(0.0, 1.0), channels_first=True)
    assert all(is_flat(frame, index) for index, frame in enumerate(decode(tmp_path / "video.mp4")))


def test_a_generator_is_streamed(tmp_path: Path) -> None:
    made_so_far: list[weakref.ref[np.ndarray]] = []
    most = 0

    def made() -> Iterator[np.ndarray]:
        nonlocal most
        for index in range(100):
            frame = flat(index)
            made_so_far.append(weakref.ref(frame))
            most = max(most, sum(one() is not None for one in made_so_far))
            yield frame

    assert write_video(tmp_path / "video.mp4", made(), 30).frames_encoded == 100
    assert most <= 2


@pytest.mark.parametrize("is_replaced", [False, True])
def test_exception_of_the_generator_leaves_what_an_encoder_leaves(tmp_path: Path, is_replaced: bool) -> None:
    def broken() -> Iterator[np.ndarray]:
        yield from frames(2)
        raise LookupError("no such star")

    video = tmp_path / "video.mp4"
    if is_replaced:
        write_video(video, frames(), 30)
    with pytest.raises(LookupError) as caught:
        write_video(video, broken(), 30)
    assert "2 frames written before" in caught.value.__notes__[0]
    written = tmp_path / "video.part.mp4" if is_replaced else video
    assert (len(decode(written)), len(decode(video))) == (2, COUNT if is_replaced else 2)


@pytest.mark.parametrize("shape", [(7, 48, 64), (7, 48, 4)])
def test_gray_frames_may_be_one_array(tmp_path: Path, shape: tuple[int, ...]) -> None:
    gray = np.zeros(shape, np.uint8)
    assert write_video(tmp_path / "video.mp4", gray, 30, pixel_format="gray").frames_encoded == 7


def test_times_of_decoded_frames_are_kept(tmp_path: Path) -> None:
    with Decoder(clip("variable_mkv")) as decoder:
        write_video(tmp_path / "video.mkv", decoder, None)
    with Decoder(clip("variable_mkv")) as source, Decoder(tmp_path / "video.mkv") as copy:
        times_s = [frame.time_s for frame in source]
        assert [frame.time_s for frame in copy] == pytest.approx(times_s, abs=0.002)
    assert len(set(np.diff(times_s).round(2))) > 1


@pytest.mark.parametrize(
    ("made", "fps", "options", "word"),
    [
        *(
            (lambda: frames(0), fps, options, "frames")
            for fps in (30, None)
            for options in ({}, {"size": SIZE})
        ),
        *(
            (lambda shape=shape: np.zeros(shape, np.uint8), 30, {}, "picture")
            for shape in ((48,), (48, 64, 3))
        ),
        (lambda: np.zeros((3, 48, 64), np.uint8), 30, {"channels_first": True}, "picture"),
        (lambda: Image.new("RGB", SIZE), 30, {}, "picture"),
        (frames, None, {}, "time"),
        (lambda: (255 - frame for frame in Decoder(clip("h264"))), None, {}, "time"),
    ],
)
@pytest.mark.parametrize("is_replaced", [False, True])
def test_invalid_frames_are_refused_and_change_no_file(
    tmp_path: Path, made: Any, fps: int | None, options: dict[str, Any], word: str, is_replaced: bool
) -> None:
    video = tmp_path / "video.mp4"
    if is_replaced:
        video.write_bytes(b"was there")
    with pytest.raises(ValueError, match=word):
        write_video(video, made(), fps, **options)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"was there"] * is_replaced


def test_arguments_are_checked_at_the_call(tmp_path: Path) -> None:
    drawn, track = frames(), AudioTrack(48_000, 2)
    wrong: list[dict[str, Any]] = [{"odd_size": "scale"}, {"audio": track}, {"audio": ["a.wav", track]}]
    for options in wrong:
        with pytest.raises(ValueError):
            write_video(tmp_path / "video.mp4", drawn, 30, **options)
    assert len(list(drawn)) == COUNT  # none was taken
    with pytest.raises(EncoderError):
        write_video(tmp_path / "video.mp4", frames(), 30, codec="nonsense")
    with pytest.raises(TypeError, match="path"):
        write_video(frames(), tmp_path / "video.mp4", 30)  # type: ignore[arg-type]
    wrong = [{"every": 0}, {"count": 0}, {"every": -1}, {"count": -1}]
    for options in wrong:
        with pytest.raises(ValueError):
            read_video(clip("h264"), **options)


PROGRESS = """
import numpy as np
frames = [np.zeros((48, 64, 3), np.uint8)] * 7
penstock.write_video(sys.argv[1], frames if sys.argv[2] == "list" else iter(frames), 30)
"""


@pytest.mark.linux("a terminal that a program holds")
@pytest.mark.parametrize(("kind", "words"), [("list", "7/7 frames"), ("iterator", "7 frames")])
def test_a_terminal_shows_a_bar_and_nothing_else_does(tmp_path: Path, kind: str, words: str) -> None:
    controlling, terminal = os.openpty()
    done = run_script(PROGRESS, tmp_path / "video.mp4", kind, stderr=terminal)
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the terminal's end
        while piece := os.read(controlling, 1 << 16):
            shown += piece
    os.close(controlling)
    assert done.returncode == 0 and words in shown.decode()
    assert succeeded(run_script(PROGRESS, tmp_path / "video.mp4", kind)) == b""


@pytest.mark.parametrize("name", ["h264", "gif", "variable_mkv", "h264_ts"])
@pytest.mark.parametrize(
    "options", [{}, {"start": 0.2}, {"pixel_format": "yuv420p"}, {"pixel_format": "gray16le"}], ids=str
)
def test_read_video_array_matches_a_decoder(name: str, options: dict[str, Any]) -> None:
    with Decoder(clip(name), **options) as decoder:
        expected = np.stack([*decoder])
    array = read_video(clip(name), **options)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(array, expected) and array.flags.owndata and array.flags.c_contiguous


@pytest.mark.parametrize("name", ["h264", "gif"])
def test_every_and_count_select_frames(name: str) -> None:
    with Decoder(clip(name)) as decoder:
        frames = np.stack([*decoder])
    for every, count in ((1, None), (2, 3), (7, None), (100, 1), (1, 1000)):
        assert np.array_equal(read_video(clip(name), every=every, count=count), frames[::every][:count])


def test_read_video_raises_on_damage(tmp_path: Path) -> None:
    with pytest.raises(DecoderError):
        read_video(clip("cut_mkv"))
    assert 0 < len(read_video(clip("cut_mkv"), conceal_errors=True)) < 30


def test_more_frames_than_the_header_says_grow_the_array(tmp_path: Path) -> None:
    with Decoder(clip("h264"), size=LARGE, filters="null") as decoder:
        first = decoder.read()
        array = _whole_videos._collected(decoder, 1, None)
    assert first is not None and len(array) == 29


def test_an_array_too_large_for_the_memory_is_refused_before_decoding(tmp_path: Path) -> None:
    video = tmp_path / "video.mp4"
    write_video(video, (np.zeros((16, 16, 3), np.uint8) for _ in range(10_000)), 30, preset="ultrafast")
    before = children()
    with pytest.raises(MemoryError) as caught:
        read_video(video, size=(16_000, 16_000))
    assert f"{10_000 * 16_000**2 * 3:,} bytes" in str(caught.value)
    assert children() == before


@pytest.mark.parametrize("filters", [None, "null"])
def test_the_limit_counts_while_frames_come(filters: str | None) -> None:
    with Decoder(clip("h264"), filters=filters) as decoder:
        frame_bytes = decoder.frame_bytes
        with pytest.raises(MemoryError):
            _whole_videos._collected(decoder, 1, 20 * frame_bytes)
    with Decoder(clip("h264"), filters=filters) as decoder:
        assert len(_whole_videos._collected(decoder, 1, 60 * frame_bytes)) == 30


PEAK = """
import resource
from penstock import read_video

options = {"size": (1280, 960), "filters": sys.argv[2] or None}
read_video(sys.argv[1], count=1, **options)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
array = read_video(sys.argv[1], **options)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / array.nbytes)
"""


@pytest.mark.parametrize("filters", ["", "null"])
def test_the_array_is_the_only_large_memory(filters: str) -> None:
    assert float(succeeded(run_script(PEAK, clip("h264"), filters))) < 1.4
