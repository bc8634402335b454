"""The frames of a `Decoder` of image files, in sequence and by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock._common.messages import argument
from penstock._decoding.frames_by_number import FramesByNumber
from penstock._decoding.image_sequence import ImageSequence
from penstock._decoding.libav_engine import LibavEngine
from penstock._decoding.options import DecodeOptions
from penstock._decoding.pixels import Pixels
from penstock._decoding.plan import DecodePlan, plan_decode
from penstock._decoding.sequence import SequenceFrame
from penstock._facts.completeness import EndOfFile
from penstock._facts.info import Track

if TYPE_CHECKING:
    from penstock._decoding.image_files import ImageFiles


def open_images(files: ImageFiles, options: DecodeOptions) -> ImageSequence:
    """The pictures in the files.

    Raises:
        ValueError: an option is for videos only.
        DecoderError, OSError: as `ImageSequence`.
    """
    for_videos = {
        "stream": options.stream,
        "filters": options.filters,
        "input_options": options.given_input,
        "follow_playlists": options.follow_playlists,
        "isolated": options.isolated,
        "settings.policy": options.settings.policy,
        "settings.ffmpeg_policy": options.settings.ffmpeg_policy,
    }
    for name, value in for_videos.items():
        if value:
            raise ValueError(f"{argument(name, value)} has no effect on an image sequence. Leave it out")
    return ImageSequence(files, threads=options.settings.threads, is_strict=not options.conceal_errors)


def wanted_images(images: ImageSequence, plan: DecodePlan) -> range:
    """The numbers of the pictures that are wanted."""
    return plan.part.places(np.arange(len(images)), len(images))


def read_images(images: ImageSequence, options: DecodeOptions) -> LibavEngine:
    """Reads pictures in sequence, by libav in this process."""
    plan = plan_decode(None, Track("", images.media(), images.video), options)
    pictures = PicturesInOrder(images, wanted_images(images, plan))
    return LibavEngine(plan, pictures, "libav reads image files, in this process")


def images_by_number(images: ImageSequence, plan: DecodePlan) -> FramesByNumber:
    """The same pictures in any order."""
    return FramesByNumber(plan, images, Pixels(plan))


class PicturesInOrder:
    """Pictures in sequence, as a `Sequence` gives the frames of a file.

    Args:
        numbers: of those that are wanted.

    Attributes:
        how: how they are decoded, for people.
        account: None. They have no packets.
    """

    def __init__(self, images: ImageSequence, numbers: range) -> None:
        self._images, self._numbers = images, numbers
        self._pictures = images.pictures(numbers)
        self.how, self.account = "each by itself, some ahead on threads", None

    def advance(self) -> SequenceFrame | None:
        """The next picture; None if it is not decoded yet.

        Raises:
            StopIteration: there are no more.
            DecoderError, OSError: the file cannot be decoded or read.
        """
        if (decoded := next(self._pictures)) is None:
            return None
        number, picture = decoded
        return SequenceFrame(number - self._numbers.start, number, picture)

    def lend(self) -> None:
        """Nothing: each picture is a file of its own."""

    def resume(self, given: int, _: int | None) -> None:
        """Goes on behind so many pictures."""
        self.close()
        self._pictures = self._images.pictures(self._numbers[given:])

    def end(self, _: Track) -> EndOfFile:
        """Nothing shows after the last picture."""
        return EndOfFile()

    def close(self) -> None:
        """Ends the threads."""
        self._pictures.close()
