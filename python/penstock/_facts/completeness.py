"""Tells whether FFmpeg delivered all frames of a file: by its packets, and by the length in its header."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from av.error import FFmpegError as LibavError

from penstock._common.messages import plural
from penstock._common.shortage import raise_shortage
from penstock._facts.container_bytes import (
    damaged_at,
    ends_in_fragment,
    ends_with_fragment,
    ends_with_last_page,
    segment_of,
    stated_bytes,
)
from penstock._facts.index import (
    NO_TIME,
    PacketTable,
    Unwrapped,
    expected_frames,
    names_frames,
    packets_of,
    read_packets,
    tells_order,
)
from penstock._facts.info import MediaInfo, Track
from penstock._facts.opening import (
    decode,
    demux,
    open_stream,
    times_may_jump,
)
from penstock._ffmpeg.command import endpoints
from penstock._formats import codecs, containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

#: The warning for a file that was cut out of a longer one, such as a recording of a broadcast.
BEGINS_INSIDE = "the file begins in the middle of a GOP, so its first frames may be missing or wrong"
#: What to say of a piped MP4 file of which nothing can be read.
INDEX_IS_LAST = (
    "the file's index seems to be at its end. Save it to a file, or write it with "
    "options={'movflags': '+faststart'}"
)
# Guessed: a file that was cut off lacks more than this share. A whole file may lack less: it was trimmed between two
# frames, or its last frame is shown for long, whose duration Matroska and FLV do not store.
_MISSING_SHARE = 1 / 3
#: Guessed: all packets of a file of this size are read in 0.3 s, a small part of the time that its decode took.
CHEAP_BYTES = 256 << 20
# Guessed: of a larger file, a keyframe is within this time before the end.
_SEEK_BACK_S = 20.0
# Chosen: a URL without audio that ends so much before its header says warns, which is less than an error.
_URL_APART_S = 0.25
_CUT_OFF = "the file is truncated"
# More than one frame, with times that Matroska and FLV round to 1 ms.
_FRAMES_APART = 1.5
# Chosen: more than two packets of any codec.
_SOUND_APART_S = 0.25
# The same where the header counts samples. Chosen: more than the rounding of a time.
_SAMPLES_APART_S = 1e-5


@dataclass(frozen=True, slots=True)
class Delivered:
    """What FFmpeg delivered of a video.

    Attributes:
        frames: number of frames; None if those before a time were left out.
        last_s: time of the last one, by the file's own clock.
        longest_s: longest time between two of them.
    """

    frames: int | None
    last_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class EndOfFile:
    """What shows at the end of a file.

    Attributes:
        reason: why it has more than was delivered; None if it has no more, or if that is unknown.
        warning: what is strange about it, although it is whole; None if nothing is.
    """

    reason: str | None = None
    warning: str | None = None


def other_codecs(media: MediaInfo, index: int) -> set[str]:
    """The codecs of the streams of `media` except that of `index`, for `messages.damage_reports`."""
    streams: tuple[MediaInfo.Video | MediaInfo.Audio, ...] = (*media.video, *media.audio)
    return {one.codec for one in streams} - {one.codec for one in streams if one.index == index}


def begins_inside_group(track: Track) -> bool:
    """Whether a decoder has to wait for a later packet than the first, as in a recording of a broadcast."""
    if endpoints.identity(track.source) is None:
        return False
    place = track.source, track.media.container, track.video.index
    with suppress(DecoderError, LibavError), open_stream(*place) as opened:
        first = next((one for one in demux(*opened) if one.size), None)
        return first is not None and not first.is_keyframe
    return False


def end_of(
    track: Track, delivered: Delivered | None, read: tuple[VideoStream, PacketTable] | None = None
) -> EndOfFile:
    """What shows at the end of a file. `read` is as for `why_incomplete`.

    Args:
        delivered: None if filters have made other frames of it.
    """
    if delivered is None:
        is_cut = containers.known(track.media.container).has_boxes and ends_in_fragment(track.source)
        return EndOfFile(_CUT_OFF if is_cut else None)
    reason = why_incomplete(track, delivered, read)
    return EndOfFile(reason, _strange(track, delivered) if reason is None else None)


def why_incomplete(
    track: Track, delivered: Delivered, read: tuple[VideoStream, PacketTable] | None = None
) -> str | None:
    """Why the file has more of `video` than FFmpeg delivered; None if it has no more, or if that is unknown.

    Args:
        read: the stream, if its file is open, and all of its packets.
    """
    source, media, video = track.source, track.media, track.video
    identity = endpoints.identity(source)
    if video.is_attached_picture:
        return None
    if identity is None:  # a URL, of which nothing more is read
        return read and _early_by_length(*read, track, delivered)
    is_cheap = identity.size_bytes <= CHEAP_BYTES
    try:
        place = source, media.container, video.index
        with (
            open_stream(*place) if read is None else nullcontext((read[0].container, read[0])) as (_, stream)
        ):
            file: Any = stream.container
            if _is_indexed(stream, media.container):
                return _early_by_index(stream, video, identity.size_bytes, delivered)
            if not read and not is_cheap:
                from_s = max(0.0, delivered.last_s - _SEEK_BACK_S)
                file.seek(round(from_s / (stream.time_base or 1)), stream=stream)
            packets = read[1] if read else packets_of(demux(file, stream))
            missing = _missing(stream, packets, track, delivered) if is_cheap else None
            if missing is None and (shown := _shown_by_bytes(source, media, identity.size_bytes)) is not None:
                return shown.reason
            return missing or _early_by_length(stream, packets, track, delivered)
    except (DecoderError, LibavError, OSError) as error:
        raise_shortage(error)
        return None  # the file was readable when the decode began; whether it was whole is now unknown


def _shown_by_bytes(source: str, media: MediaInfo, size_bytes: int) -> EndOfFile | None:
    """What the container's bytes show at the end of a file, and libav doesn't; None if they show nothing."""
    known = containers.known(media.container)
    if known.has_elements and (segment := segment_of(source)) is not None:
        if segment.stop > size_bytes:
            return EndOfFile(_CUT_OFF)
        return EndOfFile(damaged_at(source, segment) if size_bytes <= CHEAP_BYTES else None)
    if known.has_boxes and ends_in_fragment(source):
        return EndOfFile(_CUT_OFF)  # in the audio of a fragment, say, and without the fragments after it
    if known.states_bytes and (stated := stated_bytes(source)) >= size_bytes:
        return EndOfFile(_CUT_OFF if stated > size_bytes else None)
    return None


class SoundEnd:
    """What the packets of a sound show of its end.

    Attributes:
        end: when the latest one ends, in units of the stream's time base; None before the first.
        back: after which time the times go back first; None if they don't.
        position: the byte of the first packet; None if unknown.
        has_bytes: whether any packet has some.
    """

    def __init__(self, position: int | None = None) -> None:
        self.end: int | None = None
        self.back: int | None = None
        self.position = position
        self.has_bytes = False
        self._last: int | None = None

    def take(self, packet: Packet[Any]) -> None:
        """Looks at the next packet."""
        if packet.size:
            self.has_bytes = True
        if self.position is None:
            self.position = packet.pos
        if (pts := packet.pts) is None:
            return
        if self._last is not None and pts < self._last and self.back is None:
            self.back = self._last
        self._last = pts
        ends = pts + (packet.duration or 0)
        if self.end is None or ends > self.end:
            self.end = ends


def why_sound_incomplete(source: str, media: MediaInfo, audio: MediaInfo.Audio) -> str | None:
    """Why the end of the sound `audio` seems to be cut off; None if nothing shows that."""
    is_known = endpoints.identity(source) is not None and media.duration_s is not None
    if not is_known or not containers.known(media.container).tells_sound:
        return None
    read = SoundEnd()
    try:
        with open_stream(source, media.container, audio.index) as (file, stream):
            for packet in demux(file, stream):
                read.take(packet)
            return why_sound_ends_early(source, file, stream, media, audio, read)
    except (DecoderError, LibavError, OSError) as error:
        raise_shortage(error)
    return None


def why_sound_ends_early(
    source: str,
    file: InputContainer,
    stream: AudioStream,
    media: MediaInfo,
    audio: MediaInfo.Audio,
    read: SoundEnd,
) -> str | None:
    """The same of an open file, of which all packets were read."""
    identity = endpoints.identity(source)
    if identity is None:
        return None
    if (shown := _shown_by_bytes(source, media, identity.size_bytes)) is not None:
        return shown.reason
    if containers.known(media.container).has_boxes and (listed := len(stream.index_entries)):
        last = stream.index_entries[listed - 1]
        return _CUT_OFF if last.pos + last.size > identity.size_bytes else None
    if not containers.known(media.container).tells_sound or media.duration_s is None:
        return None
    if read.back is not None:  # FFmpeg 5.1 leaves out frames of FLAC there
        at_s = float(read.back * audio.time_base)
        return f"the times of the audio go back after {at_s:.3f} s, as in a file joined from several"
    own_s = _own_duration_s(stream, media.duration_s)
    if own_s is None or not read.has_bytes:
        return None
    if containers.known(media.container).guesses_sound and _is_guess(own_s, read, audio, identity.size_bytes):
        return None
    ends_s = float((read.end or 0) * audio.time_base)
    apart_s = _SAMPLES_APART_S if containers.known(media.container).counts_samples else _SOUND_APART_S
    if ends_s < own_s - apart_s:
        return f"the audio should last {own_s:.3f} s by its header, but ends at {ends_s:.3f} s"
    return None


def has_sound(
    source: str,
    media: MediaInfo,
    audio: MediaInfo.Audio,
    from_s: float | None = None,
    until_s: float | None = None,
) -> bool:
    """Whether libav decodes some of the sound `audio` between two times of the file's own clock."""
    if endpoints.identity(source) is None:  # it can't be read again
        return from_s is until_s is None and (audio.duration_s or 0.0) > _SOUND_APART_S
    with suppress(DecoderError, LibavError), open_stream(source, media.container, audio.index) as opened:
        for packet in demux(*opened):
            for frame in decode(opened[1], packet):
                begins_s = frame.time or 0.0
                ends_s = begins_s + frame.samples / frame.sample_rate
                if (from_s is None or begins_s >= from_s) and (until_s is None or ends_s <= until_s):
                    return True
    return False


