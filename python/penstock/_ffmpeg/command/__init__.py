"""Builds FFmpeg's command line, for encoding and decoding.

``endpoints`` names inputs and outputs, ``pixel_formats`` has the layouts of frames in memory, and ``colors`` the
meaning of their samples. ``arguments`` turns these into options. ``settings`` has what users set for both.
"""
