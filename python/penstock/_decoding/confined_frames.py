"""Any frame of a file, by libav in a confined process."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

from penstock._common.deadline import Deadline
from penstock._decoding.confined_engine import END, LATE, RECORD, Confined, isolation_of, packed
from penstock._decoding.random_access import RenumberedError
from penstock._facts.completeness import EndOfFile

if TYPE_CHECKING:
    from penstock._decoding.options import DecodeOptions
    from penstock._facts.confined_process import ConfinedProcess
    from penstock._facts.source import Source

T = TypeVar("T")

# Frames that are asked for at once. Chosen: their numbers fit into an empty pipe, so that nobody waits to ask.
_ASKED = 500


@dataclass(frozen=True, slots=True)
class ConfinedTimes:
    """When each frame of the file is shown, in units of the time base, and for how long the last one.

    And why frames seem to be missing at its end, and what is to be said of the file.
    """

    pts: tuple[int, ...]
    last_duration: int
    why_short: str | None
    warning: str | None

    def __len__(self) -> int:
        return len(self.pts)


class ConfinedFrames:
    """Frames at any places of a file, as `FramesByNumber` takes them. A process starts with the first one.

    Args:
        opened, options: of the decoder.
        frame_bytes: bytes of a frame.
    """

    def __init__(self, opened: Source, options: DecodeOptions, frame_bytes: int) -> None:
        # The caller of `frames` has counted in the part.
        self._start = partial(_PlacesSession, opened, options.of_all_frames, frame_bytes)
        self._run: _PlacesSession | None = None
        self._account: ConfinedTimes | None = None

    @property
    def account(self) -> ConfinedTimes:
        """The frames of the file, by the first process."""
        if self._account is None:
            self._account = self._running().shown
        return self._account

    def end(self) -> EndOfFile:
        """What shows at the end of the file."""
        return EndOfFile(self.account.why_short, self.account.warning)

    def frames(self, places: Iterable[int]) -> Iterator[tuple[int, memoryview]]:
        """The frames at these places, each once, or twice, of which the second one counts.

        Raises:
            RenumberedError: as `RandomAccess.frames`.
        """
        wanted = iter(sorted({*places}))
        while asked := [*islice(wanted, _ASKED)]:
            run = self._running()
            try:
                yield from run.frames(asked)
            except RenumberedError:
                self._account = run.shown
                raise
            except BaseException as error:
                # What it sends now is for nobody. After a strange answer it may send nothing.
                if not run.has_answered or error.__cause__ is not None:
                    self.close()
                raise

    def close(self) -> None:
        """Ends the process."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _running(self) -> _PlacesSession:
        if self._run is None:
            run = self._start()
            run.start()
            self._run = run
        return self._run


class _PlacesSession(Confined):
    """A process that sends frames at the places that it is asked for.

    Attributes:
        has_answered: it has answered all that it was asked.
    """

    # Set by `start`.
    shown: ConfinedTimes

    def __init__(self, opened: Source, options: DecodeOptions, frame_bytes: int) -> None:
        super().__init__(
            isolation_of(opened, options), f"<Decoder {opened.path!r}>", options.settings.stall_timeout
        )
        self._asked, self.frame_bytes = packed(options), frame_bytes
        self.has_answered, self._is_renumbered = True, False
        weakref.finalize(self, self._let_go, self.process)

    @staticmethod
    def _let_go(process: ConfinedProcess) -> None:
        """Ends the process without waiting, once nobody has the frames any more."""
        process.kill()
        process.close_pipes()

    def connect(self) -> None:
        self.shown = self.answer(self.process.call("shown", self._asked), ConfinedTimes)

    def frames(self, places: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        """The frames at these places."""
        # Twice at most: a frame may come again, once it was decoded without threads.
        self.has_answered, missing, left = False, {*places}, Counter(dict.fromkeys(places, 2))
        call = self.process.call("numbers", *places)
        while (record := self.wait_for(self._take, Deadline(None), LATE)) is not None:
            kind, place, _ = RECORD.unpack_from(record)
            if kind == END:
                break
            left[place] -= 1
            if left[place] < 0:
                raise self._strange(self.delivered)
            missing.discard(place)
            yield place, self._frame(record, place)[2]
        self.has_answered = record is not None
        renumbered = self.answer(call, cast("type[ConfinedTimes | None]", ConfinedTimes | None))
        # Once at most: otherwise a process that was taken over would have frames asked for without end.
        if renumbered is not None and not self._is_renumbered:
            self.shown, self._is_renumbered = renumbered, True
            raise RenumberedError
        if missing or not self.has_answered:
            raise self._strange(self.delivered)
