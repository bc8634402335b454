"""Video through FFmpeg, which does the coding; we start it, feed it and tell what became of it.

``find`` finds the program, ``process`` keeps it running, ``pixels`` knows what a raw frame is made of, and
``encoder`` makes an `Encoder` of these and of the native writer. ``probe`` tells what is in a file, and ``decoder``
makes a `Decoder` of it with the native reader, as ``audio`` does for sound; what both do with FFmpeg is in ``intake``,
and ``ending`` tells whether all frames of a file came.
"""

from penstock.ffmpeg.audio import AudioDecoder
from penstock.ffmpeg.decoder import Decoder
from penstock.ffmpeg.encoder import Encoder, EncodeReport
from penstock.ffmpeg.find import find_ffmpeg, find_ffprobe
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.probe import probe

__all__ = [
    "AudioDecoder",
    "AudioInfo",
    "Decoder",
    "EncodeReport",
    "Encoder",
    "MediaInfo",
    "VideoInfo",
    "find_ffmpeg",
    "find_ffprobe",
    "probe",
]
