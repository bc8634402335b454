"""The sound of an `Encoder`: what it is made from, and FFmpeg's arguments for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from penstock._common.messages import argument
from penstock._encoding import nut
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.arguments import SAMPLES, format_seconds
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import FrameLayout
from penstock._ffmpeg.command.settings import DecoderSettings, check_choice
from penstock._ffmpeg.program.capabilities import audio_encoder
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._ffmpeg.program.messages import framecrc_unit_s, listing_arguments
from penstock._formats import containers
from penstock._native import _count
from penstock._platform.descriptors import zeros
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._facts.info import MediaInfo

InputSampleType = Literal["int16", "int32", "float32"]
SoundEnd = Literal["video", "longest"]

# Options of FFmpeg for sound, besides those with the stream in their names, such as "b:a".
_SOUND_OPTIONS = ("ab", "ac", "acodec", "af", "aq", "ar")
_NOT_FOR_ENCODERS = ("bsf", "disposition", "metadata", "tag")
#: Packets with a gap below this, in seconds, count as contiguous: containers round times to 1 ms or worse.
LEAST_PAUSE_S = Fraction(1, 20)
# FFmpeg's encoders put so many samples before a sound at most (LAME: 576 of the encoder, and 529 of the decoder; AAC
# puts 1,024), and containers without times below 0 move the picture by that.
_MOST_PRIMING = 1105
# What decoders output, and the samples that hold it. Planar formats end with a p.
_DECODED = {"u8": "s16le", "s16": "s16le", "s32": "s32le", "dbl": "f64le"}
# Chosen: more than any sound, and what FFmpeg's numbers hold.
_MOST_HZ, _MOST_CHANNELS = 1 << 24, 1 << 10
# Guessed: reading the first packet of a sound file, and writing a header.
_TRIAL_S = 30.0
# Chosen: a few packets of PCM.
_TRIED_S = 0.1
# Chosen: more than the packet of any form of samples.
_ZEROS_BYTES = 4 << 20
_COPY = "copy"
_CODEC_OPTIONS = ("acodec", "c", "codec")
# FFmpeg's unit of time. Where times may jump, even this ``-itsoffset`` may change where FFmpeg counts from (`_zero`).
_LEAST_OFFSET_S = 1e-6
_SAMPLES_GO = "Pass samples with audio=AudioTrack(48000, 2) and encoder.write_audio(samples)"
# Chosen: hours of most video. FFmpeg's own threshold is 50 MiB.
_WAITING_BYTES = 1 << 30
# A copied packet of Opus or FLAC has no length of its own in NUT. By its edit list, MP4 would end before the last one.
_KNOWN = r"if(eq(NEXT_PTS\,NOPTS)\,PTS-PREV_INPTS\,NEXT_PTS-PTS)"
_LAST_DURATION = rf"setts=pts=PTS:dts=DTS:duration=if(gt(DURATION\,0)\,DURATION\,{_KNOWN})"


@dataclass(frozen=True, slots=True)
class AudioTrack:
    """An audio track of samples that your program makes, for `Encoder.write_audio`.

    Attributes:
        sample_rate: samples per second of each channel, in Hz.
        channels: number of channels: 1 for mono, 2 for left and right, up to 8. FFmpeg uses its usual layout of that
            number (``ffmpeg -layouts``): 6 are front left, front right, center, bass, back left and back right.
        dtype: dtype of the samples. "float32" is between -1 and 1 at full scale, and accepts float64 and float16, too.
            "int16" and "int32" use their full range.
        codec: FFmpeg's name of the encoder (``ffmpeg -encoders``) or of a format: "aac", "opus", "pcm_s16le". None is
            AAC in MP4, QuickTime, 3GP, Matroska, FLV, MPEG-TS, AVI and NUT, Opus in WebM, and elsewhere FFmpeg's
            default for the container. ``acodec`` among the encoder's `options` overrides it.
        language: ISO 639 code of three letters, such as "deu".
        title: name that players show.
        end: "longest" keeps all samples, and players show the last frame until the audio ends. "video" ends the audio
            exactly with the video, with silence if it's shorter. Samples past the picture wait in memory until
            their frames are written.

    Raises:
        ValueError, TypeError: if a value is impossible.
    """

    sample_rate: int
    channels: int
    dtype: InputSampleType = "float32"
    codec: str | None = None
    language: str | None = None
    title: str | None = None
    end: SoundEnd = "longest"

    def __post_init__(self) -> None:
        for value in (self.sample_rate, self.channels):
            if isinstance(value, list | tuple) or np.ndim(value):
                raise TypeError(
                    f"sample_rate and channels must be numbers, not {type(value).__name__}. {_SAMPLES_GO}"
                )
        if (
            _count("sample_rate", self.sample_rate) > _MOST_HZ
            or _count("channels", self.channels) > _MOST_CHANNELS
        ):
            raise ValueError(
                f"sample_rate must be at most {_MOST_HZ} Hz and channels at most {_MOST_CHANNELS}, not "
                f"{self.sample_rate} Hz and {self.channels}"
            )
        check_choice("dtype", self.dtype, get_args(InputSampleType))
        check_choice("end", self.end, get_args(SoundEnd))
        _check_texts(self)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample of all channels."""
        return np.dtype(self.dtype).itemsize * self.channels


