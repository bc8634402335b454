"""The sandbox of isolated reading: what programs in it can do, which is tried by programs that nobody should trust."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from support.cases import a_few
from support.clips import clip
from support.command_line import run as command
from support.media import ffmpeg
from support.processes import run_script, succeeded

from benchmarks.harness.machine import ROOT
from benchmarks.harness.seccomp import NUMBERS
from penstock import AudioDecoder, Decoder, DecoderError, FFmpegWarning, probe
from penstock._facts.completeness import Delivered
from penstock._facts.exact_json import pack, unpack
from penstock._facts.file_checks import FileChecks
from penstock._facts.info import MediaInfo, Track
from penstock._facts.isolation import Isolation
from penstock._facts.source import Source
from penstock._ffmpeg.program.child import CapturedChild, run
from penstock._ffmpeg.program.sandbox import Sandbox, SandboxedFile
from penstock.video import DecoderSettings

pytestmark = pytest.mark.linux("isolated=True")

#: The program itself, and no link to it in an environment, whose libraries are not beside it.
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module", autouse=True)
def _confined() -> None:
    isolation = Isolation(Source(clip("h264")), threads=1, is_strict=False)
    isolation.media(None)
    if isolation.unconfined:
        pytest.skip(f"the kernel cannot confine {', '.join(isolation.unconfined)}")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SandboxedFile]:
    """The file that programs in the sandbox may read."""
    path = tmp_path / "source"
    path.write_bytes(b"the source")
    opened = SandboxedFile.opened(os.fspath(path))
    assert opened is not None
    yield opened
    opened.close()


def sandboxed(source: SandboxedFile, code: str, *arguments: object, **limits: int) -> CapturedChild:
    """Runs a Python program in a sandbox."""
    sandbox = Sandbox(source.descriptor, **{"memory_bytes": 1 << 30, "is_strict": True, **limits})  # type: ignore[arg-type]
    return run((PYTHON, "-I", "-S", "-c", code, *map(str, arguments)), 60, check=False, sandbox=sandbox)


def is_denied(child: CapturedChild) -> bool:
    """Whether a program was stopped by an error for want of permission."""
    return child.returncode == 1 and child.stderr.rpartition("\n")[2].startswith("PermissionError")


def test_the_source_can_be_read(source: SandboxedFile) -> None:
    read = sandboxed(source, "import sys; print(open(sys.argv[1].removeprefix('file:')).read())", source.url)
    assert read.text == "the source\n", read.stderr


def test_no_other_file_can_be_read(source: SandboxedFile, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    for path in (tmp_path / "secret", "/etc/passwd", f"/proc/{os.getpid()}/environ"):
        assert is_denied(sandboxed(source, "import sys; open(sys.argv[1]).read()", path)), path
    assert is_denied(sandboxed(source, "import os, sys; os.listdir(sys.argv[1])", tmp_path))


def test_nothing_can_be_written(source: SandboxedFile, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    for path in (tmp_path / "new", tmp_path / "old", tmp_path / "source"):
        assert is_denied(sandboxed(source, "import sys; open(sys.argv[1], 'w').write('x')", path)), path
    for call in ("unlink(path)", "mkdir(path + '2')", "link(path, path + '2')", "truncate(path, 0)"):
        assert is_denied(
            sandboxed(source, f"import os, sys; path = sys.argv[1]; os.{call}", tmp_path / "old")
        ), call
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "old": "old",
        "source": "the source",
    }


def test_the_source_cannot_be_written_though_the_caller_can(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"the source")
    with path.open("r+b") as file:
        opened = SandboxedFile.opened(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        assert opened is not None
        written = sandboxed(opened, "import os, sys; os.write(int(sys.argv[1]), b'x')", opened.descriptor)
        assert "Bad file descriptor" in written.stderr
        assert is_denied(
            sandboxed(opened, "import sys; open(sys.argv[1], 'r+b')", opened.url.removeprefix("file:"))
        )
    assert path.read_bytes() == b"the source"


@pytest.mark.parametrize(
    "change",
    [
        "os.chmod(path, 0o777)",
        "os.chown(path, os.getuid(), os.getgid())",
        "os.utime(path)",
        "os.setxattr(path, 'user.x', b'x')",
    ],
)
def test_file_metadata_cannot_be_changed(change: str, source: SandboxedFile, tmp_path: Path) -> None:
    """Landlock leaves this to the filter of system calls."""
    before = (tmp_path / "source").stat()
    assert is_denied(sandboxed(source, f"import os, sys; path = sys.argv[1]; {change}", tmp_path / "source"))
    after = (tmp_path / "source").stat()
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)


def test_no_socket_can_be_opened(source: SandboxedFile, tmp_path: Path) -> None:
    connect = "import socket, sys; socket.socket(socket.{}).connect({})"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as named,
    ):
        udp.bind(("127.0.0.1", 0))
        named.bind(os.fspath(tmp_path / "socket"))
        named.listen()
        for kind, address in (
            ("AF_INET", tcp.getsockname()),
            ("AF_INET, socket.SOCK_DGRAM", udp.getsockname()),
            ("AF_UNIX", os.fspath(tmp_path / "socket")),
        ):
            child = sandboxed(source, connect.format(kind, repr(address)))
            assert is_denied(child), child.stderr


def test_no_process_outside_can_be_signalled(source: SandboxedFile) -> None:
    assert is_denied(sandboxed(source, "import os, signal; os.kill(os.getppid(), signal.SIGTERM)"))
    itself = sandboxed(source, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert itself.ending == "was killed by SIGTERM"


def test_no_program_from_elsewhere_can_be_started(source: SandboxedFile, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    child = sandboxed(source, "import os, sys; os.execv(sys.argv[1], [sys.argv[1]])", program)
    assert is_denied(child), child.text


def test_child_programs_are_in_the_same_sandbox(source: SandboxedFile) -> None:
    code = "import os; os.execv('/bin/sh', ['sh', '-c', 'cat /etc/passwd'])"
    child = sandboxed(source, code)
    assert not child.text and "Permission denied" in child.stderr


def test_only_pipes_and_the_source_are_inherited(source: SandboxedFile, tmp_path: Path) -> None:
    with (tmp_path / "other").open("w") as other:
        os.set_inheritable(other.fileno(), True)
        code = """
