"""Opens files and URLs with libav (PyAV), as confined as the FFmpeg program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import av
from av.codec.context import Flags as CodecFlags
from av.error import ExitError, ProtocolNotFoundError
from av.error import FFmpegError as LibavError
from av.format import ContainerFormat, Flags

from penstock._common.shortage import raise_shortage
from penstock._facts.container_bytes import MOST_BOXES, boxes, is_segment
from penstock._facts.single_pass import SinglePassSource
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program import messages
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._ffmpeg.program.child import ProgramError, run
from penstock._ffmpeg.program.process import is_unfinished
from penstock._formats.containers import LEADING_ELSEWHERE, known
from penstock._formats.pixel_formats import PLAYABLE
from penstock._platform.paths import shell_word
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    from av.container import InputContainer

T = TypeVar("T")

# PyAV sets it, and libav then makes wrong times of H.264 in AVI (AVFMT_FLAG_GENPTS in libavformat/avformat.h).
_GEN_PTS = 0x0001
# PyAV 18 raises for tags that are no UTF-8, if it is not told to do what PyAV 19 does always.
_ANY_TAGS: dict[str, Any] = {"metadata_errors": "surrogateescape"} if av.__version__.startswith("18.") else {}
#: Without that, libav keeps some columns that the codec hides at the left, so that memory is aligned.
EXACT_CROP = CodecFlags.unaligned
# The demuxer that takes every text file named *.txt for a recording of a terminal, and draws it.
_TEXT_CONTAINER = "tty"
# FFmpeg's message about a container outside of -format_whitelist.
_NOT_ALLOWED = "Format not on whitelist"
# FFmpeg's message about an input that it could open.
_OPENED = "At least one output file must be specified"
# Chosen: of longer videos, where a frame less that is decoded doesn't matter, the index is not read here.
_MOST_INDEX_BYTES = 1 << 20
# An MP4 file's boxes of H.264, and of when the frames are shown (ISO/IEC 14496-15, 5.4.2; 14496-12, 8.6.1.3).
_AVC, _ORDER = b"avc1", b"ctts"
# Guessed: FFmpeg says within this time why it cannot open a file.
_WORDS_PATIENCE_S = 10.0


def open_media(
    source: str,
    containers: Iterable[str] = (),
    *,
    single_pass: SinglePassSource | None = None,
    path: str | None = None,
    follow_playlists: bool = False,
    stall_timeout: float | None = None,
    decryption: Mapping[str, str] | None = None,
    decodes_first: bool = False,
) -> InputContainer:
    """Opens a source, and nothing that it leads to.

    Args:
        source: what FFmpeg reads, from `endpoints.source`.
        containers: FFmpeg's names of those to accept; empty for all, with playlists only if `follow_playlists`.
        single_pass: `source`, if it can be read only once.
        path: the source by its name, for messages.
        follow_playlists: a path may be a playlist.
        stall_timeout: how many seconds this call, or a later one, may wait for the source; None for any time.
        decryption: libav's options to decrypt it.
        decodes_first: the caller takes the pixel format and colors of a frame, or knows them. Where the header of a
            file tells all other facts, libav then decodes no frame, and `are_found` says so.

    Raises:
        DecoderError: libav cannot open it, or it is a playlist or text.
        StalledError: the source did not answer in time.
        OSError: no descriptor, memory or thread is left.
    """
    path = path or endpoints.without_protocol(source)
    containers = tuple(containers) or (() if follow_playlists else _harmless_containers())
    confined = endpoints.confining_arguments(source, containers)
    words = [*confined, *endpoints.literal_arguments(source)]
    options = {name.removeprefix("-"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    if source.startswith(("http:", "https:")):
        # Without that, libav says that it closes the connection, goes on with it all the same, and loses packets.
        options["multiple_requests"] = "1"
    options |= decryption or {}
    # libav decodes the first frames for their facts, and throws the pictures away.
    options["skip_loop_filter"] = "all"
    if decodes_first := decodes_first and _is_avc_in_order(source):
        # Any pixel format: without one, libav reads on to find it.
        options |= {"skip_frame": "all", "pixel_format": PLAYABLE.name}
    try:
        given: Any = source if single_pass is None else single_pass
        media: InputContainer = av.open(given, options=options, timeout=stall_timeout, **_ANY_TAGS)
    except LibavError as error:
        raise_shortage(error, path)
        _raise_stall(error, path, stall_timeout)
        if single_pass is not None and single_pass.failure is not None:
            raise DecoderError(f"FFmpeg can't open {path}: {single_pass.failure.strerror}") from error
        raise _refusal(source, path, confined, error.strerror or "") from error
    if media.format.name == _TEXT_CONTAINER:
        media.close()
        raise DecoderError(f"{path} is a text file, not a media file")
    if not known(media.format.name).may_lack_times:
        media.flags &= ~_GEN_PTS
    if decodes_first and not _has_ordered_avc(media):
        media.close()
        return open_media(
            source, containers, path=path, follow_playlists=follow_playlists, decryption=decryption
        )
    return media


def are_found(media: InputContainer) -> bool:
    """Whether libav knows pixel formats and colors. Otherwise, without a frame, the file is to be opened again."""
    return "skip_frame" not in media.options


def _is_avc_in_order(source: str) -> bool:
    """Whether a file seems to be an MP4 file of H.264 whose header tells the order of the frames."""
    path, begins = Path(endpoints.without_protocol(source)), 0
    with suppress(OSError):
        for name, ends in islice(boxes(path) if endpoints.identity(source) else (), MOST_BOXES):
            if name == b"moov" and ends - begins <= _MOST_INDEX_BYTES:
                with path.open("rb") as file:
                    file.seek(begins)
                    index = file.read(ends - begins)
                return _AVC in index and _ORDER in index
            begins = ends
    return False


def _has_ordered_avc(media: InputContainer) -> bool:
    """The same of a file that is open, which has no other video.

    Otherwise libav finds the order by decoding: how many frames the decoder holds back.
    """
    codecs = [stream.codec_context for stream in media.streams.video]
    # H.264, whose header tells the order.
    is_avc = len(codecs) == 1 and codecs[0] is not None and codecs[0].codec.canonical_name == "h264"
    return is_avc and bool(codecs[0].has_b_frames) and known(media.format.name).has_boxes


@contextmanager
def open_stream(source: str, container: str, index: int) -> Iterator[tuple[InputContainer, Any]]:
    """Opens a file for one of its streams. `probe` has told the container, and `source` is as for `open_media`.

    Raises:
        DecoderError, OSError: as `open_media` raises.
        IndexError: the file has fewer streams by now.
    """
    with open_media(source, (container,)) as file:
        yield file, file.streams[index]


def demux(media: InputContainer, *streams: Any) -> Iterator[Any]:
    """The packets of these streams; of all if none is given.

    PyAV ends each stream with a packet of its own, which is left out.
    """
    try:
        yield from (packet for packet in media.demux(*streams) if packet.size or packet.dts is not None)
    except IndexError:
        pass  # where a damaged file has begun a stream in its middle (MPEG-TS), PyAV fails behind the last packet
    except LibavError as error:
        raise_shortage(error)
        _raise_stall(error, media.name, cast("float | None", media.read_timeout))
        raise


def _raise_stall(error: LibavError, path: str, timeout_s: float | None) -> None:
    """Raises for libav's error that the source did not answer in time. Nothing can be read from it afterwards."""
    if isinstance(error, ExitError):
        seconds = timeout_s or 0.0
        raise StalledError(f"{path} gave nothing for {seconds:g} s, and was given up", seconds) from error


