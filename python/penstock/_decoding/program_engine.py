"""Reads a source in sequence by an FFmpeg program, whose output libav reads."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import FileIO
from typing import TYPE_CHECKING

from penstock._common.messages import plural
from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.confined_output import ConfinedOutput
from penstock._decoding.engine import Made
from penstock._decoding.pixels import ProgramPixels
from penstock._decoding.program_frames import ProgramFrames
from penstock._decoding.session import DecodeSession, OnDemand
from penstock._facts import completeness
from penstock._facts.completeness import End
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.isolation import Isolation
    from penstock._facts.questions import Questions
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


class ProgramEngine(OnDemand[Made]):
    """Decodes frames in sequence by an FFmpeg program, which the first read starts.

    Args:
        program: FFmpeg.
        plan: what it is to do.
        reason: why it reads the source.
        questions: answers what else there is to know of the file.
        isolation: the sandbox that it runs in; None if it may do all.
        stored: what FFmpeg writes where this process makes the frames of that; None if FFmpeg makes them.

    Attributes:
        plan, questions: as above.
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
    ) -> None:
        track = plan.track
        super().__init__(
            *(opened, track.source, track.media, track.video.index),
            is_strict=not plan.options.conceal_errors,
            sandbox=None if isolation is None else isolation.sandbox,
        )
        self.plan, self.questions = plan, questions
        self._written = stored or plan  # what FFmpeg writes
        self._pixels = ProgramPixels(plan, stored)
        self._program, self._reason = program, reason
        self._isolation = isolation  # which keeps the file open

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller, with what the kernel cannot confine of the sandbox."""
        unconfined = () if self._isolation is None else self._isolation.unconfined
        return DecoderEngine("ffmpeg", self._reason, unconfined)

    account = None

    def lend(self) -> None:
        """Nothing: libav has no frame of it."""

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""
        return self.read_frame(timeout)

    async def read_async(self) -> Made | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""
        return await self.read_frame_async()

    def read_ahead(self) -> None:
        """Starts FFmpeg before the first read, so that frames are read ahead."""
        self.session  # noqa: B018

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        if (run := self.run) is None:
            return DecoderStats()
        stats, elapsed_s = self._frames.stats, run.process.elapsed_s
        return replace(stats, elapsed_s=elapsed_s, fps=stats.frames_read / elapsed_s)

    def _start(self) -> DecodeSession[Made]:
        """Starts FFmpeg; again from the beginning of the file, if it would lose frames by a seek."""
        run, start = super()._start(), self.plan.options.start
        if start is None or not self.plan.may_seek:
            return run
        try:
            # FFmpeg opens the file meanwhile, so this usually costs no time.
            if not self.questions.misses_frames(start):
                return run
        except BaseException:
            run.discard()
            raise
        run.close()
        self._written = replace(self._written, may_seek=False)
        return super()._start()

    def _make_session(self) -> DecodeSession[Made]:
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
        given = output, self._pixels, self.plan.track.video.time_base, self.plan.options.settings
        isolation = self._isolation
        self._frames = ProgramFrames(*given) if isolation is None else ConfinedOutput(isolation, *given)
        return self._frames

    def close(self) -> None:
        """Ends FFmpeg at once. What was delivered stays valid. May be called again."""
        super().close()
        self._pixels.close()

    def _end_of(self, run: DecodeSession[Made]) -> End:
        if self._frames.steps.is_lost:
            after = f"after {plural(run.delivered, 'frame')}"
            return End(f"the size or format changes where the times go back, {after}. Leave out `filters`")
        end = super()._end_of(run)
        if end.reason is None and not run.delivered:
            return End(completeness.why_no_frames(self.plan.track.media, self.plan.options.start))
        return end

    def _is_all_asked_for(self, run: DecodeSession[Made]) -> bool:
        if run.delivered == self.plan.options.count:
            return True
        steps = self._frames.steps
        return steps.latest is not None and not self.plan.part.has(
            steps.latest + max(steps.longest, self.plan.part.usual)
        )

    def _end_of_file(self, run: DecodeSession[Made]) -> End:
        options, last = self.plan.options, self._frames.steps.latest
        if last is None or options.filters or changes_frames(options.input_options):
            return End()  # the options may make what was delivered different from the file
        unit = float(self.plan.track.video.time_base)
        return self.questions.at_end(
            completeness.Delivered(
                frames=run.delivered if options.start is None else None,
                last_s=last * unit,
                longest_s=self._frames.steps.longest * unit,
            )
        )

    def _explained(self, damage: Counter[str]) -> str | None:
        """The warning to give instead of an error, if all damage comes from beginning inside a group of pictures.

        Either the file begins there, or FFmpeg does, because it seeks to a place some frames before `start`.
        """
        start = self.plan.options.start
        is_inside = self.questions.begins_inside_group()
        if start is None and not is_inside:
            return None
        arguments = self._written.beginning_arguments(before_start=not is_inside)
        beginning = FFmpegProcess(
            self._program,
            arguments,
            is_strict=False,
            stdout=subprocess.DEVNULL,
            sandbox=self._sandbox,
            error=DecoderError,
        )
        try:
            beginning.start()
            beginning.wait(self.plan.options.settings.stall_timeout)
        finally:
            beginning.end()
        if damage - beginning.log.reports:
            return None
        if start is None or is_inside:
            return completeness.BEGINS_INSIDE
        return f"FFmpeg reports damage in frames before start={start:g}, where decoding has to begin"


def changes_frames(input_options: Mapping[str, object]) -> bool:
    """Whether some of FFmpeg's options for its input may change which frames come, or their times."""
    return not _FRAME_PRESERVING_OPTIONS.issuperset(input_options)
