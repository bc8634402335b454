"""The frames of a `Decoder` by their numbers and times: libav decodes them, and they are delivered as in iteration."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt
from av.error import FFmpegError as LibavError

from penstock._common.messages import plural, warn
from penstock._common.shortage import error_of_libav
from penstock._common.tensors import memory_of_out
from penstock._decoding.random_access import RandomAccess, RenumberedError
from penstock._decoding.turns import OneAtATime
from penstock._decoding.video_frame import VideoFrame, frame_of
from penstock._facts.completeness import Delivered, EndOfFile, end_of
from penstock._facts.part import latest_of, place_at
from penstock._facts.seeking import Clock, last_pts
from penstock._ffmpeg.command.settings import check_place
from penstock._native import _SlotPool
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.options import DecodeOptions
    from penstock._decoding.pixels import Arrays, Job
    from penstock._decoding.plan import DecodePlan
    from penstock._decoding.sequence import SequenceFrame
    from penstock._facts.info import Track

T = TypeVar("T")

# Memory of batches that is kept for the next ones. Chosen: a caller holds one while the next is made.
_KEPT_BATCHES = 2


class ShownTimes(Protocol):
    """When each frame is shown, in units of the stream's time base."""

    @property
    def pts(self) -> Sequence[int]:
        """Those times, in order."""

    @property
    def last_duration(self) -> int:
        """For how long the last one is shown. Only where there is one."""

    def __len__(self) -> int: ...


