"""Video through FFmpeg, which does the coding; we start it, feed it and tell what became of it.

``find`` finds the program, ``process`` keeps it running, ``pixels`` knows what a raw frame is made of, and
``encoder`` makes an `Encoder` of these and of the native writer. ``probe`` tells what is in a file.
"""

from penstock.ffmpeg.encoder import Encoder, EncodeReport
from penstock.ffmpeg.find import find_ffmpeg, find_ffprobe
from penstock.ffmpeg.probe import AudioInfo, MediaInfo, VideoInfo, probe

__all__ = [
    "AudioInfo",
    "EncodeReport",
    "Encoder",
    "MediaInfo",
    "VideoInfo",
    "find_ffmpeg",
    "find_ffprobe",
    "probe",
]
