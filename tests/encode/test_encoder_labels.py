"""Metadata, time codes, chapters and subtitles: what a file says beside its pictures and sounds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.renders import mapped, rendered

from penstock import Decoder, DecoderError, Encoder, FFmpegWarning, probe
from penstock._encoding.labels import Labels
from penstock.errors import EncoderError
from penstock.video import AudioTrack, EncoderSettings

TITLES = ["Intro", "a=b; #1 \\ and\na second line", "Ende, ünïcödé 🎬"]
CHAPTERS = list(zip((0.0, 0.3, 0.7), TITLES, strict=True))
SRT = "1\n00:00:00,500 --> 00:00:00,700\nhello\n\n2\n00:00:00,800 --> 00:00:00,900\nworld\n"


def written(path: Path, ffmpeg: str, *, samples: int = 0, **arguments: Any) -> Encoder:
    """A video of 20 frames, of 1 s."""
    with Encoder(
        path, **{"fps": 20, "size": (64, 48), "settings": EncoderSettings(ffmpeg=ffmpeg)} | arguments
    ) as encoder:
        if samples:
            encoder.write_audio(np.zeros((samples, 1), np.float32))
        for index in range(20):
            encoder.write(np.full((48, 64, 3), index * 10, np.uint8))
    return encoder


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.webm"])
def test_file_keeps_metadata_chapters_and_subtitles(tmp_path: Path, ffmpeg: str, name: str) -> None:
    (tmp_path / "a.srt").write_text(SRT)
    path = tmp_path / name
    metadata = {"title": "Waves = a study; #2", "comment": "two\nlines", "artist": "Ada 🎬"}
    report = written(path, ffmpeg, metadata=metadata, chapters=CHAPTERS, subtitles=tmp_path / "a.srt").report
    assert report is not None and report.warnings == ()
    told = probe(path)
    assert {key.lower(): value for key, value in told.tags.items()}.items() >= metadata.items()
    assert [(round(one.start_s, 2), one.title) for one in told.chapters] == CHAPTERS
    assert [one.end_s for one in told.chapters[:2]] == pytest.approx([0.3, 0.7], abs=0.002)
    codec = {"a.mkv": "subrip", "a.webm": "webvtt"}.get(name, "mov_text")
    assert [one.codec for one in told.subtitles] == [codec]
    assert told.best_video is not None and told.best_video.duration_s == pytest.approx(1, abs=0.01)
    assert cues(path) == [(0.5, "hello"), (0.8, "world")]


def cues(path: Path) -> list[tuple[float, str]]:
    """When each subtitle is shown first, and its text."""
    import av

    with av.open(str(path)) as media:
        [stream] = media.streams.subtitles
        packets = [packet for packet in media.demux(stream) if packet.size > 2 and packet.pts is not None]
        return [
            (round(float(packet.pts * packet.time_base), 3), subtitle_text(packet.decode()))  # type: ignore[operator]
            for packet in packets
        ]


def subtitle_text(subtitles: Any) -> str:
    return b"".join(one.dialogue for one in subtitles).decode().strip()


@pytest.mark.parametrize("timed", [False, True])
def test_labels_are_kept_together_with_audio_and_times(tmp_path: Path, ffmpeg: str, timed: bool) -> None:
    (tmp_path / "a.srt").write_text(SRT)
    labels = {
        "metadata": {"title": "x"},
        "chapters": [(0, "One"), (0.5, "Two")],
        "subtitles": tmp_path / "a.srt",
    }
    arguments = labels | {"audio": AudioTrack(48_000, 1), "size": (64, 48)}
    path = tmp_path / "a.mp4"
    if timed:
        with Encoder(path, fps=None, settings=EncoderSettings(ffmpeg=ffmpeg), **arguments) as encoder:
            encoder.write_audio(np.zeros((48_000, 1), np.float32))
            for index in range(20):
                encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=0.25 + index / 40)
    else:
        encoder = written(path, ffmpeg, samples=48_000, **arguments)
    assert encoder.report is not None and encoder.report.warnings == ()
    told = probe(path)
    assert (len(told.video), len(told.audio), len(told.subtitles)) == (1, 1, 1)
    assert [one.start_s for one in told.chapters] == [0, 0.5]
    assert cues(path) == [(0.5, "hello"), (0.8, "world")]


def test_labels_of_audio_and_subtitle_files_are_not_copied(tmp_path: Path, ffmpeg: str) -> None:
    sound = tmp_path / "sound.mkv"
    (tmp_path / "a.srt").write_text(SRT)
    written(
        sound,
        ffmpeg,
        samples=48_000,
        audio=AudioTrack(48_000, 1),
        metadata={"title": "x"},
        chapters=[(0.1, "One")],
        subtitles=tmp_path / "a.srt",
    )
    written(tmp_path / "b.mkv", ffmpeg, audio=sound, subtitles=sound)
    told = probe(tmp_path / "b.mkv")
    assert (told.chapters, told.tags.get("title")) == ((), None) and told.audio and told.subtitles
    for source, number in (({"audio": sound}, 0), ({"subtitles": sound}, 1)):
        written(tmp_path / "c.mkv", ffmpeg, options={"map_metadata": number}, **source)
        assert probe(tmp_path / "c.mkv").tags["title"] == "x"


def test_metadata_that_the_container_drops_warns(tmp_path: Path, ffmpeg: str) -> None:
    with pytest.warns(FFmpegWarning, match="camera"):
        written(tmp_path / "a.mp4", ffmpeg, metadata={"title": "x", "camera": "y"})
    written(tmp_path / "b.mp4", ffmpeg, metadata={"camera": "y"}, options={"movflags": "use_metadata_tags"})
    assert probe(tmp_path / "b.mp4").tags["camera"] == "y"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, {}) for name in ("a.webp", "a.gif", "%d.png")),
        *(("a.bin", {"codec": "mjpeg", "options": {"f": name}}) for name in ("rawvideo", "image2pipe")),
    ],
    ids=str,
)
def test_formats_that_cannot_hold_labels_warn(
    tmp_path: Path, ffmpeg: str, name: str, more: dict[str, Any]
) -> None:
    labels: list[dict[str, Any]] = [{"metadata": {"title": "x"}}, {"chapters": [(0.0, "One")]}]
    for label in labels:
        with pytest.warns(FFmpegWarning) as said:
            encoder = written(tmp_path / name, ffmpeg, **label, **more)
        [warned] = [str(one.message) for one in said]
        assert warned.startswith(f"{tmp_path / name} can't hold metadata")
        assert encoder.report is not None and encoder.report.warnings == (warned,)


def test_chapters_after_the_start_warn_only_if_the_container_moves_them(tmp_path: Path, ffmpeg: str) -> None:
    chapters = [(0.2, "One"), (0.5, "Two")]
    with pytest.warns(FFmpegWarning):
        written(tmp_path / "a.mp4", ffmpeg, chapters=chapters)
    assert written(tmp_path / "a.mkv", ffmpeg, chapters=chapters).report.warnings == ()  # type: ignore[union-attr]
    assert [(one.start_s, one.title) for one in probe(tmp_path / "a.mkv").chapters] == chapters


def test_utf_16_subtitles_are_read(tmp_path: Path, ffmpeg: str) -> None:
    (tmp_path / "a.srt").write_text(SRT, encoding="utf-16")
    written(tmp_path / "a.mp4", ffmpeg, subtitles=tmp_path / "a.srt")
    assert cues(tmp_path / "a.mp4") == [(0.5, "hello"), (0.8, "world")]


def test_wrong_labels_are_refused_at_the_call(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SRT)
    (tmp_path / "text.txt").write_text("no subtitles")
    (tmp_path / "latin.srt").write_text(SRT.replace("hello", "héllo"), encoding="latin-1")
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"metadata": ["title=x"]}, TypeError, "metadata must be a dict"),
        ({"metadata": {"year": 2026}}, TypeError, "not 'year': 2026"),
        ({"metadata": {"a=b": "c"}}, ValueError, "names without '='"),
        ({"metadata": {"a": "b\0c"}}, ValueError, "no zero bytes"),
        ({"metadata": {"a": ""}}, ValueError, "empty text"),
        ({"chapters": ["Intro"]}, ValueError, "chapters must be pairs"),
        ({"chapters": [("Intro", 0.0)]}, TypeError, "chapters must be pairs"),
        ({"chapters": [(0.0, None)]}, TypeError, "title of a chapter"),
        ({"chapters": [(1.0, "a"), (1.0, "b")]}, ValueError, "begin later"),
        ({"chapters": [(-1.0, "a")]}, ValueError, "chapters must be pairs"),
        ({"chapters": [(float("inf"), "a")]}, ValueError, "begin later"),
        (
            {"chapters": [(float(one), "x" * 40) for one in range(1000)]},
            ValueError,
            "1000 chapters are too many",
        ),
        ({"subtitles": tmp_path / "latin.srt"}, ValueError, "latin.srt is not UTF-8"),
        ({"subtitles": tmp_path / "missing.srt"}, FileNotFoundError, "missing.srt"),
        ({"subtitles": tmp_path / "text.txt"}, DecoderError, "text.txt"),
        (
            {"subtitles": tmp_path / "a.srt", "output": tmp_path / "a.gif"},
            ValueError,
            "a.gif can't hold subtitles",
        ),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            Encoder(**{"output": tmp_path / "a.mp4", "fps": 20, "size": (64, 48)} | arguments)
    assert not (tmp_path / "a.mp4").exists()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")))
def test_any_title_is_escaped(title: str) -> None:
    """As FFmpeg's reader of ffmetadata takes it: a backslash before a character means the character."""
    [*_, url] = Labels(chapters=((0.0, title),)).input_arguments()
    import base64
    import re

    text = base64.b64decode(url.partition(",")[2]).decode()
    found = re.search(r"^title=((?:\\[\s\S]|[^\\\n])*)$", text.partition("END=")[2], re.MULTILINE)
    assert found is not None and re.sub(r"\\([\s\S])", r"\1", found[1]) == title


