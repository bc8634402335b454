"""Joins the chunks of a plan into its video, without encoding them again, and verifies the result."""

from __future__ import annotations

import heapq
import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from fractions import Fraction
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from penstock._encoding.compare import missing_aspect, missing_labels, missing_timecode
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.sound import most_priming_s
from penstock._facts.info import MediaInfo
from penstock._facts.opening import demux, open_stream
from penstock._facts.probing import probe
from penstock._ffmpeg.command.arguments import format_seconds, option_arguments
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.settings import with_ffmpeg
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._ffmpeg.program.messages import framecrc_unit_s, listing_arguments
from penstock._ffmpeg.program.process import FFmpegProcess, Session
from penstock._formats import encoders
from penstock._streams.relay import relay
from penstock.errors import BrokenStreamError, DecoderError, EncoderError, RenderError
from penstock.rendering.chunk import data_name, remove_chunks, stored_report
from penstock.rendering.planning import Plan
from penstock.rendering.storage import Storage, locked, storage_of

# The first box after the header of a fragmented file (ISO/IEC 14496-12, 8.8.4). Four bytes of length come before it.
_FRAGMENT = b"moof"
# H.264 and H.265 keep at most 16 frames back (ITU-T H.264, A.3.1; H.265, A.4.2): so far a time may come too late.
_REORDERED_FRAMES = 16
# Matroska rounds times to this, in seconds.
_COARSEST_TICK_S = 0.001
# FFmpeg's warnings about decoding times that do not rise, or are later than the frame is shown.
_WRONG_TIMES = re.compile(r"\bDTS\b|\bdts\b|\btimestamps?\b", re.IGNORECASE)
# Chosen: containers round the pixel aspect ratio, and `missing_aspect` says so. Matroska rounds to whole pixels.
_MOST_ASPECT_CHANGE = 0.05
# What the joined video must have as its chunks do.
_EQUAL_FIELDS = (
    *("codec", "profile", "pixel_format", "width", "height"),
    *("color_matrix", "color_range", "color_primaries", "color_transfer"),
)


@dataclass(frozen=True, slots=True)
class JoinReport:
    """The result of joining chunks.

    Attributes:
        output: absolute path of the video.
        frames: number of its frames, counted in the video.
        output_bytes: its size in bytes.
        elapsed_s: seconds that it took.
        warnings: what `map_video` loses of the source, FFmpeg's errors and warnings, and whether chunks of other
            renders are left.
    """

    output: str
    frames: int
    output_bytes: int
    elapsed_s: float
    warnings: tuple[str, ...]


def assemble(plan: Plan) -> JoinReport:
    """Joins the chunks of a plan, adds the audio, verifies the video, and removes the chunks.

    The chunks aren't encoded again. The output appears at its path when it's complete; until then an existing file
    there stays as it is. The video must have all frames, at their times, with the color tags of the chunks.

    Raises:
        RenderError: if another render is writing the output; if a chunk is missing, or its file was changed; if the
            parameter sets of the chunks differ; or if the video is wrong.
        EncoderError: if FFmpeg failed. The chunks are kept.
        OSError: if a chunk can't be read, or the video can't be written.
    """
    with locked(plan.output):
        storage = storage_of(plan.storage)
        missing = [
            number for number in range(len(plan.lengths)) if stored_report(plan, storage, number) is None
        ]
        if missing:
            listed = ", ".join(map(str, missing[:10])) + " and more" * (len(missing) > 10)
            raise RenderError(
                f"{len(missing)} of {len(plan.lengths)} chunks are missing or damaged: {listed}. Render them with "
                f"render_chunk(plan, {missing[0]}) and so on",
                chunk=missing[0],
            )
        return join_chunks(plan, storage)


def join_chunks(plan: Plan, storage: Storage) -> JoinReport:
    """Joins chunks that are known to be whole."""
    started_s = time.monotonic()
    output = Path(plan.output)
    final = output.resolve()  # a link stays, and what it leads to is replaced
    if final.exists() and not final.is_file():
        raise RenderError(f"the output must be a regular file, which {output} is not. Use another name")
    # In the same folder, where a rename puts it in place in one step.
    part = final.with_name(f".{output.stem}.part{output.suffix}")
    try:
        warnings = plan.lost + _join(plan, storage, part)
        _verify(plan, storage, part)
        if final.exists():
            shutil.copymode(final, part)
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    if plan.audio is not None and not _has_sound(final):
        why = f"the audio of {plan.audio} ends before the first frame, or begins after the last one"
        warnings += (f"the result has no audio: {why}",)
    media = probe(final)
    warnings += (*missing_timecode(media, plan.labels), *missing_labels(media, plan.labels))
    aspect = (plan.request.options or {}).get("aspect")
    warnings += tuple(missing_aspect(_video_of(final), aspect))
    if remove_chunks(plan, storage):
        warnings += (
            f"{plan.storage} still has chunks of other renders, for example of a scene that you changed. Remove it "
            "unless you want to continue them",
        )
    frames, nbytes = len(plan.frames), output.stat().st_size
    return JoinReport(plan.output, frames, nbytes, time.monotonic() - started_s, warnings)