def _is_guess(duration_s: float, read: SoundEnd, audio: MediaInfo.Audio, size_bytes: int) -> bool:
    """Whether libav guessed the duration by the file's size and the bit rate of the first frames.

    That is so of an MP3 file that doesn't count its frames. It may be whole, and shorter.
    """
    bit_rate = audio.bit_rate or 0
    bits = 8 * (size_bytes - (read.position or 0))
    return abs(bits - duration_s * bit_rate) < _SOUND_APART_S * bit_rate


def _is_indexed(stream: VideoStream, container: str) -> bool:
    """Whether an index in the header has all packets (MP4 and QuickTime that are not in fragments)."""
    return containers.known(container).has_boxes and 0 < stream.frames <= len(stream.index_entries)


def _early_by_index(
    stream: VideoStream, video: MediaInfo.Video, size_bytes: int, delivered: Delivered
) -> str | None:
    # Behind the last frame there may be sound, which does not matter.
    has_less = delivered.frames is None or delivered.frames < stream.frames
    if has_less and max(one.pos + one.size for one in stream.index_entries) > size_bytes:
        return _CUT_OFF
    return _too_few(delivered, expected_frames(video.codec, _shown_by_index(stream)))


def _shown_by_index(stream: VideoStream) -> int:
    """How many packets the index has that an edit list does not hide."""
    return sum(one.size > 0 and not one.is_discard for one in stream.index_entries)