@dataclass(frozen=True, slots=True)
class AudioFile:
    """An audio track from a file, for ``Encoder(audio=…)``.

    Attributes:
        path: an audio or video file, or a URL. If it has several audio tracks, the best is used, as for
            `MediaInfo.best_audio`.
        codec: FFmpeg's name of the encoder, or of a format; "copy" copies the audio without encoding it again. None
            copies it if the container accepts it and no option is for its encoder (``{"b:a": "192k"}``), and otherwise
            encodes it as an `AudioTrack` is encoded. PCM samples (WAV) become AAC in MP4.
        language: ISO 639 code of three letters, such as "deu".
        title: name that players show.
        end: "video" ends the audio with the video: exactly if it's encoded, with silence if it's shorter. A copy keeps
            its last packet whole (20 to 100 ms), and isn't extended. "longest" keeps all of the audio.

    Raises:
        ValueError: if `end` is impossible.
    """

    path: str | os.PathLike[str]
    codec: str | None = None
    language: str | None = None
    title: str | None = None
    end: SoundEnd = "video"

    def __post_init__(self) -> None:
        check_choice("end", self.end, get_args(SoundEnd))
        _check_texts(self)


def _check_texts(sound: AudioFile | AudioTrack) -> None:
    for name in ("codec", "language", "title"):
        if not isinstance(value := getattr(sound, name), str | None):
            raise TypeError(f"{name} must be a str or None, not {value!r}")


Audio = str | os.PathLike[str] | AudioFile | AudioTrack


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of an encode.

    Attributes:
        audio: the caller's `AudioFile` or `AudioTrack`.
        input_arguments: FFmpeg's arguments that read it, from its beginning.
        index: the number of the stream in the file that is read.
        packet_codec: the codec of its packets in the NUT stream, by FFmpeg's name: "copy", or PCM.
        encoder: FFmpeg's encoder of the result; None for the container's default.
        holds_priming: whether the container has a place for the packets that an encoder puts before the sound.
        sample_rate: samples per second of each channel of what it is made from.
        channels: their number.
        layout: FFmpeg's name of their layout, where it is not the usual one for their number.
        why_short: returns why the sound seems to be cut off; None if it does not seem so.
        has_some: returns whether libav decodes some of it.
        first_s: the time of the file's first timestamp, as `Decoder`'s ``start`` counts, by FFmpeg.
        zero_s: the time that FFmpeg makes 0 where it reads from the beginning, with ``-itsoffset`` if times may jump.
        may_jump: whether FFmpeg may count from the first stream in use, and not from the file's first timestamp.
        codec: of a copy, by FFmpeg's name; None for others.
        encoded: of a copy, the same sound encoded, for a container that does not take the copy.
        begins_s: when the sound of a file begins.
        container: FFmpeg's names of the file's container.
        holds_pauses: whether the container has times of packets, between which there may be nothing.
    """

    audio: AudioFile | AudioTrack
    input_arguments: tuple[str, ...]
    index: int
    packet_codec: str
    encoder: str | None
    holds_priming: bool
    sample_rate: int
    channels: int
    layout: str | None = None
    why_short: Callable[[], str | None] = lambda: None
    has_some: Callable[[], bool] = lambda: False
    first_s: float = 0.0
    zero_s: float = 0.0
    may_jump: bool = False
    holds_pauses: bool = True
    codec: str | None = None
    encoded: Sound | None = None
    begins_s: float = 0.0
    container: str = ""

    def input_arguments_from(self, start_s: float) -> tuple[str, ...]:
        """FFmpeg's arguments that read it from a time on, which becomes 0."""
        if start_s > self.zero_s:
            return "-ss", format_seconds(start_s - self.first_s), *self.input_arguments
        late_s = max(self.zero_s - start_s, _LEAST_OFFSET_S if self.may_jump else 0.0)
        return (
            ("-itsoffset", format_seconds(late_s), *self.input_arguments) if late_s else self.input_arguments
        )

    @property
    def is_copied(self) -> bool:
        return self.encoder == _COPY


