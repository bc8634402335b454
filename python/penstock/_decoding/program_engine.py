"""Reads a source in sequence by an FFmpeg program, whose output a native thread reads."""

from __future__ import annotations

import subprocess
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock._common.reports import DecoderStats
from penstock._decoding.libav_engine import Made
from penstock._decoding.session import DecodeSession, OnDemand
from penstock._facts import completeness
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.isolation import Isolation
    from penstock._facts.questions import Questions
    from penstock._facts.source import Source
    from penstock._native import Frame

# FFmpeg's options for its input that change neither which frames come nor their times.
_FRAME_PRESERVING_OPTIONS = frozenset(
    (
        *("hwaccel", "hwaccel_device", "hwaccel_output_format"),
        *("init_hw_device", "vaapi_device", "extra_hw_frames"),
        *("c", "c:v", "codec", "codec:v", "vcodec", "threads", "threads:v", "thread_type", "filter_threads"),
        *("probesize", "analyzeduration", "reinit_filter", "apply_cropping", "autorotate", "noautorotate"),
    )
)


class ProgramEngine(OnDemand):
    """Decodes frames in sequence by an FFmpeg program, which the first read starts.

    Args:
        program: FFmpeg.
        plan: what it is to do.
        questions: answers what else there is to know of the file.
        isolation: the box that it runs in; None if it may do all.

    Attributes:
        questions: as above.
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    def __init__(
        self,
        program: str,
        opened: Source,
        plan: DecodePlan,
        questions: Questions,
        isolation: Isolation | None = None,
    ) -> None:
        super().__init__(opened)
        self.questions = questions
        self._program, self._plan = program, plan
        self._isolation = isolation  # which keeps the file open
        self._box = None if isolation is None else isolation.box
        self.warning: str | None = None
        self._wrong_count: str | None = None

    @property
    def unconfined(self) -> tuple[str, ...]:
        """What the kernel cannot confine of the box."""
        return () if self._isolation is None else self._isolation.unconfined

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""
        return self._made(self.session.read(timeout))

    async def read_async(self) -> Made | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""
        return self._made(await self.session.read_async())

    def read_ahead(self) -> None:
        """Starts FFmpeg before the first read, so that frames are read ahead."""
        self.session  # noqa: B018

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        if (run := self.run) is None:
            return DecoderStats()
        reader, elapsed_s = run.reader.stats, run.process.elapsed_s
        return DecoderStats(
            frames_read=reader.frames_read,
            frames_delivered=run.delivered,
            bytes_read=reader.bytes_read,
            elapsed_s=elapsed_s,
            fps=reader.frames_read / elapsed_s,
            caller_wait_s=reader.caller_wait_s,
            input_wait_s=reader.input_wait_s,
            output_wait_s=reader.output_wait_s,
            converting_s=reader.converting_s,
            reader=reader,
        )

    def start(self) -> None:
        """Starts FFmpeg; again from the beginning of the file, if it would lose frames by a seek."""
        super().start()
        # FFmpeg opens the file meanwhile, so this usually costs no time.
        start = self._plan.options.start
        if self._plan.may_seek and start is not None and self.questions.misses_frames(start):
            self._plan = replace(self._plan, may_seek=False)
            if self.run is not None:
                self.run.close()
            super().start()

    def _make_session(self) -> DecodeSession:
        plan, options = self._plan, self._plan.options
        # Weak references: strong ones would make a cycle, and only the garbage collector would end an unused decoder.
        explain_damage, why_incomplete = (
            weakref.WeakMethod(self._explain_damage),
            weakref.WeakMethod(self._why_incomplete),
        )
        return DecodeSession(
            self._program,
            plan.arguments,
            path=self._opened.path,
            title=plan.title,
            settings=options.settings,
            frame_bytes=plan.layout.frame_bytes,
            conversion=plan.conversion,
            parts=plan.parts,
            is_strict=not options.conceal_errors,
            other_codecs=completeness.other_codecs(plan.track.media, plan.track.video.index),
            explain_damage=lambda damage: (made := explain_damage()) and made(damage),
            check_end=lambda: (check := why_incomplete()) and check(),
            box=self._box,
        )

    def _made(self, frame: Frame | None) -> Made | None:
        """The frame with its index and timestamp."""
        if frame is not None:
            return Made(frame.index, self.session.timestamps.take(frame.index), frame)
        if self.session.delivered == 0:
            raise self.session.fail(
                completeness.why_no_frames(self._plan.track.media, self._plan.options.start)
            )
        self.warning = self._said_at_end()
        return None

    def _delivered(self) -> completeness.Delivered | None:
        """What was delivered; None if the decoder's options make that different from the file."""
        options, last = self._plan.options, self.session.timestamps.last
        is_all_asked = self.session.delivered != options.count
        if (
            last is None
            or options.filters
            or not is_all_asked
            or not _FRAME_PRESERVING_OPTIONS.issuperset(options.input_options)
        ):
            return None
        time_base = self._plan.track.video.time_base
        return completeness.Delivered(
            frames=self.session.delivered if options.start is None else None,
            last_s=float(last * time_base),
            longest_s=float(self.session.timestamps.longest * time_base),
        )

    def _explain_damage(self, damage: Counter[str]) -> str | None:
        """The warning to give instead of an error, if all damage comes from beginning inside a group of pictures.

        Either the file begins there, or FFmpeg does, because it seeks to a place some frames before `start`.
        """
        start = self._plan.options.start
        is_inside = self.questions.begins_inside_group()
        if start is None and not is_inside:
            return None
        arguments = self._plan.beginning_arguments(before_start=not is_inside)
        beginning = FFmpegProcess(
            self._program,
            arguments,
            is_strict=False,
            stdout=subprocess.DEVNULL,
            box=self._box,
            error=DecoderError,
        )
        try:
            beginning.start()
            beginning.wait(self._plan.options.settings.stall_timeout)
        finally:
            beginning.end()
        if damage - beginning.log.reports:
            return None
        if start is None or is_inside:
            return completeness.BEGINS_INSIDE
        return f"FFmpeg reports damage to frames before start={start:g}, where it has to begin"

    def _why_incomplete(self) -> str | None:
        self.session.timestamps.read_all()
        delivered = self._delivered()
        if self._opened.failure:
            return self._opened.failure
        if delivered is None:
            return None
        reason, self._wrong_count = self.questions.at_end(delivered)
        return reason

    def _said_at_end(self) -> str | None:
        """What is to be said of how the file begins, or of a wrong number in its header."""
        options = self._plan.options
        is_unsure = options.conceal_errors or options.start is not None
        return self.session.warning or (None if is_unsure else self._wrong_count)


def changes_frames(input_options: Mapping[str, object]) -> bool:
    """Whether some of FFmpeg's options for its input may change which frames come, or their times."""
    return not _FRAME_PRESERVING_OPTIONS.issuperset(input_options)
