"""`penstock.map_video`: each frame once and at its time, whatever the source. And the sound of both kinds of render."""

from __future__ import annotations

import itertools
import os
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import renders
from support.cases import ffmpegs
from support.clips import clip
from support.media import decode, ffmpeg

import penstock
from penstock import probe, rendering
from penstock._ffmpeg.command.colors import holds_hdr_metadata
from penstock.errors import DecoderError, RenderError
from penstock.video import EncoderSettings, find_ffmpeg

SIZE = (64, 48)
SLOW = pytest.mark.slow
EXHAUSTIVE = pytest.mark.exhaustive
LOSSLESS = {"codec": "ffv1", "output_pixel_format": "yuv444p"}


def inverted(frame: penstock.VideoFrame) -> np.ndarray:
    return 255 - np.asarray(frame)


def half(frame: penstock.VideoFrame) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(frame)[::2, ::2])


def mapped(function: Any, source: Path, output: Path, **others: Any) -> Path:
    given = {"workers": 2, "chunk_frames": 7, "encoder_options": LOSSLESS} | others
    renders.mapped(source, output, function, **given)
    return output


def alone(function: Any, source: Path, output: Path, size: tuple[int, int]) -> Path:
    """What `mapped` makes, by one decoder and one encoder."""
    rate = probe(source).best_video.frame_rate
    with (
        penstock.Decoder(source) as frames,
        penstock.Encoder(output, size=size, fps=rate, **LOSSLESS) as encoder,
    ):
        for frame in frames:
            encoder.write(frame if function is None else function(frame))
    return output


def same(one: Path, other: Path) -> bool:
    """Whether two videos have the same frames at the same times."""
    checks = ("-map", "0:v:0", "-f", "framemd5", "-")
    return ffmpeg("-i", one, *checks) == ffmpeg("-i", other, *checks)


@pytest.mark.parametrize(
    "name",
    [
        "h264",
        *(
            pytest.param(name, marks=EXHAUSTIVE)
            for name in ("h264_mkv", "h264_ts", "h264_large", "long", "h265")
        ),
        *(
            pytest.param(name, marks=EXHAUSTIVE)
            for name in ("starts_late_ts", "starts_late_mkv", "one_frame")
        ),
        *(pytest.param(name, marks=EXHAUSTIVE) for name in ("ffv1_yuv420p", "rotated_90")),
    ],
)
@pytest.mark.parametrize("function", [inverted, pytest.param(None, marks=EXHAUSTIVE)])
def test_mapped_frames_match_one_decoder_and_encoder(tmp_path: Path, name: str, function: Any) -> None:
    source = clip(name)
    video = probe(source).best_video
    assert video is not None
    wanted = alone(function, source, tmp_path / "alone.mkv", (video.width, video.height))
    chunk_frames = 100 if name == "long" else 7
    assert same(mapped(function, source, tmp_path / "mapped.mkv", chunk_frames=chunk_frames), wanted)


def numbered(frame: penstock.VideoFrame) -> np.ndarray:
    return np.full_like(np.asarray(frame), 8 * frame.index)


