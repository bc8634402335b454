"""Reads the audio of a source by an FFmpeg program, whose samples libav reads."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from io import FileIO
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from penstock._common.reports import DecoderEngine
from penstock._decoding.from_child import FromChild
from penstock._decoding.placed_sound import PlacedSound
from penstock._decoding.program_frames import ProgramOutput, writing_arguments
from penstock._decoding.session import DecodeSession, FFmpegRun
from penstock._decoding.sound_engine import SoundEngine
from penstock._facts.completeness import INDEX_IS_LAST, EndOfFile, has_sound, why_sound_incomplete
from penstock._facts.seeking import audio_arguments
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import format_seconds, option_arguments, read_arguments

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame

    from penstock._decoding.mixing import Kind, SampleForm
    from penstock._decoding.open_sound import OpenSound, SoundInput
    from penstock._decoding.options import AudioDecodeOptions

# FFmpeg's encoders of the samples that decoders make, as they are.
_ENCODERS = {"u8": "u8", "s16": "s16le", "s32": "s32le", "s64": "s64le", "flt": "f32le"}
# Guessed: the first sample comes so much later than its packet at most. For Vorbis, it is half of a block.
_LATEST_S = 0.1
# What to do if this FFmpeg is too old for a file.
_NEWER = "Pass a newer program in the settings, such as ffmpeg=imageio_ffmpeg.get_ffmpeg_exe()"


class SoundRun(FFmpegRun):
    """The frames of an FFmpeg program, as an `OpenSound` gives those of a file, and what its end means.

    Args:
        program: FFmpeg.
        chosen: what it reads.
        options: of the decoder.
        ends_s: the end of the part, as `AudioDecodeOptions.end`; None for none.
        title: of the decoder.

    Attributes:
        chosen: as above.
        has_sought: FFmpeg begins in the middle of the file.
    """

    length, needs_none, unit_samples, dropped = None, True, 1.0, 0

    def __init__(
        self,
        program: str,
        chosen: SoundInput,
        options: AudioDecodeOptions,
        ends_s: float | None,
        title: str,
    ) -> None:
        url, media, audio = self._place = chosen.opened.url, chosen.media, chosen.audio
        super().__init__(
            *(program, chosen.opened, url, media, audio.index, options.settings, title),
            is_strict=chosen.is_strict,
        )
        self.chosen, self._options = chosen, options
        self._seek, self._zero_s = audio_arguments(options.start, url, media, audio)
        self.has_sought = "-ss" in self._seek
        # The part of the file's clock.
        self._from_s = None if options.start is None else options.start + media.zero_s
        self._until_s = None if ends_s is None else ends_s + media.zero_s

    def _arguments(self) -> list[str]:
        (url, media, audio), options = self._place, self._options
        threads, encoder = (
            options.settings.threads,
            _ENCODERS.get((audio.sample_format or "").rstrip("p"), "f64le"),
        )
        end = []
        if self._until_s is not None:
            # It also comes to an end soon after the part, and says nothing of what follows.
            end = ["-filter:a", f"atrim=end={format_seconds(self._until_s - self._zero_s + _LATEST_S)}"]
        return [
            *self._seek,
            *(() if threads is None else ("-threads", str(threads))),
            *endpoints.confining_arguments(url, () if options.follow_playlists else (media.container,)),
            *option_arguments(options.input_options or {}),
            *read_arguments(url, media.container),
            *("-map", f"0:{audio.index}", "-vn", "-sn", "-dn", "-ar", str(audio.sample_rate), *end),
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

    def _end_of(self, run: DecodeSession) -> EndOfFile:
        if not self._count and not self.has_enough and has_sound(*self._place, self._from_s, self._until_s):
            if self._opened.single_pass is not None and self.chosen.container.has_boxes:
                raise self.session.failure(f"{self._opened.path}: {INDEX_IS_LAST}", 0)
            self._fail(f"this FFmpeg decodes nothing of the audio, which is {self._place[2].codec}")
        return super()._end_of(run)

    def _end_of_file(self, run: DecodeSession) -> EndOfFile:
        return EndOfFile(None if self._until_s is not None else why_sound_incomplete(*self._place))


class _Placed(PlacedSound):
    """The samples of an FFmpeg program in the form in which they are delivered, in sequence."""

    def __init__(self, run: SoundRun, form: SampleForm) -> None:
        super().__init__(cast("OpenSound", run), form)
        self._run = run

    def _begun(self, begin: int) -> tuple[int, int, Iterator[AudioFrame]]:
        frames, chosen = self._run.frames(), self._chosen
        if (first := next(frames, None)) is None:
            return 0, 0, frames
        at = (first.pts or 0) - round((chosen.audio.start_s or 0.0) * self._own)
        if not self._run.has_sought:
            # FFmpeg before 8 also outputs the priming samples of Matroska, which are no sound: 21 ms of AAC.
            at = min(0, at) if chosen.container.has_elements else 0
        return at, max(0, -at), chain([first], frames)

    def _layout_of(self, kind: Kind) -> str | None:
        audio = self._chosen.audio  # NUT doesn't tell the layout
        return audio.channel_layout if kind.channels == audio.channels else None


class ProgramSound(FromChild[npt.NDArray[Any]], SoundEngine):
    """Gives blocks of samples that an FFmpeg program makes.

    Args:
        run: FFmpeg.
        form: what is made of the samples.
        title, part: as for `SoundEngine`.
        reason: why it reads.
        queue_items: of the settings.
    """

    def __init__(
        self,
        run: SoundRun,
        form: SampleForm,
        title: str,
        part: tuple[int, int | None],
        reason: str,
        queue_items: int | None,
    ) -> None:
        super().__init__(run.chosen.opened, _Placed(run, form), title, part)
        self._may_hang, self._output = True, run
        self._read_from(run, DecoderEngine("ffmpeg", reason), queue_items)

    def _finish(self) -> None:
        self._output.has_enough = self._stop is not None and self._place >= self._stop
        super()._finish()