def _join(plan: Plan, storage: Storage, part: Path) -> tuple[str, ...]:
    packets = part.with_name(f"{part.name}.packets")
    try:
        *sound, errors = _sound_arguments(plan, part, packets)
        session = JoinSession(plan, part, sound)
        try:
            session.start()
            with closing(_chunk_files(plan, storage)) as files:
                session.feed(files)
            return errors + session.finish()
        finally:
            session.discard()
    finally:
        packets.unlink(missing_ok=True)


class JoinSession(Session):
    """An FFmpeg that reads chunks one after another as one file, and writes the video."""

    kind = "join"
    error = EncoderError

    def __init__(self, plan: Plan, part: Path, sound: Sequence[Sequence[str]]) -> None:
        arguments = (
            *("-f", encoders.codec_of(plan.codec).chunks_in, "-i", "pipe:0"),
            *(*plan.labels.input_arguments(), *sound[0]),
            *("-map", "0:v:0", "-c:v", "copy", *plan.color_arguments, *_last_duration(plan), *sound[1]),
            *plan.labels.output_arguments(plan.file_options, is_mapped=True),
            *option_arguments(plan.file_options),
            *("-y", f"file:{part}"),
            # A second output tells the times that the first one gets.
            *("-map", "0:v:0", "-c:v", "copy", *listing_arguments()),
        )
        process = FFmpegProcess(
            plan.program,
            arguments,
            is_fed=True,
            is_strict=True,
            stdout=subprocess.PIPE,
            with_warnings=True,
            error=EncoderError,
        )
        super().__init__(process, f"<join of {plan.output!r}>", stall_timeout=None)
        self._times = TimesCheck(plan.time_s)
        self._frames = len(plan.frames)
        self._reading: threading.Thread | None = None

    def connect(self) -> None:
        # A thread of its own, because the child's thread reads FFmpeg's errors and must not block. It closes `lines`.
        lines = open(os.dup(self.process.stdout.fileno()), "rb")  # noqa: SIM115, PTH123
        self._reading = threading.Thread(
            target=self._read_times, args=(lines,), name="penstock-join-times", daemon=True
        )
        self._reading.start()

    def disconnect(self) -> None:
        if self._reading is not None and self._reading.ident is not None:
            self._reading.join()

    def end_at_exit(self) -> None:
        self.discard()

    def feed(self, files: Iterable[FileIO]) -> None:
        """Writes the files one after another, without what comes before their position."""
        try:
            for file in files:
                relay(file, self.process.stdin)
        except BrokenStreamError:
            pass  # `finish` tells why FFmpeg reads no more

    def finish(self) -> tuple[str, ...]:
        """Waits for FFmpeg's end, and checks the times. Returns its errors and warnings."""
        self.process.stdin.close()
        self.process.wait()
        self.disconnect()
        if not self.process.has_succeeded:
            raise self.failure(f"FFmpeg, joining the chunks, {self.process.ending}", self._times.frames)
        self._times.check_end(self._frames)
        lines = (*self.process.log.errors, *self.process.log.warnings)
        # FFmpeg then has changed the times that it has written.
        if changed := next((line for line in lines if _WRONG_TIMES.search(line)), None):
            raise _wrong(f"wrong times. FFmpeg said: {changed}")
        return lines

    def _read_times(self, lines: BinaryIO) -> None:
        with lines:
            for line in lines:
                self._times.take(line)