def test_function_gets_the_number_of_each_frame_in_the_source(tmp_path: Path) -> None:
    output = mapped(numbered, clip("h264"), tmp_path / "out.mkv")
    with penstock.Decoder(output, pixel_format="gray") as frames:
        levels = [int(frame.mean()) for frame in frames]
    assert len(levels) > 14 and all(after > before for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize(
    "part", [{"start": 0.11}, {"start": 0.3, "duration": 0.4}, {"end": 0.5}, {}], ids=str
)
@pytest.mark.parametrize("fps", [None, 12])
def test_a_part_and_a_rate_are_those_of_the_decoder(
    tmp_path: Path, part: dict[str, float], fps: int | None
) -> None:
    options = {"encoder_options": {"codec": "ffv1"}, "workers": 1, "chunk_frames": 4}
    out = mapped(None, clip("variable_mp4"), tmp_path / "a.mkv", **part, fps=fps, **options)
    with penstock.Decoder(clip("variable_mp4"), **part, fps=fps) as decoder, penstock.Decoder(out) as made:
        frames, got = list(decoder), list(made)
    assert len(got) == len(frames) > 3 and all(map(np.array_equal, got, frames))
    times_s = [frame.time_s - frames[0].time_s for frame in frames]
    assert [frame.time_s for frame in got] == pytest.approx(times_s, abs=0.0011)
    assert fps is None or probe(out).video[0].frame_rate == fps


def test_the_sound_of_a_part_is_that_of_its_frames(tmp_path: Path) -> None:
    source = tmp_path / "source.mkv"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=3")
    ffmpeg(*picture, "-f", "lavfi", "-i", "aevalsrc=t/10:d=3:s=8000", "-c:a", "pcm_s16le", source)
    options = {"encoder_options": {"codec": "ffv1"}, "workers": 1}
    out = mapped(None, source, tmp_path / "a.mkv", start=1.05, end=2, **options)
    with penstock.AudioDecoder(out) as audio:
        samples = audio.read_all()[:, 0]
    # It is copied in packets.
    assert samples[0] == pytest.approx(0.1, abs=0.005) and len(samples) == pytest.approx(8000, abs=400)


def test_a_part_without_frames_is_refused(tmp_path: Path) -> None:
    for part in ({"start": 100}, {"start": 1, "end": 1}, {"end": 1, "duration": 1}):
        with pytest.raises(ValueError, match=r"start|part|end"):
            penstock.map_video(None, clip("h264"), tmp_path / "a.mkv", **part)


def test_palette_applies_in_every_chunk(tmp_path: Path) -> None:
    source = tmp_path / "v.mov"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=1", "-c:v", "rawvideo", "-pix_fmt", "pal8", source)
    wanted = alone(inverted, source, tmp_path / "alone.mkv", SIZE)
    assert same(mapped(inverted, source, tmp_path / "mapped.mkv", chunk_frames=13), wanted)


@pytest.mark.parametrize("change", ["size", "time"])
def test_source_that_changes_during_the_render_raises(tmp_path: Path, change: str) -> None:
    source = tmp_path / "in.mp4"
    source.write_bytes(clip("h264").read_bytes())
    plan = rendering.plan_video(None, source, tmp_path / "out.mp4", workers=2)
    rendering.render_chunk(plan, 0)
    if change == "size":
        with source.open("ab") as file:
            file.write(b"\0\0\0\x08free")
    else:
        os.utime(source, (0, 0))
    with pytest.raises(RenderError):
        rendering.render_chunk(plan, 1)


@SLOW
def test_function_can_change_the_size_if_size_is_given(tmp_path: Path) -> None:
    wanted = alone(half, clip("h264"), tmp_path / "alone.mkv", (32, 24))
    assert same(mapped(half, clip("h264"), tmp_path / "mapped.mkv", size=(32, 24)), wanted)
    with pytest.raises(penstock.RenderError):
        mapped(half, clip("h264"), tmp_path / "wrong.mkv")


@SLOW
@pytest.mark.parametrize("name", ["variable_mp4", "variable_mkv"])
def test_variable_frame_rate_is_kept(tmp_path: Path, name: str) -> None:
    mapped(None, clip(name), output := tmp_path / "mapped.mkv")
    with penstock.Decoder(clip(name)) as wanted, penstock.Decoder(output) as found:
        for before, after in zip(wanted, found, strict=True):
            assert before.time_s is not None and after.time_s is not None
            assert abs(before.time_s - after.time_s) <= 0.001


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_last_frame_lasts_as_long_as_in_the_source(tmp_path: Path, program: str, suffix: str) -> None:
    settings = EncoderSettings(ffmpeg=program)
    ends = {"bf": 0, "bsf:v": "setts=pts=PTS:dts=DTS:duration=0.04/TB"}  # the others last until the next one
    with penstock.Encoder(
        tmp_path / "a.mp4", size=SIZE, fps=None, options=ends, settings=settings
    ) as encoder:
        for time_s in (0, 1, 2, 5, 6, 7):
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=time_s)
    output, options = tmp_path / f"b.{suffix}", {"settings": settings}
    mapped(None, tmp_path / "a.mp4", output, chunk_frames=3, encoder_options=options)
    assert probe(output).duration_s == pytest.approx(7.04, abs=0.002)


def test_a_source_without_a_video_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DecoderError):
        mapped(None, clip("audio_only"), tmp_path / "mapped.mkv")
    with pytest.raises(FileNotFoundError):
        mapped(None, tmp_path / "none.mp4", tmp_path / "mapped.mkv")
    assert list(tmp_path.iterdir()) == []


