"""The `AudioDecoder`: an audio or video file in, blocks of samples out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from penstock._common.deadline import Deadline
from penstock._common.keywords import explains
from penstock._common.messages import argument
from penstock._decoding.confined_sound import ConfinedRun, ConfinedSound, ConfinedSoundEngine
from penstock._decoding.engines import only_by_program, why_program
from penstock._decoding.mixing import SampleForm, layout_of, matrix_of
from penstock._decoding.open_sound import OpenSound, SoundInput, chosen_audio, open_once
from penstock._decoding.options import AudioDecodeOptions, SampleType
from penstock._decoding.placed_sound import PlacedSound
from penstock._decoding.program_sound import ProgramSound, SoundRun
from penstock._decoding.session import DecoderBase
from penstock._decoding.sound_engine import SoundEngine
from penstock._facts.info import MediaInfo, exact_zero
from penstock._facts.opening import lacks_protocol
from penstock._facts.probing import PATIENCE_S, answer_of, probe
from penstock._facts.seeking import exact
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    DecoderSettings,
    check_place,
)
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._native import _count, _seconds
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._common.reports import DecoderEngine

# More than any file has. A time may be any finite number, of which libav's 64 bits hold few.
_MOST_SAMPLES = 1 << 62


class AudioDecoder(DecoderBase):
    """Reads an audio track as NumPy arrays: blocks of samples × channels in order, or windows at any time.

    ```python
    with AudioDecoder("in.mp4", sample_rate=16_000, channels=1) as audio:
        samples = audio.read_all()
        clips = audio.windows([0.0, 2.5, 7.0], 1.0)  # 3 × 16,000 × 1
    ```

    **Engine.** libav (PyAV) decodes regular files, bytes and URLs in this process, without an FFmpeg program. It opens
    a URL once, and has the time limits of `Decoder`. With `isolated`, libav decodes in a process of its own, and in
    another one for windows. An FFmpeg program, which the first read starts, reads pipes,
    FIFOs, and URLs whose protocol libav lacks. It also reads files if you pass `input_options`, `follow_playlists`, or
    `settings` with a program or a thread policy. The program only decodes: libav mixes and resamples what it writes.
    `engine` reports which of the two reads, and why.

    **Samples.** Floating-point samples are between -1 and 1, or beyond if the audio itself is louder than full scale.
    Blocks follow each other without a gap: if the file has no packets for some time, the gap is left out.

    **Mixing.** If you pass `channels`, FFmpeg's usual matrix mixes them, scaled so that no mix is louder than full
    scale. It's the same for all dtypes. `matrix` reports it, and you can pass another one. Stereo becomes mono as the
    mean of both. A center of 5.1, which has the speech, becomes 0.29 times as loud in mono and in stereo.

    **Threads and signals.** As for `Decoder`. The child of a ``fork`` has to open the file again.

    Args:
        source: the source, as for `Decoder`, but no images.
        stream: number of the audio stream, from 0; None picks the best one.
        sample_rate: samples per second to resample to; None is the file's own rate.
        channels: number of channels to mix to; None is the file's own. The file's own number leaves the channels as
            they are.
        dtype: dtype of the samples.
        matrix: how to mix: an array of delivered channels × the file's channels, instead of `channels`. Each delivered
            channel is the sum of the file's, times the numbers of its row.
        start: time of the first sample, in seconds as for `Decoder`'s `start`. Earlier samples are dropped. If the
            audio begins later, silence comes first. It's exact to the sample: ``read_all()`` is the same as from 0, but
            for the first ``round(start * sample_rate)`` samples. None begins with the file's first sample. Chained Ogg
            and joined MPEG-TS restart their times at each join; Penstock counts on there. From an FFmpeg program,
            Matroska and FLV are up to 1 ms off, and WMA 0.1 s.
        end: time in seconds at which the part ends.
        duration: number of seconds to decode, instead of `end`; None decodes all. It's ``round(duration *
            sample_rate)`` samples, or less at the end of the audio.
        conceal_errors: as for `Decoder`.
        follow_playlists: as for `Decoder`.
        input_options: as for `Decoder`.
        isolated: as for `Decoder`: one process for the iteration, and one for windows. Not with arguments for which an
            FFmpeg program reads.
        settings: as for `Decoder`.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: if the file doesn't exist, or can't be read.
        OSError: if no descriptor, memory, process or thread is left, here or in a later call.
        DecoderError: if the source is no media file, or has no audio; or if an FFmpeg program is needed and isn't
            found.
        StalledError: if a server doesn't answer.
        ValueError: if an argument is impossible, or `matrix` has another number of columns than the audio has channels.
    """

    _engine: SoundEngine

    # `make fmt` writes the arguments here, and those in Args above, from `AudioDecodeOptions`.
    @explains(
        "the others by their names, such as sample_rate=16_000",
        num_channels="channels=1",
        mono="channels=1",
        **dict.fromkeys(("sr", "rate", "samplerate"), "sample_rate=16_000"),
        **dict.fromkeys(("ffmpeg", "threads", "queue_items"), "settings=DecoderSettings(…)"),
        timeout="settings=DecoderSettings(stall_timeout=60)",
        offset="start=",
    )
    def __init__(
        self,
        source: MediaSource,
        *,
        stream: int | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        dtype: SampleType = "float32",
        matrix: ArrayLike | None = None,
        start: float | None = None,
        end: float | None = None,
        duration: float | None = None,
        conceal_errors: bool = False,
        follow_playlists: bool = False,
        input_options: Mapping[str, object] | None = None,
        isolated: bool | Literal["strict"] = False,
        settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
    ) -> None:
        options = AudioDecodeOptions(
            stream=stream,
            sample_rate=sample_rate,
            channels=channels,
            dtype=dtype,
            matrix=matrix,
            start=start,
            end=end,
            duration=duration,
            conceal_errors=conceal_errors,
            follow_playlists=follow_playlists,
            input_options=input_options,
            isolated=isolated,
            settings=settings,
        )
        options.check()
        rows = None if matrix is None else _rows(matrix, channels)
        self._opened = Source.of(source, input_options)
        with self._opened.closed_after_failure(source):
            self._engine = self._begun(options, partial(_chosen, options, rows))

    def _begun(
        self, options: AudioDecodeOptions, choose: Callable[[MediaInfo], tuple[MediaInfo.Audio, SampleForm]]
    ) -> SoundEngine:
        """What reads, once the facts are known."""
        opened, settings, is_strict = self._opened, options.settings, not options.conceal_errors
        if options.isolated:
            _check_isolated(opened, options)
            isolated = ConfinedRun(opened, ConfinedSound(opened, options, choose))
            self._know(isolated.session.media, choose)
            return ConfinedSoundEngine(isolated, repr(self), self._part(options), settings.queue_items)
        reason = why_program(opened, options)
        opening = partial(open_once, opened, options.stream, settings, is_strict=is_strict)
        sound = None if reason else _opened_sound(opened, opening)
        follow_playlists = options.follow_playlists
        self._know(sound.chosen.media if sound else probe(opened, follow_playlists=follow_playlists), choose)
        if sound is not None:
            return SoundEngine(opened, PlacedSound(sound, self._form), repr(self), self._part(options))
        begins_s = max(0.0, float(self._zero)) if options.start is None else options.start
        ends_s = options.end if options.duration is None else begins_s + options.duration
        chosen = SoundInput(opened, self._media, self._audio, is_strict, settings.threads, None)
        run = SoundRun(find_decoding_ffmpeg(settings.ffmpeg), chosen, options, ends_s, repr(self))
        reason = reason or f"libav lacks the protocol {opened.path.partition('://')[0]}"
        return ProgramSound(*(run, self._form, repr(self), self._part(options), reason, settings.queue_items))

    def _know(
        self, media: MediaInfo, choose: Callable[[MediaInfo], tuple[MediaInfo.Audio, SampleForm]]
    ) -> None:
        self._media = media
        self._audio, self._form = choose(media)
        self._zero = _first_s(media, self._audio)
        self._zero_place = round(self._zero * self.sample_rate)

    @property
    def stream(self) -> MediaInfo.Audio:
        """The decoded audio stream, as the file describes it."""
        return self._audio

    @property
    def sample_rate(self) -> int:
        """Samples per second of each channel, as they are delivered."""
        return self._form.sample_rate

    @property
    def channels(self) -> int:
        """Number of channels, as they are delivered."""
        return self._form.channels

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """How channels are mixed: an array of delivered channels × the file's channels."""
        return matrix_of(self._audio.channel_layout, self._audio.channels, self._form)

    @property
    def engine(self) -> DecoderEngine:
        """What reads the source, and why: libav, or an FFmpeg program. ``print(audio.engine)``."""
        return self._engine.facts

    def read(self, timeout: float | None = None) -> npt.NDArray[Any] | None:
        """Returns the next block, samples × channels; None at the end.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            DecoderError: if the file is damaged or truncated, or has no audio that can be decoded, or the FFmpeg
                program failed. All audio before was delivered. Or if that program is too old for the audio: 5.1 decodes
                nothing of FLAC with 32 bits, and noise of PCM with 24 or 32 bits in MP4.
            StalledError: if no block came within `timeout` seconds, or a server or the program showed no sign of life
                for ``stall_timeout``. After such a server, nothing more is read.
            ClosedError: if the decoder is closed.
            RuntimeError: if a signal handler reads from the decoder that it interrupted.
        """
        _seconds("timeout", timeout)
        return self._engine.read(timeout)

    @overload
    def windows(
        self, starts_s: Iterable[float], duration_s: float, pad: Literal[True] = True
    ) -> npt.NDArray[Any]: ...
    @overload
    def windows(
        self, starts_s: Iterable[float], duration_s: float, pad: bool
    ) -> npt.NDArray[Any] | list[npt.NDArray[Any]]: ...
    def windows(
        self, starts_s: Iterable[float], duration_s: float, pad: bool = True
    ) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
        """Returns the samples of windows at these times, in this order: windows × samples × channels.

        ```python
        with AudioDecoder("in.mp4", sample_rate=16_000, channels=1) as audio:
            clips = audio.windows([0.5, 12.25, 3.0], 1.0)
            spoken = audio.window(2.0, 0.5)
        ```

        Each window has ``round(duration_s * sample_rate)`` samples, from ``round(start * sample_rate)`` on. They are
        those of ``AudioDecoder(source, start=0).read_all()``: windows begin to decode earlier, until the decoder and
        the resampler are in the same state. The decoders of HE-AAC, AAC with noise substitution, MP2, Speex, AMR, GSM
        and IMA ADPCM in QuickTime depend on everything before, so that windows differ by that noise, or by up to 0.01.
        In a gap without packets, samples are silent.

        Iteration doesn't move, and `start`, `end` and `duration` don't matter. Windows are read in the order of the
        file, so overlapping ones are decoded once. Each other one costs a seek. If the times of a file
        don't tell which sample a packet begins with, as those of TrueHD and raw AC-3, all of the file is decoded up to
        the last window.

        Args:
            starts_s: times in seconds, as for `start`, in any order. A time may be negative.
            duration_s: length of each window in seconds.
            pad: whether windows that reach beyond the audio are filled with silence. Otherwise they are shorter, and
                you get a list of arrays.

        Raises:
            ValueError: if a time isn't finite, if the source is a URL, or if an FFmpeg program reads it.
            DecoderError, ClosedError: as for `read`. A damaged part is an error only for the windows that need it; but
                for all later ones if it's in FLAC in Ogg, or in the first two packets of AAC and other lossy codecs.
        """
        made, parts = self._windows(list(starts_s), duration_s)
        return made if pad else [one[first:last] for one, (first, last) in zip(made, parts, strict=True)]

    def window(self, start_s: float, duration_s: float, pad: bool = True) -> npt.NDArray[Any]:
        """Returns the samples of one window, samples × channels. See `windows`.

        Args:
            start_s: time in seconds, as for `start`. It may be negative.
            duration_s: length in seconds.
            pad: whether to fill a window that reaches beyond the audio with silence. Otherwise it is shorter.

        Raises:
            ValueError, DecoderError, ClosedError: as for `windows`.
        """
        return self.windows([start_s], duration_s, pad)[0]

    def _windows(
        self, starts_s: Sequence[float], duration_s: float
    ) -> tuple[npt.NDArray[Any], list[tuple[int, int]]]:
        check_place("duration_s", duration_s)
        if isinstance(self._engine, ProgramSound) or not endpoints.is_path(self._opened.url):
            raise ValueError(f"windows need a file, but {self._engine.facts.reason}. Use read_all()")
        for start_s in starts_s:
            check_place("starts_s", -start_s if isinstance(start_s, Real) and start_s < 0 else start_s)
        return self._engine.windows(
            [*map(self._place, starts_s)], round(exact(duration_s) * self.sample_rate)
        )

    def _place(self, time_s: float) -> int:
        """How many samples come between the first one of the audio and a time."""
        place = round(exact(time_s) * self.sample_rate) - self._zero_place
        return max(-_MOST_SAMPLES, min(place, _MOST_SAMPLES))

    def _part(self, options: AudioDecodeOptions) -> tuple[int, int | None]:
        """The places of a part, as `SoundEngine` takes them."""
        begin = 0 if options.start is None else self._place(options.start)
        if options.duration is not None:
            return begin, begin + round(exact(options.duration) * self.sample_rate)
        return begin, None if options.end is None else self._place(options.end)

    def close(self) -> None:
        """Closes the file, and ends the FFmpeg program at once if one reads. Delivered blocks stay valid.

        You can call it again, from any thread, and from a signal handler.
        """
        self._engine.close()

    def read_all(self) -> npt.NDArray[Any]:
        """Returns all remaining audio, samples × channels.

        Raises:
            DecoderError, StalledError, ClosedError: as for `read`.
        """
        blocks = list(self)
        return np.concatenate(blocks) if blocks else np.empty((0, self.channels), self._form.dtype)

    def __next__(self) -> npt.NDArray[Any]:
        block = self._engine.read()
        if block is None:
            raise StopIteration
        return block

    async def __anext__(self) -> npt.NDArray[Any]:
        block = await self._engine.read_async()
        if block is None:
            raise StopAsyncIteration
        return block

    def __del__(self) -> None:
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.end_collected()

    def __repr__(self) -> str:
        form = self._form
        return f"<AudioDecoder {self._opened.path!r} {form.sample_rate} Hz, {form.channels} channels of {form.dtype}>"


