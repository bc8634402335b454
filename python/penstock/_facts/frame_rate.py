"""The frame rate of a video, by the times of its first packets and by what the container says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._facts.beginnings import FIRST_PACKETS, Beginning
from penstock._facts.index import REORDERED
from penstock._facts.opening import decode, has_no_times
from penstock._formats import containers
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.stream import VideoStream

    from penstock._facts.index import Packet

# Guessed: containers round times to 1 ms, so the two rates of constant-rate video differ by less.
_RATE_TOLERANCE = 0.01
# Rates of NTSC are whole numbers divided by this.
_NTSC = Fraction(1001, 1000)
# Chosen: so many times show a rate.
_FEWEST = 3
# libav makes a fraction of Matroska's nanoseconds, with terms below 30,000.
_STATED_TOLERANCE = 1e-6
# The coarsest unit of times of a container for video; and chosen: the part of a frame's duration that it may be.
_COPIED_UNIT_S, _COPIED_SHARE = Fraction(1, 1000), Fraction(1, 4)
# Chosen: no interlaced video has more frames per second.
_MOST_INTERLACED = 40
# Chosen: so many packets tell fields from frames, whatever the codec holds back.
_FIELDS = 8


def rate_of(stream: VideoStream, first: Beginning, *, is_interlaced: bool) -> tuple[Fraction | None, bool]:
    """Frames per second, and whether that varies."""
    rate, is_variable = _packet_rate(stream, first, is_interlaced=is_interlaced)
    if rate is not None and is_interlaced and rate > _MOST_INTERLACED:
        stated = fraction(stream.codec_context.framerate)
        if stated == rate / 2 or _are_fields(stream, first.packets):
            return rate / 2, is_variable
    return rate, is_variable


def _packet_rate(
    stream: VideoStream, first: Beginning, *, is_interlaced: bool
) -> tuple[Fraction | None, bool]:
    """Packets per second, or pairs of packets if the times show that they are fields."""
    average, base, guessed = map(fraction, (stream.average_rate, stream.base_rate, stream.guessed_rate))
    if has_no_times(stream.container.format.name) and guessed is not None:
        return _raw_rate(fraction(stream.codec_context.framerate) or guessed, stream, first)
    times, time_base = first.shown_times, fraction(stream.time_base)
    # A packet at the time of another one shows nothing: VP8 and VP9 have such.
    known = sorted({one for one in times if one is not None})
    ordered = known[:-REORDERED] if len(known) >= REORDERED + _FEWEST else known
    if None not in times and len(known) >= _FEWEST and guessed is not None and time_base:
        ticks = [one - ordered[0] for one in ordered]
        measured = (len(ordered) - 1) / (ticks[-1] * time_base)
        for rate in filter(None, (guessed, average, base)):
            if _is_at(rate, ticks, time_base, is_interlaced=is_interlaced):
                return _usual_rate(rate, dict(enumerate(ticks)), time_base) or rate, False
        numbered = dict(enumerate(ticks))
        if _are_at(measured, numbered, time_base, units=Fraction(1, 2)):
            return measured, False
        usual = _usual_rate(measured, numbered, time_base)
        return usual or measured, usual is None
    if times and not known and guessed is not None:  # a stream without times, for which libav makes some
        return guessed, False
    if average is None and base is not None and base * (time_base or 0) == 1:
        base = None  # libav had nothing to guess from, and tells the frequency of the clock, mostly 90000
    if average is not None and time_base and (listed := _indexed(stream)):
        usual = _usual_rate(average, listed, time_base)
        if usual is not None:
            return usual, False
    # Where some packets have no time (MPEG-PS), it counts fields, too.
    counts_fields = is_interlaced or None in times
    return average or base, _differ(average, base, counts_fields=counts_fields)


def _raw_rate(rate: Fraction, stream: VideoStream, first: Beginning) -> tuple[Fraction, bool]:
    """The rate of a stream without times. Frames last longer if fields are shown again, as in films for television."""
    durations = [packet.duration or 0 for packet in first.packets if (packet.duration or 0) > 1]
    durations = durations[: len(durations) // 2 * 2]  # usually, every other one is longer
    mean = Fraction(sum(durations), len(durations) or 1) * (stream.time_base or 0)
    return (1 / mean, len({*durations}) > 1) if mean * rate > 1 else (rate, False)


def _is_at(rate: Fraction, ticks: Sequence[int], time_base: Fraction, *, is_interlaced: bool) -> bool:
    """Whether each frame, or one of its two fields, is nearer to its time at a constant rate than to any other."""
    # In whole numbers, because fractions took a fifth of the time of `probe`.
    frames, per_ticks = (time_base * rate).as_integer_ratio()
    if is_interlaced:
        halves = ((4 * tick * frames + per_ticks) // (2 * per_ticks) for tick in ticks)
        numbers = sorted({half // 2 for half in halves})
        return numbers == [*range(len(numbers))]
    return all(2 * abs(tick * frames - number * per_ticks) < per_ticks for number, tick in enumerate(ticks))


def _usual_rate(rate: Fraction, ticks: Mapping[int, int], time_base: Fraction) -> Fraction | None:
    """A rate that people use, and that `rate` is because of the unit of times; None if the times disagree.

    Args:
        ticks: of some frames, by their numbers, the time since the first one.
    """
    if (1 / (rate * time_base)).denominator == 1:
        return None
    whole, ntsc = Fraction(round(rate)), Fraction(round(rate * _NTSC)) / _NTSC
    # Matroska states a rate exactly, but for a rounding.
    usual = (ntsc, whole) if abs(ntsc - rate) < _STATED_TOLERANCE * rate else (whole, ntsc)
    # Times may have been rounded before: a file may be copied from Matroska, whose unit is 1 ms.
    copied = min(_COPIED_UNIT_S, _COPIED_SHARE / rate) / time_base
    # Most programs round times to the nearest unit, and some leave out what is less than one.
    for units, one in itertools.product((Fraction(1, 2), Fraction(1), copied), usual):
        if one and _are_at(one, ticks, time_base, units=units):
            return one
    return None


def _are_at(rate: Fraction, ticks: Mapping[int, int], time_base: Fraction, *, units: Fraction) -> bool:
    """Whether frames, whose times are as for `_usual_rate`, are so close to their times at a constant rate."""
    frames, per_ticks = (time_base * rate).as_integer_ratio()
    return all(abs(tick * frames - number * per_ticks) <= units * frames for number, tick in ticks.items())


def _indexed(stream: VideoStream) -> dict[int, int]:
    """When some of the packets are decoded that QuickTime or MP4 lists, from the first to the last ones."""
    entries = stream.index_entries
    if not containers.known(stream.container.format.name).has_boxes or len(entries) < _FEWEST:
        return {}
    numbers, first = range(0, len(entries), len(entries) // FIRST_PACKETS or 1), entries[0].timestamp
    return {number: entries[number].timestamp - first for number in numbers}


def _are_fields(stream: VideoStream, packets: Sequence[Packet]) -> bool:
    """Whether two packets make a frame."""
    own = cast("Any", av.CodecContext.create(stream.codec_context.name, "r"))
    own.extradata, own.thread_type = stream.codec_context.extradata, ThreadType.NONE
    frames = 0
    for packet in (*packets[:_FIELDS], None):
        with suppress(LibavError, DecoderError, EOFError):
            frames += len(decode(own, packet))
    return 0 < frames <= len(packets[:_FIELDS]) * 3 // 4


def _differ(average: Fraction | None, base: Fraction | None, *, counts_fields: bool) -> bool:
    if average is None or base is None:
        return False
    ratio = base / average
    # For interlaced video the base rate may count fields.
    return all(abs(ratio - same) > _RATE_TOLERANCE for same in ((1, 2) if counts_fields else (1,)))


def fraction(rational: Any) -> Fraction | None:
    """A rational number of libav's, of whichever type PyAV has for it; None for 0."""
    return Fraction(rational.numerator, rational.denominator) if rational else None