def _missing(stream: VideoStream, packets: PacketTable, track: Track, delivered: Delivered) -> str | None:
    video = track.video
    # A reader passes over a packet whose head is damaged. AVI has an index of its own.
    indexed = sum(one.size > 0 for one in stream.index_entries)
    shown = int(packets.is_shown.sum())
    expected = expected_frames(video.codec, max(indexed, shown))
    if expected is None and video.field_order in (None, "progressive") and names_frames(packets, stream):
        expected = shown
    return _too_few(delivered, expected)


def _too_few(delivered: Delivered, expected: int | None) -> str | None:
    if expected is None or delivered.frames is None or delivered.frames >= expected:
        return None
    return f"the video has {expected} frames, but FFmpeg decoded {delivered.frames}"


def _early_by_length(
    stream: VideoStream, packets: PacketTable, track: Track, delivered: Delivered
) -> str | None:
    """Why the video ends before its container says, or has later packets."""
    media, video = track.media, track.video
    frame_s = max(delivered.longest_s, float(1 / video.frame_rate) if video.frame_rate else 0.0)
    if (
        not containers.known(media.container).tells_length
        or not frame_s
        or media.duration_s is None
        or video.duration_s is None
    ):
        return None
    if not _is_early(delivered.last_s, video.duration_s, video.start_s, frame_s):
        return None
    times_s, durations_s = (units * float(video.time_base) for units in (packets.pts, packets.duration))
    ends_s = (times_s + durations_s)[packets.has_pts].max(initial=delivered.last_s)
    own_s = _own_duration_s(stream, media.duration_s)
    # The end of the other streams would have to be read from the server again.
    if own_s is None and not endpoints.is_path(track.source):
        return None
    if own_s is None:
        return _whole_ends_early(stream.container, media.duration_s, media.start_s, delivered, ends_s)
    if not _is_early(delivered.last_s, own_s, video.start_s, frame_s):
        return None
    is_shown = packets.is_shown & packets.has_pts
    # By half a frame, because containers round times.
    if later := int((is_shown & (times_s > delivered.last_s + frame_s / 2)).sum()):
        return f"FFmpeg decoded no frame from the last {plural(later, 'packet')} of the video"
    if not _lacks_a_part(ends_s + frame_s / 2, own_s, video.start_s):
        return None
    if ends_with_fragment(track.source):
        return (
            f"these are the first fragments of a longer file: its header says {own_s:.3f} s, and its last frame is at "
            f"{delivered.last_s:.3f} s. Pass count= to read no further"
        )
    return f"the video should last {own_s:.3f} s by its header, but its last frame is at {delivered.last_s:.3f} s"


