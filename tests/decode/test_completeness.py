"""Whether all frames of a file were given: damage, cuts and wrong headers are told, and nothing of an ordinary file."""

from __future__ import annotations

import itertools
import random
import struct
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.cases import ISOLATED, a_few
from support.clips import FFV1, H264, H264_B, VP9, Clip, as_, clip, list_packets, moving, sound
from support.clips import _make as make
from support.engines import by_program
from support.engines import engine as engine
from support.media import ffmpeg

from penstock import AudioDecoder, Decoder, DecoderError, Encoder, FFmpegWarning, probe
from penstock._facts.completeness import Delivered, why_incomplete
from penstock._facts.info import Track
from penstock._ffmpeg.program.messages import StderrLog, damage_reports

FRAMES = 60
_INPUT = moving((160, 120), FRAMES, Fraction(30))
_H264 = (*H264_B, *as_("yuv420p"))
_SOUND_TOO = ("-map", "0", "-map", "1", "-c:a", "aac")
MADE = {
    "webm": Clip("webm", (*VP9, *as_("yuv420p")), inputs=_INPUT),
    "mkv": Clip("mkv", _H264, inputs=_INPUT),
    "mp4": Clip("mp4", (*_H264, "-movflags", "+faststart"), inputs=_INPUT),
    "fragmented": Clip("mp4", (*_H264, "-movflags", "frag_keyframe+empty_moov"), inputs=_INPUT),
    "avi": Clip("avi", ("-c:v", "mpeg4", "-bf", "0", *as_("yuv420p")), inputs=_INPUT),
    "flv": Clip("flv", _H264, inputs=_INPUT),
    "mxf": Clip("mxf", ("-c:v", "mpeg2video", *as_("yuv420p")), inputs=_INPUT),
    "gif": Clip("gif", inputs=_INPUT),
    "mjpeg": Clip("avi", ("-c:v", "mjpeg"), inputs=_INPUT),
    "wmv": Clip("wmv", ("-c:v", "wmv2"), inputs=_INPUT),
    "prores": Clip("mov", ("-c:v", "prores"), inputs=_INPUT),
    "apng": Clip("apng", inputs=_INPUT),
    "ogv": Clip("ogv", ("-c:v", "libtheora", *as_("yuv420p")), inputs=_INPUT),
    "ts": Clip("ts", _H264, inputs=_INPUT),
    "open_groups": Clip(
        "mp4",
        ("-c:v", "libx264", "-x264-params", "open-gop=1:keyint=15:bframes=3:b-adapt=0", *as_("yuv420p")),
        inputs=_INPUT,
    ),
    # Nothing in these is wrong, but each has something that a cut file has.
    **{
        f"long_last_{ending}": Clip(
            ending,
            (
                *H264,
                "-bf",
                "0",
                *as_("yuv420p"),
                "-bsf:v",
                "setts=duration=if(eq(N\\,59)\\,15360*3\\,DURATION)",
            ),
            inputs=_INPUT,
        )
        for ending in ("mp4", "mov")
    },
    **{
        f"long_sound_{ending}": Clip(ending, (*_H264, *_SOUND_TOO), inputs=(*_INPUT, *sound(6)))
        for ending in ("mp4", "mkv", "flv", "ts")
    },
    "uneven": Clip(
        "mkv", ("-vf", "select='not(mod(n,25))'", "-fps_mode", "vfr", *_H264), inputs=_INPUT, frames=3
    ),
    "starts_late": Clip("mkv", (*_H264, "-output_ts_offset", "7"), inputs=_INPUT),
    "starts_late_mp4": Clip("mp4", (*_H264, "-output_ts_offset", "7"), inputs=_INPUT),
    "one_picture": Clip(
        "mkv", (*FFV1, *as_("yuv420p")), inputs=moving((64, 48), 1, Fraction(1, 5)), frames=1
    ),
}


# One of each kind of container; only `make test-exhaustive` has the rest.
QUICK = ("webm", "mp4", "flv", "gif")