def drawn(index: int, _time_s: float, view: Any) -> None:
    view[:] = index


def test_a_render_has_metadata_and_chapters(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    labels = {"metadata": {"title": "x"}, "chapters": [(0.0, "begin"), (0.25, "end")]}
    rendered(drawn, path, frames=12, fps=24, size=(64, 48), encoder_options=labels)
    media = probe(path)
    assert media.tags["title"] == "x"
    assert [(chapter.start_s, chapter.title) for chapter in media.chapters] == labels["chapters"]


def test_subtitles_and_chapters_after_the_last_frame_warn(tmp_path: Path, ffmpeg: str) -> None:
    (tmp_path / "late.srt").write_text("1\n00:00:20,000 --> 00:00:22,000\nlate\n")
    with pytest.warns(FFmpegWarning, match="subtitle"):
        written(tmp_path / "a.mkv", ffmpeg, subtitles=tmp_path / "late.srt")
    with pytest.warns(FFmpegWarning, match="chapter"):
        written(tmp_path / "b.mkv", ffmpeg, chapters=[(0, "a"), (9, "b")])
    report = written(tmp_path / "c.mp4", ffmpeg, fps=20 / 1.1, chapters=[(0, "a"), (1.1, "b")]).report
    assert report is not None and not [one for one in report.warnings if "chapter" in one]


@pytest.mark.parametrize("name", ["location", "LOCATION"])
def test_location_that_the_container_rewrites_does_not_warn(tmp_path: Path, ffmpeg: str, name: str) -> None:
    report = written(tmp_path / "a.mp4", ffmpeg, metadata={name: "+48.8+002.3/"}).report
    assert report is not None and report.warnings == ()


@pytest.mark.parametrize(
    ("name", "fps", "timecode"),
    [
        ("a.mov", 25, "01:00:00:24"),
        ("a.mp4", Fraction(30000, 1001), "00:01:00;02"),
        ("a.mp4", Fraction(60000, 1001), "00:10:00;00"),
        ("a.mkv", Fraction(30000, 1001), "00:01:00;02"),
        ("a.mxf", Fraction(30000, 1001), "00:01:00;02"),
        ("a.mxf", Fraction(60000, 1001), "00:10:00:00"),  # MXF drops frames at 30000/1001 only
    ],
    ids=str,
)
def test_file_keeps_its_time_code(
    tmp_path: Path, ffmpeg: str, name: str, fps: Fraction, timecode: str
) -> None:
    encoder = written(tmp_path / name, ffmpeg, fps=fps, timecode=timecode)
    assert encoder.report is not None and encoder.report.warnings == ()
    assert probe(tmp_path / name).timecode == timecode


@pytest.mark.parametrize("name", ["a.mov", "a.mkv", "a.mxf"])
def test_a_tag_that_is_called_timecode_is_the_time_code(tmp_path: Path, ffmpeg: str, name: str) -> None:
    encoder = written(tmp_path / name, ffmpeg, fps=25, metadata={"Timecode": "01:00:00:24"})
    assert encoder.report is not None and encoder.report.warnings == ()
    assert probe(tmp_path / name).timecode == "01:00:00:24"


@pytest.mark.parametrize(
    ("fps", "timecode", "words"),
    [
        (25, "1:00:00:00", "hours"),
        (25, "24:00:00:00", "hours"),
        (25, "01:00:00:25", "below 25"),
        (25, "01:00:00;00", "drop frame"),
        (30, "01:00:00;00", "drop frame"),
        (Fraction(30000, 1001), "00:01:00;01", "00:01:00;02"),
        (Fraction(60000, 1001), "00:01:00;03", "00:01:00;04"),
    ],
    ids=str,
)
def test_time_codes_that_do_not_exist_are_refused_at_the_call(
    tmp_path: Path, fps: Fraction, timecode: str, words: str
) -> None:
    for label in ({"timecode": timecode}, {"metadata": {"timecode": timecode}}):
        with pytest.raises(ValueError, match=words):
            Encoder(tmp_path / "a.mkv", fps=fps, **label)  # type: ignore[arg-type]
    assert not (tmp_path / "a.mkv").exists()


def test_time_code_that_the_file_cannot_hold_is_refused_before_the_first_frame(
    tmp_path: Path, ffmpeg: str
) -> None:
    settings = EncoderSettings(ffmpeg=ffmpeg)
    for name, fps, error, words in (
        ("a.ts", 25, ValueError, "time code"),
        ("%d.png", 25, ValueError, "time code"),
        ("a.mov", 300, EncoderError, "fps 300"),  # FFmpeg's own
    ):
        with pytest.raises(error, match=words) as refused:
            Encoder(tmp_path / name, fps=fps, size=(64, 48), timecode="01:00:00:00", settings=settings)
        assert "unfinished" not in str(refused.value)  # the trial's file is gone
    for label in ({"metadata": {"timecode": "01:00:00:00"}}, {"options": {"timecode": "01:00:00:00"}}):
        with pytest.raises(ValueError, match="timecode"):
            Encoder(tmp_path / "a.mov", fps=25, timecode="01:00:00:00", **label)  # type: ignore[arg-type]


def test_like_and_map_video_keep_the_time_code_or_warn(tmp_path: Path, ffmpeg: str) -> None:
    source, settings = tmp_path / "a.mov", EncoderSettings(ffmpeg=ffmpeg)
    written(source, ffmpeg, fps=25, timecode="01:00:00:24")
    with Decoder(source) as decoder, Encoder.like(decoder, tmp_path / "b.mkv", settings=settings) as encoder:
        for frame in decoder:
            encoder.write(frame, time_s=frame.time_s)
    assert probe(tmp_path / "b.mkv").timecode == "01:00:00:24"
    mapped(source, tmp_path / "c.mov", encoder_options={"settings": settings})
    assert probe(tmp_path / "c.mov").timecode == "01:00:00:24"
    with pytest.warns(FFmpegWarning, match="time code"):
        Encoder.like(probe(source), tmp_path / "b.ts", settings=settings).abort()
    with Decoder(source, start=0.2) as decoder, pytest.warns(FFmpegWarning, match="time code"):
        Encoder.like(decoder, tmp_path / "b.mkv", settings=settings).abort()
    with pytest.warns(FFmpegWarning, match="time code"):
        Encoder.like(probe(source), tmp_path / "b.mov", fps=20, settings=settings).abort()