def plan_sounds(
    program: str,
    audio: Audio | Sequence[Audio] | None,
    output: Output,
    options: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Sound, ...]:
    """What `audio`, the argument of the `Encoder`, means for an output.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: a file is not there, or cannot be read.
        DecoderError: a file is no media file, or has no sound.
        EncoderError: FFmpeg has no such encoder.
        ValueError: there are several `AudioTrack`, a file is the output, too, or a sound cannot be copied.
        TypeError: it is no sound.
    """
    if audio is None:
        return ()
    given: list[Any] = list(audio) if isinstance(audio, list | tuple) else [audio]
    for one in given:
        if not isinstance(one, str | os.PathLike | AudioFile | AudioTrack):
            raise TypeError(
                f"audio must be a path, an AudioFile, an AudioTrack or a list of these, not {type(one).__name__}. "
                f"{_SAMPLES_GO}"
            )
    if sum(isinstance(one, AudioTrack) for one in given) > 1:
        raise ValueError("an Encoder can have only one AudioTrack. Use more channels, or a second Encoder")
    return tuple(_plan_sound(program, one, output, options) for one in given)


def _plan_sound(
    program: str,
    one: Audio,
    output: Output,
    options: Mapping[str, object],
) -> Sound:
    audio = one if isinstance(one, AudioFile | AudioTrack) else AudioFile(one)
    if audio.codec not in (None, _COPY):
        audio = replace(audio, codec=audio_encoder(program, audio.codec))
    holds_priming = output.facts.holds_priming
    if isinstance(audio, AudioTrack):
        if audio.codec == _COPY:
            raise ValueError(
                "an AudioTrack can't have codec='copy'. Pass an encoder, such as codec='aac' or codec='pcm_s16le'"
            )
        encoder, rate, channels = audio.codec or _default(output, options), audio.sample_rate, audio.channels
        return Sound(audio, zeros_arguments(audio), 0, _COPY, encoder, holds_priming, rate, channels)
    source = endpoints.source(audio.path)
    if endpoints.is_same_file(source, output.target):
        raise ValueError(
            f"{output.name} is also the output, which would overwrite its audio. Write another file"
        )
    if endpoints.is_path(source) and Path(endpoints.without_protocol(source)).is_fifo():
        raise ValueError(
            f"{endpoints.without_protocol(source)} is a FIFO, but an audio file is read more than once. Use "
            "an AudioTrack, whose samples may come from anywhere"
        )
    # libav, only where a file of sound is read
    from penstock._facts.completeness import has_sound, why_sound_incomplete
    from penstock._facts.info import check_decodable, unusual_layout
    from penstock._facts.probing import probe

    media = probe(audio.path)
    if (stream := media.best_audio) is None:
        raise DecoderError(f"{media.path} has no audio. Leave audio out")
    if stream.is_encrypted:
        raise DecoderError(
            f"the audio of {media.path} is encrypted. Decrypt it with: ffmpeg -decryption_key KEY -i IN OUT"
        )
    source_arguments = (*endpoints.confining_arguments(source, (media.container,)), "-i", source)
    check_decodable(media.path, stream)
    decoded = _DECODED.get((stream.sample_format or "").removesuffix("p"), "f32le")
    sound = Sound(
        audio,
        source_arguments,
        stream.index,
        _COPY,
        _COPY,
        holds_priming,
        stream.sample_rate,
        stream.channels,
        unusual_layout(stream),
        partial(why_sound_incomplete, source, media, stream),
        partial(has_sound, source, media, stream),
        *_zero(program, source_arguments, media, stream),
        begins_s=(stream.start_s or 0.0) - media.zero_s,
        container=media.container,
    )
    are_samples = stream.codec.startswith("pcm_")
    if are_samples and containers.known(media.container).has_boxes and stream.sample_format != "s16":
        _check_program(program, audio.path)
    may_copy = audio.codec == _COPY or (
        audio.codec is None
        and not output.facts.is_list
        and not _asks_to_encode(options)
        and (output.facts.plays_pcm or not are_samples)
    )
    encoded = replace(sound, packet_codec=f"pcm_{decoded}", encoder=audio.codec or _default(output, options))
    if not may_copy:
        return encoded
    holds_pauses = output.facts.times_pcm or not are_samples
    sound = replace(sound, codec=stream.codec, holds_pauses=holds_pauses)
    return replace(
        sound,
        encoded=replace(encoded, encoder=_default(output, options)) if audio.codec == _COPY else encoded,
    )


