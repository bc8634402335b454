"""The frames of an isolated decoder come from a process that nobody should trust: whatever it sends, little follows."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import eventually
from support.clips import clip
from support.media import children, ffmpeg
from support.processes import run_script, started, succeeded
from support.stand_in import replace_confined

from penstock import ClosedError, Decoder, DecoderError, FFmpegWarning, StalledError, probe
from penstock._decoding import confined_engine
from penstock._facts.exact_json import pack
from penstock._facts.isolation import Isolation
from penstock._ffmpeg.program import sandbox
from penstock._ffmpeg.program.sandbox import Sandbox
from penstock.video import DecoderSettings

pytestmark = pytest.mark.linux("isolated=True")

#: Bytes of a frame of the clips as rgb24.
FRAME_BYTES = 64 * 48 * 3

Hostile = Callable[..., None]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    """Replaces the process by a program, which has the facts of the clip, with changes to the stream, as `facts`."""

    def replace(code: str, video: dict[str, Any] | None = None) -> None:
        facts = pack(probe(clip("h264")))
        facts["video"][0].update(video or {})
        replace_confined(monkeypatch, tmp_path, code, facts, FRAME_BYTES)

    return replace


def frames_and_error(**options: Any) -> tuple[int, DecoderError]:
    """How many frames come, and what comes then, again and again."""
    frames = 0
    with Decoder(clip("h264"), isolated=True, **options) as decoder:
        with pytest.raises(DecoderError) as caught:
            for frame in decoder:
                assert frame.index == frames and frame.shape == (48, 64, 3)
                frames += 1
        with pytest.raises(DecoderError) as again:
            decoder.read()
        assert again.value is caught.value
        assert not Path(f"/proc/{decoder.pid}/exe").exists()
    assert caught.value.frames == frames
    return frames, caught.value


def test_stand_in_for_the_process_delivers(hostile: Hostile) -> None:
    """Otherwise the tests below would show nothing."""
    hostile("say(facts); frame(0, 7); frame(1, 9); os.close(records); say([2, 'strange'])")
    with Decoder(clip("h264"), isolated=True) as decoder, pytest.warns(FFmpegWarning, match="strange"):
        assert [(frame.index, frame.pts) for frame in decoder] == [(0, 7), (1, 9)]


@pytest.mark.parametrize(
    ("frames", "sent"),
    [
        (1, "frame(0); frame(1, size=FRAME_BYTES - 1)"),  # a frame too short
        (1, "frame(0); frame(1, size=FRAME_BYTES + 1); frame(2)"),  # and one too long
        (1, "frame(0); send(b'?' * 3 * FRAME_BYTES)"),
        (1, "frame(0); frame(0)"),
        (1, "frame(0); frame(2)"),
        (0, "frame(-1)"),
        (0, "frame(0, word=b'?' * 8)"),
        (2, "frame(0); frame(1); frame(2)"),  # one more than it says
        (0, ""),
    ],
)
def test_other_frames_than_announced_raise(frames: int, sent: str, hostile: Hostile) -> None:
    hostile(f"say(facts); {sent or 'pass'}; os.close(records); say({{'frames': 2, 'warning': None}})")
    delivered, error = frames_and_error()
    assert delivered in (frames, frames + 1)
    assert "libav's process" in error.reason


@pytest.mark.parametrize("options", [{}, {"start": 0.31}, {"end": 0.5}], ids=str)
def test_one_process_tells_the_length_and_sends_the_frames(
    options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Decoder(clip("h264_mkv"), isolated=True, **options) as decoder:
        monkeypatch.setattr(Isolation, "ask", None)
        assert len(decoder) == len(list(decoder)) > 0


def test_the_length_is_known_in_the_middle_too() -> None:
    with Decoder(clip("h264_mkv"), isolated=True) as decoder:
        next(decoder)
        assert len(decoder) == 30 and len(list(decoder)) == 29


@pytest.mark.parametrize(
    "said", ["pass", "say('30')", "say(30.5)", "say(None, error='it says so')", "print('nothing')"]
)
def test_an_invalid_length_raises(said: str, hostile: Hostile) -> None:
    hostile(f"say(facts); {said}")
    with Decoder(clip("h264"), isolated=True, start=0.3) as decoder, pytest.raises(DecoderError):
        len(decoder)


def test_more_frames_than_asked_for_raise(hostile: Hostile) -> None:
    hostile("say(facts)\nfor number in range(9): frame(number)")
    assert frames_and_error(count=3)[0] == 3


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "print('[' * 100_000)",
        "print('[]')",
        "print('nothing')",
        "say([1])",
        "say([True, None])",
        "say([1, 5])",
        "say([1 << 64, None])",
        "say(None, error=5)",
        "say(None, error='it says so')",
        "sys.stdout.buffer.write(bytes([255, 10]))",
        "os.kill(os.getpid(), 11)",
    ],
)
def test_invalid_end_raises(end: str, hostile: Hostile) -> None:
    hostile(f"say(facts); frame(0); os.close(records); {end}")
    assert frames_and_error()[0] == 1


def test_endless_answers_end_the_process(hostile: Hostile) -> None:
    hostile("say(facts)\nwhile True: print('x' * 65535, end=sys.argv[0][:0])")
    assert frames_and_error()[0] == 0
    hostile("say(facts)\nwhile True: print('x')")
    assert frames_and_error()[0] == 0


@pytest.mark.parametrize(
    "video",
    [
        {"width": 0},
        {"width": -64},
        {"stored_height": -48},
        {"width": 1_000_000, "height": 1_000_000},
        {"width": 1 << 70},
        {"time_base": [0, 1]},
        {"time_base": [-1, 30]},
        {"time_base": [1 << 80, 1]},
        {"pixel_format": "evil"},
        {"pixel_format": "yuv420p", "has_separate_alpha": True},
        {"width": 100_000, "height": 70_000},  # a frame would have more bytes than the process
        {"rotation": "left"},
    ],
)
@pytest.mark.parametrize("pixel_format", ["rgba", "source"])
def test_impossible_facts_raise(video: dict[str, Any], pixel_format: str, hostile: Hostile) -> None:
    hostile("say(facts); time.sleep(60)", video)
    with pytest.raises(DecoderError):
        Decoder(clip("h264"), isolated=True, pixel_format=pixel_format)


@pytest.mark.parametrize(
    "media", [{"start_s": float("nan")}, {"start_s": float("inf")}, {"video": []}, {"path": 3}, {"tags": [1]}]
)
def test_impossible_facts_about_the_file_raise(media: dict[str, Any], hostile: Hostile) -> None:
    hostile(f"facts.update({media!r}, container='mpegts'); say(facts); time.sleep(60)")
    with pytest.raises(DecoderError):
        Decoder(clip("h264"), isolated=True)


def test_the_file_keeps_its_name_whatever_the_process_says(hostile: Hostile) -> None:
    hostile("facts['path'] = '/etc/passwd'; say(facts); time.sleep(60)")
    with Decoder(clip("h264"), isolated=True) as decoder:
        assert decoder.file.path == str(clip("h264"))


def test_silence_is_a_stall(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile("time.sleep(60)")
    monkeypatch.setattr(confined_engine, "PATIENCE_S", 0.5)
    with pytest.raises(StalledError):
        Decoder(clip("h264"), isolated=True)
    monkeypatch.setattr(confined_engine, "PATIENCE_S", 30.0)
    hostile("say(facts); frame(0); time.sleep(60)")
    impatient = DecoderSettings(stall_timeout=0.5)
    with Decoder(clip("h264"), isolated=True, settings=impatient) as decoder:
        assert decoder.read() is not None
        with pytest.raises(StalledError, match="timed out"):
            decoder.read(timeout=0.05)
        with pytest.raises(StalledError, match="sign of life"):
            decoder.read()


def test_silence_at_the_end_raises(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined_engine, "END_GRACE_S", 0.3)
    hostile("say(facts); frame(0); os.close(records); time.sleep(60)")
    assert frames_and_error()[0] == 1


def test_facts_come_once(hostile: Hostile) -> None:
    """The same process decodes."""
    with Decoder(clip("h264"), isolated=True) as decoder:
        pid = decoder.pid
        assert decoder.engine.name == "libav"
        assert len([*decoder]) == 30 and decoder.pid == pid
        assert decoder.read() is None and decoder.read() is None


def test_no_ffmpeg_program_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("PENSTOCK_FFMPEG", raising=False)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with Decoder(clip("h264"), isolated=True) as decoder:
        assert len([*decoder]) == 30


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("h264", {"start": 0.5}),
        ("h264", {"count": 7, "size": (32, None)}),
        ("h264", {"settings": DecoderSettings(threads=1, conversion_threads=0, queue_items=1)}),
        ("h264_ts", {"pixel_format": "gray"}),
        ("gif", {"pixel_format": "rgba"}),
        ("rawvideo", {"pixel_format": "grayf32le"}),
    ],
)
def test_isolated_frames_are_those_of_this_process(name: str, options: dict[str, Any]) -> None:
    def frames(isolated: bool) -> list[tuple[object, ...]]:
        with Decoder(clip(name), isolated=isolated, **options) as decoder:
            return [(frame.index, frame.pts, frame.time_s, frame.tobytes()) for frame in decoder]

    assert frames(isolated=True) == frames(isolated=False)


@pytest.mark.parametrize("name", ["cut_mkv", "corrupt_mkv", "cut_ts", "bt2020_10bit"])
def test_ends_and_warnings_are_those_of_this_process(name: str) -> None:
    def outcome(isolated: bool) -> tuple[object, ...]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frames = 0
            try:
                with Decoder(clip(name), isolated=isolated) as decoder:
                    for _ in decoder:
                        frames += 1
            except DecoderError as error:
                return frames, str(error), error.frames, [str(one.message) for one in caught]
        return frames, [str(one.message) for one in caught]

    assert outcome(isolated=True) == outcome(isolated=False)


@pytest.mark.parametrize("options", [{"stream": 3}, {"size": (0, 0)}, {"pixel_format": "purple"}])
def test_wrong_arguments_raise_as_without_isolation(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as isolated:
        Decoder(clip("h264"), isolated=True, **options)
    with pytest.raises(ValueError) as own:
        Decoder(clip("h264"), **options)
    assert str(isolated.value) == str(own.value)


def test_frames_may_be_written_to_and_kept() -> None:
    with Decoder(clip("h264"), isolated=True) as decoder:
        kept = [frame.copy() for frame in decoder]
    with Decoder(clip("h264"), isolated=True) as decoder:
        frames = [*decoder]
    assert all(frame.flags.writeable for frame in frames)
    assert all(np.array_equal(*both) for both in zip(kept, frames, strict=True))


def test_decode_beyond_the_memory_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_BASE_BYTES", 100 << 20)
    monkeypatch.setattr(sandbox, "_THREAD_BYTES", 0)
    with (
        pytest.raises(DecoderError, match="memory"),
        Decoder(clip("h264_large"), isolated=True, size=(8000, 8000)) as decoder,
    ):
        list(decoder)


def test_decode_beyond_the_time_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def around(source: int, *, threads: int, is_strict: bool) -> Sandbox:
        return Sandbox(source, 2 << 30, 1, is_strict)

    monkeypatch.setattr(Sandbox, "around", around)
    with (
        pytest.raises(DecoderError, match="CPU"),
        Decoder(clip("h264_large"), isolated=True, size=(6000, 6000)) as decoder,
    ):
        list(decoder)


def test_stats_count_frames() -> None:
    with Decoder(clip("h264"), isolated=True) as decoder:
        assert decoder.stats.frames_read == 0 and decoder.stats.reader is None
        list(decoder)
        stats = decoder.stats
    assert (stats.frames_read, stats.frames_delivered, stats.bytes_read) == (30, 30, 30 * FRAME_BYTES)
    assert stats.elapsed_s > 0 and stats.reader is not None


def test_close_ends_the_process_at_once() -> None:
    decoder = Decoder(clip("h264_large"), isolated=True)
    pid = decoder.pid
    assert decoder.read() is not None and Path(f"/proc/{pid}/exe").exists()
    decoder.close()
    decoder.close()
    assert not Path(f"/proc/{pid}/exe").exists() and decoder.closed
    with pytest.raises(ClosedError):
        decoder.read()


def test_close_by_another_thread_ends_a_read(hostile: Hostile) -> None:
    hostile("say(facts); time.sleep(60)")
    with Decoder(clip("h264"), isolated=True) as decoder:
        threading.Timer(0.2, decoder.close).start()
        began_s = time.monotonic()
        with pytest.raises(ClosedError):
            decoder.read()
        assert time.monotonic() - began_s < 10


def test_close_by_a_signal_handler_ends_a_read(hostile: Hostile) -> None:
    hostile("say(facts); time.sleep(60)")
    with Decoder(clip("h264"), isolated=True) as decoder:
        before = signal.signal(signal.SIGALRM, lambda *_: decoder.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(ClosedError):
                decoder.read()
        finally:
            signal.signal(signal.SIGALRM, before)


def test_unread_decoder_is_collected_with_a_warning() -> None:
    decoder = Decoder(clip("h264"), isolated=True)
    pid = decoder.pid
    decoder.read()
    with pytest.warns(ResourceWarning):
        del decoder
        gc.collect()
    for _ in range(100):
        if not Path(f"/proc/{pid}/exe").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the process goes on")


def test_cancelled_read_loses_no_frame() -> None:
    async def read() -> list[int]:
        indices = []
        async with Decoder(clip("h264"), isolated=True) as decoder:
            while True:
                task = asyncio.ensure_future(decoder.__anext__())
                await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    indices.append((await task).index)
                try:
                    indices.append((await anext(decoder)).index)
                except StopAsyncIteration:
                    return indices

    assert asyncio.run(read()) == [*range(30)]


def test_several_threads_share_the_frames() -> None:
    indices: list[int] = []
    with Decoder(clip("h264"), isolated=True) as decoder:

        def read() -> None:
            while (frame := decoder.read()) is not None:
                indices.append(frame.index)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(indices) == [*range(30)]


@pytest.mark.linux("forks")
def test_child_of_a_fork_cannot_read_and_the_parent_goes_on() -> None:
    program = """
