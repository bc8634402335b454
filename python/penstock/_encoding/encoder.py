"""The `Encoder`: raw frames and samples in, a file out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from penstock._common.keywords import OF_SOURCE, explains, explains_as, given
from penstock._common.messages import warn
from penstock._common.ownership import check_owner
from penstock._common.progress import Reporter
from penstock._common.reports import EncoderStats
from penstock._common.types import FrameData
from penstock._encoding.encoder_base import EncoderBase
from penstock._encoding.encoders import Quality
from penstock._encoding.frame_check import frame_buffer, frame_size
from penstock._encoding.intake import Intake
from penstock._encoding.listed import by_quickest
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.plan import EncodePlan, plan
from penstock._encoding.rehearsal import needs_trial, working_plan
from penstock._encoding.request import OddSize, Request
from penstock._encoding.sound import Audio
from penstock._encoding.timing import Origin
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    Colors,
    EncoderSettings,
)
from penstock._native import Ticket, _seconds

if TYPE_CHECKING:
    import asyncio

    from penstock._decoding.decoder import Decoder
    from penstock._facts.info import MediaInfo


class Encoder(EncoderBase):
    """Encodes NumPy frames to a video file or stream, with FFmpeg in a process of its own.

    ```python
    with Encoder("out.mp4", size=(1920, 1080), fps=60) as encoder:
        for frame in frames:
            encoder.write(frame)
    ```

    A native thread converts the frames and feeds them to FFmpeg, so your program can make the next frame meanwhile.
    There are three ways to hand over a frame:

    - ``write`` copies it: you can reuse its memory when the call returns.
    - ``lease`` gives you memory to draw into, which saves the copy.
    - ``submit`` borrows your memory until its ticket is done.

    All three wait while the queue is full. If your loop must not wait, use a `FanOut`, whose `add` takes
    ``when_full="drop"``.

    **Existing files.** An existing file with content is replaced only after ``close`` has succeeded. Until then, FFmpeg
    writes a new file beside it (``out.part.mp4`` for ``out.mp4``), which gets the old file's owner and mode. If that
    isn't possible, for example because of hard links, FFmpeg overwrites the file in place, and you get an
    `FFmpegWarning`.

    **Exceptions and Ctrl-C.** Ctrl-C interrupts Python only: FFmpeg runs in its own process group and finishes the
    file. If an exception leaves the ``with`` block, the frames so far are finished, and the exception propagates. They
    are in ``out.mp4`` if the file is new, and otherwise in ``out.part.mp4``, beside the old file. A note on the
    exception says which. If FFmpeg shows no sign of life for 5 s, it is killed, and the note says so. If you never
    close an encoder, it is finished in the same way when it's collected or the interpreter exits, with a
    `ResourceWarning`. If FFmpeg fails or is killed, its file also stays as ``out.part.mp4`` if it has at least one
    frame.

    **Fork.** After a ``fork``, the encoder is closed in the child and continues in the parent.

    **Trial.** Penstock first tries unusual `options`, and pairs of container and codec that the page on formats doesn't
    list. It encodes four small frames into a temporary file and reads them back, which takes 0.1 to 0.4 s, once per
    process. If something that you asked for is lost, you get a `ValueError`. Other losses only cause an
    `FFmpegWarning`. In an asyncio event loop, which a trial would hold up, the trial comes at the first ``await``, such
    as ``async with Encoder(…)``, or at the first ``write``. Its errors then come there, and the encoder starts there.

    **Size.** Without `size`, the first frame starts FFmpeg. Until then `converted_by`, `frame_bytes`, `pid` and
    `ffmpeg_policy` are None, and `lease` and `write_audio` raise a `ValueError`.

    Args:
        output: the file to write: a path, or a URL that FFmpeg knows. A `str` with ``://`` is a URL. Everything else is
            a local path, whatever its characters, except that ``%05d`` stands for a number in the names of images,
            segments and playlists. ``shots/%05d.png`` writes an image sequence, and creates the folder if it's missing.
            Or a binary object with ``write``, such as ``io.BytesIO()`` or a server's response, if the container needs
            no seeking (``options={"f": "matroska"}``). A thread of its own passes it bytes while frames are encoded,
            and FFmpeg waits for it.
        fps: frames per second, more than 0. ``Fraction(30000, 1001)`` is exact. A float becomes the nearest fraction
            with a denominator of at most a million. None means a variable frame rate: ``write`` then needs the time of
            each frame (``time_s``), and FFmpeg takes 0.1 s longer to start the first time.
        size: width and height in pixels. None takes them from the first frame, if `pixel_format` is packed or gray.
        pixel_format: layout of the frames that you pass to ``write``: FFmpeg's name of any raw format (``ffmpeg
            -pix_fmts``).
        value_range: two finite numbers, such as ``(0.0, 1.0)`` or ``(-1.0, 1.0)``, for frames of float16, float32 or
            float64. The first becomes 0, and the second the highest sample of `pixel_format`, 255 or 65535. Values
            between them are rounded. Samples outside are clipped, and the report counts them. NaN makes ``write``
            raise. Only for packed RGB and gray.
        channels_first: whether frames are channels × height × width, as in PyTorch (1 × height × width for gray). Only
            for packed RGB and gray.
        vflip: whether the first row in memory is the bottom of the picture, as in OpenGL.
        odd_size: what to do if `output_pixel_format` can't have this width or height: "error" raises, "pad" repeats the
            last column or row.
        codec: FFmpeg's name of a video encoder (``ffmpeg -encoders``), or of a format: "h264" (or "H.264", "x264"),
            "hevc", "av1", "vp9" and others use FFmpeg's preferred encoder, and libsvtav1 for AV1. "auto" follows the
            suffix of the output: VP9 for .webm, AV1 for .avif, H.264 for .mp4, .mkv and .mov. The suffixes .gif, .webp,
            .apng, .png, .jpg and others mean one codec, and "auto" refuses unknown suffixes. "auto-h264", "auto-hevc"
            and "auto-av1" use a hardware encoder if one works: NVIDIA's (nvenc), Intel's (qsv) or AMD's (amf). Each is
            tried with one frame of this size and these options, once per process. If none works, they use libx264,
            libx265, and libsvtav1 or libaom-av1. The report says which encoder was used
            (`penstock.video.EncodeReport`).
        quality: "draft", "good" or "master", which look alike with each of the common encoders; or "lossless", which
            keeps every sample, or raises. Without a `codec`, "lossless" uses ffv1 if H.264 can't keep the samples and
            the container holds FFV1 (.mkv). `crf`, and a quality or a bit rate among the `options`, override the level;
            together with "lossless", they raise. None is the codec's own default.
        crf: constant quality, if the codec has that option. A lower number means better quality and a larger file.
            libx264 and libx265 accept 0 to 51, VP9 and AV1 encoders 0 to 63. The default of libx264 is 23.
        preset: speed of the codec against file size, if it has that option: "ultrafast" to "veryslow" for libx264.
        crash_safe: whether the file plays if FFmpeg is killed before ``close``. A kill then costs half a second, and
            the frames that the encoder holds back. MP4 and QuickTime get fragments, Matroska and WebM short clusters;
            times stay exact. MP4 and QuickTime can then be written to a pipe or an object, too. Other containers raise.
        options: FFmpeg's output options without their dash, ``{"tune": "film", "g": 60}``. ``{"f": "hls"}`` names the
            container (``ffmpeg -muxers``), which otherwise follows from the file's name. None as a value means an
            option without a value. A list repeats the option, ``{"map": ["0:v", "0:a"]}``. Options that change the
            number of frames (``t``, ``vf`` with ``fps``) make ``close`` raise, because it compares the frames submitted
            and encoded.
        output_pixel_format: pixel format of the video. "auto" keeps the samples for a lossless codec (ffv1, png,
            rawvideo) and for image files, as far as the format can, and keeps alpha if the codec supports it. Otherwise
            "auto" means yuv420p, or the codec's nearest format. yuv420p plays everywhere, and needs an even width and
            height. If "auto" drops alpha or bits, you get an `FFmpegWarning`. "ffmpeg" leaves the choice to FFmpeg.
        colors: matrix and range of the video's YUV, which the file states. If your frames are YUV already, pass the
            colors that they were made with. `options` can't have FFmpeg's color options.
        audio: the audio: a path, an `AudioFile`, an `AudioTrack` for ``write_audio``, or a list of these, one for each
            audio track. Audio from a file is copied if the container accepts it, and otherwise encoded (PCM, as in WAV,
            becomes AAC in MP4). It ends with the video. Options for its encoder, such as ``{"b:a": "192k"}`` among the
            `options`, force encoding.
        metadata: the file's tags, ``{"title": "Waves", "artist": "Ada"}``. Containers keep the names that they know.
            MP4 and QuickTime keep others with ``{"movflags": "use_metadata_tags"}`` among the `options`.
        timecode: the time code of the first frame, ``"01:00:00:00"``, or ``"01:00:00;00"`` for drop frame, which needs
            30000/1001 or 60000/1001 frames per second. MP4, QuickTime, Matroska, WebM, MXF, AVI and NUT keep it, and
            others raise.
        chapters: the start of each chapter in seconds, and its title: ``[(0.0, "Intro"), (5.0, "End")]``.
        subtitles: a subtitle file, such as ``.srt``, ``.vtt`` or ``.ass``, which players show on request. For MP4,
            QuickTime, Matroska and WebM.
        progress: True draws a bar on standard error. A number of frames draws a bar with a total. A callable is called
            with an `EncoderStats` twice a second, on a thread of its own, and once at the end.
        settings: advanced settings: which FFmpeg to run, its queue, priorities and timeouts.

    Raises:
        ValueError: if an argument is impossible, or doesn't suit the others: `value_range` or `channels_first` with
            this `pixel_format`; an unknown "auto-" codec; an odd size if `output_pixel_format` needs an even one; an
            `output_pixel_format`, `crf` or `preset` that the codec lacks; a `crf` outside of its scale; one of these,
            or a color, among the `options`; a `timecode` that the rate or the container can't have; `crash_safe` in
            another container, or beside an option that it sets; no known container; audio that can't be copied; an
            audio or subtitle file that is the output; or `subtitles` that the container can't hold.
        TypeError: if `output` is neither a `str`, a path nor an object with ``write``, or another argument has a wrong
            type.
        FileNotFoundError, NotADirectoryError: if the output's folder doesn't exist, or is a file.
        IsADirectoryError, PermissionError: if the output is a folder, or can't be written.
        EncoderError: if FFmpeg isn't found, doesn't start, or can't encode the frames of the trial.
        OSError: if no descriptor, memory, process or thread is left.
        DecoderError: if an audio or subtitle file is no media file, or has no audio or subtitles.
    """

    # `make fmt` writes the arguments here, and those in Args above, from `Request`.
    @explains(
        "fps=30",
        **dict.fromkeys(("bitrate", "bit_rate", "b"), 'options={"b:v": "4M"}'),
        **dict.fromkeys(("width", "height", "resolution"), "size=(width, height)"),
        **dict.fromkeys(("framerate", "frame_rate", "rate"), "fps=30"),
        **dict.fromkeys(("title", "comment"), 'metadata={"title": "…"}'),
        **dict.fromkeys(("format", "container"), 'options={"f": "matroska"}'),
        **dict.fromkeys(("ffmpeg", "queue_items"), "settings=EncoderSettings(…)"),
        threads='options={"threads": 4}',
        timeout="settings=EncoderSettings(stall_timeout=60)",
        pix_fmt="pixel_format= for the frames, output_pixel_format= for the file",
        filters='options={"vf": "…"}',
        when_full='when_full="drop" to FanOut.add(encoder)',
    )
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
        crash_safe: bool = False,
        options: Mapping[str, object] | None = None,
        output_pixel_format: str = AUTO,
        colors: Colors = DEFAULT_COLORS,
        audio: Audio | Sequence[Audio] | None = None,
        metadata: Mapping[str, str] | None = None,
        timecode: str | None = None,
        chapters: Sequence[tuple[float, str]] | None = None,
        subtitles: str | os.PathLike[str] | None = None,
        progress: bool | int | Callable[[EncoderStats], object] = False,
        settings: EncoderSettings = DEFAULT_ENCODER_SETTINGS,
    ) -> None:
        request = Request(
            output,
            fps=fps,
            size=size,
            pixel_format=pixel_format,
            value_range=value_range,
            channels_first=channels_first,
            vflip=vflip,
            odd_size=odd_size,
            codec=codec,
            quality=quality,
            crf=crf,
            preset=preset,
            crash_safe=crash_safe,
            options=options,
            output_pixel_format=output_pixel_format,
            colors=colors,
            audio=audio,
            metadata=metadata,
            timecode=timecode,
            chapters=chapters,
            subtitles=subtitles,
            progress=progress,
            settings=settings,
        )
        self._begin(*_first_plan(request))

    @classmethod
    def _planned(cls, made: EncodePlan) -> Self:
        """The encoder whose arguments were planned before."""
        encoder = cls.__new__(cls)
        encoder._begin(made, made.request.size is not None)
        return encoder

    def _begin(self, made: EncodePlan, is_ready: bool, origin: Origin | None = None) -> None:
        super().__init__(origin or Origin())
        self._plan = made
        for lost in made.warnings:
            warn(lost)
        self._reporter = Reporter.of(made.request.progress, made.rate)
        self._start_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        if is_ready:
            self._start(made)

    @classmethod
    @explains_as(__init__)
    def like(
        cls,
        source: Decoder | MediaInfo,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        fps: int | float | Fraction | None = OF_SOURCE,
        size: tuple[int, int] | None = OF_SOURCE,
        pixel_format: str = OF_SOURCE,
        value_range: tuple[float, float] | None = OF_SOURCE,
        channels_first: bool = OF_SOURCE,
        vflip: bool = OF_SOURCE,
        odd_size: OddSize = OF_SOURCE,
        codec: str = OF_SOURCE,
        quality: Quality | None = OF_SOURCE,
        crf: float | None = OF_SOURCE,
        preset: str | None = OF_SOURCE,
        crash_safe: bool = OF_SOURCE,
        options: Mapping[str, object] | None = OF_SOURCE,
        output_pixel_format: str = OF_SOURCE,
        colors: Colors = OF_SOURCE,
        audio: Audio | Sequence[Audio] | None = OF_SOURCE,
        metadata: Mapping[str, str] | None = OF_SOURCE,
        timecode: str | None = OF_SOURCE,
        chapters: Sequence[tuple[float, str]] | None = OF_SOURCE,
        subtitles: str | os.PathLike[str] | None = OF_SOURCE,
        progress: bool | int | Callable[[EncoderStats], object] = OF_SOURCE,
        settings: EncoderSettings = OF_SOURCE,
    ) -> Self:
        """Returns an encoder that keeps the properties of a source video.

        ```python
        with Decoder("in.mp4") as decoder, Encoder.like(decoder, "out.mp4") as encoder:
            for frame in decoder:
                encoder.write(255 - frame, time_s=frame.time_s)
        ```

        The encoder keeps the frame size, pixel aspect ratio, colors, HDR metadata, tags, time code, chapters and the
        best audio track. It keeps the bit depth and chroma subsampling if the frames have as many bits. The codec
        follows the name of the output.

        Frames keep their times at a constant and at a variable frame rate: pass ``time_s``, as above. At a constant
        rate, ``write`` checks each time. If you pass no times, frames are shown one after another, and the report warns
        if they end before the source, because the audio is cut there. The encoder uses the source's rate if the
        container has no times, or if the decoder has a ``start`` in a video with a constant rate. A decoder with a
        ``start`` leaves out the audio.

        The other arguments are those of `Encoder`, and override the source: ``audio=None`` leaves out the audio.

        Args:
            source: a `Decoder` whose frames you will write, or the `penstock.video.MediaInfo` of a file.
            output: the output, as for `Encoder`.

        Raises:
            DecoderError: if the source has no video.
            TypeError: if `source` is neither a `Decoder` nor a `MediaInfo`.
            ValueError: as for `Encoder`. ``write`` also raises it if you skip, add or repeat a frame at a constant
                rate, or write a frame without a time at a variable rate.
            OSError, EncoderError: as for `Encoder`.
        """
        from penstock._encoding.like import arguments_like_file

        arguments = given(
            fps=fps,
            size=size,
            pixel_format=pixel_format,
            value_range=value_range,
            channels_first=channels_first,
            vflip=vflip,
            odd_size=odd_size,
            codec=codec,
            quality=quality,
            crf=crf,
            preset=preset,
            crash_safe=crash_safe,
            options=options,
            output_pixel_format=output_pixel_format,
            colors=colors,
            audio=audio,
            metadata=metadata,
            timecode=timecode,
            chapters=chapters,
            subtitles=subtitles,
            progress=progress,
            settings=settings,
        )
        found, origin = arguments_like_file(source, output, arguments)
        for sentence in origin.lost:
            warn(sentence)
        encoder = cls.__new__(cls)
        encoder._begin(*_first_plan(Request.of(output, found), is_like=True), origin)
        return encoder

    def __enter__(self) -> Self:
        if self._plan.request.size is not None:
            self._intake_for()
        return self

    async def __aenter__(self) -> Self:
        import asyncio  # slow to import; a program that uses asyncio has done so

        if self._plan.request.size is not None:
            try:
                await self._start_in_loop()
            except BaseException:  # a cancellation, for example: the thread goes on, and may start FFmpeg
                asyncio.get_running_loop().run_in_executor(None, self.abort)
                raise
        return self

    @property
    def converted_by(self) -> str | None:
        """What converts the pixels: "penstock" or "ffmpeg"; None if the video has the same pixel format."""
        return None if self._started is None else self._started.plan.converted_by

    @property
    def frame_bytes(self) -> int | None:
        """Bytes of one frame in its `pixel_format`; None before the size is known."""
        return None if self._started is None else self._started.plan.frames.frame_bytes

    @property
    def frames_submitted(self) -> int:
        """Number of frames that ``write``, ``lease`` and ``submit`` accepted."""
        return 0 if self._started is None else self._started.submitted

    @property
    def frames_encoded(self) -> int:
        """Number of frames that FFmpeg has encoded. FFmpeg reports it about twice a second."""
        return 0 if self._started is None else self._started.process.frames

    def write(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """Copies one frame and queues it. You can reuse the frame's memory when the call returns.

        ```python
        frame = np.empty((120, 160, 3), np.uint8)
        with Encoder("out.mp4", fps=30) as encoder:
            for number in range(30):
                frame[:] = 8 * number
                encoder.write(frame)
        ```

        The call waits while the queue is full. The wait releases the GIL, and Ctrl-C interrupts it. The copy, or the
        conversion, also runs without the GIL.

        Args:
            frame: a NumPy array or another buffer; a tensor of PyTorch, CuPy, JAX or another library with DLPack, on
                the CPU or a GPU; a PIL image; or a ``moderngl.Buffer``. The shape is height × width × channels for
                packed pixel formats, height × width for gray, and the planes one after another for planar formats. The
                dtype is uint8, uint16 for formats of more than 8 bits, or float32. With `value_range` it is float16,
                float32 or float64; bfloat16 counts as float32. With `channels_first`, the channels come before the
                height. The frame needn't be contiguous: ``frame[::-1]`` and ``frame[..., ::-1]`` work as expected. For
                bytes and flat arrays, only the size is checked (``frame_bytes``); `value_range` and `channels_first`
                don't accept them.
            time_s: time of the frame in seconds from 0. An encoder with ``fps=None`` needs it, unless the frame is from
                a `Decoder` and has its own ``time_s``. It is rounded to 1 µs, and then to the container's unit:
                1/90,000 s in MP4 and QuickTime, 1 ms in Matroska and WebM. At a constant rate, it must match the time
                at which the frame is shown, within 10 ms plus half a frame. The report warns if the decoded frames' own
                times don't match.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, which is done when FFmpeg has the frame. You can ignore it, or ``await`` it.

        Raises:
            ValueError: if the shape, dtype, size or byte order of the frame is wrong, or it has NaN; or if `time_s`
                isn't later than the previous one, is missing with ``fps=None``, or doesn't match the constant rate.
            TypeError: if `frame` is none of these objects.
            StalledError: if there is no room within `timeout`, or FFmpeg shows no sign of life for ``stall_timeout``.
                The frame isn't queued.
            EncoderError: if FFmpeg has failed. The message includes its output.
            ClosedError: if the encoder is closed or aborted.
        """
        intake = self._intake_for(frame, timeout)
        return intake.queue(intake.take(frame, time_s), timeout)

    async def awrite(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """Writes a frame as `write` does, for asyncio: the event loop keeps running while the queue is full.

        Arguments and errors are those of `write`. Tasks that wait are served in the order of their calls. The frame's
        memory must not change until the call returns.
        """
        intake = await self._start_in_loop(frame, timeout)
        return await intake.queue_async(intake.take, frame, time_s, timeout=timeout)

    def submit(
        self, frame: FrameData, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Ticket:
        """Queues one frame without a copy. Its memory must stay unchanged until the ticket is done.

        Use it if you rotate several buffers, and wait for each buffer's ticket before you draw into it again. If the
        memory changes earlier, the video has a wrong frame, and nothing detects it. If in doubt, use `write` or
        `lease`.

        Arguments and errors are those of `write`, but the frame must be C-contiguous unless it is copied. Some frames
        are copied during the call: frames on a GPU, a ``moderngl.Buffer``, all frames of an encoder with ``fps=None``
        or `audio` (FFmpeg needs a header before each frame), and all frames with `value_range` or `channels_first`
        (they are converted).

        Returns:
            A ticket, which is done when FFmpeg has the frame and you can reuse its memory: ``ticket.wait()`` or
            ``await ticket``.
        """
        intake = self._intake_for(frame, timeout)
        return intake.queue(intake.borrow(frame, time_s), timeout)

    @contextmanager
    def lease(
        self, *, time_s: float | Fraction | None = None, timeout: float | None = None
    ) -> Iterator[npt.NDArray[Any]]:
        """Lends you memory to draw one frame into, and submits the frame at the end of the block.

        ```python
        with encoder.lease() as view:
            framebuffer.read_into(view)
        ```

        The frame isn't copied, unless frames have a `time_s`, the encoder has `audio`, or you keep a slice of the view,
        or a tensor or another object made of it.

        The memory isn't initialized. If the block raises, nothing is submitted. The view turns read-only at the end of
        the block. Arguments and errors are those of `write`, and the wait is at the end of the block.

        Yields:
            A writable, page-aligned NumPy array: height × width × channels of uint8 or uint16 for packed pixel formats,
            height × width for gray, and one dimension with all samples for planar formats. `value_range` and
            `channels_first` don't apply to it.

        Raises:
            ValueError: also if the encoder has no size yet.
        """
        intake, timeout = self._intake_for(), _seconds("timeout", timeout)
        layout, tick = intake.layout, intake.tick_of(time_s)
        slot = intake.lease()
        view = np.frombuffer(memoryview(slot), layout.dtype).reshape(layout.shape)
        holders = _references(view)
        yield view
        view.flags.writeable = False  # the frame is queued
        # The caller's variable is one more. Another reference, also to a slice, could still change the queued frame.
        view_holders, base_holders = _references(view)
        is_kept = view_holders > holders[0] + 1 or base_holders > holders[1]
        intake.queue(intake.take_back(slot, tick, is_kept=is_kept), timeout)

    def write_audio(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """Copies samples and queues them for the encoder's `AudioTrack`; waits while the queue is full.

        The first sample is at 0 s, like the first frame, and each call continues where the previous one ended. You can
        write audio and frames in any order: FFmpeg keeps up to 1 GiB of one, encoded, until the other begins.

        Args:
            samples: samples × channels, in the dtype of the `AudioTrack`; one dimension for one channel. The array
                needn't be contiguous.
            timeout: seconds to wait for room in the queue; None waits as long as it takes.

        Returns:
            A ticket, which is done when FFmpeg has the samples. With ``end="video"``, samples follow the picture, and
            the ticket only stands for what is queued before them.

        Raises:
            ValueError: if the shape or dtype is wrong, or a sample isn't finite; or if the encoder has no `AudioTrack`,
                or no size yet.
            TypeError: if `samples` isn't an array.
            StalledError, EncoderError, ClosedError: as for `write`. The samples aren't queued.
        """
        intake = self._intake_for()
        return intake.queue(intake.take_samples(samples), timeout)

    async def awrite_audio(self, samples: npt.ArrayLike, *, timeout: float | None = None) -> Ticket:
        """Writes samples as `write_audio` does, for asyncio: the event loop keeps running meanwhile.

        Arguments and errors are those of `write_audio`. The memory must not change until the call returns.
        """
        intake = await self._start_in_loop()
        return await intake.queue_async(intake.take_samples, samples, timeout=timeout)

    async def _start_in_loop(self, frame: FrameData | None = None, timeout: float | None = None) -> Intake:
        """`_intake_for` for asyncio: the event loop goes on during a start."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        loop = asyncio.get_running_loop()
        if self._started is None or loop in self._start_locks:
            async with self._start_locks.setdefault(loop, asyncio.Lock()):  # in the order of the calls
                if self._started is None:
                    await asyncio.to_thread(self._intake_for, frame, timeout)
        return self._intake_for(frame, timeout)

    def _intake_for(self, frame: FrameData | None = None, timeout: float | None = None) -> Intake:
        """What takes frames. FFmpeg starts now if it has not, and `frame` or the request has the size."""
        if self._started is None and (frame is not None or self._plan.request.size is not None):
            check_owner("encoder", self._forks)
            with self._starting:
                if self._started is None:
                    self._check_unstarted()
                    checked = self._plan
                    size = checked.request.size or frame_size(frame, checked.pixel_format, checked.form)
                    made = working_plan(
                        checked.request, size, timeout, checked.beside, is_like=self._origin.is_like
                    )
                    for lost in made.warnings:
                        if lost not in checked.warnings:
                            warn(lost)
                    if frame is not None:  # before FFmpeg overwrites the output
                        frame_buffer(frame, made.frames, form=made.form)
                    self._plan = made
                    self._start(made)
        _ = self._session  # which must be there
        return self._intake


def _first_plan(request: Request, *, is_like: bool = False) -> tuple[EncodePlan, bool]:
    """A plan to begin with, and whether the encoder can start by it. Frames may have to tell the size before.

    In an event loop, which a trial would hold up, the plan is only checked. It is tried at the first ``await``.
    """
    size = request.size
    request, beside = by_quickest(request)
    if size is not None and _is_in_loop() and needs_trial(made := plan(request, size, beside)):
        return working_plan(request, None, beside=made.beside), False
    return working_plan(request, size, beside=beside, is_like=is_like), size is not None


def _is_in_loop() -> bool:
    """Whether an event loop runs on this thread."""
    asyncio = sys.modules.get("asyncio")  # slow to import, and without it there is no loop
    return asyncio is not None and asyncio._get_running_loop() is not None


def _references(view: npt.NDArray[Any]) -> tuple[int, int]:
    """The reference counts of an array, and of its base, which arrays made from it reference, too."""
    return sys.getrefcount(view), sys.getrefcount(view.base)
