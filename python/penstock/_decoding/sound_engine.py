"""Reads the audio of a file by libav, in this process."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock._common.deadline import Deadline
from penstock._common.reports import DecoderEngine
from penstock._decoding.placed_sound import BLOCK_SAMPLES, Placed
from penstock._decoding.turns import Turns
from penstock._ffmpeg.command import endpoints
from penstock.errors import DecoderError, FFmpegWarning, StalledError

if TYPE_CHECKING:
    from penstock._decoding.mixing import SampleForm
    from penstock._facts.source import Source


class Sound(Protocol):
    """Gives samples from any place on: a `PlacedSound` does in this process, a `ConfinedSound` in another one."""

    @property
    def form(self) -> SampleForm:
        """What is made of the samples."""

    @property
    def warning(self) -> str | None:
        """What is to be said of the end; None if that is nothing."""

    @property
    def nearby(self) -> float:
        """To a place that is not further ahead, decoding on is quicker than a seek."""

    def again(self) -> Sound:
        """The same, of a second open file."""

    def blocks(self, begin: int, stop: int | None) -> Iterator[Placed]:
        """The samples from a place on, to another or somewhat further; None is the end."""

    def more(self, stop: int | None) -> Iterator[Placed]:
        """The samples behind those of the last call."""

    def close(self) -> None:
        """Closes the file."""


class SoundEngine(Turns[npt.NDArray[Any]]):
    """Gives blocks of samples, and those of windows anywhere in the file.

    Args:
        opened: the file.
        sound: its samples.
        title: of the decoder.
        part: places to begin with and to end before; None is the end of the audio. Places before the first sample are
            silent.
    """

    late = "libav decoded no audio"

    def __init__(self, opened: Source, sound: Sound, title: str, part: tuple[int, int | None]) -> None:
        self._is_file = endpoints.is_path(opened.url)
        super().__init__(may_hang=not self._is_file)
        self._source, self._first, self._form, self._title = opened, sound, sound.form, title
        self._is_taken = False  # the first one
        self._place, self._stop = part
        self._sound: Sound | None = None
        self._blocks: Iterator[Placed] | None = None
        self._ahead: list[Placed] = []
        self._windows: Sound | None = None
        self._failure: DecoderError | StalledError | None = None
        self._is_fed = self._is_used = False

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller."""
        return DecoderEngine("libav", f"libav reads {'files' if self._is_file else 'URLs'}, in this process")

    def _taken(self) -> Sound:
        is_taken, self._is_taken = self._is_taken, True
        return self._first.again() if is_taken else self._first

    # --- in sequence -------------------------------------------------------------------------------------------------

    def _made(self, deadline: Deadline) -> npt.NDArray[Any] | None:
        if self._place < 0 and not self._ahead:
            return self._silence()
        self._fill(deadline)
        self.check_usable()  # a signal handler or another thread may have closed it
        if not self._ahead:
            if self._failure is not None:
                raise self._failure
            return None
        block, missing = list[npt.NDArray[Any]](), BLOCK_SAMPLES
        while self._ahead and missing:
            at, samples = self._ahead.pop(0)
            block.append(samples[:missing])
            if len(samples) > missing:
                self._ahead.insert(0, Placed(at + missing, samples[missing:]))
            self._place = at + len(block[-1])
            missing -= len(block[-1])
        return np.concatenate(block)

    def _silence(self) -> npt.NDArray[Any] | None:
        stop = 0 if self._stop is None else min(0, self._stop)
        count = min(BLOCK_SAMPLES, stop - self._place)
        self._place += count
        return silence((count, self._form.channels), self._form.dtype) if count > 0 else None

    def _fill(self, deadline: Deadline) -> None:
        """Decodes until there is a block, or the end."""
        sound = self._sound = self._sound or self._taken()
        if self._blocks is None:
            self._blocks = sound.blocks(self._place, self._stop)
            self._is_fed = self._stop is not None and self._place >= self._stop
        while not self._is_fed and sum(len(one.samples) for one in self._ahead) < BLOCK_SAMPLES:
            self.check_usable()
            try:
                block = next(self._blocks, None)
            except (DecoderError, StalledError) as failure:
                self._failure, self._is_fed = failure, True
                return
            if block is not None and self._stop is not None:
                block = Placed(block.at, block.samples[: max(0, self._stop - block.at)])
                self._is_fed = block.end >= self._stop
            if block is None:
                self._is_fed = True
            elif len(block.samples):
                self._ahead.append(block)
            if not self._is_fed and deadline.is_over():
                raise deadline.late(self.late)

    def _go_back(self) -> None:
        self._ahead.clear()
        self._blocks, self._failure, self._is_fed = None, None, False

    def _took(self, made: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        self._is_used = made is not None
        if made is None and self._sound is not None and self._sound.warning is not None:
            warning = FFmpegWarning(f"{self._source.path}: {self._sound.warning}")
            warnings.warn(warning, stacklevel=4)
        return made

    # --- anywhere ----------------------------------------------------------------------------------------------------

    def windows(self, begins: Sequence[int], count: int) -> tuple[npt.NDArray[Any], list[tuple[int, int]]]:
        """The samples of windows that begin with these places, and which part of each lies in the audio."""
        self.check_usable()
        with self._turn(Deadline(None)):
            sound = self._windows = self._windows or self._taken()
            try:
                return _windows_of(sound, begins, count, self._form)
            except BaseException:
                self._windows = None
                sound.close()
                raise

    # --- closing -----------------------------------------------------------------------------------------------------

    def end_collected(self) -> None:
        """Closes the file when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        self._close_collected(self._title, is_used=self._is_used)

    def _free(self) -> None:
        self._ahead.clear()
        self._blocks = None
        for sound in (self._first if not self._is_taken else None, self._sound, self._windows):
            if sound is not None:
                sound.close()
        self._is_taken, self._sound, self._windows = True, None, None


def _windows_of(
    sound: Sound, begins: Sequence[int], count: int, form: SampleForm
) -> tuple[npt.NDArray[Any], list[tuple[int, int]]]:
    made, parts = silence((len(begins), count, form.channels), form.dtype), [(0, 0)] * len(begins)
    ahead, reached, is_over, nearby = list[Placed](), -math.inf, False, sound.nearby
    for number in sorted(range(len(begins)), key=begins.__getitem__):
        begin, stop = begins[number], begins[number] + count
        if stop <= 0:
            continue
        ahead = [one for one in ahead if one.end > begin]
        if reached < stop and not is_over:
            is_near = begin <= reached + nearby
            for block in sound.more(stop) if is_near else sound.blocks(max(0, begin), stop):
                reached = block.end
                if reached > begin:
                    ahead.append(block)
            is_over = reached < stop
        for at, samples in ahead:
            first, last = max(at, begin), min(at + len(samples), stop)
            if first < last:
                made[number, first - begin : last - begin] = samples[first - at : last - at]
        parts[number] = min(count, max(0, -begin)), max(0, min(count, int(max(reached, 0)) - begin))
    return made, parts


def silence(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Samples of silence."""
    return np.full(shape, 128, dtype) if dtype == "uint8" else np.zeros(shape, dtype)