import os
def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False
print([fd for fd in range(4096) if is_open(fd)])
"""
        assert json.loads(sandboxed(source, code).text) == [0, 1, 2, source.descriptor]


def test_secrets_of_the_environment_are_not_inherited(
    source: SandboxedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "secret" not in sandboxed(source, "import os; print(dict(os.environ))").text


def test_the_memory_is_limited(source: SandboxedFile) -> None:
    code = "import sys; bytearray(300 << 20); print('had it')"
    assert sandboxed(source, code).text == "had it\n"
    child = sandboxed(source, code, memory_bytes=200 << 20)
    assert not child.text and child.stderr.endswith("MemoryError")


def test_the_time_is_limited(source: SandboxedFile) -> None:
    child = sandboxed(source, "while True: pass", cpu_s=1)
    assert child.ending == "was killed by SIGXCPU"
    limit = Sandbox(source.descriptor, 1 << 30, cpu_s=1).reached_limit(child.returncode, child.stderr)
    assert limit is not None and "CPU time" in limit


def test_endless_output_ends_the_program(source: SandboxedFile) -> None:
    child = sandboxed(source, "while True: print('x' * 65535)")
    assert child.ending == "was killed by SIGKILL"


@pytest.mark.parametrize("name", ["h264_ts", "vp9_alpha", "rotated_90", "gif"])
def test_isolated_facts_match_probe(name: str) -> None:
    assert Isolation(Source(clip(name)), threads=1, is_strict=True).media(None) == probe(clip(name))


def test_isolated_facts_of_bytes_match_probe() -> None:
    data = clip("h264").read_bytes()
    isolated = Isolation(Source(data), threads=1, is_strict=True)
    assert isolated.media(None) == probe(data)
    assert isolated.about(0).frames(None, None) == 30


def test_frames_are_counted_from_a_start() -> None:
    for start, isolated in ((0.5, True), (0.5, False), (None, True)):
        with Decoder(clip("h264_mkv"), start=start, isolated=isolated) as decoder:
            assert len(decoder) == len([*decoder]) == (30 if start is None else 18)


@pytest.mark.parametrize("name", ["h264_ts", "cut_mkv"])
def test_isolated_answers_match_those_of_this_process(name: str) -> None:
    media = probe(clip(name))
    own = FileChecks(Track(f"file:{clip(name)}", media, media.video[0]))
    isolated = Isolation(Source(clip(name)), threads=1, is_strict=True).about(media.video[0].index)
    delivered = Delivered(frames=3, last_s=0.1, longest_s=0.04)
    assert isolated.frames(0.5, 0.9) == own.frames(0.5, 0.9)
    assert isolated.at_end(delivered) == own.at_end(delivered)
    assert isolated.begins(0.5) == own.begins(0.5)
    assert isolated.begins_inside_group() is own.begins_inside_group()


@pytest.mark.parametrize("seed", a_few(range(6), 2))
def test_damaged_files_are_errors_or_facts(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = bytearray(clip(rng.choice(("h264", "h264_ts", "vp9", "gif", "rawvideo"))).read_bytes())
    for _ in range(200):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / "upload"
    path.write_bytes(data)
    try:
        want: object = probe(path)
    except DecoderError:
        want = DecoderError
    try:
        got: object = Isolation(Source(path), threads=1, is_strict=True).media(60)
    except DecoderError:
        got = DecoderError
    assert got == want


def test_file_beyond_the_memory_limit_is_not_called_damaged(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    ffmpeg("-f", "lavfi", "-i", "color=s=8000x8000", "-frames:v", "1", "-pix_fmt", "rgb24", large)
    isolated = Isolation(Source(large), threads=1, is_strict=True)
    # Enough for Python and libav, but not for that picture.
    isolated.sandbox = Sandbox(isolated.sandbox.source, 200 << 20)
    with pytest.raises(DecoderError, match="memory"):
        isolated.media(None)


def test_child_that_dies_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = tmp_path / "python"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(crashing))
    with pytest.raises(DecoderError) as caught:
        Isolation(Source(clip("h264")), threads=1, is_strict=True).media(None)
    assert caught.value.returncode == -11


@pytest.mark.parametrize("answer", ["", "{}", '{"unconfined": [], "answer": {"path": 3}}', "[" * 100_000])
def test_invalid_answer_of_a_child_raises(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer").write_text(answer)
    lying = tmp_path / "python"
    lying.write_text(f"#!/bin/sh\ncat {tmp_path / 'answer'}\n")
    lying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(lying))
    with pytest.raises(DecoderError):
        Isolation(Source(clip("h264")), threads=1, is_strict=True).media(None)


def test_json_is_exact_and_checked() -> None:
    chapter = MediaInfo.Chapter(0.1, float("inf"), None)
    assert unpack(MediaInfo.Chapter, json.loads(json.dumps(pack(chapter)))) == chapter
    assert unpack(Fraction, json.loads(json.dumps(pack(Fraction(30000, 1001))))) == Fraction(30000, 1001)
    for kind, value in (
        (int, True),
        (float, "1"),
        (MediaInfo.Chapter, {"start_s": 0.0}),
        (tuple[int, ...], {"0": 1}),
        (MediaInfo, None),
    ):
        with pytest.raises(TypeError):
            unpack(kind, value)


@pytest.mark.skipif(not NUMBERS, reason="the numbers of this machine's system calls are not known")
@pytest.mark.parametrize(
    ("call", "word"), [("landlock_create_ruleset", "files"), ("seccomp", "system calls")]
)
def test_a_kernel_that_cannot_confine_is_named_and_refused_if_strict(call: str, word: str) -> None:
    program = f"""
