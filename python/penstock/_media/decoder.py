"""The `Decoder`: a video file in, frames as arrays out."""

from __future__ import annotations

import subprocess
import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, Unpack, cast, get_args, overload

from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, SOURCE
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    ColorMatrix,
    ColorRange,
    DecoderSettings,
    check_choice,
    check_place,
    check_settings,
)
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._ffmpeg.program.process import FFmpegProcess
from penstock._media import completeness
from penstock._media.audio import AudioDecoder, AudioOptions
from penstock._media.decode_plan import DecodeOptions, lost_bits, plan_decode, unmapped_hdr
from penstock._media.decode_session import DecoderBase, DecodeSession, numbered_stream
from penstock._media.info import MediaInfo, Track, VideoInfo
from penstock._media.probing import probe
from penstock._media.seeking import first_pts, misses_frames, time_of
from penstock._media.source import MediaSource, Source
from penstock._media.video_frame import VideoFrame, frame_of
from penstock._messages import warn
from penstock._native import Frame, _count
from penstock._reports import Bottleneck, DecoderStats
from penstock._types import HasDLPack, WritableData
from penstock.errors import DecoderError

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

    from penstock._media.frames_by_number import FramesByNumber


_Out = TypeVar("_Out", bound="WritableData | HasDLPack")

# FFmpeg's options for its input that change neither which frames come nor their times.
_FRAME_PRESERVING_OPTIONS = frozenset(
    (
        *("hwaccel", "hwaccel_device", "hwaccel_output_format"),
        *("init_hw_device", "vaapi_device", "extra_hw_frames"),
        *("c", "c:v", "codec", "codec:v", "vcodec", "threads", "threads:v", "thread_type", "filter_threads"),
        *("probesize", "analyzeduration", "reinit_filter", "apply_cropping", "autorotate", "noautorotate"),
    )
)


