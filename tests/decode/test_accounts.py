"""One account of a video's frames: in sequence, by number, by time, from a `start` and counted they are the same."""

from __future__ import annotations

import random
import re
import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.cases import ffmpegs, needs
from support.clips import clip, list_packets
from support.media import ffmpeg

from penstock import Decoder, DecoderError, FFmpegWarning, probe, read_video
from penstock._decoding.open_video import OpenVideo
from penstock._ffmpeg.program.capabilities import version_numbers
from penstock.video import find_ffmpeg

pytestmark = pytest.mark.filterwarnings("ignore:.*only returns the frames before:penstock.FFmpegWarning")
# Beside the repository, or a worktree of it, on machines that have it.
MEDIA = next(
    (one for folder in Path(__file__).parents if (one := folder / "shared" / "media").is_dir()), Path("media")
)
H264 = (
    "-c:v",
    "libx264",
    "-preset",
    "veryfast",
    "-pix_fmt",
    "yuv420p",
    "-g",
    "12",
    "-bf",
    "2",
    "-threads",
    "1",
)


def media(name: str) -> Path:
    """A real file that nobody made for these tests."""
    if not (MEDIA / name).exists():
        pytest.skip(f"there is no {MEDIA / name}")
    return MEDIA / name


def made(path: Path, *arguments: str, source: str = "testsrc2=s=64x48:r=25:d=2") -> Path:
    ffmpeg("-f", "lavfi", "-i", source, *arguments, "-y", path)
    return path


def ends(path: Path, **options: Any) -> tuple[list[bytes], list[Any], str | None]:
    """The frames in sequence, their times, and why there are no more."""
    frames, times, reason = [], [], None
    with Decoder(path, pixel_format="source", **options) as decoder:
        try:
            for frame in decoder:
                frames.append(frame.tobytes())
                times.append(frame.time_s)
        except DecoderError as error:
            reason = str(error)
    return frames, times, reason