def _check_program(program: str, path: str | os.PathLike[str]) -> None:
    """Checks that FFmpeg doesn't take PCM for other PCM: 5.1 takes all in MP4 for 16 bits, and encodes noise."""
    from penstock._decoding.audio import AudioDecoder  # only for such files

    with AudioDecoder(path, duration=_TRIED_S, settings=DecoderSettings(ffmpeg=program)) as decoder:
        decoder.read_all()


def zeros_arguments(track: AudioTrack) -> tuple[str, ...]:
    """FFmpeg's arguments that read silence of the track's form."""
    form = ("-f", SAMPLES[track.dtype], "-ar", str(track.sample_rate), "-ac", str(track.channels))
    return *form, "-i", zeros(_ZEROS_BYTES)


def _zero(
    program: str, source_arguments: Sequence[str], media: MediaInfo, stream: MediaInfo.Audio
) -> tuple[float, float, bool]:
    """`Sound.first_s`, `Sound.zero_s` and `Sound.may_jump`.

    In MPEG-TS, MPEG-PS and Ogg, FFmpeg makes the start of the first used stream 0, even if an unused one is earlier:
    5.1 only without ``-itsoffset``, 6.0 and newer always. In Matroska that begins with a sound, FFmpeg before 8 counts
    from the encoder's priming samples, and libav from the sound itself. So we run FFmpeg, and read back the time.
    """
    from av.error import FFmpegError as LibavError  # only where a file of sound is read

    from penstock._facts.opening import first_packet_s, times_may_jump

    first_s = (media.start_s or 0.0) - media.zero_s
    may_jump = times_may_jump(media.container)
    is_later = stream.start_s is not None and stream.start_s > (media.start_s or 0.0)
    is_file = endpoints.identity(source_arguments[-1]) is not None
    is_primed = is_file and containers.known(media.container).has_elements and first_s > 0 and not is_later
    if not (is_primed or (may_jump and is_later)):
        return first_s, first_s, False
    first = ("-map", f"0:{stream.index}", "-c", _COPY, "-frames:a", "1", *listing_arguments())
    # Ignored here: reading the whole file will fail, too, and report it.
    with suppress(ProgramError, DecoderError, LibavError, ValueError, IndexError):
        asked = run((program, "-v", "error", "-itsoffset", "1", *source_arguments, *first), _TRIAL_S)
        lines = bytes(asked.stdout).splitlines()
        [unit_s] = filter(None, map(framecrc_unit_s, lines))
        counted_s = float(int(lines[-1].split(b",")[2]) * unit_s) - 1
        if may_jump:
            return first_s, (stream.start_s or 0.0) - media.zero_s - counted_s, True
        zero_s = first_packet_s(source_arguments[-1], media.container, stream.index) - counted_s
        return zero_s, zero_s, False
    return first_s, first_s, may_jump


def _asks_to_encode(options: Mapping[str, object]) -> bool:
    """Whether options of the `Encoder` are for the encoder of a sound, or change its samples."""
    named = (name.partition(":") for name in options)
    return any(
        option in _SOUND_OPTIONS or (stream.startswith("a") and option not in _NOT_FOR_ENCODERS)
        for option, _, stream in named
    )


def _default(output: Output, options: Mapping[str, object]) -> str | None:
    """The encoder where none is asked for; None leaves it to FFmpeg, or to the user's options."""
    is_given = any(name in _CODEC_OPTIONS or name.startswith(("c:a", "codec:a")) for name in options)
    return None if is_given else output.facts.audio_encoder


def most_priming_s(sample_rates: Iterable[int]) -> float:
    """How late a picture may be because of the priming of sounds with these sample rates; 0 without a sound."""
    return max((_MOST_PRIMING / rate for rate in sample_rates), default=0.0)


def carried(program: str, sounds: Sequence[Sound]) -> tuple[Sound, ...]:
    """`sounds`, encoded where NUT can't hold a copy.

    Raises:
        ValueError: the copy was asked for.
    """
    found = []
    for one in sounds:
        first = ("-map", f"0:{one.index}", "-c", _COPY, *nut.BEGINNING)
        held = one
        if one.is_copied:
            try:
                run((program, "-v", "error", *one.input_arguments, *first), _TRIAL_S)
            except ProgramError:
                held = one.encoded or one
        if held is not one and one.audio.codec == _COPY:
            raise ValueError(
                f"{one.codec} audio can't be copied beside frames, because FFmpeg's container for raw frames can't "
                "hold it. Pass another codec than 'copy', or leave codec out"
            )
        found.append(held)
    return tuple(found)


