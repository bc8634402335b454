"""FFmpeg's processes when they start, end and are interrupted, in hosts of all kinds."""

from __future__ import annotations

import gc
import os
import random
import signal
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.cases import eventually, ffmpegs
from support.clips import clip
from support.media import children
from support.processes import run_script, succeeded
from support.this_process import only_on_linux, open_fds

from penstock import AudioDecoder, Decoder, Encoder, EncoderError, probe
from penstock._ffmpeg.program.child import Lines
from penstock.video import DecoderSettings, EncoderSettings, find_ffmpeg

ENCODE = """
from penstock import Encoder, EncoderError
from penstock.video import EncoderSettings, find_ffmpeg

def encode(path, frames=5, **options):
    encoder = Encoder(path, size=(64, 48), fps=25, **options)
    for index in range(frames):
        encoder.write(bytes([index * 10]) * (64 * 48 * 3))
    return encoder.close()
"""

# An FFmpeg that does everything right, and exits with 3.
FAILING = """#!/bin/sh
"{program}" "$@"
exit 3
"""


# One whose own child has its pipes, and goes on.
LEAVING = """#!/bin/sh
sleep 1000 &
echo $! >> "$0.pids"
exec "{program}" "$@"
"""


def wrapped(tmp_path: Path, program: str, script: str) -> Path:
    only_on_linux("a shell script stands in for a program")
    wrapper = tmp_path / Path(program).name
    wrapper.write_text(script.format(program=program))
    wrapper.chmod(0o755)
    return wrapper


def host(code: str, *arguments: object, **options: Any) -> str:
    """The output of a program that must succeed."""
    return succeeded(run_script(ENCODE + textwrap.dedent(code), *arguments, **options)).decode()


REAPERS = {
    "SIGCHLD is ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a thread waits for all": """
def reap():
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.001)

for _ in range(4):
    threading.Thread(target=reap, daemon=True).start()
""",
}


@pytest.mark.parametrize("reaper", REAPERS.values(), ids=REAPERS)
def test_exit_status_reaped_by_others_is_no_success(tmp_path: Path, reaper: str) -> None:
    """subprocess.Popen reports 0 then."""
    code = """
    from penstock import AudioDecoder, Decoder, DecoderError
    from penstock._ffmpeg.program import capabilities
    from penstock.video import DecoderSettings
    source, failing, output = sys.argv[1:]

    def decode(kind):
        with kind(source, settings=DecoderSettings(ffmpeg=failing)) as decoder:
            list(decoder)

    failures = [lambda: encode(output, settings=EncoderSettings(ffmpeg=failing))] * 3
    failures += [lambda: decode(Decoder), lambda: decode(AudioDecoder)]
    for work in (*failures, lambda: encode(output).frames_encoded):
        try:
            print("success", work())
        except (EncoderError, DecoderError) as error:
            print(error.returncode)
    print(capabilities.stdout_of(failing, "-pix_fmts") == "")
    """
    failing = wrapped(tmp_path, find_ffmpeg(), FAILING)
    said = host(reaper + textwrap.dedent(code), clip("audio_aac"), failing, tmp_path / "out.mp4")
    *failed, other, listing = said.splitlines()
    assert len(failed) == 5 and set(failed) <= {"3", "None"}
    assert other in ("success 5", "None"), "no success, for nobody knows"
    assert listing == "True"


def test_exit_code_0_without_a_complete_report_is_an_error(tmp_path: Path) -> None:
    # Its status is 0 and its count is right, but the report breaks off.
    script = """#!/bin/bash
case "$*" in *-version) exec "{program}" "$@" ;; esac
for report; do [ "$before" = -progress ] && break; before=$report; done
"{program}" "${{@/$report/pipe:9}}" 9> >(sed -u /progress=end/d >&"${{report#pipe:}}")
wait $!
"""
    mute = wrapped(tmp_path, ffmpegs()[0], script)
    encoder = Encoder(tmp_path / "out.mp4", size=(64, 48), fps=25, settings=EncoderSettings(ffmpeg=mute))
    encoder.write(bytes(64 * 48 * 3))
    with pytest.raises(EncoderError):
        encoder.close()


class Interrupted(BaseException):
    """What a signal handler raises."""