def some_of(quick: Sequence[str], names: Iterable[str]) -> list[object]:
    """Parameters, of which all but a few are only for `make test-exhaustive`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ending")


def made(name: str, folder: Path) -> Path:
    path = folder / f"{name}.{MADE[name].ending}"
    if not path.exists():
        make(MADE[name], path)
    return path


def count(path: Path, **options: object) -> int:
    with Decoder(path, **options) as decoder:  # type: ignore[arg-type]
        return len(list(decoder))


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
@pytest.mark.parametrize(
    "name", some_of(QUICK[:2], ["webm", "mkv", "mp4", "fragmented", "avi", "flv", "gif", "apng"])
)
def test_zeroed_bytes_raise_or_cost_no_frame(name: str, folder: Path, tmp_path: Path) -> None:
    """Not of MPEG-TS: of a lost packet FFmpeg says nothing at the level of errors."""
    data, path = made(name, folder).read_bytes(), tmp_path / f"damaged.{MADE[name].ending}"
    for seed in range(
        8 if name not in ("webm", "mkv") else 60
    ):  # whose demuxer goes on after damage, and says nothing
        place = random.Random(seed)
        length = place.choice([1, 4, 16, 64])
        start = place.randrange(len(data) - length)
        path.write_bytes(data[:start] + bytes(length) + data[start + length :])
        try:
            frames = count(path)
        except DecoderError:
            continue
        assert frames == FRAMES, f"{length} zeros at {start} of {name}"


@pytest.mark.parametrize("name", ["gif", "mjpeg", "wmv", "prores", "mkv", "webm", "ts"])
def test_frames_are_counted_by_the_packets(name: str, folder: Path) -> None:
    path = made(name, folder)
    media = probe(path)
    for delivered, expected in (
        (FRAMES, None),
        (FRAMES - 1, f"has {FRAMES} frames, but FFmpeg decoded {FRAMES - 1}"),
    ):
        reason = why_incomplete(
            Track(f"file:{path}", media, media.video[0]), Delivered(delivered, (FRAMES - 1) / 30, 1 / 30)
        )
        assert (reason is None) if expected is None else (reason is not None and expected in reason)


def test_frame_that_ffmpeg_skips_is_noticed_by_the_index(folder: Path, tmp_path: Path, engine: str) -> None:
    """The head of one packet of an AVI file is gone. FFmpeg says nothing, and gives one frame fewer."""
    data, path = made("mjpeg", folder).read_bytes(), tmp_path / "damaged.avi"
    heads = [at for at in range(len(data)) if data.startswith(b"00dc", at)][: FRAMES // 2]
    path.write_bytes(data[: heads[-1]] + bytes(4) + data[heads[-1] + 4 :])
    with pytest.raises(DecoderError):
        count(path)


def test_webm_that_stops_midway_raises(folder: Path, tmp_path: Path) -> None:
    """FFmpeg takes zeros between two blocks for the end, complains, and exits with 0. libav says nothing of it."""
    data, path = made("webm", folder).read_bytes(), tmp_path / "damaged.webm"
    # The ID of a SimpleBlock, its length, its track, and the bytes of its time (RFC 9559, 5.1.3.4).
    blocks = [
        at for at in range(len(data) - 8) if data[at] == 0xA3 and data[at + 1] & 0x40 and data[at + 3] == 0x81
    ]
    at = blocks[len(blocks) // 4]
    path.write_bytes(data[:at] + bytes(64) + data[at + 64 :])
    with Decoder(path, settings=by_program()) as decoder:
        with pytest.raises(DecoderError) as caught:
            list(decoder)
        assert 0 < caught.value.frames < FRAMES
    assert count(path, conceal_errors=True) < FRAMES


@pytest.mark.parametrize(
    ("name", "share"),
    a_few(
        (name, share)
        for name in ("webm", "mkv", "mp4", "fragmented", "avi", "flv", "mxf")
        for share in (0.5, 0.3, 0.6, 0.99)
        # The last frame alone, which might have been shown for long.
        if share != 0.99 or name not in ("flv", "mxf")
    ),
)
def test_cut_file_raises(name: str, share: float, folder: Path, tmp_path: Path, engine: str) -> None:
    path, data = tmp_path / f"cut.{MADE[name].ending}", made(name, folder).read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(DecoderError):
        count(path)


@pytest.mark.parametrize("name", ["gif", "apng", "ogv"])
def test_undetectable_cut_returns_the_frames_before_it(name: str, folder: Path, tmp_path: Path) -> None:
    """The cut is behind a whole packet, and the container counts neither frames nor time."""
    path, data = tmp_path / f"cut.{MADE[name].ending}", made(name, folder).read_bytes()
    with Decoder(made(name, folder)) as decoder:
        expected = [frame.tobytes() for frame in decoder]
    ends = [place for place, _ in list_packets(made(name, folder))]
    path.write_bytes(data[: ends[len(ends) // 2]])
    with Decoder(path) as decoder:
        got = [frame.tobytes() for frame in decoder]
    assert FRAMES // 3 < len(got) < FRAMES and got == expected[: len(got)]


def test_video_that_ends_before_its_stated_duration_raises(folder: Path, tmp_path: Path, engine: str) -> None:
    """Cut between two tags, of which FFmpeg notices nothing; with the duration in the header."""
    data, path = made("flv", folder).read_bytes(), tmp_path / "cut.flv"
    at, ends = 13, []
    while at < len(
        data
    ):  # the header, then tags: a kind, a length of 3 bytes, 7 more, the data, and 4 bytes (FLV 1, E)
        at += 11 + int.from_bytes(data[at + 1 : at + 4], "big") + 4
        ends.append(at)
    path.write_bytes(data[: ends[len(ends) // 3]])
    with pytest.raises(DecoderError):
        count(path)
    assert count(path, conceal_errors=True) > 5
    assert count(path, count=5) == 5


def test_a_wrong_number_of_frames_in_the_header_is_a_warning(
    folder: Path, tmp_path: Path, engine: str
) -> None:
    data, path = bytearray(made("avi", folder).read_bytes()), tmp_path / "wrong.avi"
    length = data.index(b"strh") + 8 + 32  # dwLength in AVISTREAMHEADER
    assert int.from_bytes(data[length : length + 4], "little") == FRAMES
    data[length : length + 4] = (444).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.warns(FFmpegWarning) as told:
        assert count(path) == FRAMES
    assert [warning.filename for warning in told] == [__file__]
    with Decoder(path) as decoder, pytest.warns(FFmpegWarning) as told:
        while decoder.readinto(bytearray(decoder.frame_bytes)):
            pass
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(path, count=3) == 3
        assert count(path, start=1) == FRAMES // 2
        assert count(path, conceal_errors=True) == FRAMES


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", some_of(QUICK, sorted(MADE)))
def test_ordinary_file_does_not_warn(name: str, folder: Path, engine: str) -> None:
    path, frames = made(name, folder), FRAMES if MADE[name].frames == 12 else MADE[name].frames
    assert count(path) == frames
    if frames != FRAMES:
        return
    media = probe(path)
    begins_s = (media.start_s or 0.0) - media.zero_s
    for options in (
        {"start": begins_s + 0.5},
        {"start": begins_s + 1.9, "count": 1},
        {"count": 7},
        {"filters": "trim=end_frame=9"},
        {"filters": "setpts=PTS/9"},
        {"input_options": {"t": 1}},
    ):
        assert 0 < count(path, **options) < FRAMES or "/9" in options.get("filters", "")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("start", some_of(["0.7"], ["0.31", "0.7", "1.27"]))
@pytest.mark.parametrize("name", ["mp4", "mkv", "flv", "open_groups"])
def test_file_trimmed_without_encoding_does_not_warn(
    name: str, start: str, folder: Path, tmp_path: Path, engine: str
) -> None:
    """The edit list of MP4 hides the frames from the keyframe on, and may end between two frames."""
    path = tmp_path / f"trimmed.{MADE[name].ending}"
    make(Clip("mp4", ("-c", "copy"), inputs=("-ss", start, "-i", f"file:{made(name, folder)}")), path)
    assert 0 < count(path) <= FRAMES


@pytest.mark.filterwarnings("error")
def test_damaged_sound_does_not_disturb_the_picture(folder: Path, tmp_path: Path, engine: str) -> None:
    data = bytearray(made("long_sound_mp4", folder).read_bytes())
    path = tmp_path / "damaged.mp4"
    middle = data.index(b"mdat") + (len(data) - data.index(b"mdat")) * 3 // 4  # the video is long over
    data[middle : middle + 3000] = bytes(3000)
    path.write_bytes(data)
    assert count(path) == FRAMES


@pytest.mark.filterwarnings("error")
def test_a_file_whose_container_marks_no_keyframes_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "video.roq"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x64:rate=30:duration=0.5", "-c:v", "roqvideo", path)
    assert count(path) == 15


def test_messages_that_cost_no_frame_are_no_complaint() -> None:
    ordinary = [
        "[rawvideo @ 0x55cc7a406e00] Application provided invalid, non monotonically increasing dts to muxer in "
        "stream 0: 3 >= 3",
        "    Last message repeated 3 times",
        "[h264 @ 0x5618] co located POCs unavailable",
        "[mov,mp4,m4a,3gp,3g2,mj2 @ 0x5618] Referenced QT chapter track not found",
        "[aac @ 0x5618] channel element 2.0 is not allocated",
        "\x1b[48;5;0m\x1b[38;5;155m[mp3float @ 0x5618] \x1b[0mHeader missing",
        "[h261 @ 0x5618] warning: first frame is no keyframe",
        "",
    ]
    assert damage_reports(reports(ordinary), {"aac", "mp3"}) == {}
    serious = [
        "[h264 @ 0x5618] error while decoding MB 4 5, bytestream -7",
        "[matroska,webm @ 0x5618] 0x00 at pos 38387 (0x95f3) invalid as first byte of an EBML number",
    ]
    told = damage_reports(
        reports([*serious[:1], *ordinary * 50, *serious[1:], *ordinary[:2]]), {"aac", "mp3"}
    )
    assert told == {line.replace("0x5618", "0x0"): 1 for line in serious}
    assert sum(damage_reports(reports(ordinary[4:5])).values()) == 1
    of_samples = [ordinary[0].replace("rawvideo", "f32le").replace("3 >=", f"{i} >=") for i in range(2000)]
    log = StderrLog(line.encode() for line in [serious[0], *of_samples])
    assert damage_reports(log.reports).total() == 1 and log.text == serious[0]
    assert damage_reports(reports([serious[0], ordinary[1]])).total() == 4


def reports(lines: Iterable[str]) -> Counter[str]:
    return StderrLog(line.encode() for line in lines).reports


def test_a_line_has_its_level_and_component_if_the_address_has_no_0x_as_on_windows() -> None:
    lines = (b"[h264 @ 00007FFFFE976A40] [error] decode error", b"[vost#0:0 @ 00007ffffe9764] [warning] odd")
    log = StderrLog(lines)
    assert (log.errors, log.warnings) == (("[h264] decode error",), ("[vost#0:0] odd",))
    assert list(log.reports) == ["[h264 @ 0x0] decode error"]


@pytest.mark.parametrize(
    ("codec", "ending"),
    [
        (("libx264", "-g", "25"), "ts"),
        (("libx264", "-x264-params", "open-gop=1:keyint=25"), "ts"),
        (("mpeg2video", "-g", "25"), "ts"),
        (("mpeg2video", "-g", "25"), "mpg"),
        (("libx264", "-g", "25"), "h264"),
    ],
)
def test_a_file_that_begins_inside_a_group_warns(
    tmp_path: Path, codec: tuple[str, ...], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AV_LOG_FORCE_COLOR", "1")  # which is about terminals
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    # By more threads, x264 does not write the same file each time: FFmpeg does not see some of the damage below.
    codec = (*codec, "-threads", "1")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:d=4", "-c:v", *codec, *as_("yuv420p"), whole)
    data = whole.read_bytes()
    cut.write_bytes(data[len(data) * 2 // 5 // 188 * 188 :])
    with Decoder(whole) as decoder:
        last = np.array(decoder[-1])
    with Decoder(cut) as decoder, pytest.warns(FFmpegWarning):
        frames = [np.array(frame) for frame in decoder]
    assert 40 <= len(frames) < 100
    assert np.array_equal(frames[-1], last)
    with Decoder(cut) as decoder:
        assert np.array_equal(decoder[-1], last)
    # Damage elsewhere is an error as ever.
    data = bytearray(cut.read_bytes())
    middle = len(data) * 3 // 4 // 188 * 188
    del data[middle : middle + 188 * 20]
    cut.write_bytes(data)
    with Decoder(cut) as decoder, pytest.raises(DecoderError):
        list(decoder)


@pytest.mark.parametrize(
    ("codec", "ending", "kinds"),
    [
        (("libx264", "-slices", "4"), "h264", {0x41, 0x01}),  # nal_ref_idc and nal_unit_type (H.264, 7.3.1)
        (
            ("mpeg2video", "-bf", "2"),
            "mpeg2video",
            set(range(2, 15)),
        ),  # slice_vertical_position (H.262, 6.2.4)
    ],
    ids=["h264", "mpeg2"],
)
def test_missing_part_of_a_picture_raises(
    tmp_path: Path, codec: tuple[str, ...], ending: str, kinds: set[int]
) -> None:
    """FFmpeg paints over it. 5.1 marks such a frame of H.264 too late, now and then."""
    path = tmp_path / f"lossy.{ending}"
    source = ("-f", "lavfi", "-i", "testsrc2=s=320x240:d=2")
    data = ffmpeg(*source, "-c:v", *codec, "-threads", "1", *as_("yuv420p"), "-f", ending, "-")
    units = [b"\0\0\1" + unit for unit in data.split(b"\0\0\1")[1:]]
    parts = [number for number, unit in enumerate(units) if unit[3] in kinds]
    for lost in parts[len(parts) // 4 :: len(parts) // 4]:
        path.write_bytes(b"".join(unit for number, unit in enumerate(units) if number != lost))
        for _ in range(3):
            with Decoder(path) as decoder, pytest.raises(DecoderError):
                list(decoder)


def test_file_name_of_several_lines_is_not_taken_for_damage(tmp_path: Path) -> None:
    """FFmpeg prints it among what it tells of the file."""
    path = tmp_path / "named.mkv"
    title = "title=one\n[h264 @ 0x1] [error] two\n\n[h264 @ 0x1] concealing 1 DC, 1 AC, 1 MV errors"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=1", "-c:v", "ffv1", "-metadata", title, path)
    with Decoder(path) as decoder:
        assert len(list(decoder)) == 25


def shipped() -> list[Path]:
    """Videos and animations that Python and the packages installed beside us bring."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    endings = ("avi", "gif", "mkv", "mov", "mp4", "mpg", "ogv", "webm")
    found = (path for folder in folders for ending in endings for path in Path(folder).rglob(f"*.{ending}"))
    return sorted(set(itertools.islice(found, 60)))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("error")