def check(path: Path, frames: int, *, is_whole: bool = True, most: int = 25) -> list[Any]:
    """Iteration gives so many frames, and the same ones come by number and by time. Returns the times."""
    found, times, reason = ends(path)
    assert len(found) == frames and (reason is None) == is_whole, reason
    numbers = random.Random(1).sample(range(frames), min(frames, most))
    with Decoder(path, pixel_format="source") as decoder:
        for number in numbers:
            frame = decoder[number]
            assert (frame.index, frame.time_s, frame.tobytes()) == (number, times[number], found[number])
            if times == sorted(set(times)):
                assert decoder.frame_at(times[number]).index == number
        if is_whole:
            assert len(decoder) == decoder.count_frames() == frames
    if is_whole and frames > 2:
        with Decoder(path, pixel_format="source", start=times[frames // 2]) as decoder:
            assert [one.tobytes() for one in decoder] == found[frames // 2 :]
    return times


# Videos of 50 frames, and what FFmpeg makes them by.
MADE = {
    "b_frames.avi": H264,
    "raw.h264": H264,
    "b_frames.mpg": ("-c:v", "mpeg2video", "-bf", "2", "-g", "12"),
    "interlaced.ts": (*H264, "-flags", "+ilme+ildct"),
    "interlaced.m2v": ("-c:v", "mpeg2video", "-bf", "2", "-flags", "+ilme+ildct"),
    "mpeg4.avi": ("-c:v", "mpeg4", "-bf", "2", "-g", "12"),
    "mjpeg.avi": ("-c:v", "mjpeg"),
    "a.wmv": ("-c:v", "wmv2"),
    "a.rm": ("-c:v", "rv20"),
    "hidden.webm": ("-c:v", "libvpx", "-b:v", "100k", "-lag-in-frames", "25", "-auto-alt-ref", "1"),
    "b_frames.mxf": H264,
    "a.flv": H264,
}


@pytest.mark.parametrize("name", MADE)
def test_number_is_the_place_in_iteration(tmp_path: Path, name: str) -> None:
    check(made(tmp_path / name, *MADE[name]), 50)


def made_with_hidden_frames(path: Path, codec: str) -> Path:
    options = ("-c:v", codec, "-b:v", "100k", "-lag-in-frames", "25", "-auto-alt-ref", "1")
    log = ("-passlogfile", str(path.with_suffix(".log")))
    made(path, *options, *log, "-pass", "1")
    return made(path, *options, *log, "-pass", "2")


@pytest.mark.parametrize("ending", ["nut", "avi"])
@pytest.mark.parametrize(("codec", "split"), [("libvpx", "null"), ("libvpx-vp9", "vp9_superframe_split")])
def test_a_hidden_packet_with_a_time_of_its_own_is_no_frame(
    tmp_path: Path, codec: str, split: str, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    ffmpeg("-i", made_with_hidden_frames(tmp_path / "a.webm", codec), "-c", "copy", "-bsf:v", split, path)
    assert len(list_packets(path)) > 50
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the header says", FFmpegWarning)  # FFmpeg counts packets in AVI
        check(path, 50)


def test_a_packet_that_has_lost_its_shown_frame_is_damaged(tmp_path: Path) -> None:
    path = made_with_hidden_frames(tmp_path / "a.webm", "libvpx-vp9")
    with av.open(str(path)) as file:
        merged = [bytes(one) for one in file.demux(video=0) if one.size and bytes(one)[-1] >> 5 == 0b110]
    path.write_bytes(path.read_bytes().replace(merged[0], merged[0][:-1] + b"\0"))
    found, _, reason = ends(path)
    assert reason is not None and len(found) < 50


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("fields-in-ts.mts", 31),
        ("fields.264", 10),
        ("fields-100.264", 100),
        ("interlaced.m2v", 7),
        ("hidden-packet.webm", 4),
        ("size-changes.mp4", 4),
    ],
)
def test_number_is_the_place_in_iteration_of_real_files(name: str, frames: int) -> None:
    check(media(name), frames, most=6)


def test_wrong_times_in_the_container_change_no_number() -> None:
    check(media("wrong-times.flv"), 359, most=3)


def test_filters_of_a_file_that_begins_inside_a_gop_warn_of_its_first_frames(tmp_path: Path) -> None:
    path = tmp_path / "inside.mkv"
    ffmpeg(
        "-ss",
        "0.2",
        "-i",
        clip("h264_mkv"),
        "-c",
        "copy",
        "-copyinkf",
        "-bsf:v",
        "noise=drop=not(n)",
        path,
    )
    with Decoder(path, filters="null") as decoder, pytest.warns(FFmpegWarning, match="middle of a GOP"):
        list(decoder)


def test_errors_that_strict_decoding_invents_are_none() -> None:
    with pytest.warns(FFmpegWarning, match="middle of a GOP"):
        check(media("begins-inside.ts"), 17, most=6)


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_a_frame_that_lacks_lines_of_one_field_is_damaged() -> None:
    path = media("one-bad-slice.ts")  # whose last packet is cut
    frames, _, reason = ends(path)
    assert reason is not None and len(frames) == 30
    with Decoder(path) as decoder, pytest.raises(DecoderError, match="frame 30"):
        decoder[30]
    assert len(ends(path, conceal_errors=True)[0]) == 31


@pytest.mark.parametrize("lacks", ["a few slices", "all slices", "its head"])
def test_a_raw_stream_that_is_cut_in_a_second_field_raises(tmp_path: Path, lacks: str) -> None:
    whole = media("interlaced.m2v").read_bytes()
    fields = [place.start() for place in re.finditer(rb"\x00\x00\x01\x00", whole)]
    ends_at = {"a few slices": fields[6] - 3000, "all slices": fields[5] + 40, "its head": fields[5]}[lacks]
    (tmp_path / "cut.m2v").write_bytes(whole[:ends_at])
    frames, _, reason = ends(tmp_path / "cut.m2v")
    assert reason is not None and len(frames) == 2


@pytest.mark.parametrize("ending", ["mov", "avi"])
def test_a_palette_that_is_told_once_is_that_of_all_numbers(tmp_path: Path, ending: str) -> None:
    needs(ffmpegs()[-1], "msrle")
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=2", "-g", "6")
    ffmpeg(*source, "-c:v", "msrle", tmp_path / f"a.{ending}", program=ffmpegs()[-1])
    check(tmp_path / f"a.{ending}", 50)


def test_frames_have_times_where_nothing_tells_times_or_a_rate(tmp_path: Path) -> None:
    needs(ffmpegs()[-1], "libopenh264")
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.4", "-c:v", "libopenh264")
    ffmpeg(*source, tmp_path / "a.mpg", program=ffmpegs()[-1])
    assert ends(tmp_path / "a.mpg")[1] == pytest.approx([number / 25 for number in range(10)])


@pytest.mark.parametrize("ending", ["ts", "flv"])
def test_frames_before_the_first_keyframe_begin_at_0(tmp_path: Path, ending: str) -> None:
    needs(ffmpegs()[-1], "libvvenc")
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.5", "-pix_fmt", "yuv420p10le")
    encoder = ("-c:v", "libvvenc", "-preset", "faster", "-g", "8")
    path = tmp_path / f"a.{ending}"
    ffmpeg(*source, *encoder, path, program=ffmpegs()[-1])
    with Decoder(path) as decoder:
        assert decoder.file.zero_s == probe(path).zero_s
        assert [frame.time_s for frame in decoder] == pytest.approx([number / 25 for number in range(13)])


def test_fields_of_a_raw_stream_are_shown_at_the_rate_that_the_stream_states() -> None:
    times = ends(media("fields-100.264"))[1]
    assert times == pytest.approx([number / 25 for number in range(100)])


def test_fields_in_avi_have_the_same_numbers(tmp_path: Path) -> None:
    ffmpeg("-i", media("fields.264"), "-c", "copy", tmp_path / "a.avi")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FFmpegWarning)
        check(tmp_path / "a.avi", 10)


@pytest.mark.parametrize("options", [(), ("-movflags", "frag_keyframe+empty_moov")])
def test_fields_in_mp4_are_no_frames(tmp_path: Path, options: tuple[str, ...]) -> None:
    ffmpeg("-i", media("fields-in-ts.mts"), "-map", "0:v", "-c", "copy", *options, tmp_path / "a.mp4")
    with Decoder(tmp_path / "a.mp4") as decoder, suppress(TypeError):
        assert len(decoder) == 31
    check(tmp_path / "a.mp4", 31)


@pytest.mark.parametrize(
    ("name", "frames"), [("bad-end.ps", 77), ("cut.rm", 174), ("cut.cpk", 9), ("cut.dfa", 14)]
)
def test_frames_before_damage_come_in_sequence_and_by_number_of_real_files(name: str, frames: int) -> None:
    check(media(name), frames, is_whole=False, most=8)


def damage(path: Path, number: int) -> None:
    """Writes zeros over the second half of a packet."""
    position, size = list_packets(path)[number]
    data = bytearray(path.read_bytes())
    data[position + size // 2 : position + size] = bytes(size - size // 2)
    path.write_bytes(data)


def damage_last(path: Path) -> None:
    damage(path, -1)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])


