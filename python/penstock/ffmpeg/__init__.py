"""Video through the FFmpeg program: these modules start it, feed it and report the result.

``encoder`` and ``audio_encoder`` are the public classes, which share ``encoder_base``. An encoder has a ``plan`` made,
and a ``session`` carries it out with the ``program``. ``frames`` has the arrays of frames, ``light`` makes samples of
HDR, and ``naming`` names arguments in messages.
"""

from typing import TYPE_CHECKING

from penstock import _lazy
from penstock.ffmpeg.plan.settings import Colors, Tuning
from penstock.ffmpeg.program.find import find_ffmpeg

if TYPE_CHECKING:
    from penstock.ffmpeg.audio_encoder import AudioEncoder
    from penstock.ffmpeg.encoder import Encoder
    from penstock.ffmpeg.light import hlg_from_nits, pq_from_nits
    from penstock.ffmpeg.plan.sound import AudioFile, AudioInput

__all__ = [
    "AudioEncoder",
    "AudioFile",
    "AudioInput",
    "Colors",
    "Encoder",
    "Tuning",
    "find_ffmpeg",
    "hlg_from_nits",
    "pq_from_nits",
]

if not TYPE_CHECKING:  # which would take every name for one of ours
    # A `Decoder`, which needs the program, does without.
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        names={
            "AudioEncoder": "audio_encoder",
            "AudioFile": "plan.sound",
            "AudioInput": "plan.sound",
            "Encoder": "encoder",
            "hlg_from_nits": "light",
            "pq_from_nits": "light",
        },
    )
