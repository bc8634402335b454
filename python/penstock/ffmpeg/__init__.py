"""Encodes video and sound with the FFmpeg program: starts it, feeds it and reports the result.

``encoder`` has the public classes, and ``encoder_base`` their common base. ``plan`` decides what an encode does,
``session`` runs it, and ``program`` finds, starts and watches FFmpeg. ``command`` builds FFmpeg's arguments, for
encoders and for the decoders in `penstock.media`.
"""

from typing import TYPE_CHECKING

from penstock import _lazy

if TYPE_CHECKING:
    from penstock.ffmpeg.command.colors import hlg_from_nits, pq_from_nits
    from penstock.ffmpeg.command.settings import Colors, Tuning
    from penstock.ffmpeg.encoder import AudioEncoder, Encoder
    from penstock.ffmpeg.plan.sound import AudioFile, AudioInput
    from penstock.ffmpeg.program.capabilities import find_ffmpeg

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

if not TYPE_CHECKING:  # or type checkers would accept any name
    # Imported at first use: a `Decoder` needs ``program``, but none of these.
    __getattr__, __dir__ = _lazy.attributes(
        __name__,
        names={
            "AudioEncoder": "encoder",
            "AudioFile": "plan.sound",
            "AudioInput": "plan.sound",
            "Colors": "command.settings",
            "Encoder": "encoder",
            "Tuning": "command.settings",
            "find_ffmpeg": "program.capabilities",
            "hlg_from_nits": "command.colors",
            "pq_from_nits": "command.colors",
        },
    )
