"""Reading: video and sound in sequence by the FFmpeg program; a file's facts, and any of its frames, by libav (PyAV).

- In sequence: ``decoder`` and ``audio`` have the public classes, ``prefetching`` opens decoders ahead. ``decode_plan``
  decides who converts pixels, ``decode_session`` is one run of FFmpeg with the native reader of its output, and
  ``ending`` tells whether all frames came, ``start`` where the first one is, ``source`` and ``once`` are what is read.
- Facts: ``facts`` reads them into the types of ``info``. ``opening`` opens a file in this process. ``written`` compares
  what the file of an `Encoder` says with what was meant.
- Any frame: ``frames`` has them by number and time, ``index`` tells which packet holds which frame, and
  ``random_access`` decodes it.
- ``video_frame`` is the array that both give.
"""

from penstock.ffmpeg.command.settings import Colors, ContentLight, MasteringDisplay, Tuning
from penstock.media.audio import AudioDecoder
from penstock.media.decoder import Decoder
from penstock.media.facts import probe
from penstock.media.info import AudioInfo, Chapter, MediaInfo, SubtitleInfo, VideoInfo
from penstock.media.prefetching import prefetch

__all__ = [
    "AudioDecoder",
    "AudioInfo",
    "Chapter",
    "Colors",
    "ContentLight",
    "Decoder",
    "MasteringDisplay",
    "MediaInfo",
    "SubtitleInfo",
    "Tuning",
    "VideoInfo",
    "prefetch",
    "probe",
]