class Decoder(DecoderBase):
    """Decodes a video with FFmpeg, which it starts at the first read, and reads from on a native thread.

    ```python
    with Decoder("in.mp4") as decoder:
        for frame in decoder:
            print(frame.index, frame.time_s, frame.shape, frame.mean())
    ```

    Iteration gives each frame of the file once, in presentation order, as a `VideoFrame`: a NumPy array of height ×
    width × channels, with its index and its time. No frame is repeated or dropped to make the rate constant. You may
    write to the array; its memory is recycled once you drop the last reference.

    Where possible, FFmpeg delivers the file's YUV (4:2:0 has half the bytes of RGB), and the native thread converts it
    while it copies, by the matrix and range of the file's tags. Chroma is not interpolated: all pixels of a sample get
    its value. Samples are rounded and at most 1 off the exact value. Primaries and transfer do not change: decoding HDR
    (PQ, HLG) to 8-bit RGB or gray gives a `penstock.FFmpegWarning`, unless `filters` convert it to SDR.

    Without `conceal_errors`, reading raises `DecoderError` after the last frame if FFmpeg reports damage, or if the
    file ends before its container says. A wrong number of frames in the header, or a file that begins inside a group of
    pictures, only gives a `penstock.FFmpegWarning`. FFmpeg stops at damage that its decoder marks. Decoders that do not
    mark it (of many codecs; of H.264 in FFmpeg 5.1, now and then) may deliver damaged last frames. MPEG transport
    streams, raw streams and Y4M do not store their length: if such a file was cut off, FFmpeg does not notice, and its
    last frames may be damaged or missing.

    Any frame comes by its number or time, with the same pixels: ``decoder[7]``, ``decoder[::10]``, `frame_at`, `batch`.
    Iteration goes on where it was.

    Closing ends FFmpeg at once. Delivered frames stay valid. After a ``fork``, iteration continues in the parent, and
    is closed in the child, where frames by number and time still come. A pickled decoder is opened anew.

    Args:
        source: a path, or a URL that FFmpeg knows: a `str` that begins with a scheme and ``//`` is a URL, any other a
            path, whatever its characters. Or the bytes of a file, in any object with the buffer protocol: they are
            copied. Or a binary file that is open, or a descriptor: a regular file is read from its beginning, and its
            position stays. A pipe, FIFO or socket is read from where it is, and gives frames in sequence only. What has
            no descriptor, such as `io.BytesIO`, is copied to memory.
        pixel_format: FFmpeg's name of what the frames are to be (``ffmpeg -pix_fmts``); "source" for the file's, in
            the byte order of this machine. rgb24, bgr24, rgba and gray give uint8; rgb48le and rgba64le, and YUV of
            more than 8 bits, uint16; grayf32le and gbrpf32le float32. If it is not given, gray and RGB of more than 8
            bits, floats, and YUV of more than 12 bits give a `penstock.FFmpegWarning`: they become 8 bits. The alpha of
            VP8 and VP9 in WebM is decoded, by libvpx, for formats that have alpha, and for "source", which then
            is yuva420p.
        size: width and height in pixels to scale to, one of which may be None to keep the picture's shape; None for
            the video's own, or that which `filters` make.
        start: frames before this time are dropped, in seconds as `VideoFrame.time_s` counts. Exact to the frame.
        count: maximum number of frames.
        stream: number of the video stream, from 0; None for the best (not a cover picture, the default one).
        filters: FFmpeg's filters (``-vf``) to apply first, in the file's own pixel format; their output is scaled
            to `size`. If `size` is not given in full, FFmpeg runs for one frame first to learn the size they make.
        color_matrix: the matrix between the file's YUV and RGB: "bt601", "bt709" or "bt2020". "auto" is the file's tag,
            or BT.601 without one.
        color_range: "limited" (black at 16, white at 235 of 8 bits) or "full". "auto" is the file's tag, or limited
            without one.
        conceal_errors: go on after damage in the file with what FFmpeg makes of it, and do not raise.
        follow_playlists: a local file may be a playlist, and FFmpeg opens the local files that it leads to: see
            `penstock.probe`.
        input_options: FFmpeg's options for its input without their dash, such as ``{"hwaccel": "cuda"}``.
        settings: which FFmpeg to run, its queue, threads, priorities and timeouts.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: there is no such file, or it cannot be read.
        OSError: no descriptor, memory, process or thread is left, here or in a later call.
        DecoderError: it is no media file, or has no video; FFmpeg was not found, or has no decoder for the alpha that
            was asked for.
        ValueError: an argument is not possible.
        TypeError: `source` has another type. For a list of clips, open a decoder for each.
    """

    def __init__(
        self,
        source: MediaSource,
        *,
        pixel_format: str = DEFAULT_FORMAT,
        size: tuple[int | None, int | None] | None = None,
        start: float | None = None,
        count: int | None = None,
        stream: int | None = None,
        filters: str | None = None,
        color_matrix: ColorMatrix = "auto",
        color_range: ColorRange = "auto",
        conceal_errors: bool = False,
        follow_playlists: bool = False,
        input_options: Mapping[str, object] | None = None,
        settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
    ) -> None:
        super().__init__()
        check_settings(settings, DecoderSettings)
        program = find_decoding_ffmpeg(settings.ffmpeg)
        check_choice("color_matrix", color_matrix, get_args(ColorMatrix))
        check_choice("color_range", color_range, get_args(ColorRange))
        check_place("start", start)
        if count is not None:
            _count("count", count)
        if not isinstance(pixel_format, str):
            raise TypeError(
                f"pixel_format is a str, and {SOURCE!r} stands for that of the file; got {pixel_format!r}"
            )
        self._opened = Source.of(source)
        self._options = DecodeOptions(
            pixel_format=pixel_format,
            size=size,
            start=start,
            count=count,
            color_matrix=color_matrix,
            color_range=color_range,
            filters=filters,
            conceal_errors=conceal_errors,
            input_options=dict(input_options or {}),
            follow_playlists=follow_playlists,
            settings=settings,
        )
        self._program, self._stream = program, stream
        self._by_number: FramesByNumber | None = None
        self._has_warned = False
        self._length: int | None = None  # once known, without `count`
        self._media = probe(self._opened, follow_playlists=follow_playlists)
        self._video = _chosen(self._media, stream)
        if self._options.pixel_format == SOURCE and self._video.pixel_format is None:
            raise DecoderError(
                f"{self._media.path} does not tell the pixel format of its video, and may have no frames"
            )
        self._track = Track(self._opened.url, self._media, self._video)
        self._plan = plan_decode(program, self._track, self._options)
        said = unmapped_hdr(self._video, self._plan.layout, self._options)
        if said is None and size is None and not filters:
            said = lost_bits(self._video, pixel_format)
        if said:
            warn(f"{self._opened.path}: {said}")
        # Weak references: strong ones would make a cycle, and only the garbage collector would end an unused decoder.
        explain_damage, why_incomplete = (
            weakref.WeakMethod(self._explain_damage),
            weakref.WeakMethod(self._why_incomplete),
        )
        self._session_by = partial(
            DecodeSession,
            program,
            path=self._opened.path,
            title=repr(self),
            settings=settings,
            frame_bytes=self._plan.layout.frame_bytes,
            conversion=self._plan.conversion,
            parts=self._plan.parts,
            is_strict=not self._options.conceal_errors,
            other_codecs=completeness.other_codecs(self._media, self._video.index),
            explain_damage=lambda damage: (made := explain_damage()) and made(damage),
            check_end=lambda: (check := why_incomplete()) and check(),
        )

    @property
    def stream(self) -> VideoInfo:
        """The decoded video stream: its geometry, rate, length and colors, as described in the file."""
        return self._video

    @property
    def file(self) -> MediaInfo:
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
        """Pixel format of the frames, by FFmpeg's name."""
        return self._plan.layout.pixel_format

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self._plan.layout.frame_bytes

    @property
    def converted_by(self) -> str | None:
        """Who converts the pixels: "penstock", "ffmpeg", or None if the file has the same pixel format."""
        return self._plan.converted_by

    @property
    def stats(self) -> DecoderStats:
        """What was done so far: frames read and delivered, and who waited for whom."""
        if (run := self._run) is None:
            return DecoderStats()
        reader, elapsed_s = run.reader.stats, run.process.elapsed_s
        return DecoderStats(
            frames_read=reader.frames_read,
            frames_delivered=run.delivered,
            bytes_read=reader.bytes_read,
            elapsed_s=elapsed_s,
            fps=reader.frames_read / elapsed_s,
            caller_wait_s=reader.caller_wait_s,
            input_wait_s=reader.input_wait_s,
            output_wait_s=reader.output_wait_s,
            converting_s=reader.converting_s,
            reader=reader,
        )

    @property
    def bottleneck(self) -> Bottleneck | None:
        """Who is the slowest so far: ``"caller"``, ``"conversion"`` or ``"ffmpeg"``.

        None if nobody clearly is, and before the first frame.
        """
        return self.stats.bottleneck

    def read(self, timeout: float | None = None) -> VideoFrame | None:
        """The next frame; None at the end.

        The wait releases the GIL and lets Ctrl-C through. Test for the end with ``is None``: ``==`` compares each
        sample.

        Args:
            timeout: seconds to wait for it; None waits as long as it takes. At the end of the file, its packets are
                read to see whether frames are missing: this takes longer.

        Raises:
            DecoderError: the file is damaged, truncated or without frames, or FFmpeg printed an error or failed. All
                frames before were delivered, except those that FFmpeg's decoder held back.
            StalledError: no frame within `timeout`, or FFmpeg gave no sign of life for ``stall_timeout``. Nothing is
                lost: read again.
            ClosedError: after ``close``.
        """
        return self._with_timestamp(self._session.read(timeout))

    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copies the next frame into `buffer`. Returns its number of bytes; 0 at the end.

        Args:
            buffer: a writable, C-contiguous buffer of ``frame_bytes`` bytes.
            timeout: as for `read`.

        Raises:
            ValueError: the buffer has another size.
            TypeError, BufferError: it is not such a buffer.
            DecoderError, StalledError, ClosedError: as `read`.
        """
        with memoryview(cast("Buffer", buffer)) as view:  # NumPy's stubs declare it for Python 3.12 and later
            if view.readonly or not view.c_contiguous:
                raise BufferError("the buffer must be writable and C-contiguous")
            if view.nbytes != self.frame_bytes:
                raise ValueError(f"a frame has {self.frame_bytes} bytes, and the buffer {view.nbytes}")
            frame = self._with_timestamp(self._session.read(timeout))
            if frame is None:
                return 0
            view.cast("B")[:] = frame.data.cast("B")
        return self.frame_bytes

    def audio(self, **options: Unpack[AudioOptions]) -> AudioDecoder:
        """The audio of the same file, from the same `start`: `options` are those of `AudioDecoder`.

        Without a `start`, it begins with the file, with silence where the picture comes before the sound.

        It runs the FFmpeg of this decoder, unless `options` has ``settings`` with another.
        """
        first_s = (self._media.start_s or 0.0) - self._media.zero_s
        given: AudioOptions = {
            "start": self._options.start or (first_s if first_s >= 0 else None),
            "follow_playlists": self._options.follow_playlists,
        }
        given.update(options)
        settings = given.get("settings", DEFAULT_DECODER_SETTINGS)
        if settings.ffmpeg is None:
            given["settings"] = replace(settings, ffmpeg=self._program)
        return AudioDecoder(self._opened, **given)

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> VideoFrame: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[VideoFrame]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> VideoFrame | list[VideoFrame]:
        """The frame of that number, from 0, or from the end if it is negative; those of a slice as a list.

        It has the same pixels as in iteration, which goes on where it was. The first use opens the file in this process
        with libav (PyAV) and reads all of it for an index; see `batch`.

        Raises:
            IndexError: there are fewer frames.
            DecoderError: the frame is damaged, the file has changed, or it is no regular file.
            ValueError: the decoder has `filters`, `input_options` or `follow_playlists`.
            ClosedError: after ``close``.
        """
        return self._frames()[key]

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """The frame on screen at a time: the last that is shown then or before; the first frame if all are later.

        Args:
            time_s: in seconds, as `VideoFrame.time_s` counts. ``number / rate`` leads to its frame: where a file rounds
                times, to 1 ms in Matroska for instance, a frame that is shown so much later counts as shown then.

        Raises:
            ValueError: it is negative or not finite.
            DecoderError, ClosedError: as for ``decoder[number]``.
        """
        return self._frames().frame_at(time_s)

    @overload
    def batch(self, indices: Iterable[SupportsIndex], out: None = None) -> npt.NDArray[Any]: ...
    @overload
    def batch(self, indices: Iterable[SupportsIndex], out: _Out) -> _Out: ...
    def batch(self, indices: Iterable[SupportsIndex], out: Any = None) -> Any:
        """The frames of these numbers, in this order, as one array of frames × `shape`.

        A number may be negative, or there several times. Each group of pictures is decoded once, and frames between
        those that you want are decoded, but neither converted nor copied. libav decodes with as many threads as there
        are CPUs, without the GIL. In the child of a ``fork``, and after pickling, the file is opened anew.

        The first use makes an index. For H.264, HEVC, VP9, AV1 and the like in MP4, Matroska, WebM, MPEG-TS and FLV,
        that reads all packets once. For others, such as AVI and raw streams, it decodes the whole file once.

        Args:
            out: what to write to and return, of that shape and of `dtype`: a writable array, such as shared memory; or
                a tensor of PyTorch, on the CPU or on a GPU, or an array of CuPy, to which each frame is copied as soon
                as it is there. None makes an array, of which ``torch.from_numpy`` makes a tensor without a copy.

        Raises:
            IndexError, DecoderError, ClosedError: as for ``decoder[number]``.
            ValueError: `out` has another shape or dtype; or the decoder has options that ``decoder[number]`` refuses.
            BufferError, TypeError: `out` is read-only, as JAX's arrays are, or no array.
        """
        return self._frames().batch(indices, out)

    def _frames(self) -> FramesByNumber:
        """The frames by number, from the first use on."""
        self._check_open()
        if self._by_number is None or self._by_number.is_inherited:
            from penstock._media.frames_by_number import FramesByNumber

            made = FramesByNumber(self._plan)
            reason = None if self._options.conceal_errors else made.why_incomplete()
            self._by_number = made
            if reason:
                warn(f"{self._opened.path}: {reason}; frames by number are those before")
        return self._by_number

    def close(self) -> None:
        """Ends FFmpeg at once, and closes the file. What was delivered stays valid. May be called again."""
        super().close()
        if self._by_number is not None and not self._by_number.is_inherited:
            self._by_number.close()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {one.name: getattr(self._options, one.name) for one in fields(DecodeOptions)}
        return partial(Decoder, self._opened, stream=self._stream, **arguments), ()

    def __len__(self) -> int:
        """Frames that iteration gives in total, so that ``tqdm(decoder)`` works.

        It comes from the header of an MP4 or QuickTime file; the first use with others, and with `start`, reads the
        file's packets.

        Raises:
            TypeError: the number is not known; the message says why.
        """
        unknown, options = "the number of frames is not known", self._options
        if options.filters or not _FRAME_PRESERVING_OPTIONS.issuperset(options.input_options):
            raise TypeError(f"{unknown}: `filters` or `input_options` change it")
        if self._length is None and options.start is None:
            self._length = completeness.known_frames(self._track)
        if self._length is None:
            pts = completeness.shown_pts(self._track)
            if pts is None:
                raise TypeError(
                    f"{unknown}: the file does not tell it. Iterate to count them: sum(1 for _ in decoder)"
                )
            first = 0
            if options.start is not None:
                first = bisect_left(pts, first_pts(options.start, self._media, self._video))
            self._length = len(pts) - first
        return self._length if options.count is None else min(self._length, options.count)

    def __bool__(self) -> bool:
        return True  # whatever `len` is

    def __next__(self) -> VideoFrame:
        frame = self._with_timestamp(self._session.read())
        if frame is None:
            raise StopIteration
        return frame

    async def __anext__(self) -> VideoFrame:
        frame = self._with_timestamp(await self._session.read_async())
        if frame is None:
            raise StopAsyncIteration
        return frame

    def __repr__(self) -> str:
        layout = self._plan.layout
        size = f"{layout.width}x{layout.height}"
        return f"<Decoder {self._opened.path!r} {size} {layout.pixel_format}>"

    def _new_session(self) -> DecodeSession:
        return self._session_by(arguments=self._plan.arguments)

    def _start(self) -> None:
        super()._start()
        # FFmpeg opens the file meanwhile, so that this costs no time as a rule.
        if self._plan.may_seek and misses_frames(self._options.start, self._track):
            self._plan = replace(self._plan, may_seek=False)
            if self._run is not None:
                self._run.close()
            super()._start()

    def _with_timestamp(self, frame: Frame | None) -> VideoFrame | None:
        """The frame with its index and timestamp."""
        if frame is None:
            if self._session.delivered == 0:
                raise self._session.fail(self._why_no_frames())
            self._warn_at_end()
            return None
        pts = self._session.timestamps.take(frame.index)
        time_s = None if pts is None else time_of(pts, self._media, self._video.time_base)
        return frame_of(frame, self._plan.layout, index=frame.index, pts=pts, time_s=time_s)

    def _delivered(self) -> completeness.Delivered | None:
        """What was delivered; None if the decoder's options make that different from the file."""
        options, last = self._options, self._session.timestamps.last
        is_all_asked = self._session.delivered != options.count
        if (
            last is None
            or options.filters
            or not is_all_asked
            or not _FRAME_PRESERVING_OPTIONS.issuperset(options.input_options)
        ):
            return None
        return completeness.Delivered(
            frames=self._session.delivered if options.start is None else None,
            last_s=float(last * self._video.time_base),
            longest_s=float(self._session.timestamps.longest * self._video.time_base),
        )

    def _explain_damage(self, damage: Counter[str]) -> str | None:
        """The warning to give instead of an error, if all damage comes from beginning inside a group of pictures.

        Either the file begins there, or FFmpeg does, because it seeks to a place some frames before `start`.
        """
        start = self._options.start
        is_inside = completeness.begins_inside_group(self._track)
        if start is None and not is_inside:
            return None
        arguments = self._plan.beginning_arguments(before_start=not is_inside)
        beginning = FFmpegProcess(
            self._program, arguments, is_strict=False, stdout=subprocess.DEVNULL, error=DecoderError
        )
        try:
            beginning.start()
            beginning.wait(self._options.settings.stall_timeout)
        finally:
            beginning.end()
        if damage - beginning.log.reports:
            return None
        if start is None or is_inside:
            return "the file begins inside a group of pictures: its first frames are missing, or may be wrong"
        return f"FFmpeg reports damage to frames before start={start:g}, where it has to begin"

    def _why_incomplete(self) -> str | None:
        self._session.timestamps.read_all()
        delivered = self._delivered()
        if self._opened.failure:
            return self._opened.failure
        if delivered is None:
            return None
        return completeness.why_incomplete(self._track, delivered)

    def _warn_at_end(self) -> None:
        """Warns once of how the file begins, or of a wrong number in its header, at the line that read or iterates."""
        is_unsure = self._options.conceal_errors or self._options.start is not None
        delivered = None if self._has_warned or is_unsure else self._delivered()
        said = None if self._has_warned else self._session.warning
        self._has_warned = True
        if delivered is not None:
            said = said or completeness.wrong_count(self._track, delivered)
        if said:
            warn(f"{self._opened.path}: {said}")

    def _why_no_frames(self) -> str:
        if self._options.start is None:
            return "the video stream has no frames"
        length = (
            "" if self._media.duration_s is None else f"; the file is {self._media.duration_s:.3f} s long"
        )
        return f"there are no frames from {self._options.start:g} s on{length}"


def _chosen(media: MediaInfo, stream: int | None) -> VideoInfo:
    """The video stream to decode."""
    video = media.best_video
    if stream is not None and media.video:
        video = numbered_stream(media.path, "video", media.video, stream)
    if video is None:
        raise DecoderError(f"{media.path} has no video, only {_kinds(media)}")
    if not video.width or not video.height:
        animated = "; FFmpeg does not read animated WebP: Pillow does" * (video.codec == "webp")
        raise DecoderError(
            f"{media.path} does not tell the size of its video, and may have no frames{animated}"
        )
    return video


def _kinds(media: MediaInfo) -> str:
    kinds = [name for name, streams in (("a picture", media.video), ("sound", media.audio)) if streams]
    return " and ".join(kinds) or "other data"
