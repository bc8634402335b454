"""What an encode does, decided before a frame is there.

``settings`` has what users set for all, ``encode_settings`` what an encoder is asked for, and ``encode_plan`` who
converts pixels of a size, with FFmpeg's ``arguments``, ``colors`` and ``endpoints``. ``pixel_formats`` knows how frames
lie in memory, ``frame_check`` compares a frame with that, ``output_formats`` knows what a codec can hold. ``sound``
plans the sound; ``nut`` is the stream of frames and sound with times.
"""
