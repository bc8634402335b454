"""One record for each container of which something is known that libav doesn't tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Container:
    """What is known of a container.

    Attributes:
        has_index: FFmpeg finds a keyframe before a place by an index.
        may_seek: FFmpeg can seek. Without an index, it guesses positions, and may begin too late.
        keeps_times: it holds times as they were written.
        may_lack_times: packets may have no times, and those that libav makes are right.
        tells_length: its header says how long the video is. FFmpeg measures others (MPEG-TS, Y4M), or guesses from the
            bit rate; neither shows a cut. The header of AVI is often wrong.
        tells_sound: its header says how long the sound is, and FFmpeg does not notice each cut.
        counts_samples: it does so by the number of samples.
        times_sound: it holds times of the sound. libav counts packets or bytes of AVI, wrongly for some codecs.
    """

    has_index: bool = False
    may_seek: bool = False
    keeps_times: bool = False
    may_lack_times: bool = False
    tells_length: bool = False
    tells_sound: bool = False
    counts_samples: bool = False
    times_sound: bool = True


_OTHER, _GUESSING = Container(), Container(may_seek=True)
_CONTAINERS = {
    **dict.fromkeys(
        ("mov", "matroska"), Container(has_index=True, may_seek=True, keeps_times=True, tells_length=True)
    ),
    "nut": Container(has_index=True, may_seek=True, keeps_times=True),
    **dict.fromkeys(("mpegts", "ogg", "asf"), _GUESSING),
    "avi": Container(may_seek=True, times_sound=False),
    "mpeg": Container(may_seek=True, may_lack_times=True),
    "mxf": Container(may_seek=True, tells_length=True),
    "flv": Container(may_seek=True, tells_length=True, tells_sound=True),
    **dict.fromkeys(("aiff", "au"), Container(tells_sound=True, counts_samples=True)),
    **dict.fromkeys(("caf", "flac", "mp3", "tta", "wv"), Container(tells_sound=True)),
}


def known(names: str) -> Container:
    """The record of a container by FFmpeg's names of its demuxer, such as ``matroska,webm``."""
    return _CONTAINERS.get(names.partition(",")[0], _OTHER)