sys.path.insert(0, {os.fspath(ROOT)!r})
from benchmarks.harness import seccomp
seccomp.refuse({errno.ENOSYS}, {call!r})
from penstock._facts.isolation import Isolation
from penstock._facts.source import Source
for is_strict in (False, True):
    isolation = Isolation(Source(sys.argv[1]), threads=1, is_strict=is_strict)
    try:
        print(isolation.media(None).container, isolation.unconfined)
    except penstock.DecoderError as error:
        print(error)
"""
    lines = succeeded(run_script(program, clip("h264"))).decode().splitlines()
    assert word in lines[0] and lines[0].startswith("mov")
    assert "kernel can't confine" in lines[1] and word in lines[1]


@pytest.mark.parametrize("name", ["h264_ts", "vp9_alpha", "rotated_90", "variable_mkv"])
def test_isolated_frames_match_frames_without_isolation(name: str) -> None:
    def frames(isolated: bool) -> list[tuple[object, ...]]:
        with Decoder(clip(name), pixel_format="source", isolated=isolated) as decoder:
            return [(frame.index, frame.pts, frame.time_s, frame.tobytes()) for frame in decoder]

    assert frames(isolated=True) == frames(isolated=False)


def test_engine_says_that_it_is_isolated() -> None:
    with Decoder(clip("h264"), isolated="strict") as decoder:
        assert decoder.engine.name == "libav"
        assert "isolated" in decoder.engine.reason and decoder.engine.unconfined == ()
        assert len(decoder) == len(list(decoder)) == 30


def test_libav_opens_no_isolated_file_in_this_process() -> None:
    program = """