class TimesCheck:
    """Checks that the frames of a video have the times that `time_s` gives for their positions, whatever their order.

    Attributes:
        frames: how many were seen.
    """

    def __init__(self, time_s: Callable[[int], Fraction]) -> None:
        self.frames = 0
        self._time_s = time_s
        self._tick_s = Fraction(0)
        self._waiting: list[int] = []
        self._next = 0
        self._wrong: str | None = None

    def take(self, line: bytes) -> None:
        """Takes a line of FFmpeg's framecrc: ``stream, dts, pts, duration, size, checksum``, or a comment."""
        self._tick_s = framecrc_unit_s(line) or self._tick_s
        if not line.startswith(b"#"):
            self.frames += 1
            heapq.heappush(self._waiting, int(line.split(b",")[2]))
            if len(self._waiting) > _REORDERED_FRAMES:
                self._check(heapq.heappop(self._waiting))

    def check_end(self, frames: int) -> None:
        """Checks the rest, and that there were so many frames."""
        while self._waiting:
            self._check(heapq.heappop(self._waiting))
        if self._wrong is not None:
            raise _wrong(f"wrong times: {self._wrong}")
        if self.frames != frames:
            raise _wrong(f"{self.frames} frames, not {frames}")

    def _check(self, pts: int) -> None:
        time_s, wanted_s = pts * self._tick_s, self._time_s(self._next)
        if abs(time_s - wanted_s) > self._tick_s / 2 and self._wrong is None:
            self._wrong = f"frame {self._next} is at {float(time_s):.6f} s, not {float(wanted_s):.6f} s"
        self._next += 1


def _chunk_files(plan: Plan, storage: Storage) -> Generator[FileIO]:
    """The chunks' files; all but the first are at their first fragment. Their headers must be the same."""
    first: bytes | None = None
    for number, path in enumerate(_local_chunks(plan, storage)):
        with FileIO(path) as file:
            # One header serves all chunks, so that FFmpeg reads them as one file.
            header = _header(file)
            if first is None:
                first = header
                file.seek(0)
            elif header != first:
                raise RenderError(
                    f"chunk {number} can't be joined to chunk 0: their parameter sets, colors or sizes differ. Pass "
                    "resume=False (--no-resume) to render them again",
                    chunk=number,
                )
            yield file


def _local_chunks(plan: Plan, storage: Storage) -> Generator[Path]:
    """The chunks' files on this machine, one after another. The next one is fetched while one is in use."""

    def fetched(number: int) -> tuple[ExitStack, Path]:
        with ExitStack() as stack:
            path: Path = stack.enter_context(storage.local(data_name(plan, number)))
            return stack.pop_all(), path

    count = len(plan.lengths)
    with ThreadPoolExecutor(1, "penstock-fetch") as threads:
        ahead: Future[tuple[ExitStack, Path]] | None = threads.submit(fetched, 0)
        try:
            for number in range(1, count + 1):
                assert ahead is not None
                in_use, path = ahead.result()
                with in_use:
                    ahead = threads.submit(fetched, number) if number < count else None
                    yield path
        finally:
            if ahead is not None and ahead.exception() is None:
                ahead.result()[0].close()


def _header(file: FileIO) -> bytes:
    """What comes before the first fragment, which is where the file's position is afterwards."""
    header = b""
    while len(box := file.read(8)) == 8 and box[4:] != _FRAGMENT:
        header += box + file.read(int.from_bytes(box[:4], "big") - 8)
    file.seek(len(header))
    return header


def _last_duration(plan: Plan) -> list[str]:
    """FFmpeg's arguments for how long the last frame is shown, which an encoder does not know at a variable rate."""
    count = len(plan.frames)
    if plan.fps is not None or count == 1:
        return []
    before_s, last_s, end_s = (plan.time_s(count + position) for position in (-2, -1, 0))
    # By the step before it, because FFmpeg 5.1 gives the filter a wrong unit of time in Matroska.
    steps = float((end_s - last_s) / (last_s - before_s))
    duration = f"if(eq(NEXT_DTS\\,NOPTS)\\,(PTS-PREV_INPTS)*{steps:.9f}\\,NEXT_DTS-DTS)"
    return ["-bsf:v", f"setts=pts=PTS:dts=DTS:duration={duration}"]


