"""An encode at work.

``encode_session`` is a run of FFmpeg with the native writer that feeds it. ``feed`` puts times before frames and sound,
``sound_packets`` reads files of sound. ``replacing`` keeps an old file until the new one is whole, ``reporter`` reports
progress, and ``advice`` tells what to do about an FFmpeg that failed.
"""
