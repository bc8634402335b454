"""Decides what an encode does, before its first frame.

``request`` checks the arguments of an encoder. ``encode_plan`` decides, for one frame size, who converts pixels
and which arguments FFmpeg gets. ``encoders`` chooses the encoder and ``output_pixel_format`` its pixel format.
``frame_check`` compares a frame with the expected layout. ``sound`` plans the sound, ``labels`` metadata, chapters and
subtitles, and ``nut`` writes frames and sound with timestamps as one stream.
"""
