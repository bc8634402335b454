"""Decoders of several files, of which the next ones are opened while one is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Unpack

from penstock._common import exits
from penstock._common.ownership import check_owner
from penstock._decoding.decoder import Decoder, start
from penstock._decoding.image_files import VideoSource
from penstock._decoding.options import DecoderOptions
from penstock._native import _count


def prefetch(
    paths: Iterable[VideoSource], *, ahead: int = 2, **options: Unpack[DecoderOptions]
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
    close it with ``contextlib.closing``.

    Args:
        paths: sources as for `Decoder`, taken one by one.
        ahead: number of files to open ahead, at least 1.
        options: arguments of `Decoder`, for every file.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, DecoderError, ValueError, TypeError: if a `Decoder`
            raises it for the next file. The iteration then ends.
        ClosedError: if this is a forked child.
    """
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