def _whole_ends_early(
    file: Any, whole_s: float, start_s: float | None, delivered: Delivered, ends_s: float
) -> str | None:
    """For a container with one duration for all streams: why the file is cut, if all streams end long before it."""
    file.seek(round(max(0.0, delivered.last_s - _SEEK_BACK_S) * av.time_base))
    for packet in demux(file):
        if packet.pts is not None:
            ends_s = max(ends_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    if not _lacks_a_part(ends_s, whole_s, start_s):
        return None
    return f"the file should last {whole_s:.3f} s by its header, but its streams end at {ends_s:.3f} s"


def _lacks_a_part(ends_s: float, duration_s: float, start_s: float | None) -> bool:
    """Whether so much is missing before the end of `duration_s` that the file was cut off."""
    return ends_s + duration_s * _MISSING_SHARE < min(start_s or 0.0, 0.0) + duration_s


def times_go_back(source: str, container: str, index: int, whole: float = math.inf) -> bool:
    """Whether the times of a stream begin again, so that a seek may lead anywhere. Reads MPEG-TS, -PS and Ogg.

    They also do if the packets last for longer than `whole`, in units of the stream's time base.
    """
    identity = endpoints.identity(source)
    if not times_may_jump(container) or identity is None or identity.size_bytes > CHEAP_BYTES:
        return False
    with suppress(DecoderError, LibavError):  # the decoder will say what is wrong
        packets = read_packets(source, container, index)
        times = packets.dts[packets.dts != NO_TIME]
        return bool((np.diff(times) < 0).any() or packets.duration.sum() > whole)
    return False


def shown_times(track: Track) -> Sequence[tuple[int, int]] | None:
    """The times and durations of all frames, in order, by the packets of a regular file; None if they do not tell."""
    source, media, video = track.source, track.media, track.video
    if endpoints.identity(source) is None or video.is_attached_picture:
        return None
    try:
        with open_stream(source, media.container, video.index) as (file, stream):
            packets = packets_of(Unwrapped(stream).all(demux(file, stream)))
            if not (names_frames(packets, stream) and tells_order(packets, stream)):
                return None
    except (DecoderError, LibavError):
        return None
    return sorted(
        zip(packets.pts[packets.is_shown].tolist(), packets.duration[packets.is_shown].tolist(), strict=True)
    )


def known_frames(track: Track) -> int | None:
    """The number of frames that the container claims to show; None if it claims none, or if that is unknown."""
    source, media, video = track.source, track.media, track.video
    if video.is_attached_picture or not containers.known(media.container).has_boxes:
        return None
    if endpoints.identity(source) is not None:
        place = source, media.container, video.index
        with suppress(DecoderError, LibavError, IndexError), open_stream(*place) as (_, stream):
            # Otherwise it is another file by now.
            is_same = stream.frames == video.frames and _is_indexed(stream, media.container)
            if is_same and not _counts_fields(stream, video):
                return _shown_by_index(stream)
    # Half a frame is more than any rounding, and less than one that is hidden.
    return None if _hides_a_part(video, 0.5) else video.frames


def _counts_fields(stream: VideoStream, video: MediaInfo.Video) -> bool:
    """Whether the rate of packets is that of the fields."""
    return video.frame_rate is not None and stream.average_rate == 2 * video.frame_rate


def _hides_a_part(video: MediaInfo.Video, frames: float) -> bool:
    """Whether the container claims more than so many `frames` that it does not show (edit lists)."""
    if video.frames is None or not video.frame_rate or video.duration_s is None:
        return False
    claimed_s = video.frames / video.frame_rate
    return abs(claimed_s - Fraction(video.duration_s)) > Fraction(frames) / video.frame_rate


def _strange(track: Track, delivered: Delivered) -> str | None:
    """What is strange about a file that seems to be whole; None if nothing is."""
    media, known = track.media, containers.known(track.media.container)
    if (wrong_count := _wrong_count(track, delivered)) is not None:
        return wrong_count
    if known.has_pages and (size_bytes := endpoints.file_bytes(track.source)) is not None:
        if ends_with_last_page(track.source, size_bytes):
            return None
        return "the file may be truncated, because its last page isn't marked as the last one"
    if not known.tells_length or endpoints.is_path(track.source) or media.duration_s is None:
        return None
    if media.audio or media.subtitles:  # which may go on after the picture
        is_early, unless = (
            _lacks_a_part(delivered.last_s, media.duration_s, media.start_s),
            "its audio goes on",
        )
    else:
        ends_s = delivered.last_s + _FRAMES_APART * delivered.longest_s
        is_early, unless = ends_s + _URL_APART_S < media.duration_s, "its last frame is shown for so long"
    if not is_early:
        return None
    times = f"its header says {media.duration_s:.3f} s, but its last frame is at {delivered.last_s:.3f} s"
    return f"{times}. Unless {unless}, it was cut"


def _wrong_count(track: Track, delivered: Delivered) -> str | None:
    """How the header's number of frames differs from the delivered one; None if it does not.

    If the container hides a part of the video (edit lists), its number includes that part.
    """
    media, video = track.media, track.video
    claimed = video.frames
    if claimed is None or delivered.frames in (None, claimed) or video.is_attached_picture:
        return None
    if containers.known(media.container).counts_frames:
        missing = claimed - delivered.frames
        most = 1 if media.audio else 0  # FFmpeg writes one more where there is sound
        is_wrong = abs(missing) > most and abs(missing - _empty_chunks(track)) > most
        if is_wrong and (most_bytes := codecs.known(video.codec).not_coded_bytes):
            is_wrong = not 0 < missing <= _empty_chunks(track, most_bytes)
    elif containers.known(media.container).has_boxes:
        is_known = known_frames(track) == delivered.frames
        if is_known and delivered.frames > claimed:
            return (
                f"the header says {claimed} frames, but its edit list shows {delivered.frames}. libav fills the pauses "
                "of an edit list with other frames"
            )
        is_wrong = not (is_known or _hides_a_part(video, _FRAMES_APART))
    else:
        is_wrong = False
    return f"the header says {claimed} frames, but the video has {delivered.frames}" if is_wrong else None


def _empty_chunks(track: Track, most_bytes: int = 0) -> int:
    """How many chunks of an AVI file are empty by its index, or that small, and only prolong the frame before.

    libav leaves them out, but its times count them.
    """
    if endpoints.identity(track.source) is not None:
        place = track.source, track.media.container, track.video.index
        with suppress(DecoderError, LibavError, IndexError), open_stream(*place) as (_, stream):
            entries = stream.index_entries
            empty: int = entries[-1].timestamp + 1 - sum(one.size > most_bytes for one in entries)
            return empty
    return 0


def _is_early(last_s: float, duration_s: float, start_s: float | None, frame_s: float) -> bool:
    """Whether a frame of `frame_s` seconds at `last_s` ends clearly before the end of a video of `duration_s`.

    Some containers count the duration from 0, and some from the first frame: reaching one of the two ends is enough.
    """
    return min(start_s or 0.0, 0.0) + duration_s - last_s > _FRAMES_APART * frame_s


def _own_duration_s(stream: VideoStream | AudioStream, whole_s: float) -> float | None:
    """The container's duration for this stream alone; None if it has only one for several streams."""
    if stream.duration is not None:
        return float(stream.duration * (stream.time_base or 0))
    # FFmpeg and mkvmerge write it to Matroska as a tag: 00:00:02.000000000
    if clock := re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", "")):
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
    return whole_s if len(stream.container.streams) == 1 else None


def why_no_frames(media: MediaInfo, start: float | None) -> str:
    """Why a decode gave no frame."""
    if start is None:
        return "the video stream has no frames"
    length = "" if media.duration_s is None else f", because the file lasts {media.duration_s:.3f} s"
    return f"the video has no frames from {start:g} s on{length}"
