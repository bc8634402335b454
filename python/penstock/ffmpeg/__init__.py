"""Video through the FFmpeg program: these modules start it, feed it and report the result.

- The public classes: ``encoder`` and ``audio_encoder``, which share ``encoder_base``; ``settings`` has what they share
  with the decoders of `penstock.media`, ``frames`` their arrays.
- Plans: ``encode_settings`` checks the arguments of an encoder, and decides what no size changes. ``encode_plan``
  decides who converts pixels, and makes FFmpeg's arguments with ``arguments``, ``colors``, ``endpoints`` and
  ``timestamps``. ``pixel_formats`` knows how frames lie in memory, ``frame_check`` compares a frame
  with that, ``output_formats`` knows what a codec can hold. ``sound`` plans the sound of a video; ``nut`` is the stream
  of frames and sound with times.
- Runs: ``session`` is one run of FFmpeg, ``encode_session`` with the native writer that feeds it. ``feed`` puts times
  before frames and sound, ``sound_packets`` reads files of sound. ``process``, ``child`` and ``runner`` start and watch
  programs. ``reporter`` reports the progress of an encoder, ``bar`` draws it. ``replacing`` keeps an old file until the
  new one is whole.
- Inspection: ``capabilities`` tells what an FFmpeg can do; ``diagnostics`` sorts its messages, ``advice`` tells what to
  do about them; ``find`` finds the program, ``naming`` names arguments in messages.
"""

from penstock.ffmpeg.audio_encoder import AudioEncoder
from penstock.ffmpeg.encoder import Encoder
from penstock.ffmpeg.find import find_ffmpeg
from penstock.ffmpeg.settings import Colors, Tuning
from penstock.ffmpeg.sound import AudioFile, AudioInput

__all__ = ["AudioEncoder", "AudioFile", "AudioInput", "Colors", "Encoder", "Tuning", "find_ffmpeg"]
