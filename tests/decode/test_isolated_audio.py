"""The samples of an isolated audio decoder come from a process that nobody should trust: whatever it sends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clips import clip
from support.media import children, ffmpeg
from support.stand_in import replace_confined

from penstock import AudioDecoder, ClosedError, Decoder, DecoderError, FFmpegWarning, StalledError, probe
from penstock._decoding.placed_sound import BLOCK_SAMPLES
from penstock._facts.exact_json import pack
from penstock.video import DecoderSettings

pytestmark = pytest.mark.linux("isolated=True")

Hostile = Callable[..., None]

# Behind the calls with the facts and the form: the first block of a sequence.
BEGIN = "say(facts); say(None); call()"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    """Replaces the process by a program, which has the facts of the clip, with changes to the stream, as `facts`."""

    def replace(code: str, **audio: Any) -> None:
        facts = pack(probe(clip("audio_only")))
        facts["audio"][0].update(audio)
        sizes = f"BLOCK = {BLOCK_SAMPLES}\n"
        replace_confined(monkeypatch, tmp_path, sizes + code, facts, BLOCK_SAMPLES * 2 * 4)

    return replace


def read_isolated(read: Callable[[AudioDecoder], Any]) -> Any:
    with AudioDecoder(clip("audio_only"), isolated=True, settings=DecoderSettings(stall_timeout=5)) as audio:
        return read(audio)


def test_stand_in_for_the_process_delivers(hostile: Hostile) -> None:
    """Otherwise the tests below would show nothing."""
    end = "frame(0, word=b'the end\\n'); answer('strange')"
    hostile(f"{BEGIN}; frame(0, BLOCK); frame(BLOCK, 3); {end}")
    with pytest.warns(FFmpegWarning, match="strange"):
        samples = read_isolated(AudioDecoder.read_all)
    assert samples.shape == (BLOCK_SAMPLES + 3, 2) and samples.flags.writeable and not samples.any()


@pytest.mark.parametrize(
    "sent",
    [
        "frame(0, BLOCK + 1)",  # more samples than it has sent
        "frame(0, 2**62)",
        "frame(0, 0)",
        "frame(0, -1)",
        "frame(0, 9); frame(8, 9)",  # back
        "frame(0, 9, word=b'?' * 8)",
        "frame(0, 9, size=FRAME_BYTES - 1); os.close(records)",
        "send(b'?' * 3 * FRAME_BYTES)",
        "frame(0, 9); os.close(records); answer(None)",  # without an end
        "frame(0, word=b'the end\\n'); answer(5)",
        "frame(0, word=b'the end\\n'); answer(None, error='it says so')",
        "frame(0, word=b'the end\\n'); print('[' * 100_000, flush=True); time.sleep(60)",
        "frame(0, word=b'the end\\n'); answer(None, unconfined=5)",
        "os.kill(os.getpid(), 11)",
        "pass",
    ],
)
def test_other_samples_than_asked_for_raise(sent: str, hostile: Hostile) -> None:
    hostile(f"{BEGIN}; {sent}")
    with pytest.raises(DecoderError):
        read_isolated(AudioDecoder.read_all)
    hostile(f"say(facts); say(None); say(0.5); call(); {sent}")
    with pytest.raises(DecoderError):
        read_isolated(lambda audio: audio.windows([0.1, 0.2], 0.05))


@pytest.mark.parametrize("said", ["say('x')", "say(None)", "say([])", "print('nothing', flush=True)", "pass"])
def test_invalid_answers_about_windows_raise(said: str, hostile: Hostile) -> None:
    hostile(f"say(facts); say(None); {said}")
    with pytest.raises(DecoderError):
        read_isolated(lambda audio: audio.window(0.1, 0.05))


def test_samples_beyond_a_window_are_dropped(hostile: Hostile) -> None:
    end = "frame(0, word=b'the end\\n'); answer(None)"
    hostile(
        f"say(facts); say(None); say(nan); call(); frame(0, BLOCK); frame(2**62, BLOCK); {end}; time.sleep(60)"
    )
    assert read_isolated(lambda audio: audio.windows([0.1, 0.4], 0.05)).shape == (2, 2205, 2)


@pytest.mark.parametrize(
    "facts",
    [
        {"channels": 0},
        {"channels": -1},
        {"channels": 1 << 40},
        {"sample_rate": 0},
        {"time_base": [0, 1]},
        {"time_base": [-1, 44_100]},
        {"start_s": float("nan")},
        {"start_s": float("inf")},
        {"channel_layout": "stereo:sample_fmts=u8"},
        {"channel_layout": "stereo|x"},
    ],
    ids=str,
)
def test_impossible_facts_raise(facts: dict[str, Any], hostile: Hostile) -> None:
    hostile("say(facts); say(None); time.sleep(60)", **facts)
    before = children()
    with pytest.raises(DecoderError):
        AudioDecoder(clip("audio_only"), isolated=True)
    assert children() <= before


def test_silence_is_a_stall(hostile: Hostile) -> None:
    impatient = DecoderSettings(stall_timeout=0.5)
    hostile(f"{BEGIN}; frame(0, BLOCK); frame(BLOCK, 1); time.sleep(60)")
    with AudioDecoder(clip("audio_only"), isolated=True, settings=impatient) as audio:
        assert audio.read() is not None
        with pytest.raises(StalledError, match="timed out"):
            audio.read(timeout=0.05)
        with pytest.raises(StalledError, match="sign of life"):
            audio.read()
    hostile("say(facts); say(None); say(0.5); time.sleep(60)")
    audio = AudioDecoder(clip("audio_only"), isolated=True, settings=impatient)
    with audio, pytest.raises(StalledError, match="sign of life"):
        audio.window(0, 0.1)


@pytest.mark.parametrize("read", [AudioDecoder.read, lambda audio: audio.window(0, 0.1)])
def test_close_by_another_thread_ends_a_read(read: Callable[[AudioDecoder], Any], hostile: Hostile) -> None:
    hostile("say(facts); say(None); say(0.5); time.sleep(60)")
    with AudioDecoder(clip("audio_only"), isolated=True) as audio:
        threading.Timer(0.5, audio.close).start()
        began_s = time.monotonic()
        with pytest.raises(ClosedError):
            read(audio)
        assert time.monotonic() - began_s < 20


def test_close_ends_both_processes() -> None:
    before = children()
    with AudioDecoder(clip("audio_only"), isolated=True) as audio:
        assert audio.read() is not None and len(audio.window(0, 0.1))
        assert len(children() - before) == 2 and audio.pid is not None
    assert children() <= before


def test_wrong_arguments_raise_as_without_isolation() -> None:
    before = children()
    wrong: tuple[dict[str, Any], ...] = ({"stream": 3}, {"sample_rate": 0}, {"matrix": [[1, 2, 3]]})
    for options in wrong:
        with pytest.raises(ValueError) as isolated:
            AudioDecoder(clip("audio_only"), isolated=True, **options)
        with pytest.raises(ValueError) as other:
            AudioDecoder(clip("audio_only"), **options)
        assert str(isolated.value) == str(other.value)
    assert children() <= before
    with pytest.raises(DecoderError, match="no audio"):
        AudioDecoder(clip("h264"), isolated=True)
    for options in ({"input_options": {"x": 1}}, {"settings": DecoderSettings(ffmpeg="ffmpeg")}):
        with pytest.raises(ValueError, match="isolated"):
            AudioDecoder(clip("audio_only"), isolated=True, **options)


def test_the_audio_of_an_isolated_decoder_is_isolated() -> None:
    with (
        Decoder(clip("audio_aac"), start=0.2, isolated="strict") as decoder,
        decoder.audio(channels=1) as audio,
    ):
        assert "isolated" in audio.engine.reason and audio.engine.unconfined == ()
        with AudioDecoder(clip("audio_aac"), start=0.2, channels=1) as other:
            assert np.array_equal(audio.read_all(), other.read_all())


def test_all_audio_before_damage_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "damaged.flac"
    ffmpeg("-f", "lavfi", "-i", "sine=d=3", path)
    damaged = bytearray(path.read_bytes())
    # At 1.5 s, counted from the end: before the sound is padding, of which FFmpeg 9 writes more.
    middle = slice(len(damaged) - 22_500, len(damaged) - 21_500)
    damaged[middle] = bytes(byte ^ 0xFF for byte in damaged[middle])
    path.write_bytes(damaged)
    said, lengths = set[str](), set[int]()
    for isolated in (False, True):
        blocks: list[np.ndarray] = []
        with AudioDecoder(path, isolated=isolated) as audio:
            with pytest.raises(DecoderError) as caught:
                blocks.extend(audio)
            with pytest.raises(DecoderError):
                audio.window(0.7, 0.9)  # the damage is in it, whatever the sizes of frames
            assert np.isfinite(audio.window(0.1, 0.1)).all()
        said.add(str(caught.value).splitlines()[0])
        lengths.add(sum(map(len, blocks)))
    assert len(said) == len(lengths) == 1 and lengths.pop() > 44_100


def test_bytes_can_be_isolated() -> None:
    data = clip("audio_only_m4a").read_bytes()
    with AudioDecoder(data, isolated=True) as audio, AudioDecoder(data) as other:
        assert np.array_equal(audio.read_all(), other.read_all())
        assert os.getpid() != audio.pid