def packing_arguments(sounds: Sequence[Sound]) -> tuple[str, ...]:
    """FFmpeg's arguments that make packets of sounds that it reads in their order."""
    return tuple(
        word
        for number, sound in enumerate(sounds)
        for word in ("-map", f"{number}:{sound.index}", f"-c:a:{number}", sound.packet_codec)
    )


def nut_stream(
    program: str,
    layout: FrameLayout,
    rate: Fraction | None,
    sounds: Sequence[Sound],
    nominal_fps: Fraction | None,
) -> nut.NutStream | None:
    """What FFmpeg reads; None if that is frames alone, at a constant rate."""
    if not sounds and rate is not None:
        return None
    inputs = tuple(sound.input_arguments for sound in sounds)
    # A file may change.
    is_kept = not any(isinstance(sound.audio, AudioFile) for sound in sounds)
    make = nut.cached_stream if is_kept else nut.make_stream
    return make(program, layout, rate, inputs, packing_arguments(sounds), nominal_fps)


def output_arguments(sounds: Sequence[Sound], options: Mapping[str, object]) -> list[str]:
    """FFmpeg's arguments for the sounds of the result, with the `Encoder`'s options."""
    if not sounds:
        return []
    if "an" in options:
        raise ValueError(
            f"{argument('options.an', None)} leaves the audio out. Leave the argument audio out instead"
        )
    # FFmpeg alone would take one of several sounds.
    arguments = [] if "map" in options else ["-map", "0"]
    # FFmpeg fails if more packets of one stream than 128, and this many bytes, wait for the first packet of another.
    arguments += ["-muxing_queue_data_threshold", str(_WAITING_BYTES)]
    for number, sound in enumerate(sounds):
        if sound.encoder is not None:
            arguments += [f"-c:a:{number}", sound.encoder]
        if sound.is_copied and sound.holds_priming:
            arguments += [f"-bsf:a:{number}", _LAST_DURATION]
        if sound.layout is not None and not sound.is_copied:
            places = "|".join(map(str, range(sound.channels)))
            arguments += [f"-filter:a:{number}", f"channelmap=map={places}:channel_layout={sound.layout}"]
        # Otherwise a file's sound keeps its own disposition, and players may start with the second track.
        arguments += [f"-disposition:a:{number}", "0" if number else "default"]
        for name in ("language", "title"):
            if (value := getattr(sound.audio, name)) is not None:
                arguments += [f"-metadata:s:a:{number}", f"{name}={value}"]
    return arguments


def checked_samples(samples: Any, to: AudioTrack) -> npt.NDArray[Any]:
    """`samples` as a contiguous array of samples × channels.

    Raises:
        ValueError: they have another shape or dtype, or are not finite.
        TypeError: they are no array.
    """
    if hasattr(samples, "filled") and np.ma.is_masked(samples):
        raise ValueError("a masked array has no values where it is masked. Pass samples.filled(0)")
    try:
        array = np.asarray(samples.detach().numpy() if hasattr(samples, "detach") else samples)
    except (TypeError, ValueError) as failure:
        raise TypeError(
            f"samples must be an array of samples × channels, not {type(samples).__name__}"
        ) from failure
    if array.dtype == object or isinstance(samples, bytes | bytearray | str):
        raise TypeError(f"samples must be an array of samples × channels, not {type(samples).__name__}")
    if array.dtype != np.dtype(to.dtype) and not (array.dtype.kind == "f" and to.dtype == "float32"):
        known = "float32" if array.dtype.kind == "f" else array.dtype.name
        or_declared = f", or AudioTrack(..., dtype={known!r})" if known in get_args(InputSampleType) else ""
        raise ValueError(
            f"samples must be {to.dtype}, as the AudioTrack says, not {array.dtype}. Pass converted "
            f"samples{or_declared}"
        )
    if array.ndim == 1 and to.channels == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2 or array.shape[1] != to.channels:
        turned = ". Pass samples.T" if array.ndim == 2 and array.shape[0] == to.channels else ""
        raise ValueError(
            f"samples must have the shape samples × channels, (n, {to.channels}), not {array.shape}{turned}"
        )
    with np.errstate(over="ignore"):  # a float64 that float32 does not hold becomes infinite
        array = np.ascontiguousarray(array, np.dtype(to.dtype).newbyteorder("<"))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("a sample is NaN or infinite, which no codec encodes. Pass np.nan_to_num(samples)")
    return array