import av

def refuse(*arguments, **options):
    raise AssertionError("libav opens a file in this process")

av.open = refuse
for given in (sys.argv[1], open(sys.argv[1], "rb").read(), open(sys.argv[1], "rb")):
    with penstock.Decoder(given, isolated=True) as decoder:
        assert len(decoder) == len(list(decoder)) == 30
with penstock.AudioDecoder(sys.argv[3], isolated=True, channels=1) as audio:
    assert len(audio.windows([0.3, 0.1], 0.1)) == 2 and len(audio.read_all()) and audio.matrix is not None
with penstock.Decoder(sys.argv[1], isolated=True) as decoder:
    assert decoder[3].index == 3 and 0 < decoder.frame_at(0.5).index < 30
with penstock.Decoder(sys.argv[2], isolated=True, start=0.5, filters="null") as decoder:
    assert 0 < len(list(decoder)) < 30
"""
    succeeded(run_script(program, clip("h264_mkv"), clip("h264_ts"), clip("audio_aac")))


def test_replaced_ffmpeg_is_in_the_sandbox_too(tmp_path: Path) -> None:
    """A stand-in for an FFmpeg that a file has taken over."""
    (tmp_path / "secret").write_text("the secret")
    outside = tmp_path / "program"
    outside.write_text("#!/bin/sh\necho the program ran >&2\n")
    outside.chmod(0o755)
    ffmpeg = tmp_path / "ffmpeg"
    tries = (f"cat {tmp_path}/secret >&2", f"echo x > {tmp_path}/new", str(outside), "kill -TERM $PPID")
    # Only where it reads a file: what it supports is asked of it without a sandbox.
    reads = 'case "$*" in */proc/self/fd/*) ;; *) exit 0 ;; esac'
    ffmpeg.write_text("\n".join(("#!/bin/sh", reads, *tries, "exit 3", "")))
    ffmpeg.chmod(0o755)
    with (
        pytest.raises(DecoderError) as caught,
        Decoder(clip("h264"), isolated=True, settings=DecoderSettings(ffmpeg=ffmpeg)) as decoder,
    ):
        list(decoder)
    assert caught.value.returncode == 3
    assert caught.value.stderr.count("denied") + caught.value.stderr.count("not permitted") == len(tries)
    assert "the secret" not in caught.value.stderr and "the program ran" not in caught.value.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("most_mib", [12, 60])
def test_decode_beyond_the_memory_limit_says_so(most_mib: int) -> None:
    system = DecoderSettings(ffmpeg="ffmpeg")  # a static one does not even start in so little
    with Decoder(clip("h264_large"), isolated=True, settings=system) as decoder:
        run = decoder._engine._run
        run._sandbox = replace(run._sandbox, memory_bytes=most_mib << 20)
        with pytest.raises(DecoderError, match="memory"):
            list(decoder)


def test_decode_beyond_the_time_limit_says_so(tmp_path: Path) -> None:
    slow = tmp_path / "slow.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=640x360:d=4", "-c:v", "mpeg2video", slow)
    filters = "nlmeans,nlmeans,nlmeans"
    with Decoder(slow, isolated=True, filters=filters, size=(64, 48)) as decoder:
        run = decoder._engine._run
        run._sandbox = replace(run._sandbox, cpu_s=1)
        with pytest.raises(DecoderError, match="CPU"):
            list(decoder)


@pytest.mark.parametrize("seed", a_few(range(6), 2))
def test_damaged_files_are_errors_or_frames(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = bytearray(clip(rng.choice(("h264", "h264_ts", "vp9", "gif", "mjpeg_420"))).read_bytes())
    for _ in range(rng.choice((5, 200))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / "upload"
    path.write_bytes(data)
    with suppress(DecoderError), warnings.catch_warnings():
        warnings.simplefilter("ignore", FFmpegWarning)
        with Decoder(path, isolated=True, size=(64, 48), count=100) as decoder:
            assert all(frame.shape == (48, 64, 3) for frame in decoder)


def test_isolated_decoder_does_not_follow_a_playlist(tmp_path: Path) -> None:
    shutil.copy(clip("h264_ts"), tmp_path / "secret.ts")
    for number, text in enumerate(
        (
            "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nsecret.ts\n#EXT-X-ENDLIST\n",
            f"ffconcat version 1.0\nfile '{tmp_path}/secret.ts'\n",
        )
    ):
        path = tmp_path / f"{number}.mp4"
        path.write_text(text)
        with pytest.raises(DecoderError):
            Decoder(path, isolated=True)
        with pytest.raises(ValueError):
            Decoder(path, isolated=True, follow_playlists=True)


def test_filters_cannot_open_another_file() -> None:
    """In the sandbox even the caller's own options cannot: they are FFmpeg's."""
    filters = f"movie={clip('h264_ts')}[other];[in][other]overlay"
    with pytest.raises(DecoderError), Decoder(clip("h264"), isolated=True, filters=filters) as decoder:
        list(decoder)


def test_calls_that_cannot_be_isolated_are_refused(pair: tuple[int, int], fifo: Path) -> None:
    for options in ({"filters": "hflip"}, {"settings": DecoderSettings(ffmpeg="ffmpeg")}):
        with Decoder(clip("h264"), isolated=True, **options) as decoder, pytest.raises(ValueError):  # type: ignore[arg-type]
            decoder[0]
    for given in ("http://127.0.0.1:1/x.mp4", "/dev/zero", pair[0], fifo):
        for read in (Decoder, AudioDecoder, probe):
            with pytest.raises(ValueError):
                read(given, isolated=True)
    with pytest.raises(ValueError):
        Decoder(clip("h264"), isolated="very")  # type: ignore[arg-type]


def test_probe_can_be_isolated() -> None:
    assert probe(clip("h264"), isolated="strict") == probe(clip("h264"))


def test_command_line_can_read_isolated(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    done = command("decode", clip("h264"), raw, "--isolated")
    assert (done.returncode, raw.stat().st_size) == (0, 30 * 64 * 48 * 3), done.stderr
    assert command("probe", clip("h264"), "--isolated").stdout == command("probe", clip("h264")).stdout
    one = tmp_path / "one"
    done = command("decode", clip("h264"), one, "--isolated", "--at", "0.5")
    assert (done.returncode, one.stat().st_size) == (0, 64 * 48 * 3), done.stderr
