"""Video and audio through FFmpeg: these modules start it, feed it or read from it, and report the result.

- The public classes: ``encoder``, ``decoder``, ``audio``; ``prefetch`` opens decoders ahead; ``settings`` has what they
  share, ``frames`` their arrays.
- Plans: ``encode_plan`` and ``decode_plan`` decide who converts pixels, and make FFmpeg's arguments with ``arguments``,
  ``colors``, ``endpoints`` and ``timestamps``. ``pixel_formats`` knows how frames lie in memory, ``frame_check``
  compares a caller's frame with that, ``output_formats`` knows what a codec can hold. ``sound`` plans the sound of a
  video; ``nut`` is the stream of frames and sound with times.
- Runs: ``session`` is one run of FFmpeg, ``encode_session`` with the native writer that feeds it, ``decode_session``
  with the native reader of its output. ``opening`` has the FFmpeg that decodes a file describe it first. ``feed`` puts
  times before frames and sound, ``sound_packets`` reads files of sound. ``process``, ``child`` and ``runner`` start and
  watch programs. ``reporter`` reports the progress of an encoder, ``bar`` draws it.
- Inspection: ``probe`` reads a file's header into the types of ``media``, ``ending`` tells whether all frames of a file
  came, with ``boxes`` for MP4 files, ``capabilities`` what an FFmpeg can do, ``diagnostics`` what its messages mean;
  ``find`` finds the programs, ``naming`` names arguments in messages.
"""

from penstock.ffmpeg.audio import AudioDecoder
from penstock.ffmpeg.decoder import Decoder
from penstock.ffmpeg.encoder import Encoder
from penstock.ffmpeg.find import find_ffmpeg, find_ffprobe
from penstock.ffmpeg.media import AudioInfo, MediaInfo, VideoInfo
from penstock.ffmpeg.prefetch import prefetch
from penstock.ffmpeg.probe import probe
from penstock.ffmpeg.settings import Colors, Tuning
from penstock.ffmpeg.sound import AudioFile, AudioInput

__all__ = [
    "AudioDecoder",
    "AudioFile",
    "AudioInfo",
    "AudioInput",
    "Colors",
    "Decoder",
    "Encoder",
    "MediaInfo",
    "Tuning",
    "VideoInfo",
    "find_ffmpeg",
    "find_ffprobe",
    "prefetch",
    "probe",
]
