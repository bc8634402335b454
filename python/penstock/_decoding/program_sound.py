"""Reads the audio of a source by an FFmpeg program, which writes raw samples."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from penstock._common.reports import DecoderEngine
from penstock._decoding.mixing import filters_for
from penstock._decoding.session import DecodeSession, OnDemand
from penstock._decoding.sound_engine import BLOCK_SAMPLES, silence
from penstock._facts.completeness import End, has_sound, why_sound_incomplete
from penstock._facts.info import AudioInfo, MediaInfo, unusual_layout
from penstock._facts.seeking import audio_arguments
from penstock._facts.source import Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import SAMPLES, format_seconds, option_arguments, read_arguments
from penstock._formats import containers
from penstock._native import Frame, Reader
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.mixing import SampleForm
    from penstock._decoding.options import AudioDecodeOptions
    from penstock._native import AppliedPolicy

# Guessed: the first sample comes so much later than its packet at most. For Vorbis, it is half of a block.
_LATEST_S = 0.1

# What to do if this FFmpeg is too old for a file.
_NEWER = "Pass a newer program in the settings, such as ffmpeg=imageio_ffmpeg.get_ffmpeg_exe()"


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """What an FFmpeg program reads, and how.

    Attributes:
        program: FFmpeg.
        reason: why it reads.
        opened, media, audio, is_strict: as for `open_sound.SoundInput`.
        options: with a duration in place of an end.
    """

    program: str
    reason: str
    opened: Source
    media: MediaInfo
    audio: AudioInfo
    is_strict: bool
    options: AudioDecodeOptions


class ProgramSound:
    """Gives blocks of samples that an FFmpeg program writes, which the first read starts.

    Args:
        chosen, form: what is read, and what is made of it.
        title: of the decoder.
    """

    def __init__(self, chosen: ProgramInput, form: SampleForm, title: str) -> None:
        self._chosen, self._form = chosen, form
        self._sample_bytes = form.channels * np.dtype(form.dtype).itemsize
        settings = chosen.options.settings
        new_session = partial(
            DecodeSession,
            chosen.program,
            self._arguments(),
            title=title,
            settings=settings,
            new_reader=partial(
                Reader,
                frame_bytes=BLOCK_SAMPLES * self._sample_bytes,
                queue_items=settings.queue_items,
                capacity_bytes=settings._knobs.capacity_bytes,
                policy=settings.policy,
            ),
            is_strict=chosen.is_strict,
        )
        self._run = _Blocks(chosen, new_session, between_s=self._between_s())
        self._lock = threading.Lock()

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller."""
        return DecoderEngine("ffmpeg", self._chosen.reason)

    @property
    def pid(self) -> int | None:
        """FFmpeg's process id; None before FFmpeg has started."""
        return self._run.pid

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that FFmpeg started with; None if none was given, and before FFmpeg has started."""
        return self._run.policy

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return self._run.is_closed

    def read(self, timeout: float | None = None) -> npt.NDArray[Any] | None:
        """The next block; None at the end."""
        if (before := self._silence()) is not None:
            return before
        try:
            block = self._run.read_frame(timeout)
        except DecoderError:
            if (last := self._last_block()) is None:
                raise
            return last
        return self._last_block() if block is None else self._shaped(block)

    async def read_async(self) -> npt.NDArray[Any] | None:
        """`read` for asyncio. A task that is cancelled while it waits loses nothing."""
        if (before := self._silence()) is not None:
            return before
        try:
            block = await self._run.read_frame_async()
        except DecoderError:
            if (last := self._last_block()) is None:
                raise
            return last
        return self._last_block() if block is None else self._shaped(block)

    def close(self) -> None:
        """Ends FFmpeg at once. What was delivered stays valid. May be called again."""
        self._run.close()

    def end_collected(self) -> None:
        """Ends FFmpeg when the garbage collector takes the decoder."""
        self._run.end_collected()

    def _arguments(self) -> list[str]:
        chosen, form, settings = self._chosen, self._form, self._chosen.options.settings
        seek, zero_s = audio_arguments(chosen.options.start, chosen.opened.url, chosen.media, chosen.audio)
        is_own = form.matrix is None and form.channels == chosen.audio.channels
        layout = unusual_layout(chosen.audio) if is_own else None
        filters = [*self._trims(zero_s), *filters_for(form, layout)]
        container = SAMPLES[form.dtype]
        return [
            *seek,
            *(() if settings.threads is None else ("-threads", str(settings.threads))),
            *endpoints.confining_arguments(
                chosen.opened.url, () if chosen.options.follow_playlists else (chosen.media.container,)
            ),
            *option_arguments(chosen.options.input_options or {}),
            *read_arguments(chosen.opened.url, chosen.media.container),
            *("-map", f"0:{chosen.audio.index}", "-vn", "-sn", "-dn"),
            *("-filter:a", ",".join(filters)),
            *(() if layout is not None else ("-ac", str(form.channels))),
            # Unbuffered: if FFmpeg fails, all packets that it has made arrive.
            *("-avioflags", "direct", "-c:a", f"pcm_{container}", "-f", container, "pipe:1"),
        ]

    def _trims(self, zero_s: float) -> list[str]:
        """FFmpeg's filters for a part of the sound, whose time `zero_s` is their 0. Notes the silence before it."""
        chosen, rate = self._chosen, self._form.sample_rate
        begins_s, start, duration = chosen.audio.start_s, chosen.options.start, chosen.options.duration
        first_s = None if start is None else start + chosen.media.zero_s
        late_s = 0.0 if first_s is None or begins_s is None else max(0.0, begins_s - first_s)
        if start is None or late_s:
            # FFmpeg before 8 also outputs the priming samples before that time, which are no sound: 21 ms of AAC.
            first_s = begins_s if containers.known(chosen.media.container).has_elements else None
        lead_s = late_s if duration is None else min(late_s, duration)
        # Samples of silence that are still to come.
        self._silent = round(lead_s * rate)
        trim = [] if first_s is None else [f"start={format_seconds(first_s - zero_s)}"]
        if duration is not None:
            # It counts from the first sample. To the filter, a duration of less than half a sample is none.
            left_s, own = duration - self._silent / rate, chosen.audio.sample_rate
            is_over = round(left_s * own) < 1
            trim.append("end_sample=0" if is_over else f"duration={format_seconds(left_s)}")
            # FFmpeg makes new filters where the sound changes its channels or its rate: that one starts to count again.
            latest_s = (begins_s or 0.0) + _LATEST_S
            ends_s = left_s + (latest_s if first_s is None else max(first_s, latest_s))
            # A sample later, because each time is rounded.
            trim.append(f"end={format_seconds(ends_s - zero_s + 1 / own)}")
        return [f"atrim={one}" for one in trim]

    def _between_s(self) -> tuple[float | None, float | None]:
        """The part of the file's clock to decode; None for an open end."""
        chosen = self._chosen
        from_s = None if chosen.options.start is None else chosen.options.start + chosen.media.zero_s
        begins_s = (chosen.audio.start_s or 0.0) if from_s is None else from_s
        return from_s, None if chosen.options.duration is None else begins_s + chosen.options.duration

    def _silence(self) -> npt.NDArray[Any] | None:
        """The next block of the silence before the sound; None after its end."""
        if self._run.is_inherited or not self._silent:
            return None
        self._run.check_open()
        with self._lock:
            samples = min(self._silent, BLOCK_SAMPLES)
            self._silent -= samples
        return silence((samples, self._form.channels), self._form.dtype) if samples else None

    def _last_block(self) -> npt.NDArray[Any] | None:
        """The last block, which is shorter than the others, once; None if there is none."""
        with self._lock:
            rest, self._run.rest = self._run.rest, None
        return None if rest is None or rest.nbytes < self._sample_bytes else self._shaped(rest)

    def _shaped(self, block: Frame) -> npt.NDArray[Any]:
        view, channels = memoryview(block), self._form.channels
        samples = view.nbytes // self._sample_bytes  # an incomplete last one is left out
        return np.frombuffer(view, self._form.dtype, samples * channels).reshape(samples, channels)


