"""The `Encoder`: raw frames and samples in, a file out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, BinaryIO, Self, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from penstock._common.messages import warn
from penstock._common.progress import Reporter
from penstock._common.reports import EncoderStats
from penstock._common.types import FrameData
from penstock._encoding.encoder_base import EncoderBase
from penstock._encoding.encoder_options import LikeOptions
from penstock._encoding.encoders import Quality
from penstock._encoding.frame_check import frame_buffer, frame_size
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.plan import EncodePlan
from penstock._encoding.rehearsal import working_plan
from penstock._encoding.request import OddSize, Request
from penstock._encoding.session import EncodeSession
from penstock._encoding.sound import Audio
from penstock._encoding.timing import Origin
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    Colors,
    EncoderSettings,
)
from penstock._ffmpeg.program.process import check_owner
from penstock._native import Ticket, _seconds

if TYPE_CHECKING:
    import asyncio

    from penstock._decoding.decoder import Decoder
    from penstock._facts.info import MediaInfo


class Encoder(EncoderBase):
    """Encodes raw frames with FFmpeg, which it starts and feeds from a native thread.

    ```python
    with Encoder("out.mp4", size=(1920, 1080), fps=60) as encoder:
        for frame in frames:
            encoder.write(frame)
    ```

    ``write`` copies a frame: you can reuse its memory when the call returns. ``lease`` gives memory to draw into,
    which saves the copy. ``submit`` borrows your memory until its ticket is done. All of them wait while the queue is
    full: a loop that must not wait writes to a `FanOut`, whose `add` takes ``when_full="drop"``.

    An existing file with content is replaced only once ``close`` has succeeded: FFmpeg writes a new file beside it
    (``out.part.mp4`` for ``out.mp4``), which gets its owner and mode. If that is not possible, for example because of
    hard links, the file is overwritten in place, with an `FFmpegWarning`.

    FFmpeg runs in a process group of its own, so that Ctrl-C interrupts Python only, and FFmpeg can finish the file. An
    exception that leaves the ``with`` block finishes what was submitted and propagates. A new file has the frames so
    far; an existing one stays, and the frames so far are in ``out.part.mp4``. A note on the exception says which. An
    FFmpeg that gives no sign of life for 5 s is killed then, and a note says so. An encoder that is never closed is
    finished in the same way when it is collected or when the interpreter exits, with a `ResourceWarning`.

    What an FFmpeg that failed or was killed has written is left as ``out.part.mp4``, too, if a frame is in it.

    After a ``fork``, the encoder is closed in the child and continues in the parent.

    A container and codec that are not a listed pair (see the page on formats), or unusual `options`, are tried first:
    four small frames are encoded into a temporary file and read back, which takes 0.1 to 0.4 s, once in a process. If
    something that you asked for is lost, this raises a `ValueError`; other losses are warned of (`FFmpegWarning`).

    An encoder without `size` starts FFmpeg with its first frame: until then `converted_by`, `frame_bytes`, `pid` and
    `ffmpeg_policy` are None, and `lease` and `write_audio` raise a `ValueError`.

    Args:
        output: the file to write: a path, or a URL that FFmpeg knows. A `str` with ``://`` is a URL, everything else is
            a local path, whatever its characters; but in the names of images, of segments and of playlists, ``%05d``
            and the like stand for numbers. ``shots/%05d.png`` writes an image for each frame, and makes the folder if
            it is missing. Or a binary object with ``write``, such as ``io.BytesIO()`` or what a server
            answers with, if its container needs no seeking, ``options={"f": "matroska"}``: it gets bytes while frames
            are encoded, on a thread of its own, and FFmpeg waits for it.
        fps: frames per second, more than 0. ``Fraction(30000, 1001)`` is exact; a float becomes the nearest
            fraction with a denominator of at most a million. None for a variable rate: ``write`` then gets the time of
            each frame (``time_s``), and takes 0.1 s more to start FFmpeg for the first time.
        size: width and height in pixels. None takes them from the shape of the first frame, if `pixel_format` is packed
            or gray. FFmpeg starts with that frame.
        pixel_format: layout of the frames handed to ``write``: FFmpeg's name of any raw format
            (``ffmpeg -pix_fmts``).
        value_range: two finite numbers, ``(0.0, 1.0)`` or ``(-1.0, 1.0)``, for frames that are float16, float32 or
            float64: the first becomes 0, the second the most that a sample of `pixel_format` holds, 255 or 65535, and
            those between the nearest whole sample. Samples outside are clipped and counted in the report; NaN makes
            ``write`` raise. For packed RGB and gray.
        channels_first: frames are channels × height × width, as in PyTorch, 1 × height × width for gray. For packed RGB
            and gray.
        vflip: the first row in memory is the bottom of the picture, as in OpenGL.
        odd_size: what to do with a width or height that `output_pixel_format` cannot have: "error", or "pad" (repeat
            the last column or row).
        codec: FFmpeg's name of the video encoder (``ffmpeg -encoders``), or of a format: "h264" (or "H.264", "x264"),
            "hevc", "av1", "vp9" and others mean the encoder that FFmpeg prefers for it, and libsvtav1 for AV1. "auto"
            follows the name of the output: VP9 for .webm, AV1 for .avif, H.264 for .mp4, .mkv and .mov; .gif, .webp,
            .apng, .png, .jpg and others mean one codec, and any other is refused. "auto-h264", "auto-hevc" and
            "auto-av1" try NVIDIA's (nvenc), Intel's (qsv) and AMD's (amf) with one frame of this size and these
            options, the first time in a process that they are asked for; the first that works is taken, or else
            libx264, libx265 and libsvtav1 (or libaom-av1). The report says which (`penstock.video.EncodeReport`).
        quality: "draft", "good" or "master", which look alike with each of the common encoders; or "lossless", which
            keeps every sample, or raises; without a `codec`, it takes ffv1 if H.264 cannot keep them and the container
            holds FFV1 (.mkv). `crf`, and a quality or a bit rate among the `options`, override a level; "lossless"
            raises beside them. None is the codec's own default.
        crf: constant quality, if the codec has that option. A lower number is better and makes a larger file; libx264
            takes 0 to 51, and 23 by default.
        preset: how hard the codec works for a small file, if it has that option: "ultrafast" to "veryslow" of libx264.
        options: FFmpeg's output options without their dash, ``{"tune": "film", "g": 60}``. ``{"f": "hls"}`` names the
            container (``ffmpeg -muxers``), which otherwise follows from the file's name. A value of None gives an
            option without a value, and a list gives the option once for each of its values,
            ``{"map": ["0:v", "0:a"]}``. Options that change the number of frames (``r``, ``t``,
            ``vf`` with ``fps``) make ``close`` raise, because it compares the frames submitted and encoded.
        output_pixel_format: pixel format of the video. "auto" keeps the samples of the frames for a lossless codec
            (ffv1, png, rawvideo) and for image files, as far as their format can, and keeps alpha where the codec has
            it. Otherwise it is yuv420p, or the codec's nearest format: yuv420p plays everywhere and needs an even width
            and height. If this drops alpha or bits, an `FFmpegWarning` says so. "ffmpeg" leaves the choice to FFmpeg.
        colors: matrix and range of the video's YUV, written to the file. For frames that are YUV already, it says
            what they were made with. Options of FFmpeg that name colors are refused among the `options`.
        audio: the sound: a path, an `AudioFile`, an `AudioTrack` for ``write_audio``, or several of them, each a track
            of its own. A file's sound is copied if the container accepts it, and encoded otherwise (PCM, as in WAV,
            becomes AAC in MP4). It ends with the picture. Options for its encoder, such as ``{"b:a": "192k"}`` among
            the `options`, force encoding.
        metadata: the file's tags, ``{"title": "Waves", "artist": "Ada"}``. Containers keep the names that
            they know; MP4 and QuickTime keep others with ``{"movflags": "use_metadata_tags"}`` among the `options`.
        chapters: when each begins, in seconds, and its title: ``[(0.0, "Intro"), (5.0, "End")]``.
        subtitles: a file of them, such as ``.srt``, ``.vtt`` or ``.ass``, which players show if asked to: for MP4,
            QuickTime, Matroska and WebM.
        progress: True draws a bar on standard error; a number of frames draws a bar that
            has an end; a callable is called with an `EncoderStats` twice a second, on a thread of its own, and once
            at the end.
        settings: which FFmpeg to run, its queue, priorities and timeouts.

    Raises:
        ValueError: `size`, `fps` or `pixel_format` is not possible; `value_range` or `channels_first` is not, or not
            with this `pixel_format`; `codec` begins with "auto-" and is none of these; the size is odd and
            `output_pixel_format` needs an even one; the codec lacks `output_pixel_format`, `crf` or `preset`; one of
            these is in `options`, or a color is; nothing tells the container; a sound cannot be copied; a sound or
            `subtitles` is the output's file; or the container can't hold `subtitles`.
        TypeError: `output` is neither a `str`, a path nor an object with ``write``; or another argument has a wrong
            type.
        FileNotFoundError, NotADirectoryError: the output's folder does not exist, or is a file.
        IsADirectoryError, PermissionError: the output is a folder, or cannot be written.
        EncoderError: FFmpeg was not found, could not be started, or could not encode the frames of the trial.
        OSError: no descriptor, memory, process or thread is left for it.
        DecoderError: a file for the sound or the subtitles is no media file, or has no sound or subtitles.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        fps: int | float | Fraction | None,
        size: tuple[int, int] | None = None,
        pixel_format: str = "rgb24",
        value_range: tuple[float, float] | None = None,
        channels_first: bool = False,
        vflip: bool = False,
        odd_size: OddSize = "error",
        codec: str = AUTO,
        quality: Quality | None = None,
        crf: float | None = None,
        preset: str | None = None,
        options: Mapping[str, object] | None = None,
        output_pixel_format: str = AUTO,
        colors: Colors = DEFAULT_COLORS,
        audio: Audio | Sequence[Audio] | None = None,
        metadata: Mapping[str, str] | None = None,
        chapters: Sequence[tuple[float, str]] | None = None,
        subtitles: str | os.PathLike[str] | None = None,
        progress: bool | int | Callable[[EncoderStats], object] = False,
        settings: EncoderSettings = DEFAULT_ENCODER_SETTINGS,
    ) -> None:
        given = locals()
        request = Request(**{one.name: given[one.name] for one in fields(Request)})
        self._begin(working_plan(request, size), progress)

    @classmethod
    def _planned(
        cls,
        made: EncodePlan,
        progress: bool | int | Callable[[EncoderStats], object] = False,
        origin: Origin | None = None,
    ) -> Self:
        """The encoder whose arguments were planned before, for frames that come from `origin`."""
        encoder = cls.__new__(cls)
        encoder._begin(made, progress, origin)
        return encoder

    def _begin(
        self,
        made: EncodePlan,
        progress: bool | int | Callable[[EncoderStats], object],
        origin: Origin | None = None,
    ) -> None:
        super().__init__(origin or Origin())
        self._plan = made
        for lost in made.warnings:
            warn(lost)
        self._reporter = Reporter.of(progress, made.rate)
        self._start_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        if made.request.size is not None:
            self._start(made)

    @classmethod
    def like(
        cls,
        source: Decoder | MediaInfo,
        output: str | os.PathLike[str] | BinaryIO,
        **options: Unpack[LikeOptions],
    ) -> Self:
        """Returns an encoder that keeps the properties of a source video.

        ```python
        with Decoder("in.mp4") as decoder, Encoder.like(decoder, "out.mp4") as encoder:
            for frame in decoder:
                encoder.write(255 - frame, time_s=frame.time_s)
        ```

        It keeps the frame size, pixel aspect ratio, colors, HDR metadata, tags, chapters and the best of the sounds,
        and the bit depth and chroma subsampling if the frames have as many bits. The codec follows the name of the
        output. Frames keep their times: pass them as ``time_s``, as above, for a constant and for a variable rate. The
        rate is the source's if the container has no times, or if the decoder has a ``start`` in a video with a constant
        rate. With a ``start``, the sound is left out.

        At a constant rate, ``write`` checks each time. Without times, frames are shown one after another, and the
        report warns if they end before the source, whose sound is then cut.

        Args:
            source: a `Decoder` whose frames will be written, or the `penstock.video.MediaInfo` of a file.
            output: as for `Encoder`.
            options: those of `Encoder`, which count more than the source: ``audio=None`` leaves the sound out.

        Raises:
            DecoderError: the source has no video.
            TypeError: it is neither a `Decoder` nor a `MediaInfo`.
            ValueError: as for `Encoder`; ``write`` also raises it if frames of a constant rate are skipped, added or
                repeated, or come without a time at a variable rate.
            OSError, EncoderError: as for `Encoder`.
        """
        from penstock._encoding.like import arguments_like_file

        found, origin = arguments_like_file(source, output, options)
        for sentence in origin.lost:
            warn(sentence)
        progress = found.pop("progress", False)
        request = Request(output, **found)
        return cls._planned(working_plan(request, request.size, is_like=True), progress, origin)

    @property
    def converted_by(self) -> str | None:
        """Who converts the pixels: "penstock", "ffmpeg", or None if the video has the same pixel format."""
        return None if self._started is None else self._started.plan.converted_by

    @property
    def frame_bytes(self) -> int | None:
        """Bytes of one frame in its `pixel_format`; None before the size is known."""
        return None if self._started is None else self._started.plan.frames.frame_bytes

    @property
    def frames_submitted(self) -> int:
        """Frames that ``write``, ``lease`` and ``submit`` accepted."""
        return 0 if self._started is None else self._started.submitted

    @property
    def frames_encoded(self) -> int:
        """Frames that FFmpeg has encoded. FFmpeg reports this about twice a second."""
        return 0 if self._started is None else self._started.process.frames

    def write(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """Copies one frame and queues it; waits while the queue is full. You can reuse the frame's memory afterwards.

        ```python
        frame = np.empty((120, 160, 3), np.uint8)
        with Encoder("out.mp4", fps=30) as encoder:
            for number in range(30):
                frame[:] = 8 * number
                encoder.write(frame)
        ```

        The copy, or the conversion, is done before the call returns, without the GIL. The wait releases the GIL and
        lets Ctrl-C through.

        Args:
            frame: a NumPy array, or any other buffer; a tensor of PyTorch, CuPy, JAX or another library with DLPack, on
                the CPU or on a GPU; a PIL image; a ``moderngl.Buffer``. Its shape is height × width × channels for
                packed pixel formats, height × width for gray, and the planes one after another for planar ones; its
                dtype is uint8, uint16 for formats of more than 8 bits, or float32. With `value_range` it is float16,
                float32 or float64, and with `channels_first` the channels come before the height. bfloat16 counts as
                float32. It need not be contiguous: ``frame[::-1]`` and ``frame[..., ::-1]`` work as expected. Bytes and
                flat arrays are checked by their size only, ``frame_bytes``, and are no frames with `value_range` or
                `channels_first`.
            time_s: the time of the frame in seconds from 0 on. An encoder with ``fps=None`` needs it, or a frame from a
                `Decoder`, which carries its ``time_s``. It is rounded to 1 µs, and by the container to its own unit:
                1/90,000 s in MP4 and QuickTime, 1 ms in Matroska and WebM. At a constant rate, it must be the time at
                which the frame is shown, within 10 ms and half a frame, as containers round times. If the times that
                decoded frames carry are others, the report warns.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, done when FFmpeg has the frame. It may be ignored; ``await`` works.

        Raises:
            ValueError: the frame has another shape, dtype, size or byte order, or has NaN; or `time_s` is not later
                than that of the frame before, is missing with ``fps=None``, or is not the frame's time at the constant
                rate.
            TypeError: it is none of these objects.
            StalledError: no room within `timeout`, or no sign of life from FFmpeg for ``stall_timeout``; the frame is
                not queued.
            EncoderError: FFmpeg has failed; the message includes its output.
            ClosedError: after ``close`` or ``abort``.
        """
        session = self._session_for(frame, timeout)
        return session.queue(session.take(frame, time_s), timeout)

    async def awrite(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """`write` for asyncio: while the queue is full, the event loop goes on.

        Several waiting tasks are served in the order of their calls. The arguments and errors are those of `write`; the
        frame's memory must not change until this returns.
        """
        import asyncio  # slow to import; a program that uses asyncio has done so

        loop = asyncio.get_running_loop()
        if self._started is None or loop in self._start_locks:
            async with self._start_locks.setdefault(loop, asyncio.Lock()):  # in the order of the calls
                if self._started is None:
                    await asyncio.to_thread(self._session_for, frame, timeout)
        session = self._session_for(frame, timeout)
        return await session.queue_async(session.take, frame, time_s, timeout=timeout)

    def submit(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """Queues one frame without a copy: its memory must stay unchanged until the ticket is done.

        For programs that rotate several buffers and wait for each one's ticket before they draw into it again. An
        earlier change makes a wrong frame, which nothing detects: if in doubt, use `write` or `lease`. A frame on a GPU
        and a ``moderngl.Buffer`` are copied at the call, and so is every frame with ``fps=None`` or `audio`, because
        FFmpeg gets a header before each, and with `value_range` or `channels_first`, because it is converted. Arguments
        and errors are those of `write`, but a frame that is not copied must be C-contiguous.

        Returns:
            A ticket, done when FFmpeg has the frame and you can reuse its memory; ``ticket.wait()``, ``await ticket``.
        """
        session = self._session_for(frame, timeout)
        return session.queue(session.borrow(frame, time_s), timeout)

    @contextmanager
    def lease(
        self, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Iterator[npt.NDArray[Any]]:
        """Leases memory for one frame, and submits it at the end of the block.

        There is no copy unless frames have a `time_s`, the encoder has `audio`, or you keep a part of the view, or a
        tensor or another object made of it.

        ```python
        with encoder.lease() as view:
            framebuffer.read_into(view)
        ```

        The memory is not initialized. A block that raises submits nothing. The view turns read-only at the end of the
        block; its memory is recycled once FFmpeg has read it, or it was converted, and you have dropped the view.
        Arguments and errors are those of `write`; the wait is at the end of the block.

        Yields:
            A writable NumPy array, page-aligned: height × width × channels of uint8 or uint16 for packed pixel
            formats, height × width for gray, and all samples in one dimension for planar ones. `value_range` and
            `channels_first` are for frames that you hand in, and change nothing here.

        Raises:
            ValueError: also if the encoder has no size yet.
        """
        session, timeout = self._session, _seconds("timeout", timeout)
        layout, tick = session.plan.frames, session.tick_of(time_s)
        slot = session.lease()
        view = np.frombuffer(memoryview(slot), layout.dtype).reshape(layout.shape)
        holders = _references(view)
        yield view
        view.flags.writeable = False  # the frame is queued
        session.check_open()
        # The caller's variable is one more. Another reference, also to a slice, could still change the queued frame.
        view_holders, base_holders = _references(view)
        is_kept = view_holders > holders[0] + 1 or base_holders > holders[1]
        take = session.feed.take if is_kept else session.feed.take_lease
        session.queue(take(slot, tick), timeout)

    def write_audio(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """Copies samples and queues them, for an encoder with an `AudioTrack`; waits while the queue is full.

        The first sample is at 0 s, as is the first frame, and each call's samples follow those of the call before.
        Sound and pictures may come in any order: FFmpeg keeps what it has encoded of one until the other begins, up to
        1 GiB.

        Args:
            samples: samples × channels, of the dtype of the `AudioTrack`; or one dimension for one channel. It need not
                be contiguous.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, done when FFmpeg has the samples.

        Raises:
            ValueError: the samples have another shape or dtype, or are not finite; or the encoder has no `AudioTrack`,
                or no size yet.
            TypeError: they are no array.
            StalledError, EncoderError, ClosedError: as `write`; the samples are not queued.
        """
        session = self._session
        return session.queue(session.take_samples(samples), timeout)

    async def awrite_audio(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """`write_audio` for asyncio: while the queue is full, the event loop goes on.

        The arguments and errors are those of `write_audio`; the memory must not change until this returns.
        """
        session = self._session
        return await session.queue_async(session.take_samples, samples, timeout=timeout)

    def _session_for(self, frame: FrameData, timeout: float | None = None) -> EncodeSession:
        """The session. It starts now if `frame` is the first and tells the size."""
        if self._started is None:
            check_owner("encoder", self._forks)
            with self._starting:
                if self._started is None:
                    self._check_unstarted()
                    checked = self._plan
                    size = frame_size(frame, checked.pixel_format, checked.form)
                    made = working_plan(checked.request, size, timeout, checked, is_like=self._origin.is_like)
                    for lost in made.warnings:
                        if lost not in checked.warnings:
                            warn(lost)
                    frame_buffer(frame, made.frames, form=made.form)  # before FFmpeg overwrites the output
                    self._plan = made
                    self._start(made)
        return self._session


def _references(view: npt.NDArray[Any]) -> tuple[int, int]:
    """The reference counts of an array, and of its base, which arrays made from it reference, too."""
    return sys.getrefcount(view), sys.getrefcount(view.base)
