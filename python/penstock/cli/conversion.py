"""One video of ``penstock convert``: what it is made of, and that its file is whole when it gets its name."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock._common.messages import warn
from penstock._common.reports import EncodeReport
from penstock._decoding.decoder import Decoder
from penstock._decoding.frame_times import LONG_FRAMES, FrameTimes
from penstock._decoding.video_frame import VideoFrame
from penstock._encoding.encoder import Encoder
from penstock._encoding.like import has_own_times, with_codec
from penstock._encoding.output import ordinary_path
from penstock._encoding.timing import LAST_FRAME_S
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.command.endpoints import Identity, Output
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, SOURCE
from penstock._formats.encoders import codec_of
from penstock._platform.descriptors import sync
from penstock.cli.failures import in_one_line
from penstock.errors import ClosedError, DecoderError
from penstock.rendering.storage import locked

# What a decoder leaves out of a file, or makes of its frames: the last one is then another.
_OTHER_END = ("end", "duration", "count", "filters", "fps", "stream")


@dataclass(eq=False)
class Conversion:
    """A video to make of another.

    Attributes:
        source: the video to read, as the user names it.
        output: the video to write, likewise.
        reading: arguments of the `Decoder`.
        writing: arguments of `Encoder.like`.
        options: the options that the user gave for them, which the record has.
    """

    source: str
    output: str
    reading: Mapping[str, Any]
    writing: Mapping[str, Any]
    options: Mapping[str, Any]
    to: Output = field(init=False)
    _is_stopped: threading.Event = field(init=False, default_factory=threading.Event)
    _running: tuple[Decoder, Encoder] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.to = Output.of(self.output, (self.writing.get("options") or {}).get("f"))

    @property
    def path(self) -> Path | None:
        """The one ordinary file that it makes, without links; None if the output is something else."""
        return None if self.to.is_several_files else ordinary_path(self.to)

    @property
    def is_done(self) -> bool:
        """Whether the output is there, made of the same files by the same options."""
        with suppress(OSError):
            return self.path is not None and self._record.read_text() == self._account(
                self._made_of(), self.path
            )
        return False

    def run(self, progress: bool) -> EncodeReport:
        """Makes the video. Its file gets its name when it is whole, and there is no other when this fails.

        Raises:
            ClosedError: `stop` was called.
            PenstockError, OSError, ValueError: as a `Decoder` and `Encoder.like` raise.
        """
        path = self.path
        if path is None:
            return self._convert(self.output, progress)
        with locked(str(path)), self._new_file(path) as part:
            made_of = self._made_of()  # which may change meanwhile
            report = self._convert(part, progress)
            sync(part)
            # A program that is killed between these two lines has a record of a video that isn't there.
            self._record.write_text(self._account(made_of, part) or "")
            part.replace(path)
            return replace(report, output=str(path))

    def stop(self) -> None:
        """Ends it, from another thread."""
        self._is_stopped.set()
        if self._running is not None:
            decoder, encoder = self._running
            encoder.abort()
            decoder.close()

    def in_words(self, what: object) -> str:
        """The words of an error or a warning, with the name that the user knows."""
        words = in_one_line(what) or repr(what)
        return words if self.path is None else words.replace(self._part.name, self.path.name)

    @property
    def _record(self) -> Path:
        return self._beside(".{}{}.convert")

    @property
    def _part(self) -> Path:
        return self._beside(".{}.part{}")

    def _beside(self, pattern: str) -> Path:
        assert self.path is not None
        ending = endpoints.ending_of(self.path.name)
        return self.path.with_name(pattern.format(self.path.name.removesuffix(ending), ending))

    def _made_of(self) -> list[tuple[str, Identity | None]]:
        """The files that are read, and their state."""
        subtitles = self.writing.get("subtitles")
        read = [self.source, *self.writing.get("audio", ()), *([] if subtitles is None else [subtitles])]
        return [(name, endpoints.identity(name)) for name in map(os.path.realpath, read)]

    def _account(self, made_of: Sequence[tuple[str, Identity | None]], written: Path) -> str | None:
        """What the video at `written` is made of, as text; None if that can't be known again."""
        files = [*made_of, (str(written), endpoints.identity(str(written)))]
        states = [(name, one.size_bytes, one.modified_ns) for name, one in files if one is not None]
        if len(states) < len(files):
            return None
        record = {"files": states[:-1], "options": self.options, "output": states[-1][1:]}
        return json.dumps(record, default=str, indent=1, sort_keys=True)

    @contextmanager
    def _new_file(self, path: Path) -> Iterator[Path]:
        """A file beside `path`, which is gone in the end unless it was renamed."""
        part = self._part
        part.unlink(missing_ok=True)  # the FFmpeg of a program that was killed may still write to it
        part.touch()  # so that an Encoder doesn't rename it if it fails
        try:
            with suppress(FileNotFoundError):
                shutil.copymode(path, part)
            yield part
        finally:
            part.unlink(missing_ok=True)

    def _convert(self, output: str | Path, progress: bool) -> EncodeReport:
        with Decoder(self.source, **self._reading()) as decoder:
            is_all = progress and not any(self.reading.get(name) for name in (*_OTHER_END, "start"))
            shown = (is_all and decoder.stream.frames) or progress
            encoder = Encoder.like(decoder, output, **self._rate(decoder), **self.writing, progress=shown)
            self._running = decoder, encoder
            try:
                self._copy(decoder, encoder)
                return encoder.close()
            except BaseException:
                encoder.abort()
                raise
            finally:
                self._running = None

    def _reading(self) -> dict[str, Any]:
        """The arguments of the `Decoder`."""
        codec = with_codec(self.output, self.writing)["codec"]
        return {"pixel_format": DEFAULT_FORMAT if codec_of(codec).is_jpeg else SOURCE, **self.reading}

    def _rate(self, decoder: Decoder) -> dict[str, Any]:
        """The rate, where the user gave it, or where frames of a part keep their times."""
        if (rate := self.reading.get("fps")) is not None:
            return {"fps": rate}
        # `Encoder.like` counts these times from the beginning of the source, and would choose a constant rate.
        is_timed = self.reading.get("start") and self.to.facts.holds_times and has_own_times(decoder)
        return {"fps": None} if is_timed else {}

    def _copy(self, decoder: Decoder, encoder: Encoder) -> None:
        zero_s, last, before = 0.0, None, None
        for frame in decoder:
            if last is None and self.reading.get("start"):
                zero_s = frame.time_s or 0.0
            self._submit(encoder, frame, frame.time_s, zero_s)
            last, before = frame, last
        if last is None or before is None or (lasts_s := self._last_s(decoder, encoder)) is None:
            return
        assert last.time_s is not None and before.time_s is not None
        # An encoder's last frame is shown for as long as the one before it.
        step_s = last.time_s - before.time_s
        if lasts_s > LONG_FRAMES * step_s:
            self._submit(encoder, last, last.time_s + lasts_s / 2, zero_s)  # two of it fill that time
        elif step_s > lasts_s + LAST_FRAME_S:
            warn(
                f"the last frame is shown for {step_s:.3f} s, as long as the one before it, but for {lasts_s:.3f} s in "
                "the source"
            )

    def _submit(self, encoder: Encoder, frame: VideoFrame, time_s: float | None, zero_s: float) -> None:
        if self._is_stopped.is_set():
            raise ClosedError("the conversion was stopped")
        encoder.submit(frame, time_s=None if time_s is None else time_s - zero_s)

    def _last_s(self, decoder: Decoder, encoder: Encoder) -> float | None:
        """For how long the source shows its last frame, if frames have times and this frame is the last one."""
        if encoder._plan.rate is not None or any(self.reading.get(name) for name in _OTHER_END):
            return None
        with suppress(DecoderError, OSError):  # it is no file, or its packets have no times
            return FrameTimes.of(decoder.file).last_s
        return None
