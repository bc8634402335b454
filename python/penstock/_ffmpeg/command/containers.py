"""The containers that FFmpeg writes, as libav knows them: which one a file's name means, and what it is made for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

#: FFmpeg's name of what writes each picture to a file of its own.
IMAGES = "image2"


class Container(NamedTuple):
    """What libav says of a container.

    Attributes:
        name: FFmpeg's name.
        video: the codec that it gets by default, by FFmpeg's name; None if it has no video, or any.
        audio: the same for sound.
    """

    name: str
    video: str | None
    audio: str | None

    @property
    def holds_sound(self) -> bool:
        """Whether it has a place for sound, as pictures and streams of one codec have not."""
        return self.audio is not None or self.video is None


# The usual ones, by their endings, without the 0.1 s that importing libav takes.
_USUAL = {
    ".gif": Container("gif", "gif", None),
    ".jpg": Container(IMAGES, "mjpeg", None),
    ".mkv": Container("matroska", "h264", "ac3"),
    ".mov": Container("mov", "h264", "aac"),
    ".mp4": Container("mp4", "h264", "aac"),
    ".png": Container(IMAGES, "mjpeg", None),
    ".webm": Container("webm", "vp9", "opus"),
}


def of_ending(ending: str) -> Container | None:
    """The container that FFmpeg chooses for a name with this ending (``.mkv``); None if there is none."""
    return _USUAL.get(ending) or _asked(f"name{ending}", None)


def of_format(name: str) -> Container | None:
    """The container of this name of FFmpeg's; None if libav does not write it."""
    return next((one for one in _USUAL.values() if one.name == name), None) or _asked("", name)


@cache
def _asked(path: str, name: str | None) -> Container | None:
    import av  # where it is needed

    try:
        with av.open(path, "w", format=name) as output:  # creates no file before it has a header
            video, audio = output.default_video_codec, output.default_audio_codec
            return Container(output.format.name, *(None if one == "none" else one for one in (video, audio)))
    except ValueError:
        return None
