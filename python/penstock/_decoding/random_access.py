"""Any frame of a video file, by libav in the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, count, groupby, islice, takewhile
from typing import TYPE_CHECKING

import numpy as np
from av.error import FFmpegError as LibavError

from penstock._decoding.account import Account
from penstock._decoding.open_video import OpenVideo, VideoInput, keep_in_child
from penstock._decoding.planes import are_same
from penstock._decoding.run import CheckedRun, LostError, UnnamedError, account_by_decoding
from penstock._decoding.unneeded import unneeded
from penstock._facts.index import packet_info, table_of
from penstock._facts.part import place_at
from penstock._ffmpeg.command import endpoints
from penstock._formats import containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet, PacketInfo, PacketTable

# Groups of pictures before that of a frame with which a decode is tried again although libav tells of damage. Guessed:
# one is enough for open groups.
_EARLIER_STARTS = 2
# Seeks that may go past their target, before the file is read from its beginning. Guessed.
_EARLIER_SEEKS = 4
# Frames that are kept for a caller who goes back, or whose batches overlap. Chosen: a clip that models take. The first
# use keeps the last frame only, because many callers read one batch, and memory for more would be new.
_RECENT_FRAMES = 16
# Places of a file that can be read in turn without a seek. Chosen: each has the frames of its threads in memory.
_MOST_DECODES = 2


class RenumberedError(Exception):
    """The account was wrong, and there is another one: numbers of frames stand for other ones."""


class RandomAccess:
    """Frames of one video stream of a file, in any order.

    Args:
        account: the account of the frames, if iteration has made it; or of those up to some place.
        video: the stream, if iteration has opened it: at its beginning, and without a decoder in use.

    Raises:
        ValueError: the source is no regular file.
    """

    def __init__(
        self, chosen: VideoInput, account: Account | None = None, video: OpenVideo | None = None
    ) -> None:
        self.path, self._account, self._is_checked = chosen.path, account, account is not None
        if (identity := endpoints.identity(chosen.source)) is None:
            raise ValueError(
                f"decoder[i], frame_at() and batch() need a regular file, which {self.path} is not. Iterate over the "
                "decoder instead"
            )
        self._chosen, self._identity = chosen, identity
        self._decodes: list[_Decode] = []  # the one that was used last is the last one
        self._most_recent = 0  # how many of the last frames each keeps
        if video is not None:
            self._decodes.append(_Decode(chosen, video))
        keep_in_child(self)

    @property
    def account(self) -> Account:
        """The account of the frames. The first use reads all of the file, and for some files decodes it."""
        if self._account is None:
            # Damage that is concealed leaves frames out.
            account = self._account_by_packets() if self._chosen.is_strict else None
            self._account = account or account_by_decoding(self._chosen)
        return self._account

    def _account_by_packets(self) -> Account | None:
        if not self._decodes:
            self._decodes.append(_Decode(self._chosen))
        video = self._decodes[-1].video
        facts: list[PacketInfo] = []
        why_short = None
        try:
            facts.extend(map(packet_info, video.packets()))
        except LibavError as error:
            why_short = f"the file is damaged: {error.strerror}"
        return Account.by_packets(table_of(facts), video.stream, why_short)

    def read(self) -> tuple[VideoStream, PacketTable]:
        """The stream of an open file, for a caller who may move in it, and its packets."""
        packets = self.account.packets
        if not self._decodes:
            self._decodes.append(_Decode(self._chosen))
        return self._decodes[-1].borrow_stream(), packets

    def frames(self, places: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The frames at these places, from 0, each once, with its place, in the order in which they are decoded.

        Raises:
            DecoderError: a frame cannot be decoded, or the file has changed.
            RenumberedError: the account was wrong. All frames are to be asked for again.
        """
        if endpoints.identity(self._chosen.source) != self._identity:
            raise DecoderError(f"{self.path} has changed since it was opened. Open it again")
        try:
            yield from self._frames(places)
        except LostError as lost:
            if self._is_wrong():
                raise RenumberedError from None
            raise DecoderError(f"{self.path}: frame {lost.args[0]} is damaged or missing") from None

    def _is_wrong(self) -> bool:
        """Whether the account is wrong. Then another one is made."""
        account = self.account
        if self._is_checked or account.is_decoded or not self._chosen.is_strict:
            return False
        self._is_checked = True
        decoded = account_by_decoding(self._chosen)
        if not decoded.contradicts(account):
            return False
        self._account = decoded
        self.close()
        return True

    def _frames(self, places: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        account = self.account
        self._most_recent = _RECENT_FRAMES if self._most_recent else 1
        wanted = {int(account.shown[place]): place for place in places}
        by_start = sorted((next(account.starts(packet)), packet) for packet in wanted)
        decode: _Decode | None = None
        for start, group in groupby(by_start, key=lambda one: one[0]):
            missing = {packet for _, packet in group}
            decode = self._decode_for(start, missing, decode)
            for packet, frame in decode.frames(account, start, missing):
                yield wanted[packet], frame
            for packet in sorted(missing):
                yield wanted[packet], self._again(packet, wanted[packet])[1]

    def whole_from(self, pts: int) -> tuple[int, int]:
        """When the keyframe is shown with which a decoder must begin for the frame on screen at a time, and that frame.

        Raises:
            LostError: there is none: the frame is damaged or missing.
        """
        account = self.account
        place = place_at(np.array(account.pts, np.int64), pts)
        start, _ = self._again(int(account.shown[place]), place)
        return int(account.packets.pts[start]), account.pts[place]

    def _again(self, packet: int, place: int) -> tuple[int, VideoFrame]:
        """Decodes a missing frame again, on one thread: several threads lose frames beside a damaged one, too.

        Where libav tells of no damage, a decoder may make whole pictures only some frames, or groups, after what is
        called a keyframe (x264's intra-refresh). So it begins ever earlier, until two decodes agree.

        Returns:
            The packet with which the decode began, and the frame.
        """
        starts = self.account.starts(packet)
        start = floor = next(starts)
        before: VideoFrame | None = None
        with _Decode(self._chosen, OpenVideo(self._chosen, has_threads=False)) as decode:
            for tries in count(1):
                is_last = start == 0 or (tries > _EARLIER_STARTS and decode.has_failed)
                decoded_frames = decode.frames(
                    *(self.account, start, {packet}),
                    floor=floor,
                    takes_damaged=is_last and not self._chosen.is_strict,
                    ends=True,
                )
                frame = next((frame for _, frame in decoded_frames), None)
                agrees = tries == 1 or is_last or (before is not None and frame and are_same(before, frame))
                if frame is not None and agrees:
                    return start, frame
                if is_last:
                    break
                before, floor = frame, start
                for _ in range(1 << max(0, tries - 2)):
                    start = next(starts, start)
        raise LostError(place)

    def _decode_for(self, start: int, wanted: set[int], latest: _Decode | None) -> _Decode:
        """The decode that leads to these packets if one does; else one that seeks, of this call if it has one."""
        for decode in self._decodes:
            if decode.leads_to(self.account, start, wanted):
                return self._used(decode)
        if latest is not None:
            return latest
        if not self._decodes or (len(self._decodes) < _MOST_DECODES and self._decodes[-1].is_in_use):
            return self._used(_Decode(self._chosen))
        return self._used(self._decodes[0])

    def _used(self, decode: _Decode) -> _Decode:
        if decode in self._decodes:
            self._decodes.remove(decode)
        self._decodes.append(decode)
        decode.most_recent = self._most_recent
        return decode

    def close(self) -> None:
        """Closes the file."""
        for decode in self._decodes:
            decode.close()
        self._decodes.clear()


class _Decode:
    """An open file with a decoder, and how far it has come.

    Args:
        video: the stream, if it is open.
    """

    def __init__(self, chosen: VideoInput, video: OpenVideo | None = None) -> None:
        self._chosen, self.video = chosen, video or OpenVideo(chosen, has_threads=True)
        self._run: CheckedRun | None = None  # None if the next decode must seek
        self._last: int | None = None  # the packet of the last frame
        self._recent: dict[int, VideoFrame] = {}
        self._may_skip: Callable[[int], bool] = lambda _: False  # whether nobody wants the frame of a packet
        self.has_failed = False  # libav has told of damage
        self.most_recent = 1  # how many of the last frames are kept

    @property
    def is_in_use(self) -> bool:
        """Whether it has come to a place from which decoding may go on."""
        return self._run is not None

    def frames(
        self,
        account: Account,
        start: int,
        wanted: set[int],
        *,
        floor: int | None = None,
        takes_damaged: bool = False,
        ends: bool = False,
    ) -> Iterator[tuple[int, VideoFrame]]:
        """Yields the frames of the packets in `wanted`, and removes each packet from the set, unless its frame is lost.

        Args:
            start: the packet with which a decoder may begin to get all of them.
            floor: the first packet whose frame must come; None for `start`.
            takes_damaged: whether a frame may be one that libav calls damaged.
            ends: whether the decoder gets no later packet: at a damaged one, it would lose frames of earlier ones.
                Then it gets all before, too: otherwise none whose frame nobody wants, and no other frame needs.
        """
        delivered, missing = set(wanted), account.in_order(wanted)
        is_sure, until = self._chosen.is_strict and account.is_sure and not ends, missing[0]
        self._may_skip = lambda one: is_sure and one not in delivered and account.is_before(one, until)
        if ends or not self.leads_to(account, start, wanted):
            last = account.end_of(max(wanted)) if ends else None
            self._go_to(account, start, floor or start, last, takes_damaged=takes_damaged)
        for packet in wanted & self._recent.keys():
            wanted.discard(packet)
            yield packet, self._recent[packet]
        while wanted:
            while missing[-1] not in wanted:
                missing.pop()
            packet, frame = self._next() or (missing[-1], None)
            if frame is None or account.is_before(missing[-1], packet):
                self._run = None  # nothing goes on from here
                return
            self._keep(packet, frame)
            if packet in wanted:
                wanted.discard(packet)
                yield packet, frame

    def _next(self) -> tuple[int, VideoFrame] | None:
        """The next frame, with its packet; None if there is none, or it is lost."""
        run = self._run
        assert run is not None
        try:
            while not run.ready and not run.is_at_end:
                run.step()
        except (LostError, UnnamedError):
            return None
        finally:
            self.has_failed |= run.has_failed
        if not run.ready:
            return None
        self._last, _, frame = run.ready.popleft()
        return self._last, frame

    def borrow_stream(self) -> VideoStream:
        """The stream, for a caller who may move in its file: the next frame begins with a seek."""
        self._run = None
        return self.video.stream

    def _keep(self, packet: int, frame: VideoFrame) -> None:
        self._recent[packet] = frame
        while len(self._recent) > self.most_recent:
            del self._recent[next(iter(self._recent))]

    def close(self) -> None:
        self._run = None
        self._recent.clear()
        self.video.close()

    def __enter__(self) -> _Decode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leads_to(self, account: Account, start: int, wanted: set[int]) -> bool:
        """Whether decoding on from here gives all the frames, with no later start to seek to."""
        run, last = self._run, self._last
        return (
            run is not None
            and last is not None
            and start <= run.number + 1
            and all(packet in self._recent or account.is_before(last, packet) for packet in wanted)
        )

    def _go_to(
        self, account: Account, start: int, floor: int, last: int | None, *, takes_damaged: bool
    ) -> None:
        """Lets the next frame be the first that a decoder makes from the packet `start` on, of packets up to `last`."""
        self._last = None
        self._recent.clear()
        is_unneeded = unneeded(self.video.codec)
        packets = (one for one in self._packets_from(account, start) if one[0] >= start)
        self._run = CheckedRun(
            self.video,
            packets if last is None else takewhile(lambda one: one[0] <= last, packets),
            partial(account.expected, floor),
            skips=lambda number, packet: is_unneeded(packet) and self._may_skip(number),
            is_strict=self._chosen.is_strict,
            takes_damaged=takes_damaged,
        )

    def _packets_from(self, account: Account, start: int) -> Iterator[tuple[int, Packet]]:
        """The packets with their numbers, from one at or before `start` on."""
        sought = self._seek(account, start) if account.may_seek else None
        first, packets = sought or self._rewind()
        for number, packet in enumerate(packets, first):
            if account.packets.are(number, packet):
                yield number, packet
            elif sought:  # such as a parser that begins elsewhere: the frames are to be decoded again
                account.may_seek = False
                return
            else:
                raise DecoderError(f"{self._chosen.path} has changed since it was opened. Open it again")

    def _seek(self, account: Account, start: int) -> tuple[int, Iterator[Packet]] | None:
        """Packets from one at or before `start` on, and the first one's number; None if seeking leads to none."""
        # A seek may go past its target: then further back.
        for key in islice(account.starts(start), _EARLIER_SEEKS):
            is_sought = (
                self.video.seek_byte(int(account.packets.position[key]), int(account.packets.pts[key]))
                if containers.known(self.video.container.format.name).seeks_by_byte
                else self.video.seek(int(account.packets.pts[key]))
            )
            if not is_sought:
                return None
            packets = _until_error(self.video.packets())
            first = next(packets, None)
            number = None if first is None else account.packets.find(first)
            if first is not None and number is not None and number <= start:
                return number, chain([first], packets)
        return None

    def _rewind(self) -> tuple[int, Iterator[Packet]]:
        """All packets."""
        self.video.rewind()
        return 0, _until_error(self.video.packets())


def _until_error(packets: Iterator[Packet]) -> Iterator[Packet]:
    """The packets up to the one that can't be read."""
    with suppress(LibavError):
        yield from packets
