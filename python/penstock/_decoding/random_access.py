"""Any frame of a video file, by libav in the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, groupby, islice, takewhile
from typing import TYPE_CHECKING

from av.error import FFmpegError as LibavError

from penstock._decoding.account import Account
from penstock._decoding.open_video import OpenVideo, VideoInput, keep_in_child
from penstock._decoding.sequence import account_by_decoding
from penstock._decoding.unneeded import unneeded
from penstock._facts.index import facts_of, packet_of, table_of
from penstock._ffmpeg.command import endpoints
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame

    from penstock._facts.index import Facts, Packet, Packets

# Groups of pictures before that of a frame with which a decode is tried again. Guessed: one is enough for open groups.
_EARLIER_STARTS = 2
# Seeks that may go past their target, before the file is read from its beginning. Guessed.
_EARLIER_SEEKS = 4
# Frames that came after those that were asked for, and may be the next: as many as H.264 may hold back.
_RECENT_FRAMES = 16
# Places of a file that can be read in turn without a seek. Chosen: each has the frames of its threads in memory.
_MOST_DECODES = 2


class RenumberedError(Exception):
    """The account was wrong, and there is another one: numbers of frames stand for other ones."""


class _LostError(Exception):
    """A frame doesn't come, or not in its order. Its argument is the frame's place."""


class RandomAccess:
    """Frames of one video stream of a file, in any order.

    Args:
        account: the account of the frames, if iteration has made it.
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
        facts: list[Facts] = []
        why_short = None
        try:
            facts.extend(map(facts_of, video.packets()))
        except LibavError as error:
            why_short = f"the file is damaged: {error.strerror}"
        return Account.by_packets(table_of(facts), video.stream, why_short)

    def read(self) -> tuple[InputContainer, Packets]:
        """The open file, for a caller who may move it, and the packets of the stream."""
        packets = self.account.packets
        if not self._decodes:
            self._decodes.append(_Decode(self._chosen))
        return self._decodes[-1].lent(), packets

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
        except _LostError as lost:
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
        wanted = {int(account.shown[place]): place for place in places}
        by_start = sorted((next(account.starts(packet)), packet) for packet in wanted)
        decode: _Decode | None = None
        for start, group in groupby(by_start, key=lambda one: one[0]):
            missing = {packet for _, packet in group}
            decode = self._decode_for(start, missing, decode)
            for packet, frame in decode.frames(account, start, missing):
                yield wanted[packet], frame
            for packet in sorted(missing):
                yield wanted[packet], self._again(packet, wanted[packet])

    def _again(self, packet: int, place: int) -> VideoFrame:
        """Decodes a missing frame again, on one thread: several threads lose frames beside a damaged one, too."""
        starts = list(islice(self.account.starts(packet), 1 + _EARLIER_STARTS))
        with _Decode(self._chosen, OpenVideo(self._chosen, has_threads=False)) as decode:
            for number, start in enumerate(starts):
                takes_corrupt = start == starts[-1] and not self._chosen.is_strict
                missing = {packet}
                # Of several groups, the first is for decoders that make whole pictures only some frames later.
                floor = starts[max(0, number - 1)]
                frames = dict(
                    decode.frames(
                        self.account, start, missing, floor=floor, takes_corrupt=takes_corrupt, ends=True
                    )
                )
                if not missing:
                    return frames[packet]
        raise _LostError(place)

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
        self._decoded: Iterator[VideoFrame] = iter(())
        # Numbers of packets:
        self._start, self._sent = 0, -1  # the first and the last one that the decoder got
        self._checked = -1  # all packets up to this one have returned their frames
        self._came: set[int] = set()  # packets after `_checked` that have returned theirs
        self._last: int | None = None  # the packet of the last frame; None if the next decode must seek
        self._recent: dict[int, VideoFrame] = {}
        self._failed: list[int] = []  # the last packet at each error of libav's, which threads tell late
        self._may_skip: Callable[[int], bool] = lambda _: False  # whether nobody wants the frame of a packet
        self._unneeded = unneeded(self.video.codec)

    @property
    def is_in_use(self) -> bool:
        """Whether it has come to a place from which decoding may go on."""
        return self._last is not None

    def frames(
        self,
        account: Account,
        start: int,
        wanted: set[int],
        *,
        floor: int | None = None,
        takes_corrupt: bool = False,
        ends: bool = False,
    ) -> Iterator[tuple[int, VideoFrame]]:
        """Yields the frames of the packets in `wanted`, and removes each packet from the set.

        If a frame did not come, the set has that packet and all requested ones after it again: they may depend on it.

        Args:
            start: the packet with which a decoder may begin to get all of them.
            floor: the first packet whose frame must come; None for `start`.
            takes_corrupt: whether a frame may be one that libav calls corrupt.
            ends: whether the decoder gets no later packet: at a damaged one, it would lose frames of earlier ones.
                Then it gets all before, too: otherwise none whose frame nobody wants, and no other frame needs.
        """
        last, delivered = max(wanted), set(wanted)
        until = account.in_order(wanted)[0]
        is_sure = self._chosen.is_strict and account.is_sure and not ends
        self._may_skip = lambda one: is_sure and one not in delivered and account.is_before(one, until)
        if not self.leads_to(account, start, wanted):
            self._go_to(account, start, account.end_of(last) if ends else None)
            if floor is not None:
                self._start, self._checked = floor, floor - 1
        for packet in wanted & self._recent.keys():
            wanted.discard(packet)
            yield packet, self._recent[packet]
        awaited = account.in_order(self._awaited(account, last) if self._chosen.is_strict else wanted)
        for frame in self._decoded if awaited else ():
            self._last = packet = packet_of(frame)
            is_corrupt = frame.is_corrupt or packet in self._failed or account.packets.is_corrupt[packet]
            if is_corrupt and not takes_corrupt:
                self._failed.append(packet)
            else:
                self._came.add(packet)
                if packet in wanted:
                    wanted.discard(packet)
                    yield packet, frame
                if not wanted:
                    self._keep(packet, frame)
                while awaited and awaited[-1] in self._came:
                    awaited.pop()
            if not awaited or account.is_before(awaited[-1], packet):
                break  # that one is lost, or comes later than its time says
        has_failed = self._chosen.is_strict and self._has_lost_others(account)
        if not awaited and not has_failed:
            self._checked = max(self._checked, last)
            self._came = {packet for packet in self._came if packet > self._checked}
        else:
            self._last = None  # nothing goes on from here
            failed = min(delivered) if has_failed else min(awaited)
            wanted |= {packet for packet in delivered if packet >= failed}

    def _has_lost_others(self, account: Account) -> bool:
        """Whether a packet may be damaged whose frame is not awaited, or came all the same, and and others need it.

        It isn't awaited if an edit list hides it, or if the packet has none of its own.
        """
        if self.video.has_threads and self._failed:
            packets = range(self._start, self._sent + 1)
            # Frames before the one with which the decoder began may depend on others.
            has_leading = any(account.is_before(one, self._start) for one in packets)
            return not (has_leading and all(map(account.is_shown, packets)))
        return any(
            not account.is_shown(one) and (account.is_decoded or not account.is_before(one, self._start))
            for one in self._failed
        )

    def _awaited(self, account: Account, last: int) -> Iterator[int]:
        """The packets up to `last` whose frames have yet to come."""
        for packet in range(self._checked + 1, last + 1):
            # Frames before the one with which the decoder began may depend on others.
            is_to_come = account.is_shown(packet) and not account.is_before(packet, self._start)
            if is_to_come and packet not in self._came:
                yield packet

    def lent(self) -> InputContainer:
        """The open file, for a caller who may move it: the next frame begins with a seek."""
        self._last = None
        return self.video.container

    def _keep(self, packet: int, frame: VideoFrame) -> None:
        """Keeps one of the last frames, for a caller who wants the next one after this call."""
        self._recent[packet] = frame
        while len(self._recent) > _RECENT_FRAMES:
            del self._recent[next(iter(self._recent))]

    def close(self) -> None:
        self._decoded = iter(())
        self._recent.clear()
        self.video.close()

    def __enter__(self) -> _Decode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leads_to(self, account: Account, start: int, wanted: set[int]) -> bool:
        """Whether decoding on from here gives all the frames, with no later start to seek to."""
        last = self._last
        return (
            last is not None
            and start <= self._sent + 1
            and all(packet in self._recent or account.is_before(last, packet) for packet in wanted)
        )

    def _go_to(self, account: Account, start: int, last: int | None) -> None:
        """Lets the next frame be the first that a decoder makes from the packet `start` on, of packets up to `last`."""
        self._start, self._checked, self._last = start, start - 1, None
        self._came.clear()
        self._recent.clear()
        self._failed.clear()
        self._unneeded = unneeded(self.video.codec)
        packets = self._packets_from(account, start)
        wanted = (one for one in packets if one[0] >= start)
        self._decoded = self._frames_of(
            wanted if last is None else takewhile(lambda one: one[0] <= last, wanted)
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
            # The demuxer of MPEG-TS usually seeks past a target that is a time.
            is_sought = (
                self.video.seek_byte(int(account.packets.position[key]), int(account.packets.pts[key]))
                if "mpegts" in self.video.container.format.name
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

    def _frames_of(self, numbered: Iterable[tuple[int, Packet]]) -> Iterator[VideoFrame]:
        """The frames of packets with their numbers."""
        for self._sent, packet in numbered:
            if self._unneeded(packet) and self._may_skip(self._sent):
                self._came.add(self._sent)
                continue
            packet.pts = self._sent  # the decoder gives it to the frame
            yield from self._frames_by(packet)
        yield from self._frames_by(None)

    def _frames_by(self, packet: Packet | None) -> list[VideoFrame]:
        """What the decoder gives when it gets the packet; None stands for the end of the file."""
        try:
            return self.video.decode(packet)
        except LibavError:
            self._failed.append(self._sent)
            return []


def _until_error(packets: Iterator[Packet]) -> Iterator[Packet]:
    """The packets up to the one that can't be read."""
    with suppress(LibavError):
        yield from packets
