"""An audio stream of a file that libav has open in this process: its frames, and where each of its samples lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._decoding.mixing import Kind, Mixer, SampleForm, first_of
from penstock._decoding.open_video import MOST_THREADS, NO_LENGTH, is_end_of_answer, keep_in_child
from penstock._decoding.session import numbered_stream
from penstock._facts.beginnings import read_beginnings
from penstock._facts.completeness import (
    CHEAP_BYTES,
    SoundEnd,
    why_sound_ends_early,
)
from penstock._facts.container_bytes import first_of_flac, has_damaged_page
from penstock._facts.index import NO_TIME, read_packets
from penstock._facts.info import check_decodable, without_decoder
from penstock._facts.opening import decode, demux, open_media, times_may_jump
from penstock._facts.probing import info_of
from penstock._ffmpeg.command import endpoints
from penstock._formats import codecs, containers
from penstock._formats.containers import Container
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.audio.codeccontext import AudioCodecContext
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet

    from penstock._facts.index import PacketTable
    from penstock._facts.info import AudioInfo, MediaInfo
    from penstock._facts.source import Source
    from penstock._ffmpeg.command.settings import DecoderSettings

# Chosen: more than a packet of any codec. Times that differ by less from what was counted are rounded.
_GAP_S = 0.1
# Chosen: so long a decoder of a lossy codec has decoded before its samples are the same as from the beginning; and one
# that is soon right.
_PREROLL_S, _SHORT_PREROLL_S = 1.0, 0.5
# Chosen: so many frames show how the times of packets are rounded.
_FIRST_FRAMES = 24
# The filter of libav's resampler has 32 taps, at the lower of both rates. Chosen: twice as many.
_LEAD_TAPS = 64
# Measured: a seek in FLAC takes as long as to decode so many packets; in MP4, as one.
_SEEK_STEPS = 6
# In samples: a unit of times that tells about each sample, and by how much such a time may be off.
_EXACT, _SLACK = 1.01, 2.0
# In samples: a unit of times which, rounded, tell each sample, such as that of MPEG-TS.
_FINE = 0.6
_OVER_GAPS = (
    "Bytes are missing, or the file was joined from several. "
    "Pass conceal_errors=True (--conceal-errors) to read on"
)


@dataclass(frozen=True, slots=True)
class SoundInput:
    """Which audio stream of which file is read, and how strictly.

    Attributes:
        opened: the file.
        media, audio: the facts about it, and about the stream.
        is_strict: whether damage is an error.
        threads: how many threads libav uses; None is one.
        stall_timeout: how many seconds a read may wait for a URL; None for any time.
    """

    opened: Source
    media: MediaInfo
    audio: AudioInfo
    is_strict: bool
    threads: int | None
    stall_timeout: float | None

    @property
    def path(self) -> str:
        """The file by its name, for messages."""
        return str(self.opened.path)

    @property
    def container(self) -> Container:
        """What is known of the file's container."""
        return containers.known(self.media.container)


def open_once(opened: Source, stream: int | None, settings: DecoderSettings, *, is_strict: bool) -> OpenSound:
    """Opens a file or a URL, and reads the facts about it and its audio.

    Args:
        stream: number of the audio stream; None for the best one.
        is_strict, settings: as for `SoundInput`.

    Raises:
        DecoderError: libav can't open it, or it has no such audio.
        StalledError: a server does not answer.
    """
    stall_timeout = None if endpoints.is_path(opened.url) else settings.stall_timeout
    container = open_media(
        opened.url, path=opened.path, stall_timeout=stall_timeout, decryption=opened.decryption
    )
    beginnings, packets = read_beginnings(container, with_audio=True)
    media = info_of(opened, container, beginnings)
    audio = chosen_audio(media, stream)
    own: list[Any] = [packet for packet in packets if packet.stream_index == audio.index]
    chosen = SoundInput(opened, media, audio, is_strict, settings.threads, stall_timeout)
    return OpenSound(chosen, container, own)


