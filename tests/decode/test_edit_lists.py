"""MP4 files whose header promises something else than libav reads: edit lists with pauses, and missing fragments."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import pytest
from support import media
from support.real_files import real_file

from penstock import AudioDecoder, Decoder, FFmpegWarning
from penstock.errors import DecoderError

_SOURCE = (
    "-f",
    "lavfi",
    "-i",
    "testsrc=s=64x48:r=10:d=1",
    "-pix_fmt",
    "yuv420p",
    "-c:v",
    "libx264",
    "-bf",
    "0",
)
_UNITS = 10_240  # of the times of the media, a second


def _edited(path: Path, *entries: tuple[int, int, int]) -> Path:
    """A file of ten frames with an edit list of durations in ms, times of the media, and rates."""
    media.ffmpeg(*_SOURCE, "-g", "1", path)
    data = path.read_bytes()
    packed = b"".join(struct.pack(">iiHH", *entry, 0) for entry in entries)
    at = data.index(b"elst") - 4
    grown = 16 + len(packed) - struct.unpack_from(">I", data, at)[0]
    changed = bytearray(data)
    for parent in (b"edts", b"trak", b"moov"):
        begins = data.rindex(parent, 0, at) - 4
        struct.pack_into(">I", changed, begins, struct.unpack_from(">I", data, begins)[0] + grown)
    box = struct.pack(">I4sII", 16 + len(packed), b"elst", 0, len(entries)) + packed
    path.write_bytes(bytes(changed[:at]) + box + bytes(changed[at + len(box) - grown :]))
    return path


@pytest.mark.parametrize("middle", [(500, -1, 1), (500, _UNITS // 2, 0)], ids=["gap", "hold"])
@pytest.mark.parametrize("options", [{}, {"isolated": True}])
def test_a_pause_in_an_edit_list_warns(
    tmp_path: Path, middle: tuple[int, int, int], options: dict[str, bool]
) -> None:
    path = _edited(tmp_path / "a.mp4", (500, 0, 1), middle, (500, _UNITS // 2, 1))
    with Decoder(path, **options) as decoder, pytest.warns(FFmpegWarning, match="edit list"):
        list(decoder)


@pytest.mark.parametrize("options", [{}, {"isolated": True}])
def test_a_pause_in_an_edit_list_warns_by_number(tmp_path: Path, options: dict[str, bool]) -> None:
    path = _edited(tmp_path / "a.mp4", (500, 0, 1), (500, -1, 1), (500, _UNITS // 2, 1))
    with Decoder(path, **options) as decoder:
        with pytest.warns(FFmpegWarning, match="edit list"):
            decoder[-1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decoder[3]


def test_other_edit_lists_are_read_without_a_warning(tmp_path: Path) -> None:
    lists = [((1000, 0, 1),), ((600, _UNITS // 5, 1),), ((500, -1, 1), (1000, 0, 1))]
    for entries, frames in zip(lists, (10, 6, 10), strict=True):
        path = _edited(tmp_path / "a.mp4", *entries)
        with Decoder(path) as decoder, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len([*decoder]) == frames


def test_the_first_fragments_of_a_longer_file_are_said_to_be() -> None:
    path, count = real_file("first-segments.mp4"), 0
    with Decoder(path) as decoder, pytest.raises(DecoderError, match="first fragments"):
        for _ in decoder:
            count += 1
    with Decoder(path, count=count) as decoder:
        assert len([*decoder]) == 240


def test_a_file_cut_in_a_fragment_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(real_file("first-segments.mp4").read_bytes()[:-1000])
    with Decoder(path) as decoder, pytest.raises(DecoderError) as failure:
        list(decoder)
    assert "first fragments" not in str(failure.value)


@pytest.mark.parametrize("options", [{}, {"filters": "null"}, {"filters": "null", "isolated": True}], ids=str)
def test_a_file_cut_in_the_sound_of_a_fragment_is_damaged(options: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    sound = ("-f", "lavfi", "-i", "sine=d=1", "-g", "5", "-movflags", "frag_keyframe+empty_moov")
    media.ffmpeg(*_SOURCE[:4], *sound, *_SOURCE[4:], path)
    data = path.read_bytes()
    second = data.index(b"moof", data.index(b"moof") + 4) - 4
    sizes = (second - 100, second + 100, data.index(b"mdat", second) - 2)
    for size in sizes[: 1 if "isolated" in options else None]:
        path.write_bytes(data[:size])
        # libav of PyAV 19 refuses some already when they are opened.
        with pytest.raises(DecoderError), Decoder(path, **options) as decoder:  # type: ignore[arg-type]
            list(decoder)
        with pytest.raises(DecoderError), AudioDecoder(path) as audio:
            audio.read_all()
