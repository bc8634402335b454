"""Renders one chunk of a plan into the storage, and tells whether one is there."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._encoding.encoder import Encoder
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import Request
from penstock._ffmpeg.command.settings import with_ffmpeg, with_overrides
from penstock._formats import encoders
from penstock.errors import PenstockError, RenderError
from penstock.rendering.planning import Plan, chunk_of_number, default_storage
from penstock.rendering.reports import RenderReport
from penstock.rendering.storage import Storage, storage_of

# A line of a traceback that is not in here is the user's.
_OURS = str(Path(__file__).parents[1])
# All chunks are this much later than they are in the video, so that no decoding time is below 0, where the muxer would
# move all times.
_OFFSET_S = 10
# Fragments keep their times and need nothing that comes later: the bytes of one chunk can follow those of another.
_FRAGMENTED = "+frag_keyframe+empty_moov+default_base_moof+frag_discont+skip_trailer"


def data_name(plan: Plan, number: int) -> str:
    """The name in the storage of a chunk's data."""
    return f"{folder_of(plan)}/{number:05}.{encoders.codec_of(plan.codec).chunks_in}"


def folder_of(plan: Plan) -> str:
    """The folder in the storage of a plan's chunks."""
    return plan.hash[:16]


def render_chunk(plan: Plan, number: int, *, threads: int | None = None) -> RenderReport.Chunk:
    """Renders one chunk of a plan into its storage. Any machine with the same FFmpeg can do it.

    Args:
        plan: the plan.
        number: the chunk's number, from 0.
        threads: number of threads of FFmpeg's encoder; None leaves it to the encoder.

    Returns:
        A report of the chunk. It is also in the storage, for `assemble`.

    Raises:
        ValueError: if there is no such chunk, or FFmpeg's version isn't the plan's.
        RenderError: if the scene raised. Its exception is the ``__cause__``.
        EncoderError, DecoderError, OSError: as for `penstock.Encoder` and `penstock.Decoder`.
    """
    return Renderer(plan, threads).render(number)