def chosen_audio(media: MediaInfo, stream: int | None) -> AudioInfo:
    """The audio stream to decode."""
    if media.best_audio is None:
        raise DecoderError(without_decoder(media, "audio") or f"{media.path} has no audio track")
    audio = media.best_audio if stream is None else numbered_stream(media.path, "audio", media.audio, stream)
    check_decodable(media.path, audio)
    return audio


class OpenSound:
    """An audio stream of an open file, with a decoder.

    Args:
        chosen: what is read.
        container: the file, if it is open already.
        ahead: packets of the stream that were read from it.

    Attributes:
        chosen: what is read.
        warning: what is to be said of its end; None if that is nothing.
        unit_samples: how many samples the unit of the stream's times lasts; 0 if its times are wrong.
        is_strict: whether damage is an error.
        end: what the packets that were read show of the end.
        packet: the last one with a time that was read; None before the first.
    """

    container: InputContainer
    codec: AudioCodecContext
    warning: str | None = None
    packet: Packet[AudioStream] | None = None
    _page: int | None = None  # where the page, or packet, before that of the last packet begins
    _reading: object = None  # which run of `frames` may go on

    def __init__(
        self,
        chosen: SoundInput,
        container: InputContainer | None = None,
        ahead: Iterable[Packet[AudioStream]] = (),
    ) -> None:
        keep_in_child(self)
        self.chosen, self.is_strict = chosen, chosen.is_strict
        self._is_file = endpoints.is_path(chosen.opened.url)
        self._begin(container, ahead)

    def _begin(
        self, container: InputContainer | None = None, ahead: Iterable[Packet[AudioStream]] = ()
    ) -> None:
        chosen = self.chosen
        self.container = container or open_media(
            chosen.opened.url,
            (chosen.media.container,),
            path=chosen.path,
            stall_timeout=chosen.stall_timeout,
            decryption=chosen.opened.decryption,
        )
        self._ahead = ahead
        streams: Any = self.container.streams
        if len(streams) <= chosen.audio.index:
            raise DecoderError(f"{chosen.path} has changed: it has no stream {chosen.audio.index}")
        self._stream: AudioStream = streams[chosen.audio.index]
        self.codec = self._stream.codec_context
        self.codec.thread_type = ThreadType.NONE if chosen.threads is None else ThreadType.FRAME
        self.codec.thread_count = min(chosen.threads or 1, MOST_THREADS)
        options = {"cons_noisegen": "1"} if codecs.known(self.codec.name).adds_noise else {}
        if chosen.is_strict:
            # Lossy codecs have checksums of heads at most, which some encoders write wrong.
            options["err_detect"] = "crccheck+explode" if self.is_lossless else "explode"
        self.codec.options = options
        self.end, self.packet, self._page = SoundEnd(), None, None
        self._given = self._has_sought = False
        self.unit_samples = float((self._stream.time_base or 0) * chosen.audio.sample_rate)
        if self.codec.name in chosen.container.mistimed:
            self.unit_samples = 0.0

    @property
    def length(self) -> int | None:
        """How many samples there are by MP4 and QuickTime, whose last packet may have more; None if none says so."""
        duration, unit = self._stream.duration, self.unit_samples
        return round(duration * unit) if duration and self.chosen.container.has_boxes else None

    @property
    def is_lossless(self) -> bool:
        """Whether the codec can be lossless. Its packets have checksums then."""
        return bool(self.codec.codec.lossless)

    @property
    def needs_none(self) -> bool:
        """Whether each packet, or each keyframe, can be decoded without those before. DTS may be lossy, and can't."""
        return self.is_lossless and not self.codec.codec.lossy

    @property
    def needs_only_last(self) -> bool:
        """Whether the samples of a packet depend on the one before it, and on no other.

        The decoder tells its profile once it has read packets.
        """
        profile = codecs.known(self.codec.name).alone_profile
        return profile is not None and self.codec.profile == profile

    @property
    def least_samples(self) -> int:
        """The number of samples that each packet has a multiple of, if the codec says that; else 0."""
        header = self.codec.extradata or b""
        at = header.find(b"\x01vorbis")
        # The exponents of the sizes of short and long blocks (Vorbis I, 4.2.2).
        return (1 << (header[at + 28] & 15)) // 4 if at >= 0 and len(header) > at + 28 else 0

    def frames(self) -> Iterator[AudioFrame]:
        """The frames from here on.

        Raises:
            DecoderError: the next one is damaged or missing.
        """
        chosen = self.chosen
        try:
            packets = self._packets()
            for packet in packets:
                if packet is not None:
                    self.end.take(packet)
                    if packet.is_corrupt and self._has_no_length():
                        packet.is_corrupt = False  # the last one is only shorter
                    if packet.is_corrupt and self.is_strict:
                        next(packets, None)  # raises if a server has stopped in the middle of the packet
                        self._fail("a part of it is missing")
                    if not packet.size:
                        continue
                try:
                    frames = decode(self.codec, packet)
                except LibavError as error:
                    if self.is_strict:
                        self._fail(error.strerror or "")
                    continue
                except EOFError:
                    return
                for frame in frames:
                    self._given = True
                    if frame.is_corrupt and self.is_strict:
                        self._fail("a part of it is missing")
                    yield frame
        except LibavError as error:
            if is_end_of_answer(self.container, chosen.opened.url, error):
                self.warning = NO_LENGTH
            elif self.is_strict:
                self._fail(error.strerror or "")
        if not self._has_sought and not self._given and (self.end.has_bytes or chosen.audio.duration_s):
            raise DecoderError(
                f"{chosen.path}: no audio could be decoded, which should be {chosen.audio.codec}"
            )
        if self.is_strict:
            self.check_end()

    @property
    def dropped(self) -> int:
        """How many samples libav drops at the beginning of the last packet's frame."""
        if self.packet is None or not self.packet.has_sidedata("skip_samples"):
            return 0
        return int.from_bytes(bytes(self.packet.get_sidedata("skip_samples"))[:4], "little")

    def _has_no_length(self) -> bool:
        """Whether the file is a WAV whose writer couldn't go back to write the length, as into a pipe."""
        if not (self.chosen.container.may_lack_length and self._is_file):
            return False
        with Path(endpoints.without_protocol(self.chosen.opened.url)).open("rb") as file:
            return file.read(8) in (b"RIFF" + bytes(4), b"RIFF" + b"\xff" * 4)

    def _packets(self) -> Iterator[Packet[AudioStream] | None]:
        """The packets from here on, and None for the end. There are no more after a seek, or once it is closed."""
        self._reading = reading = object()
        shows_jumps = self.chosen.container.drops_damage and self._is_file
        packets, self._ahead = chain(self._ahead, demux(self.container, self._stream)), ()
        while self._reading is reading:
            packet = next(packets, None)
            if shows_jumps and self.is_strict:
                self._check_jump(packet)
            if packet is not None and packet.pts is not None:
                if shows_jumps and self.packet is not None and self.packet.pos != packet.pos:
                    self._page = self.packet.pos
                self.packet = packet
            yield packet
            if packet is None:
                return

    def _check_jump(self, packet: Packet[AudioStream] | None) -> None:
        """Checks a packet, or the end for None, before which a part may be missing: libav leaves out damaged ones."""
        last = self.packet
        if last is None and self._has_sought:
            return
        due = 0 if last is None else (last.pts or 0) + (last.duration or 0)
        if packet is not None and (packet.pts is None or packet.pts <= due):
            return
        path = endpoints.without_protocol(self.chosen.opened.url)
        if self.chosen.container.has_pages:
            is_damaged = has_damaged_page(path, self._page or 0, None if packet is None else packet.pos)
        elif last is None:  # a file that was cut off another one begins later
            is_damaged = packet is not None and packet.pts != first_of_flac(path)
        else:
            is_damaged = packet is not None  # the times of FLAC count its samples
        if is_damaged:
            self._fail(f"a part is missing after {float(due * self.chosen.audio.time_base):.3f} s")

    def check_end(self) -> None:
        """Checks that the end of the file, to which its packets were read, is that of the audio."""
        chosen = self.chosen
        given = chosen.opened.url, self.container, self._stream, chosen.media, chosen.audio, self.end
        if (why := why_sound_ends_early(*given)) is not None:
            raise DecoderError(f"{chosen.path}: {why}")

    def _fail(self, why: str) -> None:
        if not self._is_file:
            # A server may have stopped in the middle of a packet, which libav gives. Then it tells of it.
            with suppress(LibavError):
                next(demux(self.container, self._stream), None)
        raise DecoderError(f"{self.chosen.path}: the audio is damaged: {why}", advice=_OVER_GAPS)

    def seek(self, pts: int) -> bool:
        """Goes to a packet at or before this time, or so libav believes. False if it can't."""
        self._reading = None  # PyAV would crash, or give packets of two places
        if self.codec.is_open and codecs.known(self.codec.name).adds_noise:
            self.rewind()  # to flush libav's decoder of AC-3 would reset that option
        try:
            self.container.seek(pts, stream=self._stream)
        except (LibavError, OverflowError):
            return False
        self.codec.flush_buffers()
        self._ahead = ()
        self.end, self.packet, self._page, self._has_sought = SoundEnd(self.end.position), None, None, True
        return True

    def rewind(self) -> None:
        """Opens the file again: not every container can go back to its beginning."""
        self._reading = None
        self.container.close()
        self._begin()

    def close(self) -> None:
        """Closes the file."""
        self._reading = None
        self.container.close()
        # libav's threads end with the last reference to the codec.
        del self.codec, self._stream