def decode(codec: Any, packet: Any) -> list[Any]:
    """The frames that a decoder, or a stream's own, gives when it gets a packet.

    Raises:
        DecoderError: the packet is encrypted, though the first ones may not be.
        OSError: no memory is left, or no thread for the decoder.
        LibavError: the packet is damaged.
    """
    if packet is not None and is_encrypted(packet):
        name = endpoints.without_protocol(packet.stream.container.name)
        raise DecoderError(f"{name} is encrypted. Pass input_options={{'decryption_key': KEY}}")
    try:
        frames: list[Any] = codec.decode(packet)
    except LibavError as error:
        raise_shortage(error)
        raise
    return frames


def is_encrypted(packet: Any) -> bool:
    """Whether a decoder would make noise of the packet. MP4 and QuickTime say it of each."""
    # PyAV takes longer to look for one kind.
    for one in packet.iter_sidedata():  # noqa: SIM110 (any() takes longer for the usual packet, which has none)
        if one.data_type == "encryption_info":
            return True
    return False


def only_frame(codec: Any, packet: Any) -> Any | None:
    """The frame of a packet that needs no other; None if the decoder gives none."""
    try:
        frames = decode(codec, packet) or decode(codec, None)
    except (LibavError, EOFError, ValueError):  # of a decoder that could not be opened
        frames = []
    codec.flush_buffers()
    return frames[0] if frames else None


