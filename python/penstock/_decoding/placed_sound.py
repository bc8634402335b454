"""The samples of an audio stream in the form in which they are delivered, from any place on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from av.error import FFmpegError as LibavError

from penstock._decoding.mixing import Kind, Mixer, SampleForm, first_of
from penstock._decoding.open_sound import OpenSound
from penstock._decoding.sound_times import EXACT, GAP_S, SLACK, Grid, PauseCounter
from penstock._facts.completeness import CHEAP_BYTES
from penstock._facts.container_bytes import has_damaged_page
from penstock._facts.index import NO_TIME, read_packets
from penstock._facts.opening import times_may_jump
from penstock._ffmpeg.command import endpoints
from penstock._formats import codecs
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.audio.frame import AudioFrame

    from penstock._facts.index import PacketTable

#: Chosen: samples of each channel in a block, 0.3 s of most sounds. The last block, and the last of silence, may have
#: fewer.
BLOCK_SAMPLES = 1 << 14
# Chosen: so long a decoder of a lossy codec has decoded before its samples are the same as from the beginning; and one
# that is soon right.
_PREROLL_S, _SHORT_PREROLL_S = 1.0, 0.5
# The filter of libav's resampler has 32 taps, at the lower of both rates. Chosen: twice as many.
_LEAD_TAPS = 64
# Measured: a seek in FLAC takes as long as to decode so many packets; in MP4, as one.
_SEEK_STEPS = 6


class Placed(NamedTuple):
    """Samples, and the place of the first one: how many come before it, from the first one of the audio on."""

    at: int
    samples: npt.NDArray[Any]

    @property
    def end(self) -> int:
        """The place behind the last one."""
        return self.at + len(self.samples)


class PlacedSound:
    """The samples of an audio stream in the form in which they are delivered, from any place on.

    A place counts samples at the delivered rate. It grows by a pause that the file's times have. Where they go back,
    as where files were joined, it goes on.

    Attributes:
        form: what is made of the samples.
    """

    def __init__(self, sound: OpenSound, form: SampleForm) -> None:
        self._chosen, self.form = sound.chosen, form
        self._own, self._rate = sound.chosen.audio.sample_rate, form.sample_rate
        self._sound, self._is_used = sound, False
        self._begin = 0
        self._going: Iterator[Placed] | None = None  # from `_begin` on
        self._stop: int | None = None  # samples before it may come late, in one block
        # After so many samples, libav's resampler is in the state in which it began.
        self._period = self._own // math.gcd(self._own, self._rate)
        self._lead = 0
        if self._own != self._rate:
            self._lead = math.ceil(_LEAD_TAPS * max(1.0, self._own / self._rate))
        preroll_s = _SHORT_PREROLL_S if codecs.known(sound.chosen.audio.codec).is_soon_right else _PREROLL_S
        self._preroll = 0 if self._sound.needs_none else round(preroll_s * self._own)

    @property
    def warning(self) -> str | None:
        """What is to be said of the end; None if that is nothing."""
        return self._sound.warning

    @property
    def nearby(self) -> float:
        """To a place that is not further ahead, decoding on is quicker than a seek."""
        grid = self._grid
        return (self._preroll + _SEEK_STEPS * grid.step) * self._rate / self._own if grid else math.inf

    def again(self) -> PlacedSound:
        """The same, of a second open file."""
        return PlacedSound(OpenSound(self._chosen), self.form)

    def blocks(self, begin: int, stop: int | None) -> Iterator[Placed]:
        """The samples from a place on, to another or somewhat further; None is the end.

        Raises:
            DecoderError: what follows is damaged or missing.
        """
        self._begin, self._going = begin, self._blocks(begin)
        return self.more(stop)

    def more(self, stop: int | None) -> Iterator[Placed]:
        """The samples behind those of the last call, as `blocks` gives them."""
        self._stop = stop
        for block in self._going or ():
            if block.at >= self._begin:
                yield block
            elif block.end > self._begin:
                yield Placed(self._begin, block.samples[self._begin - block.at :])
            if stop is not None and block.end >= stop:
                return

    def _blocks(self, begin: int) -> Iterator[Placed]:
        begun, is_needed = self._begun(begin), False
        try:
            for block in self._mixed(*begun):
                is_needed = is_needed or block.end > begin
                yield block
        except DecoderError:
            wanted, grid, found = self._wanted(begin), self._grid, None
            # What is damaged may lie before all that is needed: then decoding passes over it, from the beginning.
            if grid is not None and wanted and not begun[0] and not is_needed:
                found = self._sought_before(wanted, wanted - self._preroll, grid)
            if found is None:
                raise
            yield from self._mixed(*found)

    def _mixed(self, at: int, skipped: int, frames: Iterator[AudioFrame]) -> Iterator[Placed]:
        """The samples of frames, as `_begun` gives these."""
        place = (at + skipped) * self._rate // self._own
        mixer: Mixer | None = None
        held: list[AudioFrame | None] = []
        count, enough = -skipped, 0
        pieces = self._cut(frames, at)
        failure: DecoderError | StalledError | None = None
        while True:
            pause, frame = 0, cast("AudioFrame | None", None)
            try:
                pause, frame = next(pieces, (0, None))
            except (DecoderError, StalledError) as error:
                failure = error  # what was decoded before is delivered
            if mixer is not None and (frame is None or pause or not mixer.kind.is_of(frame)):
                for samples in mixer.push([*held, None] if failure is None else held):
                    yield Placed(place, samples)
                    place += len(samples)
                held, count, mixer = [], 0, None
            if failure is not None:
                raise failure
            if frame is None:
                return
            if mixer is None:
                mixer, skipped = self._mixer(Kind.of(frame), skipped), 0
                place += round(pause * self._rate / self._own)
            if not held:
                enough = self._enough(place, frame.samples)
            held.append(frame)
            count += frame.samples
            if count < enough:
                continue
            for samples in mixer.push(held):
                yield Placed(place, samples)
                place += len(samples)
            held, count = [], 0

    def _enough(self, place: int, in_frame: int) -> int:
        """How many samples of the file to mix at once behind a place: those that are wanted, or a block."""
        block = BLOCK_SAMPLES * self._own // self._rate
        missing = math.inf if self._stop is None else -(-(self._stop - place) * self._own // self._rate)
        return block - in_frame if missing > 2 * block else int(missing)

    def _cut(self, frames: Iterator[AudioFrame], at: int) -> Iterator[tuple[int, AudioFrame]]:
        """The frames, and how many samples are missing before each. The last one ends where the container says.

        libav before 9 leaves the padding at the end.
        """
        length = self._sound.length
        # Without times, there are no pauses.
        unit = self._sound.unit_samples if self._chosen.container.times_sound else 0.0
        counter = PauseCounter(self._sound, self._own, unit, is_even=at > 0)
        for frame in frames:
            pause, samples = counter.pause_before(frame), frame.samples
            at += pause + samples
            missing = samples if length is None else length - at + samples - counter.overlap
            if 0 < missing < samples:
                following = next(frames, None)
                if following is not None:  # the container is wrong
                    length = None
                    yield pause, frame
                    at += following.samples
                    pause, frame = counter.pause_before(following), following
                else:
                    frame = first_of(frame, missing)
            yield pause, frame

    def _mixer(self, kind: Kind, skipped: int) -> Mixer:
        try:
            return Mixer(kind, self.form, skipped, self._layout_of(kind))
        except ValueError as error:
            raise DecoderError(f"{self._chosen.path}: the audio can't be mixed: {error}") from error

    def _layout_of(self, _: Kind) -> str | None:
        """The layout of frames that don't tell it; None if they do."""
        return None

    def _begun(self, begin: int) -> tuple[int, int, Iterator[AudioFrame]]:
        """The number of the first sample of some frames, how many of these to skip, and the frames."""
        wanted = self._wanted(begin)
        if wanted > 2 * self._preroll + self._own and (found := self._sought(wanted)) is not None:
            return found
        if self._is_used:
            self._sound.rewind()
        self._is_used = True
        return 0, 0, self._sound.frames()

    def _wanted(self, begin: int) -> int:
        """The number of the first sample that is needed for those from a place on."""
        return max(0, begin * self._own // self._rate - self._lead) // self._period * self._period

    @cached_property
    def _listed(self) -> PacketTable | None:
        """All packets where libav guesses times behind a seek, as in Ogg; None elsewhere, and of a large file."""
        chosen = self._chosen
        container, identity = chosen.media.container, endpoints.identity(chosen.opened.url)
        if not times_may_jump(container) or identity is None or identity.size_bytes > CHEAP_BYTES:
            return None
        return read_packets(chosen.opened.url, container, chosen.audio.index)

    @property
    def _has_jumps(self) -> bool:
        """Whether a seek may lead anywhere, because times begin again."""
        chosen = self._chosen
        try:
            listed = self._listed
        except LibavError:  # as where a part has other channels
            return True
        if listed is None:
            may_jump = times_may_jump(chosen.media.container) and not endpoints.is_path(chosen.opened.url)
            return chosen.container.has_pages or may_jump
        path = endpoints.without_protocol(chosen.opened.url)
        # libav tells wrong times behind a damaged page of FLAC.
        if chosen.container.has_pages and self._sound.needs_none and has_damaged_page(path, 0, None):
            return True
        times = listed.dts[listed.dts != NO_TIME]
        # libav may let the times of chained Ogg go on. The file's duration is that of its last part all the same.
        whole_s = (self._chosen.media.duration_s or 0.0) + GAP_S
        lasts_s = float(listed.duration.sum() * self._chosen.audio.time_base)
        return bool((np.diff(times) < 0).any() or lasts_s > whole_s)

    @cached_property
    def _grid(self) -> Grid | None:
        """How times tell samples; None if they don't, or if a seek may lead anywhere."""
        if self._has_jumps:
            return None
        _, _, frames = self._begun(0)
        grid: Grid | None = None
        with suppress(DecoderError), self._over_damage():
            grid = Grid.of(self._sound, frames)
        if grid is not None and self._sound.needs_only_last:
            self._preroll = min(self._preroll, 2 * grid.step)  # `_sought` needs half of it
        return grid

    def _sought(self, wanted: int) -> tuple[int, int, Iterator[AudioFrame]] | None:
        """`_begun` by a seek to some time before a sample; None if that doesn't lead there for sure."""
        if (grid := self._grid) is None:
            return None
        self._is_used = True
        is_close = grid.unit <= EXACT and (self._sound.needs_only_last or self._sound.needs_none)
        slacks = (0, 2 * grid.step) if is_close else (2 * grid.step,)
        return next(filter(None, (self._sought_before(wanted, slack, grid) for slack in slacks)), None)

    def _sought_before(
        self, wanted: int, slack: int, grid: Grid
    ) -> tuple[int, int, Iterator[AudioFrame]] | None:
        target = wanted - self._preroll - slack
        if not self._sound.seek(math.floor((target + grid.zero) / grid.unit)):
            return None
        frames = self._sound.frames()
        ahead: list[AudioFrame] = []
        with suppress(DecoderError), self._over_damage():  # the first packets need those before
            ahead = self._decoded_to(wanted, frames, grid)
        at = grid.sample(ahead) if ahead and self._is_listed else None
        if at is None or at > wanted - self._preroll // 2:
            return None
        while ahead and at + ahead[0].samples <= wanted:
            at += ahead.pop(0).samples
        return at, wanted - at, chain(ahead, frames)

    @contextmanager
    def _over_damage(self) -> Iterator[None]:
        """Damage is no error meanwhile."""
        self._sound.is_strict = False
        try:
            yield
        finally:
            self._sound.is_strict = self._chosen.is_strict

    @property
    def _is_listed(self) -> bool:
        """Whether the last packet has the time that it has when the file is read from its beginning."""
        listed, packet = self._listed, self._sound.packet
        return listed is None or (packet is not None and listed.find(cast("Any", packet)) is not None)

    def _decoded_to(self, wanted: int, frames: Iterator[AudioFrame], grid: Grid) -> list[AudioFrame]:
        """Frames that follow each other, up to a sample or to the end; none if they don't tell."""
        ahead: list[AudioFrame] = []
        began, count = 0.0, 0
        for frame in frames:
            if frame.sample_rate != self._own:
                return []
            if frame.pts is None:  # beside damage
                ahead.clear()
                continue
            time = frame.pts * grid.unit
            if not ahead or abs(time - count - began) > 2 * grid.unit + SLACK:  # one is missing in between
                ahead.clear()
                began, count = time, 0
            ahead.append(frame)
            count += frame.samples
            if began + count - grid.zero > wanted + grid.unit:
                return ahead
        if self._chosen.is_strict:
            self._sound.check_end()
        return ahead

    def close(self) -> None:
        """Closes the file."""
        self._sound.close()
