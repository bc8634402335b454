"""A running FFmpeg whose output we read: until its end, its fault, or ours."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import shlex
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from penstock._asyncio import until_done
from penstock._native import Frame, Reader, ThreadPolicy, _Conversion, _seconds
from penstock.errors import ClosedError, DecoderError, StalledError, TruncatedStreamError
from penstock.ffmpeg import endpoints
from penstock.ffmpeg.diagnostics import damage_reports
from penstock.ffmpeg.process import FFmpegProcess, Watch, checked_stall_timeout

# How often a wait for FFmpeg looks whether it lives. Chosen: much shorter than anybody's `stall_timeout_s`.
LOOK_INTERVAL_S = 0.5
# Guessed: an FFmpeg that has closed its output ends within this time.
END_GRACE_S = 5.0
# Guessed: an FFmpeg that was killed is gone within milliseconds, unless the kernel has it wait for a lost server.
KILL_GRACE_S = 2.0
# What FFmpeg 5.1 to 9 says, and says first, of a stream of which no frame came.
_NO_FRAMES = "Cannot determine format of input"


def check_place(name: str, seconds: float | None) -> None:
    """Checks an argument that is a time within a file, or None.

    Raises:
        ValueError: it is negative, NaN or infinite.
        TypeError: it is no number.
    """
    if _seconds(name, seconds) == math.inf:
        raise ValueError(f"{name} must be None or a finite number of seconds, not {seconds}")


class Intake:
    """An FFmpeg that is started to write raw frames, or blocks of sound, and the native reader of them.

    Args:
        program, arguments, ffmpeg_policy: as for `FFmpegProcess`.
        source: what FFmpeg reads, as `endpoints.source` has it.
        is_strict: whether damage is an error although FFmpeg goes on.
        other_codecs: codecs of the file's other streams, whose damage is no matter.
        check_end: called when FFmpeg has ended and had no complaint, if `is_strict`: why the file has more than it
            gave, or None.
        stall_timeout_s: as for `Decoder`.
        frame_bytes, depth, capacity_bytes, policy, conversion, parts: as for `penstock.Reader`.

    Attributes:
        process: FFmpeg.
        reader: the reader.
        rest: what FFmpeg wrote after the last whole frame.
        caller_blocked_s: seconds that callers waited.

    """

    reader: Reader  # there is none until FFmpeg runs

    def __init__(
        self,
        program: str,
        arguments: Sequence[str] | Callable[[int], Sequence[str]],
        *,
        source: str,
        ffmpeg_policy: ThreadPolicy | None,
        is_strict: bool,
        other_codecs: Collection[str] = (),
        check_end: Callable[[], str | None] | None = None,
        stall_timeout_s: float | None,
        frame_bytes: int,
        depth: int,
        capacity_bytes: int | None,
        policy: ThreadPolicy | None,
        conversion: _Conversion | None = None,
        parts: int = 1,
    ) -> None:
        self._path = endpoints.without_protocol(source)
        self._is_strict = is_strict
        self._other_codecs = other_codecs
        self._check_end = check_end
        self._stall_timeout_s = checked_stall_timeout(stall_timeout_s)
        self._fault: DecoderError | None = None
        self._is_closed = True  # until it is started
        self._is_inherited = False
        self.is_at_end = False
        self._lock = threading.Lock()
        self._ending = threading.Lock()
        self.rest: Frame | None = None
        self.caller_blocked_s = 0.0
        self.process = FFmpegProcess(
            program,
            arguments,
            ffmpeg_policy,
            # It stops at what it would otherwise conceal.
            is_strict=is_strict,
            stdout=subprocess.PIPE,
            error=DecoderError,
        )
        self._make_reader = partial(
            Reader,
            frame_bytes=frame_bytes,
            depth=depth,
            capacity_bytes=capacity_bytes,
            policy=policy,
            conversion=conversion,
            parts=parts,
        )

    def start(self) -> None:
        """Starts FFmpeg, and reads. What follows is done in a ``try`` that ends with `undo`, as is this.

        Raises:
            DecoderError: FFmpeg could not be started.
        """
        self.process.start()
        self.reader = self._make_reader(self.process.stdout)
        # The reader has its own, and FFmpeg is to notice at once when that is closed.
        self.process.stdout.close()
        self._is_closed = False
        _open_intakes.add(self)

    def undo(self) -> None:
        """Leaves nothing of what `start` began, however far it came."""
        self._is_closed = True
        _open_intakes.discard(self)
        self.process.end()
        if hasattr(self, "reader"):
            self.reader.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self._is_inherited

    @property
    def delivered(self) -> int:
        """Frames that were given."""
        return self.reader.stats.frames_delivered

    def read(self, timeout: float | None = None) -> Frame | None:
        """The next frame; None at the end, if all is well.

        Raises:
            DecoderError: FFmpeg has ended, and all was not well.
            StalledError: no frame within `timeout`, or FFmpeg gave no sign of life for the time that was set.
            ClosedError: after `close`, and in a forked child.
        """
        timeout = _seconds("timeout", timeout)
        self._check_open()
        if not self.is_at_end:
            frame = self._timed_read(timeout)
            if frame is not None:
                return frame
            self._end()
        self._raise_fault()
        return None

    async def read_async(self) -> Frame | None:
        """What `read` gives, for who must not block."""
        self._check_open()
        if not self.is_at_end:
            # Not before there is something to take is it taken: a task that is cancelled meanwhile has lost no frame.
            frame = await self._read_when_ready()
            if frame is not None:
                return frame
            await asyncio.to_thread(self._end)
        self._raise_fault()
        return None

    def fail(self, what: str) -> DecoderError:
        """The error from now on: what went wrong, with FFmpeg's words."""
        process = self.process
        self._fault = DecoderError(
            f"{self._path}: {what}\n"
            f"FFmpeg said: {process.stderr or '(nothing)'}\n"
            f"command: {shlex.join(process.command)}",
            returncode=process.returncode,
            command=process.command,
            stderr=process.stderr,
            frames=self.delivered,
        )
        return self._fault

    def close(self) -> None:
        """Ends FFmpeg, wherever it is, and lets go of everything. May be called again."""
        self.abandon()
        if not self._is_inherited:
            self.process.wait(KILL_GRACE_S)

    def abandon(self) -> None:
        """Kills FFmpeg, and waits for nothing: for a finalizer, which may run on any thread."""
        self._is_closed = True
        self._let_go()

    def _check_open(self) -> None:
        if self._is_inherited:
            raise ClosedError("the decoder belongs to the process that made it, of which this one is a fork")
        if self._is_closed:
            raise ClosedError("the decoder is closed")

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    async def _read_when_ready(self) -> Frame | None:
        while True:
            await self._until_ready()
            try:
                return self._timed_read(0)
            except StalledError:
                continue  # another task was quicker

    async def _until_ready(self) -> None:
        """Waits until a read would not wait, for as long as FFmpeg lives."""
        began_s = time.monotonic()
        watch = Watch(self.process)
        try:
            while not (ready := self.reader._ready()).done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(until_done(ready), LOOK_INTERVAL_S)
                self._check_alive(watch)
        finally:
            self._add_blocked(began_s)

    def _timed_read(self, timeout: float | None) -> Frame | None:
        began_s = time.monotonic()
        try:
            return self._read_while_alive(timeout)
        except TruncatedStreamError:
            # Once: the reader says so at each call, but has the rest for the first only.
            self.rest = self.rest or self.reader.take_rest()
            return None
        except ClosedError:
            self._check_open()
            return None  # another thread was first to see the end, and has let go of the reader
        finally:
            self._add_blocked(began_s)

    def _add_blocked(self, since_s: float) -> None:
        with self._lock:
            self.caller_blocked_s += time.monotonic() - since_s

    def _read_while_alive(self, timeout: float | None) -> Frame | None:
        start_s = time.monotonic()
        watch: Watch | None = None
        while True:
            left_s = LOOK_INTERVAL_S if timeout is None else start_s + timeout - time.monotonic()
            try:
                return self.reader.read(timeout=max(0.0, min(left_s, LOOK_INTERVAL_S)))
            except StalledError:
                if timeout is not None and left_s <= LOOK_INTERVAL_S:
                    raise StalledError(f"FFmpeg gave nothing within {timeout:.3g} s", timeout) from None
                watch = watch or Watch(self.process)
                self._check_alive(watch)

    def _check_alive(self, watch: Watch) -> None:
        idle_s = watch.idle_s()
        if self._stall_timeout_s is None or idle_s < self._stall_timeout_s:
            return
        raise StalledError(
            f"FFmpeg gave no sign of life for {idle_s:.1f} s; it had given {self.delivered} frames\n"
            f"it said: {self.process.stderr or '(nothing)'}",
            idle_s,
        )

    def _end(self) -> None:
        """FFmpeg has closed its output: all is well, or it says why not.

        Raises:
            ClosedError: it was killed by our own `close`, in another thread.
        """
        with self._ending:
            self._check_open()
            if self.is_at_end:
                return  # another thread was first
            if not self.process.wait(END_GRACE_S):
                self.process.kill()
                self.process.wait()
            if (reason := self._why_not_well()) is not None:
                self.fail(reason)
            self.is_at_end = True
            self._let_go()

    def _why_not_well(self) -> str | None:
        after = f"after {self.delivered} frames"
        if self.process.returncode not in (0, None) and _NO_FRAMES in self.process.stderr.partition("\n")[0]:
            return "the stream has no frames that FFmpeg can decode"
        if not self.process.has_succeeded:
            return f"FFmpeg {self.process.ending}, {after}"
        if not self._is_strict:
            return None
        if damage_reports(self.process.stderr, self._other_codecs):
            return f"the file is damaged, or ends too early, {after}"
        reason = None if self._check_end is None else self._check_end()
        return None if reason is None else f"{reason}, {after}"

    def _let_go(self) -> None:
        _open_intakes.discard(self)
        if not self._is_inherited:
            self.process.kill()
        self.reader.close()

    def _disown(self) -> None:
        self._is_inherited = True


_open_intakes: weakref.WeakSet[Intake] = weakref.WeakSet()


@atexit.register
def _close_all_at_exit() -> None:
    for intake in list(_open_intakes):
        intake.close()


def _disown_all_in_child() -> None:
    for intake in list(_open_intakes):
        intake._disown()
    _open_intakes.clear()


os.register_at_fork(after_in_child=_disown_all_in_child)