@pytest.mark.parametrize(("name", "harm", "frames"), [("mpeg4.avi", damage_last, 49), ("a.rm", cut, None)])
def test_frames_before_damage_come_in_sequence_and_by_number(
    tmp_path: Path, name: str, harm: Callable[[Path], None], frames: int | None
) -> None:
    path = made(tmp_path / name, *MADE[name])
    harm(path)
    found, _, reason = ends(path)
    assert reason is not None and len(found) > 30 and frames in (None, len(found))
    check(path, len(found), is_whole=False)
    if frames is not None:
        with Decoder(path) as decoder, pytest.raises(DecoderError, match=f"frame {frames}"):
            decoder[frames]


def test_frames_of_other_groups_come_by_number_beside_damage(tmp_path: Path) -> None:
    path = made(tmp_path / "a.avi", "-c:v", "mpeg4", "-bf", "2", "-g", "12")
    whole = ends(path)[0]
    damage(path, 18)
    assert 12 < len(ends(path)[0]) < 24
    right = []
    with Decoder(path, pixel_format="source") as decoder:
        for number in range(50):
            try:
                frame = decoder[number]
            except DecoderError:
                continue
            assert frame.tobytes() == whole[number]
            right.append(number)
    assert {*range(12), *range(26, 50)} <= {*right} and len(right) < 50