class Renderer:
    """Renders chunks of one plan. It builds the scene once.

    Args:
        program: path of this machine's FFmpeg, if it's known to have the plan's version.
    """

    def __init__(self, plan: Plan, threads: int | None, program: str | None = None) -> None:
        self._plan = plan
        self._program = program or plan.program  # which checks the version, by starting FFmpeg
        self._threads = threads
        self._storage = storage_of(plan.storage)
        self._code: Any = None if plan.code is None else plan.code.load()

    def render(
        self, number: int, on_frame: Callable[[int], object] = lambda done: None
    ) -> RenderReport.Chunk:
        """Renders a chunk, and calls `on_frame` with the number of frames so far after each of them."""
        started_s, chunk = time.monotonic(), chunk_of_number(self._plan, number)
        name = data_name(self._plan, chunk.number)
        with self._storage.new_file(name) as part:
            made = working_plan(self._request(chunk, part), self._plan.size)
            encoder = Encoder._planned(made)
            try:
                frames = self._draw if self._plan.source is None else self._map
                for done, _ in enumerate(frames(chunk, encoder), start=1):
                    on_frame(done)
                report = encoder.close()
            except BaseException:
                encoder.abort()  # nobody wants a part of a chunk, and its file goes
                raise
            finished = RenderReport.Chunk(
                number=chunk.number,
                frames=report.frames_encoded,
                nbytes=part.stat().st_size,
                sha256=_sha256(part),
                elapsed_s=time.monotonic() - started_s,
                worker=f"{socket.gethostname()}:{os.getpid()}",
                # The container of chunks is ours, and not the user's.
                warnings=tuple(one for one in report.warnings if not one.startswith(("[mov]", "[mp4]"))),
            )
        # After the data: a chunk counts as rendered once its report is there.
        self._storage.write(f"{name}.json", json.dumps(asdict(finished)))
        return finished

    def _request(self, chunk: Plan.Chunk, part: Path) -> Request:
        request, codec = self._plan.request, self._plan.codec
        given = request.options or {}
        # At a variable rate, frames are written with their times in the video, and need only the constant offset.
        offset_s = _OFFSET_S + (0 if self._plan.fps is None else self._plan.time_s(chunk.first))
        options: dict[str, object] = {} if self._threads is None else {"threads": self._threads}
        if self._plan.fps is None and encoders.known(codec).reorders:
            options["bf"] = 0
        options |= given
        if self._threads is not None and (follows := encoders.known(codec).pool) is not None:
            name, pool = follows
            options[name] = ":".join(filter(None, (f"{pool}={self._threads}", str(given.get(name, "")))))
        options |= {
            "f": encoders.codec_of(codec).chunks_in,
            "movflags": _FRAGMENTED,
            # With an edit list, a fragment's times would be later by how far its encoder reorders frames.
            "use_editlist": 0,
            "avoid_negative_ts": "disabled",
            "output_ts_offset": f"{float(offset_s):.6f}",
        }
        # The plan was rehearsed where it was made.
        settings = with_overrides(with_ffmpeg(request.settings, self._program), rehearse=False)
        return replace(request, output=part, options=options, settings=settings)

    def _draw(self, chunk: Plan.Chunk, encoder: Encoder) -> Iterator[None]:
        """The frames of a scene, drawn into leased memory."""
        for index in chunk.frames:
            with self._naming_failures(f"frame {index}"), encoder.lease() as view:
                if index != chunk.frames[0]:
                    self._draw_frame(index, view)
                else:
                    self._draw_first(index, view)
            yield

    def _draw_first(self, index: int, view: npt.NDArray[Any]) -> None:
        """Draws a frame, and a black one again into another array, to tell it from one that wasn't drawn."""
        view[...] = 0
        self._draw_frame(index, view)
        if not view.any():
            other = np.ones_like(view)
            self._draw_frame(index, other)
            if (other == 1).all():
                raise TypeError(
                    "a scene must draw into its third argument, and this one leaves it as it is. Assign to view[:]"
                )

    def _draw_frame(self, index: int, view: npt.NDArray[Any]) -> None:
        assert self._plan.fps is not None
        returned = self._code(index, float(index / self._plan.fps), view)
        if returned is not None:
            raise TypeError(
                f"a scene must return None, not {type(returned).__name__}. Draw into its third argument"
            )

    def _map(self, chunk: Plan.Chunk, encoder: Encoder) -> Iterator[None]:
        """The frames of the source, after the function."""
        from penstock._decoding.decoder import Decoder  # a scene needs none, and its import takes 0.1 s
        from penstock._decoding.frame_times import ROUNDED_S

        source = self._plan.source
        assert source is not None
        start_s, count = source.starts_s[chunk.number], len(chunk.frames)
        # At a constant rate, each chunk begins at 0.
        begins_s = 0 if self._plan.fps is None else self._plan.time_s(chunk.first)
        rate = None if source.fps is None else Fraction(source.fps)
        form = source.pixel_format
        with Decoder(source.path, pixel_format=form, start=start_s, count=count, fps=rate) as decoder:
            # Fewer frames than planned are told below, with the name of the file.
            for index, frame in zip(chunk.frames, decoder, strict=False):
                with self._naming_failures(f"frame {index}"):
                    time_s = self._plan.time_s(index)
                    if frame.time_s is None or abs(frame.time_s - source.first_s - time_s) > 2 * ROUNDED_S:
                        packet_s = float(source.first_s + time_s)
                        raise RenderError(
                            f"frame {index} of {source.path} is at {frame.time_s} s, but its packet says "
                            f"{packet_s:.6f} s. map_video can't divide this file"
                        )
                    frame.index = index  # the decoder counts from the chunk's beginning
                    changed = frame if self._code is None else self._code(frame)
                    encoder.write(changed, time_s=time_s - begins_s)
                yield
            if (found := decoder.stats.frames_delivered) != count:
                raise RenderError(
                    f"{source.path} has {found} frames in {chunk}, but {count} by its packets. map_video can't divide "
                    "this file"
                )
        if not source.is_same():  # other chunks may be of what it was
            raise RenderError(f"{source.path} has changed since the render was planned. Start again")

    @contextmanager
    def _naming_failures(self, what: str) -> Iterator[None]:
        """A block in which an exception of the user's code becomes a `RenderError` that names the frame."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            code = "" if self._plan.code is None else self._plan.code.name
            calls = ((call.f_code.co_filename, line) for call, line in walk_tb(error.__traceback__))
            of_user = next((f" ({file}:{line})" for file, line in calls if not file.startswith(_OURS)), "")
            raise RenderError(f"{code}, {what}: {type(error).__name__}: {error}{of_user}") from error


def stored_report(plan: Plan, storage: Storage, number: int) -> RenderReport.Chunk | None:
    """The report of a chunk that is in the storage and whole; None if it is not."""
    name = data_name(plan, number)
    text = storage.read(f"{name}.json")
    if text is None:
        return None
    try:
        given = json.loads(text)
        report = RenderReport.Chunk(**given | {"warnings": tuple(given["warnings"])})
        with storage.local(name) as path:
            is_whole = path.stat().st_size == report.nbytes and _sha256(path) == report.sha256
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return report if is_whole and report.frames == plan.lengths[number] else None


def remove_chunks(plan: Plan, storage: Storage) -> bool:
    """Removes a plan's chunks, and its default storage if that is then empty. Returns whether that has other chunks."""
    storage.remove(folder_of(plan))
    if plan.storage != default_storage(plan.output):
        return False
    if storage.names(""):
        return True
    storage.remove("")
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
