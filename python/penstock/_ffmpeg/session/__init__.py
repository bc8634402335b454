"""Runs an encode.

``encode_session`` is a run of FFmpeg with the native writer that feeds it. ``feed`` puts times before frames and sound,
and ``sound_packets`` reads files of sound. ``output`` keeps an old file until the new one is whole, or writes to an
object. ``advice`` tells what to do about an FFmpeg that failed.
"""
