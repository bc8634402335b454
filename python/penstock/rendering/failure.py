"""How a chunk failed, in words that travel between processes."""

from __future__ import annotations

import traceback
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a chunk was not rendered.

    Attributes:
        reason: in one line, or with FFmpeg's words.
        details: the traceback; empty if there is none.
    """

    reason: str
    details: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What `error` says."""
        reason = (
            str(error) if type(error).__module__ == "penstock.errors" else f"{type(error).__name__}: {error}"
        )
        return cls(reason, "".join(traceback.format_exception(error)))