@SLOW
@pytest.mark.parametrize(
    "name, codec", [("audio_aac", "aac"), ("audio_flac_51", "flac"), ("audio_pcm", "pcm_s16le")]
)
def test_the_sound_of_a_source_is_copied(tmp_path: Path, name: str, codec: str) -> None:
    source = clip(name)
    made = probe(mapped(inverted, source, tmp_path / "mapped.mkv"))
    assert made.audio[0].codec == codec
    assert made.best_video is not None and made.best_video.start_s == 0
    assert made.best_audio is not None
    assert (made.best_audio.sample_rate, made.best_audio.channels) == (
        probe(source).audio[0].sample_rate,
        probe(source).audio[0].channels,
    )


@pytest.mark.parametrize("program", ffmpegs())
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_a_copied_sound_is_all_there(tmp_path: Path, program: str, suffix: str) -> None:
    """FFmpeg 9 writes into Matroska how much its readers are to skip."""
    source, output = tmp_path / "source.mp4", tmp_path / f"mapped.{suffix}"
    noise = ("-f", "lavfi", "-i", "anoisesrc=d=1:r=44100:seed=3", "-c:a", "aac", "-aac_pns", 0)
    ffmpeg("-f", "lavfi", "-i", "testsrc2=64x48:r=10:d=1", *noise, source)
    penstock.map_video(
        None, source, output, workers=1, encoder_options={"settings": EncoderSettings(ffmpeg=program)}
    )
    before, after = (penstock.AudioDecoder(path).read_all()[:20_000] for path in (source, output))
    np.testing.assert_allclose(before[2048:], after[2048:], atol=1e-4)  # Matroska's fades in


RATE = 48000


