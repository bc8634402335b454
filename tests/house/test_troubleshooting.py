"""The page Troubleshooting: each heading names the class of an error that occurs, and a word of its message."""

from __future__ import annotations

import gzip
import os
import re
import signal
import sys
import time
import warnings
import wave
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import media
from support.cases import needs

import penstock
from penstock import fifo
from penstock.rendering import plan, render_chunk
from penstock.video import AudioTrack, Colors, EncoderSettings, find_ffmpeg

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "troubleshooting.md").read_text()
HEADINGS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
# By its symptom: the class of an error, and perhaps a word of its message.
ERRORS = dict(re.findall(r"^### ([^`\n]+): (`.+`)$", PAGE, re.MULTILINE))
FRAME = np.zeros((48, 64, 3), np.uint8)
SIZE = (64, 48)


def encode(output: str = "out.mp4", frame: object = FRAME, frames: int = 4, **options: object) -> None:
    with penstock.Encoder(output, **{"fps": 30, **options}) as encoder:  # type: ignore[arg-type]
        for _ in range(frames):
            encoder.write(frame)  # type: ignore[arg-type]


def decode(path: str) -> None:
    with penstock.Decoder(path) as decoder:
        for _ in decoder:
            pass


def decode_cut(path: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, FRAME.shape, dtype=np.uint8)
    encode(path, noise, 30)
    os.truncate(path, Path(path).stat().st_size // 2)
    decode(path)


def decode_unfinished() -> None:
    with penstock.Encoder("out.mp4", fps=30, size=SIZE) as encoder:
        encoder.write(FRAME)
        while not Path("out.mp4").exists():
            time.sleep(0.01)
        decode("out.mp4")


def decode_encrypted() -> None:
    encode("clear.mp4")
    encryption = (
        "-encryption_scheme",
        "cenc-aes-ctr",
        "-encryption_key",
        "76" * 16,
        "-encryption_kid",
        "a7" * 16,
    )
    media.ffmpeg("-i", "clear.mp4", "-c", "copy", *encryption, "out.mp4")
    decode("out.mp4")


def decode_playlist() -> None:
    Path("list.m3u8").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nout.ts\n")
    decode("list.m3u8")


def decode_hdr() -> None:
    colors = Colors(matrix="bt2020", primaries="bt2020", transfer="smpte2084")
    deep: dict[str, object] = {"pixel_format": "rgb48le", "output_pixel_format": "yuv420p10le"}
    encode(frame=FRAME.astype(np.uint16), colors=colors, **deep)
    decode("out.mp4")


def decode_16_bits() -> None:
    encode("out.mkv", FRAME[..., 0].astype(np.uint16), pixel_format="gray16le", codec="ffv1")
    decode("out.mkv")


def random_access_with_filters() -> None:
    encode()
    with penstock.Decoder("out.mp4", filters="hflip") as decoder:
        decoder[0]


def length_of_a_gif() -> None:
    encode("out.gif")
    with penstock.Decoder("out.gif") as decoder:
        len(decoder)


def read_more_than_fits() -> None:
    encode("out.mkv", frames=30)
    available = "penstock._whole_videos.available_bytes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(available, lambda: 1000)
        penstock.read_video("out.mkv")


def encode_without_a_gpu() -> None:
    needs(find_ffmpeg(), "h264_nvenc")
    encode(codec="h264_nvenc")
    pytest.skip("h264_nvenc works here")


def encode_faster_than_ffmpeg() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (720, 1280, 3), dtype=np.uint8)
    encoder = penstock.Encoder("out.mp4", fps=30, preset="veryslow")
    try:
        while True:
            encoder.write(noise, timeout=0.01)
    finally:
        encoder.abort()


def close_a_stopped_ffmpeg() -> None:
    encoder = penstock.Encoder("out.mp4", fps=30, size=SIZE, settings=EncoderSettings(stall_timeout=0.2))
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGSTOP)
    try:
        encoder.write(FRAME)
        encoder.close()
    finally:
        encoder.abort()


def encode_to_a_fifo_that_nobody_reads() -> None:
    fifo.create("out.fifo")
    encoder = penstock.Encoder("out.fifo", fps=30, size=SIZE, options={"f": "matroska"})
    try:
        encoder.write(FRAME)
        encoder.close(timeout=0.5)
    finally:
        encoder.abort()


def write_int16_to_a_track_of_floats() -> None:
    with penstock.Encoder("out.mp4", fps=30, size=SIZE, audio=AudioTrack(48_000, channels=2)) as encoder:
        encoder.write(FRAME)
        encoder.write_audio(np.zeros((100, 2), np.int16))