class FramesAnywhere(Protocol):
    """What frames are taken of by their numbers: a `RandomAccess`, pictures, or a confined process."""

    @property
    def account(self) -> ShownTimes:
        """When each is shown."""

    def frames(self, places: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """The frames at these places, from 0, each once, with its place."""

    def close(self) -> None:
        """Closes the file."""


class FramesByNumber(OneAtATime):
    """The frames that a decode gives, in any order.

    Args:
        plan: the decode.
        file: the file.
        pixels: makes the arrays. `close` closes both.
        first: the first frame, if it is decoded.
        why_early: tells what shows at the end of the file.

    Attributes:
        why_short: why frames seem to be missing at the end of the file, once that is known; None if nothing shows that.
    """

    def __init__(
        self,
        plan: DecodePlan,
        file: FramesAnywhere,
        pixels: Arrays,
        first: SequenceFrame | None = None,
        why_early: Callable[[], EndOfFile] | None = None,
    ) -> None:
        super().__init__()
        self._first, self._why_early = first, why_early
        self.why_short: str | None = None
        self._plan, self._media = plan, plan.track.media
        self._clock = Clock(self._media, plan.track.video)
        self._file, self._pixels = file, pixels
        # For how many frames the last batch was, and memory for such batches, if there were several.
        self._batches: tuple[int, _SlotPool | None] = 0, None
        self._places: range | None = None
        # For each frame, the latest time of the frames up to it.
        self._latest: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        """As `Decoder.count_frames`."""
        with self._turn():
            return len(self._frame_places())

    @property
    def times(self) -> ShownTimes:
        """When each frame of the file is shown, whatever part of it is wanted."""
        return self._account

    def __getitem__(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        return self._numbered(partial(self._item, key))

    def _numbered(self, call: Callable[[], T]) -> T:
        """Calls a function; again, if numbers turn out to stand for other frames."""
        with self._turn():
            try:
                return call()
            # There is another account now, which was made by decoding: it doesn't change again.
            except RenumberedError:
                self._places = None
                return call()
            except LibavError as error:
                raise error_of_libav(error, self._media.path) from error

    def _item(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        if isinstance(key, slice):
            for end in (key.start, key.stop, key.step):
                if end is not None:
                    index_of(end)
            numbers = range(len(self._frame_places()))[key]
            frames = dict(self.decoded(numbers))
            return [frames[number] for number in numbers]
        return self._one(self._number(key))

    def times_s(self) -> npt.NDArray[np.float64]:
        """As `Decoder.times_s`."""
        with self._turn():
            places = self._frame_places()
            pts = self._file.account.pts[places.start : places.stop]
        return np.array([*map(self._clock.time_s, pts)], np.float64)

    def index_at(self, time_s: float | Fraction) -> int:
        """As `Decoder.index_at`."""
        check_time(time_s)
        with self._turn():
            return self._index_at(time_s)

    def _index_at(self, time_s: float | Fraction) -> int:
        if not (places := self._frame_places()):
            raise DecoderError(f"{self._media.path} has no frames")
        place = place_at(self._latest, last_pts(time_s, self._media, self._plan.track.video))
        return min(max(place, places.start), places.stop - 1) - places.start

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """As `Decoder.frame_at`."""
        check_time(time_s)
        return self._numbered(lambda: self._one(self._index_at(time_s)))

    def batch(self, indices: Iterable[SupportsIndex], out: Any = None) -> Any:
        """As `Decoder.batch`."""
        given = [*indices]
        return self._numbered(lambda: self._batch([self._number(index) for index in given], out))

    def batch_at(self, times_s: Iterable[float | Fraction], out: Any = None) -> Any:
        """As `Decoder.batch` with times."""
        given = [*times_s]
        for time_s in given:
            check_time(time_s)
        return self._numbered(lambda: self._batch([self._index_at(time_s) for time_s in given], out))

    def _batch(self, numbers: list[int], out: Any) -> Any:
        shape, dtype = (len(numbers), *self._plan.delivered.shape), np.dtype(self._plan.delivered.dtype)
        out = self._memory(shape, dtype) if out is None else out
        memory, put = memory_of_out(out, shape, dtype)
        # A number that occurs several times is decoded once, and copied.
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(number, []).append(place)
        for number, made in self._made(places, {} if memory is None else _firsts(memory, places)):
            first, *others = places[number]
            if made is not None:
                put(first, self._frame(number, made))
            for place in others:
                put(place, self._frame(number, made) if memory is None else memory[first])
        return out

    def _memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array: in recycled memory, if the last batch was as large."""
        count, pool = self._batches
        if not shape[0] or count != shape[0]:
            self._batches = shape[0], None
            return np.empty(
                shape, dtype
            )  # many callers read one batch, and malloc has the memory of the last file's
        if pool is None:
            pool = _SlotPool(shape[0] * self._plan.delivered.frame_bytes, _KEPT_BATCHES)
            self._batches = count, pool
        return np.frombuffer(memoryview(pool.take()), dtype).reshape(shape)

    def _free(self) -> None:
        self._first = None
        self._file.close()
        self._pixels.close()
        self._batches = 0, None

    def _one(self, number: int) -> VideoFrame:
        return dict(self.decoded([number]))[number]

    def decoded(self, numbers: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The frames of these numbers, in decoding order. If one is yielded twice, the second one is to be used."""
        for number, made in self._made(numbers, {}):
            yield number, self._frame(number, made)

    def _frame(self, number: int, memory: Any) -> VideoFrame:
        plan = self._plan
        if number == 0 and self._first is not None:
            pts = self._first.pts
        else:
            pts = self._account.pts[self._frame_places().start + number]
        time_s = self._clock.time_s(pts)
        return frame_of(memory, plan.delivered, plan.colors, index=number, pts=pts, time_s=time_s)

    def _made(self, numbers: Iterable[int], outs: dict[int, npt.NDArray[Any]]) -> Iterator[tuple[int, Any]]:
        """The memory of the frames of these numbers, in decoding order; None for a frame that has a place in `outs`.

        If one is yielded twice, the second one is to be used.
        """
        begun: deque[tuple[int, Job]] = deque()
        try:
            for number, decoded in self._libavs(numbers):
                self.check_open()
                # A frame that is made again waits for the first time, in the same memory.
                while begun and (len(begun) > self._pixels.ahead or any(one == number for one, _ in begun)):
                    earlier, job = begun.popleft()
                    yield earlier, job.wait()
                begun.append((number, self._pixels.begin(decoded, outs.get(number))))
            while begun:
                number, job = begun.popleft()
                yield number, job.wait()
        finally:
            # No thread writes to the caller's memory after this.
            for _, job in begun:
                with suppress(DecoderError, OSError):
                    job.wait()

    def _libavs(self, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """libav's frames of these numbers, in decoding order."""
        wanted = {*numbers}
        if self._first is not None and 0 in wanted:
            wanted.remove(0)
            yield 0, self._first.samples
        if wanted:
            before = self._frame_places().start
            for place, decoded in self._file.frames(before + number for number in wanted):
                yield place - before, decoded

    def _number(self, index: SupportsIndex) -> int:
        """The number that an index from either end stands for."""
        # It needs no account, for which all packets would be read.
        if (number := index_of(index)) == 0 and self._first is not None:
            return 0
        return number_of(number, len(self._frame_places()), self._plan.options)

    def _frame_places(self) -> range:
        """The places of the frames in the file's index."""
        self.check_open()
        if self._places is None:
            account, part = self._account, self._plan.part
            self._latest = latest_of(account.pts)
            end = part.end_of(account.pts[-1], account.last_duration) if len(account) else 0
            self._places = part.places(self._latest, end)[: self._plan.options.count]
        return self._places

    @property
    def _account(self) -> ShownTimes:
        """The file's. The first use warns if frames seem to be missing."""
        # One warning is enough, whatever is asked for later.
        account, why_early, self._why_early = self._file.account, self._why_early, None
        if why_early is not None:
            end = why_early()
            self.why_short, warning = end.reason, end.warning
            if end.reason is not None:
                warning = f"{end.reason}. decoder[i] only returns the frames before that"
            if warning is not None:
                warn(f"{self._media.path}: {warning}")
        return account


def number_of(index: SupportsIndex, count: int, options: DecodeOptions) -> int:
    """The number that an index from either end stands for, among so many frames."""
    number = index_of(index)
    if not -count <= number < count:
        is_whole = (options.start, options.end, options.count) == (None, None, None)
        what = "the video" if is_whole else "the part of the video that `start`, `end` and `count` select"
        raise IndexError(f"frame index {number} is out of range: {what} has {plural(count, 'frame')}")
    return number % count


def index_of(number: SupportsIndex) -> int:
    """A number of a frame, as an int."""
    try:
        # Not by `range`, whose error speaks of slices.
        return operator.index(number)
    except TypeError:
        raise TypeError(
            f"frames are numbered by int, not {number!r}. Use frame_at(1.0) for a time in seconds"
        ) from None


def check_time(time_s: float | Fraction) -> None:
    """Checks one time that a caller gave."""
    try:
        check_place("time_s", time_s)
        if time_s is None:
            raise TypeError
    except (TypeError, ValueError) as error:
        raise type(error)(f"time_s must be one time in seconds, at least 0, not {time_s!r}") from None


def why_early(track: Track, file: RandomAccess) -> EndOfFile:
    """What shows at the end of the file."""
    times = np.array(file.account.pts, np.float64) * float(track.video.time_base)
    longest_s = np.diff(times).max(initial=0.0)
    all_frames = Delivered(
        frames=len(times), last_s=float(times[-1]) if len(times) else 0.0, longest_s=float(longest_s)
    )
    end = end_of(track, all_frames, file.read())
    return replace(end, reason=file.account.why_short or end.reason)


def _firsts(memory: npt.NDArray[Any], places: Mapping[int, Sequence[int]]) -> dict[int, npt.NDArray[Any]]:
    """The memory of the first place of each number."""
    return {number: memory[first] for number, (first, *_) in places.items()}