class Placed(NamedTuple):
    """Samples, and the place of the first one: how many come before it, from the first one of the audio on."""

    at: int
    samples: npt.NDArray[Any]

    @property
    def end(self) -> int:
        """The place behind the last one."""
        return self.at + len(self.samples)


@dataclass(frozen=True, slots=True)
class _Grid:
    """How the times of frames tell with which sample each begins.

    Attributes:
        unit: how many samples the unit of the times lasts.
        zero: the time of the first sample, in samples.
        first: samples of the first frame, of which libav may have dropped some.
        step: each later frame begins a multiple of so many samples after that.
        is_exact: each frame tells its first sample.
    """

    unit: float
    zero: float
    first: int
    step: int
    is_exact: bool

    @classmethod
    def of(cls, frames: Sequence[AudioFrame], sound: OpenSound) -> _Grid | None:
        """That of the first frames of an audio; None if they don't tell."""
        unit, sizes = sound.unit_samples, [frame.samples for frame in frames]
        begins = _begins(frames, unit)
        if len(frames) < _FIRST_FRAMES or None in begins or not unit:
            return None
        known = [one for one in begins[1:] if one is not None]
        if max(known) - min(known) > 2 * unit:
            return None
        step = math.gcd(*sizes[1:], sound.least_samples)
        # mkvmerge's unit is that of one sample, in whole nanoseconds. Only packets of PCM may begin anywhere.
        is_exact = sound.codec.name.startswith("pcm_") and (unit == 1 or unit < _FINE)
        return cls(unit, _middle(known), sizes[0], step, is_exact) if is_exact or step >= unit else None

    def sample(self, frames: Sequence[AudioFrame]) -> int | None:
        """The number of the sample with which these frames begin; None if they don't tell."""
        begins = _begins(frames, self.unit)
        known = [one for one in begins if one is not None]
        if len(known) < len(frames):
            return None
        guess = _middle(known) - self.zero
        if self.is_exact:
            return round(guess)
        nearest = self.first + round((guess - self.first) / self.step) * self.step
        slack = _SLACK if self.unit <= _EXACT else min(self.unit, self.step / 4)
        return nearest if abs(guess - nearest) <= slack else None


