"""Damage at random places: it is told where it can be, the frames before it are right, and threads change nothing."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.clips import FFV1, H264_B, H265, PRORES, as_, list_packets, moving
from support.media import ffmpeg

from penstock import Decoder, DecoderError
from penstock.video import DecoderSettings

# Files, and what FFmpeg makes them by.
FILES = {
    "h264.mp4": (*H264_B, *as_("yuv420p")),
    "h264.mkv": (*H264_B, *as_("yuv420p")),
    "h264.ts": (*H264_B, *as_("yuv420p")),
    "h264.avi": (*H264_B, *as_("yuv420p")),
    "h265.mp4": (*H265, *as_("yuv420p")),
    "mpeg4.avi": ("-c:v", "mpeg4", "-g", "12", "-bf", "2", "-q:v", "4"),
    "mpeg2.ts": ("-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-q:v", "4"),
    "prores.mov": (*PRORES, *as_("yuv422p10le")),
    "ffv1.mkv": (*FFV1, "-g", "1", *as_("yuv420p")),
}
KINDS = ("zeros", "empty", "tail")


class Outcome(NamedTuple):
    """Frames, and why there were no more; None if nothing was wrong."""

    frames: list[bytes]
    reason: str | None
    warnings: list[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    for name, arguments in FILES.items():
        ffmpeg(*moving((128, 96), 30), *arguments, folder / name)
    ffmpeg("-ss", "0.3", "-i", folder / "h264.mp4", "-c", "copy", folder / "edited.mp4")
    return folder


def outcome(path: Path, threads: int, **options: bool) -> Outcome:
    frames: list[bytes] = []
    reason = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with Decoder(path, settings=DecoderSettings(threads=threads), **options) as decoder:  # type: ignore[arg-type]
                frames.extend(frame.tobytes() for frame in decoder)
        except DecoderError as error:
            reason = str(error)
    return Outcome(frames, reason, [str(one.message) for one in told])


def zeroed(path: Path, start: int, size: int) -> Path:
    data = path.read_bytes()
    changed = path.with_name(f"{start}_{size}_{path.name}")
    changed.write_bytes(data[:start] + bytes(size) + data[start + size :])
    return changed


def damaged(path: Path, kind: str, seed: int) -> Path:
    """The file with zeros in a packet, for all of its bytes, or from its middle to its end."""
    start, size = random.Random(f"{path.name} {kind} {seed}").choice(list_packets(path)[2:-2])
    if kind == "zeros":
        return zeroed(path, start + size // 2, min(64, size // 2))
    if kind == "tail":
        return zeroed(path, start + size // 2, size - size // 2)
    return zeroed(path, start, size)


@pytest.mark.parametrize("name", [*FILES, "edited.mp4"])
@pytest.mark.parametrize("kind", KINDS)
def test_frames_before_damage_are_right_with_any_number_of_threads(
    folder: Path, name: str, kind: str
) -> None:
    whole = outcome(folder / name, 1)
    assert whole.reason is None
    path = damaged(folder / name, kind, 0)
    by_threads = [outcome(path, threads) for threads in (1, 2, 4)]
    assert by_threads[0] == by_threads[1] == by_threads[2]
    found = by_threads[0]
    if found.reason is not None and "damaged at byte" in found.reason:
        assert (
            kind == "empty" and path.suffix == ".mkv"
        )  # libav passes over it, and the file shows it at its end
    elif found.reason is not None:
        assert found.frames == whole.frames[: len(found.frames)]
        with Decoder(path) as decoder:
            for number in {0, len(found.frames) - 1} - {-1} if path.suffix != ".avi" else ():
                assert decoder[number].tobytes() == found.frames[number]


@pytest.mark.parametrize("name", ["h264.mp4", "h264.mkv", "h264.ts", "h265.mp4", "prores.mov", "ffv1.mkv"])
def test_emptied_packet_raises(folder: Path, name: str) -> None:
    assert outcome(damaged(folder / name, "empty", 1), 4).reason is not None


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_damage_in_a_packet_hidden_by_an_edit_list_raises(folder: Path, threads: int) -> None:
    start, size = list_packets(folder / "edited.mp4")[0]
    path = zeroed(folder / "edited.mp4", start + size // 2, size // 4)
    found = outcome(path, threads)
    assert found.reason is not None and not found.frames
    with Decoder(path, settings=DecoderSettings(threads=threads)) as decoder:
        with pytest.raises(DecoderError):
            decoder[0]
        with pytest.raises(DecoderError):
            decoder.batch([0, 1])


def test_damage_at_the_first_frame_raises(folder: Path) -> None:
    start, size = list_packets(folder / "h264.mp4")[0]
    path = zeroed(folder / "h264.mp4", start + size // 2, size // 4)
    assert [len(outcome(path, threads).frames) for threads in (1, 2, 4)] == [0, 0, 0]
    assert outcome(path, 2).reason is not None


def test_concealed_damage_is_the_same_with_any_number_of_threads(folder: Path) -> None:
    path = folder / "h264.mkv"
    for start, size in list_packets(path)[12::24]:
        path = zeroed(path, start + size // 2, size // 4)
    found = [outcome(path, threads, conceal_errors=True) for threads in (1, 2, 4)]
    assert found[0] == found[1] == found[2]
    assert found[0].reason is None and len(found[0].frames) > 12
    assert np.frombuffer(found[0].frames[0], np.uint8).any()
