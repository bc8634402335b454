"""Reading: video and sound of a file as arrays, in sequence or by number.

``decoder`` and ``audio`` have the public classes, and ``any_frame`` what a `Decoder` does by number. ``plan`` decides
how pixels are converted, and ``engines`` who decodes: libav in this process (``libav_engine``, ``random_access``) or
the FFmpeg program (``session``, with ``program_arguments``). ``sequence`` reads in order, ``frames_by_number`` any
frame, both by a ``run`` of the decoder, which says what is damaged. It imports `_facts` and below; encoding, rendering
and the CLI call it.
"""