def _begins(frames: Iterable[AudioFrame], unit: float) -> list[float | None]:
    """When the first of these frames begins by the time of each, in samples; None for a frame without a time."""
    begins, count = list[float | None](), 0
    for frame in frames:
        begins.append(None if frame.pts is None else frame.pts * unit - count)
        count += frame.samples
    return begins


def _middle(numbers: Sequence[float]) -> float:
    return (max(numbers) + min(numbers)) / 2


class PlacedSound:
    """The samples of an audio stream in the form in which they are delivered, from any place on.

    A place counts samples at the delivered rate. It grows by a pause that the file's times have. Where they go back,
    as where files were joined, it goes on.

    Attributes:
        due: the samples before this place are wanted together, so that they may come late, in one block.
    """

    due = 0

    def __init__(self, sound: OpenSound, form: SampleForm) -> None:
        self._chosen, self._form = sound.chosen, form
        self._own, self._rate = sound.chosen.audio.sample_rate, form.sample_rate
        self._sound, self._is_used = sound, False
        # After so many samples, libav's resampler is in the state in which it began.
        self._period = self._own // math.gcd(self._own, self._rate)
        self._lead = 0
        if self._own != self._rate:
            self._lead = math.ceil(_LEAD_TAPS * max(1.0, self._own / self._rate))
        preroll_s = _SHORT_PREROLL_S if codecs.known(sound.chosen.audio.codec).is_soon_right else _PREROLL_S
        self._preroll = 0 if self._sound.needs_none else round(preroll_s * self._own)

    @property
    def warning(self) -> str | None:
        """What is to be said of the end; None if that is nothing."""
        return self._sound.warning

    @property
    def nearby(self) -> float:
        """To a place that is not further ahead, decoding on is quicker than a seek."""
        grid = self._grid
        return (self._preroll + _SEEK_STEPS * grid.step) * self._rate / self._own if grid else math.inf

    def blocks(self, begin: int) -> Iterator[Placed]:
        """The samples from a place on.

        Raises:
            DecoderError: what follows is damaged or missing.
        """
        for block in self._blocks(begin):
            if block.at >= begin:
                yield block
            elif block.end > begin:
                yield Placed(begin, block.samples[begin - block.at :])

    def _blocks(self, begin: int) -> Iterator[Placed]:
        at, skipped, frames = self._begun(begin)
        place = (at + skipped) * self._rate // self._own
        mixer: Mixer | None = None
        held: list[AudioFrame | None] = []
        count = -skipped
        pieces = self._cut(frames, at)
        failure: DecoderError | StalledError | None = None
        while True:
            pause, frame = 0, cast("AudioFrame | None", None)
            try:
                pause, frame = next(pieces, (0, None))
            except (DecoderError, StalledError) as error:
                failure = error  # what was decoded before is delivered
            if mixer is not None and (frame is None or pause or not mixer.kind.is_of(frame)):
                for samples in mixer.push([*held, None] if failure is None else held):
                    yield Placed(place, samples)
                    place += len(samples)
                held, count, mixer = [], 0, None
            if failure is not None:
                raise failure
            if frame is None:
                return
            if mixer is None:
                mixer, skipped = self._mixer(Kind.of(frame), skipped), 0
                place += round(pause * self._rate / self._own)
            held.append(frame)
            count += frame.samples
            if place + count * self._rate // self._own < self.due:
                continue
            for samples in mixer.push(held):
                yield Placed(place, samples)
                place += len(samples)
            held, count = [], 0

    def _cut(self, frames: Iterator[AudioFrame], at: int) -> Iterator[tuple[int, AudioFrame]]:
        """The frames, and how many samples are missing before each. The last one ends where the container says.

        libav before 9 leaves the padding at the end.
        """
        length = self._sound.length
        # Without times, there are no pauses.
        unit = self._sound.unit_samples if self._chosen.container.times_sound else 0.0
        counter = _Counter(self._sound, self._own, unit, is_even=at > 0)
        for frame in frames:
            pause = counter.pause_before(frame)
            at += pause
            missing = frame.samples if length is None else length - at - counter.overlap
            at += frame.samples
            if 0 < missing < frame.samples:
                following = next(frames, None)
                if following is not None:  # the container is wrong
                    length = None
                    yield pause, frame
                    at += following.samples
                    pause, frame = counter.pause_before(following), following
                else:
                    frame = first_of(frame, missing)
            yield pause, frame

    def _mixer(self, kind: Kind, skipped: int) -> Mixer:
        try:
            return Mixer(kind, self._form, skipped, self._layout_of(kind))
        except ValueError as error:
            raise DecoderError(f"{self._chosen.path}: the audio can't be mixed: {error}") from error

    def _layout_of(self, _: Kind) -> str | None:
        """The layout of frames that don't tell it; None if they do."""
        return None

    def _begun(self, begin: int) -> tuple[int, int, Iterator[AudioFrame]]:
        """The number of the first sample of some frames, how many of these to skip, and the frames."""
        wanted = max(0, begin * self._own // self._rate - self._lead) // self._period * self._period
        if wanted > 2 * self._preroll + self._own and (found := self._sought(wanted)) is not None:
            return found
        if self._is_used:
            self._sound.rewind()
        self._is_used = True
        return 0, 0, self._sound.frames()

    @cached_property
    def _listed(self) -> PacketTable | None:
        """All packets where libav guesses times behind a seek, as in Ogg; None elsewhere, and of a large file."""
        chosen = self._chosen
        container, identity = chosen.media.container, endpoints.identity(chosen.opened.url)
        if not times_may_jump(container) or identity is None or identity.size_bytes > CHEAP_BYTES:
            return None
        return read_packets(chosen.opened.url, container, chosen.audio.index)

    @property
    def _has_jumps(self) -> bool:
        """Whether a seek may lead anywhere, because times begin again."""
        chosen = self._chosen
        if (listed := self._listed) is None:
            may_jump = times_may_jump(chosen.media.container) and not endpoints.is_path(chosen.opened.url)
            return chosen.container.has_pages or may_jump
        times = listed.dts[listed.dts != NO_TIME]
        # libav may let the times of chained Ogg go on. The file's duration is that of its last part all the same.
        whole_s = (self._chosen.media.duration_s or 0.0) + _GAP_S
        lasts_s = float(listed.duration.sum() * self._chosen.audio.time_base)
        return bool((np.diff(times) < 0).any() or lasts_s > whole_s)

    @cached_property
    def _grid(self) -> _Grid | None:
        """How times tell samples; None if they don't, or if a seek may lead anywhere."""
        if self._has_jumps:
            return None
        _, _, frames = self._begun(0)
        with suppress(DecoderError):
            grid = _Grid.of([*islice(frames, _FIRST_FRAMES)], self._sound)
            if grid is not None and self._sound.needs_only_last:
                self._preroll = min(self._preroll, 2 * grid.step)  # `_sought` needs half of it
            return grid
        return None

    def _sought(self, wanted: int) -> tuple[int, int, Iterator[AudioFrame]] | None:
        """`_begun` by a seek to some time before a sample; None if that doesn't lead there for sure."""
        if (grid := self._grid) is None:
            return None
        self._is_used = True
        is_close = grid.unit <= _EXACT and (self._sound.needs_only_last or self._sound.needs_none)
        slacks = (0, 2 * grid.step) if is_close else (2 * grid.step,)
        return next(filter(None, (self._sought_before(wanted, slack, grid) for slack in slacks)), None)

    def _sought_before(
        self, wanted: int, slack: int, grid: _Grid
    ) -> tuple[int, int, Iterator[AudioFrame]] | None:
        target = wanted - self._preroll - slack
        if not self._sound.seek(math.floor((target + grid.zero) / grid.unit)):
            return None
        frames = self._sound.frames()
        try:
            self._sound.is_strict = False  # the first packets need those before
            ahead = self._decoded_to(wanted, frames, grid)
        finally:
            self._sound.is_strict = self._chosen.is_strict
        at = grid.sample(ahead) if ahead and self._is_listed else None
        if at is None or at > wanted - self._preroll // 2:
            return None
        while ahead and at + ahead[0].samples <= wanted:
            at += ahead.pop(0).samples
        return at, wanted - at, chain(ahead, frames)

    @property
    def _is_listed(self) -> bool:
        """Whether the last packet has the time that it has when the file is read from its beginning."""
        listed, packet = self._listed, self._sound.packet
        return listed is None or (packet is not None and listed.find(cast("Any", packet)) is not None)

    def _decoded_to(self, wanted: int, frames: Iterator[AudioFrame], grid: _Grid) -> list[AudioFrame]:
        """Frames that follow each other, up to a sample or to the end; none if they don't tell."""
        ahead: list[AudioFrame] = []
        began, count = 0.0, 0
        for frame in frames:
            if frame.pts is None or frame.sample_rate != self._own:
                return []
            time = frame.pts * grid.unit
            if not ahead or abs(time - count - began) > 2 * grid.unit + _SLACK:  # one is missing in between
                ahead.clear()
                began, count = time, 0
            ahead.append(frame)
            count += frame.samples
            if began + count - grid.zero > wanted + grid.unit:
                return ahead
        if self._chosen.is_strict:
            self._sound.check_end()
        return ahead

    def close(self) -> None:
        """Closes the file."""
        self._sound.close()


class _Counter:
    """Tells pauses, by the times of frames.

    If the times of the first frames are even, a pause may be as short as a lost packet: `_Grid` tells that, too.

    Attributes:
        overlap: by how many samples the last frame begins before the end of those before, as a negative number.

    Args:
        sound: what the frames are read from.
        own: samples a second.
        unit: how many samples the unit of the times lasts.
        is_even: the times of frames before were even.
    """

    def __init__(self, sound: OpenSound, own: int, unit: float, *, is_even: bool = False) -> None:
        self._sound, self._own, self._unit, self._most = sound, own, unit, max(_GAP_S * own, 2 * unit)
        self.overlap = 0
        self._count = 0.0
        self._began: float | None = None  # the time of the first sample, if there had been no pause
        # How many more frames show whether their times are even.
        self._unsure: float = 0 if is_even else _FIRST_FRAMES
        self._least = math.inf  # samples in the shortest frame
        self._due = math.nan  # when the next frame begins if there is no pause, in samples; NaN if unknown

    def pause_before(self, frame: AudioFrame) -> int:
        """How many samples are missing between the frame before and this one."""
        pts, samples = frame.pts, frame.samples
        if pts == self._due and samples == self._least and frame.sample_rate == self._own:
            self._due += samples  # as for nearly all: what follows would take longer than to decode
            self._count += samples
            return 0
        count, self._count, self._due = (
            self._count,
            self._count + samples * self._own / frame.sample_rate,
            math.nan,
        )
        self._least = min(self._least, samples)
        if pts is None:
            return 0
        began = pts * self._unit - count
        late = 0.0 if self._began is None else began - self._began
        self.overlap = round(min(0.0, late)) if self._unit <= _EXACT else 0
        most = self._most if self._unsure else min(self._most, max(self._least / 2, 2 * self._unit + _SLACK))
        if self._unsure == _FIRST_FRAMES - 1 and abs(late) <= self._most:
            self._began, late = began, 0.0  # libav may have dropped samples of the first frame
        if self._unsure:
            self._unsure = self._unsure - 1 if abs(late) <= 2 * self._unit else math.inf
        if self._began is None or late < -self._most:
            self._began = began
        if late <= most:
            self._due = pts + samples if self._unit == 1 and not self._unsure else math.nan
            return 0
        packets = round(late / self._least)
        if abs(late - packets * self._least) <= max(self._unit, _SLACK):
            late = packets * self._least
        self._began += late
        # In Ogg, the samples that libav drops where another file begins are no pause.
        return max(0, round(late) - self._sound.dropped)
