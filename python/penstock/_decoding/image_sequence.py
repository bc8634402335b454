"""Image files as the frames of a video: libav decodes each in this process, some ahead on threads."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from errno import EINVAL
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import av
from av.codec.context import ThreadType
from av.error import FFmpegError as LibavError

from penstock._common import exits
from penstock._common.control_groups import whole_cpus
from penstock._common.messages import show_name
from penstock._decoding.pixels import samples_like
from penstock._facts.info import MediaInfo
from penstock._facts.opening import decode, open_media
from penstock._facts.probing import info_of
from penstock._facts.source import Source
from penstock._formats import codecs
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame

    from penstock._decoding.image_files import ImageFiles

# Bytes at a file's beginning by which libav tells most formats. Files with the same ones, and the same suffix, are
# taken for the same format.
_MAGIC_BYTES = 4
# Chosen: the memory of so many pictures is in use, 400 MB for 16 bits a sample and 8 megapixels.
_MOST_THREADS = 8
# Chosen: for so long, a signal may wait for its handler.
_PATIENCE_S = 0.1


class ImageSequence:
    """Image files that are the frames of a video. Each is read when it is asked for.

    To the decoder, a picture is the whole file: libav's demuxers only tell the format, once for each kind of file.
    Alpha is as in the file. The orientation of a photograph, a tag, is ignored.

    Args:
        files: the files, at least one.
        threads: how many pictures are decoded at the same time; None for one for each CPU that this process may use,
            up to 8.
        is_strict: damage is an error, where libav sees it.

    Attributes:
        path: what the caller named, for messages.
        video: the facts about a video with these frames, all of which are like the first picture.
        pts: when each is shown, in units of the time that each is shown; and `last_duration`, for how long.

    Raises:
        ValueError: there are none.
        DecoderError: the first file is no image that libav knows, or it is damaged.
        OSError: it cannot be read, or no memory is left.
    """

    def __init__(self, files: ImageFiles, *, threads: int | None = None, is_strict: bool = True) -> None:
        paths, rate = files.paths, files.rate
        if not paths:
            raise ValueError("the list of image files is empty")
        # The working directory may change.
        self._paths, self._folder, self._is_strict = paths, Path.cwd(), is_strict
        self.pts, self.last_duration = range(len(paths)), 1
        self.path = files.path
        self._threads = threads or min(whole_cpus(), _MOST_THREADS)
        self._decoders: dict[tuple[str, bytes], str] = {}
        content, probed = self._content(paths[0]), self._probed(paths[0])
        self._decoders[_kind(paths[0], content)] = probed.codec
        first = self._decoded(paths[0], content)
        self._first: VideoFrame | None = first
        self.video = replace(
            samples_like(probed, first),
            width=first.width,
            height=first.height,
            stored_width=first.width,
            stored_height=first.height,
            frame_rate=rate,
            frames=len(paths),
            duration_s=float(len(paths) / rate),
            start_s=0.0,
            time_base=1 / rate,
        )

    def __len__(self) -> int:
        return len(self._paths)

    def media(self) -> MediaInfo:
        """The facts about a file with these frames."""
        return MediaInfo(
            path=self.path,
            container="image2",  # as FFmpeg calls such files
            container_name="image2 sequence",
            duration_s=self.video.duration_s,
            start_s=self.video.start_s,
            bit_rate=None,
            size_bytes=None,
            video=(self.video,),
            audio=(),
            subtitles=(),
            undecodable=(),
            chapters=(),
            tags={},
            timecode=None,
        )

    def picture(self, number: int) -> VideoFrame:
        """The picture of that number, from 0.

        Raises:
            DecoderError: the file cannot be decoded, or its picture has another size than the first.
            OSError: it cannot be read, or no memory is left.
        """
        path = self._paths[number]
        if number == 0 and (first := self._first) is not None:
            self._first = None  # its memory is the caller's from here on
            return first
        picture = self._decoded(path, self._content(path))
        if (picture.width, picture.height) != (self.video.width, self.video.height):
            raise DecoderError(
                f"all images must have the same size: {show_name(path)} has {picture.width}x{picture.height} pixels, "
                f"{show_name(self._paths[0])} has {self.video.width}x{self.video.height}"
            )
        return picture

    def pictures(self, numbers: Iterable[int]) -> Generator[tuple[int, VideoFrame] | None, None, None]:
        """The pictures of these numbers, in this order, with their numbers. Threads decode the next ones meanwhile.

        Yields None from time to time while it waits for a picture. Closing the iterator ends the threads.

        Raises:
            DecoderError, OSError: as `picture`, when the turn of that picture has come.
        """
        left, forks = iter(numbers), exits.forks
        ahead: deque[tuple[int, Future[VideoFrame]]] = deque()
        pool = ThreadPoolExecutor(self._threads, "penstock-images")
        try:
            while True:
                for number in islice(left, self._threads + 1 - len(ahead)):
                    ahead.append((number, pool.submit(self.picture, number)))
                if not ahead:
                    return
                number, future = ahead[0]
                if future.done() or wait((future,), _PATIENCE_S).done:
                    ahead.popleft()
                    yield number, future.result()
                else:
                    yield None
        finally:
            if forks == exits.forks:  # the pool's threads are the parent's
                pool.shutdown(wait=False, cancel_futures=True)

    @property
    def account(self) -> ImageSequence:
        """When each is shown, as of a `RandomAccess`."""
        return self

    def frames(self, places: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The pictures at these places, each once, with its place, as of a `RandomAccess`."""
        return filter(None, self.pictures(places))

    def close(self) -> None:
        """Nothing is open."""

    def _decoded(self, path: Path, content: bytes) -> VideoFrame:
        """The picture in a file with that content, of any size."""
        kind = _kind(path, content)
        if kind not in self._decoders:
            self._decoders[kind] = self._probed(path).codec
        codec = cast("VideoCodecContext", av.CodecContext.create(self._decoders[kind], "r"))
        codec.thread_type, codec.thread_count = ThreadType.NONE, 1
        if self._is_strict and not codecs.known(self._decoders[kind]).is_lenient:
            codec.options = {"err_detect": "explode"}
        try:
            frames = decode(codec, av.Packet(content)) + decode(codec, None)
        except LibavError as error:
            raise _undecodable(path, error.strerror) from error
        if not frames or (self._is_strict and frames[0].is_corrupt):
            raise _undecodable(path, "no complete picture in it")
        return cast("VideoFrame", frames[0])

    def _probed(self, path: Path) -> MediaInfo.Video:
        """What libav says of an image. It goes by the content, and by the suffix where that tells nothing."""
        source = Source(self._folder / path)
        try:
            with open_media(source.url, _image_demuxers()) as media:
                if video := info_of(source, media, {}).video:
                    return video[0]
        except DecoderError as error:
            raise _undecodable(path, "the file is damaged, or no image that libav knows") from error
        raise _undecodable(path, "PyAV's libav has no decoder for this format")

    def _content(self, path: Path) -> bytes:
        """All bytes of an image file."""
        try:
            # Opening a FIFO would wait for a writer, and a second reader would get nothing.
            if not stat.S_ISREG((self._folder / path).stat().st_mode):
                raise OSError(EINVAL, "an image of a sequence must be a regular file")
            content = (self._folder / path).read_bytes()
        except OSError as error:
            error.filename = str(path)  # as the caller names it
            raise
        if not content:
            raise _undecodable(path, "the file is empty")
        return content


@cache
def _image_demuxers() -> tuple[str, ...]:
    return ("image2", *sorted(name for name in av.formats_available if name.endswith("_pipe")))


def _kind(path: Path, content: bytes) -> tuple[str, bytes]:
    return path.suffix.lower(), content[:_MAGIC_BYTES]


def _undecodable(path: Path, reason: str | None) -> DecoderError:
    return DecoderError(f"{show_name(path)} can't be decoded: {reason}")