def test_times_of_mpeg_ts_go_on_after_26_hours(tmp_path: Path) -> None:
    source = "color=black:s=16x16:r=1/600,geq=lum='16+N':cb=128:cr=128"
    arguments = (
        "-frames:v",
        "162",
        "-c:v",
        "libx264",
        "-crf",
        "1",
        "-preset",
        "ultrafast",
        "-pix_fmt",
        "yuv420p",
    )
    path = made(tmp_path / "a.ts", *arguments, "-g", "10", source=source)
    assert check(path, 162) == pytest.approx([600 * number for number in range(162)])


def test_frames_of_mxf_whose_times_are_those_of_decoding_are_shown_evenly(tmp_path: Path) -> None:
    times = check(made(tmp_path / "a.mxf", *H264, source="testsrc=s=64x48:r=30:d=2"), 60)
    assert times == pytest.approx([number / 30 for number in range(60)])


@pytest.mark.parametrize(
    ("ending", "codec", "options"),
    [
        ("m1v", "mpeg1video", {"start": 0.3}),
        ("m2v", "mpeg2video", {}),
        ("h264", "libx264", {}),
        ("h264", "libx264", {"isolated": True}),
        ("h264", "libx264", {"start": 0.3}),
        ("mxf", "libx264", {}),
        ("avi", "mpeg1video", {}),
        ("avi", "mpeg1video", {"start": 0.3}),
    ],
)
def test_filters_keep_the_times_of_frames_whose_times_are_made_up(
    tmp_path: Path, ending: str, codec: str, options: dict[str, Any]
) -> None:
    source = "testsrc=s=64x48:r=30:d=1"
    path = made(tmp_path / f"a.{ending}", "-c:v", codec, "-bf", "2", "-pix_fmt", "yuv420p", source=source)
    first = 9 if "start" in options else 0
    frames, times, reason = ends(path, filters="null", **options)
    assert times == pytest.approx([number / 30 for number in range(first, 30)]) and reason is None
    assert frames == ends(path)[0][first:]


@pytest.mark.parametrize("every", [1, 2])
def test_frames_of_mpeg_2_that_are_shown_again_last_longer(tmp_path: Path, every: int) -> None:
    path = made(tmp_path / "a.m2v", "-c:v", "mpeg2video", "-pix_fmt", "yuv420p", source="testsrc=r=30:d=0.8")
    stream = bytearray(path.read_bytes())
    extensions = [one.start() for one in re.finditer(b"\0\0\1\xb5[\x80-\x8f]", stream)]
    assert len(extensions) == 24
    for at in extensions[::every]:
        stream[at + 7] |= 0b10  # repeat_first_field (H.262, 6.2.3.1)
    path.write_bytes(stream)
    durations = np.resize([2, 1][:every], 24)
    times = [int(count) / 30 for count in np.cumsum(durations) - durations]
    assert check(path, 24) == pytest.approx(times)
    with Decoder(path, filters="null") as decoder:
        filtered = [frame.time_s for frame in decoder]
        rate = decoder.stream.frame_rate
    # Of the last frame, FFmpeg 5.1 counts no field that is shown again.
    known = len(times) - (version_numbers(find_ffmpeg()) < (7,))
    assert len(filtered) == len(times) and filtered[:known] == pytest.approx(times[:known])
    assert (rate, decoder.stream.is_variable_frame_rate) == (30 / np.mean(durations), every > 1)


