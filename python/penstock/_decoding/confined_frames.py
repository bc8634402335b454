"""Any frame of a file, by libav in a confined process."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._common.deadline import Deadline
from penstock._decoding.confined_engine import LATE, Confined, isolation_of
from penstock._decoding.confined_records import FRAME, RECORD
from penstock._decoding.random_access import RenumberedError
from penstock.errors import DecoderError, StalledError

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock._decoding.options import DecodeOptions
    from penstock._facts.confined_process import ConfinedProcess
    from penstock._facts.source import Source

#: Records that end an answer, with the error after it, as text of at most so many bytes.
END, FAILED, ERROR_BYTES = b"the end\n", b"failed!\n", 4096
#: A record that says that numbers stand for other frames. Then the process prints `Shown` once more.
RENUMBERED = b"others!\n"
# Frames that are asked for at once. Chosen: their numbers fit into an empty pipe, so that nobody waits to ask.
_ASKED = 500


@dataclass(frozen=True, slots=True)
class Shown:
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
        self._start = partial(_Run, opened, options.of_all_frames, frame_bytes)
        self._run: _Run | None = None
        self._account: Shown | None = None

    @property
    def account(self) -> Shown:
        """The frames of the file, by the first process."""
        if self._account is None:
            self._account = self._running().shown
        return self._account

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
            except BaseException:
                if not run.is_done:  # what it sends now is for nobody
                    self.close()
                raise

    def close(self) -> None:
        """Ends the process."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _running(self) -> _Run:
        if self._run is None:
            run = self._start()
            run.start()
            self._run = run
        return self._run


class _Run(Confined):
    """A process that sends frames at the places that it is asked for.

    Attributes:
        is_done: it has answered all that it was asked.
    """

    # Set by `start`.
    shown: Shown

    def __init__(self, opened: Source, options: DecodeOptions, frame_bytes: int) -> None:
        isolation = isolation_of(opened, options)
        super().__init__(isolation, options, 2, f"<Decoder {opened.path!r}>", by_number=True)
        self._frame_bytes, self.is_done, self._is_renumbered = frame_bytes, True, False
        weakref.finalize(self, self._let_go, self.process)

    @property
    def record_bytes(self) -> int:
        return max(self._frame_bytes, ERROR_BYTES)

    @staticmethod
    def _let_go(process: ConfinedProcess) -> None:
        """Ends the process without waiting, once nobody has the frames any more."""
        process.kill()
        process.close_pipes()

    def connect(self) -> None:
        self.shown = self._shown(0)

    def _shown(self, number: int) -> Shown:
        printed = self.wait_for(self._answered, Deadline(None), LATE, number)
        return self.isolation.answer(printed, Shown, self.process)

    def frames(self, places: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        """The frames at these places."""
        self.is_done, wanted, missing = False, frozenset(places), {*places}
        self._tell(json.dumps(places).encode() + b"\n")
        for _ in range(2 * len(places) + 1):
            if (record := self.wait_for(self._take, Deadline(None), LATE)) is None:
                self._kill()
                self.isolation.answer(b"", Shown, self.process)  # raises
                return
            kind, place, length = RECORD.unpack_from(record)
            if kind == FRAME and place in wanted:
                missing.discard(place)
                yield place, memoryview(record)[RECORD.size :][: self._frame_bytes]
            elif kind == FAILED and 0 <= length <= ERROR_BYTES:
                self.is_done = True
                raise DecoderError(bytes(memoryview(record)[RECORD.size :][:length]).decode(errors="replace"))
            elif kind == RENUMBERED and not self._is_renumbered:
                self.shown = self._shown(1)
                self.is_done = self._is_renumbered = True
                raise RenumberedError
            elif kind == END and not missing:
                self.is_done = True
                return
            else:
                break
        self._kill()
        raise self._strange(self.delivered)

    def _answered(self, number: int, timeout_s: float) -> bytes:
        if (printed := self.process.answer(number, timeout_s)) is None:
            raise StalledError(LATE, timeout_s)
        return printed


class Delivered:
    """Makes nothing of these frames: they are arrays already."""

    ahead = 0

    def begin(self, frame: memoryview, out: npt.NDArray[Any] | None = None) -> _Copy:
        return _Copy(frame, out)

    def close(self) -> None:
        """Has nothing to free."""


@dataclass(frozen=True, slots=True)
class _Copy:
    frame: memoryview
    out: npt.NDArray[Any] | None

    def wait(self) -> memoryview | None:
        if self.out is None:
            return self.frame
        self.out[...] = np.frombuffer(self.frame, self.out.dtype).reshape(self.out.shape)
        return None
