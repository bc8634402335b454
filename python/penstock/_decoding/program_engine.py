"""Reads a source in sequence by an FFmpeg program, whose frames libav reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from heapq import heappush
from io import FileIO
from shlex import quote
from typing import TYPE_CHECKING, Any

from penstock._common.deadline import Deadline
from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.confined_output import ConfinedOutput
from penstock._decoding.engine import Made
from penstock._decoding.libav_engine import LibavEngine
from penstock._decoding.pixels import ProgramPixels
from penstock._decoding.program_frames import ProgramFrames, Steps
from penstock._decoding.sequence import SequenceFrame
from penstock._decoding.session import KILL_GRACE_S, LATE, DecodeSession, OnDemand
from penstock._decoding.turns import Read
from penstock._facts import completeness
from penstock._facts.completeness import End
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.child import DRAIN_GRACE_S
from penstock._ffmpeg.program.process import reports_of
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.info import Track
    from penstock._facts.isolation import Isolation
    from penstock._facts.questions import Questions
    from penstock._facts.source import Source
    from penstock._native import AppliedPolicy

# Frames that are read ahead.
_READ_AHEAD = 4
# FFmpeg's options for its input that change neither which frames come nor their times.
_FRAME_PRESERVING_OPTIONS = frozenset(
    (
        *("hwaccel", "hwaccel_device", "hwaccel_output_format"),
        *("init_hw_device", "vaapi_device", "extra_hw_frames"),
        *("c", "c:v", "codec", "codec:v", "vcodec", "threads", "threads:v", "thread_type", "filter_threads"),
        *(
            "decryption_key",
            "probesize",
            "analyzeduration",
            "reinit_filter",
            "apply_cropping",
            "autorotate",
            "noautorotate",
        ),
    )
)


class ProgramRun(OnDemand[tuple[int, Any]]):
    """The frames of an FFmpeg program, as a `Sequence` gives those of a file, and what its end means.

    Args:
        program: FFmpeg.
        plan: what is wanted.
        written: what FFmpeg is to write.
        frame_bytes: bytes of a frame that it writes.
        questions: answers what else there is to know of the file.
        isolation: the sandbox that it runs in; None if it may do all.
        knows_first: `plan` begins at the time of a frame. Otherwise FFmpeg writes all frames from the beginning on, and
            those before the one that is on screen at `start` are dropped here.

    Attributes:
        how: how its frames are read, for people.
        account: None. They have no packets that can be read again.
    """

    how, account = "libav reads the frames that it writes", None

    def __init__(
        self,
        program: str,
        opened: Source,
        plan: DecodePlan,
        written: DecodePlan,
        frame_bytes: int,
        questions: Questions,
        isolation: Isolation | None,
        *,
        knows_first: bool,
    ) -> None:
        track, self._part = plan.track, plan.part
        super().__init__(
            *(opened, track.source, track.media, track.video.index),
            is_strict=not plan.options.conceal_errors,
            sandbox=None if isolation is None else isolation.sandbox,
        )
        self._check_times(track)
        self.plan, self.questions = plan, questions
        self._program, self._written, self._frame_bytes = program, written, frame_bytes
        self._isolation = isolation  # which keeps the file open
        self._frames: ProgramFrames | ConfinedOutput | None = None
        self._count = 0
        self._most: int | None = None  # frames, after which FFmpeg is ended
        self._is_before_part = plan.options.start is not None and not knows_first
        self._held: tuple[int, Any] | None = None  # the last frame before `start`
        self._after: tuple[int, Any] | None = None  # the next one
        if self._is_before_part:
            self._most = plan.options.count
            self._written = replace(written, options=replace(written.options, start=None, count=None))

    @staticmethod
    def _check_times(track: Track) -> None:
        video = track.video
        first_s, unit_s = video.start_s or 0.0, video.time_base
        if not Steps(unit_s).can_begin(round(Fraction(first_s) / unit_s)):
            raise DecoderError(
                f"the times of {track.media.path} begin at {first_s:.0f} s, in units of {unit_s} s, which the FFmpeg "
                "program can't count exactly. Leave out `filters` and what else needs the program, or let the times "
                f"begin at 0: ffmpeg -i {quote(track.media.path)} -c copy OUT.mkv"
            )

    def advance(self) -> SequenceFrame | None:
        """The next frame; None if it isn't there yet. Waits as long as it takes.

        Raises:
            StopIteration: there are no more.
            DecoderError, OSError: it cannot be decoded or read.
        """
        if self._has_enough:
            raise StopIteration
        read, self._after = self._after or self.session.read(), None
        if self._is_before_part:
            if read is not None and read[0] < self._part.at:
                self._held = read
                return None
            self._is_before_part = False
            read = self._first_of_part(read)
        if read is None:
            raise StopIteration  # whether all is well is found out where a caller can try again
        self._count += 1
        return SequenceFrame(self._count - 1, *read)

    def _first_of_part(self, read: tuple[int, Any] | None) -> tuple[int, Any] | None:
        """The frame on screen at `start`: the one that is held, or the next one; None if there is none."""
        held, self._held = self._held, None
        if held is None or (read is not None and read[0] == self._part.at):
            return read
        if read is None and self._part.end_of(held[0], 0) <= self._part.least:
            return None
        self._after = read
        return held

    def lend(self) -> None:
        """Nothing: no file is open."""

    def resume(self, given: int, _: int | None) -> None:
        """Goes on, if no frame is lost."""
        if given != self._count:
            raise DecoderError(f"{self._opened.path}: frame {given} is lost, and can't be read again")

    def end(self, _: Track) -> End:
        """Nothing: `finish` tells."""
        return End()

    @property
    def _has_enough(self) -> bool:
        return self._most is not None and self._count == self._most

    def finish(self) -> None:
        """Finds out whether all is well. Ends FFmpeg if it would write more than is wanted."""
        if self._has_enough:
            self.session.process.kill()
        super().finish()

    def stop(self) -> None:
        """Ends FFmpeg at once. May be called again."""
        super().close()

    def close(self) -> None:
        """The same, and closes the pipe. No thread may read."""
        self.stop()
        if self._frames is not None:
            self._frames.release()

    def _make_session(self) -> DecodeSession[tuple[int, Any]]:
        return DecodeSession(
            self._program,
            self._written.arguments(),
            title=self.plan.title,
            settings=self.plan.options.settings,
            new_reader=self._read_output,
            is_strict=self._is_strict,
            sandbox=self._sandbox,
        )

    def _read_output(self, output: FileIO) -> ProgramFrames | ConfinedOutput:
        isolation = self._isolation
        time_base, policy = self.plan.track.video.time_base, self.plan.options.settings.policy
        given = output, self._frame_bytes, time_base, policy
        self._frames = ProgramFrames(*given) if isolation is None else ConfinedOutput(isolation, *given)
        return self._frames

    @property
    def is_left_running(self) -> bool:
        """Whether FFmpeg has ended, but what its wrapper has started keeps the pipe open."""
        has_ended = self.session.process.seconds_since_end() >= DRAIN_GRACE_S
        return has_ended and self._frames is not None and self._frames.waits()

    @property
    def _steps(self) -> Steps:
        assert self._frames is not None
        return self._frames.steps

    def _given(self, _: DecodeSession[tuple[int, Any]]) -> int:
        return self._count

    def _end_of(self, run: DecodeSession[tuple[int, Any]]) -> End:
        run.has_succeeded = run.has_succeeded or self._has_enough
        if self._steps.is_lost:
            after = f"after {plural(self._count, 'frame')}"
            remedy = ". Leave out `filters`" if self.plan.options.filters else ""
            return End(
                f"a time is missing or too far from 0, or the size or format changes where the times go back, {after}"
                + remedy
            )
        end = super()._end_of(run)
        if end.reason is None and not self._count:
            return End(completeness.why_no_frames(self.plan.track.media, self.plan.options.start))
        return end

    def _is_all_asked_for(self, run: DecodeSession[tuple[int, Any]]) -> bool:
        if self._count == self.plan.options.count:
            return True
        part, steps = self.plan.part, self._steps
        return steps.latest is not None and not part.has(steps.latest + max(steps.longest, part.usual))

    def _end_of_file(self, run: DecodeSession[tuple[int, Any]]) -> End:
        options, last = self.plan.options, self._steps.latest
        if last is None or options.filters or changes_frames(options.given_input):
            return End()  # the options may make what was delivered different from the file
        unit = float(self.plan.track.video.time_base)
        return self.questions.at_end(
            completeness.Delivered(
                frames=self._count if options.start is None else None,
                last_s=last * unit,
                longest_s=self._steps.longest * unit,
            )
        )

    def _explained(self, damage: Counter[str]) -> str | None:
        """The warning to give instead of an error, if all damage comes from beginning inside a group of pictures.

        Either the file begins there, or FFmpeg does, because it seeks to a place some frames before `start`.
        """
        start = self.plan.options.start
        if endpoints.identity(self.plan.track.source) is None:
            return None  # it can't be read again
        is_inside = self.questions.begins_inside_group()
        if start is None and not is_inside:
            return None
        arguments = self._written.beginning_arguments(before_start=not is_inside)
        patience_s = self.plan.options.settings.stall_timeout
        if damage - reports_of(self._program, arguments, patience_s, self._sandbox):
            return None
        if start is None or is_inside:
            return completeness.BEGINS_INSIDE
        return f"FFmpeg reports damage in frames before start={start:g}, where decoding has to begin"


class ProgramEngine(LibavEngine):
    """Decodes frames in sequence by an FFmpeg program, which the first read starts. A thread reads some frames ahead.

    Args:
        program, plan, questions, isolation, knows_first: as for `ProgramRun`.
        reason: why it reads the source.
        stored: what FFmpeg writes where this process makes the frames of that; None if FFmpeg makes them.
    """

    def __init__(
        self,
        program: str,
        opened: Source,
        plan: DecodePlan,
        reason: str,
        questions: Questions,
        isolation: Isolation | None = None,
        stored: DecodePlan | None = None,
        *,
        knows_first: bool,
    ) -> None:
        pixels = ProgramPixels(plan, stored)
        self._run = ProgramRun(
            *(program, opened, plan, stored or plan, pixels.input_bytes, questions, isolation),
            knows_first=knows_first,
        )
        super().__init__(plan, self._run, reason, may_hang=True, pixels=pixels)
        self.questions, self._isolation = questions, isolation
        self._most = None  # FFmpeg knows, and its end tells whether all is well
        self._reads_ahead = plan.options.settings.queue_items or _READ_AHEAD
        self._waited_s = 0.0

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller, with what the kernel cannot confine of the sandbox."""
        unconfined = () if self._isolation is None else self._isolation.unconfined
        return DecoderEngine("ffmpeg", self._reason, unconfined)

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        if (run := self._run.run) is None:
            return DecoderStats()
        stats, elapsed_s = super().stats, run.process.elapsed_s
        fps = stats.frames_read / elapsed_s
        return replace(stats, elapsed_s=elapsed_s, fps=fps, caller_wait_s=self._waited_s)

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """FFmpeg's process id; None before FFmpeg has started."""
        return self._run.pid

    @property
    def policy(self) -> AppliedPolicy | None:  # type: ignore[override]
        """The policy that FFmpeg started with; None if none was given, and before FFmpeg has started."""
        return self._run.policy

    def read_ahead(self) -> None:
        """Starts FFmpeg before the first read, so that frames are read ahead."""
        self._started()
        super().read_ahead()

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""
        run, began_s = self._started(), time.perf_counter()
        try:
            with run.logged_stalls():
                made = super().read(timeout)
        finally:
            self._waited_s += time.perf_counter() - began_s
        if made is None:
            self._finish()
        return made

    async def read_async(self) -> Made | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        run = self._started()
        read, is_there = self._begun_read(), False
        try:
            with run.logged_stalls():
                is_there = await run.wait_for_async(self._is_there, lambda: read.outcome, read)
        finally:
            if not is_there:
                heappush(self._abandoned, read)
        made = self._took(read.outcome.result()) if is_there else None
        if made is None:
            await asyncio.to_thread(self._finish)
        return made

    def _end(self) -> None:
        self._is_fed = True

    def _finish(self) -> None:
        """Finds out at the end whether all is well. Raises why it is not, the same at each call."""
        self._run.finish()
        if self._run.warning is not None:
            self.warning, self._run.warning = self._run.warning, None

    def _started(self) -> DecodeSession[tuple[int, Any]]:
        self.check_usable()
        return self._run.session

    def _await(self, read: Read[Made], deadline: Deadline) -> bool:
        """Waits until a read is done, as long as FFmpeg shows signs of life. False at the end, if none shows that."""
        return self._run.session.wait_for(self._is_there, deadline, LATE, read)

    def _is_there(self, read: Read[Made], timeout_s: float) -> bool:
        """Waits for a read. False if what a wrapper of FFmpeg has left running keeps the pipe open."""
        if self._is_done(read, timeout_s):
            return True
        if not self._run.is_left_running:
            raise StalledError("no frame came", timeout_s, self._pixels.input_bytes)
        return False

    def close(self) -> None:
        """Ends FFmpeg at once. What was delivered stays valid. May be called again, also by a signal handler."""
        self._is_closed = True
        self._run.stop()
        super().close()
        if self._worker is not None and not self.is_inherited:
            self._worker.join(KILL_GRACE_S)  # its read ends with FFmpeg

    def end_collected(self) -> None:
        """Ends FFmpeg when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if not self.is_closed:
            self._run.end_collected()
            super().close()


def changes_frames(input_options: Mapping[str, object]) -> bool:
    """Whether some of FFmpeg's options for its input may change which frames come, or their times."""
    return not _FRAME_PRESERVING_OPTIONS.issuperset(input_options)