def scene(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = index % 256


def clicks(path: Path, seconds: float, *codec: str) -> Path:
    """A sound file with a click at each full second."""
    samples = np.zeros(round(seconds * RATE), np.int16)
    for start in range(0, len(samples), RATE):
        samples[start : start + 480] = 20000
    raw = path.with_suffix(".raw")
    samples.tofile(raw)
    ffmpeg("-f", "s16le", "-ar", RATE, "-ac", 1, "-i", raw, *codec, path)
    raw.unlink()
    return path


def heard(video: Path) -> tuple[list[float], float]:
    """When the clicks of a video begin, and its sound ends, in seconds by its own clock."""
    filters = "aresample=async=1:first_pts=0"
    raw = ffmpeg("-i", video, "-map", "0:a:0", "-af", filters, "-f", "s16le", "-ar", RATE, "-ac", 1, "-")
    loud = np.abs(np.frombuffer(raw, np.int16).astype(int)) > 8000
    found: list[float] = []
    for at in np.flatnonzero(loud):
        if not found or at / RATE - found[-1] > 0.5:
            found.append(at / RATE)
    return found, len(loud) / RATE


@SLOW
@pytest.mark.parametrize(
    "suffix, sound, codec, kept",
    [
        ("mp4", "sound.m4a", ("-c:a", "aac"), "aac"),
        pytest.param("mkv", "sound.m4a", ("-c:a", "aac"), "aac", marks=EXHAUSTIVE),
        pytest.param("mov", "sound.wav", ("-c:a", "pcm_s16le"), "pcm_s16le", marks=EXHAUSTIVE),
        pytest.param("mp4", "sound.wav", ("-c:a", "pcm_s16le"), "aac", marks=EXHAUSTIVE),
        pytest.param("mp4", "sound.flac", ("-c:a", "flac"), None, marks=EXHAUSTIVE),
        pytest.param("mp4", "sound.mp3", ("-c:a", "libmp3lame"), "mp3", marks=EXHAUSTIVE),
        ("webm", "sound.m4a", ("-c:a", "aac"), "opus"),
        pytest.param("mkv", "sound.ogg", ("-c:a", "libvorbis"), "vorbis", marks=EXHAUSTIVE),
    ],
)
@pytest.mark.parametrize(
    "first, seconds", [(0, 3.0), pytest.param(36, 5.0, marks=EXHAUSTIVE), pytest.param(30, 2.0, marks=SLOW)]
)
def test_sound_begins_at_the_time_of_the_first_frame(
    tmp_path: Path,
    suffix: str,
    sound: str,
    codec: tuple[str, ...],
    kept: str | None,
    first: int,
    seconds: float,
) -> None:
    """The picture lasts 60 frames of 24 a second, 2.5 s."""
    output = tmp_path / f"video.{suffix}"
    encoder: dict[str, Any] = {"preset": "ultrafast"}
    if suffix == "webm":
        encoder = {"codec": "libvpx-vp9", "options": {"b": "300k", "deadline": "realtime", "cpu-used": 8}}
    audio = clicks(tmp_path / sound, seconds, *codec)
    given = {"size": SIZE, "fps": 24, "workers": 2, "audio": audio, "encoder_options": encoder}
    renders.rendered(scene, output, frames=range(first, first + 60), **given)
    made = probe(output)
    assert kept is None or made.audio[0].codec == kept
    # FFmpeg moves the picture in WebM by what the Opus encoder puts before the sound, 6.5 ms.
    assert made.best_video is not None and made.best_video.start_s in (
        (0.0, 0.007) if suffix == "webm" else (0.0,)
    )
    assert len(decode(output, SIZE)) == 60
    start_s = first / 24
    wanted = [at - start_s for at in range(10) if start_s <= at < min(seconds, start_s + 2.5)]
    found, ends_s = heard(output)
    # Copied sound is cut between two of its packets: an AAC packet lasts 21 ms, and encoders ring before a click.
    found = [at for at in found if at < 2.45]
    assert len(found) == len(wanted)
    assert max((abs(a - b) for a, b in zip(found, wanted, strict=True)), default=0) < 0.02
    assert ends_s <= min(2.5, seconds - start_s) + 0.1


@SLOW
def test_source_audio_stays_in_sync_with_its_frames(tmp_path: Path) -> None:
    """The picture of the source begins half a second after its sound."""
    audio, source = clicks(tmp_path / "sound.wav", 3.0), tmp_path / "source.mkv"
    picture = "color=gray:size=64x48:rate=24:duration=2"
    ffmpeg("-i", audio, "-itsoffset", "0.5", "-f", "lavfi", "-i", picture, "-map", "1", "-map", "0", source)
    output = mapped(None, source, tmp_path / "mapped.mkv", encoder_options={"preset": "ultrafast"})
    found, _ = heard(output)
    assert [round(at, 1) for at in found] == [0.5, 1.5]


def test_source_without_audio_is_refused_as_audio(tmp_path: Path) -> None:
    given: dict[str, Any] = {"frames": 9, "size": SIZE, "fps": 24, "output": tmp_path / "video.mp4"}
    for audio, error in (
        (clip("h264"), ValueError),
        (tmp_path / "none.wav", FileNotFoundError),
        (clip("text"), DecoderError),
    ):
        with pytest.raises(error):
            penstock.render(scene, **given, audio=audio)
    for no_path in (penstock.video.AudioTrack(48_000, 2), ["sound.wav"]):
        with pytest.raises(TypeError, match="audio must be"):
            penstock.render(scene, **given, audio=no_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["video.mp4", "video.mkv"])
def test_audio_that_ends_before_the_first_frame_warns(tmp_path: Path, name: str) -> None:
    audio = clicks(tmp_path / "two.wav", 2.0)
    given: dict[str, Any] = {"size": SIZE, "fps": 25, "output": tmp_path / name, "audio": audio}
    report = renders.rendered(scene, frames=range(100, 106), **given)
    [warning] = [one for one in report.warnings if "the result has no audio" in one]
    assert "two.wav ends before the first frame" in warning
    assert not any("no audio" in one for one in renders.rendered(scene, frames=range(6), **given).warnings)


@pytest.mark.parametrize("flags", ["+frag_keyframe", "+frag_keyframe+empty_moov", "dash", "cmaf", "+isml"])
def test_a_file_in_fragments_is_refused_at_the_call(tmp_path: Path, flags: str) -> None:
    given: dict[str, Any] = {"frames": 9, "size": SIZE, "fps": 24, "output": tmp_path / "video.mp4"}
    for options in ({"movflags": flags}, {"frag_duration": 100000}):
        with pytest.raises(ValueError):
            penstock.render(scene, **given, encoder_options={"options": options})
    penstock.rendering.plan(
        scene, **given, encoder_options={"options": {"movflags": "+faststart-frag_keyframe"}}
    )


HDR = (
    *("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.4", "-c:v", "libx264", "-pix_fmt", "yuv420p10le"),
    # FFmpeg 7.1 takes them from the frames alone.
    *("-vf", "setsar=4/3,setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=smpte2084"),
)


@pytest.mark.parametrize("codec", ["libx264", pytest.param("prores_ks", marks=SLOW)])
def test_colors_and_pixel_aspect_ratio_of_the_source_are_kept(tmp_path: Path, codec: str) -> None:
    ffmpeg(*HDR, tmp_path / "hdr.mp4")
    suffix = "mov" if codec == "prores_ks" else "mp4"
    output = mapped(
        None, tmp_path / "hdr.mp4", tmp_path / f"mapped.{suffix}", encoder_options={"codec": codec}
    )
    video, source = probe(output).video[0], probe(tmp_path / "hdr.mp4").video[0]
    assert (video.color_matrix, video.color_primaries, video.color_transfer) == (
        "bt2020",
        "bt2020",
        "smpte2084",
    )
    assert video.sample_aspect_ratio == source.sample_aspect_ratio == Fraction(4, 3)
    with penstock.Decoder(output) as got, penstock.Decoder(tmp_path / "hdr.mp4") as wanted:
        off = [np.abs(np.asarray(a, int) - b).mean() for a, b in zip(got, wanted, strict=True)]
    assert len(off) == 10 and max(off) < 6


def test_hdr_metadata_is_kept_or_warns(tmp_path: Path) -> None:
    light = (
        "mastering-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):cll=1000,400"
    )
    ffmpeg(*HDR, "-x264-params", light, tmp_path / "hdr.mp4")
    mapped(None, tmp_path / "hdr.mp4", tmp_path / "mapped.mp4", encoder_options={})
    video, source = probe(tmp_path / "mapped.mp4").video[0], probe(tmp_path / "hdr.mp4").video[0]
    assert source.content_light is not None
    assert (video.mastering_display, video.content_light) == (source.mastering_display, source.content_light)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mapped(None, tmp_path / "hdr.mp4", tmp_path / "mapped.mov", encoder_options={"codec": "prores_ks"})
    is_missed = any("HDR" in str(one.message) for one in told)
    video = probe(tmp_path / "mapped.mov").video[0]
    assert video.content_light == (None if is_missed else source.content_light)
    assert is_missed is not holds_hdr_metadata(find_ffmpeg(), "prores_ks")


def test_wrong_order_of_arguments_raises(tmp_path: Path) -> None:
    for arguments in (
        (clip("h264"), inverted, tmp_path / "a.mp4"),
        (clip("h264"), tmp_path / "a.mp4", inverted),
    ):
        with pytest.raises(TypeError):
            penstock.map_video(*arguments)  # type: ignore[arg-type]


def test_lost_facts_of_the_source_warn(tmp_path: Path) -> None:
    ffmpeg(*HDR, tmp_path / "hdr.mp4")
    with pytest.warns(penstock.FFmpegWarning, match="pixel"):
        mapped(half, tmp_path / "hdr.mp4", tmp_path / "half.mp4", size=(32, 24), encoder_options={})
    with pytest.warns(penstock.FFmpegWarning, match="interlacing"):
        mapped(None, clip("interlaced"), tmp_path / "interlaced.mkv")


def test_assemble_reports_what_the_source_loses(tmp_path: Path) -> None:
    with pytest.warns(penstock.FFmpegWarning, match="interlacing"):
        planned = rendering.plan_video(None, clip("interlaced"), tmp_path / "out.mkv", workers=1)
    planned = rendering.Plan.from_json(planned.to_json())
    for number in range(len(planned.lengths)):
        rendering.render_chunk(planned, number)
    report = rendering.assemble(planned)
    assert planned.lost and report.warnings[: len(planned.lost)] == planned.lost


CHAPTERS = [(0.0, "One"), (0.4, "Two")]


def labels_of(path: Path) -> tuple[dict[str, str], list[tuple[float, str | None]]]:
    media = probe(path)
    tags = {name.lower(): value for name, value in media.tags.items()}
    chapters = [(round(one.start_s, 3), one.title) for one in media.chapters]
    return {name: tags[name] for name in ("title", "artist") if name in tags}, chapters


@pytest.mark.parametrize("has_sound", [False, True])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_mapped_video_keeps_the_tags_and_chapters_that_like_keeps(
    tmp_path: Path, suffix: str, has_sound: bool
) -> None:
    source, output = tmp_path / f"source.{suffix}", tmp_path / f"mapped.{suffix}"
    tags = {"title": "Waves", "artist": "Ada"}
    # Of AAC in Matroska, FFmpeg 5.1 has the picture begin later.
    codec = "flac" if suffix == "mkv" else "aac"
    tone = penstock.video.AudioTrack(8000, 1, codec=codec) if has_sound else None
    with penstock.Encoder(source, fps=10, audio=tone, metadata=tags, chapters=CHAPTERS) as encoder:
        for _ in range(8):
            encoder.write(np.zeros((48, 64, 3), np.uint8))
        if has_sound:
            encoder.write_audio(np.zeros(6400, np.float32))
    report = renders.mapped(source, output)
    assert labels_of(output) == (tags, CHAPTERS) and report.warnings == ()
    assert len(probe(output).audio) == has_sound
    mine = {"metadata": {"title": "Mine"}, "chapters": None}
    renders.mapped(source, output, encoder_options=mine)
    assert labels_of(output) == ({"title": "Mine"}, [])
    renders.mapped(source, output, encoder_options={"options": {"metadata": "title=Option"}})
    assert labels_of(output) == ({"title": "Option", "artist": "Ada"}, CHAPTERS)


def test_plan_keeps_labels(tmp_path: Path) -> None:
    given = {"metadata": {"title": "Waves"}, "chapters": CHAPTERS}
    made = rendering.plan(
        scene, tmp_path / "a.mp4", frames=3, size=(64, 48), fps=10, encoder_options=given, workers=1
    )
    assert made.labels.chapters == tuple(CHAPTERS) and rendering.Plan.from_json(made.to_json()) == made


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_what_a_mapped_video_loses_warns_as_like_does(tmp_path: Path, suffix: str) -> None:
    pictures, late = tmp_path / "pictures.mkv", tmp_path / f"late.{suffix}"
    tones, source = tmp_path / "tones.mka", tmp_path / f"in.{suffix}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=1", "-c:v", "libx264", pictures)
    ffmpeg("-f", "lavfi", "-i", "sine=d=2.5", "-c:a", "aac", tones)
    subtitles = tmp_path / "in.srt"
    subtitles.write_text("1\n00:00:00,000 --> 00:00:01,000\nHello\n")
    tracks = ("-map", "0:v", "-map", "1:a", "-c", "copy")
    ffmpeg("-i", pictures, "-i", tones, *tracks, source)
    with pytest.warns(penstock.FFmpegWarning, match=r"last 1\.[45]\d\d s of audio"):
        mapped(None, source, tmp_path / "out.mkv")
    others = ("-map", "1:a", "-map", "2:s", "-c:s", "mov_text" if suffix == "mp4" else "copy")
    ffmpeg("-i", pictures, "-i", tones, "-i", subtitles, *tracks, *others, "-t", "1", source)
    with pytest.warns(penstock.FFmpegWarning) as caught:
        report = renders.mapped(source, tmp_path / "out.mkv")
    told = " ".join(str(one.message) for one in caught)
    assert all(str(one.message) in report.warnings for one in caught)
    assert "audio tracks (1 of 2)" in told and "subtitles" in told
    ffmpeg("-itsoffset", "0.5", "-i", pictures, "-i", tones, *tracks, "-t", "1.5", late)
    with pytest.warns(penstock.FFmpegWarning, match="time before the first frame"):
        mapped(None, late, tmp_path / "out.mkv")


def test_chapters_of_a_mapped_video_stay_at_their_frames(tmp_path: Path) -> None:
    with penstock.Encoder(tmp_path / "in.mp4", fps=None, chapters=[(0.0, "One"), (0.9, "Two")]) as encoder:
        for index in range(8):
            encoder.write(np.zeros((48, 64, 3), np.uint8), time_s=0.5 + index / 10)
    with pytest.warns(penstock.FFmpegWarning, match="time before the first frame"):
        mapped(None, tmp_path / "in.mp4", tmp_path / "out.mkv")
    assert labels_of(tmp_path / "out.mkv")[1] == [(0.0, "One"), (0.4, "Two")]