class _Blocks(OnDemand[Frame]):
    """The run of FFmpeg that writes blocks of samples.

    Attributes:
        rest: what FFmpeg wrote after the last whole block.
    """

    rest: Frame | None = None

    def __init__(
        self,
        chosen: ProgramInput,
        new_session: Callable[[], DecodeSession[Frame]],
        *,
        between_s: tuple[float | None, float | None],
    ) -> None:
        opened, media, audio = chosen.opened, chosen.media, chosen.audio
        super().__init__(opened, opened.url, media, audio.index, is_strict=chosen.is_strict)
        self._place, self._between_s, self._new_session = (opened.url, media, audio), between_s, new_session

    def _make_session(self) -> DecodeSession[Frame]:
        return self._new_session()

    def read_frame(self, timeout: float | None) -> Frame | None:
        frame = super().read_frame(timeout)
        self._check_program(frame)
        return frame

    async def read_frame_async(self) -> Frame | None:
        frame = await super().read_frame_async()
        self._check_program(frame)
        return frame

    def _check_program(self, frame: Frame | None) -> None:
        """Raises if FFmpeg is too old for the sound, and doesn't say so."""
        run, own, reason = self.session, self._place[2].codec, None
        programs = run.process.log.codec or own
        # Of other PCM it makes noise. Packets of other codecs say what they are.
        if programs != own and own.startswith("pcm_") and programs.startswith("pcm_"):
            reason, self.rest = f"the audio is {own}, which this FFmpeg reads as {programs}", None
        elif frame is None and not run.reader.stats.bytes_read and has_sound(*self._place, *self._between_s):
            reason = f"this FFmpeg decodes nothing of the audio, which is {own}"
        if reason is not None:
            raise run.failure(f"{self._opened.path}: {reason}", run.delivered, _NEWER)

    def _end_of(self, run: DecodeSession[Frame]) -> End:
        self.rest = cast("Reader", run.reader).take_rest()
        return super()._end_of(run)

    def _end_of_file(self, run: DecodeSession[Frame]) -> End:
        is_part = self._between_s[1] is not None
        return End(None if is_part else why_sound_incomplete(*self._place))
