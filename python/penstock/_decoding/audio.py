"""The `AudioDecoder`: an audio or video file in, blocks of samples out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import numpy.typing as npt

from penstock._decoding.session import DecoderBase, DecodeSession, OnDemand, numbered_stream
from penstock._facts.completeness import End, has_sound, why_sound_incomplete
from penstock._facts.info import AudioInfo, MediaInfo, check_decodable, unusual_layout, without_decoder
from penstock._facts.probing import probe
from penstock._facts.seeking import audio_arguments
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import (
    SAMPLES,
    check_without_dashes,
    format_seconds,
    option_arguments,
    read_arguments,
)
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    DecoderSettings,
    check_choice,
    check_place,
    check_settings,
)
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._native import AppliedPolicy, Frame, _count, _seconds
from penstock.errors import DecoderError

# Chosen: samples of each channel in a block, 0.3 s of most sounds. The last block, and the last of silence, may have
# fewer.
_BLOCK_SAMPLES = 1 << 14
# Guessed: the first sample comes so much later than its packet at most. For Vorbis, it is half of a block.
_LATEST_S = 0.1

# What to do if this FFmpeg is too old for a file.
_NEWER = "Pass a newer program in the settings, such as ffmpeg=imageio_ffmpeg.get_ffmpeg_exe()"

SampleType = Literal["uint8", "int16", "int32", "float32", "float64"]


class AudioOptions(TypedDict, total=False):
    """The options of `AudioDecoder`, by the same names."""

    stream: int | None
    sample_rate: int | None
    channels: int | None
    dtype: SampleType
    start: float | None
    duration: float | None
    conceal_errors: bool
    follow_playlists: bool
    input_options: Mapping[str, object] | None
    settings: DecoderSettings


class AudioDecoder(DecoderBase):
    """Reads an audio track as NumPy arrays: blocks of samples × channels, decoded by an FFmpeg program.

    ```python
    with AudioDecoder("in.mp4", sample_rate=16_000, channels=1) as audio:
        samples = audio.read_all()
    ```

    Floating-point samples are between -1 and 1, or beyond if the audio is louder than full scale. Blocks follow each
    other without a gap: if the file has no packets for some time, the gap is left out. A block's memory is recycled
    once you drop the last array on it.

    Args:
        source: the source, as for `Decoder`.
        stream: number of the audio stream, from 0; None picks the best one.
        sample_rate: samples per second to resample to; None is the file's own rate.
        channels: number of channels to mix to; None is the file's own. The file's own number leaves the channels as
            they are.
        dtype: dtype of the samples.
        start: time of the first sample, in seconds as for `Decoder`'s `start`. Earlier samples are dropped. If the
            audio begins later, silence comes first. It's exact to the sample if the file's times are: Matroska and FLV
            store milliseconds, and WMA is up to 0.1 s off. Chained Ogg and joined MPEG-TS restart their times at each
            join; Penstock counts on there, and may be 0.2 s off. None begins with the file's first sample.
        duration: maximum number of seconds to decode; None decodes all.
        conceal_errors: as for `Decoder`.
        follow_playlists: as for `Decoder`.
        input_options: as for `Decoder`.
        settings: as for `Decoder`.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: if the file doesn't exist, or can't be read.
        OSError: if no descriptor, memory, process or thread is left, here or in a later call.
        DecoderError: if the source is no media file, or has no audio; or if FFmpeg isn't found.
        ValueError: if an argument is impossible.
    """

    def __init__(
        self,
        source: MediaSource,
        *,
        stream: int | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        dtype: SampleType = "float32",
        start: float | None = None,
        duration: float | None = None,
        conceal_errors: bool = False,
        follow_playlists: bool = False,
        input_options: Mapping[str, object] | None = None,
        settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
    ) -> None:
        check_settings(settings, DecoderSettings)
        check_without_dashes("input_options", input_options or {})
        program = find_decoding_ffmpeg(settings.ffmpeg)
        check_choice("dtype", dtype, get_args(SampleType))
        check_place("start", start)
        check_place("duration", duration)
        self._opened = Source.of(source, input_options or {})
        self._source = self._opened.url
        with self._opened.closed_after_failure(source):
            self._media = probe(self._opened, follow_playlists=follow_playlists)
            self._audio = _chosen(self._media, stream)
        self.sample_rate = _count(
            "sample_rate", self._audio.sample_rate if sample_rate is None else sample_rate
        )
        self.channels = _count("channels", self._audio.channels if channels is None else channels)
        container, stored = SAMPLES[dtype], np.dtype(dtype).newbyteorder("<")
        self._dtype, self._sample_bytes = stored.str, self.channels * stored.itemsize
        seek, zero_s = audio_arguments(start, self._source, self._media, self._audio)
        filters = self._filters(start, duration, zero_s)
        layout = unusual_layout(self._audio) if self.channels == self._audio.channels else None
        if layout is not None:
            filters.append(f"aformat=channel_layouts={layout}")
        arguments = [
            *seek,
            *(() if settings.threads is None else ("-threads", str(settings.threads))),
            *endpoints.confining_arguments(
                self._source, () if follow_playlists else (self._media.container,)
            ),
            *option_arguments(input_options or {}),
            *read_arguments(self._source, self._media.container),
            *("-map", f"0:{self._audio.index}", "-vn", "-sn", "-dn"),
            *(("-filter:a", ",".join(filters)) if filters else ()),
            *("-ar", str(self.sample_rate)),
            *(("-ac", str(self.channels)) if layout is None else ()),
            # Unbuffered: if FFmpeg fails, all packets that it has made arrive.
            *("-avioflags", "direct", "-c:a", f"pcm_{container}", "-f", container, "pipe:1"),
        ]
        new_session = partial(
            DecodeSession,
            program,
            arguments,
            title=repr(self),
            settings=settings,
            frame_bytes=_BLOCK_SAMPLES * self._sample_bytes,
            is_strict=not conceal_errors,
        )
        self._program = _Blocks(
            self._opened,
            self._media,
            self._audio,
            new_session,
            is_strict=not conceal_errors,
            between_s=self._between_s(start, duration),
        )
        self._lock = threading.Lock()
        self._is_rest_delivered = False

    @property
    def stream(self) -> AudioInfo:
        """The decoded audio stream, as the file describes it."""
        return self._audio

    def read(self, timeout: float | None = None) -> npt.NDArray[Any] | None:
        """Returns the next block, samples × channels; None at the end.

        Raises:
            DecoderError: if the file is damaged or truncated, or FFmpeg failed otherwise. All audio before was
                delivered. Or if FFmpeg is too old for the audio: 5.1 decodes nothing of FLAC with 32 bits, and noise of
                PCM with 24 or 32 bits in MP4.
            StalledError: if no block came within `timeout` seconds, or FFmpeg showed no sign of life for
                ``stall_timeout``.
            ClosedError: if the decoder is closed.
        """
        _seconds("timeout", timeout)
        if (silence := self._silence()) is not None:
            return silence
        try:
            block = self._program.read_frame(timeout)
        except DecoderError:
            if (last := self._last_block()) is None:
                raise
            return last
        return self._last_block() if block is None else self._shaped(block)

    @property
    def pid(self) -> int | None:
        """Process id of FFmpeg; None before the first read has started it."""
        return self._program.pid

    @property
    def ffmpeg_policy(self) -> AppliedPolicy | None:
        """The thread policy of FFmpeg; None if the settings have none, or before FFmpeg has started."""
        return self._program.policy

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or the ``with`` block has ended."""
        return self._program.is_closed

    def close(self) -> None:
        """Ends FFmpeg at once. Delivered blocks stay valid. You can call it again."""
        self._program.close()

    def read_all(self) -> npt.NDArray[Any]:
        """Returns all remaining audio, samples × channels.

        Raises:
            DecoderError, StalledError, ClosedError: as for `read`.
        """
        blocks = list(self)
        return np.concatenate(blocks) if blocks else np.empty((0, self.channels), self._dtype)

    def __next__(self) -> npt.NDArray[Any]:
        block = self.read()
        if block is None:
            raise StopIteration
        return block

    async def __anext__(self) -> npt.NDArray[Any]:
        if (silence := self._silence()) is not None:
            return silence
        try:
            block = await self._program.read_frame_async()
        except DecoderError:
            if (last := self._last_block()) is None:
                raise
            return last
        if block is not None:
            return self._shaped(block)
        if (last := self._last_block()) is None:
            raise StopAsyncIteration
        return last

    def __del__(self) -> None:
        if (program := getattr(self, "_program", None)) is not None:
            program.end_collected()

    def __repr__(self) -> str:
        return f"<AudioDecoder {self._opened.path!r} {self.sample_rate} Hz, {self.channels} channels of {self._dtype}>"

    def _filters(self, start: float | None, duration: float | None, zero_s: float) -> list[str]:
        """FFmpeg's filters for a part of the sound, whose time `zero_s` is their 0. Notes the silence before it."""
        begins_s = self._audio.start_s
        first_s = None if start is None else start + self._media.zero_s
        late_s = 0.0 if first_s is None or begins_s is None else max(0.0, begins_s - first_s)
        if start is None or late_s:
            # FFmpeg before 8 also outputs the priming samples before that time, which are no sound: 21 ms of AAC.
            first_s = begins_s if self._media.container == endpoints.MATROSKA else None
        lead_s = late_s if duration is None else min(late_s, duration)
        # Samples of silence that are still to come.
        self._silent = round(lead_s * self.sample_rate)
        trim = [] if first_s is None else [f"start={format_seconds(first_s - zero_s)}"]
        if duration is not None:
            # It counts from the first sample. To the filter, a duration of less than half a sample is none.
            left_s = duration - self._silent / self.sample_rate
            is_over = round(left_s * self._audio.sample_rate) < 1
            trim.append("end_sample=0" if is_over else f"duration={format_seconds(left_s)}")
            # FFmpeg makes new filters where the sound changes its channels or its rate: that one starts to count again.
            latest_s = (begins_s or 0.0) + _LATEST_S
            ends_s = left_s + (latest_s if first_s is None else max(first_s, latest_s))
            # A sample later, because each time is rounded.
            trim.append(f"end={format_seconds(ends_s - zero_s + 1 / self._audio.sample_rate)}")
        return [f"atrim={one}" for one in trim]

    def _between_s(self, start: float | None, duration: float | None) -> tuple[float | None, float | None]:
        """The part of the file's clock to decode; None for an open end."""
        from_s = None if start is None else start + self._media.zero_s
        begins_s = (self._audio.start_s or 0.0) if from_s is None else from_s
        return from_s, None if duration is None else begins_s + duration

    def _silence(self) -> npt.NDArray[Any] | None:
        """The next block of the silence before the sound; None after its end."""
        if self._program.is_inherited or not self._silent:
            return None
        self._program.check_open()
        with self._lock:
            samples = min(self._silent, _BLOCK_SAMPLES)
            self._silent -= samples
        zero = 128 if self._dtype.endswith("u1") else 0
        return np.full((samples, self.channels), zero, self._dtype) if samples else None

    def _last_block(self) -> npt.NDArray[Any] | None:
        """The last block, which is shorter than the others, once; None if there is none."""
        with self._lock:
            rest = None if self._is_rest_delivered else self._program.session.rest
            self._is_rest_delivered = True
        return None if rest is None or rest.nbytes < self._sample_bytes else self._shaped(rest)

    def _shaped(self, block: Frame) -> npt.NDArray[Any]:
        view = memoryview(block)
        samples = view.nbytes // self._sample_bytes  # an incomplete last one is left out
        return np.frombuffer(view, self._dtype, samples * self.channels).reshape(samples, self.channels)


