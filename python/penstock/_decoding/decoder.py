"""The `Decoder`: a video file in, frames as arrays out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, Unpack, cast, get_args, overload

from penstock._common.messages import argument, warn
from penstock._common.reports import Bottleneck, DecoderEngine, DecoderStats
from penstock._common.types import HasDLPack, WritableData
from penstock._decoding.audio import AudioDecoder, AudioOptions
from penstock._decoding.engines import input_of, read_by_program, read_in_process, why_program
from penstock._decoding.image_files import ImageFiles, VideoSource
from penstock._decoding.image_frames import first_image, images_by_number, open_images, read_images
from penstock._decoding.pixels import Pixels
from penstock._decoding.plan import DecodeOptions, lost_bits, unmapped_hdr
from penstock._decoding.program_engine import ProgramEngine, changes_frames
from penstock._decoding.random_access import RandomAccess
from penstock._decoding.session import DecoderBase
from penstock._decoding.video_frame import VideoFrame, frame_of
from penstock._facts.info import MediaInfo, VideoInfo
from penstock._facts.seeking import Clock
from penstock._facts.source import MediaSource, Source
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
from penstock._native import AppliedPolicy, _count
from penstock.errors import DecoderError

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

    from penstock._decoding.frames_by_number import FramesByNumber
    from penstock._decoding.libav_engine import LibavEngine, Made


_Out = TypeVar("_Out", bound="WritableData | HasDLPack")


class Decoder(DecoderBase):
    """Reads a video as NumPy arrays: its frames in order, or any frame by its number or time.

    ```python
    with Decoder("in.mp4") as decoder:
        for frame in decoder:
            print(frame.index, frame.time_s, frame.shape, frame.mean())
    ```

    Iteration returns each frame of the file once, in presentation order, as a `VideoFrame`: a NumPy array of height ×
    width × channels, with its index and its time. No frame is repeated or dropped to make the rate constant.
    ``decoder[7]``, ``decoder[::10]``, `frame_at` and `batch` return the same pixels, and don't move the iteration.

    **Engine.** libav (PyAV) reads regular files, bytes and file objects in this process, without an FFmpeg program. An
    FFmpeg program, which the first read starts, reads URLs, pipes, FIFOs and devices. It also reads files if you pass
    `filters`, `input_options`, `follow_playlists`, or `settings` with a program or a thread policy. `engine` reports
    which of the two reads, and why.

    **Damage.** Without `conceal_errors`, reading raises `DecoderError` after the last good frame if a frame is damaged
    or missing, or if the file ends before its container says. libav returns a frame once all frames before it have
    come. It decodes a missing frame again without threads, so the result doesn't depend on the number of threads. This
    needs packets whose times name the frames. Other files (AVI, raw streams, VP8, MPEG-4) are decoded by one thread,
    and libav's error for a packet counts as damage. A wrong number of frames in the header, or a file that begins
    inside a group of pictures, only gives a `penstock.FFmpegWarning`. Some damage is invisible to every decoder: see
    the limits in the documentation.

    **Conversion.** Native threads make RGB and gray of YUV 4:2:0, 4:2:2 and 4:4:4 with 8 or 10 bits, by the matrix and
    range of the file's tags. FFmpeg's filters convert other formats; `converted_by` says which. In 8-bit RGB, all
    pixels of a chroma sample get its value. FFmpeg's default scaler interpolates chroma of 10 bits: in its 1080p test
    pictures of yuv420p10le, RGB differs by at most 72 (testsrc2, with hard edges) and 58 (mandelbrot), by 0.8 and 2.0
    on average. Samples are rounded, and at most 1 off the exact value. Primaries and transfer don't change: decoding
    HDR (PQ, HLG) to 8-bit RGB or gray gives a `penstock.FFmpegWarning`, unless `filters` convert it to SDR.

    **Memory.** You may write to a frame, and keep it. Its memory is recycled once you drop the last array on it; up to
    four unused frames are kept, and `close` returns them. Decoding holds a frame for each thread of libav, beside the
    codec's own. With ``pixel_format="source"``, a picture of one plane without padding isn't copied: its array is
    read-only.

    **Threads and signals.** Several threads may read: each frame goes to one of them. Ctrl-C is answered between two
    packets. A signal handler can't read from a decoder that it interrupts: it gets a `RuntimeError`. `close` may be
    called from a signal handler or another thread: the thread that reads closes the file.

    **Fork.** Iteration continues in the parent, and is closed in the child. There, frames by number and time open the
    file again. The descriptor that libav has open in the parent stays open in the child. A pickled decoder is opened
    again.

    Args:
        source: a path, or a URL that FFmpeg knows: a `str` that begins with a scheme and ``//`` is a URL, any other a
            path, whatever its characters. Or the bytes of a file, in any object with the buffer protocol: they are
            copied. Or a binary file that is open, or a descriptor: a regular file is read from its beginning, and its
            position stays. A pipe, FIFO or socket is read from where it is, and gives frames in sequence only. What has
            no descriptor, such as `io.BytesIO`, is copied to memory.
            Or image files, whose pictures are the frames: a folder, a glob, a pattern with a number (``%05d.png``), or
            a list of paths. See the guide on images.
        fps: pictures per second of image files, from which the times of the frames follow; 25 by default. Only for
            image files.
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
            to `size`. An FFmpeg program reads the file then, and frames by number are refused. If `size` is not given
            in full, FFmpeg runs for one frame first to learn the size that the filters make.
        color_matrix: the matrix between the file's YUV and RGB: "bt601", "bt709" or "bt2020". "auto" is the file's tag,
            or BT.601 without one.
        color_range: "limited" (black at 16, white at 235 of 8 bits) or "full". "auto" is the file's tag, or limited
            without one.
        conceal_errors: go on after damage in the file with the frames that libav or FFmpeg makes of it, and don't
            raise. libav then decodes by one thread.
        follow_playlists: a local file may be a playlist, and FFmpeg opens the local files that it leads to: see
            `penstock.probe`.
        input_options: options of the FFmpeg program for its input, without their dash, such as ``{"hwaccel": "cuda"}``.
            The program reads the file then, and frames by number are refused.
        isolated: for a file that nobody trusts: no byte of it is parsed in this process. Other processes read it in a
            box: they can read no other file, write none, open no socket, and have limits of memory and CPU time. One
            regular file, or bytes, in sequence. What the kernel cannot confine is in `engine`; with "strict" it is a
            `DecoderError`.
        settings: how many threads decode and convert, and which FFmpeg program to run instead: see `DecoderSettings`.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError: there is no such file, or it cannot be read.
        OSError: no descriptor, memory, process or thread is left, here or in a later call.
        DecoderError: it is no media file, or has no video, or there is no decoder for the alpha that was asked for; an
            FFmpeg program is needed, and was not found.
        ValueError: an argument is not possible.
        TypeError: `source` has another type. For a list of clips, open a decoder for each.
    """

    def __init__(
        self,
        source: VideoSource,
        *,
        fps: int | float | Fraction | None = None,
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
        isolated: bool | Literal["strict"] = False,
        settings: DecoderSettings = DEFAULT_DECODER_SETTINGS,
    ) -> None:
        check_settings(settings, DecoderSettings)
        check_choice("color_matrix", color_matrix, get_args(ColorMatrix))
        check_choice("color_range", color_range, get_args(ColorRange))
        check_place("start", start)
        if count is not None:
            _count("count", count)
        if not isinstance(pixel_format, str):
            raise TypeError(
                f"pixel_format must be a str, not {pixel_format!r}. Pass pixel_format={SOURCE!r} for that of the file"
            )
        files = ImageFiles.of(source, fps)
        opened: Any = files or Source.of(cast("MediaSource", source))
        self._opened = opened
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
            isolated=isolated,
            settings=settings,
        )
        self._stream = stream
        self._by_number: FramesByNumber | None = None
        self._length: int | None = None  # once known, without `count`
        self._images = None if files is None else open_images(files, self._options, stream)
        self._engine: LibavEngine | ProgramEngine
        if self._images is not None:
            self._engine = read_images(self._images, self._options)
        elif (reason := why_program(self._opened, self._options)) is None:
            self._engine = read_in_process(self._opened, self._options, stream)
        else:
            self._engine = read_by_program(self._opened, self._options, stream, reason)
        self._plan = self._engine.plan
        video = self._plan.track.video
        self._clock = Clock(self._plan.track.media, video.time_base)
        said = unmapped_hdr(video, self._plan.layout, self._options)
        if said is None and size is None and not filters:
            said = lost_bits(video, pixel_format)
        if said:
            warn(f"{self._opened.path}: {said}")

    @property
    def stream(self) -> VideoInfo:
        """The decoded video stream: its geometry, rate, length and colors, as described in the file."""
        return self._plan.track.video

    @property
    def file(self) -> MediaInfo:
        """The file: its container, and all of its streams."""
        return self._plan.track.media

    @property
    def engine(self) -> DecoderEngine:
        """What reads the source, and why: libav in this process, or an FFmpeg program. ``print(decoder.engine)``."""
        return self._engine.facts

    @property
    def pid(self) -> int | None:
        """The FFmpeg program's process id; None before it has started, and if libav reads."""
        return self._engine.pid

    @property
    def ffmpeg_policy(self) -> AppliedPolicy | None:
        """The policy that the FFmpeg program started with; None without one, and before the program has started."""
        return self._engine.policy

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or the block was left."""
        return self._engine.is_closed

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
        """Who converts the pixels: "penstock"; "ffmpeg", its filters in libav or in the program; or None.

        None means that the file has the pixel format that was asked for.
        """
        return self._plan.converted_by

    @property
    def stats(self) -> DecoderStats:
        """What was done so far: frames read and delivered, and the seconds spent on decoding, conversion and waits."""
        return self._engine.stats

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What is slowest so far: ``"caller"``, ``"conversion"``, or ``"ffmpeg"``, which is libav or the program.

        None if nothing clearly is, and before the first frame.
        """
        return self.stats.bottleneck

    def read(self, timeout: float | None = None) -> VideoFrame | None:
        """The next frame; None at the end.

        Decoding releases the GIL, and lets Ctrl-C through between two packets. Test for the end with ``is None``:
        ``==`` compares each sample.

        Args:
            timeout: seconds to wait for it; None waits as long as it takes. libav looks at the time between two
                packets: if the file itself blocks (NFS, FUSE), the call takes longer. So does the end of the file,
                where Penstock may read packets to see whether frames are missing.

        Raises:
            DecoderError: the file is damaged, truncated or without frames, or the FFmpeg program printed an error or
                failed. All frames before were delivered, except those that the program's decoder held back.
            StalledError: no frame within `timeout`, or the FFmpeg program gave no sign of life for ``stall_timeout``.
                Nothing is lost: read again.
            ClosedError: after ``close``, and in the child of a ``fork``.
            RuntimeError: a signal handler reads from the decoder that it interrupted.
        """
        return self._framed(self._engine.read(timeout))

    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copies the next frame into `buffer`. Returns its number of bytes; 0 at the end.

        `batch` with ``out`` converts into your memory without this copy.

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
                raise ValueError(
                    f"the buffer must have {self.frame_bytes} bytes, as a frame has, not {view.nbytes}"
                )
            frame = self._framed(self._engine.read(timeout))
            if frame is None:
                return 0
            view.cast("B")[:] = frame.data.cast("B")
        return self.frame_bytes

    def audio(self, **options: Unpack[AudioOptions]) -> AudioDecoder:
        """The audio of the same file, from the same `start`: `options` are those of `AudioDecoder`.

        Without a `start`, it begins with the file, with silence where the picture comes before the sound.

        An FFmpeg program decodes it: the one that this decoder's settings name, unless `options` has ``settings`` with
        another.

        Raises:
            ValueError: the decoder is `isolated`.
        """
        if self._options.isolated:
            raise ValueError(
                "an isolated decoder can't read audio. Use AudioDecoder(path), which isn't isolated"
            )
        media = self._plan.track.media
        if self._images is not None:
            raise DecoderError(f"{media.path} has no audio track, because it is an image sequence")
        first_s = (media.start_s or 0.0) - media.zero_s
        given: AudioOptions = {
            "start": self._options.start or (first_s if first_s >= 0 else None),
            "follow_playlists": self._options.follow_playlists,
        }
        given.update(options)
        settings = given.get("settings", DEFAULT_DECODER_SETTINGS)
        if settings.ffmpeg is None and (program := self._options.settings.ffmpeg) is not None:
            given["settings"] = replace(settings, ffmpeg=program)
        return AudioDecoder(self._opened, **given)

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> VideoFrame: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[VideoFrame]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> VideoFrame | list[VideoFrame]:
        """The frame of that number, from 0, or from the end if it is negative; those of a slice as a list.

        It has the same pixels as in iteration, which goes on where it was. libav decodes it in this process. The first
        use opens the file again, and reads all of its packets for an index: see `batch`.

        Raises:
            IndexError: there are fewer frames.
            DecoderError: the frame is damaged, the file has changed, or it is no regular file.
            ValueError: the decoder has `filters`, `input_options` or `follow_playlists`, or is `isolated`.
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

        A number may be negative, or there several times. Each group of pictures is decoded once. Frames between those
        that you want are decoded, but neither converted nor copied. A batch that follows another one goes on decoding
        from there. libav uses as many threads as there are CPUs, 16 at most, without the GIL. In the child of a
        ``fork``, and after pickling, the file is opened again.

        The first use makes an index. For H.264, HEVC, VP9, AV1 and the like in MP4, Matroska, WebM, MPEG-TS and FLV,
        it reads all packets once. For others, such as AVI and raw streams, it decodes the whole file once.

        Args:
            out: what to write to and return, of that shape and of `dtype`: a writable array, such as shared memory; or
                a tensor of PyTorch, on the CPU or on a GPU, or an array of CuPy, to which each frame is copied as soon
                as it is there. After an error, its content is undefined. None returns an array in recycled memory,
                which is the decoder's again when you drop the last array on it; two batches' memory is kept until
                `close`. ``torch.from_numpy`` makes a tensor of it without a copy.

        Raises:
            IndexError, DecoderError, ClosedError: as for ``decoder[number]``.
            ValueError: `out` has another shape or dtype; or the decoder has options that ``decoder[number]`` refuses.
            BufferError, TypeError: `out` is read-only, as JAX's arrays are, or no array.
        """
        return self._frames().batch(indices, out)

    def _frames(self) -> FramesByNumber:
        """The frames by number, from the first use on."""
        self._engine.check_open()
        if self._by_number is None or self._by_number.is_inherited:
            from penstock._decoding.frames_by_number import FramesByNumber, why_early

            options = self._options
            given = {
                "filters": options.filters,
                "input_options": options.input_options,
                "follow_playlists": options.follow_playlists,
                "isolated": options.isolated,
            }
            for name, value in given.items():
                if value:
                    raise ValueError(
                        f"decoder[i], frame_at() and batch() don't support {argument(name, value)}. Iterate over the "
                        "decoder instead"
                    )
            if self._images is not None:
                self._by_number = images_by_number(self._images, self._plan)
                return self._by_number
            file = RandomAccess(input_of(self._plan), self._engine.all_packets)
            made = FramesByNumber(self._plan, file, Pixels(self._plan))
            reason = None if options.conceal_errors else why_early(self._plan.track, file)
            self._by_number = made
            if reason:
                warn(f"{self._opened.path}: {reason}. decoder[i] only returns the frames before that")
        return self._by_number

    def close(self) -> None:
        """Closes the file, and ends the FFmpeg program at once if one reads. Delivered frames stay valid.

        May be called again, by any thread, and by a signal handler: if a thread is reading, that thread closes the file
        after the packet at hand, and its call raises `ClosedError`.
        """
        self._engine.close()
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
        unknown, options = "the number of frames is unknown", self._options
        if self._images is not None and self._length is None:
            self._length = len(self._images) - first_image(self._images, options)
        if options.filters or changes_frames(options.input_options):
            raise TypeError(f"{unknown}, because `filters` or `input_options` may change it")
        if self._length is None:
            self._length = self._engine.questions.frames(options.start)
        if self._length is None:
            raise TypeError(
                f"{unknown}, because the file doesn't say. Use sum(1 for _ in decoder), which reads all of it"
            )
        return self._length if options.count is None else min(self._length, options.count)

    def __bool__(self) -> bool:
        return True  # whatever `len` is

    def __next__(self) -> VideoFrame:
        frame = self._framed(self._engine.read())
        if frame is None:
            raise StopIteration
        return frame

    async def __anext__(self) -> VideoFrame:
        frame = self._framed(await self._engine.read_async())
        if frame is None:
            raise StopAsyncIteration
        return frame

    def __repr__(self) -> str:
        return self._plan.title

    def __del__(self) -> None:
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.end_collected()

    def _framed(self, made: Made | None) -> VideoFrame | None:
        """The frame with its time. Warns at the end, once, at the line that read or iterates."""
        engine = self._engine
        if made is None:
            if engine.warning is not None:
                warning, engine.warning = engine.warning, None
                warn(f"{self._opened.path}: {warning}")
            return None
        time_s = None if made.pts is None else self._clock.time_s(made.pts)
        return frame_of(made.memory, self._plan.layout, index=made.index, pts=made.pts, time_s=time_s)


def start(decoder: Decoder) -> None:
    """Starts to decode before the first read, so that frames are read ahead."""
    decoder._engine.read_ahead()
