"""What FFmpeg's command line speaks of, for encoding and decoding.

``endpoints`` are its inputs and outputs, ``pixel_formats`` tell how frames lie in memory, and ``colors`` what their
samples mean. ``arguments`` makes options of these. ``settings`` has what users set for both.
"""