class _Blocks(OnDemand):
    """The run of FFmpeg that writes blocks of samples."""

    def __init__(
        self,
        opened: Source,
        media: MediaInfo,
        audio: AudioInfo,
        new_session: Callable[[], DecodeSession],
        *,
        is_strict: bool,
        between_s: tuple[float | None, float | None],
    ) -> None:
        super().__init__(opened, opened.url, media, audio.index, is_strict=is_strict)
        self._place, self._between_s, self._new_session = (opened.url, media, audio), between_s, new_session

    def _make_session(self) -> DecodeSession:
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
            reason, run.rest = f"the audio is {own}, which this FFmpeg reads as {programs}", None
        elif frame is None and not run.reader.stats.bytes_read and has_sound(*self._place, *self._between_s):
            reason = f"this FFmpeg decodes nothing of the audio, which is {own}"
        if reason is not None:
            raise run.failure(f"{self._opened.path}: {reason}", run.delivered, _NEWER)

    def _end_of_file(self, run: DecodeSession) -> End:
        is_part = self._between_s[1] is not None
        return End(None if is_part else why_sound_incomplete(*self._place))


def _chosen(media: MediaInfo, stream: int | None) -> AudioInfo:
    if media.best_audio is None:
        raise DecoderError(without_decoder(media, "audio") or f"{media.path} has no audio track")
    audio = media.best_audio if stream is None else numbered_stream(media.path, "audio", media.audio, stream)
    check_decodable(media.path, audio)
    return audio