def _sound_arguments(
    plan: Plan, part: Path, packets: Path
) -> tuple[Sequence[str], Sequence[str], tuple[str, ...]]:
    """FFmpeg's input and output arguments for the sound, which is cut to the length of the picture, and its errors.

    The sound is copied if the container allows that, and encoded otherwise. `packets` may get its packets first.
    """
    if plan.audio is None:
        return (), (), ()
    start_s = float(plan.time_s(plan.frames[0])) if plan.source is None else plan.source.first_s
    lasts_s = math.ceil(plan.time_s(len(plan.frames)) * 10**6) / 10**6
    # As an encoder of this video and sound decides, which tries what isn't known to work.
    options = {**(plan.request.options or {}), **plan.file_options}
    settings = with_ffmpeg(plan.request.settings, plan.program)
    request = replace(plan.request, output=part, audio=plan.audio, options=options, settings=settings)
    [sound] = working_plan(request, plan.size).sounds
    if not sound.is_copied:  # FFmpeg counts -t from the first sample, or else from 0
        lasts_s -= max(0.0, sound.zero_s - start_s)
    arguments = ["-t", f"{lasts_s:.6f}", *sound.input_arguments_from(start_s)]
    number, index = 2 if plan.labels.chapters else 1, sound.index
    errors: tuple[str, ...] = ()
    if sound.is_copied and not sound.holds_priming:
        errors = _without_priming(plan.program, arguments, index, packets)
        try:
            starts_s = probe(packets).start_s or 0
        except DecoderError:  # NUT without a packet has no header, either
            return (), (), errors
        # FFmpeg takes the beginning of a file for 0.
        arguments, index = ["-itsoffset", format_seconds(starts_s), "-i", f"file:{packets}"], 0
    return arguments, ("-map", f"{number}:{index}", *(("-c:a", "copy") if sound.is_copied else ())), errors


def _without_priming(program: str, arguments: list[str], index: int, packets: Path) -> tuple[str, ...]:
    """Copies a sound without its packets before 0, and without their length. Returns FFmpeg's errors.

    Matroska has no times below 0: FFmpeg would move the picture by what comes before the sound. FFmpeg 9 also writes
    how much that was, even if it's left out, and players then skip as much of the sound. NUT doesn't tell it.
    """
    copied = ("-map", f"0:{index}", "-c", "copy", "-copypriorss", "0", "-f", "nut", "-y", f"file:{packets}")
    command = (program, "-v", "error", "-xerror", *arguments, *copied)
    try:
        return tuple(run(command, None).stderr.splitlines())
    except ProgramError as failure:
        raise EncoderError(f"FFmpeg can't copy the audio: {failure}", command=command) from failure


def _output(plan: Plan, target: str) -> Output:
    """What is written there, in the container of the plan."""
    name = plan.file_options.get("f")
    return Output(target, None if name is None else str(name))


def _verify(plan: Plan, storage: Storage, part: Path) -> None:
    """Checks the file that was written: its length, its begin, and the facts that its chunks have, too."""
    video = _video_of(part)
    with storage.local(data_name(plan, 0)) as path:
        chunk = _video_of(path)
    frames, seconds = len(plan.frames), float(plan.time_s(len(plan.frames)))
    if video.frames not in (None, frames):
        raise _wrong(f"{video.frames} frames, not {frames}")
    tolerance_s = float(max(video.time_base, Fraction(_COARSEST_TICK_S))) * 2
    # How long the last frame of a variable rate lasts, each container says in its own way.
    lasts_s = video.duration_s if plan.audio is None and plan.fps is not None else None
    if lasts_s is not None and abs(lasts_s - seconds) > tolerance_s:
        raise _wrong(f"a duration of {lasts_s:.6f} s, not {seconds:.6f} s")
    latest_s = tolerance_s
    if not _output(plan, plan.output).facts.holds_priming:
        latest_s += most_priming_s(one.sample_rate for one in probe(part).audio)
    if video.start_s is not None and not -tolerance_s <= video.start_s <= latest_s:
        raise _wrong(f"its first frame at {video.start_s:.6f} s, not at 0")
    for name in _EQUAL_FIELDS:
        has, wanted = getattr(video, name), getattr(chunk, name)
        if wanted is not None and has != wanted:
            raise _wrong(f"{name} {has}, not {wanted}")
    aspect, wanted_aspect = (Fraction(one.sample_aspect_ratio or 1) for one in (video, chunk))
    if abs(aspect / wanted_aspect - 1) > _MOST_ASPECT_CHANGE:
        raise _wrong(f"sample_aspect_ratio {aspect}, not {wanted_aspect}")


def _wrong(what: str) -> RenderError:
    """The error for a video that is not what its chunks must make. `what` it has that is wrong."""
    return RenderError(
        f"the joined video has {what}. Its chunks are kept. This is probably a bug in Penstock or FFmpeg. Please "
        "report it with the output of `penstock info --json`"
    )


def _has_sound(path: Path) -> bool:
    """Whether there is a packet of sound: Matroska has a track also without."""
    media = probe(path)
    if (sound := media.best_audio) is None:
        return False
    with open_stream(f"file:{path}", media.container, sound.index) as opened:
        return any(packet.size for packet in demux(*opened))


def _video_of(path: Path) -> MediaInfo.Video:
    video = probe(path).best_video
    if video is None:
        raise RenderError(f"{path} has no video")
    return video