def _rows(matrix: ArrayLike, channels: int | None) -> tuple[tuple[float, ...], ...]:
    array = np.asarray(matrix, np.float64)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"matrix must be delivered channels × channels of finite numbers, not {matrix!r}")
    if channels is not None and channels != len(array):
        raise ValueError(
            f"{argument('channels', channels)} contradicts the {len(array)} rows of matrix. Leave it out"
        )
    return tuple(map(tuple, array.tolist()))


def _chosen(
    options: AudioDecodeOptions, rows: tuple[tuple[float, ...], ...] | None, media: MediaInfo
) -> tuple[MediaInfo.Audio, SampleForm]:
    """The audio stream to decode, and what is made of it."""
    audio = chosen_audio(media, options.stream)
    return audio, _form_of(audio, options, rows)


def _form_of(
    audio: MediaInfo.Audio, options: AudioDecodeOptions, rows: tuple[tuple[float, ...], ...] | None
) -> SampleForm:
    dtype, rate, number = options.dtype, options.sample_rate, options.channels
    rate = _count("sample_rate", audio.sample_rate if rate is None else rate)
    number = _count("channels", audio.channels if number is None else number)
    if rows is None:
        own = audio.channel_layout or layout_of(audio.channels)
        return SampleForm(rate, number, own if number == audio.channels else layout_of(number), dtype)
    if len(rows[0]) != audio.channels:
        raise ValueError(
            f"matrix must have a column for each of the {audio.channels} channels of the audio, not {len(rows[0])}"
        )
    return SampleForm(rate, len(rows), None, dtype, rows)


def _first_s(media: MediaInfo, audio: MediaInfo.Audio) -> Fraction:
    """The time of the first sample, as `start` counts."""
    if audio.start_s is None or not audio.time_base:
        return Fraction(0)
    return round(Fraction(audio.start_s) / audio.time_base) * audio.time_base - exact_zero(media)


def _check_isolated(opened: Source, options: AudioDecodeOptions) -> None:
    others = {name: value for name, value in options.given_input.items() if name not in opened.decryption}
    if given := only_by_program(options, others):
        raise ValueError(
            f"isolated audio can't be combined with {' and '.join(given)}. Leave one of them out"
        )


def _opened_sound(opened: Source, opening: Callable[[], OpenSound]) -> OpenSound | None:
    """What `opening` returns, on a thread if it waits for a server; None if libav lacks the protocol."""
    if endpoints.is_path(opened.url):
        return opening()
    try:
        return answer_of(opened.path, opening, Deadline(PATIENCE_S))
    except DecoderError as error:
        if not lacks_protocol(error):
            raise
    return None
