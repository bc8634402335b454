"""Decodes a file in a process that confines itself first, and sends the frames. `Confined` runs it."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._common.control_groups import whole_cpus
from penstock._decoding.confined_engine import END, FRAME, RECORD
from penstock._decoding.confined_frames import ConfinedTimes
from penstock._decoding.engines import read_in_process
from penstock._decoding.program_frames import written_packets
from penstock._decoding.random_access import RenumberedError
from penstock._facts import confined_child
from penstock._facts.confined_child import Calls
from penstock._facts.exact_json import unpack
from penstock._ffmpeg.command.settings import DecoderSettings
from penstock._native import Writer

if TYPE_CHECKING:
    from penstock._decoding.decoder import Decoder
    from penstock._decoding.libav_engine import LibavEngine
    from penstock._decoding.open_sound import OpenSound
    from penstock._decoding.placed_sound import Placed, PlacedSound
    from penstock._facts.info import MediaInfo
    from penstock._facts.source import Source

# Writes that wait for the pipe. Chosen: those of a frame that is written, and of one that is ready.
_QUEUED = 2 * 2


class FrameCalls(Calls):
    """The same, and those that send frames."""

    # Set by `opened`, or `shown`.
    engine: LibavEngine
    decoder: Decoder
    # Set by `sound`, and `mixed`.
    open_sound: OpenSound
    placed: PlacedSound

    def __init__(self, source: Source, records: int) -> None:
        super().__init__(source, records)
        self._writer = Writer(records, queue_items=_QUEUED, reader_copies=True)
        os.close(records)

    def opened(self, options: str) -> MediaInfo:
        """The facts about the file, which is opened to be read in sequence."""
        try:
            self.engine = read_in_process(self.source, pickle.loads(bytes.fromhex(options)))
        except (ValueError, TypeError) as error:
            print(error, file=sys.stderr)
            return self.media()  # whoever gave the options finds the same fault in them
        return self.engine.plan.track.media

    def about(self, _: int, question: str, *arguments: Any) -> Any:
        """The answer to one of `FileChecks` about the video stream."""
        return getattr(self.engine.checks, question)(*arguments)

    def frames(self) -> tuple[int, str | None]:
        """Sends all frames in sequence, and then closes the pipe. Returns their number, and a warning."""
        count = 0
        with warnings.catch_warnings(record=True) as caught, self._writer:
            warnings.simplefilter("always")
            while (made := self.engine.read()) is not None:
                self._send(made.index, made.pts, made.memory)
                count += 1
        return count, self._words(caught, self.engine.warning)

    def shown(self, options: str) -> ConfinedTimes:
        """When the frames are shown that `numbers` sends."""
        from penstock._decoding.decoder import Decoder  # which a sequence does not need

        with warnings.catch_warnings(record=True):  # which whoever reads in sequence has given
            self.decoder = Decoder(self.source, **pickle.loads(bytes.fromhex(options)).arguments)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shown = self._shown()
        # Otherwise the words are about why frames are missing.
        return shown if shown.why_short is not None else replace(shown, warning=self._words(caught))

    def _shown(self) -> ConfinedTimes:
        frames = self.decoder._frames()
        pts = tuple(map(int, frames.times.pts))
        return ConfinedTimes(pts, frames.times.last_duration if pts else 0, frames.why_short, None)

    def numbers(self, *numbers: int) -> ConfinedTimes | None:
        """Sends the frames of these numbers. Returns when all are shown if the numbers stand for others now."""
        try:
            for number, frame in self.decoder._frames().decoded(numbers):
                self._send(number, frame.pts, frame)
        except RenumberedError:
            return self._shown()
        finally:
            self._writer.write(RECORD.pack(END, 0, 0) + bytes(self.decoder.frame_bytes))
        return None

    def written(self, descriptor: int, time_base: list[int], frame_bytes: int) -> tuple[int, None]:
        """Sends the frames that a program writes to a pipe, as `frames` does."""
        count = 0
        with self._writer:
            for pts, packet in written_packets(descriptor, Fraction(*time_base), frame_bytes):
                self._send(count, pts, packet)
                count += 1
        return count, None

    def sound(self, stream: int | None, threads: int | None, is_strict: bool) -> MediaInfo:
        """The facts about the file, whose audio is opened."""
        from penstock._decoding.open_sound import open_once  # which frames do not need

        settings = DecoderSettings(threads=threads)
        try:
            self.open_sound = open_once(self.source, stream, settings, is_strict=is_strict)
        except (ValueError, TypeError):
            return self.media()  # whoever gave the number finds the same fault in it
        return self.open_sound.chosen.media

    def mixed(self, form: dict[str, Any]) -> None:
        """Says what is made of the samples."""
        from penstock._decoding.mixing import SampleForm
        from penstock._decoding.placed_sound import PlacedSound

        self.placed = PlacedSound(self.open_sound, unpack(SampleForm, form))

    def nearby(self) -> float:
        """As `PlacedSound.nearby`."""
        return self.placed.nearby

    def blocks(self, begin: int, stop: int | None) -> str | None:
        """Sends `PlacedSound.blocks`. Returns what is to be said of the end."""
        return self._send_samples(self.placed.blocks(begin, stop))

    def more(self, stop: int | None) -> str | None:
        """The same for `PlacedSound.more`."""
        return self._send_samples(self.placed.more(stop))

    def _send_samples(self, blocks: Iterable[Placed]) -> str | None:
        from penstock._decoding.placed_sound import BLOCK_SAMPLES

        form = self.placed.form
        try:
            for at, samples in blocks:
                for first in range(0, len(samples), BLOCK_SAMPLES):
                    piece = samples[first : first + BLOCK_SAMPLES]
                    # Records are all as long.
                    padded = np.zeros((BLOCK_SAMPLES, form.channels), form.dtype)
                    padded[: len(piece)] = piece
                    self._send(at + first, len(piece), padded)
        finally:
            size = BLOCK_SAMPLES * form.channels * np.dtype(form.dtype).itemsize
            self._writer.write(RECORD.pack(END, 0, 0) + bytes(size))
        return self.placed.warning

    def _send(self, number: int, pts: int | None, data: Any) -> None:
        self._writer.write(RECORD.pack(FRAME, number, pts))
        self._writer.submit(data)

    def _words(self, caught: Sequence[warnings.WarningMessage], last: str | None = None) -> str | None:
        """What is to be said of the file: what was warned of, without the file's name, and one thing more."""
        messages = [str(one.message).removeprefix(f"{self.source.path}: ") for one in caught]
        return "; ".join([*messages, *filter(None, [last])]) or None


def main(records: int) -> None:
    """Answers calls."""
    whole_cpus()  # which reads its files once
    confined_child.main(records, FrameCalls)
