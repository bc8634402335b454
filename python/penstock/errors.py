"""Errors, grouped by their cause.

```
PenstockError
├── ClosedError        (also ValueError)        you closed it
├── BrokenStreamError  (also BrokenPipeError)   the peer went away
├── StalledError       (also TimeoutError)      the peer is there and moves no bytes
├── TruncatedStreamError (also EOFError)        the peer ended in the middle of a frame
├── FFmpegError        (also RuntimeError)      FFmpeg failed
│   ├── EncoderError                            to encode
│   └── DecoderError                            to read or decode
├── RenderError                                 a scene raised, or a chunk failed three times
└── PipelineError                               a chunk of a pipeline failed, or your callable
    ├── ChunkDataError (also ValueError)        it is corrupt, truncated or too large
    └── ChunkReadError (also OSError)           the system couldn't read it
```

`FFmpegWarning` is a warning: a video can't hold everything that you passed, or a file's header is wrong.

If the operating system fails in another way, you get an ``OSError`` with its ``errno``. A failed stream also sets
``bytes_delivered`` and ``bytes_lost``. Wrong arguments raise ``TypeError`` or ``ValueError`` at the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PenstockError(Exception):
    """The base class of all errors that Penstock defines."""


class ClosedError(PenstockError, ValueError):
    """You used an object after its ``close`` or ``abort``."""


class BrokenStreamError(PenstockError, BrokenPipeError):
    """The reader of a stream went away before it had read everything.

    Attributes:
        errno: the system's error number, usually ``EPIPE`` or ``ECONNRESET``.
        bytes_delivered: bytes of this stream that reached the reader (pipe) or the kernel (socket).
        bytes_lost: bytes of this stream that were accepted and not delivered.
    """

    def __init__(self, errno: int, strerror: str, bytes_delivered: int = 0, bytes_lost: int = 0) -> None:
        super().__init__(errno, strerror)
        self.bytes_delivered = bytes_delivered
        self.bytes_lost = bytes_lost


class StalledError(PenstockError, TimeoutError):
    """The peer didn't read or write in time. Nothing is lost yet, unless a relay raised this.

    Attributes:
        seconds: how long the call waited.
        bytes_pending: bytes that weren't delivered yet when the call gave up; for a ``Reader``, bytes that the
            incomplete frame still needed.
        bytes_delivered: for a relay, bytes that it had moved by then.
        bytes_lost: for a relay that has ended, bytes that had left its source and weren't delivered.
    """

    bytes_delivered: int = 0
    bytes_lost: int = 0

    def __init__(self, message: str, seconds: float = 0.0, bytes_pending: int = 0) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.bytes_pending = bytes_pending


class TruncatedStreamError(PenstockError, EOFError):
    """A stream ended in the middle of a frame. All whole frames came before this error.

    Attributes:
        frames: number of whole frames in the stream.
        frame_bytes: size of a frame in bytes.
        bytes_over: bytes of the incomplete frame that arrived.
    """

    def __init__(self, message: str, frames: int = 0, frame_bytes: int = 0, bytes_over: int = 0) -> None:
        super().__init__(message)
        self.frames = frames
        self.frame_bytes = frame_bytes
        self.bytes_over = bytes_over


class PipelineError(PenstockError):
    """A chunk of a pipeline failed. If your callable raised, its exception is the ``__cause__``.

    Attributes:
        name: the chunk's name, usually the path of its file.
        offset: the byte of its file or stream where the failure was found; the chunk's first byte if nothing more
            precise is known.
        index: the chunk's number in its source, from 0.
        stage: the part of the pipeline in which it failed.
        reason: why it failed.
    """

    def __init__(self, reason: str, name: str = "", offset: int = 0, index: int = 0, stage: str = "") -> None:
        super().__init__(reason, name, offset, index, stage)
        self.reason = reason
        self.name = name
        self.offset = offset
        self.index = index
        self.stage = stage

    def __str__(self) -> str:
        return f"{self.name}, byte {self.offset} ({self.stage}): {self.reason}"


class ChunkDataError(PipelineError, ValueError):
    """A chunk is corrupt, truncated, or larger than ``max_chunk_bytes``."""


class ChunkReadError(PipelineError, OSError):
    """The operating system failed to read or write a chunk.

    Attributes:
        errno: the system's error number.
        filename: the chunk's name.
    """

    def __init__(
        self, errno: int, strerror: str, name: str = "", offset: int = 0, index: int = 0, stage: str = ""
    ) -> None:
        PipelineError.__init__(self, strerror, name, offset, index, stage)
        self.errno = errno
        self.strerror = strerror
        self.filename = name

    def __reduce__(self) -> tuple[Any, ...]:
        place = (self.name, self.offset, self.index, self.stage)
        return type(self), (self.errno, self.reason, *place)


class FFmpegError(PenstockError, RuntimeError):
    """FFmpeg failed, or was not found.

    Attributes:
        returncode: the program's exit status; negative if a signal ended it; None if it never started, or if the status
            is unknown because this process ignores SIGCHLD or another thread waits for all children.
        command: the command line that was run.
        stderr: the last lines of the program's standard error.
        frames: frames that were encoded, or delivered, before the failure.
        advice: what you can do about it; None if unknown.
        reason: what failed, in one line: the message without the advice and the program's output.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        returncode: int | None = None,
        command: Sequence[str] = (),
        stderr: str = "",
        frames: int = 0,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.command = command
        self.stderr = stderr
        self.frames = frames
        self.advice = advice
        self.reason = message if reason is None else reason


class EncoderError(FFmpegError):
    """FFmpeg wasn't found, failed, or encoded a different number of frames than it was given."""


class DecoderError(FFmpegError):
    """FFmpeg or libav couldn't read a file or a URL, or didn't decode all of it."""


class RenderError(PenstockError):
    """A scene or a function of a render raised, or a chunk failed three times. Finished chunks are kept.

    Attributes:
        chunk: the chunk's number; None if unknown.
        frames: the indices of its frames; None if unknown.
        attempts: how often it was tried.
    """

    def __init__(
        self, message: str, *, chunk: int | None = None, frames: range | None = None, attempts: int = 1
    ) -> None:
        super().__init__(message)
        self.chunk = chunk
        self.frames = frames
        self.attempts = attempts


class FFmpegWarning(UserWarning):
    """A video differs from what you asked for, isn't at the path that you asked for, or has a wrong header.

    An `Encoder` warns if the video can't hold everything in its frames, such as alpha. The message names a format that
    can, and the argument that confirms the choice. ``EncodeReport.warnings`` repeats it. It also warns if an old file
    is overwritten in place, or stays because a generator or a task ended early.

    A `Decoder` warns if the number of frames in the file's header is wrong, if HDR becomes 8-bit RGB without tone
    mapping, or if other samples of more than 8 bits become 8 because you passed no `pixel_format`.
    """
