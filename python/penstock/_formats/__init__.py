"""What is known of containers, codecs, encoders and pixel formats beyond what libav and FFmpeg tell: a record for each.

It imports nothing of the rest of the package. What libav tells is asked for only where nothing is known.
"""
