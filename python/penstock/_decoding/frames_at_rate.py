"""The frames of a `Decoder` at a fixed rate: each is the one that is on screen at its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from penstock._common.messages import plural
from penstock._decoding.frames_by_number import FramesAnywhere, FramesByNumber, check_time, number_of
from penstock._decoding.video_frame import VideoFrame, shown_at
from penstock._facts.part import Grid, places_at
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from penstock._decoding.options import DecodeOptions
    from penstock._decoding.pixels import Arrays
    from penstock._decoding.plan import DecodePlan
    from penstock._facts.completeness import EndOfFile

# Bytes of the frames that iteration makes at once, and how many they are at most. Chosen: libav's threads go on
# meanwhile, and a caller who stops has not waited for many.
_AHEAD_BYTES, _MOST_AHEAD = 32 << 20, 8


class FramesAtRate(FramesByNumber):
    """Frames at a fixed rate, in any order. Numbers and times are those of the rate.

    Args:
        plan: of all frames of the file.
        options: of the decoder, with the part and the rate.
        why_early: as for `FramesByNumber`.
    """

    def __init__(
        self,
        plan: DecodePlan,
        file: FramesAnywhere,
        pixels: Arrays,
        options: DecodeOptions,
        why_early: Callable[[], EndOfFile] | None,
    ) -> None:
        super().__init__(plan, file, pixels, why_early=why_early)
        assert options.rate is not None
        self._options, self._grid = options, Grid(options.rate, options.start or 0.0, options.end)
        self._shown: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._shown_by: object = None  # the times of the file's frames that `_shown` was found by

    def __len__(self) -> int:
        with self._turn():
            return len(self._numbers())

    def times_s(self) -> npt.NDArray[np.float64]:
        """As `Decoder.times_s`."""
        return np.array([*map(self._grid.time_s, range(len(self)))], np.float64)

    def index_at(self, time_s: float | Fraction) -> int:
        """As `Decoder.index_at`."""
        check_time(time_s)
        with self._turn():
            return self._at(time_s)

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """As `Decoder.frame_at`."""
        check_time(time_s)
        return self._numbered(lambda: self._several([self._at(time_s)])[0])

    def from_number(self, number: int) -> list[VideoFrame]:
        """The frame of a number, and some after it; none behind the last one."""
        most = max(1, min(_MOST_AHEAD, _AHEAD_BYTES // self._plan.delivered.frame_bytes))
        try:
            frames = cast("list[VideoFrame]", self[number : number + most])
        except DecoderError:  # maybe only of a later one: the good ones come first
            frames = cast("list[VideoFrame]", self[number : number + 1])
        if not frames and self.why_short is not None and not self._is_cut(number):
            raise DecoderError(
                f"{self._media.path}: {self.why_short}, after {plural(number, 'frame')}", frames=number
            )
        return frames

    def _is_cut(self, count: int) -> bool:
        """Whether so many frames are all because the caller wants no more, not because the file ends."""
        end = self._options.end
        return count == self._options.count or (end is not None and self._grid.time_s(count) >= end)

    def _item(self, key: SupportsIndex | slice) -> VideoFrame | list[VideoFrame]:
        count = len(self._numbers())
        if isinstance(key, slice):
            return self._several(range(count)[key])
        return self._several([number_of(key, count, self._options)])[0]

    def _number(self, index: SupportsIndex) -> int:
        shown = self._numbers()
        return int(shown[number_of(index, len(shown), self._options)])

    def _index_at(self, time_s: float | Fraction) -> int:
        return int(self._numbers()[self._at(time_s)])

    def _at(self, time_s: float | Fraction) -> int:
        if not (count := len(self._numbers())):
            raise DecoderError(f"{self._media.path} has no frames")
        return min(max(0, self._grid.number_at(time_s)), count - 1)

    def _several(self, numbers: Iterable[int]) -> list[VideoFrame]:
        """The frames of these numbers, each in memory of its own."""
        shown, taken = [(number, int(self._numbers()[number])) for number in numbers], set[int]()
        made, frames = dict(self.decoded({source for _, source in shown})), list[VideoFrame]()
        for number, source in shown:
            time_s = self._grid.time_s(number)
            frames.append(shown_at(made[source], number, time_s, copies=source in taken))
            taken.add(source)
        return frames

    def _numbers(self) -> npt.NDArray[np.int64]:
        """For each number at the rate, the number of the frame in the file."""
        self._frame_places()
        if self._shown_by is not self._latest:
            account, part, track = self._file.account, self._plan.part, self._plan.track
            count = 0
            if len(account):
                end = part.end_of(account.pts[-1], account.last_duration)
                count = self._grid.count(end, track.media, track.video)
            if self._options.count is not None:
                count = min(count, self._options.count)
            pts = self._grid.pts(count, track.media, track.video)
            self._shown, self._shown_by = places_at(self._latest, pts), self._latest
        return self._shown
