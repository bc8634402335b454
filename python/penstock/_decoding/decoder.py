"""The `Decoder`: a video file in, frames as arrays out."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock._common.keywords import OF_SOURCE, explains, explains_as, given
from penstock._common.messages import argument, warn
from penstock._common.reports import Bottleneck, DecoderEngine, DecoderStats
from penstock._common.types import WritableData
from penstock._decoding.any_frame import AnyFrameBase
from penstock._decoding.audio import AudioDecoder
from penstock._decoding.engines import read_by_libav, read_by_program, why_program
from penstock._decoding.frames_at_rate import FramesAtRate
from penstock._decoding.image_files import ImageFiles, VideoSource
from penstock._decoding.image_frames import open_images, read_images
from penstock._decoding.libav_engine import LibavEngine
from penstock._decoding.options import DecodeOptions, Fit, FloatType, SampleType
from penstock._decoding.plan import lost_bits, unmapped_hdr
from penstock._decoding.video_frame import VideoFrame, frame_of
from penstock._facts.info import MediaInfo
from penstock._facts.opening import times_may_jump
from penstock._facts.seeking import Clock
from penstock._facts.source import MediaSource, Source
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    ColorMatrix,
    ColorRange,
    DecoderSettings,
    check_settings,
)
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Buffer

    from penstock._decoding.libav_engine import RawFrame


class Decoder(AnyFrameBase):
    """Reads a video as NumPy arrays: its frames in order, or any frame by its number or time.

    ```python
    with Decoder("in.mp4") as decoder:
        for frame in decoder:
            print(frame.index, frame.time_s, frame.shape, frame.mean())
    ```

    Iteration returns each frame of the file once, in presentation order, as a `VideoFrame`: a NumPy array of height ×
    width × channels, with its index and its time. No frame is repeated or dropped to make the rate constant.
    ``decoder[7]``, ``decoder[::10]``, `frame_at` and `batch` return the same pixels, and don't move the iteration.

    **Engine.** libav (PyAV) reads regular files, bytes, file objects and URLs in this process, without an FFmpeg
    program. An FFmpeg program, which the first read starts, reads pipes, FIFOs and devices. It also reads files and
    URLs if you pass `filters`, `input_options`, `follow_playlists`, or `settings` with a program or a thread policy.
    libav then reads the frames that the program writes, some frames ahead on a thread of its own. With `isolated`,
    libav reads in a process of its own, in a sandbox. `engine` reports which of the two reads, and why.

    **URLs.** libav opens a URL once, and reads it on a thread of its own. With `start`, it seeks there. If the server
    can't do that, libav opens the URL again, and decodes from the beginning. If the server stops, `read` with a timeout
    raises a `StalledError`, and loses nothing. After ``stall_timeout`` without data, libav gives the server up for
    good. `close`, Ctrl-C and a cancelled task don't wait for the server. With `filters` and the other arguments that
    need a program, another FFmpeg program fetches the URL, once, from its beginning. The URL is opened again with
    `input_options`, which may be about its protocol, and if it can't be read in order, such as an MP4 file whose index
    is at its end.

    Nothing of a URL can be decoded again, so one thread decodes H.264, MPEG-2 and MPEG-4: its decoder marks damage. For
    a stream that is too fast for one thread, pass ``DecoderSettings(threads=4)``. With threads, up to 16 frames before
    damage may be missing, and the last one wrong.

    If libav lacks the protocol (srt, rist), an FFmpeg program fetches the stream, and another one decodes it. SRT
    doesn't tell the end of a stream from a lost connection: both raise a `DecoderError` after the last frame.

    **Damage.** Without `conceal_errors`, reading raises `DecoderError` after the good frames if a frame is damaged
    or missing, or if the file ends before its container says. If a frame is missing, libav decodes that part again
    without threads, so the result doesn't depend on the number of threads. This needs packets whose times name the
    frames. Other files (raw streams, VP8, MPEG-4, fields in packets of their own) are decoded by one thread. Damage is
    what the decoder refuses or marks: MPEG-2 doesn't mark it in fields. By number, frames that don't depend on damaged
    packets are returned. Times that go back or repeat (but in MPEG-TS, MPEG-PS and Ogg), a wrong number of frames in
    the header, or a file that begins inside a GOP, only cause a `penstock.FFmpegWarning`. No decoder sees some damage:
    the page on containers lists it.

    **Conversion.** Native threads convert YUV 4:2:0, 4:2:2 and 4:4:4 with 8 or 10 bits to RGB and gray, with the matrix
    and range of the file's tags. FFmpeg's filters convert other formats; `converted_by` says which. In 8-bit RGB, all
    pixels of a chroma sample get its value, and samples are at most 0.51 off the exact value. FFmpeg's default scaler
    interpolates chroma of 10 bits instead: in its 1080p test pictures of yuv420p10le, its RGB differs by at most 72
    (testsrc2, with hard edges) and 58 (mandelbrot), by 0.8 and 2.0 on average. Primaries and transfer don't change: you
    get a `penstock.FFmpegWarning` for HDR (PQ, HLG) that becomes 8-bit RGB or gray, unless `filters` convert it to SDR.

    **Memory.** You may write to a frame, and keep it. Its memory is recycled once you drop the last array on it. Up to
    four unused frames are kept, and `close` returns them. Decoding holds a frame for each thread of libav, plus the
    codec's own. With ``pixel_format="source"``, a picture of one plane without padding isn't copied: its array is
    read-only.

    **Threads and signals.** Several threads may read: each frame goes to one of them. Ctrl-C is answered between two
    packets. If a signal handler reads from the decoder that it interrupts, it gets a `RuntimeError`. A signal handler
    or another thread may call `close`: the thread that reads then closes the file.

    **Fork and pickle.** Iteration continues in the parent, and is closed in the child. In the child, random access
    opens the file again. The descriptor that libav has open in the parent stays open in the child. A pickled decoder
    opens the file again.

    Args:
        source: a path, or a URL that FFmpeg knows. A `str` that begins with a scheme and ``//`` is a URL, any other a
            path, whatever its characters. Or the bytes of a file, in any object with the buffer protocol: they are
            copied. Or an open binary file, or a descriptor: a regular file is read from its beginning, and its position
            stays; a pipe, FIFO or socket is read from where it is, in order only. An object without a descriptor, such
            as `io.BytesIO`, is copied to memory. Or an image sequence: a folder, a glob, a pattern with a number
            (``%05d.png``), or a list of paths. See the guide on images.
        fps: frames per second, at a fixed rate. Frame k is then the frame on screen at ``start + k / fps``, which is
            its `VideoFrame.time_s`. Frames are repeated and left out for that, until the last one is over. Iteration,
            `len`, numbers, times and slices count so, and `VideoFrame.source_index` is the number in the file. Only for
            regular files and bytes, without `filters`. At most 1,000,000. None is each frame once. An image sequence
            has all of its images at this rate, 25 by default.
        pixel_format: FFmpeg's name of the frames' pixel format (``ffmpeg -pix_fmts``); "source" is the file's own, in
            the byte order of this machine. rgb24, bgr24, rgba and gray return uint8; rgb48le, rgba64le, and YUV of more
            than 8 bits, uint16; grayf32le and gbrpf32le, float32. If you don't pass it, gray and RGB of more than 8
            bits, floats, and YUV of more than 12 bits become 8 bits, with a `penstock.FFmpegWarning`. For formats with
            alpha, and for "source" (which is then yuva420p), libvpx also decodes the alpha of VP8 and VP9 in WebM.
        size: width and height in pixels to scale to. One of them may be None, which keeps the aspect ratio. None is the
            video's own size, or the size that `filters` make.
        start: time in seconds, as `VideoFrame.time_s` counts, of the first frame. A time means the frame that is on
            screen then: the last one that isn't later, or the first of the video if all are. `filters` get the frames
            from that one on; of a pipe, a device or a URL, they get all frames, and `start` is a time after them.
        end: time in seconds at which the part ends: frames that begin then or later are left out.
        duration: seconds from `start` to the end, instead of `end`; without `start`, from 0.
        count: maximum number of frames, instead of `end`; None reads all.
        stream: number of the video stream, from 0; None picks the best one: the default stream, never a cover picture.
        filters: FFmpeg's filters (``-vf``) to apply first, in the file's own pixel format. Their output is scaled to
            `size`. They need an FFmpeg program, which can't do random access. If `size` isn't given in full, FFmpeg
            runs for one frame first to learn the size that the filters make: for a pipe or a URL, of a test picture.
        color_matrix: the matrix between the file's YUV and RGB: "bt601", "bt709" or "bt2020". "auto" is the file's tag,
            or BT.601 without a tag.
        color_range: "limited" (black at 16, white at 235 of 8 bits) or "full". "auto" is the file's tag, or limited
            without a tag.
        conceal_errors: whether to continue after damage, with the frames that libav or FFmpeg makes of it. libav then
            decodes with one thread.
        follow_playlists: whether a local file may be a playlist, whose local files FFmpeg opens: see `penstock.probe`.
        input_options: options of the FFmpeg program for its input, without their dash, such as ``{"hwaccel": "cuda"}``.
            They need an FFmpeg program, which can't do random access. The key of an encrypted MP4 file is one:
            ``{"decryption_key": "76a6…"}``.
        isolated: whether other processes parse the file, for files that you don't trust: one for the iteration, and one
            for random access. They run in a sandbox: they can't read other files, write files or open sockets, and
            their memory and CPU time are limited. Only for one regular file, or bytes. `engine` reports what the kernel
            can't confine; "strict" raises a `DecoderError` then.
        crop: left, top, width and height in pixels of the part that is used, of the upright picture: rotated as the
            file says, and after `filters`. `size` scales this part.
        fit: how the picture becomes `size`, if their shapes differ: "stretch" changes its aspect ratio, "cover" cuts
            off what is beyond the middle, and "contain" adds a border. Pixels that aren't square stay so.
        fill: samples of this border, one for each channel, in their order; None is black.
        channels_first: whether arrays are channels × height × width, for packed RGB and gray.
        dtype: "float32" or "float16", for samples as floats, which are computed from those of `pixel_format`.
        value_range: the floats that stand for the smallest and the largest sample, such as ``(0.0, 1.0)``. dtype and
            value_range belong together. Each value is computed in float64, and rounded once.
        settings: advanced settings: how many threads decode and convert, and which FFmpeg program to run instead. See
            `DecoderSettings`.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: if the file doesn't exist, or can't be read.
        OSError: if no descriptor, memory, process or thread is left, here or in a later call.
        DecoderError: if the source is no media file, or has no video; if there is no decoder for the alpha that you
            asked for; or if an FFmpeg program is needed and isn't found.
        ValueError: if an argument is impossible.
        TypeError: if `source` has another type. For a list of clips, open a decoder for each.
    """

    # `make fmt` writes the arguments here, and those in Args above, from `DecodeOptions`.
    @explains(
        "the others by their names, such as size=(640, 360)",
        **dict.fromkeys(("width", "height", "resolution"), "size=(width, height)"),
        **dict.fromkeys(("ffmpeg", "threads", "queue_items"), "settings=DecoderSettings(…)"),
        timeout="settings=DecoderSettings(stall_timeout=60)",
        pix_fmt='pixel_format="rgb24"',
        rate="fps=30",
        dimension_order="channels_first=True",
        **dict.fromkeys(("output_dtype", "float"), 'dtype="float32", value_range=(0.0, 1.0)'),
        seek="start=",
    )
    def __init__(
        self,
        source: VideoSource,
        *,
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
    ) -> None:
        options = DecodeOptions(
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
        ).checked()
        files = ImageFiles.of(source, options.rate)
        opened: Any = files or Source.of(cast("MediaSource", source), options.given_input)
        self._opened = opened
        # The times of images are those of this rate: nothing is repeated or left out.
        self._options = options if files is None else replace(options, fps=None)
        self._last = -1, -math.inf  # the number and time of the last frame in iteration
        self._is_order_said = False
        self._images = None if files is None else open_images(files, self._options)
        self._engine: LibavEngine
        if self._images is not None:
            self._engine = read_images(self._images, self._options)
        else:
            with opened.closed_after_failure(source):
                self._engine = self._engine_of(opened)
        # Of iteration at a fixed rate:
        self._next_number, self._made_ahead, self._at_rate = 0, dict[int, VideoFrame](), threading.Lock()
        self._plan = self._engine.plan
        video = self._plan.track.video
        self._clock = Clock(self._plan.track.media, video)
        warning = unmapped_hdr(video, self._plan.layout, self._options)
        if warning is None and size is None and not filters:
            warning = lost_bits(video, pixel_format)
        if warning:
            warn(f"{self._opened.path}: {warning}")

    def _engine_of(self, opened: Source) -> LibavEngine:
        options = self._options
        if options.fps is not None:
            self._check_by_number()
            self._check_file("fps", f"Pass {argument('filters', f'fps={options.fps}')}")
            # The grid of the rate chooses among all frames, by their times.
            options = options.of_all_frames
        if (reason := why_program(opened, options)) is None:
            return read_by_libav(opened, options)
        return read_by_program(opened, options, reason)

    @property
    def stream(self) -> MediaInfo.Video:
        """The decoded video stream, as the file describes it: its geometry, frame rate, length and colors."""
        return self._plan.track.video

    @property
    def file(self) -> MediaInfo:
        """The file: its container and all of its streams."""
        return self._plan.track.media

    @property
    def engine(self) -> DecoderEngine:
        """What reads the source, and why: libav, or an FFmpeg program. ``print(decoder.engine)``."""
        return self._engine.facts

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the frames, in pixels."""
        return self._plan.delivered.width, self._plan.delivered.height

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the frames' arrays."""
        return self._plan.delivered.shape

    @property
    def dtype(self) -> str:
        """Dtype of the frames, by NumPy's name, such as ``"<u2"``."""
        return self._plan.delivered.dtype

    @property
    def pixel_format(self) -> str:
        """Pixel format of the frames, by FFmpeg's name."""
        return self._plan.layout.pixel_format

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self._plan.delivered.frame_bytes

    @property
    def converted_by(self) -> str | None:
        """What converts the pixels: "penstock"; "ffmpeg", whose filters run in libav or in the program; or None.

        None means that the file already has the pixel format that you asked for.
        """
        return self._plan.converted_by

    @property
    def stats(self) -> DecoderStats:
        """Progress so far: frames read and delivered, and the seconds spent on decoding, conversion and waits."""
        if self._options.fps is not None:
            return DecoderStats(frames_read=self._next_number, frames_delivered=self._next_number)
        return self._engine.stats

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The slowest part so far: ``"caller"``, ``"conversion"``, or ``"ffmpeg"``, which is libav or the program.

        None if no part clearly is, and before the first frame.
        """
        return self.stats.bottleneck

    def read(self, timeout: float | None = None) -> VideoFrame | None:
        """Returns the next frame; None at the end.

        Test for the end with ``is None``: ``==`` compares each sample. Decoding releases the GIL, and Ctrl-C interrupts
        it between two packets.

        Args:
            timeout: seconds to wait; None waits as long as it takes. In a file, libav checks the time between two
                packets, so the call takes longer if the file itself blocks (NFS, FUSE). The end of the file may also
                take longer, because Penstock reads packets there to find missing frames.

        Raises:
            DecoderError: if the file is damaged, truncated or without frames, or if the FFmpeg program printed an error
                or failed. All frames before were delivered, except those that the program held back: a few, with
                FFmpeg 5.1.
            StalledError: if no frame came within `timeout`, or the FFmpeg program showed no sign of life for
                ``stall_timeout``. Nothing is lost: read again. Or if a URL's server sent nothing for ``stall_timeout``:
                then each further call raises it.
            ClosedError: if the decoder is closed, or this is the child of a ``fork``.
            RuntimeError: if a signal handler reads from the decoder that it interrupted.
        """
        return self._read(timeout)

    def _read(self, timeout: float | None = None) -> VideoFrame | None:
        if self._options.fps is None:
            return self._framed(self._engine.read(timeout))
        if timeout is not None:
            raise ValueError(f"{argument('timeout', timeout)} has no effect with fps=. Leave it out")
        return self._read_at_rate()

    def _read_at_rate(self) -> VideoFrame | None:
        # Otherwise two threads would get the same frame.
        with self._at_rate:
            self._make_ahead()
            frame = self._made_ahead.pop(self._next_number, None)
            self._next_number += frame is not None
            return frame

    def _make_ahead(self) -> None:
        frames, number = self._frames(), self._next_number
        if number not in self._made_ahead and isinstance(frames, FramesAtRate):
            self._made_ahead = {frame.index: frame for frame in frames.from_number(number)}

    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copies the next frame into `buffer`, and returns its number of bytes; 0 at the end.

        `batch` with ``out`` converts into your memory without this copy.

        Args:
            buffer: a writable, C-contiguous buffer of ``frame_bytes`` bytes.
            timeout: as for `read`.

        Raises:
            ValueError: if the buffer has another size.
            TypeError, BufferError: if `buffer` isn't such a buffer.
            DecoderError, StalledError, ClosedError: as for `read`.
        """
        with memoryview(cast("Buffer", buffer)) as view:  # NumPy's stubs declare it for Python 3.12 and later
            if view.readonly or not view.c_contiguous:
                raise BufferError("the buffer must be writable and C-contiguous")
            if view.nbytes != self.frame_bytes:
                raise ValueError(
                    f"the buffer must have {self.frame_bytes} bytes, as a frame has, not {view.nbytes}"
                )
            frame = self._read(timeout)
            if frame is None:
                return 0
            view.cast("B")[:] = frame.data.cast("B")
        return self.frame_bytes

    @explains_as(AudioDecoder.__init__)
    def audio(
        self,
        *,
        stream: int | None = OF_SOURCE,
        sample_rate: int | None = OF_SOURCE,
        channels: int | None = OF_SOURCE,
        dtype: SampleType = OF_SOURCE,
        matrix: ArrayLike | None = OF_SOURCE,
        start: float | None = OF_SOURCE,
        end: float | None = OF_SOURCE,
        duration: float | None = OF_SOURCE,
        conceal_errors: bool = OF_SOURCE,
        follow_playlists: bool = OF_SOURCE,
        input_options: Mapping[str, object] | None = OF_SOURCE,
        isolated: bool | Literal["strict"] = OF_SOURCE,
        settings: DecoderSettings = OF_SOURCE,
    ) -> AudioDecoder:
        """Returns a decoder for the audio of the same file, from the first frame to the same `end`.

        Without a `start`, the audio begins with the file, with silence where the picture comes before the audio; with
        `fps`, at 0 s, as the frames do. The audio of an `isolated` decoder is isolated as well. If the settings of
        another decoder name an FFmpeg program, that decodes the audio, unless you pass another one in ``settings``. Of
        this decoder's ``input_options``, only the key of an encrypted file is used. The arguments are those of
        `AudioDecoder`.
        """
        media = self._plan.track.media
        if self._images is not None:
            raise DecoderError(f"{media.path} has no audio track, because it is an image sequence")
        begin, until = self._options.start, self._options.end
        if self._options.fps is not None:
            begin = begin or 0.0
        elif begin:
            begin = self._begins_s(begin)
        # A file may begin before its zero, with samples that nobody hears: those of AAC's priming, for instance.
        elif (first_s := (media.start_s or 0.0) - media.zero_s) >= 0:
            begin = first_s if until is None or first_s < until else 0.0
        options = given(
            stream=stream,
            sample_rate=sample_rate,
            channels=channels,
            dtype=dtype,
            matrix=matrix,
            start=start,
            end=end,
            duration=duration,
            conceal_errors=conceal_errors,
            follow_playlists=follow_playlists,
            input_options=input_options,
            isolated=isolated,
            settings=settings,
        )
        options = {
            "start": begin,
            "end": None if "duration" in options else until,
            "follow_playlists": self._options.follow_playlists,
            "input_options": self._opened.decryption,
            "isolated": self._options.isolated,
        } | options
        chosen = options.get("settings", DEFAULT_DECODER_SETTINGS)
        check_settings(chosen, DecoderSettings)
        program = None if options["isolated"] else self._options.settings.ffmpeg
        if chosen.ffmpeg is None and program is not None:
            options["settings"] = replace(chosen, ffmpeg=program)
        return AudioDecoder(self._opened, **options)

    def _begins_s(self, start: float) -> float:
        """The time of the first frame of a part; `start` if it has none."""
        if (begins := self._engine.checks.begins(start)) is not None:
            return begins.shown_s
        pts = self._engine.first_pts()
        return start if pts is None else self._clock.time_s(pts)

    def close(self) -> None:
        """Closes the file, and ends the FFmpeg program at once if one reads. Delivered frames stay valid.

        You can call it again, from any thread, and from a signal handler. If another thread is reading, that thread
        closes the file after the current packet, and its call raises `ClosedError`.
        """
        self._engine.close()
        if self._by_number is not None:
            self._by_number.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Decoder, self._opened, **self._options.arguments), ()

    def __next__(self) -> VideoFrame:
        frame = self._read()
        if frame is None:
            raise StopIteration
        return frame

    async def __anext__(self) -> VideoFrame:
        if self._options.fps is None:
            frame = self._framed(await self._engine.read_async())
        else:
            import asyncio  # slow to import; a program that uses asyncio has done so

            await asyncio.to_thread(self._make_ahead)  # if the task is cancelled, no frame is lost
            frame = self._read_at_rate()
        if frame is None:
            raise StopAsyncIteration
        return frame

    def __repr__(self) -> str:
        return self._plan.title

    def __del__(self) -> None:
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.end_collected()

    def _framed(self, made: RawFrame | None) -> VideoFrame | None:
        """The frame with its time. Warns at the end, once, at the line that read or iterates."""
        engine = self._engine
        if made is None:
            if engine.warning is not None:
                warning, engine.warning = engine.warning, None
                warn(f"{self._opened.path}: {warning}")
            return None
        plan, time_s = self._plan, None if made.pts is None else self._clock.time_s(made.pts)
        if made.pts is not None:
            index, pts = self._last
            if index < made.index:  # otherwise another thread was quicker
                # Filters may give frames any times.
                if made.pts <= pts and not self._options.filters:
                    self._warn_of_order(made.index, self._clock.time_s(made.pts))
                self._last = made.index, made.pts
        return frame_of(
            made.memory, plan.delivered, plan.colors, index=made.index, pts=made.pts, time_s=time_s
        )

    def _warn_of_order(self, index: int, time_s: float) -> None:
        # Joined transport streams begin again, and their players know.
        if self._is_order_said or times_may_jump(self.file.container):
            return
        from penstock._decoding.frame_times import ANEW

        self._is_order_said = True
        warn(
            f"{self._opened.path}: the times go back or repeat: frame {index} is at {time_s:.3f} s, and the frame "
            f"before it isn't earlier. frame_at() and start= may select other frames there. {ANEW}"
        )