def _constructions(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    source = clip("audio_aac")
    return {
        "Encoder": lambda: Encoder(tmp_path / "out.mp4", size=(64, 48), fps=25),
        "Decoder": lambda: Decoder(source),
        "AudioDecoder": lambda: AudioDecoder(source),
        "probe": lambda: probe(source),
    }


@pytest.fixture
def nothing_is_left(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    """Descriptors of the tests before may be closed meanwhile."""

    def left() -> tuple[set[tuple[str, str]], frozenset[int]]:
        return open_fds().items() - fds.items(), children() - processes

    gc.collect()
    fds, processes = open_fds(), children()
    yield
    gc.collect()
    assert eventually(lambda: not any(left())), left()


def _end(made: Any) -> None:
    """Ends what was constructed, if there is anything to end."""
    end = getattr(made, "abort", None) or getattr(made, "close", None)
    if end is not None:
        end()


def _interrupt_at_random(construct: Callable[[], Any], times: int) -> None:
    """Interrupts so many constructions, each after a time of its own."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    chosen = random.Random(13)
    _end(construct())  # with all imports and listings
    began_s = time.monotonic()
    _end(construct())
    patience_s = (time.monotonic() - began_s) * 1.2
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while times:
            made = None
            try:
                signal.setitimer(signal.ITIMER_REAL, chosen.uniform(0.0001, patience_s))
                made = construct()
                signal.setitimer(signal.ITIMER_REAL, 0)
                patience_s *= 0.95  # it is quicker than the one that was measured
            except Interrupted as caught:
                times -= 1
                traceback.clear_frames(caught.__traceback__)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _end(made)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.linux("signals to programs")
@pytest.mark.parametrize("kind", ["Encoder", "Decoder", "AudioDecoder", "probe"])
@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("times", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_signal_handler_that_raises_in_a_constructor_leaves_no_process(
    kind: str, times: int, tmp_path: Path
) -> None:
    _interrupt_at_random(_constructions(tmp_path)[kind], times)


class TestDescriptors:
    @pytest.mark.parametrize(
        "closed", ["0", "1", "012", *(pytest.param(fds, marks=pytest.mark.slow) for fds in ("2", "01", "12"))]
    )
    def test_closed_standard_streams_do_not_break_programs(self, tmp_path: Path, closed: str) -> None:
        """The host's are closed, and what it prints to them goes nowhere."""
        code = """
        from penstock import Decoder
        from penstock import AudioDecoder
        from penstock import probe
        said = open(sys.argv[1], "w")
        before = {number for number in range(3) if str(number) not in sys.argv[4]}
        for number in sys.argv[4]:
            os.close(int(number))
        encoder = Encoder(sys.argv[2], size=(64, 48), fps=25, codec="ffv1")
        for index in range(5):
            encoder.write(bytes(64 * 48 * 3))
            for number in map(int, sys.argv[4]):
                try:
                    os.write(number, b"printed")
                    print("not closed:", number, file=said)
                except OSError:
                    pass
        print(encoder.close().frames_encoded, file=said)
        with Decoder(sys.argv[2]) as decoder:
            print(sum(frame.time_s is not None for frame in decoder), file=said)
        with AudioDecoder(sys.argv[3]) as audio:
            print(len(audio.read_all()) > 0, file=said)
        said.close()
        os._exit(0)
        """
        said = tmp_path / "said"
        host(code, said, tmp_path / "out.mkv", clip("audio_aac"), closed)
        assert said.read_text().split() == ["5", "5", "True"]

    def test_closed_standard_output_raises_if_it_is_the_output(self) -> None:
        code = """
        os.close(1)
        try:
            encode("-", options={"f": "nut"})
        except EncoderError:
            sys.exit(0)
        sys.exit("success")
        """
        host(code)

    @pytest.mark.linux("limits of a process")
    def test_descriptor_shortage_raises_at_the_call(self, tmp_path: Path) -> None:
        """It works, or it raises at the call; never later, and never with a wrong count."""
        code = """
        import resource
        from penstock import Decoder, PenstockError
        encode(sys.argv[1])  # imports
        list(Decoder(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(8):
            for work in (lambda: encode(sys.argv[1]).frames_encoded, lambda: len(list(Decoder(sys.argv[1])))):
                try:
                    print(work())
                except (PenstockError, OSError):
                    print("none")
            for _ in range(3):
                os.close(held.pop())
        """
        said = host(code, tmp_path / "out.mp4").split()
        assert set(said) == {"none", "5"}


@pytest.mark.linux("limits of a process")
def test_close_needs_no_more_descriptors_than_the_encoder_has(tmp_path: Path) -> None:
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    encoder = penstock.Encoder(sys.argv[1], size=(64, 48), fps=25)
    for _ in range(5):
        encoder.write(bytes(64 * 48 * 3))
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        pass
    report = encoder.close()
    print(report.frames_encoded, report.warnings)
    """
    assert succeeded(run_script(code, tmp_path / "v.mp4")) == b"5 ()\n"


@pytest.mark.linux("forks")
def test_fork_during_encoder_starts_keeps_no_encoder_from_ending(tmp_path: Path) -> None:
    code = """
    def work(number):
        for _ in range(5):
            encode(f"{sys.argv[1]}/{number}.mp4")

    # Imports what it needs: concurrent.futures registers handlers, of which a fork in that moment calls the last alone.
    encode(f"{sys.argv[1]}/first.mp4")
    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    forked = []
    while any(worker.is_alive() for worker in workers):
        forked.append(os.fork())
        if not forked[-1]:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.01)
        if len(forked) > 20:
            os.kill(forked[0], signal.SIGKILL)
            os.waitpid(forked.pop(0), 0)
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
    print("done")
    """
    assert host(code, tmp_path) == "done\n"


def test_output_is_split_at_line_ends_and_at_the_longest_line() -> None:
    heard: list[bytes] = []
    lines = Lines(heard.append, 4)
    for said in (b"ab", b"c\n", b"\nabcdefgh\nabcdef", b"gh", b"i\nx", b""):
        lines(said)
    assert heard == [b"abc", b"", b"abcd", b"efgh", b"abcd", b"efgh", b"i", b"x"]


def test_process_that_a_wrapper_leaves_running_does_not_delay_the_end(tmp_path: Path) -> None:
    wrapper = wrapped(tmp_path, find_ffmpeg(), LEAVING)
    try:
        with Encoder(
            tmp_path / "v.mp4", size=(64, 48), fps=25, settings=EncoderSettings(ffmpeg=wrapper)
        ) as encoder:
            for _ in range(10):
                encoder.write(bytes(64 * 48 * 3))
        with Decoder(tmp_path / "v.mp4", settings=DecoderSettings(ffmpeg=wrapper)) as decoder:
            assert len([*decoder]) == 10
    finally:
        for pid in Path(f"{wrapper}.pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
