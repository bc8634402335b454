"""The frames of a `Decoder` by their numbers and times: ``decoder[7]``, `frame_at`, `batch`, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from penstock._common.messages import argument
from penstock._common.types import HasDLPack, WritableData
from penstock._decoding.engines import input_of, why_program
from penstock._decoding.frames_at_rate import FramesAtRate
from penstock._decoding.frames_by_number import FramesByNumber, why_early
from penstock._decoding.image_frames import images_by_number, wanted_images
from penstock._decoding.pixels import NoPixels, Pixels
from penstock._decoding.program_engine import changes_frames
from penstock._decoding.random_access import RandomAccess
from penstock._decoding.session import DecoderBase
from penstock._decoding.video_frame import VideoFrame
from penstock._ffmpeg.command import endpoints

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock._decoding.frames_by_number import FramesAnywhere
    from penstock._decoding.image_sequence import ImageSequence
    from penstock._decoding.libav_engine import LibavEngine
    from penstock._decoding.options import DecodeOptions
    from penstock._decoding.pixels import Arrays
    from penstock._decoding.plan import DecodePlan

_Out = TypeVar("_Out", bound="WritableData | HasDLPack")


class AnyFrameBase(DecoderBase):
    """What a `Decoder` does without moving its iteration. The `Decoder` sets the attributes."""

    _opened: Any
    _options: DecodeOptions
    _engine: LibavEngine
    _plan: DecodePlan
    _images: ImageSequence | None
    _by_number: FramesByNumber | None = None
    _length: int | None = None  # once known, without `count`

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> VideoFrame: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[VideoFrame]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> VideoFrame | list[VideoFrame]:
        """Returns the frame of this number, from 0, or from the end if it's negative; for a slice, a list of frames.

        ```python
        with Decoder("in.mp4") as decoder:
            first, last = decoder[0], decoder[-1]
            every_tenth = decoder[::10]  # a list
        ```

        The frame has the same pixels as in iteration, and the iteration doesn't move. libav decodes the frame, in this
        process unless the decoder is `isolated`. Number i is the i-th frame of iteration. The first use that
        asks for more than frame 0 reads all packets of the file: see `batch`.

        Raises:
            IndexError: if the video has fewer frames.
            DecoderError: if the frame is damaged, or the file has changed.
            ValueError: if the source is no regular file, or the decoder has `filters`, `input_options` or
                `follow_playlists`.
        """
        return self._frames()[key]

    def _check_file(self, what: str, remedy: str) -> None:
        if self._images is None and endpoints.identity(self._opened.url) is None:
            raise ValueError(f"{what} needs a regular file, which {self._opened.path} is not. {remedy}")

    @property
    def times_s(self) -> npt.NDArray[np.float64]:
        """The times of all frames in seconds, as `VideoFrame.time_s` counts, in an array of float64.

        No frame is converted. What it costs, and what it needs, is as for `batch`.

        Raises:
            DecoderError, ClosedError, ValueError: as for ``decoder[number]``.
        """
        self._check_file("times_s", "Iterate over the decoder, and use frame.time_s")
        return self._frames().times_s()

    def index_at(self, time_s: float | Fraction) -> int:
        """Returns the number of the frame that `frame_at` returns, without decoding it.

        Raises:
            ValueError: if `time_s` is negative or not finite; or as for `times_s`.
            DecoderError, ClosedError: as for ``decoder[number]``.
        """
        self._check_file("index_at()", "Iterate over the decoder, and use frame.time_s")
        return self._frames().index_at(time_s)

    def frame_at(self, time_s: float | Fraction) -> VideoFrame:
        """Returns the frame that is on screen at `time_s`; the last one after the end.

        A time means the frame that is on screen then: the last one that isn't later, or the first of the video if all
        are.

        ```python
        with Decoder("in.mp4") as decoder:
            frame = decoder.frame_at(1.5)
            print(frame.index, frame.time_s)
        ```

        Args:
            time_s: time in seconds, as `VideoFrame.time_s` counts. ``number / rate`` returns that frame, even if the
                file rounds its times (to 1 ms in Matroska, for instance) and shows the frame that much later.

        Raises:
            ValueError: if `time_s` is negative or not finite; or as for ``decoder[number]``.
            DecoderError, ClosedError: as for ``decoder[number]``.
        """
        return self._frames().frame_at(time_s)

    @overload
    def batch(
        self,
        indices: Iterable[SupportsIndex] | None = None,
        out: None = None,
        *,
        times_s: Iterable[float | Fraction] | None = None,
    ) -> npt.NDArray[Any]: ...
    @overload
    def batch(
        self,
        indices: Iterable[SupportsIndex] | None = None,
        *,
        out: _Out,
        times_s: Iterable[float | Fraction] | None = None,
    ) -> _Out: ...
    @overload
    def batch(self, indices: Iterable[SupportsIndex], out: _Out) -> _Out: ...
    def batch(
        self,
        indices: Iterable[SupportsIndex] | None = None,
        out: Any = None,
        *,
        times_s: Iterable[float | Fraction] | None = None,
    ) -> Any:
        """Returns the frames of these numbers or times, in this order, as one array of frames × `shape`.

        ```python
        with Decoder("in.mp4", size=(224, 224)) as decoder:
            batch = decoder.batch([7, 3, 3, -1])  # 4 × 224 × 224 × 3
            decoder.batch(range(4), out=batch)  # into memory that you have
            decoder.batch(times_s=[0.5, 1.25])  # as frame_at returns them
        ```

        Each GOP is decoded once. Frames between the ones that you want aren't converted or copied. In H.264, H.265, AV1
        and MPEG-2, they aren't decoded either if no other frame is made of them, as of many B-frames. If a batch
        follows the previous one in the file, decoding continues from there. libav uses one thread per CPU, at most 16,
        without the GIL. In the child of a ``fork``, and after pickling, the file is opened again.

        The first use finds out which packet holds which frame. It reads all packets, if their times name the frames. It
        decodes the whole file once if they don't: in raw streams, AVI with B-frames, VP8 and MPEG-4, or if each field
        has its own packet, or if the times contradict each other. If iteration has come to the end, nothing is read or
        decoded again.

        Args:
            indices: numbers of the frames, from 0, or from the end if negative. A number may occur several times.
            times_s: times in seconds, as for `frame_at`, instead of `indices`.
            out: array to write to and return, of frames × `shape` and `dtype`: a writable array, such as shared memory;
                or a tensor of PyTorch, on the CPU or a GPU, or an array of CuPy, to which each frame is copied as soon
                as it's decoded. After an error, its content is undefined. None returns a new array. If the previous
                batch had as many frames, the array is in recycled memory, which returns to the decoder when you drop
                the last array on it. The memory of two batches is kept until `close`. ``torch.from_numpy`` makes a
                tensor of the array without a copy.

        Raises:
            IndexError, DecoderError, ClosedError: as for ``decoder[number]``.
            ValueError: if `out` has another shape or dtype; or as for ``decoder[number]``.
            BufferError, TypeError: if `out` is read-only, as JAX's arrays are, or isn't an array.
            TypeError: if you pass both `indices` and `times_s`, or neither.
        """
        if indices is not None and times_s is None:
            return self._frames().batch(indices, out)
        if indices is None and times_s is not None:
            return self._frames().batch_at(times_s, out)
        raise TypeError(
            "batch takes either indices or times_s. Pass batch([0, 7]) or batch(times_s=[0.0, 0.5])"
        )

    def _check_by_number(self) -> None:
        """Checks that no option keeps frames from being read by number."""
        options = self._options
        given = {
            "filters": options.filters,
            "input_options": options.given_input,
            "follow_playlists": options.follow_playlists,
            # Another build of FFmpeg, whose frames may differ.
            "settings": options.isolated and why_program(self._opened, options) and options.settings,
        }
        what, remedy = "decoder[i], frame_at() and batch() don't", "Iterate over the decoder instead"
        if options.fps is not None:
            what, remedy = (
                f"{argument('fps', float(options.fps))} doesn't",
                f"Pass {argument('filters', 'fps=…')} without {argument('fps')}",
            )
        for name, value in given.items():
            if value:
                raise ValueError(f"{what} support {argument(name, value)}. {remedy}")

    def _frames(self) -> FramesByNumber:
        """The frames by number, from the first use on."""
        self._engine.check_open()
        # In the child of a fork, libav's threads are missing: it opens the file again.
        if self._by_number is None or self._by_number.is_inherited:
            self._check_by_number()
            self._by_number = self._new_frames()
        return self._by_number

    def _new_frames(self) -> FramesByNumber:
        if self._images is not None:
            return images_by_number(self._images, self._plan)
        file: FramesAnywhere
        pixels: Arrays
        options, first, why = self._options, None, None
        if options.isolated:
            from penstock._decoding.confined_frames import ConfinedFrames

            file = confined = ConfinedFrames(self._opened, options, self._plan.delivered.frame_bytes)
            pixels, why = NoPixels(self._plan.delivered.frame_bytes), confined.end
        else:
            # Iteration lends the file as long as it has decoded the first frame only, and opens it again to go on.
            first, video = self._engine.lend() or (None, None)
            chosen = input_of(self._plan.track, options, self._plan.decoder)
            file, pixels = RandomAccess(chosen, self._engine.account, video), Pixels(self._plan)
            # Whoever conceals errors knows of them.
            why = None if options.conceal_errors else partial(why_early, self._plan.track, file)
        if options.rate is None:
            return FramesByNumber(self._plan, file, pixels, first, why)
        return FramesAtRate(self._plan, file, pixels, options, why)

    def __len__(self) -> int:
        """Returns the number of frames that iteration returns in total, so that ``tqdm(decoder)`` works.

        The number comes from the header of an MP4 or QuickTime file. For other files, and with `start`, `end` or `fps`,
        the first use reads all of the file's packets. It never decodes the file: see `count_frames`.

        Raises:
            TypeError: if the number isn't known. The message says why.
        """
        unknown, options = "the number of frames is unknown", self._options
        if self._images is not None and self._length is None:
            self._length = len(wanted_images(self._images, self._plan))
        if options.filters or changes_frames(options.given_input):
            raise TypeError(f"{unknown}, because `filters` or `input_options` may change it")
        # What decoding has shown is right, whatever the header says.
        if not self._engine.is_closed and (self._by_number is not None or self._engine.account is not None):
            return self.count_frames()
        if self._length is None:
            start = options.start if options.fps is not None else self._plan.options.start
            rate = None if options.fps is None else str(options.fps)
            self._length = self._engine.checks.frames(start, options.end, rate)
        if self._length is None:
            # `count_frames` decodes by libav, which may not be able to read what the program reads.
            by_program = self._engine.facts.name == "ffmpeg"
            count = "sum(1 for _ in decoder)" if by_program else "decoder.count_frames()"
            raise TypeError(f"{unknown}, because the file doesn't say. Use {count}, which decodes all of it")
        return self._length if options.count is None else min(self._length, options.count)

    def count_frames(self) -> int:
        """Returns the number of frames that iteration returns in total, and decodes the file once if it must.

        ``len(decoder)`` is the same number, but raises a `TypeError` where only decoding shows it: because a packet may
        hold no frame, or a field (VP8, MPEG-4, interlaced H.264), or because packets have no times (AVI, raw streams).
        What this finds out is kept for ``len(decoder)`` and ``decoder[number]``. If the file is damaged, damaged frames
        count, too.

        Raises:
            DecoderError, ClosedError, ValueError: as for ``decoder[number]``.
        """
        return len(self._frames())

    def __bool__(self) -> bool:
        return True  # whatever `len` is
