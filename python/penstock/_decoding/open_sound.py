"""An audio stream of a file that libav has open in this process: its frames, and where each of its samples lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._decoding.open_video import MOST_THREADS, NO_LENGTH, is_end_of_answer, keep_in_child
from penstock._decoding.session import numbered_stream
from penstock._facts.beginnings import read_beginnings
from penstock._facts.completeness import SoundEnd, why_sound_ends_early
from penstock._facts.container_bytes import first_of_flac, has_damaged_page, skips_page
from penstock._facts.info import check_decodable, without_decoder
from penstock._facts.opening import decode, demux, open_media
from penstock._facts.probing import info_of
from penstock._ffmpeg.command import endpoints
from penstock._formats import codecs, containers
from penstock._formats.containers import Container
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet

    from penstock._facts.info import MediaInfo
    from penstock._facts.source import Source
    from penstock._ffmpeg.command.settings import DecoderSettings

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
    audio: MediaInfo.Audio
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


def chosen_audio(media: MediaInfo, stream: int | None) -> MediaInfo.Audio:
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
        has_lost: samples are missing before the next frame, because a packet could not be decoded.
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
        self._given = self._has_sought = self.has_lost = False
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
                    if packet.is_corrupt:
                        if self._has_no_length():
                            packet.is_corrupt = False  # the last one is only shorter
                        elif self.is_strict:
                            next(packets, None)  # raises if a server has stopped in the middle of the packet
                            self._fail("a part of it is missing")
                    if not packet.size:
                        continue
                try:
                    frames = decode(self.codec, packet)
                except LibavError as error:
                    if self.is_strict:
                        self._fail(error.strerror or "")
                    self.has_lost = True
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
        known = self.chosen.container
        shows_jumps = known.drops_damage and self._is_file
        packets, self._ahead = chain(self._ahead, demux(self.container, self._stream)), ()
        while self._reading is reading:
            packet = next(packets, None)
            # Without these, times may be wrong, also of what comes later.
            is_needed = self.chosen.is_strict and (known.has_pages or self.packet is None)
            if shows_jumps and (self.is_strict or is_needed):
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
        due, last_pos = (0, None) if last is None else ((last.pts or 0) + (last.duration or 0), last.pos)
        path = endpoints.without_protocol(self.chosen.opened.url)
        # Behind a damaged page of FLAC, libav counts on until a page tells the time of its end.
        if (
            packet is not None
            and (packet.pts is None or packet.pts <= due)
            and not (self.chosen.container.has_pages and skips_page(path, last_pos, packet.pos))
        ):
            return
        if self.chosen.container.has_pages:
            begin = self._page or (last_pos if self._has_sought else None) or 0
            is_damaged = has_damaged_page(path, begin, None if packet is None else packet.pos)
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
        self._ahead, self.has_lost = (), False
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
