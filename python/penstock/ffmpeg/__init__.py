"""Video through FFmpeg, which does the coding; we start it, feed it and tell what became of it.

``find`` finds the program, ``process`` keeps it running, ``pixels`` knows what a raw frame is made of, and
``encoder`` makes an `Encoder` of these and of the native writer.
"""

from penstock.ffmpeg.encoder import Encoder, EncodeReport
from penstock.ffmpeg.find import find_ffmpeg

__all__ = ["EncodeReport", "Encoder", "find_ffmpeg"]
