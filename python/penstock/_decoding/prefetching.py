"""Decoders of several files, of which the next ones are opened while one is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import Literal

from penstock._common import exits
from penstock._common.keywords import explains_as
from penstock._common.ownership import check_owner
from penstock._decoding.decoder import Decoder, start
from penstock._decoding.image_files import VideoSource
from penstock._decoding.options import DecoderOptions, Fit, FloatType
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    ColorMatrix,
    ColorRange,
    DecoderSettings,
)
from penstock._native import _count


@explains_as(Decoder.__init__)
def prefetch(
    paths: Iterable[VideoSource],
    *,
    ahead: int = 2,
    fps: int | float | Fraction | None = None,
    pixel_format: str = DEFAULT_FORMAT,
    size: tuple[int | None, int | None] | None = None,
    start: float | None = None,
    end: float | None = None,
    duration: float | None = None,
    count: int | None = None,
    stream: int | None = None,
    filters: str | None = None,
    color_matrix: ColorMatrix = "auto",
    color_range: ColorRange = "auto",
    conceal_errors: bool = False,
    follow_playlists: bool = False,
    input_options: Mapping[str, object] | None = None,
    isolated: bool | Literal["strict"] = False,
    crop: tuple[int, int, int, int] | None = None,
    fit: Fit = "stretch",
    fill: tuple[float, ...] | None = None,
    channels_first: bool = False,
    dtype: FloatType | None = None,
    value_range: tuple[float, float] | None = None,
    settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
) -> Iterator[Decoder]:
    """Yields a `Decoder` for each of `paths`, in order, and opens the next `ahead` files meanwhile.

    ```python
    for decoder in prefetch(["a.mp4", "b.mp4", "c.mp4"]):
        for frame in decoder:
            print(decoder.file.path, frame.index, frame.mean())
    ```

    Each decoder is closed when you take the next one or leave the loop. A thread opens each of the next files, and
    decodes its first frame. If an FFmpeg program reads, the thread starts it, and ``queue_items`` frames are read
    ahead. At most `ahead` + 1 programs run.

    A `break` or an exception that leaves the loop ends everything at once. If you keep the iterator in a variable,
    close it with ``contextlib.closing``. The other arguments are those of `Decoder`, for every file.

    Args:
        paths: sources as for `Decoder`, taken one by one.
        ahead: number of files to open ahead, at least 1.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, DecoderError, ValueError, TypeError: if a `Decoder`
            raises it for the next file. The iteration then ends.
        ClosedError: if this is a forked child.
    """
    options = DecoderOptions(
        fps=fps,
        pixel_format=pixel_format,
        size=size,
        start=start,
        end=end,
        duration=duration,
        count=count,
        stream=stream,
        filters=filters,
        color_matrix=color_matrix,
        color_range=color_range,
        conceal_errors=conceal_errors,
        follow_playlists=follow_playlists,
        input_options=input_options,
        isolated=isolated,
        crop=crop,
        fit=fit,
        fill=fill,
        channels_first=channels_first,
        dtype=dtype,
        value_range=value_range,
        settings=settings,
    )
    return _prefetched(iter(paths), _count("ahead", ahead), options)


def _prefetched(paths: Iterator[VideoSource], ahead: int, options: DecoderOptions) -> Iterator[Decoder]:
    forks = exits.forks
    pool = ThreadPoolExecutor(ahead, thread_name_prefix="penstock-prefetch")
    opening: deque[Future[Decoder]] = deque()
    try:
        while True:
            for path in islice(paths, ahead + 1 - len(opening)):
                opening.append(pool.submit(_reading, path, options))
            if not opening:
                return
            # Not removed before it is there: an interrupted wait leaves it to be closed below.
            with opening[0].result() as decoder:
                opening.popleft()
                yield decoder
            check_owner("decoders' iterator", forks)
    finally:
        # The pool's threads are the parent's.
        if forks == exits.forks:
            pool.shutdown(wait=False, cancel_futures=True)
            for future in opening:
                with suppress(Exception):  # that of a file whose turn has not come; or it was cancelled
                    future.result().close()


def _reading(path: VideoSource, options: DecoderOptions) -> Decoder:
    """A decoder that reads ahead already."""
    decoder = Decoder(path, **options)
    start(decoder)
    return decoder
