"""Video through the FFmpeg program: these modules start it, feed it and report the result.

``encoder`` and ``audio_encoder`` are the public classes, which share ``encoder_base``. An encoder has a ``plan`` made,
and a ``session`` carries it out with the ``program``. ``frames`` has the arrays of frames, ``bar`` draws progress, and
``naming`` names arguments in messages.
"""

from penstock.ffmpeg.audio_encoder import AudioEncoder
from penstock.ffmpeg.encoder import Encoder
from penstock.ffmpeg.plan.settings import Colors, Tuning
from penstock.ffmpeg.plan.sound import AudioFile, AudioInput
from penstock.ffmpeg.program.find import find_ffmpeg

__all__ = [
    "AudioEncoder",
    "AudioFile",
    "AudioInput",
    "Colors",
    "Encoder",
    "Tuning",
    "find_ffmpeg",
]
