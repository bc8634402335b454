"""What the times of audio frames tell: with which sample a frame begins, and where the audio pauses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame

    from penstock._decoding.open_sound import OpenSound

#: Chosen: more than a packet of any codec. Times that differ by less from what was counted are rounded.
GAP_S = 0.1
# Chosen: so many frames show how the times of packets are rounded; and so many, whether they are wrong, where MP4 or
# QuickTime tells the duration of each packet in samples.
_FIRST_FRAMES, _FIRST_TOLD = 24, 4
#: In samples: a unit of times that tells about each sample, and by how much such a time may be off.
EXACT, SLACK = 1.01, 2.0
# In samples: a unit of times which, rounded, tell each sample, such as that of MPEG-TS.
_FINE = 0.6


@dataclass(frozen=True, slots=True)
class Grid:
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
    def of(cls, sound: OpenSound, following: Iterable[AudioFrame]) -> Grid | None:
        """That of an audio from its first frame on; None if the first frames don't tell."""
        unit = sound.unit_samples
        is_told = sound.chosen.container.has_boxes and unit <= EXACT
        needed = _FIRST_TOLD if is_told else _FIRST_FRAMES
        counter, pauses, frames = PauseCounter(sound, sound.chosen.audio.sample_rate, unit), list[int](), []
        for frame in islice(following, needed) if unit else ():
            pauses.append(counter.pause_before(frame))
            frames.append(frame)
        if any(pauses[:2]) and not sound.needs_none:
            return None  # libav drops samples of the first frames, too
        begins, sizes = _begins(frames, unit, pauses), [frame.samples for frame in frames]
        known = [one for one in begins[1:] if one is not None]
        # Beside damage, the packets of FLAC that libav makes lack times.
        least = needed // 2 if sound.chosen.container.drops_damage else needed - 1
        if len(frames) < needed or begins[0] is None or len(known) < least:
            return None
        if max(known) - min(known) > 2 * unit:
            return None
        step = math.gcd(*sizes[1:], sound.least_samples)
        # mkvmerge's unit is that of one sample, in whole nanoseconds. Only packets of PCM may begin anywhere.
        is_exact = sound.codec.name.startswith("pcm_") and (unit == 1 or unit < _FINE)
        if step < unit and not is_exact:
            return None
        return cls(unit, _middle(known), pauses[0] + sizes[0], step, is_exact)

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
        slack = SLACK if self.unit <= EXACT else min(self.unit, self.step / 4)
        return nearest if abs(guess - nearest) <= slack else None


def _begins(
    frames: Iterable[AudioFrame], unit: float, pauses: Iterable[int] = repeat(0)
) -> list[float | None]:
    """When the first of these frames begins by the time of each, in samples; None for a frame without a time."""
    begins, count = list[float | None](), 0
    for frame, pause in zip(frames, pauses, strict=False):
        count += pause
        begins.append(None if frame.pts is None else frame.pts * unit - count)
        count += frame.samples
    return begins


def _middle(numbers: Sequence[float]) -> float:
    return (max(numbers) + min(numbers)) / 2


class PauseCounter:
    """Tells pauses, by the times of frames.

    If the times of the first frames are even, a pause may be as short as a lost packet: `Grid` tells that, too.

    Attributes:
        overlap: by how many samples the last frame begins before the end of those before, as a negative number.

    Args:
        sound: what the frames are read from.
        own: samples a second.
        unit: how many samples the unit of the times lasts.
        is_even: the times of frames before were even.
    """

    def __init__(self, sound: OpenSound, own: int, unit: float, *, is_even: bool = False) -> None:
        self._sound, self._own, self._unit, self._most = sound, own, unit, max(GAP_S * own, 2 * unit)
        self.overlap = 0
        self._count = 0.0
        self._began: float | None = None  # the time of the first sample, if there had been no pause
        # How many more frames show whether their times are even.
        self._unsure: float = 0 if is_even else _FIRST_FRAMES
        self._least = math.inf  # samples in the shortest frame
        self._due = math.nan  # when the next frame begins if there is no pause, in samples; NaN if unknown
        sound.has_lost = False  # on the way here
        known = sound.chosen.container
        self._counts_samples = known.drops_damage and not known.has_pages  # as the times of FLAC do

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
        is_lost, self._sound.has_lost = self._sound.has_lost or self._counts_samples, False
        if is_lost and self._began is None and self._unsure:
            first, time_base = self._sound.chosen.audio.start_s, self._sound.chosen.audio.time_base
            self._began = None if first is None else round(first / time_base) * self._unit
        late = 0.0 if self._began is None else began - self._began
        self.overlap = round(min(0.0, late)) if self._unit <= EXACT else 0
        is_sure = is_lost or not self._unsure
        most = self._most if not is_sure else min(self._most, max(self._least / 2, 2 * self._unit + SLACK))
        if self._unsure == _FIRST_FRAMES - 1 and abs(late) <= most and not is_lost:
            self._began, late = began, 0.0  # libav may have dropped samples of the first frame
        if self._unsure:
            self._unsure = self._unsure - 1 if is_lost or abs(late) <= 2 * self._unit else math.inf
        if self._began is None or late < -self._most:
            self._began = began
        if late <= most:
            self._due = pts + samples if self._unit == 1 and not self._unsure else math.nan
            return 0
        packets = round(late / self._least)
        if abs(late - packets * self._least) <= max(self._unit, SLACK):
            late = packets * self._least
        self._began += late
        # In Ogg, the samples that libav drops where another file begins are no pause.
        return max(0, round(late) - self._sound.dropped)