decoder = penstock.Decoder(sys.argv[1], isolated=True)
decoder.read()
if (pid := os.fork()) == 0:
    try:
        decoder.read()
    except penstock.ClosedError:
        decoder.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert len([*decoder]) == 29
"""
    succeeded(run_script(program, clip("h264")))


def test_exit_of_the_interpreter_ends_the_process() -> None:
    program = """
decoder = penstock.Decoder(sys.argv[1], isolated=True)
decoder.read()
print(decoder.pid)
"""
    pid = int(succeeded(run_script(program, clip("h264_large"))))
    assert not Path(f"/proc/{pid}/exe").exists()


# --- by number -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h264", "h264_ts", "cut_mkv", "vp9_alpha", "rotated_90", "gif"])
def test_isolated_frames_by_number_are_those_of_this_process(name: str) -> None:
    def frames(isolated: bool) -> list[tuple[object, ...]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Decoder(clip(name), isolated=isolated, start=0.1, count=6) as decoder:
                taken = [decoder[2], decoder[-1], *decoder[::-2], decoder.frame_at(0.2)]
                seen = [(frame.index, frame.pts, frame.time_s, frame.tobytes()) for frame in taken]
                seen.append((decoder.batch([3, 3, 0]).tobytes(),))
                out = np.empty((2, *decoder.shape), decoder.dtype)
                seen.append((decoder.batch([1, 4], out=out).tobytes(),))
                with pytest.raises(IndexError):
                    decoder[6]
                assert next(decoder).index == 0
        return [*seen, *(str(one.message) for one in caught)]

    assert frames(isolated=True) == frames(isolated=False)


def test_many_frames_by_number_come_in_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "many.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=32x16:d=50", "-c:v", "mpeg4", "-pix_fmt", "yuv420p", path)
    with Decoder(path, isolated=True) as decoder:
        batch = decoder.batch(range(1249, -1, -1))
        assert all(np.array_equal(*both) for both in zip(batch[::-1], decoder, strict=True))


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_a_damaged_frame_by_number_leaves_the_others() -> None:
    def outcomes(isolated: bool) -> list[object]:
        found: list[object] = []
        with Decoder(clip("corrupt_ts"), isolated=isolated) as decoder:
            for number in range(0, 15, 3):
                try:
                    found.append(decoder[number].tobytes())
                except DecoderError as error:
                    found.append(str(error))
        return found

    want = outcomes(isolated=False)
    assert outcomes(isolated=True) == want and {type(one) for one in want} == {str, bytes}


def test_the_arguments_of_the_process_do_not_tell_what_it_is_asked() -> None:
    with Decoder(clip("h264"), isolated=True) as decoder:
        decoder.read()
        arguments = Path(f"/proc/{decoder.pid}/cmdline").read_text()
        assert "confined_child" in arguments
        assert '"options"' not in arguments and str(clip("h264")) not in arguments


def by_number(hostile: Hostile, code: str) -> Decoder:
    """A decoder whose frames by number come from a program that nobody should trust."""
    with_facts = "if call()[0] == 'opened': answer(facts); sys.exit()\n"
    shown = "answer({'pts': [*range(10)], 'last_duration': 1, 'why_short': None, 'warning': None}); call()\n"
    pad = "end = b'the end\\n'\n"
    hostile(with_facts + pad + (code if code.startswith("answer") else shown + code))
    return Decoder(clip("h264"), isolated=True)


def test_stand_in_for_the_process_by_number_delivers(hostile: Hostile) -> None:
    """Otherwise the tests below would show nothing."""
    with by_number(hostile, "frame(3); frame(0, word=end); answer(None); time.sleep(60)") as decoder:
        assert decoder[3].index == 3


RENUMBERED = """\
frame(0, word=end); answer({'pts': [*range(0, 40, 2)], 'last_duration': 1, 'why_short': None, 'warning': None})
call()
"""


def test_numbers_that_stand_for_other_frames_are_asked_for_again(hostile: Hostile) -> None:
    code = RENUMBERED + "frame(3); frame(0, word=end); answer(None); time.sleep(60)"
    with by_number(hostile, code) as decoder:
        frame = decoder[3]
        assert (frame.pts, decoder.count_frames()) == (6, 20)


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        RENUMBERED + RENUMBERED,
        "frame(0, word=end); answer({'pts': 3, 'last_duration': 1, 'why_short': None, 'warning': None})",
        "frame(0, word=end); answer(7)",
        "frame(0, word=end); answer(None, error='it says so')",
        "frame(0, word=end); time.sleep(0.1); os.kill(os.getpid(), 9)",
        "frame(4)",
        "frame(-1)",
        "frame(3, size=5)",
        "[frame(3) for _ in range(9)]",
        "send(b'?' * 99999)",
        "frame(3); os.kill(os.getpid(), 9)",
        "frame(3, word=b'failed!\\n')",
        "answer({'pts': [0.5], 'last_duration': 1, 'why_short': None, 'warning': None})",
        "answer({'pts': [1 << 63], 'last_duration': 1, 'why_short': None, 'warning': None})",
        "answer({'pts': 7, 'last_duration': 1, 'why_short': None, 'warning': None})",
        "answer({'pts': [7], 'last_duration': 1, 'why_short': None, 'warning': 7})",
        "answer({'pts': [7], 'last_duration': 1, 'why_short': 7, 'warning': None})",
        "answer(None, error='it says so')",
    ],
)
def test_hostile_answers_by_number_raise(code: str, hostile: Hostile) -> None:
    with by_number(hostile, code) as decoder:
        for _ in range(2):
            with pytest.raises(DecoderError):
                decoder[3]


def test_a_strange_answer_by_number_ends_the_process(hostile: Hostile) -> None:
    with by_number(hostile, "frame(0, word=end); answer(7); time.sleep(60)") as decoder:
        with pytest.raises(DecoderError):
            decoder[3]
        assert not started()


def test_frame_by_number_that_does_not_come_is_an_error(hostile: Hostile) -> None:
    with by_number(hostile, "frame(0, word=end); answer(None); time.sleep(60)") as decoder:
        with pytest.raises(DecoderError):
            decoder[3]
        with pytest.raises(DecoderError):
            decoder.batch([3, 4])


def test_interrupted_call_by_number_leaves_the_next_one_right(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interruption(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interruption

    with Decoder(clip("h264_large"), isolated=True, size=(1280, 720)) as decoder:
        expected = decoder[:].copy()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for after_s in (0.001, 0.01, 0.03):
                signal.setitimer(signal.ITIMER_REAL, after_s)
                with suppress(Interruption):
                    decoder[::-1]
                    time.sleep(1)
                assert np.array_equal(decoder[7], expected[7])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.linux("forks")
def test_child_of_a_fork_has_frames_by_number() -> None:
    program = """
