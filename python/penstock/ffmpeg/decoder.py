"""The `Decoder`: a video file in, frames as arrays out."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from penstock._native import AppliedPolicy, Frame, ThreadPolicy, _count
from penstock.errors import DecoderError, FFmpegWarning
from penstock.ffmpeg import ending, endpoints
from penstock.ffmpeg.audio import AudioDecoder, AudioOptions
from penstock.ffmpeg.decode_plan import DecodeWish, plan_decode
from penstock.ffmpeg.decoder_stats import DecoderStats
from penstock.ffmpeg.find import find_decoding_ffmpeg, find_ffprobe
from penstock.ffmpeg.intake import Intake, check_place
from penstock.ffmpeg.media import MediaInfo, VideoInfo
from penstock.ffmpeg.plan import ColorMatrix, Convert
from penstock.ffmpeg.probe import probe
from penstock.ffmpeg.timestamps import Timestamps

if TYPE_CHECKING:
    from penstock.ffmpeg.frames import VideoFrame

# FFmpeg's options for its input that change neither which frames come nor their times.
_TIMELESS = frozenset(
    (
        *(
            "hwaccel",
            "hwaccel_device",
            "hwaccel_output_format",
            "init_hw_device",
            "vaapi_device",
            "extra_hw_frames",
        ),
        *("c", "c:v", "codec", "codec:v", "vcodec", "threads", "threads:v", "thread_type", "filter_threads"),
        *("probesize", "analyzeduration", "reinit_filter", "apply_cropping", "autorotate", "noautorotate"),
    )
)


class Decoder:
    """Decodes a video with FFmpeg, which it starts and reads from on a native thread.

    ```python
    with Decoder("in.mp4") as decoder:
        for frame in decoder:
            print(frame.index, frame.time, frame.shape, frame.mean())
    ```

    Iteration gives each frame of the file once, in the order of presentation, as a `VideoFrame`: a NumPy array of
    height × width × channels, with its number and its time. None is repeated or left out to make a rate constant. The
    array is the caller's, and can be written to; its memory is used for another frame when nobody has it any more.

    Where it can, FFmpeg delivers the YUV of the file, half as many bytes as RGB, and the native thread makes what was
    asked for while it copies, by the matrix and range that the file is tagged with; a chroma sample stands for all of
    its pixels. Samples are rounded, at most 1 off the exact value.

    After the last frame of a file that is damaged, or that ends before its container says, reading raises
    `DecoderError`, unless `conceal_errors`: whenever FFmpeg printed an error. A header that is only wrong about the
    number of frames is a `penstock.FFmpegWarning`. FFmpeg stops at damage that its decoder marks, and where it marks
    none (many codecs; H.264 in FFmpeg 5.1, now and then) the last frames given may show it. MPEG transport streams, Ogg
    and Y4M do not say how long they are: of one that was cut off FFmpeg notices nothing, and its last frames may be
    damaged or missing.

    Closing ends FFmpeg at once, wherever it is. Frames that were given stay as they are. In a process made by
    ``fork``, an inherited decoder is closed; it goes on in the parent.

    Args:
        source: the file: a path, or a URL that FFmpeg knows. A `str` with ``://`` is taken as a URL, all else is a
            local path, whatever its characters.
        pixel_format: FFmpeg's name of what the frames are to be (``ffmpeg -pix_fmts``); None for what the file has.
            rgb24, bgr24, rgba and gray give uint8; rgb48le and rgba64le, and YUV of more than 8 bits, uint16; grayf32le
            and gbrpf32le float32. The alpha of VP8 and VP9 in WebM is decoded, by libvpx, for formats that have alpha,
            and for None, which then is yuva420p.
        size: width and height in pixels to scale to, one of which may be None to keep the picture's shape; None for
            the video's own, or that which `filters` make.
        start: seconds from the beginning of the file; earlier frames are left out. Exact to the frame.
        count: frames to decode at most.
        stream: which of the video streams, from 0; None for the best (no cover picture, the default one).
        filters: FFmpeg's filters (``-vf``) to apply first, in the file's own pixel format; what comes of them is scaled
            to `size`. Where that is not given whole, FFmpeg is run for one frame before, to learn what size they make.
        convert: who makes `pixel_format` of the file's: "native", the worker while it copies; "ffmpeg"; or "auto", the
            worker where both make the same of it, up to 2 code values. The worker makes 8-bit and 16-bit RGB, and
            gray, of yuv420p, yuv422p, yuv444p (of 8 or 10 bits) and nv12; "auto" leaves RGB from 10 bits, to 16, and
            of odd sizes to FFmpeg, which smooths chroma there.
        color_matrix, color_range: what to take the file's YUV for; "auto" for what it is tagged with, or as FFmpeg
            without a tag: BT.601, limited.
        conceal_errors: go on after damage in the file with what FFmpeg makes of it, and not raise.
        follow_playlists: a local file may be a playlist, and FFmpeg opens the local files that it leads to: see
            `penstock.ffmpeg.probe`.
        depth: frames that are read ahead.
        input_options: FFmpeg's options for its input without their dash, such as ``{"hwaccel": "cuda"}``.
        stall_timeout_s: reading raises `StalledError` when it has waited so long for an FFmpeg that gave no sign of
            life: no frame, and no CPU time used. None waits for ever.
        ffmpeg, ffprobe: the programs; None finds them (see `penstock.ffmpeg.find_ffmpeg`).
        capacity_bytes, policy: as for `penstock.Reader`.
        ffmpeg_policy: priority and CPUs of FFmpeg, all of its threads.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: there is no such file, or it cannot be read.
        DecoderError: it is no media file, or has no video; FFmpeg was not found, or could not be started, or has no
            decoder for the alpha that was asked for.
        ValueError: an argument is not possible.
        ImportError: NumPy is not installed.
    """

    _intake: Intake  # there is none until the arguments are checked

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        pixel_format: str | None = "rgb24",
        size: tuple[int | None, int | None] | None = None,
        start: float | None = None,
        count: int | None = None,
        stream: int | None = None,
        filters: str | None = None,
        convert: Convert = "auto",
        color_matrix: ColorMatrix = "auto",
        color_range: Literal["auto", "limited", "full"] = "auto",
        conceal_errors: bool = False,
        follow_playlists: bool = False,
        depth: int = 4,
        input_options: Mapping[str, object] | None = None,
        stall_timeout_s: float | None = 60.0,
        ffmpeg: str | os.PathLike[str] | None = None,
        ffprobe: str | os.PathLike[str] | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | None = None,
        ffmpeg_policy: ThreadPolicy | None = None,
    ) -> None:
        from penstock.ffmpeg.frames import frame_of  # NumPy, which the rest of Penstock does without

        self._frame_of = frame_of
        program = find_decoding_ffmpeg(ffmpeg)
        _check(start, count)
        self._as_given, self._source = source, endpoints.source(source)
        self._media = probe(source, ffprobe=ffprobe, ffmpeg=ffmpeg, follow_playlists=follow_playlists)
        self._video = _chosen(self._media, stream)
        self._wish = DecodeWish(
            pixel_format=_checked(pixel_format, self._media, self._video),
            size=size,
            start=start,
            count=count,
            convert=convert,
            color_matrix=color_matrix,
            color_range=color_range,
            filters=filters,
            conceal_errors=conceal_errors,
            input_options=dict(input_options or {}),
            follow_playlists=follow_playlists,
        )
        place = self._source, self._media.container, self._media.start_s or 0.0
        self._plan = plan_decode(program, *place, self._video, self._wish)
        self._programs = program, ffprobe
        self._is_told_of = False
        self._intake = Intake(
            program,
            partial(self._plan.arguments, *place),
            source=self._source,
            ffmpeg_policy=ffmpeg_policy,
            is_strict=not conceal_errors,
            other_codecs=ending.other_codecs(self._media, self._video.index),
            check_end=self._early_end,
            stall_timeout_s=stall_timeout_s,
            frame_bytes=self._plan.layout.frame_bytes,
            depth=depth,
            capacity_bytes=capacity_bytes,
            policy=policy,
            conversion=self._plan.conversion,
            parts=self._plan.parts,
        )
        try:
            self._intake.start()
            self._timestamps = Timestamps(self._intake.process.side)
        except BaseException:  # a signal handler's, say
            self._intake.undo()
            raise

    @property
    def info(self) -> VideoInfo:
        """The video stream that is decoded: its geometry, rate, length and colours, as the file has them."""
        return self._video

    @property
    def media(self) -> MediaInfo:
        """The file: its container, and all of its streams."""
        return self._media

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the frames, in pixels."""
        return self._plan.layout.width, self._plan.layout.height

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the frames' arrays."""
        return self._plan.layout.shape

    @property
    def dtype(self) -> str:
        """Type of a sample by NumPy's name, such as ``"<u2"``."""
        return self._plan.layout.dtype

    @property
    def pixel_format(self) -> str:
        """FFmpeg's name of what the frames are."""
        return self._plan.layout.pixel_format

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self._plan.layout.frame_bytes

    @property
    def converted_by(self) -> str | None:
        """Who makes the frames' pixels of the file's: "penstock", "ffmpeg", or None if they are the same."""
        return self._plan.converted_by

    @property
    def pid(self) -> int:
        """FFmpeg's process id."""
        return self._intake.process.pid

    @property
    def ffmpeg_policy(self) -> AppliedPolicy | None:
        """What FFmpeg was started with; None without a policy for it."""
        return self._intake.process.policy

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or the block was left."""
        return self._intake.is_closed

    @property
    def stats(self) -> DecoderStats:
        """What was done so far: frames read and given, and who waited for whom."""
        reader, seconds = self._intake.reader.stats, self._intake.process.seconds
        return DecoderStats(
            frames_read=reader.frames_read,
            frames_delivered=self._intake.delivered,
            bytes_read=reader.bytes_read,
            seconds=seconds,
            fps=reader.frames_read / seconds,
            caller_blocked_s=self._intake.caller_blocked_s,
            ffmpeg_waited_for_s=reader.input_wait_s,
            caller_waited_for_s=reader.output_wait_s,
            converting_s=reader.converting_s,
            reader=reader,
        )

    @property
    def bottleneck(self) -> str:
        """Who is the slowest so far, in words: the caller, the conversion or FFmpeg."""
        return self.stats.bottleneck

    def read(self, timeout: float | None = None) -> VideoFrame | None:
        """The next frame; None at the end.

        The wait releases the GIL and lets Ctrl-C through. Tell the end by ``is None``: ``==`` compares each sample of
        an array.

        Args:
            timeout: seconds to wait for it; None waits as long as it takes.

        Raises:
            DecoderError: the file is damaged, truncated or without frames, or FFmpeg printed an error or failed; all
                frames before that were given, but those that its decoder held back.
            StalledError: no frame within `timeout`, or FFmpeg gave no sign of life for ``stall_timeout_s``. Nothing is
                lost: read again.
            ClosedError: after ``close``.
        """
        return self._placed(self._intake.read(timeout))

    def readinto(self, buffer: Any, timeout: float | None = None) -> int:
        """Copies the next frame into `buffer`, and gives its number of bytes; 0 at the end.

        Args:
            buffer: a writable, C-contiguous buffer of ``frame_bytes`` bytes.
            timeout: as for `read`.

        Raises:
            ValueError: the buffer has another size.
            TypeError, BufferError: it is no such buffer.
            DecoderError, StalledError, ClosedError: as `read`.
        """
        with memoryview(buffer) as view:
            if view.readonly or not view.c_contiguous:
                raise BufferError("the buffer must be writable and C-contiguous")
            if view.nbytes != self.frame_bytes:
                raise ValueError(f"a frame has {self.frame_bytes} bytes, and the buffer {view.nbytes}")
            frame = self.read(timeout)
            if frame is None:
                return 0
            view.cast("B")[:] = frame.data.cast("B")
        return self.frame_bytes

    def audio(self, **options: Unpack[AudioOptions]) -> AudioDecoder:
        """The sound of the same file, from the same `start` on: see `AudioDecoder`, whose options these are."""
        ffmpeg, ffprobe = self._programs
        settings: AudioOptions = {"start": self._wish.start, "ffmpeg": ffmpeg, "ffprobe": ffprobe}
        settings["follow_playlists"] = self._wish.follow_playlists
        settings.update(options)
        return AudioDecoder(self._as_given, **settings)

    def close(self) -> None:
        """Ends FFmpeg, wherever it is, and lets go of everything. Frames that were given stay. May be called again."""
        self._intake.close()
        self._timestamps.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> VideoFrame:
        frame = self._placed(self._intake.read())
        if frame is None:
            raise StopIteration
        return frame

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> VideoFrame:
        frame = self._placed(await self._intake.read_async())
        if frame is None:
            raise StopAsyncIteration
        return frame

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not hasattr(self, "_intake") or self._intake.is_closed:
            return
        is_at_end = self._intake.is_at_end
        self._intake.abandon()
        self._timestamps.close()
        if not is_at_end:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        layout = self._plan.layout
        size = f"{layout.width}x{layout.height}"
        return f"<Decoder {endpoints.without_protocol(self._source)!r} {size} {layout.pixel_format}>"

    def _placed(self, frame: Frame | None) -> VideoFrame | None:
        """The frame with its place in the video."""
        if frame is None:
            if self._intake.delivered == 0:
                raise self._intake.fail(self._nothing())
            self._warn_of_count()
            return None
        pts = self._timestamps.take(frame.index)
        time = None if pts is None else float(pts * self._video.time_base) - (self._media.start_s or 0.0)
        return self._frame_of(frame, self._plan.layout, index=frame.index, pts=pts, time=time)

    def _given(self) -> ending.Given | None:
        """What came of the video; None where that tells nothing of the file."""
        wish, last = self._wish, self._timestamps.last
        is_all_asked = self._intake.delivered != wish.count
        if last is None or wish.filters or not is_all_asked or not _TIMELESS.issuperset(wish.input_options):
            return None
        return ending.Given(
            frames=self._intake.delivered,
            last_s=float(last * self._video.time_base),
            longest_s=float(self._timestamps.longest * self._video.time_base),
        )

    def _early_end(self) -> str | None:
        self._timestamps.take_in_all()
        if (given := self._given()) is None:
            return None
        program, ffprobe = self._programs
        return ending.early_end(self._source, self._media, self._video, given, find_ffprobe(ffprobe, program))

    def _warn_of_count(self) -> None:
        """Warns the caller's caller, once, of a number of frames in the header that is wrong."""
        is_unsure = self._wish.conceal_errors or self._wish.start is not None
        given = None if self._is_told_of or is_unsure else self._given()
        self._is_told_of = True
        if given is not None and (said := ending.wrong_count(self._video, self._media.container, given)):
            warnings.warn(f"{endpoints.without_protocol(self._source)}: {said}", FFmpegWarning, stacklevel=4)

    def _nothing(self) -> str:
        if self._wish.start is None:
            return "the video stream has no frames"
        length = (
            "" if self._media.duration_s is None else f"; the file is {self._media.duration_s:.3f} s long"
        )
        return f"there are no frames from {self._wish.start:g} s on{length}"