def encode_with_cut_audio() -> None:
    with wave.open("cut.wav", "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        file.writeframes(bytes(96_000))
    os.truncate("cut.wav", 50_001)
    encode(audio="cut.wav", frames=60)


def through_a_pipe(use: Callable[[int, int], None]) -> None:
    reader, writer = os.pipe()
    try:
        use(reader, writer)
    finally:
        for end in (reader, writer):
            with suppress(OSError):  # `use` may have closed it
                os.close(end)


def write_to_nobody(reader: int, writer: int) -> None:
    os.close(reader)
    with penstock.Writer(writer) as own:
        own.write(b"lost")


def write_to_a_reader_that_sleeps(_: int, writer: int) -> None:
    own = penstock.Writer(writer)
    try:
        own.write(bytes(4 << 20))
        own.flush(timeout=0.1)
    finally:
        own.abort()


def read_half_a_frame(reader: int, writer: int) -> None:
    os.write(writer, b"half")
    os.close(writer)
    with penstock.Reader(reader, frame_bytes=8) as own:
        own.read()


def write_to_gzip() -> None:
    with gzip.open("out.gz", "wb") as file:
        penstock.Writer(file)


def write_in_a_fork() -> None:
    with penstock.Encoder("out.mp4", fps=30, size=SIZE) as encoder:
        encoder.write(FRAME)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                encoder.write(FRAME)
            except penstock.ClosedError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        raise penstock.ClosedError(os.read(reader, 1000).decode())


def black(_index: int, _time_s: float, view: np.ndarray) -> None:
    view[:] = 0


def black_or_not(index: int, _time_s: float, _view: np.ndarray) -> None:
    raise ZeroDivisionError(index)


def render(scene: object = black, **options: object) -> None:
    penstock.render(scene, "out.mp4", frames=4, size=SIZE, fps=30, workers=1, **options)  # type: ignore[arg-type]


def render_what_cannot_be_pickled() -> None:
    frame = sys._getframe()
    render(lambda *_: frame)


def render_a_chunk_of_another_ffmpeg() -> None:
    made = plan(black, "out.mp4", frames=4, size=SIZE, fps=30, workers=1)
    render_chunk(replace(made, ffmpeg="1.0"), 0)


CAUSES: dict[str, Callable[[], None]] = {
    "Odd width or height": lambda: encode(frame=FRAME[:47]),
    "The array doesn't fit": lambda: encode(frame=FRAME.astype(np.float32)),
    "Samples aren't numbers": lambda: encode(frame=np.full(FRAME.shape, np.nan), value_range=(0.0, 1.0)),
    "Samples are clipped": lambda: encode(frame=np.full(FRAME.shape, 2.0), value_range=(0.0, 1.0)),
    "Alpha is dropped": lambda: encode(frame=np.zeros((48, 64, 4), np.uint8), pixel_format="rgba"),
    "The size isn't known": lambda: encode(frame=FRAME.tobytes()),
    "A frame needs its time": lambda: encode(fps=None),
    "FFmpeg doesn't know the codec or option": lambda: encode(codec="libx246"),
    "The container can't hold the video": lambda: encode("out.webm", codec="libx264"),
    "An option changes the number of frames": lambda: encode(options={"t": 0.05}),
    "The file can't store the colors": lambda: encode(
        "out.avi", codec="mpeg4", colors=Colors(matrix="bt709")
    ),
    "There's no GPU": encode_without_a_gpu,
    "FFmpeg is slower than your loop": encode_faster_than_ffmpeg,
    "FFmpeg hangs": close_a_stopped_ffmpeg,
    "The samples don't fit": write_int16_to_a_track_of_floats,
    "These frames can't have times or audio": lambda: encode(fps=None, size=SIZE, pixel_format="p010le"),
    "The audio file is damaged": encode_with_cut_audio,
    "The MP4 was never finished": lambda: decode_cut("out.mp4"),
    "The file isn't finished yet": decode_unfinished,
    "The file is damaged": lambda: decode_cut("out.mkv"),
    "The file is a playlist": decode_playlist,
    "The file is encrypted": decode_encrypted,
    "HDR looks dull": decode_hdr,
    "16 bits become 8": decode_16_bits,
    "Random access isn't possible": random_access_with_filters,
    "The length isn't known": length_of_a_gif,
    "The video doesn't fit into memory": read_more_than_fits,
    "The server isn't there": lambda: encode("tcp://127.0.0.1:9"),
    "One output of FFmpeg's tee failed": lambda: encode(
        "[f=flv]tcp://127.0.0.1:9|out.mp4", options={"f": "tee", "map": "0:v", "flags": "+global_header"}
    ),
    "Nobody opened the FIFO": encode_to_a_fifo_that_nobody_reads,
    "The reader reads nothing": lambda: through_a_pipe(write_to_a_reader_that_sleeps),
    "The reader exited": lambda: through_a_pipe(write_to_nobody),
    "The stream ended inside a frame": lambda: through_a_pipe(read_half_a_frame),
    "The object isn't its descriptor": write_to_gzip,
    "A forked process uses its parent's encoder": write_in_a_fork,
    "The scene can't be pickled": render_what_cannot_be_pickled,
    "A chunk failed": lambda: render(black_or_not),
    "The video can't be divided": lambda: render(encoder_options={"options": {"maxrate": "1M"}}),
    "The machines have different FFmpegs": render_a_chunk_of_another_ffmpeg,
    "There's no FFmpeg": lambda: encode(settings=EncoderSettings(ffmpeg="/no/ffmpeg")),
}
# Why a symptom is only seen on Linux.
ON_LINUX = {"Nobody opened the FIFO": "FIFOs", "A forked process uses its parent's encoder": "forks"}


def test_every_error_on_the_page_is_provoked_here() -> None:
    assert list(CAUSES) == list(ERRORS)


def test_index_links_to_every_heading() -> None:
    index = PAGE[: PAGE.index("\n## ")]
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in HEADINGS]
    assert re.findall(r"\(#(.+?)\)", index) == anchors


@pytest.mark.parametrize(
    "symptom",
    [pytest.param(one, marks=pytest.mark.linux(ON_LINUX[one]) if one in ON_LINUX else ()) for one in CAUSES],
)
def test_error_matches_the_class_and_word_of_its_heading(
    symptom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *words = re.findall("`(.+?)`", ERRORS[symptom])
    found: list[BaseException | str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            CAUSES[symptom]()
        except Exception as error:
            found = [error]
    found = found or [one.message for one in caught if one.category is penstock.FFmpegWarning]
    assert [type(one).__name__ for one in found] == [name], found
    assert all(word.lower() in str(found[0]).lower() for word in words), found
