"""Video through the FFmpeg program: these modules start it, feed it and report the result.

``encoder`` and ``audio_encoder`` are the public classes, which share ``encoder_base``. An encoder has a ``plan`` made,
and a ``session`` carries it out with the ``program``. ``frames`` has the arrays of frames, ``bar`` draws progress, and
``naming`` names arguments in messages.
"""

import importlib
from typing import TYPE_CHECKING

from penstock.ffmpeg.plan.settings import Colors, Tuning
from penstock.ffmpeg.program.find import find_ffmpeg

if TYPE_CHECKING:
    from penstock.ffmpeg.audio_encoder import AudioEncoder
    from penstock.ffmpeg.encoder import Encoder
    from penstock.ffmpeg.plan.sound import AudioFile, AudioInput

__all__ = [
    "AudioEncoder",
    "AudioFile",
    "AudioInput",
    "Colors",
    "Encoder",
    "Tuning",
    "find_ffmpeg",
]

# These are imported at their first use: a `Decoder`, which needs the program, does without.
_LAZY_NAMES = {
    "AudioEncoder": "audio_encoder",
    "AudioFile": "plan.sound",
    "AudioInput": "plan.sound",
    "Encoder": "encoder",
}

if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name: str) -> object:
        if name in _LAZY_NAMES:
            module = importlib.import_module(f"penstock.ffmpeg.{_LAZY_NAMES[name]}")
            value = globals()[name] = getattr(module, name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY_NAMES})