decoder = penstock.Decoder(sys.argv[1], isolated=True)
first = decoder[3].tobytes()
if (pid := os.fork()) == 0:
    os._exit(7 if decoder[3].tobytes() == first else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert decoder[3].tobytes() == first
"""
    succeeded(run_script(program, clip("h264")))


def test_end_of_a_decoder_ends_its_process_by_number() -> None:
    before = children()
    with Decoder(clip("h264_large"), isolated=True) as decoder:
        decoder[3]
        assert len(children() - before) == 2
    assert children() == before
    decoder = Decoder(clip("h264"), isolated=True)
    decoder[3]
    del decoder
    gc.collect()
    assert eventually(lambda: children() == before)


# A program that filters


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (1, "frame(0); frame(2)"),
        (0, "frame(0, word=b'?' * 8)"),
        (1, "frame(0); send(b'?' * 3 * FRAME_BYTES)"),
        (1, "frame(0); os.close(records); say([5, None])"),
        (1, "frame(0); os.close(records); say(['x', None])"),
        (1, "frame(0); os.close(records); say(None, error='it says so')"),
        (1, "frame(0); os.close(records); print('[' * 100_000)"),
        (0, "os.kill(os.getpid(), 11)"),
    ],
)
def test_process_between_a_program_and_us_is_not_trusted(frames: int, code: str, hostile: Hostile) -> None:
    received = []
    with Decoder(clip("h264"), isolated=True, filters="null", pixel_format="source") as decoder:
        hostile(f"import functools; frame = functools.partial(frame, size={decoder.frame_bytes})\n{code}")
        with pytest.raises(DecoderError, match=r"libav's process|it says so"):
            received.extend(frame.index for frame in decoder)
        with pytest.raises(DecoderError):
            decoder.read()
    assert len(received) <= frames


def test_filtered_frames_of_an_isolated_file_are_those_of_another() -> None:
    with Decoder(clip("h264"), filters="hflip,fps=10") as decoder:
        expected = [(frame.pts, frame.tobytes()) for frame in decoder]
    with Decoder(clip("h264"), filters="hflip,fps=10", isolated=True) as decoder:
        assert [(frame.pts, frame.tobytes()) for frame in decoder] == expected
