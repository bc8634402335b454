"""Reads the audio of a source by an FFmpeg program, whose samples libav reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from io import FileIO
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from penstock._common.reports import DecoderEngine
from penstock._decoding.from_child import FromChild
from penstock._decoding.mixing import Kind, Mixer
from penstock._decoding.open_sound import PlacedSound
from penstock._decoding.program_frames import ProgramOutput, writing_arguments
from penstock._decoding.session import DecodeSession, FFmpegRun
from penstock._decoding.sound_engine import SoundEngine
from penstock._facts.completeness import End, has_sound, why_sound_incomplete
from penstock._facts.seeking import audio_arguments
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import option_arguments, read_arguments

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame

    from penstock._decoding.mixing import SampleForm
    from penstock._decoding.open_sound import SoundInput
    from penstock._ffmpeg.command.settings import DecoderSettings

# FFmpeg's encoders of the samples that decoders make, as they are.
_ENCODERS = {"u8": "u8", "s16": "s16le", "s32": "s32le", "s64": "s64le", "flt": "f32le"}
# What to do if this FFmpeg is too old for a file.
_NEWER = "Pass a newer program in the settings, such as ffmpeg=imageio_ffmpeg.get_ffmpeg_exe()"


class SoundRun(FFmpegRun):
    """The frames of an FFmpeg program, as an `OpenSound` gives those of a file, and what its end means.

    Args:
        program: FFmpeg.
        chosen: what it reads.
        start, duration, input_options, follow_playlists, settings: as for `AudioDecoder`.
        title: of the decoder.

    Attributes:
        has_sought: FFmpeg begins in the middle of the file.
    """

    length, is_lossless, unit_samples = None, True, 1.0

    def __init__(
        self,
        program: str,
        chosen: SoundInput,
        start: float | None,
        duration: float | None,
        input_options: Mapping[str, object],
        settings: DecoderSettings,
        title: str,
        *,
        follow_playlists: bool,
    ) -> None:
        url, media, audio = self._place = chosen.opened.url, chosen.media, chosen.audio
        super().__init__(
            *(program, chosen.opened, url, media, audio.index, settings, title), is_strict=chosen.is_strict
        )
        self._seek, self._zero_s = audio_arguments(start, url, media, audio)
        self.has_sought = "-ss" in self._seek
        self._input_options, self._follows = input_options, follow_playlists
        # The part of the file's clock.
        self._from_s = None if start is None else start + media.zero_s
        begins_s = (audio.start_s or 0.0) if self._from_s is None else self._from_s
        self._until_s = None if duration is None else begins_s + duration

    def _arguments(self) -> list[str]:
        (url, media, audio), threads = self._place, self._settings.threads
        encoder = _ENCODERS.get((audio.sample_format or "").rstrip("p"), "f64le")
        return [
            *self._seek,
            *(() if threads is None else ("-threads", str(threads))),
            *endpoints.confining_arguments(url, () if self._follows else (media.container,)),
            *option_arguments(self._input_options),
            *read_arguments(url, media.container),
            *("-map", f"0:{audio.index}", "-vn", "-sn", "-dn", "-ar", str(audio.sample_rate)),
            *writing_arguments(1, "-c:a", f"pcm_{encoder}"),
        ]

    def _new_output(self, output: FileIO) -> ProgramOutput:
        return ProgramOutput(output, Fraction(1, self._place[2].sample_rate), self._settings.policy)

    def frames(self) -> Iterator[AudioFrame]:
        """The frames, whose times count samples by the file's clock."""
        zero = round(self._zero_s * self._place[2].sample_rate)
        while (read := self.session.read()) is not None:
            self._check_codec()
            self._count += 1
            for frame in read[1].decode():
                frame.pts = read[0] + zero
                yield frame

    def _check_codec(self) -> None:
        """Raises if FFmpeg makes noise of PCM, because it is too old. Packets of other codecs say what they are."""
        own = self._place[2].codec
        programs = self.session.process.log.codec or own
        if programs != own and own.startswith("pcm_") and programs.startswith("pcm_"):
            self._fail(f"the audio is {own}, which this FFmpeg reads as {programs}")

    def _fail(self, reason: str) -> None:
        raise self.session.failure(f"{self._opened.path}: {reason}", self._count, _NEWER)

    def _end_of(self, run: DecodeSession) -> End:
        if not self._count and not self.has_enough and has_sound(*self._place, self._from_s, self._until_s):
            self._fail(f"this FFmpeg decodes nothing of the audio, which is {self._place[2].codec}")
        return super()._end_of(run)

    def _end_of_file(self, run: DecodeSession) -> End:
        return End(None if self._until_s is not None else why_sound_incomplete(*self._place))


class _Placed(PlacedSound):
    """The samples of an FFmpeg program in the form in which they are delivered, in sequence."""

    def __init__(self, chosen: SoundInput, form: SampleForm, run: SoundRun) -> None:
        super().__init__(chosen, form, run)
        self._run = run

    def _begun(self, begin: int) -> tuple[int, int, Iterator[AudioFrame]]:
        frames, audio = self._run.frames(), self._chosen.audio
        if (first := next(frames, None)) is None:
            return 0, 0, frames
        at = (first.pts or 0) - round((audio.start_s or 0.0) * audio.sample_rate)
        if not self._run.has_sought:
            # FFmpeg before 8 also outputs the priming samples of Matroska, which are no sound: 21 ms of AAC.
            at = min(0, at) if self._chosen.media.container == endpoints.MATROSKA else 0
        return at, max(0, -at), chain([first], frames)

    def _made_mixer(self, kind: Kind, skipped: int) -> Mixer:
        audio = self._chosen.audio  # NUT doesn't tell the layout
        name = audio.channel_layout if kind.channels == audio.channels else None
        return Mixer(kind, self._form, skipped, name)


class ProgramSound(FromChild[npt.NDArray[Any]], SoundEngine):
    """Gives blocks of samples that an FFmpeg program makes.

    Args:
        chosen, form, title, part: as for `SoundEngine`.
        run: FFmpeg.
        reason: why it reads.
        queue_items: of the settings.
    """

    def __init__(
        self,
        chosen: SoundInput,
        form: SampleForm,
        title: str,
        part: tuple[int, int | None],
        run: SoundRun,
        reason: str,
        queue_items: int | None,
    ) -> None:
        super().__init__(chosen, form, title, part, may_hang=True)
        self._read_from(run, DecoderEngine("ffmpeg", reason), queue_items)
        self._output = run

    def _opened(self) -> PlacedSound:
        return _Placed(self._chosen, self._form, self._output)

    def _finish(self) -> None:
        self._output.has_enough = self._stop is not None and self._place >= self._stop
        super()._finish()

    def _free(self) -> None:
        super()._free()
        self._output.close()