def _check(start: float | None, count: int | None) -> None:
    check_place("start", start)
    if count is not None:
        _count("count", count)


def _chosen(media: MediaInfo, stream: int | None) -> VideoInfo:
    """The video stream to decode.

    Raises:
        DecoderError: there is none.
        ValueError: there is none of that number.
    """
    video = media.best_video if stream is None else _numbered(media, stream)
    if video is None:
        raise DecoderError(f"{media.path} has no video, only {_kinds(media)}")
    if not video.width or not video.height:
        raise DecoderError(f"{media.path} does not tell the size of its video, and may have no frames")
    return video


def _numbered(media: MediaInfo, stream: int) -> VideoInfo | None:
    if not media.video:
        return None
    if not 0 <= operator.index(stream) < len(media.video):
        count = f"{len(media.video)} stream{'s' if len(media.video) > 1 else ''} of video"
        raise ValueError(f"{media.path} has {count}, counted from 0; got {stream}")
    return media.video[stream]


def _checked(pixel_format: str | None, media: MediaInfo, video: VideoInfo) -> str | None:
    if pixel_format is None and video.pixel_format is None:
        raise DecoderError(
            f"{media.path} does not tell the pixel format of its video, and may have no frames"
        )
    return pixel_format


def _kinds(media: MediaInfo) -> str:
    kinds = [name for name, streams in (("a picture", media.video), ("sound", media.audio)) if streams]
    return " and ".join(kinds) or "other data"
