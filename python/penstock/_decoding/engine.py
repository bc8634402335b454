"""What a `Decoder` needs of an engine, which gives the frames of a source in sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock._common.reports import DecoderEngine, DecoderStats
    from penstock._decoding.account import Account
    from penstock._decoding.open_video import OpenVideo
    from penstock._decoding.plan import DecodePlan
    from penstock._decoding.sequence import SequenceFrame
    from penstock._facts.questions import Questions
    from penstock._native import AppliedPolicy


@dataclass(frozen=True, slots=True)
class Made:
    """A frame's number from 0, its time in units of the stream's time base, and its memory."""

    index: int
    pts: int | None
    memory: Any


class Engine(Protocol):
    """Gives frames in sequence: libav in this process, or an FFmpeg program.

    Attributes:
        plan: how frames are made.
        questions: answers what else there is to know of the file.
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    plan: DecodePlan
    questions: Questions
    warning: str | None

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller."""

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""

    @property
    def account(self) -> Account | None:
        """Which packet gave which frame, if iteration has read all; else None."""

    def lend(self) -> tuple[SequenceFrame, OpenVideo | None] | None:
        """The first frame of libav's as long as it waits to be read, with the open file if nothing else was decoded."""

    @property
    def pid(self) -> int | None:
        """The process id of the program; None if none runs."""

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that the program started with; None if it has none."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""

    def check_open(self) -> None:
        """Checks that it was not closed."""

    def read_ahead(self) -> None:
        """Begins before the first read."""

    def read(self, timeout: float | None = None) -> Made | None:
        """The next frame; None at the end."""

    async def read_async(self) -> Made | None:
        """`read` for asyncio. A task that is cancelled while it waits loses no frame."""

    def close(self) -> None:
        """Ends it at once. What was delivered stays valid. May be called again, also by a signal handler."""

    def end_collected(self) -> None:
        """Ends it when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
