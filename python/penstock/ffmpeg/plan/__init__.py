"""What an encode does, decided before a frame is there.

``encode_settings`` has what an encoder is asked for, and ``encode_plan`` who converts pixels of a size, and FFmpeg's
arguments. ``encoders`` chooses the encoder and ``output_pixel_format`` its pixel format. ``frame_check`` compares a
frame with the layout that is expected. ``sound`` plans the sound, ``labels`` metadata, chapters and subtitles, and
``nut`` is the stream of frames and sound with times.
"""
