"""Video and audio through FFmpeg: these modules start it, feed it or read from it, and report the result.

``encoder``, ``decoder`` and ``audio`` have the public classes, and ``settings`` what they share. ``plan`` and
``decode_plan`` decide who converts pixels, and make FFmpeg's arguments with ``command``. ``session`` runs FFmpeg, with
the native writer in ``encode_session`` and the native reader in ``decode_session``; ``process`` and ``child`` start and
watch the program. ``pixels`` knows the layouts of raw frames, ``probe`` reads a file's header, ``ending`` tells whether
all frames of a file came, and ``find`` finds the programs.
"""

from penstock.ffmpeg.audio import AudioDecoder
from penstock.ffmpeg.decoder import Decoder
from penstock.ffmpeg.encoder import Encoder
from penstock.ffmpeg.find import find_ffmpeg, find_ffprobe
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.probe import probe
from penstock.ffmpeg.settings import Colors, Tuning

__all__ = [
    "AudioDecoder",
    "AudioInfo",
    "Colors",
    "Decoder",
    "Encoder",
    "MediaInfo",
    "Tuning",
    "VideoInfo",
    "find_ffmpeg",
    "find_ffprobe",
    "probe",
]