def test_videos_shipped_by_packages_decode_without_errors() -> None:
    paths = shipped()
    if not paths:
        pytest.skip("no installed package ships a video or an animation")
    clip("h264")
    for path in paths:
        assert count(path) > 0, path


@pytest.mark.parametrize("name", ["cut.avi", "cut.flv"])
@pytest.mark.parametrize("has_sound", [False, True], ids=["alone", "with sound"])
def test_cut_between_two_packets_raises_or_warns(tmp_path: Path, name: str, has_sound: bool) -> None:
    """FFmpeg notices nothing then. AVI's header is often wrong: there it is a warning."""
    path = tmp_path / name
    tones = ("-f", "lavfi", "-i", "sine") if has_sound else ()
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25", *tones, "-t", "4", "-y", str(path))
    place, size = list_packets(path)[9]
    end = place + size + (4 if name == "cut.flv" else 0)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises((DecoderError, FFmpegWarning)) as caught:
        frames_of(path)
    assert name == "cut.avi" or isinstance(caught.value, DecoderError)


def test_a_cut_ogg_file_warns(tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:d=2", "-c:v", "libtheora", tmp_path / "a.ogg")
    data = (tmp_path / "a.ogg").read_bytes()
    (tmp_path / "cut.ogg").write_bytes(data[: len(data) * 2 // 3])
    with Decoder(tmp_path / "cut.ogg") as decoder, pytest.warns(FFmpegWarning, match="truncated"):
        assert 0 < len(list(decoder)) < 50
    with warnings.catch_warnings(), Decoder(tmp_path / "a.ogg") as decoder:
        warnings.simplefilter("error")
        list(decoder)


@pytest.mark.parametrize("options", [{}, {"filters": "null"}])
def test_a_flv_file_of_the_stated_bytes_is_whole_whatever_its_length_in_seconds(
    folder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """GStreamer counts that length from before the first frame if a stream begins late."""
    data, path = bytearray(made("flv", folder).read_bytes()), tmp_path / "late.flv"
    at = data.index(b"duration\0") + 9
    data[at : at + 8] = struct.pack(">d", 60)
    path.write_bytes(data)
    assert count(path, **options) == FRAMES
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(DecoderError):
        count(path, **options)


@pytest.mark.filterwarnings("error::penstock.FFmpegWarning")
def test_a_chunk_of_avi_whose_picture_is_not_coded_is_no_missing_frame(tmp_path: Path) -> None:
    """Xvid and DivX write one for each frame that they delay."""
    path = tmp_path / "a.avi"
    with av.open(made("avi", tmp_path)) as source, av.open(path, "w") as file:
        stream = file.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux() if packet.size]
        packets.insert(8, av.Packet(b"\0\0\1\xb6\x50\x4f"))  # ISO/IEC 14496-2, 6.2.5: vop_coded is 0
        for number, packet in enumerate(packets):
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, number, number, stream.time_base
            file.mux(packet)
    with Decoder(path) as decoder:
        assert decoder.stream.frames == len(list(decoder)) + 1 == len(packets)


def test_avi_with_audio_may_count_one_frame_more(tmp_path: Path) -> None:
    path = tmp_path / "whole.avi"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25", "-f", "lavfi", "-i", "sine")
    ffmpeg(*picture, "-t", "4", "-c:v", "mpeg4", "-y", str(path))
    assert frames_of(path) == 100


def frames_of(path: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FFmpegWarning)
        with Decoder(path) as decoder:
            return sum(1 for _ in decoder)


@pytest.mark.usefixtures("engine")
@pytest.mark.filterwarnings("error")
def test_empty_chunks_of_avi_are_pauses_and_no_frames(tmp_path: Path) -> None:
    """Where a frame is shown for longer, FFmpeg's muxer fills its time with empty chunks, which the header counts."""
    path = tmp_path / "pauses.avi"
    picture = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=1", "-vf", "select='not(eq(n,4)+eq(n,7))'")
    ffmpeg(*picture, "-fps_mode", "passthrough", "-c:v", "mjpeg", path)
    with Decoder(path) as decoder:
        assert [round(10 * frame.time_s) for frame in decoder] == [0, 1, 2, 3, 5, 6, 8, 9]
    data = bytearray(path.read_bytes())
    length_at = data.index(b"strh") + 40  # dwLength of the stream header
    assert data[length_at] == 10
    data[length_at] = 12
    path.write_bytes(data)
    with pytest.warns(FFmpegWarning), Decoder(path) as decoder:
        assert sum(1 for _ in decoder) == 8


def test_words_of_a_demuxer_about_a_tag_are_no_damage(tmp_path: Path) -> None:
    """Only while FFmpeg opens the file: its demuxer of FLV reads no text of more than 1 KiB."""
    path = tmp_path / "long.flv"
    streams = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=1", "-f", "lavfi", "-i", "sine=d=1")
    ffmpeg(*streams, "-metadata", f"comment={'a' * 1500}", "-c:v", "libx264", "-c:a", "aac", path)
    for options in ({"filters": "hflip"}, *ISOLATED):
        with Decoder(path, **options) as decoder:
            assert len(list(decoder)) == 25
    with AudioDecoder(path) as audio:
        assert len(audio.read_all()) >= 44100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Encoder(tmp_path / "new.mp4", size=(64, 48), fps=25, audio=path) as encoder:
            for _ in range(25):
                encoder.write(bytes(48 * 64 * 3))
    with av.open(str(path)) as file:
        place = [packet.pos for packet in file.demux(video=0)][10]
    data = bytearray(path.read_bytes())
    data[place - 3 : place - 1] = b"\x55\x55"  # in the head of a packet
    path.write_bytes(data)
    with Decoder(path, filters="hflip") as decoder, pytest.raises(DecoderError):
        list(decoder)