@cache
def times_may_jump(container: str) -> bool:
    """Whether FFmpeg takes times that jump for another beginning: in MPEG-TS, MPEG-PS and Ogg."""
    return bool(ContainerFormat(container, "r").flags & cast("int", Flags.ts_discont.value))


@cache
def has_no_times(container: str) -> bool:
    """Whether a container says that it holds no times, as raw streams do. libav makes some."""
    return bool(ContainerFormat(container, "r").flags & cast("int", Flags.no_timestamps.value))


def first_packet_s(source: str, container: str, index: int) -> float:
    """The time of a stream's first packet, by the file's clock.

    Raises:
        DecoderError, LibavError: libav cannot open the file, or read it.
        ValueError: the stream has no packets, or they have no times.
    """
    with open_stream(source, container, index) as opened:
        for packet in demux(*opened):
            if packet.pts is not None:
                return float(packet.pts * packet.time_base)
    raise ValueError(f"no packet of stream {index} has a time")


def lacks_protocol(error: DecoderError) -> bool:
    """Whether libav can't open a URL for want of its protocol. The FFmpeg program may have it."""
    return isinstance(error.__cause__, ProtocolNotFoundError)


@cache
def _harmless_containers() -> tuple[str, ...]:
    return tuple(sorted(av.formats_available - LEADING_ELSEWHERE))


def _refusal(source: str, path: str, confined: list[str], reason: str) -> DecoderError:
    """The error for a source that libav cannot open. FFmpeg gives the reason: libav's log is off, it can deadlock."""
    if endpoints.identity(source) is None:
        return DecoderError(f"FFmpeg can't open {path}: {reason}")
    if is_unfinished(endpoints.without_protocol(source)):
        return DecoderError(
            f"{path} is not finished, because its encoder is still open. Close the encoder, then read the file"
        )
    if endpoints.file_bytes(source) == 0:
        return DecoderError(f"{path} is an empty file, not a media file")
    if is_segment(endpoints.without_protocol(source)):
        return DecoderError(
            f"{path} is a segment of an MP4 stream, without the initialization segment before it. Read both as one "
            f"file: cat INIT.mp4 {shell_word(path)} > OUT.mp4"
        )
    try:
        program = find_decoding_ffmpeg()
        child = run((program, "-v", "error", *confined, "-i", source), _WORDS_PATIENCE_S, check=False)
    except (ProgramError, DecoderError):
        return DecoderError(f"{path} is not a media file that FFmpeg knows, or is damaged: {reason}")
    stderr = child.stderr
    if _NOT_ALLOWED in stderr:
        message = (
            f"{path} is a playlist, which leads to other files. Pass follow_playlists=True (--follow-playlists) to "
            "open those that are local"
        )
    else:
        words = reason if _OPENED in stderr else messages.summarize(stderr, source) or reason
        message = f"{path} is not a media file that FFmpeg knows, or is damaged: {words}"
    return DecoderError(message, returncode=child.returncode, command=child.command, stderr=stderr)