@pytest.mark.parametrize("options", [{}, {"start": 0.31}])
def test_filters_keep_the_pauses_of_frames_that_are_not_reordered(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    source = "testsrc=s=64x48:r=30:d=1,select='not(between(n,18,20))'"
    path = tmp_path / "a.mpg"
    made(path, "-c:v", "mpeg2video", "-fps_mode", "passthrough", "-pix_fmt", "yuv420p", source=source)
    frames, times, _ = ends(path, filters="null", **options)
    assert (frames, times) == ends(path, **options)[:2]
    assert len(times) == (18 if options else 27)


@pytest.mark.parametrize(("ending", "codec"), [("avi", "mpeg1video"), ("wmv", "mpeg2video")])
def test_the_first_frame_is_not_early_where_the_container_has_times_of_decoding_only(
    tmp_path: Path, ending: str, codec: str
) -> None:
    path = made(tmp_path / f"a.{ending}", "-c:v", codec, "-bf", "2", source="testsrc=s=64x48:r=25:d=1")
    assert check(path, 25) == pytest.approx([number / 25 for number in range(25)])
    with Decoder(path, start=0.161, filters="null") as decoder:
        assert next(decoder).time_s == pytest.approx(0.16)


@pytest.mark.parametrize("options", [{}, {"isolated": True}, {"filters": "null"}])
@pytest.mark.parametrize("pixel_format", ["rgb24", "gray"])
def test_columns_that_a_codec_hides_at_the_left_are_not_returned(
    tmp_path: Path, pixel_format: str, options: dict[str, Any]
) -> None:
    whole = made(tmp_path / "whole.mp4", *H264, source="testsrc2=s=64x48:r=25:d=0.2")
    path = tmp_path / "a.mp4"
    ffmpeg("-i", whole, "-c", "copy", "-bsf:v", "h264_metadata=crop_left=10:crop_top=4:crop_right=2", path)
    with Decoder(whole, pixel_format=pixel_format) as decoder:
        wanted = [frame[4:, 10:62] for frame in decoder]
    with Decoder(path, pixel_format=pixel_format, **options) as decoder:
        assert decoder.size == (52, 44)
        for frame, picture in zip(decoder, wanted, strict=True):
            assert np.array_equal(frame, picture)


def test_times_that_go_back_lead_to_the_same_frames_everywhere(tmp_path: Path) -> None:
    """Two transport streams in one file, with the counters of a single one."""
    part = made(tmp_path / "part.ts", *H264, source="testsrc2=s=64x48:r=25:d=1").read_bytes()
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    joined = bytearray(2 * part)
    for at in range(0, len(joined), 188):
        pid, counter = int.from_bytes(joined[at + 1 : at + 3]) & 0x1FFF, joined[at + 3] & 15
        if at < len(part):
            last[pid] = counter
        else:
            counter = (counter - first.setdefault(pid, counter) + last[pid] + 1) & 15
            joined[at + 3] = joined[at + 3] & 0xF0 | counter
    path = tmp_path / "joined.ts"
    path.write_bytes(joined)
    frames, times, reason = ends(path)
    assert len(frames) == 50 and reason is None and times[:25] == times[25:]
    with Decoder(path, pixel_format="source") as decoder:
        assert [decoder.frame_at(time_s).index for time_s in (0.5, 0.96, 100)] == [12, 24, 49]
    for start, number in ((0.5, 12), (0.96, 24)):
        with Decoder(path, pixel_format="source", start=start) as decoder:
            assert [one.tobytes() for one in decoder] == frames[number:]
        with Decoder(path, pixel_format="source", start=start) as decoder:
            assert decoder[0].tobytes() == frames[number]


def test_motion_jpeg_in_avi_without_audio_has_as_many_frames_as_its_header_says(tmp_path: Path) -> None:
    path = made(tmp_path / "a.avi", "-c:v", "mjpeg")
    data = path.read_bytes()
    at = data.index(b"00dc", data.index(b"movi") + 8)
    index = data.index(b"idx1")
    path.write_bytes(data[:at] + b"JUNK" + data[at + 4 : index] + b"JUNK" + data[index + 4 :])
    with pytest.warns(FFmpegWarning, match="header says 50 frames"), Decoder(path) as decoder:
        assert len(list(decoder)) == 49


def with_edits(path: Path, entries: list[tuple[int, int, int, int]]) -> Path:
    """An MP4 file of FFmpeg's with another edit list (ISO/IEC 14496-12, 8.6.6), whose header is its end."""
    data = bytearray(path.read_bytes())

    def box(kind: bytes, inside: tuple[int, int]) -> tuple[int, int]:
        at, end = inside
        while data[at + 4 : at + 8] != kind:
            at += int.from_bytes(data[at : at + 4])
            assert at < end
        return at, at + int.from_bytes(data[at : at + 4])

    moov = box(b"moov", (0, len(data)))
    trak = box(b"trak", (moov[0] + 8, moov[1]))
    edts = box(b"edts", (trak[0] + 8, trak[1]))
    table = struct.pack(">4sII", b"elst", 0, len(entries)) + b"".join(
        struct.pack(">iihh", *one) for one in entries
    )
    new = struct.pack(">I4sI", 12 + len(table), b"edts", 4 + len(table)) + table
    data[slice(*edts)] = new
    for start, end in (moov, trak):
        data[start : start + 4] = (end - start + len(new) - (edts[1] - edts[0])).to_bytes(4)
    path.write_bytes(data)
    return path


def test_gap_in_an_edit_list_that_libav_fills_warns(tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4", *H264)
    # Durations in 1/1000 s, and times in the units of the video: 16 frames, 0.6 s of nothing, and the other frames.
    with_edits(path, [(640, 1024, 1, 0), (600, -1, 1, 0), (1360, 1024 + 16 * 512, 1, 0)])
    with Decoder(path) as decoder, pytest.warns(FFmpegWarning, match="header says 50 frames"):
        assert len(list(decoder)) > 50


def test_frames_after_a_block_of_no_track_are_not_lost_silently(tmp_path: Path) -> None:
    path = made(tmp_path / "a.webm", "-c:v", "libvpx-vp9", "-b:v", "100k", "-g", "60")
    data = bytearray(path.read_bytes())
    position = list_packets(path)[25][0]
    assert data[position] == 0x81  # the track of a SimpleBlock (RFC 9559, 5.1.3.4)
    data[position : position + 8] = bytes(8)
    path.write_bytes(data)
    with Decoder(path) as decoder, pytest.raises(DecoderError, match="damaged at byte"):
        list(decoder)


def test_counting_says_what_it_costs(tmp_path: Path) -> None:
    """`list` and `tqdm` ask `len` first: it never decodes the file, and it knows what decoding has shown."""
    path = made(tmp_path / "a.avi", *H264)
    with Decoder(path) as decoder:
        with pytest.raises(TypeError, match="count_frames"):
            len(decoder)
        assert decoder.count_frames() == len(decoder) == 50
    with Decoder(path) as decoder:
        assert len(list(decoder)) == len(decoder) == 50
    with Decoder(path, start=1.0, count=7) as decoder:
        assert decoder.count_frames() == len(decoder) == 7
    with Decoder(path, filters="hflip") as decoder, pytest.raises(ValueError):
        decoder.count_frames()


def test_file_is_decoded_once_whatever_is_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where counting takes a decode, `len` refuses, so that `list` and `tqdm` don't decode for it."""
    path, decoded = made(tmp_path / "a.avi", *H264), []
    decode = OpenVideo.decode

    def counted(self: OpenVideo, packet: Any) -> Any:
        decoded.append(packet)
        return decode(self, packet)

    monkeypatch.setattr(OpenVideo, "decode", counted)
    with Decoder(path) as decoder:
        assert len(list(decoder)) == 50
        assert len(decoded) == 51  # and one call for the end of the file
        assert len(decoder) == decoder.count_frames() == 50 and len(decoded) == 51
    del decoded[:]
    assert len(read_video(path)) == 50 and len(decoded) == 51
    del decoded[:]
    with Decoder(path) as decoder:
        before = len(decoded)  # the first frame
        assert decoder.count_frames() == len(decoder) == 50
        assert len(decoded) == before + 51


@pytest.mark.parametrize("ending", ["ts", "mkv"])
def test_frames_before_the_first_keyframe_that_need_no_other_have_numbers(
    tmp_path: Path, ending: str
) -> None:
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.8", "-pix_fmt", "yuv420p", "-c:v", "libx265")
    leading = "log-level=none:radl=2:open-gop=0:keyint=8:min-keyint=8:bframes=4:b-adapt=0"
    ffmpeg(*source, "-x265-params", leading, tmp_path / "whole.ts")
    with av.open(str(tmp_path / "whole.ts")) as whole, av.open(str(tmp_path / f"cut.{ending}"), "w") as cut:
        packets = [one for one in whole.demux(video=0) if one.size]
        begins = [number for number, one in enumerate(packets) if one.is_keyframe][1]
        stream = cut.add_stream_from_template(whole.streams.video[0])
        for packet in packets[begins:]:
            packet.stream = stream
            cut.mux(packet)
    check(tmp_path / f"cut.{ending}", len(packets) - begins)
