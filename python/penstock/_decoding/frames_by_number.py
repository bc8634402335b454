"""The frames of a `Decoder` by their numbers and times: libav decodes them, and they are delivered as in iteration."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from penstock._common.messages import plural, warn
from penstock._common.ownership import Closable
from penstock._common.tensors import memory_of_out
from penstock._decoding.random_access import RandomAccess, RenumberedError
from penstock._decoding.video_frame import VideoFrame, frame_of
from penstock._facts.completeness import Delivered, why_incomplete
from penstock._facts.seeking import Clock, last_pts
from penstock._ffmpeg.command.settings import check_place
from penstock._native import _SlotPool
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.pixels import Job
    from penstock._decoding.plan import DecodePlan
    from penstock._decoding.sequence import SequenceFrame
    from penstock._facts.info import Track

T = TypeVar("T")

# Memory of batches that is kept for the next ones. Chosen: a caller holds one while the next is made.
_KEPT_BATCHES = 2


class Times(Protocol):
    """When each frame is shown, in units of the stream's time base."""

    @property
    def pts(self) -> Sequence[int]:
        """Those times, in order."""

    def __len__(self) -> int: ...


class FramesAnywhere(Protocol):
    """What frames are taken of by their numbers: a `RandomAccess`, pictures, or a confined process."""

    @property
    def account(self) -> Times:
        """When each is shown."""

    def frames(self, places: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """The frames at these places, from 0, each once, with its place."""

    def close(self) -> None:
        """Closes the file."""


class Arrays(Protocol):
    """What makes the arrays of these frames: `Pixels`, or one that has them already."""

    ahead: int

    def begin(self, frame: Any, out: npt.NDArray[Any] | None = None) -> Job:
        """Begins to make a frame's array: in `out`, if it is given."""

    def close(self) -> None:
        """Frees memory."""


class _Turns:
    """A lock, behind whose use something is done, also if a signal handler asks for that while its thread has the lock.

    Args:
        end: that, while nobody else has the lock.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._lock, self._end, self._holder = threading.Lock(), end, 0

    def __enter__(self) -> None:
        if self._holder == threading.get_ident():
            raise RuntimeError("a signal handler can't read from a decoder that its thread is reading")
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._holder = 0
        self._lock.release()
        self.end()

    def end(self) -> None:
        """Does that, now or when whoever has the lock is done."""
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()


class FramesByNumber(Closable):
    """The frames that a decode gives, in any order.

    Args:
        plan: the decode.
        file: the file.
        pixels: makes the arrays. `close` closes both.
        first: the first frame, if it is decoded.
        why_early: tells why frames seem to be missing at the end of the file; None if nothing shows that.
    """

    def __init__(
        self,
        plan: DecodePlan,
        file: FramesAnywhere,
        pixels: Arrays,
        first: SequenceFrame | None = None,
        why_early: Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__()
        self._first, self._why_early = first, why_early
        self._plan, self._media = plan, plan.track.media
        self._time_base = plan.track.video.time_base
        self._clock = Clock(self._media, self._time_base)
        self._file, self._pixels = file, pixels
        self._batches = (0, _SlotPool(0, 0))  # memory for batches, and for how many frames each
        self._lock = _Turns(self._release)
        self._is_released = False
        self._places: range | None = None
        # For each frame, the latest time of the frames up to it.
        self._latest: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        """As `Decoder.count_frames`."""
        with self._lock:
            return len(self._frame_places())

    @property
    def pts(self) -> Sequence[int]:
        """When each frame of the file is shown, in units of the stream's time base, whatever `start` and `count`."""
        return self._account.pts

    def __getitem__(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        return self._numbered(partial(self._item, key))

    def _numbered(self, call: Callable[[], T]) -> T:
        """Calls a function; again, if numbers turn out to stand for other frames."""
        with self._lock:
            try:
                return call()
            except RenumberedError:
                self._places = None
                return call()

    def _item(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        if isinstance(key, slice):
            for end in (key.start, key.stop, key.step):
                if end is not None:
                    _index(end)
            numbers = range(len(self._frame_places()))[key]
            frames = dict(self.decoded(numbers))
            return [frames[number] for number in numbers]
        return self._one(self._number(key))

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """As `Decoder.frame_at`."""
        _check_time(time_s)
        return self._numbered(partial(self._frame_at, time_s))

    def _frame_at(self, time_s: float | Fraction) -> VideoFrame:
        places = self._frame_places()
        if not places:
            raise DecoderError(f"{self._media.path} has no frames")
        last = last_pts(time_s, self._media, self._plan.track.video)
        after = self._first_at(last + 1)
        # Where files were joined, later frames have times at or before that of an earlier one.
        if (later := self._latest[:after]).size and later[-1] == last:
            after = self._first_at(last) + 1
        return self._one(max(0, min(after, places.stop) - 1 - places.start))

    def batch(self, indices: Iterable[SupportsIndex], out: Any = None) -> Any:
        """As `Decoder.batch`."""
        return self._numbered(partial(self._batch, [*indices], out))

    def _batch(self, indices: list[SupportsIndex], out: Any) -> Any:
        numbers = [self._number(index) for index in indices]
        shape, dtype = (len(numbers), *self._plan.layout.shape), np.dtype(self._plan.layout.dtype)
        out = self._memory(shape, dtype) if out is None else out
        memory, put = memory_of_out(out, shape, dtype)
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
        """An array in recycled memory."""
        count, pool = self._batches
        if count != shape[0]:
            pool = _SlotPool(shape[0] * self._plan.layout.frame_bytes, _KEPT_BATCHES)
            self._batches = shape[0], pool
        return (
            np.frombuffer(memoryview(pool.take()), dtype).reshape(shape)
            if shape[0]
            else np.empty(shape, dtype)
        )

    def close(self) -> None:
        """Closes the file, or lets the thread do it that reads. Delivered frames stay valid."""
        self._is_closed = True
        self._lock.end()

    def _release(self) -> None:
        if self._is_closed and not self._is_released:
            self._is_released, self._first = True, None
            self._file.close()
            self._pixels.close()
            self._batches = (0, _SlotPool(0, 0))

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
        return frame_of(memory, plan.layout, plan.colors, index=number, pts=pts, time_s=time_s)

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
        number = _index(index)
        if number == 0 and self._first is not None:
            return 0
        count = len(self._frame_places())
        if not -count <= number < count:
            whole = self._plan.options.start is None and self._plan.options.count is None
            what = "the video" if whole else "the part of the video that `start` and `count` select"
            raise IndexError(f"frame index {number} is out of range: {what} has {plural(count, 'frame')}")
        return number % count

    def _frame_places(self) -> range:
        """The places of the frames in the file's index."""
        self.check_open()
        if self._places is None:
            options, account = self._plan.options, self._account
            self._latest = np.maximum.accumulate(np.array(account.pts, np.int64))
            first = 0
            if (start_pts := self._plan.start_pts) is not None:
                first = self._first_at(start_pts)
            last = len(account) if options.count is None else min(len(account), first + options.count)
            self._places = range(first, last)
        return self._places

    @property
    def _account(self) -> Times:
        """The file's. The first use warns if frames seem to be missing."""
        account, why_early, self._why_early = self._file.account, self._why_early, None
        if why_early is not None and (reason := why_early()) is not None:
            warn(f"{self._media.path}: {reason}. decoder[i] only returns the frames before that")
        return account

    def _first_at(self, pts: int) -> int:
        """The place of the first frame that is shown then or later. Times go back where files were joined."""
        return int(np.searchsorted(self._latest, pts))


def _index(number: SupportsIndex) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(
            f"frames are numbered by int, not {number!r}. Use frame_at(1.0) for a time in seconds"
        ) from None


def _check_time(time_s: float | Fraction) -> None:
    try:
        check_place("time_s", time_s)
        if time_s is None:
            raise TypeError
    except (TypeError, ValueError) as error:
        raise type(error)(f"time_s must be one time in seconds, at least 0, not {time_s!r}") from None


def why_early(track: Track, file: RandomAccess) -> str | None:
    """Why frames seem to be missing at the end of the file; None if nothing shows that."""
    times = np.array(file.account.pts, np.float64) * float(track.video.time_base)
    longest_s = np.diff(times).max(initial=0.0)
    all_frames = Delivered(
        frames=len(times), last_s=float(times[-1]) if len(times) else 0.0, longest_s=float(longest_s)
    )
    return file.account.why_short or why_incomplete(track, all_frames, file.read())


def _firsts(memory: npt.NDArray[Any], places: Mapping[int, Sequence[int]]) -> dict[int, npt.NDArray[Any]]:
    """The memory of the first place of each number."""
    return {number: memory[first] for number, (first, *_) in places.items()}
