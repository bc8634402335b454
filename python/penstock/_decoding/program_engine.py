"""Reads a source in sequence by an FFmpeg program, whose frames libav reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import FileIO
from typing import TYPE_CHECKING, Any

from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.confined_output import ConfinedOutput
from penstock._decoding.from_child import FramesFromChild
from penstock._decoding.pixels import ProgramPixels
from penstock._decoding.program_frames import ProgramOutput
from penstock._decoding.sequence import SequenceFrame
from penstock._decoding.session import DecodeSession, FFmpegRun
from penstock._facts import completeness
from penstock._facts.completeness import EndOfFile
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.process import reports_of

if TYPE_CHECKING:
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.file_checks import FileChecks
    from penstock._facts.isolation import Isolation
    from penstock._facts.source import Source

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


class ProgramRun(FFmpegRun):
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
    """

    how = "libav reads the frames that it writes"

    def __init__(
        self,
        program: str,
        opened: Source,
        plan: DecodePlan,
        written: DecodePlan,
        frame_bytes: int,
        checks: FileChecks,
        isolation: Isolation | None,
        *,
        knows_first: bool,
    ) -> None:
        track, self._part = plan.track, plan.part
        super().__init__(
            *(program, opened, track.source, track.media, track.video.index),
            *(plan.options.settings, plan.title),
            is_strict=not plan.options.conceal_errors,
            sandbox=None if isolation is None else isolation.sandbox,
        )
        self.plan, self.checks = plan, checks
        self._written, self._frame_bytes = written, frame_bytes
        self._isolation = isolation  # which keeps the file open
        self._longest = 0  # the longest step between the times of two frames
        self._latest: int | None = None  # the latest time
        self._most: int | None = None  # frames, after which FFmpeg is ended
        self._is_before_part = plan.options.start is not None and not knows_first
        self._held: tuple[int, Any] | None = None  # the last frame before `start`
        self._after: tuple[int, Any] | None = None  # the next one
        if self._is_before_part:
            self._most = plan.options.count
            self._written = replace(written, options=replace(written.options, start=None, count=None))

    def advance(self) -> SequenceFrame | None:
        """The next frame; None if it isn't there yet. Waits as long as it takes.

        Raises:
            StopIteration: there are no more.
            DecoderError, OSError: it cannot be decoded or read.
        """
        if self.has_enough:
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
        self.has_enough = self._count == self._most
        if self._latest is not None:
            self._longest = max(self._longest, read[0] - self._latest)
        self._latest = read[0] if self._latest is None else max(self._latest, read[0])
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

    def _arguments(self) -> list[str]:
        return self._written.arguments()

    def _new_output(self, output: FileIO) -> ProgramOutput | ConfinedOutput:
        given = output, self.plan.track.video.time_base, self._settings.policy, self._frame_bytes
        return ProgramOutput(*given) if self._isolation is None else ConfinedOutput(self._isolation, *given)

    def _end_of(self, run: DecodeSession) -> EndOfFile:
        end = super()._end_of(run)
        if end.reason is None and not self._count:
            return EndOfFile(completeness.why_no_frames(self.plan.track.media, self.plan.options.start))
        return end

    def _is_all_asked_for(self, run: DecodeSession) -> bool:
        if self._count == self.plan.options.count:
            return True
        part, latest = self.plan.part, self._latest
        return latest is not None and not part.has(latest + max(self._longest, part.usual))

    def _end_of_file(self, run: DecodeSession) -> EndOfFile:
        options, last = self.plan.options, self._latest
        if last is None:
            return EndOfFile()
        if options.filters or changes_frames(options.given_input):
            end = self.checks.at_end(None)
            is_inside = end.reason is None and options.start is None and self.checks.begins_inside_group()
            return EndOfFile(end.reason, completeness.BEGINS_INSIDE if is_inside else None)
        unit = float(self.plan.track.video.time_base)
        return self.checks.at_end(
            completeness.Delivered(
                frames=self._count if options.start is None else None,
                last_s=last * unit,
                longest_s=self._longest * unit,
            )
        )

    def _explained(self, damage: Counter[str]) -> str | None:
        """The warning to give instead of an error, if all damage comes from beginning inside a group of pictures.

        Either the file begins there, or FFmpeg does, because it seeks to a place some frames before `start`.
        """
        start = self.plan.options.start
        if endpoints.identity(self.plan.track.source) is None:
            return None  # it can't be read again
        is_inside = self.checks.begins_inside_group()
        if start is None and not is_inside:
            return None
        arguments = self._written.beginning_arguments(before_start=not is_inside)
        patience_s = self.plan.options.settings.stall_timeout
        if damage - reports_of(self._program, arguments, patience_s, self._sandbox):
            return None
        if start is None or is_inside:
            return completeness.BEGINS_INSIDE
        return f"FFmpeg reports damage in frames before start={start:g}, where decoding has to begin"


class ProgramEngine(FramesFromChild):
    """Decodes frames in sequence by an FFmpeg program.

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
        checks: FileChecks,
        isolation: Isolation | None = None,
        stored: DecodePlan | None = None,
        *,
        knows_first: bool,
    ) -> None:
        pixels = ProgramPixels(plan, stored)
        run = ProgramRun(
            *(program, opened, plan, stored or plan, pixels.input_bytes, checks, isolation),
            knows_first=knows_first,
        )
        unconfined = () if isolation is None else isolation.unconfined
        super().__init__(plan, run, checks, DecoderEngine("ffmpeg", reason, unconfined), pixels)
        self._most = None  # FFmpeg knows

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        if (session := self._run.run) is None:
            return DecoderStats()
        stats, elapsed_s = super().stats, session.process.elapsed_s
        return replace(stats, elapsed_s=elapsed_s, fps=stats.frames_read / elapsed_s)


def changes_frames(input_options: Mapping[str, object]) -> bool:
    """Whether some of FFmpeg's options for its input may change which frames come, or their times."""
    return not _FRAME_PRESERVING_OPTIONS.issuperset(input_options)
